"""Tests of Gaussians with state-dependent std and with squashed actions, and of mixed actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import integrate, stats

from trellis.actions import ActionMap, flat_action
from trellis.config import PolicyConfig
from trellis.estimation.state_batch import StateBatch, cut
from trellis.optimization.fisher import fisher_operator
from trellis.optimization.rules import Curvature
from trellis.policies.build import build_policy
from trellis.policies.distributions import Categoricals, DiagGaussian, GaussianParams
from trellis.policies.gaussians import SquashedGaussian, StateGaussian
from trellis.policies.product import Product

VECTOR, TORQUE = spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-2.0, 2.0, (2,))
MIXED = spaces.Dict(
    {
        "a": spaces.Discrete(3, start=1),
        "b": TORQUE,
        "c": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]),
    }
)
MASKED = spaces.Dict(observation=VECTOR, action_mask=spaces.MultiBinary(12))
CASES = {
    "state-dependent": (VECTOR, TORQUE, {"state_dependent_std": True}),
    "squashed": (VECTOR, TORQUE, {"squashed_actions": True}),
    "squashed, state-dependent": (
        *(VECTOR, TORQUE),
        {"squashed_actions": True, "state_dependent_std": True},
    ),
    "mixed": (VECTOR, MIXED, {}),
    "mixed, masked": (MASKED, MIXED, {"state_dependent_std": True}),
}


def problem(case, n=9):
    observation_space, action_space, options = CASES[case]
    policy = build_policy(PolicyConfig(hidden=(4,), **options), observation_space, action_space)
    rng = np.random.default_rng(1)
    observation = rng.normal(size=(n, 3))
    if observation_space is MASKED:
        masks = np.ones((n, 12))
        masks[:, [1, 3, 8, 11]] = rng.integers(2, size=(n, 4))
        observation = np.concatenate([observation, masks], axis=1)
    return policy, rng.normal(size=policy.num_params) * 0.7, observation, rng


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.slow] * c.startswith("mixed")) for c in CASES],
)
def test_fisher_product_is_the_dense_hessian_of_the_mean_kl(case):
    policy, theta, observation, rng = problem(case)
    params, _ = policy.distribution_params(theta, observation)
    action = policy.distribution.sample(params, policy.distribution.noise(rng, (9,)))
    weight = rng.uniform(0.5, 1.5, size=9)
    batch = StateBatch(
        observation, action[:, None], weight[:, None], weight[:, None], weight, weight
    )

    def mean_kl(new):
        old, _ = policy.distribution_params(jnp.asarray(theta), observation)
        kl = policy.distribution.kl(old=old, new=policy.distribution_params(new, observation)[0])
        return jnp.sum(weight * kl)

    expected = jax.jit(jax.hessian(mean_kl))(theta) @ (v := rng.normal(size=policy.num_params))
    chunks = cut(batch, 5, 2, np.float64)
    product = fisher_operator(policy, Curvature.ANALYTIC, jnp.asarray(theta), chunks)(v)
    assert np.linalg.norm(product - expected) < 1e-6 * np.linalg.norm(expected)
    kl = policy.distribution.kl(old=params, new=params)
    assert np.array_equal(kl, np.zeros(9))


class TestStateGaussian:
    def test_is_the_gaussian_of_each_state(self):
        rng = np.random.default_rng(0)
        d, outputs = StateGaussian(2, initial_log_std=-0.5), rng.normal(size=(4, 4))
        params, action = d.params(outputs, np.zeros(0)), rng.normal(size=(4, 2))
        for row in range(4):
            one = GaussianParams(outputs[row, :2], outputs[row, 2:] - 0.5)
            expected = DiagGaussian(2).log_prob(one, action[row])
            np.testing.assert_allclose(d.log_prob(params, action)[row], expected, rtol=1e-12)
            np.testing.assert_allclose(
                d.entropy(params)[row], DiagGaussian(2).entropy(one), rtol=1e-12
            )


class TestSquashedGaussian:
    d = SquashedGaussian(DiagGaussian(1))
    params = GaussianParams(np.array([0.4]), np.array([-0.3]))

    def test_density_integrates_to_one(self):
        def density(a):
            return np.exp(self.d.log_prob(self.params, np.array([a])))

        total, _ = integrate.quad(density, -1 + 1e-9, 1 - 1e-9)
        np.testing.assert_allclose(total, 1.0, atol=1e-4)

    def test_log_prob_is_that_of_the_transformed_variable(self):
        u = np.array([1.3])
        expected = stats.norm.logpdf(1.3, 0.4, np.exp(-0.3)) - np.log(1 - np.tanh(1.3) ** 2)
        np.testing.assert_allclose(self.d.log_prob(self.params, np.tanh(u)), expected, rtol=1e-9)

    def test_entropy_is_the_mean_of_minus_log_prob(self):
        noise = np.random.default_rng(0).normal(size=(200_000, 1))
        samples = self.d.sample(self.params, noise)
        log_prob = self.d.log_prob(self.params, samples)
        expected, error = -log_prob.mean(), log_prob.std() / np.sqrt(len(noise))
        assert abs(self.d.entropy(self.params) - expected) < 4 * error + 1e-4

    def test_samples_and_log_probs_are_finite_far_out(self):
        far = GaussianParams(np.array([50.0], np.float32), np.array([0.0], np.float32))
        action = self.d.sample(far, np.zeros(1, np.float32))
        assert abs(action[0]) < 1
        assert np.isfinite(self.d.log_prob(far, action))

    def test_needs_bounds(self):
        unbounded = spaces.Box(-np.inf, np.inf, (1,))
        with pytest.raises(ValueError, match="squashed_actions must be False"):
            build_policy(PolicyConfig(squashed_actions=True), VECTOR, unbounded)


class TestProduct:
    def test_log_prob_and_entropy_are_sums_over_parts(self):
        policy, theta, observation, rng = problem("mixed")
        distribution = policy.distribution
        assert isinstance(distribution, Product)
        params, _ = policy.distribution_params(theta, observation)
        action = distribution.sample(params, distribution.noise(rng, (9,)))
        first, gaussian, *_ = distribution.parts
        assert (first, gaussian) == (Categoricals((3,)), DiagGaussian(2))
        columns = [action[:, :1], action[:, 1:3], action[:, 3:5], action[:, 5:7]]
        pairs = list(zip(distribution.parts, params, columns, strict=True))
        expected = sum(part.log_prob(p, a) for part, p, a in pairs)
        np.testing.assert_allclose(distribution.log_prob(params, action), expected, rtol=1e-12)
        entropy = sum(part.entropy(p) for part, p, _ in pairs)
        np.testing.assert_allclose(distribution.entropy(params), entropy, rtol=1e-12)

    def test_actions_have_the_structure_of_the_space(self):
        policy, theta, observation, rng = problem("mixed")
        params, _ = policy.distribution_params(theta, observation)
        action = policy.distribution.sample(params, policy.distribution.noise(rng, (9,)))
        mapped = ActionMap(MIXED)(action)
        pair = mapped["c"], MIXED["c"].spaces
        for row in range(9):
            one = {
                "a": mapped["a"][row],
                "b": mapped["b"][row].astype(np.float32),
                "c": tuple(part[row].astype(p.dtype) for part, p in zip(*pair, strict=True)),
            }
            assert MIXED.contains(one)
        flat = flat_action(
            {"gripper": 1, "move": [0.5, -1]},
            spaces.Dict(gripper=spaces.Discrete(2), move=spaces.Box(-1.0, 1.0, (2,))),
        )
        assert flat.tolist() == [1.0, 0.5, -1.0]

    def test_masks_reach_the_discrete_parts_alone(self):
        policy, theta, observation, rng = problem("mixed, masked")
        params, _ = policy.distribution_params(theta, observation)
        noise = policy.distribution.noise(rng, (100, 9))
        action = policy.distribution.sample(params, noise)
        mask = observation[:, 3:]
        assert mask[np.arange(9), action[..., 0].astype(int)].all()
        assert np.isfinite(params[1].log_std).all()
        assert (np.abs(params[1].log_std) < 100).all()
