"""Runs shell scripts whose `trellis` and `python FILE` are functions of this process.

Bash runs the script, with all of its syntax. On its PATH, `trellis` and `python` are small scripts
that hand their arguments to this process, wait for the answer and print it. That saves starting
Python and JAX for each command, and what is patched here is patched for them, too.
"""

import contextlib
import io
import os
import runpy
import select
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium

PROXY = """#!/bin/bash
{fallback}
printf '%s\\0' {name} "$PWD" "$@" > "$DOCS_SHELL/arguments.$$"
mkfifo "$DOCS_SHELL/code.$$"
echo $$ > "$DOCS_SHELL/requests"
read -r code < "$DOCS_SHELL/code.$$"
cat "$DOCS_SHELL/out.$$"
cat "$DOCS_SHELL/err.$$" >&2
exit "$code"
"""
# Everything but `python FILE.py` is for the real one.
ONLY_FILES = 'case "$1" in *.py) ;; *) exec {python} "$@" ;; esac'
POLL_SECONDS = 0.5


def run_script(text: str, folder: Path, server: Path) -> tuple[int, str]:
    """Run a script in `folder` and return its exit code and what it wrote to standard error.

    Args:
        text: The script.
        folder: Its current folder.
        server: A new folder, for messages between the script and this process.
    """
    server.mkdir()
    os.mkfifo(server / "requests")
    bin_folder = server / "bin"
    bin_folder.mkdir()
    fallbacks = {"trellis": "", "python": ONLY_FILES.format(python=sys.executable)}
    for name, fallback in fallbacks.items():
        (bin_folder / name).write_text(PROXY.format(name=name, fallback=fallback))
        (bin_folder / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(bin_folder), os.environ["PATH"]]),
        "DOCS_SHELL": str(server),
    }
    # Open for writing, too: then a reader never sees the end of the pipe.
    requests = os.open(server / "requests", os.O_RDWR | os.O_NONBLOCK)
    errors = server / "stderr"
    try:
        with errors.open("w") as stderr:
            bash = subprocess.Popen(
                [shutil.which("bash") or "bash", "-e", "-c", text],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            while bash.poll() is None:
                if select.select([requests], [], [], POLL_SECONDS)[0]:
                    for request in os.read(requests, 4096).decode().split():
                        _answer(server, request)
    finally:
        os.close(requests)
    return bash.returncode, errors.read_text()


def _answer(server: Path, request: str) -> None:
    arguments = (server / f"arguments.{request}").read_bytes().decode().split("\0")[:-1]
    name, folder, *rest = arguments
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        like_a_process(Path(folder)),
    ):
        code = _call(_trellis if name == "trellis" else _python_file, rest)
    (server / f"out.{request}").write_text(out.getvalue())
    (server / f"err.{request}").write_text(err.getvalue())
    (server / f"code.{request}").write_text(f"{code}\n")


@contextlib.contextmanager
def like_a_process(folder: Path) -> Iterator[None]:
    """Enter a folder; at the end forget what was imported from it, as if a process had ended."""
    before, modules, path = Path.cwd(), set(sys.modules), list(sys.path)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(folder.resolve()):
                _forget(name)


def _forget(module: str) -> None:
    """Forget a module and the environments that it registered."""
    del sys.modules[module]
    for env_id, spec in list(gymnasium.registry.items()):
        home = getattr(spec.entry_point, "__module__", None) or str(spec.entry_point).split(":")[0]
        if home == module:
            del gymnasium.registry[env_id]


def _call(function: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return function(arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def _trellis(arguments: list[str]) -> int:
    from trellis.cli.main import main

    return main(arguments)


def _python_file(arguments: list[str]) -> int:
    before, sys.argv = sys.argv, arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before
    return 0
