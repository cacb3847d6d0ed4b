"""Eight virtual devices give what one gives; `test_devices.py` runs this in a new process."""

import dataclasses
import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tests.problems import random_batch
from tests.training.test_compiled import CASES, leaves, maker
from trellis.config import StepConfig
from trellis.estimation.state_batch import cut
from trellis.estimation.surrogate import Estimator
from trellis.optimization.objective import DeviceObjective, LocalObjective
from trellis.optimization.rules import Curvature
from trellis.optimization.step import take_step
from trellis.policies import MLP, DiagGaussian, Policy
from trellis.runs.trainers import make_trainer
from trellis.training.collectives import collectives, sent_per_iteration
from trellis.training.compiled import CompiledTrainer, schedule_of
from trellis.training.program import iteration_on_devices
from trellis.training.trainer import Trainer

DEVICES = 8
POLICY = Policy(MLP(3, (8,), 2), DiagGaussian(2))


def step(dtype, mesh=None):
    """Return θ after one step on the same 800 states, on one device or on all of a mesh."""
    rng = np.random.default_rng(0)
    theta = POLICY.init(rng).astype(dtype)
    batch = jax.tree.map(jax.numpy.asarray, random_batch(POLICY, theta, 800, rng, dtype=dtype))
    config = StepConfig(cg_iterations=20, damping=0.01)

    def part(batch):
        chunks = cut(batch, 50, len(batch.kl_weight) // 50, theta.dtype)
        objective = LocalObjective(
            POLICY,
            Estimator.IMPORTANCE,
            Curvature.ANALYTIC,
            jax.numpy.asarray(theta),
            chunks,
            chunks,
            one_program=True,
        )
        if mesh is not None:
            objective = DeviceObjective(objective, ("device",))
        return take_step(objective, jax.numpy.asarray(theta), config)

    if mesh is not None:
        spec = PartitionSpec("device"), PartitionSpec()
        part = jax.shard_map(part, mesh=mesh, in_specs=spec[:1], out_specs=spec[1], check_vma=False)
    new, info = jax.jit(part)(batch)
    assert int(info.status) == 0
    return np.asarray(new) - theta


def difference(one, other):
    return float(np.abs(one - other).max() / np.abs(one).max())


def sharded(steps_per_env=40):
    env, config = CASES["discrete"]
    sampling = dataclasses.replace(
        config.sampling, num_envs=2 * DEVICES, steps_per_env=steps_per_env, shards=DEVICES
    )
    return env, dataclasses.replace(config, sampling=sampling)


def sent(steps_per_env):
    """Return the collectives of an iteration, which has not run."""
    env, config = sharded(steps_per_env)
    trainer = make_trainer(config, maker(env), devices=DEVICES)
    assert isinstance(trainer, CompiledTrainer)
    state = trainer.begin(trainer.start())
    learned, running, chance, _ = trainer.inputs(state)
    rows = trainer._joined([place.rows for place in trainer.places], jax.numpy.stack)
    inputs = learned, schedule_of(config, trainer.model, 0), rows, running, chance
    lowered = iteration_on_devices.lower(trainer.program, trainer._mesh, *inputs)
    found = collectives(lowered.compile().as_text())
    return sorted(found), sent_per_iteration(found, 10, 3)


def main():
    mesh = Mesh(np.array(jax.devices()), ("device",))
    assert mesh.size == DEVICES
    answers = {"float32": difference(step(np.float32), step(np.float32, mesh))}
    with jax.enable_x64(True):
        answers["float64"] = difference(step(np.float64), step(np.float64, mesh))

    env, config = sharded()
    trainers = [Trainer(config, maker(env)), make_trainer(config, maker(env), devices=DEVICES)]
    states = [trainer.start() for trainer in trainers]
    for _ in range(2):
        states = [t.iterate(s)[0] for t, s in zip(trainers, states, strict=True)]
    pairs = zip(*map(leaves, states), strict=True)
    answers["run"] = max(float(np.max(np.abs(a - b) / (1 + np.abs(a)))) for a, b in pairs)

    fast = trainers[1]
    arrays, values = fast.to_checkpoint(states[1])
    arrays = {name: array.copy() for name, array in arrays.items()}
    on, _ = fast.iterate(states[1])
    other = make_trainer(config, maker(env), devices=DEVICES)
    again, _ = other.iterate(other.from_checkpoint(arrays, values))
    answers["resumes"] = all(map(np.array_equal, leaves(on), leaves(again)))

    short, long = sent(40), sent(80)
    answers["collectives"], answers["bytes"] = short[1]
    answers["independent"] = short == long
    answers["in_sampling"] = sum(each.in_sampling for each in short[0])
    answers["named"] = all(each.name for each in short[0])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
