"""Connect to a Ray cluster, or say within seconds why that is not possible.

`local` starts Ray on this machine and ends it with the run; `auto` finds the cluster that this
machine is part of; anything else is the address of its head, HOST:PORT.
"""

import os
import socket
import subprocess
import threading
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
"""Time for the head's port to accept a connection."""
CONNECT_SECONDS = 15.0
"""Time for Ray to join the cluster."""
OBJECT_STORE_BYTES = 256 << 20
"""Object store of a Ray that is started here: only a few vectors pass through it."""
_users = 0
"""Number of users of the connection that this process has made."""
_variables: list[str] = []
"""Environment variables that were set for the cluster of this process."""
_reaper: subprocess.Popen[bytes] | None = None
"""The process that ends a Ray of this process if it is killed."""


class ClusterError(RuntimeError):
    """The cluster cannot be used as asked; the message says why and what to do."""


def load_ray() -> Any:
    """Return the module `ray`, or raise an error with the line that installs it."""
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "a cluster needs Ray, which is not installed: pip install 'trellis-rl[ray]'; without"
            " --cluster the same shards run in this process"
        ) from error
    return ray


def connect(cluster: str) -> bool:
    """Join the cluster, unless this process is in one; return whether `disconnect` must follow."""
    global _users
    ray = load_ray()
    if ray.is_initialized():
        _users += _users > 0
        return _users > 0
    # Nothing of what runs here is anybody else's business.
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
    """Leave the cluster, with the last user of it; one that was started here ends."""
    global _users
    _users -= 1
    if _users:
        return
    load_ray().shutdown()
    _clean_up()


def _clean_up() -> None:
    """Remove what belonged to the cluster: its environment variables, and its reaper."""
    global _reaper
    forget(_variables)
    _variables.clear()
    stop_reaper(_reaper)
    _reaper = None


def _start(ray: Any) -> None:
    """Start Ray on this machine, whole or not at all: signals wait until it is there."""
    # By default Ray has workers stand back behind all else on the machine (nice 15). These do
    # what this process would have done itself.
    os.environ.setdefault("RAY_worker_niceness", "0")
    global _reaper
    try:
        with delayed_signals(), private_settings() as variables:
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
            f"no cluster can be reached at {address}: {error}. Is its head running (ray status)"
            " and this its address? Or use --cluster local"
        ) from error


def _join(ray: Any, address: str) -> None:
    """Call ray.init in a thread that can be given up, because it may wait for minutes."""
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
            f"the cluster at {address} did not let this process join within"
            f" {CONNECT_SECONDS:.0f} seconds. Is that Ray's port, of the same version"
            f" ({ray.__version__}), with the same RAY_AUTH_TOKEN?"
        )
    if failures:
        raise ClusterError(
            f"the cluster {'of this machine' if address == 'auto' else 'at ' + address} cannot be"
            f" joined: {str(failures[0]).strip()} Start one (ray start --head, see"
            " docs/cluster.md), or use --cluster local"
        ) from failures[0]


def choose_workers(shards: int, workers: int | None, cpus: int) -> int:
    """Return the number of workers, each with `cpus` CPUs.

    By default it is as many as the cluster has room for, but no more than shards.

    Raises:
        ClusterError: there are not enough CPUs.
    """
    # Machine by machine: a worker is on one of them.
    alive = [node for node in load_ray().nodes() if node.get("Alive", False)]
    machines = [int(node["Resources"].get("CPU", 0)) for node in alive]
    room = sum(machine // cpus for machine in machines)
    if workers is None:
        workers = max(min(shards, room), 1)
    if workers < 1:
        raise ClusterError(f"--workers must be at least 1, got {workers}")
    if workers > shards:
        raise ClusterError(
            f"{workers} workers are more than the {shards} shards of this run, which can only be"
            f" held whole: use --workers {shards} or fewer"
        )
    if workers > room:
        raise ClusterError(
            f"{workers} workers need {cpus} CPUs each, the cluster's machines have"
            f" {', '.join(map(str, machines)) or 'none'}: use --workers {max(room, 1)} or fewer"
            " (the result is the same), or add machines"
        )
    return workers
