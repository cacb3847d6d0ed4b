"""Compares action masks with penalties on a game with many illegal moves.

    python -m benchmarks.masks --steps 1000000 --seeds 0 1 2 --out results/masks

Each variant trains on the knight's tour. The score is the number of legal moves per episode of the
stochastic policy, so that both variants are measured by the same thing. Illegal moves are counted
in the environment itself, in every step of training. The results are one JSON line per run.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from trellis import TRPO, envs
from trellis.envs.games.knights_tour import KNIGHTS_TOUR, KnightsTour
from trellis.training.evaluation import play

VARIANTS: dict[str, dict[str, Any]] = {
    "masked": {"masked": True},
    "penalty 1": {"masked": False, "illegal_reward": -1.0},
    "penalty 0.1": {"masked": False, "illegal_reward": -0.1},
}
"""Options of the environment by the name of the variant."""
EPISODES = 64


class Counter:
    """Counts the moves of all knights in this process, and those that are illegal."""

    def __init__(self):
        self.moves = self.illegal = 0
        inner = KnightsTour._move

        def counted(batch: KnightsTour, state: Any, actions: Any) -> Any:
            legal = batch._legal(state)
            moving = legal.any(axis=1)  # Knights at the end of their tour wait for a reset.
            chosen = legal[np.arange(len(legal)), actions]
            self.moves += int(moving.sum())
            self.illegal += int((moving & ~chosen).sum())
            return inner(batch, state, actions)

        KnightsTour._move = counted


def legal_moves(agent: TRPO, options: dict[str, Any], seed: int) -> float:
    """Return the mean number of legal moves per episode of the stochastic policy."""
    batch, total = envs.make(KNIGHTS_TOUR, EPISODES, **options), np.zeros(EPISODES)
    rng = np.random.default_rng(seed)

    def count(_: Any, step: Any, active: np.ndarray) -> bool:
        nonlocal total
        total += (step.reward > 0) & active
        return True

    play(batch, agent.saved_policy.actor(rng, stochastic=True), np.arange(EPISODES), count)
    return float(total.mean())


def run(variant: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one variant and return its curve and counts."""
    options, counter, start = VARIANTS[variant], Counter(), time.perf_counter()
    curve: list[tuple[int, float]] = []
    with TRPO(KNIGHTS_TOUR, seed=seed, env_options=options) as agent:
        while agent.steps < steps:
            agent.learn(min(50_000, steps - agent.steps), progress_bar=False)
            moves, illegal = counter.moves, counter.illegal
            curve.append((agent.steps, legal_moves(agent, options, seed)))
            counter.moves, counter.illegal = moves, illegal  # Evaluations do not count.
    return {
        "variant": variant,
        "seed": seed,
        "steps": agent.steps,
        "moves": counter.moves,
        "illegal": counter.illegal,
        "curve": curve,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    """Run all variants and seeds and append one line per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("results/masks"))
    given = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        for variant in given.variants:
            row = run(variant, seed, given.steps)
            with (given.out / "runs.jsonl").open("a") as file:
                file.write(json.dumps({**row, "commit": commit}) + "\n")
            print(f"{variant}, seed {seed}: {row['curve'][-1]}, illegal {row['illegal']:,}")


if __name__ == "__main__":
    main()
