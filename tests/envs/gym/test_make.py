"""Tests of batches of Gymnasium objects against Gymnasium itself, and with unusual spaces."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import trellis.envs
from trellis.envs.batch import Restorability
from trellis.envs.gym.batch import GymBatch
from trellis.envs.gym.make import make_gym

ROWS = np.arange(3)


class Nested(gymnasium.Env):
    """A Dict with a Tuple in it; a Discrete action space that starts at 3."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (2, 2), np.uint8),
            "body": spaces.Tuple(
                (spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(5))
            ),
        }
    )
    action_space = spaces.Discrete(4, start=3)
    last_action = 0

    def observe(self):
        body = (np.full(3, self.time, np.float64), self.time % 5)
        return {"camera": np.full((2, 2), self.last_action, np.uint8), "body": body}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        self.last_action = int(action)
        return self.observe(), 1, False, False, {"time": self.time, "name": "nested"}


class Reuses(gymnasium.Env):
    """Returns the same array in every step and overwrites the action."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-2, 4, (1,), np.float32)

    def __init__(self):
        self.array = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.array[:] = 0
        return self.array, {}

    def step(self, action):
        self.array += action
        action[:] = 99
        return self.array, 0.0, False, False, {}


class Scribbles(Reuses):
    """Overwrites an action that needs no conversion."""

    action_space = spaces.MultiBinary(2)


class OneStep(gymnasium.Env):
    """Ends with its first step and allows no further step."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    ended = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ended = False
        return np.array([self.np_random.uniform()], np.float32), {}

    def step(self, action):
        if self.ended:
            raise RuntimeError("stepped past the end")
        self.ended = True
        return np.array([1.0], np.float32), 1.0, True, False, {}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "FrozenLake-v1", "Hopper-v5"])
def test_same_episodes_as_gymnasium(env_id, workers):
    batch = make_gym(env_id, 3, workers=workers, max_episode_steps=7)
    singles = [gymnasium.make(env_id, max_episode_steps=7) for _ in ROWS]
    seeds = np.array([5, 6, 7])
    first = batch.reset(ROWS, seeds)
    rng = np.random.default_rng(0)
    expected = [env.reset(seed=int(seed))[0] for env, seed in zip(singles, seeds, strict=True)]
    np.testing.assert_array_equal(first, np.stack(expected))
    alive = np.ones(3, bool)
    for _ in range(7):
        if isinstance(batch.action_space, spaces.Discrete):
            actions = rng.integers(batch.action_space.n, size=3)
        else:
            actions = rng.uniform(-1.2, 1.2, (3, *batch.action_space.shape))
        step = batch.step(actions, alive)
        mapped = batch.map_actions(actions).astype(batch.action_space.dtype)
        for row in np.flatnonzero(alive):
            observation, reward, terminated, truncated, _ = singles[row].step(mapped[row])
            np.testing.assert_array_equal(step.observation[row], observation)
            assert step.reward[row] == reward
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
        alive &= ~(step.terminated | step.truncated)
    assert not alive.any()
    batch.close()


def test_time_limit_truncates_and_keeps_the_final_observation():
    batch = make_gym("Pendulum-v1", 2, max_episode_steps=3)
    batch.reset(np.arange(2), np.array([1, 2]))
    for at in range(1, 4):
        step = batch.step(np.zeros((2, 1)))
        assert step.truncated.tolist() == [at == 3] * 2
        assert not step.terminated.any()
    # The environment was not reset: a step without active environments repeats the observation.
    idle = batch.step(np.zeros((2, 1)), np.zeros(2, bool))
    np.testing.assert_array_equal(idle.observation, step.observation)
    assert idle.reward.tolist() == [0, 0]
    assert not idle.truncated.any()


def test_time_limit_for_a_callable_that_never_ends():
    batch = make_gym(Nested, 2, max_episode_steps=4)
    batch.reset(np.arange(2), np.zeros(2, int))
    ends = [batch.step(np.zeros(2, int)).truncated.tolist() for _ in range(4)]
    assert ends == [[False, False]] * 3 + [[True, True]]


def test_dict_and_tuple_observations_are_trees_of_rows():
    batch = make_gym(Nested, 3)
    first = batch.reset(ROWS, ROWS)
    assert first["camera"].shape == (3, 2, 2)
    step = batch.step(np.array([0, 1, 2]), np.array([True, False, True]))
    vector, number = step.observation["body"]
    assert vector.dtype == np.float32  # the environment returns float64, its space is float32
    np.testing.assert_array_equal(vector[:, 0], [1, 0, 1])
    np.testing.assert_array_equal(number, [1, 0, 1])
    # Actions start at the space's start, and an inactive environment gets none.
    np.testing.assert_array_equal(step.observation["camera"][:, 0, 0], [3, 0, 5])
    np.testing.assert_array_equal(batch.info["time"], [1, np.nan, 1])
    assert "name" not in batch.info
    only = batch.reset(np.array([2]), np.array([0]))
    assert only["body"][0].shape == (1, 3)


def test_arrays_that_the_environment_reuses_are_copied():
    batch = make_gym(Reuses, 2)
    seen = [batch.reset(np.arange(2), np.arange(2))]
    actions = np.array([[1.0], [-1.0]])
    for _ in range(3):
        seen.append(batch.step(actions).observation)
    # [-1, 1] of the policy is mapped to [-2, 4] of the environment.
    for at, observation in enumerate(seen):
        np.testing.assert_array_equal(observation, [[4 * at] * 2, [-2 * at] * 2])
    assert actions.tolist() == [[1.0], [-1.0]]


def test_an_environment_gets_a_copy_of_its_action():
    batch = make_gym(Scribbles, 2)
    batch.reset(np.arange(2), np.arange(2))
    actions = np.ones((2, 2), np.int8)
    batch.step(actions)
    assert actions.tolist() == [[1, 1], [1, 1]]


def test_one_step_episodes():
    batch = make_gym(OneStep, 2)
    assert batch.restorability is Restorability.MEMORY
    firsts = []
    for seed in range(4):
        firsts.append(batch.reset(np.arange(2), np.array([seed, seed])))
        assert batch.step(np.zeros(2, int)).terminated.all()
    np.testing.assert_array_equal(firsts[0][0], firsts[0][1])
    assert len({float(first[0, 0]) for first in firsts}) == 4


def test_kwargs_reach_callables_and_ids():
    class Sized(OneStep):
        def __init__(self, size):
            self.observation_space = spaces.Box(-1, 1, (size,), np.float32)

    assert make_gym(Sized, 1, size=7).observation_space.shape == (7,)
    assert make_gym("FrozenLake-v1", 1, map_name="8x8").observation_space.n == 64


def test_unsupported_environments_are_errors():
    class Words(OneStep):
        observation_space = spaces.Text(5)

    class Pairs(OneStep):
        action_space = spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))

    shared = OneStep()
    with pytest.raises(ValueError, match="no fixed shape"):
        make_gym(Words, 1)
    with pytest.raises(ValueError, match="Wrap the environment in a gymnasium"):
        make_gym(Pairs, 1)
    with pytest.raises(ValueError, match="must return a new environment"):
        make_gym(lambda: shared, 2)
    with pytest.raises(TypeError, match=r"must return a gymnasium\.Env"):
        make_gym(dict, 1)
    with pytest.raises(ValueError, match="workers must be 0"):
        make_gym(OneStep, 1, workers=-1)
    with pytest.raises(ValueError, match="at least 1"):
        make_gym(OneStep, 0)


def test_an_id_with_only_a_vector_environment_is_an_error():
    env_id = "trellis-test/OnlyVector-v0"
    gymnasium.register(env_id, vector_entry_point="gymnasium.vector:SyncVectorEnv")
    try:
        with pytest.raises(ValueError, match="has only a vector environment"):
            make_gym(env_id, 2)
        with pytest.raises(ValueError, match="Pass a callable that returns one"):
            trellis.envs.make(env_id, 2)
    finally:
        gymnasium.registry.pop(env_id)


def test_workers_create_an_id_that_only_this_process_registered():
    env_id = "trellis-test/OneStep-v0"
    gymnasium.register(env_id, OneStep)
    try:
        batch = make_gym(env_id, 2, workers=2)
    finally:
        gymnasium.registry.pop(env_id)
    batch.reset(np.arange(2), np.arange(2))
    assert batch.step(np.zeros(2, int)).terminated.all()
    batch.close()


def test_workers_do_not_import_the_main_script(tmp_path):
    """A script needs no `if __name__ == "__main__":` and may define its own environment."""
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, numpy as np, trellis.envs\n"
        "class Mine(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Discrete(3)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None): return 1, {}\n"
        "    def step(self, action): return 2, 0.5, True, False, {}\n"
        "batch = trellis.envs.make(Mine, 2, workers=2)\n"
        "batch.reset(np.arange(2), np.arange(2))\n"
        "assert batch.step(np.zeros(2, int)).reward.tolist() == [0.5, 0.5]\n"
        "print('made once')\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "made once\n"


def test_pictures():
    class Pictured(OneStep):
        render_mode = "rgb_array"

        def render(self):
            return np.full((4, 6, 3), 7, np.uint8)

    batch = make_gym(Pictured, 2)
    batch.reset(np.arange(2), np.arange(2))
    assert batch.render(1).shape == (4, 6, 3)
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        GymBatch([OneStep]).render(0)
