"""Tests of the ways in which environments offer action masks."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import trellis
from trellis.envs.errors import BadValueError
from trellis.envs.gym.make import make_gym
from trellis.masks import MASK_KEY


class Corridor(gymnasium.Env):
    """Walk on 0..3. An illegal step (left at 0) raises. Masks come in one of three ways."""

    action_space = spaces.Discrete(2)

    def __init__(self, way="info", stuck=False):
        self.way, self.stuck = way, stuck
        place = spaces.Box(0.0, 3.0, (1,), np.float32)
        mask = spaces.Box(0, 1, (2,), np.int8)
        self.observation_space = place
        if way == "observation":
            self.observation_space = spaces.Dict({"place": place, MASK_KEY: mask})
        if way == "method":
            self.action_masks = self._mask

    def _mask(self):
        return np.array([self.place > 0, not (self.stuck and self.place == 2)], np.int8)

    def _answer(self):
        place = np.array([self.place], np.float32)
        if self.way == "observation":
            return {"place": place, MASK_KEY: self._mask()}, {}
        return place, {MASK_KEY: self._mask()} if self.way == "info" else {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._answer()

    def step(self, action):
        if action == 0 and self.place == 0:
            raise RuntimeError("illegal")
        self.place += 1 if action else -1
        observation, info = self._answer()
        return observation, float(self.place), self.place == 3, False, info


class Stuck(Corridor):
    def _mask(self):
        return np.array([0, self.place < 2], np.int8)


@pytest.mark.parametrize("way", ["info", "method", "observation"])
def test_delivers_masks_as_a_key_of_the_observation(way):
    batch = make_gym(lambda: Corridor(way), 2)
    observation = batch.reset(np.arange(2), np.arange(2))
    assert observation[MASK_KEY].tolist() == [[0, 1], [0, 1]]
    step = batch.step(np.array([[1], [1]]))
    assert step.observation[MASK_KEY].tolist() == [[1, 1], [1, 1]]
    assert batch.restorability.name == "MEMORY"  # The test of copies took legal actions only.
    snapshot = batch.snapshot(np.array([0]))
    batch.step(np.array([[0], [1]]))
    assert batch.restore(np.array([1]), snapshot)[MASK_KEY].tolist() == [[1, 1]]


def test_an_all_masked_state_names_environment_and_step():
    batch = make_gym(Stuck, 2)
    batch.reset(np.arange(2), np.arange(2))
    batch.step(np.array([[1], [1]]))
    with pytest.raises(BadValueError, match=r"allows no action.*end the episode") as caught:
        batch.step(np.array([[1], [1]]))
    assert (caught.value.index, caught.value.step) == (0, 2)
    assert caught.value.env_id == "Stuck"


def test_masks_cross_process_boundaries():
    batch = make_gym(Corridor, 2, workers=1)
    try:
        assert batch.reset(np.arange(2), np.arange(2))[MASK_KEY].tolist() == [[0, 1], [0, 1]]
    finally:
        batch.close()


def test_trains_predicts_and_evaluates_with_masks(tmp_path):
    with trellis.TRPO(Corridor, sampling={"steps_per_env": 32, "num_envs": 4}) as agent:
        agent.learn(256, progress_bar=False)  # An illegal action would raise.
        agent.save(tmp_path)
        first = np.zeros(1, np.float32)
        assert agent.predict(first, action_mask=[0, 1]) == 1
        assert agent.predict(first[None], action_mask=[[0, 1]]).tolist() == [1]
        with pytest.raises(ValueError, match="pass the mask as action_mask"):
            agent.predict(first)
        with pytest.raises(ValueError, match="allows no action"):
            agent.predict(first, action_mask=[0, 0])
        limited = gymnasium.wrappers.TimeLimit(Corridor(), 20)
        assert trellis.evaluate_policy(agent, limited, episodes=2).mean_length <= 20
    saved = trellis.SavedPolicy.load(tmp_path)
    assert saved.act({"observation": first, MASK_KEY: np.array([0, 1])}) == 1
    act = saved.episode()
    assert [act(first, action_mask=mask) for mask in ([0, 1], [1, 0])] == [1, 0]


def test_a_policy_without_masks_plays_where_masks_are_offered():
    """Our batch of Taxi has no mask, and Gymnasium's own environment has one in `info`."""
    with trellis.TRPO("Taxi-v4", policy={"hidden": (4,)}) as agent:
        made = gymnasium.make("Taxi-v4")
        played = [
            trellis.evaluate_policy(agent, env, episodes=3).returns
            for env in ("Taxi-v4", made, lambda: gymnasium.make("Taxi-v4"))
        ]
        np.testing.assert_array_equal(played[0], played[1])
        np.testing.assert_array_equal(played[0], played[2])


class Named(Corridor):
    """Corridor whose observation is a Dict, with or without masks in `info`."""

    def __init__(self, way="info"):
        super().__init__(way)
        self.observation_space = spaces.Dict({"place": self.observation_space})

    def _answer(self):
        place, info = super()._answer()
        return {"place": place}, info

    def step(self, action):
        self.place = max(self.place, 1)  # Illegal steps are taken from the next place.
        return super().step(action)


def test_a_policy_without_masks_sees_the_other_keys_of_a_dict():
    sampling = {"steps_per_env": 8, "num_envs": 2}
    with trellis.TRPO(lambda: Named("none"), sampling=sampling) as agent:
        limited = gymnasium.wrappers.TimeLimit(Named(), 20)
        one_by_one = trellis.evaluate_policy(agent, limited, episodes=2)
        batch = trellis.envs.make(Named, 2, max_episode_steps=20)
        assert batch.observation_space.spaces.keys() == {"place", MASK_KEY}
        together = trellis.evaluate_policy(agent, batch, episodes=2)
        np.testing.assert_array_equal(one_by_one.lengths, together.lengths)


def test_check_env_reports_masks():
    report = trellis.check_env(Corridor, verbose=False)
    assert report.ok
    assert any(check.name == "action masks" for check in report.checks)
