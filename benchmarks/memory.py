"""Measures what memory costs: an iteration with a GRU against a feed-forward one, by turns."""

import dataclasses
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure
from trellis import presets
from trellis.config import PolicyConfig
from trellis.training.trainer import Trainer

ENV, ROUNDS = "Hopper-v5", 30
LARGEST = 3.0
"""Largest allowed ratio."""


def run() -> Iterator[Figure]:
    """Yield the ratio at the preset of Hopper-v5, with 64 units."""
    config = presets.resolve(ENV)
    memory = dataclasses.replace(config, policy=PolicyConfig(hidden=(64,), memory="gru"))
    trainers = [Trainer(each) for each in (config, memory)]
    states = [trainer.start() for trainer in trainers]
    seconds: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for index, trainer in enumerate(trainers):
            start = time.perf_counter()
            states[index], _ = trainer.iterate(states[index])
            seconds[index].append(time.perf_counter() - start)
    for trainer in trainers:
        trainer.close()
    plain, recurrent = (float(np.median(times[2:])) for times in seconds)  # The first ones compile.
    name = "iteration with a GRU / feed-forward, Hopper-v5"
    yield Figure(name, recurrent / plain, LARGEST, at_least=False)
