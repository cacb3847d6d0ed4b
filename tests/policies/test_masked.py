"""Tests of action masks: illegal actions have probability 0 in everything, exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from trellis.config import PolicyConfig
from trellis.masks import MASK_KEY, MaskError, first_illegal, make_legal, read_mask
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.masked import MASKED, MaskedNetwork
from trellis.policies.normalizer import Standardizer
from trellis.policies.sequences import Sequences

KINDS = {
    "discrete": spaces.Discrete(5),
    "multi-discrete": spaces.MultiDiscrete([3, 3, 2]),
    "multi-binary": spaces.MultiBinary(3),
}


def observation_space(action_space, size):
    inner = spaces.Box(-1.0, 1.0, (4,))
    return spaces.Dict({"observation": inner, MASK_KEY: spaces.MultiBinary(size)})


def masked_policy(kind):
    space = KINDS[kind]
    size = {"discrete": 5, "multi-discrete": 8, "multi-binary": 6}[kind]
    config = PolicyConfig(hidden=(6,))
    return build_policy(config, observation_space(space, size), space)


def random_masks(policy, rng, n):
    """Return masks in which every factor has a legal choice, and not all are legal."""
    sizes, columns = policy.distribution.sizes, []
    for size in sizes:
        column = rng.random((n, size)) < 0.5
        column[np.arange(n), rng.integers(size, size=n)] = True
        columns.append(column)
    return np.concatenate(columns, axis=1)


def problem(kind, n=12):
    policy, rng = masked_policy(kind), np.random.default_rng(3)
    masks = random_masks(policy, rng, n)
    observation = np.concatenate([rng.normal(size=(n, 4)), masks], axis=1)
    return policy, rng.normal(size=policy.num_params), observation, masks, rng


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k != "discrete")) for k in KINDS]
)
class TestMaskedPolicy:
    @pytest.mark.slow
    def test_fisher_product_is_the_dense_hessian_of_the_kl(self, kind):
        policy, theta, observation, _, rng = problem(kind)
        distribution = policy.distribution

        def params(theta):
            return policy.distribution_params(theta, observation)[0]

        def mean_kl(new):
            return jnp.mean(distribution.kl(old=params(jnp.asarray(theta)), new=params(new)))

        hessian = jax.jit(jax.hessian(mean_kl))(theta)
        assert np.isfinite(hessian).all()
        mu, push = jax.linearize(params, jnp.asarray(theta))
        v = rng.normal(size=policy.num_params)
        (product,) = jax.linear_transpose(push, theta)(distribution.fisher_product(mu, push(v)))
        expected = hessian @ v
        error = np.linalg.norm(product / len(observation) - expected)
        assert error < 1e-6 * np.linalg.norm(expected)

    def test_equals_a_distribution_over_the_legal_actions(self, kind):
        policy, theta, observation, masks, _ = problem(kind)
        logits, _ = policy.distribution_params(theta, observation)
        free, _ = policy.network.network, policy.network
        raw = free.apply(policy.unflatten(theta)[0], observation[:, :4])
        entropy, start = np.zeros(len(masks)), 0
        for size in policy.distribution.sizes:
            block, legal = raw[:, start : start + size], masks[:, start : start + size]
            weights = np.where(legal, np.exp(block), 0.0)
            p = weights / weights.sum(axis=1, keepdims=True)
            entropy -= np.sum(np.where(legal, p * np.log(np.where(legal, p, 1.0)), 0.0), axis=1)
            start += size
        np.testing.assert_allclose(policy.distribution.entropy(logits), entropy, rtol=1e-12)
        kl = policy.distribution.kl(old=logits, new=logits)
        assert np.array_equal(kl, np.zeros(len(masks)))

    def test_never_samples_an_illegal_action(self, kind):
        policy, theta, observation, masks, rng = problem(kind)
        logits, _ = policy.distribution_params(theta, observation)
        noise = policy.distribution.noise(rng, (200, len(masks)))
        action = policy.distribution.sample(logits, noise)
        starts = np.cumsum((0, *policy.distribution.sizes[:-1]))
        rows = np.arange(len(masks))[None, :, None]
        assert masks[rows, action + starts].all()
        assert masks[rows, policy.distribution.mode(logits)[None] + starts].all()
        assert np.isfinite(policy.distribution.log_prob(logits, action)).all()


def test_an_illegal_action_has_probability_exactly_zero_in_single_precision():
    policy = masked_policy("discrete")
    observation = np.array([[0.1, 0.2, 0.3, 0.4, 1, 0, 1, 1, 0]], np.float32)
    theta = (100 * np.random.default_rng(0).normal(size=policy.num_params)).astype(np.float32)
    logits, _ = policy.distribution_params(theta, observation)
    assert logits.dtype == np.float32
    log_prob = policy.distribution.log_prob(logits, np.array([[1]]))
    assert np.exp(log_prob[0]) == 0.0
    gradient = jax.grad(lambda t: policy.distribution_params(t, observation)[0][0, 1])(theta)
    assert not gradient.any()


def test_masks_skip_normalization():
    moments = Moments.of(np.random.default_rng(0).normal(size=(50, 2)), (2,))
    x = np.array([[1.0, 2.0, 0.0, 1.0]], np.float32)
    scaled = Standardizer(moments)(x)
    assert scaled[0, 2:].tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(scaled[:, :2], Standardizer(moments)(x[:, :2]))


def test_a_mask_of_the_wrong_size_or_kind_of_action_is_refused():
    observations = observation_space(None, 4)
    with pytest.raises(MaskError, match="has 4 entries, but the action space Discrete"):
        build_policy(PolicyConfig(), observations, spaces.Discrete(5))
    with pytest.raises(MaskError, match="reserved for masks of discrete actions"):
        build_policy(PolicyConfig(), observations, spaces.Box(-1.0, 1.0, (4,)))


def test_reads_masks_of_all_forms():
    space = spaces.MultiDiscrete([2, 3])
    flat = [True, False, True, True, False]
    assert read_mask(np.array([1, 0, 1, 1, 0]), space).tolist() == flat
    assert read_mask((np.array([1, 0]), np.array([1, 1, 0])), space).tolist() == flat
    assert read_mask([1, 0, 1, 1, 0], space).tolist() == flat
    mixed = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0.0, 1.0), c=spaces.Discrete(3))
    assert read_mask({"a": [1, 0], "c": [1, 1, 0]}, mixed).tolist() == flat
    for bad in (np.ones(4), np.full(5, 2), "abc", None, {"a": [1, 0]}):
        with pytest.raises(MaskError):
            read_mask(bad, space)


def test_finds_the_row_without_a_legal_choice():
    masks = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    assert first_illegal(masks, (2, 2)) == 1
    assert first_illegal(masks[:1], (2, 2)) is None


def test_makes_random_actions_legal():
    space = spaces.MultiDiscrete([3, 2], start=[1, 0])
    action = make_legal(np.array([3, 0]), space, np.array([0, 1, 0, 0, 1]))
    assert action.tolist() == [2, 1]
    assert make_legal(np.int64(2), spaces.Discrete(3), np.array([1, 0, 0])) == 0


def test_masks_only_the_logits_of_mixed_outputs():
    class Inner:
        num_outputs = 5
        shapes = ()
        values_per_state = 1

        def apply(self, weights, observation):
            return np.zeros((len(observation), 5))

    network = MaskedNetwork(Inner(), ((0, 2), (3, 5)))
    outputs = network.apply([], np.array([[9.0, 1, 0, 0, 1]]))
    assert outputs.tolist() == [[0, MASKED, 0, MASKED, 0]]


def test_a_policy_with_memory_respects_masks_in_steps_and_sequences():
    observations = observation_space(None, 5)
    config = PolicyConfig(hidden=(4,), memory="gru", memory_units=3)
    policy = build_policy(config, observations, spaces.Discrete(5))
    rng = np.random.default_rng(0)
    theta = rng.normal(size=policy.num_params).astype(np.float32)
    masks = random_masks(policy, rng, 6).astype(np.float32)
    rows = np.concatenate([rng.normal(size=(6, 4)).astype(np.float32), masks], axis=1)
    carry, stepped = policy.initial_carry(1), []
    for row in rows:
        params, carry = policy.distribution_params(theta, row[None], carry)
        stepped.append(params[0])
    sequences = Sequences(rows, np.zeros(6, bool), policy.initial_carry(1))
    params, _ = policy.distribution_params(theta, sequences)
    np.testing.assert_allclose(params, np.stack(stepped), rtol=1e-4, atol=1e-5)
    assert np.array_equal(np.asarray(params) == MASKED, masks == 0)
