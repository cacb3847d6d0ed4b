"""The compiled vine gives the samples and branches of the step-by-step vine."""

import jax.numpy as jnp
import numpy as np
import pytest

import trellis.envs
from tests.envs.jax.environments import Balance, Cards, Drift, Stuck, Walk
from tests.sampling.test_compiled_suites import prescribe, skip_missing
from trellis.config import PolicyConfig, SamplingConfig, TrainConfig, VineConfig
from trellis.envs.errors import BadValueError
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.normalizer import make_normalizer
from trellis.sampling import vine
from trellis.sampling.compiled_vine import CompiledRollouts, CompiledVine
from trellis.sampling.samples import Branches, Samples
from trellis.sampling.vine import Vine
from trellis.spaces import observation_encoder
from trellis.training.build import build_model, build_sampler

SIZES = {"trunks": 5, "trunk_length": 30, "states": 12, "actions": 3, "rollout_length": 9}
WALK = Walk()
PATHS = [name for name in Samples._fields if name not in ("branches", "carries", "log_q")]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def samplers(env, *, prescribed=False, seed=3, gamma=0.9, **options):
    """Return the policy, θ, and both samplers over batches of one environment."""
    settings = VineConfig(**{**SIZES, **options})

    def make(num_envs):
        return trellis.envs.make(env, num_envs)

    batch = make(settings.trunks)
    policy = build_policy(
        PolicyConfig(hidden=(8,), output_scale=1.0), batch.observation_space, batch.action_space
    )
    theta = policy.init(np.random.default_rng(0))
    policy = prescribe(policy) if prescribed else policy
    _, encode = observation_encoder(batch.observation_space)
    sampling = SamplingConfig(sampler="vine", vine=settings)
    return (
        policy,
        theta,
        [
            kind(make(settings.trunks), make, policy, encode, sampling, gamma=gamma, seed=seed)
            for kind in (CompiledVine, Vine)
        ],
    )


def collect(made, theta, normalize=lambda x: x, iteration=0):
    return [sampler.collect(theta, normalize, None, iteration)[0] for sampler in made]


def assert_same_bits(fast, slow):
    for name in PATHS:
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    for name, ours, theirs in zip(Branches._fields, fast.branches, slow.branches, strict=True):
        if theirs is None:
            assert ours is None
        else:
            assert ours.dtype == theirs.dtype, name
            assert ours.tobytes() == theirs.tobytes(), name


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (WALK, {"proposal": "every", "states": 40}),
        (Balance(), {"proposal": "policy", "rollout_length": 45}),
        slow(WALK, {"proposal": "uniform", "rollout_length": 1}),
        slow(WALK, {"proposal": "mixture", "common_random_numbers": False}),
        slow(Drift(), {}),
    ],
    ids=["every", "policy", "uniform", "mixture without common numbers", "width"],
)
def test_prescribed_actions_give_the_same_bits(env, options):
    _, theta, made = samplers(env, prescribed=True, **options)
    fast, slow = collect(made, theta)
    assert_same_bits(fast, slow)
    assert fast.branches.length.max() > 1 or options.get("rollout_length") == 1


@pytest.mark.parametrize("trunk_length", [2, 30], ids=["in a rollout", "in a trunk"])
def test_a_mask_that_allows_no_action_is_an_error(trunk_length):
    _, theta, made = samplers(Stuck(), trunk_length=trunk_length, states=5)
    found = []
    for sampler in made:
        with pytest.raises(BadValueError, match=r"action_mask allows no action \(\[0") as caught:
            sampler.collect(theta, lambda x: x, None, 0)
        found.append((caught.value.step, caught.value.seed))
    assert found[0][0] == 3  # No card is left after three steps.
    if trunk_length > 3:
        assert found[0] == found[1]


def test_masks_are_respected_and_keys_of_a_type_are_captured():
    # The policy acts, because prescribed actions ignore masks. None is decided by rounding here.
    _, theta, made = samplers(Cards(), proposal="every")
    fast, slow = collect(made, theta)
    assert_same_bits(fast, slow)
    branches = fast.branches
    assert not branches.legal.all()
    assert (branches.length[~branches.legal] == 0).all()
    assert fast.reward.max() < 1e3
    assert branches.reward_sum.max() < 1e3
    assert (branches.remaining[branches.legal] == 0).all()


@pytest.mark.slow
def test_chunks_have_the_random_numbers_of_the_step_by_step_sampler(monkeypatch):
    monkeypatch.setattr(vine, "MAX_ENVS", 24)  # chunks of eight states, the last one padded
    _, theta, made = samplers(WALK, prescribed=True, states=15)
    assert_same_bits(*collect(made, theta, iteration=2))


@pytest.mark.parametrize("env", [slow(WALK), Balance()], ids=["Walk", "Balance"])
def test_with_the_policy_in_the_loop_both_agree(env):
    policy, theta, made = samplers(env)
    rng = np.random.default_rng(1)
    normalize = make_normalizer(Moments.of(rng.normal(size=(20, 2)) + 0.1, (2,)))
    fast, slow = collect(made, theta, normalize)
    for name in [*PATHS, "log_q"]:
        ours, theirs = getattr(fast, name), getattr(slow, name)
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=name)
    for name, ours, theirs in zip(Branches._fields, fast.branches, slow.branches, strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-4, err_msg=name)
    params, _ = policy.distribution_params(theta, fast.observation)
    log_q = policy.distribution.log_prob(params, fast.action)
    np.testing.assert_allclose(fast.log_q, log_q, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [slow(2), 5])
def test_copies_of_an_action_give_the_same_q_bit_for_bit(copies):
    states = 13
    env = trellis.envs.make(WALK, states)
    policy = build_policy(PolicyConfig(hidden=(50, 50)), env.observation_space, env.action_space)
    theta = policy.init(np.random.default_rng(0))
    _, encode = observation_encoder(env.observation_space)
    env.reset(np.arange(states), np.arange(states))
    results = {}
    for common in (True, False):
        settings = VineConfig(states=states, rollout_length=8, common_random_numbers=common)
        make = lambda count: trellis.envs.make(WALK, count)  # noqa: E731
        rollouts = CompiledRollouts(make, policy, encode, settings, copies, 0.9)
        first = np.ones((copies, states, 1), np.int64)
        rng = np.random.default_rng(1)
        results[common] = rollouts.run(theta, lambda x: x, env.rows, first, rng)
        rollouts.close()
    same, different = results[True], results[False]
    for k in range(1, copies):
        for values in (same.reward_sum, same.final_observation):
            assert values[k].tobytes() == values[0].tobytes()
        assert not np.array_equal(different.reward_sum[k], different.reward_sum[0])
    assert len(np.unique(same.reward_sum[0])) == states


def test_a_value_that_is_not_finite_names_the_environment():
    class Cliff(Balance):
        """The reward is infinite in the 35th step, which only rollouts reach."""

        def reset(self, key):
            state, observation = super().reset(key)
            return (state, jnp.zeros(())), observation

        def step(self, key, state, action):
            inner, age = state
            moved = super().step(key, inner, 0.0 * action - inner[:1])
            reward = jnp.where(age == 34, jnp.inf, moved.reward)
            return moved._replace(state=(moved.state, age + 1), reward=reward)

    _, theta, (compiled, stepwise) = samplers(Cliff(), trunk_length=30, rollout_length=20)
    for sampler in (compiled, stepwise):
        with pytest.raises(trellis.envs.BadValueError, match="reward is not finite") as caught:
            sampler.collect(theta, lambda x: x, None, 0)
        assert "step 35" in str(caught.value)


def test_vine_is_compiled_unless_the_policy_has_memory():
    def make(num_envs):
        return trellis.envs.make(WALK, num_envs)

    sampling = SamplingConfig(sampler="vine", vine=VineConfig(**SIZES))
    for policy, kind in (PolicyConfig(), CompiledVine), (PolicyConfig(memory="gru"), Vine):
        config = TrainConfig("Walk", sampling=sampling, policy=policy)
        batch = make(SIZES["trunks"])
        sampler, _ = build_sampler(config, batch, make, build_model(config, batch))
        assert type(sampler) is kind


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "env_id",
    [*skip_missing(["gymnax/CartPole-v1", "gymnax/Pendulum-v1", "gymnax/Breakout-MinAtar"])],
)
def test_prescribed_actions_give_the_same_bits_on_gymnax(env_id):
    _, theta, made = samplers(env_id, prescribed=True, rollout_length=25)
    assert_same_bits(*collect(made, theta))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("env_id", [*skip_missing(["jumanji/Snake-v1", "pgx/minatar-breakout"])])
def test_both_agree_on_suites_with_masks_and_games(env_id):
    policy, theta, made = samplers(env_id)
    fast, slow = collect(made, theta)
    params, _ = policy.distribution_params(theta, fast.observation)
    log_q = policy.distribution.log_prob(params, fast.action)
    np.testing.assert_allclose(fast.log_q, log_q, atol=1e-5)
    np.testing.assert_array_equal(fast.branches.place, slow.branches.place)
    if np.array_equal(fast.action, slow.action):  # no choice was decided by rounding
        assert_same_bits(fast, slow)
