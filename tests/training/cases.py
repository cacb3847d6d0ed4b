"""Small runs in four shards, and what they come to."""

import dataclasses

import jax
import numpy as np

from trellis.config import (
    EstimationConfig,
    PolicyConfig,
    SamplingConfig,
    StepConfig,
    TrainConfig,
    VineConfig,
)
from trellis.training.trainer import Trainer

SHARDS, ITERATIONS = 4, 5
SINGLE_PATH = SamplingConfig(num_envs=8, steps_per_env=16, shards=SHARDS)
VINE = SamplingConfig(
    sampler="vine",
    vine=VineConfig(trunks=4, trunk_length=24, states=8, actions=2, rollout_length=16),
    shards=SHARDS,
)
CARTPOLE = TrainConfig(
    "CartPole-v1",
    policy=PolicyConfig(hidden=(16,)),
    sampling=SINGLE_PATH,
    estimation=EstimationConfig(critic_hidden=(16,), critic_epochs=2, critic_minibatch=16),
    step=StepConfig(max_kl=0.05),
)
CASES = {
    (env, sampling.sampler): dataclasses.replace(CARTPOLE, env=env, sampling=sampling)
    for env in ("CartPole-v1", "Hopper-v5")
    for sampling in (SINGLE_PATH, VINE)
}


def bytes_of(trainer, state):
    arrays, _ = trainer.to_checkpoint(state)
    return {name: value.tobytes() for name, value in arrays.items()}


def train(config, make_team=None, iterations=ITERATIONS, on_team=lambda team: None):
    """The whole state after some iterations, and the history of what depends on no clock."""
    trainer = Trainer(config, make_team=make_team)
    try:
        on_team(trainer.team)
        state, history = trainer.start(), []
        for _ in range(iterations):
            state, metrics = trainer.iterate(state)
            history.append({k: v for k, v in metrics.items() if "second" not in k})
        return bytes_of(trainer, state), history
    finally:
        trainer.close()


def num_bytes(answer):
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(vars_of(answer)))


def vars_of(value):
    """An answer as plain containers, dataclasses included."""
    if dataclasses.is_dataclass(value):
        return {f.name: vars_of(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [vars_of(part) for part in value]
    return value
