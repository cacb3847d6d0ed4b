"""Connects to a Ray cluster, or raises an error with the reason within seconds.

`local` starts Ray on this machine and stops it after the run. `auto` finds the cluster that this
machine belongs to. Anything else is the address of the head, HOST:PORT.
"""

import contextlib
import importlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from trellis.cluster.reaper import start_reaper, stop_reaper
from trellis.cluster.security import (
    asks_for_token,
    forget,
    private_settings,
    use_token,
    warn_if_open,
)
from trellis.signals import delayed_signals

REACH_SECONDS = 5.0
"""Time limit for the head's port to accept a connection."""
CONNECT_SECONDS = 15.0
"""Time limit for Ray to join the cluster."""
OBJECT_STORE_BYTES = 256 << 20
"""Size of the object store of a local Ray; only a few vectors pass through it."""
_users = 0
"""Number of users of the connection that this process made."""
_variables: list[str] = []
"""Environment variables that this process set for its cluster."""
_reaper: subprocess.Popen[bytes] | None = None
"""Process that ends the Ray of this process if this process is killed."""


class ClusterError(RuntimeError):
    """The cluster cannot be used as requested; the message says why and what to do."""


def load_ray() -> Any:
    """Return the module `ray`, or raise an error that names the install command."""
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "--cluster needs Ray, which is not installed: pip install 'trellis-rl[ray]'. Without"
            " --cluster the same shards run in this process."
        ) from error
    return ray


def connect(cluster: str) -> bool:
    """Join the cluster, unless already connected; return whether `disconnect` must follow."""
    global _users
    ray = load_ray()
    if ray.is_initialized():
        _users += _users > 0
        return _users > 0
    # Send no usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if cluster == "local":
        _start(ray)
    else:
        asks = None
        if cluster != "auto":
            _reach(cluster)
            asks = asks_for_token(cluster)
            if asks:
                _variables.extend(use_token())
        try:
            _join(ray, cluster)
        except BaseException:
            _clean_up()
            raise
        if asks is None:
            cluster = ray.get_runtime_context().gcs_address
            asks = asks_for_token(cluster)
        warn_if_open(cluster, asks)
    _users = 1
    return True


def disconnect() -> None:
    """Leave the cluster after its last user; a cluster that was started here stops."""
    global _users
    _users -= 1
    if _users:
        return
    load_ray().shutdown()
    _clean_up()


def _clean_up() -> None:
    """Remove the environment variables and the reaper of the cluster."""
    global _reaper
    forget(_variables)
    _variables.clear()
    stop_reaper(_reaper)
    _reaper = None


def _start(ray: Any) -> None:
    """Start Ray on this machine; signals wait until it runs, so that it never starts in part."""
    # By default Ray gives workers a low priority (nice 15). These do the work of this process.
    os.environ.setdefault("RAY_worker_niceness", "0")
    global _reaper
    try:
        with delayed_signals(), _no_sigterm_handler(), private_settings() as variables:
            _reaper = start_reaper(os.path.dirname(ray.__file__))
            ray.init(
                address="local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                logging_level="ERROR",
            )
            _variables.extend(variables)
    except BaseException:
        ray.shutdown()
        _clean_up()
        raise


@contextlib.contextmanager
def _no_sigterm_handler() -> Iterator[None]:
    """Keep Ray from setting its own handler for SIGTERM, which ends the process with code 15.

    It would replace the handler that delays signals until Ray runs.
    """
    utils: Any = importlib.import_module("ray._private.utils")
    original = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = original


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ClusterError(
            f"{address!r} is not the address of a cluster: give HOST:PORT of its head (as `ray"
            " start --head` printed it) on a machine that has joined it, or auto, or local"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no cluster can be reached at {address}: {error}. Check that its head runs (ray"
            " status) and that the address is right, or use --cluster local"
        ) from error


def _join(ray: Any, address: str) -> None:
    """Call `ray.init` in a thread with a time limit, because it may wait for minutes."""
    failures: list[BaseException] = []

    def init() -> None:
        try:
            ray.init(address=address, logging_level="ERROR", log_to_driver=True)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=init, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if thread.is_alive():
        raise ClusterError(
            f"joining the cluster at {address} took more than {CONNECT_SECONDS:.0f} seconds. Check"
            f" that this is Ray's port, that its version is {ray.__version__} and that"
            " RAY_AUTH_TOKEN is the same"
        )
    if failures:
        raise ClusterError(
            f"the cluster {'of this machine' if address == 'auto' else 'at ' + address} cannot be"
            f" joined: {str(failures[0]).strip()} Start one (ray start --head, see"
            " docs/guide/cluster.md), or use --cluster local"
        ) from failures[0]


def choose_workers(shards: int, workers: int | None, cpus: int) -> int:
    """Return the number of workers, each with `cpus` CPUs.

    Args:
        shards: Number of shards of the run.
        workers: Number of workers; by default the cluster's room, but at most `shards`.
        cpus: Number of CPUs of each worker.

    Raises:
        ClusterError: The cluster does not have enough CPUs.
    """
    # Count by machine, because a worker cannot span two of them.
    alive = [node for node in load_ray().nodes() if node.get("Alive", False)]
    machines = [int(node["Resources"].get("CPU", 0)) for node in alive]
    room = sum(machine // cpus for machine in machines)
    if workers is None:
        workers = max(min(shards, room), 1)
    if workers < 1:
        raise ClusterError(f"--workers must be at least 1, got {workers}")
    if workers > shards:
        raise ClusterError(
            f"{workers} workers are more than the {shards} shards of this run: use --workers"
            f" {shards} or fewer"
        )
    if workers > room:
        raise ClusterError(
            f"{workers} workers need {cpus} CPUs each, the cluster's machines have"
            f" {', '.join(map(str, machines)) or 'none'}: use --workers {max(room, 1)} or fewer"
            " (the result is the same), or add machines"
        )
    return workers
