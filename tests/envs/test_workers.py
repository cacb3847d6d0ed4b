"""Tests of worker processes: answers, errors, timeouts, exits and shared memory."""

import mmap
import os
import signal
import time

import numpy as np
import pytest

from trellis.envs.batch import EnvError
from trellis.envs.errors import BadValueError
from trellis.envs.shared_arrays import SharedArrays, split
from trellis.envs.workers import WorkerFailedError, WorkerLostError, Workers

LAYOUT = SharedArrays({"flags": ((3,), bool), "numbers": ((2, 2), np.float64)})


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not this one")


class Server:
    def __init__(self, memory_fd, name):
        self.name = name
        self.arrays = LAYOUT.views(mmap.mmap(memory_fd, LAYOUT.size))

    def greet(self, other):
        return f"{self.name} greets {other}"

    def write(self, row, value):
        self.arrays["numbers"][row] = value

    def fail(self, kind):
        if kind == "cause":
            raise KeyError("outer") from OSError("inner")
        if kind == "environment":
            raise BadValueError("NaN", env_id="x", index=1, step=2, seed=3)
        raise UnpicklableError("what it says")

    def sleep(self, seconds):
        time.sleep(seconds)
        return "awake"


@pytest.fixture
def workers():
    made = Workers(Server, [("a",), ("b",)], answer_seconds=60.0)
    made.arrays = LAYOUT.views(made.allocate(LAYOUT.size))
    made.start()
    for worker in range(2):
        assert made.receive(worker) is None
    yield made
    made.close()


def test_commands_are_answered_and_memory_is_shared(workers):
    for worker in range(2):
        workers.send(worker, Server.greet, "you")
    assert [workers.receive(worker) for worker in range(2)] == ["a greets you", "b greets you"]
    workers.send(1, Server.write, 1, 2.5)
    workers.receive(1)
    np.testing.assert_array_equal(workers.arrays["numbers"], [[0, 0], [2.5, 2.5]])


def test_exceptions_arrive_with_cause_and_traceback(workers):
    workers.send(0, Server.fail, "cause")
    with pytest.raises(WorkerFailedError, match="in fail") as caught:
        workers.receive(0)
    assert isinstance(caught.value.error, KeyError)
    assert isinstance(caught.value.error.__cause__, OSError)
    workers.send(0, Server.fail, "environment")
    with pytest.raises(WorkerFailedError) as caught:
        workers.receive(0)
    error = caught.value.error
    assert isinstance(error, EnvError)
    assert (error.reason, error.env_id, error.index, error.step, error.seed) == (
        "NaN",
        "x",
        1,
        2,
        3,
    )
    workers.send(0, Server.fail, "unpicklable")
    with pytest.raises(WorkerFailedError) as caught:
        workers.receive(0)
    assert "what it says" in str(caught.value.error)
    workers.send(0, Server.greet, "you")
    assert workers.receive(0) == "a greets you"


def test_answers_that_were_not_received_are_discarded(workers):
    workers.send(0, Server.greet, "nobody")
    workers.send(0, Server.fail, "cause")
    workers.send(0, Server.greet, "you")
    assert workers.receive(0) == "a greets you"


def test_a_worker_that_timed_out_stays_lost_until_it_is_replaced(workers):
    workers.send(0, Server.sleep, 0.4)
    with pytest.raises(WorkerLostError) as caught:
        workers.receive(0, 0.05)
    assert caught.value.exit_code is None
    time.sleep(0.5)
    workers.send(0, Server.greet, "you")  # the late answer must not be taken as the answer to this
    with pytest.raises(WorkerLostError):
        workers.receive(0)
    workers.replace(0)
    assert workers.receive(0) is None
    workers.send(0, Server.greet, "you")
    assert workers.receive(0) == "a greets you"


def test_a_dead_worker_is_lost_with_its_exit_code(workers):
    os.kill(workers.pids[1], signal.SIGKILL)
    workers.send(1, Server.greet, "you")
    with pytest.raises(WorkerLostError) as caught:
        workers.receive(1)
    assert caught.value.exit_code == -signal.SIGKILL
    assert workers.replace(1) == -signal.SIGKILL


def test_processes_end_with_their_workers(workers):
    pids = workers.pids
    workers.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="is closed"):
        workers.send(0, Server.greet, "you")
    workers.close()


def test_ranges_are_split_evenly():
    assert split(0, 10, 3) == [0, 3, 6, 10]
    assert split(4, 6, 2) == [4, 5, 6]
