"""Measures sampling by the workers of a cluster over sampling by one process, on the same cores.

One process uses all cores for physics and one for the policy. Each worker uses one core for both.

    python -m benchmarks cluster
"""

import dataclasses
import os

from benchmarks.figure import Figure
from trellis import presets
from trellis.config import SamplingConfig
from trellis.runs.trainers import make_trainer

ENV, NUM_ENVS, STEPS = "Hopper-v5", 64, 64
ITERATIONS, WARM_UP, ROUNDS = 15, 3, 2


def sampling_rate(shards: int, cluster: str | None) -> float:
    """Return simulator steps per second of sampling alone."""
    sampling = SamplingConfig(NUM_ENVS, STEPS, shards=shards)
    config = dataclasses.replace(presets.resolve(ENV), sampling=sampling)
    workers = None
    if cluster is not None:
        config, workers = dataclasses.replace(config, threads=1), shards
    trainer = make_trainer(config, cluster=cluster, workers=workers)
    try:
        state, steps, seconds = trainer.start(), 0, 0.0
        for iteration in range(WARM_UP + ITERATIONS):
            before = state.steps
            state, metrics = trainer.iterate(state)
            if iteration >= WARM_UP:
                steps += state.steps - before
                seconds += metrics["seconds_sampling"]
        return steps / seconds
    finally:
        trainer.close()


def run() -> list[Figure]:
    """Return all figures of this group."""
    cores = os.cpu_count() or 1
    pairs = [(sampling_rate(1, None), sampling_rate(cores, "local")) for _ in range(ROUNDS)]
    alone, together = (sum(column) / ROUNDS for column in zip(*pairs, strict=True))
    print(f"  steps/s: one process {alone:,.0f}, {cores} workers {together:,.0f}")
    name = f"sampling Hopper-v5 by {cores} workers over one process"
    return [Figure(name, together / alone, 0.8, at_least=True)]
