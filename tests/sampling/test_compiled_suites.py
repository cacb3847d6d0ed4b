"""Compiled and step-by-step sampling of real JAX suites: the same bits, and the same numbers."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import trellis.envs
from tests.envs.jax.test_suites import IDS
from trellis.config import PolicyConfig, SamplingConfig
from trellis.envs.jax import suites
from trellis.masks import mask_size
from trellis.policies.build import build_policy
from trellis.policies.masked import LEAST_LEGAL
from trellis.sampling.compiled import CompiledPath
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SAMPLING = SamplingConfig(num_envs=6, steps_per_env=40)
LIMIT = 15
CLASSIC = (
    *("gymnax/CartPole-v1", "gymnax/Acrobot-v1", "gymnax/Pendulum-v1"),
    *("gymnax/MountainCarContinuous-v0", "gymnax/Breakout-MinAtar", "gymnax/Asterix-MinAtar"),
)


def skip_missing(ids):
    for env_id in ids:
        suite = suites.SUITES[env_id.partition("/")[0]]
        skip = pytest.mark.skipif(not suites.installed(suite.module), reason=suite.install)
        yield pytest.param(env_id, marks=skip, id=env_id)


def parts(env_id):
    """Return a policy, θ, the encoder and two batches."""
    batches: list[Any] = [trellis.envs.make(env_id, 6, max_episode_steps=LIMIT) for _ in range(2)]
    spaces = batches[0].observation_space, batches[0].action_space
    policy = build_policy(PolicyConfig(hidden=(8,), output_scale=1.0), *spaces)
    _, encode = observation_encoder(spaces[0])
    return policy, policy.init(np.random.default_rng(0)), encode, batches


def prescribe(policy):
    """Return a policy whose actions are functions of the noise alone."""

    class Prescribed(type(policy.distribution)):
        def sample(self, params, noise):
            return super().sample(jax.tree.map(lambda leaf: leaf * 0, params), noise)

    fields = {
        f.name: getattr(policy.distribution, f.name)
        for f in dataclasses.fields(policy.distribution)
    }
    return dataclasses.replace(policy, distribution=Prescribed(**fields))


@pytest.mark.parametrize("env_id", skip_missing(CLASSIC))
def test_prescribed_actions_give_the_same_bits(env_id):
    policy, theta, encode, batches = parts(env_id)
    policy = prescribe(policy)
    results = [
        kind(batch, policy, encode, SAMPLING, seed=5).collect(theta, lambda x: x, None, 0)
        for kind, batch in zip((CompiledPath, SinglePath), batches, strict=True)
    ]
    (fast, ours), (slow, theirs) = results
    assert len(fast.final_at) >= 6 * (SAMPLING.steps_per_env // LIMIT)
    for name in Samples._fields:
        if name not in ("branches", "carries", "log_q"):
            assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    for one, other in zip(ours[:3], theirs[:3], strict=True):
        assert np.array_equal(one, other)
    everyone = np.arange(6)
    snapshots = [batch.snapshot(everyone) for batch in batches]
    for name, values in snapshots[0].items():
        assert values.tobytes() == snapshots[1][name].tobytes(), name


@pytest.mark.parametrize("env_id", skip_missing(IDS))
def test_log_probabilities_and_steps_can_be_recomputed(env_id):
    policy, theta, encode, (batch, twin) = parts(env_id)
    sampler = CompiledPath(batch, policy, encode, SAMPLING, seed=5)
    samples, _ = sampler.collect(theta, lambda x: x, None, 0)
    masked = mask_size(batch.observation_space)
    outputs = jax.jit(lambda theta, x: policy.distribution_params(theta, x)[0])
    for t in range(SAMPLING.steps_per_env):
        params, _ = policy.distribution_params(theta, samples.observation[t])
        compiled = outputs(theta, samples.observation[t])
        for one, other in zip(jax.tree.leaves(compiled), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        log_q = policy.distribution.log_prob(params, samples.action[t])
        np.testing.assert_allclose(samples.log_q[t], log_q, atol=1e-5)
        if masked:
            assert (samples.log_q[t] > LEAST_LEGAL).all()
    # The same seeds and actions, step by step, give the same paths to rounding.
    repeated = CompiledPath(twin, policy, encode, SAMPLING, seed=5)
    first, random = repeated.randomness(None, 0)
    repeated.start_episodes(first)
    used, everyone = 0, np.arange(6)
    for t in range(SAMPLING.steps_per_env):
        step = twin.step(samples.action[t])
        np.testing.assert_allclose(step.reward, samples.reward[t], rtol=1e-4, atol=1e-4)
        assert (step.terminated == samples.terminated[t]).all()
        assert (step.truncated == samples.truncated[t]).all()
        ended = everyone[step.terminated | step.truncated]
        raw = encode(step.observation)
        if len(ended):
            at = [list(map(tuple, samples.final_at)).index((t, row)) for row in ended]
            final = samples.final_observation[at]
            np.testing.assert_allclose(raw[ended], final, rtol=1e-3, atol=1e-3)
            raw[ended] = encode(twin.reset(ended, random.seeds[used : used + len(ended)]))
            used += len(ended)
        last = t + 1 == SAMPLING.steps_per_env
        following = samples.last_observation if last else samples.observation[t + 1]
        np.testing.assert_allclose(raw, following, rtol=1e-3, atol=1e-3)
