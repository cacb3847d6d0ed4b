"""Rays for tests: small, private, and gone afterwards, whatever happened in between."""

import contextlib
import functools
import os
import secrets
import shutil
import signal
import tempfile
import time
from pathlib import Path
from unittest import mock

import ray

from trellis.cluster.team import RayTeam

FAULTS = ("collect", "prepare_step", "fisher_product", "evaluate")


@contextlib.contextmanager
def ray_folder():
    """A folder for Ray (its paths must be short) and an environment for it and its workers; in the
    end no process that knows the folder is left."""
    folder = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # Workers come and go here, and all compile the same.
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with mock.patch.dict(os.environ, environment):
        try:
            yield folder
        finally:
            ray.shutdown()
            left = wait_for_end(folder)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
            assert not left, f"Ray's processes {left} were still there"


def wait_for_end(folder, seconds=20):
    """Processes of a Ray in this folder that are still there after so long."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def processes_of(folder):
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if str(folder).encode() in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def team_on(cluster, workers):
    """Makes teams on this cluster."""
    return functools.partial(RayTeam, cluster=cluster, workers=workers)


def start_ray(folder, num_cpus=4):
    ray.init(
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _temp_dir=str(folder),
        logging_level="ERROR",
        log_to_driver=False,
    )


def kill_workers(group, faults=FAULTS, iterations=(2,)):
    """Kills a worker during each of these calls, in each of these iterations; before the second
    there is nothing to be restored. Returns what was struck, as it happens."""
    ask, send, due, struck, iteration = group.ask, group._send, [], [], 0

    def count_and_ask(what, call, **options):
        nonlocal iteration
        if what in ("collect", "play"):
            iteration += 1
            due[:] = faults if iteration in iterations else ()
        return ask(what, call, **options)

    def send_and_kill(span, what, call):
        strikes = bool(due) and what == due[0] and span == group.spans[len(due) % 2]
        pid = ray.get(group._actors[span].pid.remote()) if strikes else None
        ref = send(span, what, call)
        if strikes:
            struck.append(due.pop(0))
            os.kill(pid, signal.SIGKILL)
        return ref

    group.ask, group._send = count_and_ask, send_and_kill
    return struck
