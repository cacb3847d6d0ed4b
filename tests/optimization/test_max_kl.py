"""Eq. 11 solved: against an independent solver, against a dense grid, and its constraints."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.optimize

from tests.problems import POLICIES, random_batch, random_theta
from trellis.estimation.surrogate import Estimator, surrogate_gains
from trellis.optimization import max_kl
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy

DELTA = 0.01


def problem(policy, batch, old):
    """Gain and every state's KL as functions of θ, in float64, written without Trellis' solver."""
    with jax.enable_x64(True):
        old_params, _ = policy.distribution_params(old, batch.observation)
        log_prob = jax.vmap(policy.distribution.log_prob, in_axes=(None, 1), out_axes=1)
        old_log_prob = log_prob(old_params, batch.action)

    @jax.jit
    def gain(theta):
        params, _ = policy.distribution_params(theta, batch.observation)
        gains = surrogate_gains(
            Estimator.IMPORTANCE,
            old_log_prob,
            log_prob(params, batch.action),
            batch.log_q,
            batch.value,
        )
        return (gains * batch.surrogate_weight).sum() / batch.surrogate_weight.sum()

    @jax.jit
    def kl(theta):
        params, _ = policy.distribution_params(theta, batch.observation)
        return policy.distribution.kl(old=old_params, new=params)

    return gain, kl


def augmented_lagrangian(gain, kl, old, start):
    """An independent solver: L-BFGS on the augmented Lagrangian over all states at once."""

    @jax.jit
    @jax.value_and_grad
    def lagrangian(theta, multipliers, penalty):
        excess = kl(theta) / DELTA - 1
        shifted = jax.numpy.maximum(multipliers + penalty * excess, 0)
        return -gain(theta) + ((shifted**2 - multipliers**2) / (2 * penalty)).sum()

    theta, multipliers = start, np.zeros(len(kl(old)))
    penalty = 0.1 * abs(float(gain(start))) + 1e-3
    for _ in range(25):
        found = scipy.optimize.minimize(
            lambda t, m, p: tuple(map(np.asarray, lagrangian(t, m, p))),
            theta,
            (multipliers, penalty),
            jac=True,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 500},
        )
        theta = found.x
        excess = np.asarray(kl(theta)) / DELTA - 1
        multipliers = np.maximum(multipliers + penalty * excess, 0)
        penalty *= 2
    # The last digits of feasibility: shrink the step until every constraint holds.
    low, high = 0.0, 1.0
    if np.max(kl(theta)) > DELTA:
        for _ in range(50):
            middle = (low + high) / 2
            feasible = np.max(kl(old + middle * (theta - old))) <= DELTA
            low, high = (middle, high) if feasible else (low, middle)
        theta = old + low * (theta - old)
    return float(gain(theta))


def best_of_random_starts(policy, batch, old, starts, rng):
    with jax.enable_x64(True):
        gain, kl = problem(policy, batch, old)
        begin = [old + 0.05 * rng.normal(size=old.shape) for _ in range(starts)]
        return max(augmented_lagrangian(gain, kl, old, start) for start in begin)


def check_against_independent_solver(seed, starts, states):
    rng = np.random.default_rng(seed)
    policy = POLICIES["gaussian, linear"]
    old = random_theta(policy, rng)
    batch = random_batch(policy, old, states, rng)
    found = max_kl.maximize(policy, Estimator.IMPORTANCE, old, batch, DELTA, rng)
    best = best_of_random_starts(policy, batch, old, starts, rng)
    assert found.gain >= (1 - max_kl.GAIN_TOLERANCE) * best
    assert found.max_kl <= DELTA * (1 + 1e-6)
    return found, best


@pytest.mark.parametrize("seed", range(2))
def test_no_independent_solver_finds_more(seed):
    found, _ = check_against_independent_solver(seed, starts=3, states=300)
    assert found.gain > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_fifty_starts_of_an_independent_solver_find_no_more(seed):
    check_against_independent_solver(seed, starts=50, states=1000)


@dataclasses.dataclass(frozen=True)
class Odds:
    """Logits (w·x, 0) of two actions: as many parameters as features."""

    inputs: int
    num_outputs: int = 2
    values_per_state: int = 2

    @property
    def shapes(self):
        return ((self.inputs,),)

    def apply(self, weights, observation):
        logit = observation @ weights[0]
        return jax.numpy.stack([logit, jax.numpy.zeros_like(logit)], -1)


@pytest.mark.parametrize("num_params", [1, 2])
def test_a_dense_grid_agrees(num_params):
    rng = np.random.default_rng(5)
    policy = Policy(Odds(num_params), Categoricals((2,)))
    old = rng.normal(size=num_params)
    with jax.enable_x64(True):
        batch = random_batch(policy, old, 200, rng)
        gain, kl = problem(policy, batch, old)
        evaluate = jax.jit(lambda grid: jax.lax.map(lambda t: (gain(t), kl(t).max()), grid))
        offsets = np.linspace(-0.5, 0.5, 4001 if num_params == 1 else 201)
        grid = old + np.stack(np.meshgrid(*[offsets] * num_params), -1).reshape(-1, num_params)
        gains, largest = map(np.asarray, evaluate(grid))
    feasible = largest <= DELTA
    assert not feasible[np.abs(grid - old).max(axis=1) > 0.49].any()  # The grid covers all of it.
    best = gains[feasible].max()
    found = max_kl.maximize(policy, Estimator.IMPORTANCE, old, batch, DELTA, rng)
    assert found.gain >= best * (1 - max_kl.GAIN_TOLERANCE)
    assert found.gain <= best * (1.01 if num_params == 1 else 1.1)  # It is as fine as that.
    assert found.max_kl <= DELTA


@pytest.mark.parametrize(
    "policy",
    [POLICIES["gaussian, linear"], Policy(MLP(4, (), 3), Categoricals((3,)))],
    ids=["gaussian", "categorical"],
)
def test_a_rounded_solution_satisfies_every_constraint(policy):
    rng = np.random.default_rng(3)
    old = random_theta(policy, rng).astype(np.float32)
    batch = random_batch(policy, old, 200, rng, dtype=np.float32)
    found = max_kl.maximize(policy, Estimator.IMPORTANCE, old, batch, DELTA, rng, starts=1)
    assert found.theta.dtype == np.float32
    assert found.gain > 0
    assert DELTA * 0.999 <= found.max_kl <= DELTA
    assert 0 < found.mean_kl <= found.max_kl


def test_equal_values_leave_the_parameters():
    rng = np.random.default_rng(4)
    policy = POLICIES["gaussian, linear"]
    old = random_theta(policy, rng).astype(np.float32)
    batch = random_batch(policy, old, 50, rng, dtype=np.float32)
    batch = batch._replace(value=np.zeros_like(batch.value))
    found = max_kl.maximize(policy, Estimator.IMPORTANCE, old, batch, DELTA, rng)
    assert found.theta.tobytes() == old.tobytes()
    assert found.gain == 0


def test_large_policies_are_refused():
    policy = Policy(MLP(4, (64, 64), 2), DiagGaussian(2))
    with pytest.raises(ValueError, match="max-kl-step"):
        max_kl.maximize(policy, Estimator.IMPORTANCE, np.zeros(5), None, DELTA, None)
