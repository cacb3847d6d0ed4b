"""Measures what a robot gains by seeing: the same task with camera, without it, and with all state.

    python -m benchmarks.seeing --steps 300000 --seeds 0 1 2 --out results/seeing

A normalized score of 0 is the random policy, 1 is the policy with the full state (mean of its
seeds). The results are one JSON line per run; `--report` prints the normalized scores.
"""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("MUJOCO_GL", "egl")  # Before MuJoCo is imported.

from trellis import TRPO, envs

ENV = "trellis/SeeingReacher-v0"
SENSES = ("state", "joints", "both")
EPISODES = 40
SETTINGS: dict[str, Any] = {
    "policy": {"hidden": (64, 64)},
    "sampling": {"num_envs": 32, "steps_per_env": 50},
    "estimation": {"gamma": 0.95},
}
"""Settings of all runs, chosen with the full state."""


def random_score() -> float:
    """Return the mean return of uniformly random actions."""
    batch, rng = envs.make(ENV, EPISODES, senses="state"), np.random.default_rng(0)
    batch.reset(np.arange(EPISODES), np.arange(EPISODES))
    total = np.zeros(EPISODES)
    for _ in range(50):
        total += batch.step(rng.uniform(-1, 1, (EPISODES, 2)).astype(np.float32)).reward
    return float(total.mean())


def run(senses: str, seed: int, steps: int, every: int) -> dict[str, Any]:
    """Train with some senses and return the curve of evaluations."""
    start, curve = time.perf_counter(), []
    with TRPO(ENV, seed=seed, env_options={"senses": senses}, **SETTINGS) as agent:
        while agent.steps < steps:
            agent.learn(min(every, steps - agent.steps), progress_bar=False)
            curve.append((agent.steps, agent.evaluate(EPISODES).mean_return))
            print(senses, seed, *curve[-1], flush=True)
    seconds = round(time.perf_counter() - start, 1)
    return {"senses": senses, "seed": seed, "curve": curve, "seconds": seconds}


def report(rows: list[dict[str, Any]], random: float) -> str:
    """Return the normalized scores as lines of a table."""
    final = {s: [r["curve"][-1][1] for r in rows if r["senses"] == s] for s in SENSES}
    best = float(np.mean(final["state"] or [np.nan]))
    lines = [
        f"random {random:.2f}, full state {best:.2f}",
        "| senses | normalized scores |",
        "|---|---|",
    ]
    for senses, scores in final.items():
        shown = ", ".join(f"{(score - random) / (best - random):.2f}" for score in scores)
        lines.append(f"| {senses} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Run all seeds with all senses and append one line per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--every", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--senses", nargs="+", choices=SENSES, default=list(SENSES))
    parser.add_argument("--out", type=Path, default=Path("results/seeing"))
    parser.add_argument("--report", action="store_true", help="print the scores of kept runs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "runs.jsonl"
    if not given.report:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for seed in given.seeds:
            for senses in given.senses:
                row = run(senses, seed, given.steps, given.every)
                with path.open("a") as file:
                    file.write(json.dumps({**row, "commit": done.stdout.strip()}) + "\n")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    print(report(rows, random_score()))


if __name__ == "__main__":
    main()
