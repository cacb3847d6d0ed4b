"""Eq. 11 solved: against an independent solver, against a dense grid, and its constraints."""

import dataclasses
import functools
from unittest import mock

import jax
import numpy as np
import pytest
import scipy.optimize

from tests.problems import POLICIES, random_batch, random_theta
from trellis import presets
from trellis.config import SamplingConfig, StepConfig, TrainConfig
from trellis.estimation.surrogate import Estimator, surrogate_gains
from trellis.optimization import max_kl
from trellis.optimization.step import Status
from trellis.optimization.trust_region import TrustRegion
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.training.trainer import Trainer

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


def lagrangian_of(gain, kl):
    @jax.jit
    @jax.value_and_grad
    def lagrangian(theta, multipliers, penalty):
        excess = kl(theta) / DELTA - 1
        shifted = jax.numpy.maximum(multipliers + penalty * excess, 0)
        return -gain(theta) + ((shifted**2 - multipliers**2) / (2 * penalty)).sum()

    return lagrangian


def augmented_lagrangian(gain, kl, lagrangian, old, start, rounds):
    """An independent solver: L-BFGS on the augmented Lagrangian over all states at once."""
    theta, multipliers = start, np.zeros(len(kl(old)))
    penalty = 0.1 * abs(float(gain(start))) + 1e-3
    for _ in range(rounds):
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
    return theta


def best_of_random_starts(policy, batch, old, starts, rng):
    """Return the best gain of random starts, of which the most promising three are continued."""
    with jax.enable_x64(True):
        gain, kl = problem(policy, batch, old)
        solve = functools.partial(augmented_lagrangian, gain, kl, lagrangian_of(gain, kl), old)
        begin = [old + 0.05 * rng.normal(size=old.shape) for _ in range(starts)]
        found = sorted((solve(start, 4) for start in begin), key=gain)
        return max(float(gain(solve(theta, 25))) for theta in found[-3:])


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


def odds_problem():
    """A policy of two parameters on 200 states, in float32; all fast tests share its programs."""
    rng = np.random.default_rng(5)
    policy = Policy(Odds(2), Categoricals((2,)))
    old = rng.normal(size=2).astype(np.float32)
    return policy, old, random_batch(policy, old, 200, rng, dtype=np.float32), rng


def check_against_independent_solver(policy, old, batch, starts, rng):
    found = max_kl.maximize(policy, Estimator.IMPORTANCE, old, batch, DELTA, rng)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64) if x.dtype.kind == "f" else x, batch)
    best = best_of_random_starts(policy, exact, old.astype(np.float64), starts, rng)
    assert found.theta.dtype == np.float32
    assert found.gain > 0
    assert found.gain >= (1 - max_kl.GAIN_TOLERANCE) * best
    assert DELTA * 0.999 <= found.max_kl <= DELTA * (1 + 1e-6)
    assert 0 < found.mean_kl <= found.max_kl


@pytest.mark.slow
def test_no_independent_solver_finds_more():
    policy, old, batch, rng = odds_problem()
    check_against_independent_solver(policy, old, batch, 1, rng)


@pytest.fixture(scope="module")
def cart_pole_batches():
    """Ten iterations of TRPO on the paper's cart-pole, with six parameters: θ_old and the batch."""
    config = presets.resolve("trellis/PaperCartPole-v0", "paper/cartpole")
    config = dataclasses.replace(
        config,
        sampling=dataclasses.replace(config.sampling, num_envs=1),
        estimation=dataclasses.replace(config.estimation, baseline="constant"),
        seed=100,
    )
    trainer = Trainer(config)
    state, batches = trainer.start(), []
    step = TrustRegion.step

    def recorded(region, theta, batch, *rest):
        batches.append((theta, batch))
        return step(region, theta, batch, *rest)

    with mock.patch.object(TrustRegion, "step", recorded):
        for _ in range(10):
            state, _ = trainer.iterate(state)
    trainer.close()
    assert trainer.policy.num_params == 6
    return trainer.policy, batches


@pytest.mark.slow
@pytest.mark.parametrize("iteration", range(10))
def test_fifty_starts_of_an_independent_solver_find_no_more(cart_pole_batches, iteration):
    policy, batches = cart_pole_batches
    theta, batch = batches[iteration]
    rng = np.random.default_rng(iteration)
    check_against_independent_solver(policy, theta, batch, 50, rng)


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert found.gain > 0
    assert DELTA * 0.999 <= found.max_kl <= DELTA


def test_a_step_describes_the_solution():
    policy, old, batch, _ = odds_problem()
    region = TrustRegion(policy, StepConfig("max-kl"), expected_states=200)
    theta, info = region.step(old, batch, np.random.default_rng(0))
    found = max_kl.maximize(
        policy, Estimator.IMPORTANCE, old, batch, DELTA, np.random.default_rng(0)
    )
    assert Status(int(info.status)) is Status.ACCEPTED
    assert info.surrogate_after - info.surrogate_before == pytest.approx(found.gain, rel=1e-3)
    assert float(info.max_kl) <= DELTA
    np.testing.assert_allclose(theta, found.theta, rtol=1e-4)


def test_equal_values_leave_the_parameters():
    policy, old, batch, rng = odds_problem()
    batch = batch._replace(value=np.zeros_like(batch.value))
    region = TrustRegion(policy, StepConfig("max-kl"), expected_states=200)
    theta, info = region.step(old, batch, rng)
    assert theta.tobytes() == old.tobytes()
    assert Status(int(info.status)) is Status.ZERO_GRADIENT


def test_large_policies_are_refused():
    policy = Policy(MLP(4, (64, 64), 2), DiagGaussian(2))
    with pytest.raises(ValueError, match=r"at most 64 parameters.*max-kl-step"):
        TrustRegion(policy, StepConfig("max-kl"))


def test_shards_are_refused():
    with pytest.raises(ValueError, match=r"shards must be 1 for max-kl.*max-kl-step"):
        TrainConfig("a", sampling=SamplingConfig(shards=2), step=StepConfig("max-kl"))
