"""Section 3 on finite MDPs: what the guarantee costs, which is the paper's reason for TRPO.

Three measurements, all exact:

- learning: how much of the gap to the optimum each method has closed, by iteration, for Algorithm
  1, conservative policy iteration, trust regions at several δ, and policy iteration;
- tightness: how far L is from η, and how far each bound says it could be, by total variation;
- steps: the largest KL divergence that the penalty C lets Algorithm 1's first step have, by γ.

`run` writes theory.json (everything), theory.csv (a row per problem and method) and theory.png,
which is drawn from the JSON alone.
"""

import argparse
import csv
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.reproduce.record import as_text
from trellis.reproduce.theory.figure import draw
from trellis.runs.provenance import commit
from trellis.theory import bounds, examples
from trellis.theory.conservative import conservative_mixture, conservative_policy_iteration, mix
from trellis.theory.mdp import FiniteMDP
from trellis.theory.policy_iteration import (
    Step,
    algorithm1,
    iterate,
    max_kl_trust_region,
    mean_kl_trust_region,
    optimal_performance,
    policy_iteration,
)


@dataclass(frozen=True)
class Sweep:
    """What is varied."""

    states: int = 20
    actions: int = 4
    branching: int = 3
    """Garnet MDPs: each action leads to this many states."""
    garnet_gammas: tuple[float, ...] = (0.5, 0.9, 0.99)
    gridworld_gamma: float = 0.95
    chain_states: int = 10
    chain_gamma: float = 0.9
    radii: tuple[float, ...] = (0.01, 0.1, 1.0)
    """δ of the trust regions."""
    iterations: int = 200
    distances: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    """Steps of the mixtures on which the bounds are compared."""
    tightness_gamma: float = 0.9
    """The discount of that comparison; one of `garnet_gammas`, for its learning is drawn too."""
    step_gammas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def methods(sweep: Sweep) -> dict[str, Step]:
    """The methods by the name that they have in the results."""
    return {
        "Algorithm 1": algorithm1,
        "conservative policy iteration": conservative_policy_iteration,
        **{f"max KL ≤ {radius:g}": max_kl_trust_region(radius) for radius in sweep.radii},
        **{f"mean KL ≤ {radius:g}": mean_kl_trust_region(radius) for radius in sweep.radii},
        "policy iteration": policy_iteration,
    }


def problems(sweep: Sweep, seeds: int) -> dict[str, list[FiniteMDP]]:
    """The MDPs by the name that they have in the results, one or one a seed."""
    drawn = {
        f"Garnet, γ = {gamma:g}": [_garnet(sweep, gamma, seed) for seed in range(seeds)]
        for gamma in sweep.garnet_gammas
    }
    gridworld = examples.gridworld(gamma=sweep.gridworld_gamma)
    chain = examples.chain(sweep.chain_states, gamma=sweep.chain_gamma, slip=0.1)
    return {
        **drawn,
        f"four rooms, γ = {sweep.gridworld_gamma:g}": [gridworld],
        f"chain, γ = {sweep.chain_gamma:g}": [chain],
    }


def run(out: Path, seeds: int = 10, sweep: Sweep | None = None) -> dict[str, Any]:
    """Measures, and writes theory.json, theory.csv and theory.png to the folder `out`."""
    sweep = sweep or Sweep()
    started = time.perf_counter()
    learning = [
        _learning(problem, method, step, mdps, sweep.iterations)
        for problem, mdps in problems(sweep, seeds).items()
        for method, step in methods(sweep).items()
    ]
    results = {
        "command": f"trellis reproduce theory --out {out} --seeds {seeds}",
        "commit": commit(),
        "seeds": seeds,
        "sweep": asdict(sweep),
        "learning": learning,
        "tightness": _tightness(sweep, seeds),
        "steps": _steps(sweep, seeds),
        "seconds": round(time.perf_counter() - started, 1),
    }
    out.mkdir(parents=True, exist_ok=True)
    text = as_text(results)
    (out / "theory.json").write_text(text, encoding="utf-8")
    _write_table(results, out / "theory.csv")
    draw(json.loads(text), out / "theory.png")
    return results


def _garnet(sweep: Sweep, gamma: float, seed: int) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    return examples.garnet(sweep.states, sweep.actions, sweep.branching, rng, gamma=gamma)


def _learning(
    problem: str, method: str, step: Step, mdps: list[FiniteMDP], iterations: int
) -> dict[str, Any]:
    """One method from the uniform policy, on every MDP of a problem."""
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
    moving = [certificate for certificate in certificates if certificate.gain > 1e-9]
    reached = [np.flatnonzero(row >= 0.95) for row in curve]
    return {
        "problem": problem,
        "method": method,
        "iterations": shown,
        "closed_mean": _rounded(curve.mean(axis=0)[shown]),
        "closed_low": _rounded(curve.min(axis=0)[shown]),
        "closed_high": _rounded(curve.max(axis=0)[shown]),
        "iterations_to_95_percent": [int(hits[0]) if len(hits) else None for hits in reached],
        "median_max_kl": _median(certificate.max_kl for certificate in moving),
        "falls": sum(certificate.gain < -1e-10 for certificate in certificates),
        "broken_certificates": sum(
            certificate.gain < max(certificate.theorem1_gain, certificate.minorizer_gain) - 1e-10
            for certificate in certificates
        ),
        "certified_share": _share(certificate.theorem1_gain > 0.0 for certificate in moving),
        "promised_share_theorem1": _median(
            max(certificate.theorem1_gain, 0.0) / certificate.gain for certificate in moving
        ),
        "promised_share_kl": _median(
            max(certificate.minorizer_gain, 0.0) / certificate.gain for certificate in moving
        ),
    }


def _tightness(sweep: Sweep, seeds: int) -> list[dict[str, Any]]:
    """The error of L and what each bound allows, for mixtures of the uniform and greedy policy."""
    rows = []
    for distance in sweep.distances:
        errors = []
        for seed in range(seeds):
            mdp = _garnet(sweep, sweep.tightness_gamma, seed)
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


def _steps(sweep: Sweep, seeds: int) -> list[dict[str, Any]]:
    """How far the first step from the uniform policy goes, by discount."""
    rows = []
    for gamma in sweep.step_gammas:
        olds = [
            mdp.evaluate(mdp.uniform_policy())
            for mdp in (_garnet(sweep, gamma, seed) for seed in range(seeds))
        ]
        rows.append(
            {
                "gamma": gamma,
                "penalty": _median(
                    bounds.penalty_coefficient(old.max_advantage, gamma) for old in olds
                ),
                "max_kl": _median(bounds.max_kl(old.policy, algorithm1(old)) for old in olds),
                "mixture_step": _median(conservative_mixture(old).step for old in olds),
            }
        )
    return rows


COLUMNS = {
    "problem": "problem",
    "method": "method",
    "closed_1": "share of the gap to the optimum closed after 1 iteration",
    "closed_10": "after 10",
    "closed_last": "after the last",
    "iterations_to_95_percent": "median iterations to close 95%, empty if never",
    "median_max_kl": "median over improving steps of max KL(old ‖ new)",
    "certified_share": "share of improving steps that Theorem 1 could have promised to improve",
    "promised_share_theorem1": "median share of a step's gain that Theorem 1 promised",
    "promised_share_kl": "median share of a step's gain that the KL form promised",
    "falls": "steps that lowered η",
    "broken_certificates": "steps that gained less than promised",
}
"""The columns of theory.csv and what they mean."""


def _write_table(results: dict[str, Any], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for row in results["learning"]:
            by_iteration = dict(zip(row["iterations"], row["closed_mean"], strict=True))
            reached = [
                np.inf if count is None else count for count in row["iterations_to_95_percent"]
            ]
            middle = float(np.median(reached))
            table.writerow(
                {
                    **row,
                    "closed_1": by_iteration[1],
                    "closed_10": by_iteration.get(10),
                    "closed_last": row["closed_mean"][-1],
                    "iterations_to_95_percent": middle if np.isfinite(middle) else None,
                }
            )


def _spaced(iterations: int) -> list[int]:
    """0, 1, 2, … and then ever wider apart; 10 and the last are among them."""
    spaced = np.unique(np.round(np.geomspace(1, iterations, 30)).astype(int))
    return sorted({0, *map(int, spaced), min(10, iterations)})


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _median(values: Iterable[float]) -> float | None:
    """The median to six digits; None, which JSON can say, where there is none or it is infinite."""
    numbers = list(values)
    median = float(np.median(numbers)) if numbers else np.inf
    return float(f"{median:.6g}") if np.isfinite(median) else None


def _share(flags: Iterable[bool]) -> float | None:
    return _median([float(np.mean(found))] if (found := list(flags)) else [])


def main() -> None:
    """`python -m trellis.reproduce.theory.experiment --out DIR [--seeds N]`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--seeds", type=int, default=10, help="random MDPs a discount")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("there must be one random MDP or more")
    results = run(arguments.out, arguments.seeds)
    print(f"wrote theory.json, theory.csv, theory.png to {arguments.out}", end=" ")
    print(f"in {results['seconds']} s")


if __name__ == "__main__":
    main()
