"""Tests of the average-reward criterion: by direct sums, and against exact quantities of MDPs."""

import numpy as np
import pytest

from trellis.config import EstimationConfig, SamplingConfig
from trellis.estimation.advantages import continuing_rewards, estimate
from trellis.estimation.critic import LinearCritic
from trellis.estimation.returns import continued_values, differential_gae
from trellis.policies.distributions import Categoricals
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import SinglePath
from trellis.theory import FiniteMDP, garnet
from trellis.theory.as_batch import to_batch
from trellis.theory.average import evaluate_average

STATES, ACTIONS, ENVS, STEPS = 5, 3, 400, 64
POLICY = Policy(MLP(STATES, (), ACTIONS), Categoricals((ACTIONS,)))


def random_samples(rng: np.random.Generator) -> Samples:
    shape = times, envs = 12, 3
    terminated = rng.random(shape) < 0.2
    truncated = rng.random(shape) < 0.2  # A step at the time limit may also be terminal.
    ends = np.argwhere(terminated | truncated)
    return Samples(
        observation=rng.normal(size=(times, envs, 2)).astype(np.float32),
        raw_observation=np.zeros((times, envs, 2), np.float32),
        action=np.zeros((times, envs, 1), np.float32),
        log_q=np.zeros(shape, np.float32),
        reward=rng.normal(size=shape),
        terminated=terminated,
        truncated=truncated,
        age=rng.integers(0, 9, shape),
        final_at=ends,
        final_observation=rng.normal(size=(len(ends), 2)).astype(np.float32),
        last_observation=rng.normal(size=(envs, 2)).astype(np.float32),
        episode_return=np.zeros(len(ends)),
        episode_length=np.ones(len(ends), int),
    )


def test_advantages_are_sums_that_go_on_after_terminal_states():
    rng = np.random.default_rng(0)
    samples, critic, lam, gain, scale = random_samples(rng), LinearCritic(2), 0.8, 0.3, 2.5
    state = {"coefficients": rng.normal(size=8)}
    settings = EstimationConfig(
        criterion="average", reset_cost=1.5, gae_lambda=lam, critic="linear"
    )
    found, estimated = estimate(
        samples, critic, state, settings, reward_scale=scale, gain=gain, rng=rng
    )
    times, envs = samples.reward.shape
    value = critic.predict(state, samples.observation, samples.age)
    after = critic.predict(
        state, samples.final_observation, samples.age[tuple(samples.final_at.T)] + 1
    )
    last_age = np.where(samples.ended[-1], 0, samples.age[-1] + 1)
    last = critic.predict(state, samples.last_observation, last_age)
    final = {tuple(place): v for place, v in zip(samples.final_at, after, strict=True)}
    expected = np.zeros((times + 1, envs))
    for t in reversed(range(times)):
        for e in range(envs):
            following = value[t + 1, e] if t + 1 < times else last[e]
            cut = samples.truncated[t, e] and not samples.terminated[t, e]
            if cut:
                following = final[t, e]
            reward = (samples.reward[t, e] - 1.5 * samples.terminated[t, e] - gain) / scale
            goes_on = 0.0 if cut else lam
            delta = reward + following - value[t, e]
            expected[t, e] = delta + goes_on * expected[t + 1, e]
    np.testing.assert_allclose(found, expected[:-1], atol=1e-5)
    fit = estimated.critic_fit
    assert fit is not None
    assert float(fit.target.mean) == pytest.approx(0, abs=1e-6)


def random_problem(seed: int) -> tuple[FiniteMDP, np.ndarray, np.ndarray, float]:
    """Return an MDP, θ of a tabular policy, its probabilities and a reset cost."""
    rng = np.random.default_rng([seed, 28])
    mdp, cost = garnet(STATES, ACTIONS, 3, rng, action_rewards=True), 0.0
    if seed % 2:  # episodes that end in the last state
        P, r, rho0 = mdp.P.copy(), mdp.r.copy(), mdp.rho0.copy()
        P[-1], r[-1], rho0[-1] = np.eye(STATES)[-1], 0.0, 0.0
        mdp, cost = FiniteMDP(P, r, rho0 / rho0.sum(), 0.9), 2.0
    logits = rng.normal(size=(STATES, ACTIONS)).astype(np.float32)
    theta = np.concatenate([logits.ravel(), np.zeros(ACTIONS, np.float32)])
    probabilities = np.exp(logits.astype(np.float64))
    return mdp, theta, probabilities / probabilities.sum(axis=1, keepdims=True), cost


def scores(seed: int) -> list[float]:
    """Return z-scores of gain, advantages and values on one random MDP."""
    mdp, theta, policy, cost = random_problem(seed)
    exact = evaluate_average(mdp, policy, cost)
    sampler = SinglePath(
        to_batch(mdp, ENVS),
        POLICY,
        lambda x: x,
        SamplingConfig(num_envs=ENVS, steps_per_env=STEPS),
        seed=seed,
    )
    _, path = sampler.collect(theta, lambda x: x, None, 0)  # until the start is forgotten
    samples, _ = sampler.collect(theta, lambda x: x, path, 1)
    settings = EstimationConfig(criterion="average", reset_cost=cost)
    reward = continuing_rewards(samples, settings)
    gain = float(reward.mean())
    place = samples.observation.argmax(axis=-1), samples.action[..., 0].astype(int)
    rng = np.random.default_rng([seed, 29])
    # Functions with mean 0: over actions in every state, and over states.
    by_action = rng.normal(size=(STATES, ACTIONS))
    by_action -= (policy * by_action).sum(axis=1, keepdims=True)
    by_state = rng.normal(size=STATES)
    by_state -= exact.stationary @ by_state
    joint = exact.stationary[:, None] * policy

    def z(per_env: np.ndarray, expected: float) -> float:
        return float((per_env.mean() - expected) / (per_env.std(ddof=1) / np.sqrt(ENVS)))

    found = [z(reward.mean(axis=0), exact.gain)]
    expected = float((joint * by_action * exact.advantages).sum())
    # With the exact bias as values any λ is unbiased; without values, λ = 1 and a long sum are.
    for table, lam, times in ((exact.bias, 0.9, STEPS), (0 * exact.bias, 1.0, STEPS // 2)):

        def value_of(observation: np.ndarray, _: np.ndarray, table=table) -> np.ndarray:
            return (observation @ table).astype(np.float32)

        value = value_of(samples.observation, samples.age)
        successor = continued_values(samples, value, value_of)
        advantage = differential_gae(reward, samples, value, successor, gain, lam)
        weighted = (by_action[place] * advantage)[:times].mean(axis=0)
        found.append(z(weighted, expected))
        if table.any():
            target = (by_state[place[0]] * (advantage + value)).mean(axis=0)
            found.append(z(target, float(exact.stationary @ (by_state * exact.bias))))
    return found


def check(problems: int) -> None:
    """Check that the z-scores are those of unbiased estimates."""
    z = np.array([scores(seed) for seed in range(problems)])
    assert np.abs(z).max() < 4.5
    # Means of squares of standard normal numbers, five standard deviations wide.
    width = 5 * np.sqrt(2 / problems)
    np.testing.assert_allclose(np.square(z).mean(axis=0), 1, atol=width)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=5 / np.sqrt(problems))


def test_estimates_agree_with_exact_quantities():
    check(problems=6)


@pytest.mark.slow
def test_estimates_agree_with_exact_quantities_of_100_mdps():
    check(problems=100)


def test_the_criterion_needs_a_critic():
    with pytest.raises(ValueError, match="critic must be linear or mlp for criterion average"):
        EstimationConfig(criterion="average", critic="none")
    with pytest.raises(ValueError, match="reset_cost must be 0 for criterion discounted"):
        EstimationConfig(reset_cost=1.0)
