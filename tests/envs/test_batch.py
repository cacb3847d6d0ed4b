"""Tests of behaviour that all batches share: mapping of actions and time limits."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis import envs
from trellis.spaces import PictureFeatures, observation_encoder


class Still(gymnasium.Env):
    """An environment in which nothing happens and no episode ends."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, low=-1.0, high=1.0):
        low, high = np.atleast_1d(np.float32(low)), np.atleast_1d(np.float32(high))
        self.action_space = spaces.Box(low, high)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.zeros(1, np.float32), 0.0, False, False, {}


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("bounds", [(-1.8, -0.9), (0.1, 0.7), (-3.3, 4.6), (-LARGEST, LARGEST)])
def test_no_action_leaves_its_space(bounds):
    low, high = bounds
    batch = envs.make(Still, 5, low=low, high=high)
    batch.reset(np.arange(5), np.arange(5))
    sampled = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]], np.float32)
    batch.step(sampled)  # the environment raises an error for an action outside its space
    middle = low / 2 + high / 2
    mapped = batch.map_actions(sampled)[:, 0]
    np.testing.assert_allclose(mapped, [low, low, middle, high, high], rtol=1e-6, atol=1e-6)


def test_bounded_dimensions_are_stretched_and_others_are_not():
    batch = envs.make(Still, 3, low=[0.0, -np.inf, -3.0], high=[500.0, np.inf, np.inf])
    sampled = np.repeat(np.array([[-4.0], [0.0], [4.0]], np.float32), 3, axis=1)
    expected = [[0.0, -4.0, -3.0], [250.0, 0.0, 0.0], [500.0, 4.0, 4.0]]
    np.testing.assert_array_equal(batch.map_actions(sampled), expected)


@pytest.mark.parametrize("env", ["CartPole-v1", "Hopper-v5", Still])
def test_a_limit_of_minus_one_means_none_and_less_is_an_error(env):
    batch = envs.make(env, 2, max_episode_steps=-1)
    assert batch.max_episode_steps is None
    batch.reset(np.arange(2), np.arange(2))
    actions = np.zeros((2, *(batch.action_space.shape or ())), int)
    assert not batch.step(actions).truncated.any()
    with pytest.raises(ValueError, match="at least 1, or -1 for no limit, got 0"):
        envs.make(env, 2, max_episode_steps=0)


def test_pictures_among_other_observations_of_earlier_runs_are_features():
    picture = spaces.Box(0, 255, (3, 16, 12), np.uint8)
    assert isinstance(observation_encoder(picture)[0], PictureFeatures)
    both = spaces.Dict(image=picture, x=spaces.Box(-1, 1, (2,)))
    size, encode = observation_encoder(both, "frames-first")
    assert size == 3 * 16 * 12 + 2
    assert not isinstance(size, PictureFeatures)
    seen = encode({"image": np.full((4, 3, 16, 12), 7, np.uint8), "x": np.ones((4, 2))})
    assert seen.shape == (4, size)
    assert seen.dtype == np.float32
    assert seen[:, -2:].tolist() == [[1.0, 1.0]] * 4
    size, encode = observation_encoder(spaces.Tuple([picture]), "frames-first")
    assert encode((np.zeros((4, 3, 16, 12), np.uint8),)).shape == (4, size)


def test_maps_of_zeros_and_ones_are_not_pictures():
    """Scaled as a picture, their values would be close to 0."""
    size, encode = observation_encoder(spaces.Box(0, 1, (4, 12, 12), np.uint8))
    assert not isinstance(size, PictureFeatures)
    assert encode(np.ones((2, 4, 12, 12), np.uint8)).min() == 1.0
