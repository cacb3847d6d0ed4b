"""The compiled sampler gives the samples of the step-by-step sampler."""

import dataclasses

import numpy as np
import pytest

import trellis.envs
from tests.envs.jax.environments import Balance, Walk
from trellis.config import PolicyConfig, SamplingConfig
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.normalizer import make_normalizer
from trellis.rng import Purpose, stream
from trellis.sampling.compiled import CompiledPath
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder

COMPARED = [name for name in Samples._fields if name not in ("branches", "carries")]
SAMPLING = SamplingConfig(num_envs=6, steps_per_env=60)


def samplers(env, seed=3):
    """Return both samplers over batches of one environment, and θ."""
    spaces = env.observation_space, env.action_space
    policy = build_policy(PolicyConfig(hidden=(8,), output_scale=1.0), *spaces)
    _, encode = observation_encoder(spaces[0])
    batches = [trellis.envs.make(env, SAMPLING.num_envs) for _ in range(2)]
    theta = policy.init(np.random.default_rng(0))
    made = [
        kind(batch, policy, encode, SAMPLING, seed=seed)
        for kind, batch in zip((CompiledPath, SinglePath), batches, strict=True)
    ]
    return policy, theta, batches, made


def test_seeds_in_parts_are_those_of_one_draw():
    whole = stream(0, Purpose.RESETS).integers(2**31, size=50)
    rng = stream(0, Purpose.RESETS)
    parts = [rng.integers(2**31, size=n) for n in (7, 1, 2, 0, 40)]
    assert np.concatenate(parts).tolist() == whole.tolist()


def with_action(policy, action):
    """Return a policy that always takes one action, whatever θ is."""

    class Always(type(policy.distribution)):
        def sample(self, params, noise):
            xp = noise.__array_namespace__()
            return xp.asarray(np.broadcast_to(np.asarray(action), (len(noise), 1)))

    distribution = Always(**dataclasses.asdict(policy.distribution))
    return dataclasses.replace(policy, distribution=distribution)


@pytest.mark.parametrize("env", [Walk(), Balance()], ids=["Walk", "Balance"])
def test_both_samplers_agree(env):
    policy, theta, batches, (compiled, stepwise) = samplers(env)
    rng = np.random.default_rng(1)
    normalize = make_normalizer(Moments.of(rng.normal(size=(20, 2)) + 0.1, (2,)))
    states = [None, None]
    for iteration in range(2):
        fast, states[0] = compiled.collect(theta, normalize, states[0], iteration)
        slow, states[1] = stepwise.collect(theta, normalize, states[1], iteration)
        assert len(fast.final_at) > 3
        for name in COMPARED:
            ours, theirs = getattr(fast, name), getattr(slow, name)
            assert ours.shape == theirs.shape, name
            assert ours.dtype.kind == theirs.dtype.kind, name
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=name)
        for one, other in zip(states[0][:3], states[1][:3], strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
        params, _ = policy.distribution_params(theta, fast.observation)
        log_q = policy.distribution.log_prob(params, fast.action)
        np.testing.assert_allclose(fast.log_q, log_q, atol=1e-5)
    snapshots = [batch.snapshot(np.arange(SAMPLING.num_envs)) for batch in batches]
    assert snapshots[0].keys() == snapshots[1].keys()
    assert (snapshots[0]["elapsed"] == snapshots[1]["elapsed"]).all()
    assert (snapshots[0]["seed"] == snapshots[1]["seed"]).all()


def test_prescribed_actions_give_the_same_bits():
    _, theta, batches, made = samplers(Walk())
    policy = with_action(made[0].walker.policy, 2)
    _, encode = observation_encoder(Walk.observation_space)
    results = [
        kind(batch, policy, encode, SAMPLING, seed=5).collect(theta, lambda x: x, None, 0)
        for kind, batch in zip((CompiledPath, SinglePath), batches, strict=True)
    ]
    for name in ("observation", "action", "reward", "terminated", "truncated", "age", "final_at"):
        ours, theirs = (getattr(samples, name) for samples, _ in results)
        assert np.array_equal(ours, theirs), name
    for name in ("final_observation", "last_observation", "episode_return", "episode_length"):
        assert np.array_equal(*(getattr(samples, name) for samples, _ in results)), name
    for one, other in zip(results[0][1][:3], results[1][1][:3], strict=True):
        assert np.array_equal(one, other)


def test_a_value_that_is_not_finite_names_the_environment():
    class Broken(Balance):
        def step(self, key, state, action):
            moved = super().step(key, state, action)
            return moved._replace(reward=moved.reward / 0.0)

    _, theta, _, (compiled, _) = samplers(Broken())
    with pytest.raises(trellis.envs.BadValueError, match="reward is not finite"):
        compiled.collect(theta, lambda x: x, None, 0)
