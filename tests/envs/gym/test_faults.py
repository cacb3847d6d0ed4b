"""Faulty environments are reported with id, index, step and seed; nothing hangs."""

import multiprocessing.connection
import os
import signal
import time
from contextlib import nullcontext

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis.envs.errors import (
    BadShapeError,
    BadValueError,
    EnvRaisedError,
    WorkerDiedError,
    WorkerTimeoutError,
)
from trellis.envs.gym.make import make_gym

BAD_SEED = 13


class Faulty(gymnasium.Env):
    """Has a fault in the third step of the episode with seed 13; no episode ends."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault, value=None):
        self.fault, self.value = fault, value
        self.bad, self.closed = False, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bad, self.time = seed == BAD_SEED, 0
        if self.bad and self.fault == "reset raises":
            raise OSError("no such level")
        first = self.value if self.bad and self.fault == "first observation" else np.zeros(2)
        return first, {}

    def step(self, action):
        self.time += 1
        now = self.bad and self.time == 3
        answer = {
            "observation": np.zeros(2),
            "reward": 1.0,
            "terminated": False,
            "truncated": False,
            "info": {},
        }
        if now and self.fault in answer:
            answer[self.fault] = self.value
        elif now and self.fault == "step raises":
            raise ZeroDivisionError("the pole has no length")
        elif now and self.fault == "hangs":
            time.sleep(1000)
        elif now and self.fault == "dies":
            os._exit(7)
        elif now and self.fault == "four values":
            return tuple(answer.values())[:4]
        return tuple(answer.values())

    def close(self):
        self.closed = True
        if self.fault == "close raises" and self.bad:
            raise PermissionError("the window stays")


def run(batch, steps=3):
    """Step four environments; environment 2 has the seed of the fault."""
    batch.reset(np.arange(4), np.array([1, 2, BAD_SEED, 4]))
    for _ in range(steps):
        last = batch.step(np.zeros(4, int))
    return last


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def assert_whereabouts(error, step=3):
    assert (error.env_id, error.index, error.step, error.seed) == ("Faulty", 2, step, BAD_SEED)
    assert "environment 2 of its batch" in str(error)
    assert f"seed {BAD_SEED}" in str(error)


@pytest.fixture(params=[0, 2], ids=["in process", "in workers"])
def make(request):
    made = []

    def build(fault):
        made.append(make_gym(Faulty, 4, fault=fault, workers=request.param))
        return made[-1]

    yield build
    for batch in made:
        batch.close()


def test_raises_in_step_and_continues_after_a_reset(make):
    batch = make("step raises")
    with pytest.raises(EnvRaisedError, match="step raised ZeroDivisionError") as caught:
        run(batch)
    assert_whereabouts(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    batch.reset(np.arange(4), np.arange(4))
    for _ in range(5):
        assert batch.step(np.zeros(4, int)).reward.tolist() == [1.0] * 4


def test_raises_while_a_snapshot_is_restored():
    class Kept(Faulty):
        def get_state(self):
            return {"time": np.array(getattr(self, "time", 0))}

        def set_state(self, state):
            assert 0 <= state["time"] < 100
            self.time = int(state["time"])

    env = make_gym(lambda: Kept("none"), 2)
    env.reset(np.arange(2), np.array([1, BAD_SEED]))
    snapshot = dict(env.snapshot(np.arange(2)))
    env.restore(np.arange(2), snapshot)
    snapshot["task.time"] = np.array([0, 10**9])
    with pytest.raises(
        EnvRaisedError, match=r"restoring a snapshot raised AssertionError.*seed 13"
    ):
        env.restore(np.arange(2), snapshot)


def test_raises_in_reset(make):
    with pytest.raises(EnvRaisedError, match="reset raised OSError: no such level") as caught:
        run(make("reset raises"))
    assert_whereabouts(caught.value, step=0)
    assert isinstance(caught.value.__cause__, OSError)


def test_raises_in_close(make):
    batch = make("close raises")
    run(batch)
    with pytest.raises(EnvRaisedError, match="close raised PermissionError") as caught:
        batch.close()
    assert_whereabouts(caught.value)
    for env in getattr(batch, "envs", ()):
        assert env.closed
    batch.close()


NOT_FINITE = [np.array([0, np.nan]), np.array([np.inf, 0]), np.array([0, 1e300])]


@pytest.mark.parametrize("value", NOT_FINITE, ids=["nan", "infinity", "too large for float32"])
@pytest.mark.parametrize("fault", ["observation", "first observation"])
def test_observation_that_is_not_finite(fault, value):
    with pytest.raises(BadValueError, match="observation is not finite") as caught:
        run(make_gym(Faulty, 4, fault=fault, value=value))
    assert_whereabouts(caught.value, step=3 if fault == "observation" else 0)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_reward_that_is_not_finite(value):
    with pytest.raises(BadValueError, match="reward is not finite") as caught:
        run(make_gym(Faulty, 4, fault="reward", value=value))
    assert_whereabouts(caught.value)


def test_bad_values_are_reported_across_processes():
    batch = make_gym(Faulty, 4, fault="observation", value=NOT_FINITE[0], workers=2)
    with pytest.raises(BadValueError, match="observation is not finite") as caught:
        run(batch)
    assert_whereabouts(caught.value)
    batch.close()


@pytest.mark.parametrize(
    ("fault", "value", "words"),
    [
        ("observation", np.zeros(3), r"shape \(3,\), but its space has shape \(2,\)"),
        ("observation", np.zeros((1, 2)), r"shape \(1, 2\)"),
        ("observation", np.zeros(2, int), "dtype int64, but its space has dtype float32"),
        ("observation", np.array([None, 1.0]), "dtype object"),
        ("observation", "up", "shape"),
        ("observation", {"x": 1}, "shape"),
        ("observation", [[1.0], [1.0, 2.0]], "cannot become an array"),
        ("reward", np.zeros(1), "reward must be one number, got ndarray of shape"),
        ("reward", None, "reward must be one number, got NoneType"),
        ("reward", "high", "must be one number"),
        ("terminated", np.zeros(2, bool), "terminated must be"),
        ("truncated", None, "truncated must be True or False, got None"),
        ("four values", None, "step must return"),
    ],
)
def test_wrong_shape_or_dtype(fault, value, words):
    with pytest.raises(BadShapeError, match=words) as caught:
        run(make_gym(Faulty, 4, fault=fault, value=value))
    assert_whereabouts(caught.value)


def test_wrong_structure_of_a_tree():
    class Tree(Faulty):
        observation_space = spaces.Dict({"a": Faulty.observation_space, "b": spaces.Discrete(3)})

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.value, {}

    for value, kind, words in [
        ({"a": np.zeros(2)}, BadShapeError, r"has keys \['a'\], but its space has the keys"),
        ({"a": np.zeros(2), "b": 1.5}, BadShapeError, r"observation\['b'\] has dtype float64"),
        ({"a": np.zeros(2), "b": 3}, BadValueError, r"observation\['b'\] is 3, which is outside"),
        (np.zeros(2), BadShapeError, "has ndarray"),
    ]:
        with pytest.raises(kind, match=words):
            make_gym(Tree, 1, fault=None, value=value).reset(np.array([0]), np.array([0]))


def test_width_is_converted_and_kind_is_not():
    class Picture(Faulty):
        observation_space = spaces.Box(0, 255, (2,), np.uint8)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.value, {}

    batch = make_gym(Picture, 1, fault=None, value=np.array([3, 255]))
    first = batch.reset(np.array([0]), np.array([0]))
    assert first.dtype == np.uint8
    assert first.tolist() == [[3, 255]]
    for value, words in [(np.array([3, 256]), "do not fit"), (np.array([3.0, 4.0]), "float64")]:
        with pytest.raises(BadShapeError, match=words):
            make_gym(Picture, 1, fault=None, value=value).reset(np.array([0]), np.array([0]))


class Coded(gymnasium.Env):
    """Returns a fixed observation from a discrete space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, value):
        self.observation_space, self._value = space, value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._value, {}


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3, start=1), 3, 0),
        (spaces.MultiDiscrete([3, 4]), [2, 3], [2, 4]),
        (spaces.MultiDiscrete([3, 4], start=[0, 5]), [0, 5], [0, 4]),
        (spaces.MultiBinary(2), [0, 1], [0, 7]),
    ],
)
def test_categories_outside_of_their_space(space, good, bad):
    for value, fails in ((good, False), (bad, True)):
        batch = make_gym(Coded, 2, space=space, value=np.array(value, space.dtype))
        with pytest.raises(BadValueError, match="outside of") if fails else nullcontext():
            batch.reset(np.arange(2), np.array([5, 6]))


def test_numbers_too_large_for_single_precision():
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    batch = make_gym(Coded, 2, space=space, value=np.array([1.0, 1e39]))
    with pytest.raises(BadValueError, match="not finite"):
        batch.reset(np.arange(2), np.arange(2))
    make_gym(Coded, 2, space=space, value=np.array([1.0, 3e38])).reset(np.arange(2), np.arange(2))


def test_created_environments_are_closed_if_a_later_one_fails():
    made = []

    def make():
        if len(made) == 2:
            raise OSError("port in use")
        made.append(Faulty(None))
        return made[-1]

    with pytest.raises(EnvRaisedError, match="making it raised OSError: port in use") as caught:
        make_gym(make, 4)
    assert (caught.value.index, caught.value.seed) == (2, None)
    assert "before its first episode" in str(caught.value)
    assert [env.closed for env in made] == [True, True]


def test_an_episode_that_never_ends():
    step = run(make_gym(Faulty, 4, fault=None), steps=200)
    assert not (step.terminated | step.truncated).any()


def test_a_worker_that_hangs():
    batch = make_gym(Faulty, 4, fault="hangs", workers=2, worker_timeout_seconds=1.0)
    pids = batch._workers.pids
    started = time.monotonic()
    with pytest.raises(WorkerTimeoutError, match="did not answer within 1 s") as caught:
        run(batch)
    assert time.monotonic() - started < 10
    # The worker stopped answering in the third step, so two steps are complete.
    assert_whereabouts(caught.value, step=2)
    assert not any(is_running(pid) for pid in pids)
    with pytest.raises(RuntimeError, match="is closed"):
        batch.step(np.zeros(4, int))
    batch.close()


def test_an_answer_that_was_not_received_is_discarded(monkeypatch):
    """Ctrl-C interrupts a step of the workers, and then new episodes start."""
    batch = make_gym(Faulty, 4, fault="step raises", workers=2)
    run(batch, steps=2)
    interrupt = iter([KeyboardInterrupt()])

    def wait(*args):
        for error in interrupt:
            raise error
        return waiting(*args)

    waiting = multiprocessing.connection.wait
    monkeypatch.setattr(multiprocessing.connection, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        batch.step(np.zeros(4, int))  # in which environment 2 fails
    step = run(batch, steps=2)
    np.testing.assert_array_equal(step.reward, 1.0)
    with pytest.raises(EnvRaisedError, match="no length"):
        batch.step(np.zeros(4, int))
    batch.close()


def test_a_worker_that_dies():
    batch = make_gym(Faulty, 4, fault="dies", workers=2)
    pids = batch._workers.pids
    with pytest.raises(WorkerDiedError, match="exit code 7") as caught:
        run(batch)
    assert_whereabouts(caught.value, step=2)
    assert not any(is_running(pid) for pid in pids)


def test_a_worker_that_was_killed_between_steps():
    batch = make_gym(Faulty, 4, fault=None, workers=2)
    run(batch)
    os.kill(batch._workers.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="exit code -9"):
        batch.step(np.zeros(4, int))


def test_an_environment_that_cannot_be_made_in_a_worker():
    with pytest.raises(EnvRaisedError, match=r"TypeError: .*unexpected keyword argument 'colour'"):
        make_gym(Faulty, 2, fault=None, colour="red", workers=1)
