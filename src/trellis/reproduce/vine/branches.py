"""One small vine iteration with all states along its branches, for Figure 1 of the paper.

The paper's hopper learns by vine for a while, so that its trunks are hops and not falls. Then a
small iteration is sampled in a batch that keeps every observation.
"""

import dataclasses
from typing import Any

import numpy as np

from trellis import presets
from trellis.envs.batch import BatchEnv, Snapshot, Step
from trellis.sampling.samples import Samples
from trellis.spaces import Observation
from trellis.training.build import build_sampler, env_maker
from trellis.training.trainer import Trainer


class RecordedBatch:
    """A batch that keeps its observations since the last restore."""

    def __init__(self, env: BatchEnv):
        self._env = env
        self.observations: list[Observation] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def restore(self, ids: np.ndarray, snapshot: Snapshot) -> Observation:
        """Restore a snapshot and start a new list of observations."""
        self.observations = [self._env.restore(ids, snapshot)]
        return self.observations[0]

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Step:
        """Step the environments and record the observation."""
        step = self._env.step(actions, active)
        self.observations.append(step.observation)
        return step


def collect(iterations: int, seed: int = 0, **vine: int) -> tuple[Samples, np.ndarray]:
    """Sample one small iteration of a hopper that has learned.

    Args:
        iterations: Iterations of learning beforehand.
        seed: Random seed.
        **vine: Settings of `VineConfig` for the small iteration.

    Returns:
        The samples, and the states along all rollouts as (time, K, N, ...). A rollout that has
        ended repeats its last state.
    """
    config = presets.resolve("trellis/PaperHopper-v0", "paper/hopper-vine")
    config = dataclasses.replace(config, seed=seed)
    trainer = Trainer(config)
    state = trainer.start()
    for _ in range(iterations):
        state, _ = trainer.iterate(state)
    small = dataclasses.replace(config.sampling.vine, **vine)
    sampling = dataclasses.replace(config.sampling, vine=small)
    make_env = env_maker(config)
    batches: list[RecordedBatch] = []

    def make(num_envs: int) -> Any:
        batches.append(RecordedBatch(make_env(num_envs)))
        return batches[-1]

    trunks = make_env(small.trunks)
    settings = dataclasses.replace(config, sampling=sampling)
    sampler, _ = build_sampler(settings, trunks, make, trainer.model)
    samples, _ = sampler.collect(state.theta, lambda x: x, None, iterations)
    states = np.stack(batches[0].observations)
    for each in (batches[0], trunks, trainer):
        each.close()
    return samples, states.reshape(len(states), small.actions, small.states, -1)
