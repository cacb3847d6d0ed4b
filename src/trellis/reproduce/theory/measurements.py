"""Exact measurements on finite MDPs: learning, tightness of the bounds, size of steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.reproduce.files import rounded
from trellis.theory import bounds, examples
from trellis.theory.conservative import conservative_mixture, conservative_policy_iteration, mix
from trellis.theory.mdp import FiniteMDP
from trellis.theory.policy_iteration import (
    PolicyUpdate,
    algorithm1,
    iterate,
    max_kl_trust_region,
    mean_kl_trust_region,
    optimal_performance,
    policy_iteration,
)


@dataclass(frozen=True)
class TheorySweep:
    """Sizes of the problems and the varied settings."""

    states: int = 20
    actions: int = 4
    branching: int = 3
    """Number of states that an action of a Garnet MDP can lead to."""
    garnet_gammas: tuple[float, ...] = (0.5, 0.9, 0.99)
    gridworld_gamma: float = 0.95
    chain_states: int = 10
    chain_gamma: float = 0.9
    radii: tuple[float, ...] = (0.01, 0.1, 1.0)
    """δ of the trust regions."""
    iterations: int = 200
    distances: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    """Steps of the mixtures for which the bounds are compared."""
    tightness_gamma: float = 0.9
    """Discount of that comparison; one of `garnet_gammas`, since the figure shows its learning."""
    step_gammas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def methods(sweep: TheorySweep) -> dict[str, PolicyUpdate]:
    """Return the methods by name."""
    return {
        "Algorithm 1": algorithm1,
        "conservative policy iteration": conservative_policy_iteration,
        **{f"max KL ≤ {radius:g}": max_kl_trust_region(radius) for radius in sweep.radii},
        **{f"mean KL ≤ {radius:g}": mean_kl_trust_region(radius) for radius in sweep.radii},
        "policy iteration": policy_iteration,
    }


def problems(sweep: TheorySweep, seeds: int) -> dict[str, list[FiniteMDP]]:
    """Return the MDPs of each problem by name: one MDP, or one per seed."""
    gridworld = examples.gridworld(gamma=sweep.gridworld_gamma)
    chain = examples.chain(sweep.chain_states, gamma=sweep.chain_gamma, slip=0.1)
    return {
        **{
            f"Garnet, γ = {gamma:g}": _garnets(sweep, gamma, seeds) for gamma in sweep.garnet_gammas
        },
        f"four rooms, γ = {sweep.gridworld_gamma:g}": [gridworld],
        f"chain, γ = {sweep.chain_gamma:g}": [chain],
    }


def _garnets(sweep: TheorySweep, gamma: float, seeds: int) -> list[FiniteMDP]:
    sizes = sweep.states, sweep.actions, sweep.branching
    rngs = map(np.random.default_rng, range(seeds))
    return [examples.garnet(*sizes, rng, gamma=gamma) for rng in rngs]


def measure_learning(sweep: TheorySweep, seeds: int) -> list[dict[str, Any]]:
    """Measure every method on every problem."""
    return [
        _learning(problem, method, step, mdps, sweep.iterations)
        for problem, mdps in problems(sweep, seeds).items()
        for method, step in methods(sweep).items()
    ]


def _learning(
    problem: str, method: str, step: PolicyUpdate, mdps: Sequence[FiniteMDP], iterations: int
) -> dict[str, Any]:
    """Measure one method on every MDP of a problem, from the uniform policy."""
    curves, certificates = [], []
    for mdp in mdps:
        start, goal = mdp.performance(mdp.uniform_policy()), optimal_performance(mdp)
        closed = [0.0]
        for iteration in iterate(mdp, mdp.uniform_policy(), step, iterations):
            closed.append((iteration.new.performance - start) / (goal - start))
            certificates.append(iteration.certificate)
            if iteration.new.advantages.max() < 1e-9:
                break
        curves.append(closed + [closed[-1]] * (iterations + 1 - len(closed)))
    curve = np.array(curves)
    shown = _spaced(iterations)
    moving = [each for each in certificates if each.gain > 1e-9]
    reached = [np.flatnonzero(row >= 0.95) for row in curve]
    return {
        "problem": problem,
        "method": method,
        "iterations": shown,
        "closed_mean": rounded(curve.mean(axis=0)[shown]),
        "closed_low": rounded(curve.min(axis=0)[shown]),
        "closed_high": rounded(curve.max(axis=0)[shown]),
        "iterations_to_95_percent": [int(hits[0]) if len(hits) else None for hits in reached],
        "median_max_kl": _median(each.max_kl for each in moving),
        "falls": sum(each.gain < -1e-10 for each in certificates),
        "broken_certificates": sum(
            each.gain < max(each.theorem1_gain, each.minorizer_gain) - 1e-10
            for each in certificates
        ),
        "certified_share": _share(each.theorem1_gain > 0.0 for each in moving),
        "promised_share_theorem1": _median(
            max(each.theorem1_gain, 0) / each.gain for each in moving
        ),
        "promised_share_kl": _median(max(each.minorizer_gain, 0) / each.gain for each in moving),
    }


def measure_tightness(sweep: TheorySweep, seeds: int) -> list[dict[str, Any]]:
    """Measure the error of L and its bounds for mixtures of the uniform and greedy policies."""
    rows = []
    for distance in sweep.distances:
        errors = []
        for mdp in _garnets(sweep, sweep.tightness_gamma, seeds):
            old = mdp.evaluate(mdp.uniform_policy())
            target = policy_iteration(old)
            new = mix(old.policy, target, distance)
            epsilon, gamma = old.max_advantage, mdp.gamma
            alpha = bounds.max_total_variation(old.policy, new)
            errors.append(
                {
                    "total_variation": alpha,
                    "surrogate_gain": old.surrogate_gain(new),
                    "error": abs(old.surrogate(new) - mdp.performance(new)),
                    "eq6": bounds.mixture_error(old, target, distance),
                    "appendix_a": bounds.coupling_error(epsilon, gamma, alpha),
                    "theorem1": bounds.theorem1_error(epsilon, gamma, alpha),
                    "kl_form": bounds.kl_error(epsilon, gamma, bounds.max_kl(old.policy, new)),
                }
            )
        medians = {name: _median(error[name] for error in errors) for name in errors[0]}
        rows.append({"mixture_step": distance, **medians})
    return rows


def measure_steps(sweep: TheorySweep, seeds: int) -> list[dict[str, Any]]:
    """Measure the size of the first step from the uniform policy, by discount."""
    rows = []
    for gamma in sweep.step_gammas:
        mdps = _garnets(sweep, gamma, seeds)
        olds = [mdp.evaluate(mdp.uniform_policy()) for mdp in mdps]
        penalties = (bounds.penalty_coefficient(old.max_advantage, gamma) for old in olds)
        rows.append(
            {
                "gamma": gamma,
                "penalty": _median(penalties),
                "max_kl": _median(bounds.max_kl(old.policy, algorithm1(old)) for old in olds),
                "mixture_step": _median(conservative_mixture(old).step for old in olds),
            }
        )
    return rows


def _spaced(iterations: int) -> list[int]:
    """Return iterations on a logarithmic grid, with 0, 10 and the last."""
    spaced = np.unique(np.round(np.geomspace(1, iterations, 30)).astype(int))
    return sorted({0, *map(int, spaced), min(10, iterations)})


def _median(values: Iterable[float]) -> float | None:
    """Return the median with six digits; None without values or if it is infinite."""
    numbers = list(values)
    median = float(np.median(numbers)) if numbers else np.inf
    return float(f"{median:.6g}") if np.isfinite(median) else None


def _share(flags: Iterable[bool]) -> float | None:
    return _median([float(np.mean(found))] if (found := list(flags)) else [])
