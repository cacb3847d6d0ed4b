"""What Ray opens, binds and authenticates: loopback and a token, or a warning."""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.faults.counts import record
from tests.faults.processes import options, session, shared_zygote
from trellis.cluster.security import LOOPBACK, MODE, TOKEN, forget, private_settings

LISTEN = "0A"
START = """
import os, time
{environment}
from trellis.cluster.connection import connect, disconnect
import ray
if {cluster!r} == "of somebody else":
    disconnect = ray.shutdown
    ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=100 << 20)
else:
    connect({cluster!r})
print("address", ray.get_runtime_context().gcs_address, flush=True)
{then}
disconnect()
os._exit(0)
"""


def test_settings_of_a_private_ray_do_not_stay(monkeypatch):
    pytest.importorskip("ray")
    for name in (MODE, TOKEN, LOOPBACK):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with private_settings() as variables:
        assert os.environ[MODE] == "token"
        assert len(os.environ[TOKEN]) == 64
        assert os.environ[LOOPBACK] == "0"
    forget(variables)
    assert dict(os.environ) == before
    monkeypatch.setenv(TOKEN, "mine")
    with pytest.raises(OSError, match="no"), private_settings():
        raise OSError("no")
    assert dict(os.environ) == {**before, TOKEN: "mine"}


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="tr", dir="/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def start(folder, cluster, then="time.sleep(1000)", **variables):
    """Connect in a process of its own; return it once it has connected, or has ended."""
    lines = [f"os.environ.pop({name!r}, None)" for name in (MODE, TOKEN)]
    given = {"RAY_TMPDIR": folder, "HOME": folder, **variables}
    lines += [f"os.environ[{name!r}] = {value!r}" for name, value in given.items()]
    code = START.format(environment="\n".join(lines), cluster=cluster, then=then)
    running = shared_zygote().start("--version", before=code)
    deadline = time.monotonic() + 90
    while "address " not in running.output and not running.ended(0.05):
        assert time.monotonic() < deadline, running.output
    return running


def address_of(running):
    assert "address " in running.output, running.output
    return running.output.partition("address ")[2].split()[0]


def listening(pids):
    """The addresses, in hexadecimal, on which these processes accept connections."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                sockets[fields[9]] = fields[1].partition(":")[0]
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{link}")
                    found.add(sockets.get(target.removeprefix("socket:[").rstrip("]")))
    return found - {None}


# 127.0.0.1 and ::1, and the first as an address of version 6, as /proc/net shows them.
LOOPBACKS = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.fault
def test_a_local_ray_listens_on_loopback_and_asks_for_a_token(folder):
    record("Ray: bound to loopback, token asked for", 1, 0)
    running = start(folder, "local")
    try:
        pids = session(running.pid)
        assert len(pids) > 2, "Ray has processes of its own"
        places = listening(pids)
        assert places
        assert places <= LOOPBACKS
        # Ray takes 127.0.0.1 for the machine's other address, unless told that there is none.
        home = tempfile.mkdtemp(prefix="tr", dir=folder)
        stranger = start(home, address_of(running), **{LOOPBACK: "0"})
        assert stranger.wait() == 1
        assert "cannot be joined: Token authentication is enabled" in stranger.output
        assert "asks for no token" not in stranger.output
        assert not Path(folder, ".ray").exists(), "the token is on no disk"
    finally:
        running.kill_session()
    record("Ray: bound to loopback, token asked for", 0, 1)


@pytest.mark.fault
def test_an_open_cluster_is_joined_with_a_warning(folder):
    record("Ray: open cluster joined with a warning", 1, 0)
    cluster = start(folder, "of somebody else", RAY_AUTH_MODE="disabled")
    try:
        for token in ({}, {MODE: "token", TOKEN: "a" * 64}):
            member = start(folder, address_of(cluster), then="", **token)
            assert member.wait() == 0, member.output
            assert "asks for no token: whoever reaches its ports can run code" in member.output
            assert "RAY_AUTH_MODE=token" in member.output
    finally:
        cluster.kill_session()
    record("Ray: open cluster joined with a warning", 0, 1)


@pytest.mark.fault
def test_a_cluster_with_a_token_is_joined_with_it(folder):
    record("Ray: cluster with a token", 1, 0)
    token = {TOKEN: "b" * 64}
    cluster = start(folder, "of somebody else", **{MODE: "token", **token})
    try:
        member = start(folder, address_of(cluster), then="", **token)
        assert member.wait() == 0, member.output
        assert "asks for no token" not in member.output
        wrong = start(folder, address_of(cluster), then="", **{TOKEN: "c" * 64})
        assert wrong.wait() == 1
        assert "RAY_AUTH_TOKEN is the same" in wrong.output
    finally:
        cluster.kill_session()
    record("Ray: cluster with a token", 0, 1)


MINE = """
import os, gymnasium
with open({trap!r}, "a") as file:
    print(os.getpid(), file=file)
entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
gymnasium.register("Mine-v0", entry, max_episode_steps=20)
"""


@pytest.mark.fault
def test_workers_import_an_environment_only_with_consent(folder, tmp_path):
    """The consent of the command holds in Ray's workers, and nothing is imported without it."""
    record("Ray: consent of the command holds in workers", 1, 0)
    trap, out = tmp_path / "trap", tmp_path / "run"
    (tmp_path / "mine.py").write_text(MINE.format(trap=str(trap)))
    cluster = ["--cluster", "local", "--workers", 2]
    search = ["--method", "cem", "--search.population", 4, "--search.path-length", 20]

    def imports(*words, code=0, **more):
        """Run a command; return how many processes have imported the module."""
        trap.unlink(missing_ok=True)
        found, output = shared_zygote().run(*words, *cluster, cwd=tmp_path, **more)
        assert found == code, output
        return len(set(trap.read_text().split())) if trap.exists() else 0

    words = ["train", "mine:Mine-v0", *search, "--shards", 2, *options(200, out)]
    assert imports(*words, RAY_TMPDIR=folder) == 3
    again = ["resume", out, "--steps", 400]
    assert imports(*again, code=2, RAY_TMPDIR=folder) == 0
    path = f"import sys; sys.path.append({str(tmp_path)!r})"
    assert imports(*again, code=2, before=path, RAY_TMPDIR=folder) == 0
    assert imports(*again, "--import", "mine", RAY_TMPDIR=folder) == 3
    again[-1] = 600
    assert imports(*again, "--trust-env", before=path, RAY_TMPDIR=folder) == 3
    record("Ray: consent of the command holds in workers", 0, 1)
