"""Tests which observations are pictures, and how they reach the network."""

import typing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis import TRPO, SavedPolicy
from trellis.config import PolicyConfig
from trellis.pictures import PictureRule, picture_layout
from trellis.policies.build import build_policy, require_fit
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP
from trellis.spaces import PictureFeatures, observation_encoder


def box(*shape, high=255, dtype=np.uint8):
    return spaces.Box(0, high, shape, dtype)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((4, 84, 84), (4, 84, 84)),
        ((96, 96, 3), (3, 96, 96)),
        ((12, 30, 1), (1, 12, 30)),
        ((16, 16, 16), (16, 16, 16)),
        ((20, 30), (1, 20, 30)),
        ((4, 20, 30, 3), (12, 20, 30)),
        ((4, 3, 20, 30), (12, 20, 30)),
        ((240, 320, 3), (3, 80, 106)),
        ((3, 129, 10), (3, 129, 10)),
        ((3, 400, 25), (3, 200, 12)),
        ((7, 7, 3), None),
        ((84,), None),
        ((17, 20, 30), None),
        ((8, 20, 30, 3), None),
    ],
)
def test_shapes_of_pictures(shape, picture):
    layout = picture_layout(box(*shape))
    assert (layout and layout.shape) == picture
    features, encode = observation_encoder(box(*shape))
    if layout is None:
        assert not isinstance(features, PictureFeatures)
        assert features == np.prod(shape)
    else:
        assert isinstance(features, PictureFeatures)
        seen = encode(pixels(2, *shape))
        assert seen.shape == (2, *picture)
        assert seen.dtype == np.uint8


def test_colours_and_frames_become_channels():
    seen = pixels(2, 12, 13, 3)
    assert np.array_equal(picture_layout(box(12, 13, 3))(seen), seen.transpose(0, 3, 1, 2))
    frames = pixels(2, 4, 12, 13, 3)
    stacked = picture_layout(box(4, 12, 13, 3))(frames)
    for frame in range(4):
        for colour in range(3):
            assert np.array_equal(stacked[:, 3 * frame + colour], frames[:, frame, :, :, colour])


@pytest.mark.parametrize("side", [2, 3, 6])
def test_large_pictures_are_reduced_to_block_means(side):
    layout = picture_layout(box(128 * (side - 1) + 1, 61, 3))
    assert layout.block == side
    seen = pixels(2, *layout.space_shape)
    seen[0, :side, :side] = 0
    seen[0, : side // 2, :side] = 1  # The mean is a half if the side is even: rounded up.
    rows, columns = layout.shape[1:]
    blocks = seen[:, : rows * side, : columns * side].reshape(2, rows, side, columns, side, 3)
    means = np.floor(blocks.astype(float).mean(axis=(2, 4)) + 0.5 + 1e-9)
    assert np.array_equal(layout(seen), means.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    "shape", [(4, 30, 20), (30, 20, 3), (30, 20), (2, 30, 20, 3), (300, 130, 3)]
)
def test_pictures_are_inverted(shape):
    layout = picture_layout(box(*shape))
    pictures = pixels(2, *layout.shape)
    observation = layout.invert(pictures)
    assert observation.shape == (2, *shape)
    assert np.array_equal(layout(observation), pictures)


def test_rules():
    assert set(typing.get_args(PictureRule)) == set(
        typing.get_args(PolicyConfig.__dataclass_fields__["pictures"].type)
    )
    for shape in ((96, 96, 3), (96, 96), (4, 20, 20, 3)):
        assert picture_layout(box(*shape), "frames-first") is None
    assert picture_layout(box(3, 240, 320), "frames-first").shape == (3, 240, 320)
    assert picture_layout(box(3, 20, 20), "flatten") is None
    for other in (box(20, 20, 3, high=10), box(20, 20, 3, dtype=np.int16), spaces.Discrete(3)):
        assert picture_layout(other) is None


def test_the_network_follows_the_rule():
    pair = box(20, 22, 3), spaces.Discrete(2)
    network = build_policy(PolicyConfig(), *pair).network
    assert isinstance(network, ConvNet)
    assert network.inputs == (3, 20, 22)
    flat = build_policy(PolicyConfig(pictures="flatten"), *pair)
    assert isinstance(flat.network, MLP)
    require_fit(flat, *pair, "Mine-v0", "flatten")
    wrong = build_policy(PolicyConfig(), box(22, 20, 3), pair[1])
    with pytest.raises(ValueError, match=r"inputs must be \(3, 20, 22\), got \(3, 22, 20\)"):
        require_fit(wrong, *pair, "Mine-v0")


def test_too_many_convolutions_are_an_error():
    with pytest.raises(ValueError, match=r"12×12 are too small for 3 convolutions .* \(channels\)"):
        build_policy(PolicyConfig(channels=(4, 4, 4)), box(12, 12, 3), spaces.Discrete(2))


class Lamp(gymnasium.Env):
    """The action must name the colour of a lamp at a random place: red or blue."""

    observation_space = box(14, 12, 3)
    action_space = spaces.Discrete(2)

    def _look(self):
        self._colour = int(self.np_random.integers(2))
        picture = np.zeros((14, 12, 3), np.uint8)
        row, column = self.np_random.integers(0, 8, 2)
        picture[row : row + 4, column : column + 4, 2 * self._colour] = 255
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._look(), {}

    def step(self, action):
        reward = float(action == self._colour)
        self._time += 1
        return self._look(), reward, False, self._time == 10, {}


SMALL = {
    "policy": {"channels": (8, 8), "hidden": (16,)},
    "sampling": {"num_envs": 8, "steps_per_env": 32},
    "estimation": {"critic": "none", "gamma": 0.01},
}


@pytest.mark.slow
def test_colours_are_learned_saved_and_loaded(tmp_path):
    with TRPO(Lamp, **SMALL, step={"max_kl": 0.05, "fisher_fraction": 1.0}) as agent:
        agent.learn(256 * 40, progress_bar=False)
        assert agent.evaluate(20).mean_return > 9.5
        agent.save(tmp_path / "lamp")
    saved = SavedPolicy.load(tmp_path / "lamp")
    picture = np.zeros((14, 12, 3), np.uint8)
    for colour in range(2):
        seen = picture.copy()
        seen[3:7, 5:9, 2 * colour] = 255
        assert saved.act(seen, deterministic=True) == colour
    with TRPO.load(tmp_path / "lamp", env=Lamp) as agent:
        agent.learn(256, progress_bar=False)
