"""One small vine iteration with all states along its branches, for Figure 1 of the paper.

The paper's hopper first learns with vine, so that its trunks are hops and not falls. Then a batch
that keeps every observation samples a small iteration.
"""

import dataclasses
from typing import Any

import numpy as np

from trellis import presets
from trellis.envs.batch import BatchEnv, Snapshot, Step
from trellis.reproduce.files import rounded
from trellis.sampling.samples import Samples
from trellis.spaces import Observation
from trellis.training.build import build_sampler, env_maker
from trellis.training.trainer import Trainer

X, Z = 0, 1
"""Indices of the torso's position and height in the hopper's state."""


class RecordedBatch:
    """A batch that keeps all observations since the last restore."""

    def __init__(self, env: BatchEnv):
        self._env = env
        self.observations: list[Observation] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def restore(self, ids: np.ndarray, snapshot: Snapshot) -> Observation:
        """Restore these environments, and start a new list of observations."""
        self.observations = [self._env.restore(ids, snapshot)]
        return self.observations[0]

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Step:
        """Step the batch, and keep the observation."""
        step = self._env.step(actions, active)
        self.observations.append(step.observation)
        return step


def collect(iterations: int, seed: int = 0, **vine: int) -> tuple[Samples, np.ndarray]:
    """Sample one small iteration of a hopper after some learning.

    Args:
        iterations: Number of iterations of learning.
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


def picture_record(samples: Samples, rollouts: np.ndarray) -> dict[str, Any]:
    """Return the path of the torso along trunks and rollouts as plain numbers.

    Returns:
        `trunks`: a pair of lists (position, height) per episode. `rollouts`: the same per rollout,
        by action and branch state. `states`: the branch states.
    """
    assert samples.branches is not None
    trunks = samples.raw_observation
    parts = [
        part
        for trunk in range(trunks.shape[1])
        for part in np.split(trunks[:, trunk], np.flatnonzero(samples.age[:, trunk] == 0)[1:])
    ]
    length = samples.branches.length
    return {
        "trunks": [_torso(part) for part in parts],
        "states": _torso(rollouts[0, 0]),
        "rollouts": [
            [_torso(rollouts[: length[n, k] + 1, k, n]) for n in range(rollouts.shape[2])]
            for k in range(rollouts.shape[1])
        ],
    }


def _torso(states: np.ndarray) -> list[list[float]]:
    return [rounded(states[:, X]), rounded(states[:, Z])]
