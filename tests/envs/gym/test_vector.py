"""All three ways in which vector environments reset, turned into ours: the sampler says when."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from trellis.envs.batch import BadShapeError, NotRestorableError
from trellis.envs.gym.make import make_gym
from trellis.envs.gym.rows import GymBatch
from trellis.envs.gym.vector import VectorBatch

LENGTH = 3


class Counts(gymnasium.Env):
    """Shows a number that the seed gives, then one more each step; ends after 3 to 5 steps."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = 100 * int(self.np_random.integers(1, 1000))
        self.time, self.length = 0, LENGTH + int(self.np_random.integers(3))
        return np.array([self.start], float), {}

    def step(self, action):
        self.time += 1
        ended = self.time >= self.length
        return np.array([self.start + self.time], float), float(action), ended, False, {}


def sync(num_envs, mode):
    return SyncVectorEnv([Counts] * num_envs, autoreset_mode=mode)


def told(num_envs, autoreset_mode=AutoresetMode.NEXT_STEP, max_episode_steps=None):
    return sync(num_envs, autoreset_mode)


def same_step(num_envs):
    return sync(num_envs, AutoresetMode.SAME_STEP)


def next_step(num_envs):
    return sync(num_envs, AutoresetMode.NEXT_STEP)


class Pending(SyncVectorEnv):
    """Keeps resets that are due past a `reset`, as Gymnasium's own JAX environments do."""

    def reset(self, **how):
        due = self._autoreset_envs.copy()
        answer = super().reset(**how)
        self._autoreset_envs = due
        return answer


def pending(num_envs):
    return Pending([Counts] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def without_final(num_envs):
    env = sync(num_envs, AutoresetMode.NEXT_STEP)
    env.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    return env


IDS = {
    "trellis-test/Told-v0": (Counts, told),
    "trellis-test/SameStep-v0": (Counts, same_step),
    "trellis-test/NextStep-v0": (Counts, next_step),
    "trellis-test/Pending-v0": (Counts, pending),
    "trellis-test/OnlyVector-v0": (None, next_step),
    "trellis-test/WithoutFinal-v0": (Counts, without_final),
}


@pytest.fixture(autouse=True)
def registered():
    for env_id, (single, vector) in IDS.items():
        gymnasium.register(env_id, entry_point=single, vector_entry_point=vector)
    yield
    for env_id in IDS:
        gymnasium.registry.pop(env_id)


def episodes(batch, steps, wait=0):
    """Episodes as a sampler sees them, resetting rows `wait` idle steps after their ends."""
    everyone = np.arange(batch.num_envs)
    seeds = iter(range(10_000))
    current = batch.reset(everyone, np.array([next(seeds) for _ in everyone]))
    running = [[float(current[row, 0])] for row in everyone]
    idle = np.full(batch.num_envs, -1)
    whole = []
    for _ in range(steps):
        active = idle < 0
        step = batch.step(np.ones(batch.num_envs, int), active)
        np.testing.assert_array_equal(step.reward, active)
        for row in np.flatnonzero(active):
            running[row].append(float(step.observation[row, 0]))
        ended = step.terminated | step.truncated
        assert not (ended & ~active).any()
        idle[idle >= 0] += 1
        idle[ended] = 0
        ready = np.flatnonzero(idle >= wait)
        if ready.size:
            first = batch.reset(ready, np.array([next(seeds) for _ in ready]))
            for place, row in enumerate(ready):
                whole.append(running[row])
                running[row] = [float(first[place, 0])]
            idle[ready] = -1
    return whole


def assert_complete(whole):
    assert len(whole) > 10
    for observations in whole:
        assert observations[0] % 100 == 0
        np.testing.assert_array_equal(np.diff(observations), 1)
        assert LENGTH + 1 <= len(observations) <= LENGTH + 3


@pytest.mark.parametrize("wait", [0, 2])
def test_disabled_is_taken_unasked_and_honours_seeds(wait):
    batch = make_gym("trellis-test/Told-v0", 4)
    assert isinstance(batch, VectorBatch)
    assert batch.mode is AutoresetMode.DISABLED
    whole = episodes(batch, 40, wait)
    assert_complete(whole)
    assert whole == episodes(make_gym("trellis-test/Told-v0", 4, vector=False), 40, wait)


def test_same_step_keeps_the_final_observation_and_hands_out_the_first():
    batch = make_gym("trellis-test/SameStep-v0", 4, vector=True)
    assert isinstance(batch, VectorBatch)
    assert_complete(episodes(batch, 40))


def test_same_step_cannot_go_back_to_a_first_observation_that_has_passed():
    batch = make_gym("trellis-test/SameStep-v0", 2, vector=True)
    batch.reset(np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match="unless they have just ended"):
        batch.reset(np.array([0]), np.array([7]))


@pytest.mark.parametrize(
    "env_id", ["trellis-test/NextStep-v0", "trellis-test/Pending-v0", "CartPole-v1"]
)
def test_next_step_resets_whole_batches_and_loses_no_step(env_id):
    batch = make_gym(env_id, 3, vector=True)
    assert isinstance(batch, VectorBatch)
    everyone = np.arange(3)

    def run():
        seen = [batch.reset(everyone, np.array([4, 5, 6]))]
        active = np.ones(3, bool)
        while active.any():
            step = batch.step(np.ones(3, int), active)
            seen.append(np.where(active[:, None], step.observation, 0))
            active &= ~(step.terminated | step.truncated)
        return seen

    first = run()
    # The same seeds, with resets pending in the environment from the ends just seen.
    for then, now in zip(first, run(), strict=True):
        np.testing.assert_array_equal(then, now)
    with pytest.raises(ValueError, match="Reset all rows together"):
        batch.reset(np.array([1]), np.array([1]))


@pytest.mark.parametrize("env_id", ["trellis-test/NextStep-v0", "trellis-test/SameStep-v0"])
def test_one_object_per_row_is_preferred_where_seeds_could_not_be_honoured(env_id):
    batch = make_gym(env_id, 4)
    assert isinstance(batch, GymBatch)
    assert_complete(episodes(batch, 40))


def test_an_id_with_a_vector_environment_alone_is_used_row_by_row():
    batch = make_gym("trellis-test/OnlyVector-v0", 3)
    assert isinstance(batch, GymBatch)
    whole = episodes(batch, 40, wait=1)
    assert_complete(whole)
    assert whole == episodes(make_gym("trellis-test/OnlyVector-v0", 3), 40, wait=1)


def test_its_time_limit_may_be_longer_than_the_registered_one():
    told = []

    def limited(num_envs, max_episode_steps):
        told.append(max_episode_steps)
        return next_step(num_envs)

    env_id = "trellis-test/Limited-v0"
    gymnasium.register(env_id, vector_entry_point=limited, max_episode_steps=2)
    try:
        assert make_gym(env_id, 1).max_episode_steps == 2
        assert make_gym(env_id, 1, max_episode_steps=4).max_episode_steps == 4
    finally:
        gymnasium.registry.pop(env_id)
    assert set(told) == {2, 4}


def test_a_row_that_was_left_out_must_be_reset_before_it_goes_on():
    batch = make_gym("trellis-test/Told-v0", 2)
    batch.reset(np.arange(2), np.arange(2))
    batch.step(np.zeros(2, int), np.array([True, False]))
    with pytest.raises(ValueError, match=r"row 1 .* must be reset first"):
        batch.step(np.zeros(2, int))
    with pytest.raises(NotRestorableError, match="vector=False"):
        batch.snapshot(np.arange(2))


def test_a_missing_final_observation_is_an_error():
    batch = make_gym("trellis-test/WithoutFinal-v0", 1, vector=True)
    with pytest.raises(BadShapeError, match="final_obs"):
        episodes(batch, LENGTH + 2)


def test_vector_has_to_exist():
    with pytest.raises(ValueError, match="no vector environment of its own"):
        make_gym("Pendulum-v1", 1, vector=True)
    with pytest.raises(ValueError, match="not a callable"):
        make_gym(Counts, 1, vector=True)
