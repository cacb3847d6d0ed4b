# ruff: noqa: SIM115
"""A process that has imported everything and forks a `trellis` command on request.

Importing JAX and Gymnasium takes longer than most commands of the fault suite. Nothing here
computes with JAX, so there are no threads yet and a fork is a process like any other.

The requests are lines of JSON on standard input, the answers lines of JSON on standard output.
"""

import json
import os
import signal
import sys
import warnings


def run(request: dict) -> int:
    """Fork a command; return the process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks, which break its threads.
        pid = os.fork()
    if pid:
        return pid
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.closerange(3, 64)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    os.chdir(request["cwd"])
    os.environ.update(request["environment"])
    sys.argv = ["trellis", *request["arguments"]]
    from trellis.__main__ import main

    exec(request["before"], {})

    sys.exit(main())


def serve() -> None:
    """Answer requests until standard input ends."""

    # Lines, not a file object: a child must not have read what is its parent's.
    buffer = b""
    print(json.dumps("ready"), flush=True)
    while True:
        while b"\n" not in buffer:
            data = os.read(0, 65536)
            if not data:
                return
            buffer += data
        line, _, buffer = buffer.partition(b"\n")
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = run(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
