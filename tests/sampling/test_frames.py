"""Tests that frames stored once give the same results as whole stacks of pictures."""

import functools

import jax
import numpy as np
import pytest

from tests.problems import sum_gradient
from trellis.config import EstimationConfig, SamplingConfig
from trellis.envs.batch import Step
from trellis.estimation.critic import MLPCritic
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator
from trellis.moments import Moments
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals
from trellis.policies.normalizer import PictureStandardizer
from trellis.policies.policy import Policy
from trellis.sampling import observation_buffers as buffers
from trellis.sampling.frames import FrameStore, Stacks
from trellis.sampling.observation_buffers import is_pictures
from trellis.sampling.single_path import SinglePath

SHAPE = (3, 12, 11)
POLICY = Policy(ConvNet(SHAPE, (4, 4), (5,), 2), Categoricals((2,)))


MOMENTS = Moments.of(np.random.default_rng(1).integers(40, 90, size=(50, *SHAPE[1:])), SHAPE[1:])


class Pictures:
    """Environments with random pictures and different episode lengths; all stacks are recorded."""

    num_envs = 3

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.stack = np.zeros((3, *SHAPE), np.uint8)
        self.time, self.shown, self.ended = np.zeros(3, int), [], []

    def reset(self, ids, seeds):
        self.stack = self.stack.copy()
        self.stack[ids] = self.rng.integers(256, size=(len(ids), 1, *SHAPE[1:]), dtype=np.uint8)
        self.time[ids] = 0
        return self.stack[ids]

    def step(self, actions):
        self.shown.append(self.stack)
        new = self.rng.integers(256, size=(3, 1, *SHAPE[1:]), dtype=np.uint8)
        self.stack = np.concatenate([self.stack[:, 1:], new], axis=1)
        self.time += 1
        over = self.time >= [3, 4, 100]
        self.ended += [self.stack[i] for i in np.flatnonzero(over)]
        return Step(self.stack, np.ones(3), over, np.zeros(3, bool))


class Colours(Pictures):
    """Environments whose pictures are completely new in every step."""

    def step(self, actions):
        step = super().step(actions)
        self.stack[:, :-1] = self.rng.integers(256, size=(3, 2, *SHAPE[1:]), dtype=np.uint8)
        return step


def test_stacks_of_colours_share_their_frames():
    """Two colour pictures in a stack: each step adds the three colours of a new one."""
    rng = np.random.default_rng(0)
    shown = rng.integers(256, size=(8, 2, 3, 12, 11), dtype=np.uint8)  # time, env, colour, …
    stacks = np.concatenate([shown[:-1], shown[1:]], axis=2)
    buffer = buffers.PictureBuffer((6, 2), unchanged, stacks[0])
    lane = slice(0, 2)
    for t in range(6):
        assert np.array_equal(buffer.gather(t, lane, stacks[t]), stacks[t])
        buffer.advance(lane, stacks[t], stacks[t + 1])
    assert buffer._store.count == 2 * 6 + 6 * 2 * 3
    capacity = len(buffer._store.frames)
    assert buffer._store.count <= capacity <= 3 * (12 + 12 // buffers.RESERVE) + 2 * 6 * 2
    stored = buffer.rebuild(buffer.recorded())
    assert np.array_equal(np.asarray(stored), stacks[:6])


class ByTurns(Pictures):
    """Environments in two lanes; it checks that both are sent before the first is received."""

    lanes = (slice(0, 1), slice(1, 3))

    def __init__(self):
        super().__init__()
        self.sent, self.step_of_all = [], None

    def send(self, lane, actions):
        assert len(actions) == len(range(3)[self.lanes[lane]])
        self.sent.append(lane)

    def receive(self, lane):
        if lane == 0:
            assert self.sent == [0, 1]
            self.step_of_all, self.sent = self.step(None), []
        return Step(*(values[self.lanes[lane]] for values in self.step_of_all))


def unchanged(x):
    return x


@pytest.mark.parametrize("normalize", [unchanged, PictureStandardizer(MOMENTS)], ids=["raw", "std"])
@pytest.mark.parametrize("kind", [Pictures, ByTurns, Colours])
def test_samples_hold_the_observations_of_the_environments(kind, normalize):
    env = kind()
    sampler = SinglePath(env, POLICY, np.asarray, SamplingConfig(steps_per_env=9))
    theta = POLICY.init(np.random.default_rng(0))
    path = None
    for iteration in range(2):  # the second iteration starts in the middle of episodes
        env.shown, env.ended = [], []
        samples, path = sampler.collect(theta, normalize, path, iteration)
        assert isinstance(samples.observation, Stacks)
        assert samples.observation.shape == (9, 3, *SHAPE)
        for seen, shown in (
            (samples.observation, np.stack(env.shown)),
            (samples.final_observation, np.stack(env.ended)),
            (samples.last_observation, env.stack),
        ):
            assert np.asarray(seen).dtype == normalize(shown).dtype
            assert np.array_equal(np.asarray(seen), normalize(shown))
        assert np.array_equal(path.observation, env.stack)
        frame = np.arange(9) % 3
        assert np.array_equal(samples.raw_observation, np.stack(env.shown)[np.arange(9), :, frame])
        # Each frame is stored once, except the first stacks of episodes.
        new = 27 * (3 if kind is Colours else 1)
        assert samples.observation.store.count == new + 3 * (3 + len(env.ended))


def test_statistics_use_at_most_a_thousand_frames(monkeypatch):
    monkeypatch.setattr(buffers, "FRAMES_FOR_STATISTICS", 12)
    env = Pictures()
    sampler = SinglePath(env, POLICY, np.asarray, SamplingConfig(steps_per_env=9))
    samples, _ = sampler.collect(POLICY.init(np.random.default_rng(0)), unchanged, None, 0)
    shown = np.stack(env.shown)[::3]
    assert np.array_equal(samples.raw_observation, shown[np.arange(3), :, np.arange(3)])


def test_a_store_grows():
    store = FrameStore(2, (2, 2))
    new = np.arange(20, dtype=np.uint8).reshape(5, 2, 2)
    index = np.concatenate([store.add(new[:2]), store.add(new[2:])])
    assert np.array_equal(np.asarray(Stacks(index[:, None], store))[:, 0], new)


def both_ways(n=40):
    rng = np.random.default_rng(0)
    store = FrameStore(60, SHAPE[1:])
    store.add(rng.integers(256, size=(60, *SHAPE[1:]), dtype=np.uint8))
    stacks = Stacks(rng.integers(60, size=(n, 3)).astype(np.int32), store)
    return rng, np.asarray(stacks), stacks


@pytest.mark.slow
def test_the_objective_is_the_same_bit_for_bit():
    rng, pictures, stacks = both_ways()
    n = len(stacks)
    theta = POLICY.init(rng)
    rest = rng.integers(2, size=(n, 1, 1)), np.full((n, 1), np.log(0.5)), rng.normal(size=(n, 1))
    weights = np.ones(n), np.ones(n)
    sums = jax.jit(sum_gradient, static_argnums=(0, 1))
    results = [
        sums(POLICY, Estimator.IMPORTANCE, theta, cut(batch, 16, 4, np.float32))
        for batch in (
            StateBatch(observation, *rest, *weights) for observation in (pictures, stacks)
        )
    ]
    assert float(np.abs(results[0].gradient).max()) > 0
    jax.tree.map(np.testing.assert_array_equal, *results)
    subset = jax.tree.map(lambda leaf: leaf[::2], StateBatch(stacks, *rest, *weights))
    assert np.array_equal(np.asarray(subset.observation), pictures[::2])


def test_the_critic_gives_the_same_values_for_both():
    rng, pictures, stacks = both_ways()
    settings = EstimationConfig(critic_hidden=(8,), critic_epochs=30, critic_minibatch=8)
    critic = MLPCritic(SHAPE, settings, channels=(4,))
    state, target = critic.init(rng), pictures[:, -1, 3, 3] / 255.0
    age = np.zeros(len(stacks))
    fitted = [
        critic.fit(state, observation, age, target, np.random.default_rng(1))
        for observation in (pictures, stacks)
    ]
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(close, *fitted)  # Stacks have code of their own, which rounds differently.
    state, loss = fitted[1]
    values = critic.predict(state, stacks.reshape(5, 8, -1), age.reshape(5, 8))
    assert values.shape == (5, 8)
    close(values.ravel(), critic.predict(state, pictures, age))
    assert loss < np.var(target)
    assert np.corrcoef(values.ravel(), target)[0, 1] > 0.7


def test_pictures_are_distinguished_from_features():
    assert is_pictures(np.zeros((2, *SHAPE), np.uint8))
    assert not is_pictures(np.zeros((2, 8), np.float32))
