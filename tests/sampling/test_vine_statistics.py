"""Vine's estimators against exact quantities on a finite MDP, by z-tests at fixed seeds.

Exact is: the states that trunks of T steps visit, where a new trunk starts from ρ₀ where one ends,
and Q truncated at the length of the rollouts.
"""

import functools

import jax
import numpy as np
import pytest

from tests.problems import sum_gradient
from trellis.config import SamplingConfig, VineConfig
from trellis.estimation.advantages import rollout_values, state_weights, vine_batch
from trellis.estimation.state_batch import cut
from trellis.estimation.surrogate import Estimator
from trellis.policies.distributions import Categoricals
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.sampling.vine import Vine
from trellis.spaces import observation_encoder
from trellis.theory import garnet
from trellis.theory.as_batch import to_batch
from trellis.theory.mdp import FiniteMDP

STATES, ACTIONS, TRUNKS, LENGTH, ROLLOUT = 5, 3, 50, 12, 6
POLICY = Policy(MLP(STATES + 1, (), ACTIONS), Categoricals((ACTIONS,)))
OLD = (0.6 * np.random.default_rng(1).normal(size=POLICY.num_params)).astype(np.float32)
NEW = OLD + (0.4 * np.random.default_rng(2).normal(size=POLICY.num_params)).astype(np.float32)


@functools.cache
def problem() -> FiniteMDP:
    """Return a random MDP that terminates with probability 0.15 in every step."""
    inner = garnet(STATES, ACTIONS, 3, np.random.default_rng(0), gamma=0.8, action_rewards=True)
    P = np.zeros((STATES + 1, ACTIONS, STATES + 1))
    P[:STATES, :, :STATES] = 0.85 * inner.P
    P[:STATES, :, STATES] = 0.15
    P[STATES, :, STATES] = 1.0
    return FiniteMDP(P, np.vstack([inner.r, np.zeros(ACTIONS)]), np.append(inner.rho0, 0.0), 0.8)


def probabilities(theta):
    logits, _ = POLICY.distribution_params(theta.astype(np.float64), np.eye(STATES + 1))
    pi = np.exp(logits)
    return pi / pi.sum(axis=1, keepdims=True)


def exact(theta):
    """Return L(θ) and ∇L(θ), by enumeration."""
    mdp, old, new = problem(), probabilities(OLD), probabilities(theta)
    q, steps = exact_q(), mdp.transitions(old)
    steps = steps + np.outer(steps[:, STATES], mdp.rho0)  # a new trunk starts when one ends
    steps[:, STATES] = 0.0
    here, visited = mdp.rho0.copy(), np.zeros(STATES + 1)
    for _ in range(LENGTH):
        visited += here / LENGTH
        here = here @ steps
    value = (new * q).sum(axis=1)
    by_logit = visited[:, None] * new * (q - value[:, None])
    return visited @ value, np.concatenate([by_logit.ravel(), by_logit.sum(axis=0)])


def exact_q():
    """Return Q_old(s, a) over `ROLLOUT` steps."""
    mdp, old = problem(), probabilities(OLD)
    values = np.zeros(STATES + 1)
    for _ in range(ROLLOUT):
        q = mdp.lookahead(values)
        values = (old * q).sum(axis=1)
    return q


def grow(proposal, actions=ACTIONS, *, states=100, **options):
    env = to_batch(problem(), TRUNKS)
    _, encode = observation_encoder(env.observation_space)
    return Vine(
        env,
        lambda n: to_batch(problem(), n),
        POLICY,
        encode,
        SamplingConfig(
            sampler="vine",
            vine=VineConfig(
                trunks=TRUNKS,
                trunk_length=LENGTH,
                states=states,
                actions=actions,
                rollout_length=ROLLOUT,
                proposal=proposal,
                **options,
            ),
        ),
        gamma=0.8,
        seed=5,
    )


def estimator_of(proposal):
    return Estimator.ENUMERATED if proposal == "every" else Estimator.SELF_NORMALIZED


def estimates(proposal, theta, *, repeats=60, **options):
    """Return values (repeats,) and gradients (repeats, parameters) of `repeats` iterations."""
    vine = grow(proposal, **options)
    found = [
        value_and_gradient(estimator_of(proposal), theta, batch_of(vine, iteration))
        for iteration in range(repeats)
    ]
    values, gradients = zip(*found, strict=True)
    return np.array(values), np.array(gradients)


def batch_of(vine, iteration, shift=0.0):
    samples, _ = vine.collect(OLD, lambda x: x, None, iteration)
    q = rollout_values(samples.branches, 1.0) + shift
    return vine_batch(samples, samples.branches, q, state_weights(samples, 1.0))


compiled = jax.jit(sum_gradient, static_argnums=(0, 1))


def value_and_gradient(estimator, theta, batch):
    sums = compiled(POLICY, estimator, theta, cut(batch, TRUNKS * LENGTH, 1, np.float32))
    weight = float(sums.surrogate_weight)
    return float(sums.surrogate) / weight, np.asarray(sums.gradient) / weight


def error(samples):
    return samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


def z_scores(samples, expected):
    """Return the z-scores of the mean of entries that vary; the terminal state never does."""
    deviation = error(samples)
    moves = deviation > 0
    np.testing.assert_allclose(samples.mean(axis=0)[~moves], np.asarray(expected)[~moves])
    return ((samples.mean(axis=0) - expected)[moves] / deviation[moves]).ravel()


@pytest.mark.parametrize("theta", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("common", [True, False], ids=["common", "separate"])
def test_every_action_is_unbiased_in_value_and_gradient(theta, common):
    values, gradients = estimates("every", theta, common_random_numbers=common)
    value, gradient = exact(theta)
    assert abs(values.mean() - value) < 4 * error(values)
    assert np.abs(z_scores(gradients, gradient)).max() < 4
    # The test has enough power to detect a wrong result.
    assert np.abs(z_scores(gradients, 0.8 * gradient)).max() > 5
    assert np.abs(value) > 10 * error(values)


@pytest.mark.parametrize("actions", [2, 4])
def test_the_self_normalized_gradient_is_smaller_by_one_kth(actions):
    """E ∇L_n = (1 − 1/K)∇L at θ_old, for q = π_old."""
    _, gradients = estimates("policy", OLD, actions=actions)
    _, gradient = exact(OLD)
    assert np.abs(z_scores(gradients, (1 - 1 / actions) * gradient)).max() < 4
    assert np.abs(z_scores(gradients, gradient)).max() > 5


@pytest.mark.parametrize("proposal", [pytest.param("policy", marks=pytest.mark.slow), "uniform"])
def test_the_self_normalized_bias_vanishes_as_actions_grow(proposal):
    value, gradient = exact(NEW)
    bias, noise = {}, {}
    for actions, repeats in ((2, 60), (32, 30)):
        values, gradients = estimates(proposal, NEW, actions=actions, repeats=repeats)
        bias[actions] = np.linalg.norm(gradients.mean(axis=0) - gradient)
        noise[actions] = np.linalg.norm(error(gradients))
    assert bias[2] > 5 * noise[2]
    assert bias[32] < bias[2] / 8 + 2 * noise[32]
    assert abs(values.mean() - value) < 4 * error(values)


@pytest.mark.parametrize("proposal", ["every", "policy", "uniform"])
def test_a_constant_shifts_the_value_but_not_the_gradient(proposal):
    estimator, vine = estimator_of(proposal), grow(proposal, 4)
    value, gradient = value_and_gradient(estimator, NEW, batch_of(vine, 0))
    shifted_value, shifted = value_and_gradient(estimator, NEW, batch_of(vine, 0, shift=10.0))
    np.testing.assert_allclose(shifted_value - value, 10.0, rtol=1e-5)
    np.testing.assert_allclose(shifted, gradient, atol=1e-6)
    assert np.abs(gradient).max() > 1e-2


def test_common_random_numbers_make_differences_of_q_less_noisy():
    """The test compares Var(Q̂(s, a₁) − Q̂(s, a₂)) with and without common random numbers."""
    spread = {}
    for common in (True, False):
        vine = grow("every", states=600, common_random_numbers=common)
        samples, _ = vine.collect(OLD, lambda x: x, None, 0)
        branches = samples.branches
        state = samples.raw_observation[tuple(branches.place.T)].argmax(axis=1)
        noise = branches.reward_sum - exact_q()[state]
        spread[common] = np.var(noise[:, 0] - noise[:, 1])
    assert spread[True] < 0.8 * spread[False]
