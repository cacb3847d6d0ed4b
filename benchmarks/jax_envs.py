"""Measures compiled iterations on environments in JAX; needs gymnax: `make bench WHAT=jax`.

Speeds are the best of several turns, in which the things that are compared alternate. Compilation
is not counted.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.figure import Figure
from trellis import presets
from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, TrainConfig
from trellis.policies.policy import Policy
from trellis.runs.trainers import make_trainer
from trellis.sampling.scan import Walker, walk
from trellis.training.compiled import CompiledTrainer
from trellis.training.seeds import SeedsTrainer

ENV = "gymnax/CartPole-v1"
FAST = "modern/jax-fast"
TURNS = 6
SEEDS = 16


class Random(Policy):
    """A policy whose actions are uniform: it computes nothing."""

    def distribution_params(self, theta: Any, observation: Any, carry: Any = ()) -> tuple[Any, Any]:
        """Return logits of 0."""
        shape = *observation.shape[:-1], self.distribution.num_outputs
        return jnp.zeros(shape, jnp.float32), carry


def run() -> Iterator[Figure]:
    """Yield the figures one by one."""
    yield from training()
    yield from sampling()
    small = presets.resolve(ENV, FAST)
    yield seeds("16 seeds at once / in a row, preset", small, 4.0)
    tiny = dataclasses.replace(
        small,
        policy=PolicyConfig(hidden=(16,)),
        sampling=SamplingConfig(num_envs=4, steps_per_env=32),
        estimation=EstimationConfig(critic_hidden=(16,), critic_epochs=2, critic_minibatch=64),
    )
    yield seeds("16 seeds at once / in a row, small networks and batches", tiny, None)


def training() -> Iterator[Figure]:
    """Compare training on JAX environments with the NumPy batch of the same task."""
    configs = presets.resolve("CartPole-v1"), presets.resolve(ENV, FAST)
    trainers = [make_trainer(config) for config in configs]
    states = [trainer.iterate(trainer.start())[0] for trainer in trainers]
    best = [0.0, 0.0]
    for _ in range(TURNS):
        for index, trainer in enumerate(trainers):
            begun, steps = time.perf_counter(), states[index].steps
            while time.perf_counter() - begun < 1.0:
                states[index], _ = trainer.iterate(states[index])
            speed = (states[index].steps - steps) / (time.perf_counter() - begun)
            best[index] = max(best[index], speed)
    print(f"  NumPy batch {best[0]:,.0f} steps/s, compiled {best[1]:,.0f} steps/s")
    yield Figure("training gymnax CartPole / NumPy batch", best[1] / best[0], 8.0, True)


def sampling() -> Iterator[Figure]:
    """Compare the scan with a policy in the loop and with random actions."""
    trainer = make_trainer(presets.resolve(ENV, FAST))
    assert isinstance(trainer, CompiledTrainer)
    state = trainer.begin(trainer.start())
    learned, _, chance, _ = trainer.inputs(state)
    place, walker = trainer.places[0], trainer.program.walker
    fields = {
        field.name: getattr(walker.policy, field.name) for field in dataclasses.fields(Policy)
    }
    random = dataclasses.replace(walker, policy=Random(**fields))

    def scan(walker: Walker) -> Callable[[], Any]:
        run = jax.jit(lambda theta, rows, noise: walk(walker, theta, learned.scaling, rows, noise))
        return lambda: run(learned.theta, place.rows, chance.paths)

    seconds = _alternate([scan(walker), scan(random)])
    steps = trainer.config.sampling.batch_size
    print(f"  scan {steps / seconds[0]:,.0f} steps/s, random {steps / seconds[1]:,.0f} steps/s")
    yield Figure(
        "sampling with the policy / with random actions", seconds[1] / seconds[0], 0.5, True
    )


def seeds(name: str, config: TrainConfig, bound: float | None) -> Figure:
    """Compare seeds that are trained at once with runs in a row."""
    alone, together = make_trainer(config), SeedsTrainer(config, range(SEEDS))
    states = [alone.iterate(alone.start())[0], together.iterate(together.start())[0]]
    best = [np.inf, np.inf]
    for _ in range(TURNS):
        begun = time.perf_counter()
        for _ in range(SEEDS):
            states[0], _ = alone.iterate(states[0])
        best[0] = min(best[0], time.perf_counter() - begun)
        begun = time.perf_counter()
        states[1], _ = together.iterate(states[1])
        best[1] = min(best[1], time.perf_counter() - begun)
    return Figure(name, best[0] / best[1], bound, True)


def _alternate(functions: list[Callable[[], Any]]) -> list[float]:
    """Return the best time of each function, called in turns."""
    best = [np.inf] * len(functions)
    for _ in range(5 * TURNS):
        for index, function in enumerate(functions):
            begun = time.perf_counter()
            jax.block_until_ready(function())
            best[index] = min(best[index], time.perf_counter() - begun)
    return best
