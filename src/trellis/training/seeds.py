"""Trains several seeds of one configuration at once.

Every seed is a run of its own: it has the state, the random streams, the metrics and the checkpoint
of a `CompiledTrainer` with that seed. The seeds are divided into groups. `vmap` makes one program
of the iterations of a group, and each group has a thread:

    accelerator                one group of all seeds
    CPU, small iterations      one group per core
    CPU, larger iterations     one group per seed, which needs no `vmap`

A CPU computes a large iteration at nearly the speed of its arithmetic, so `vmap` has nothing to
gain there. In a small iteration, operations take less time than their overhead, which all seeds of
a group share. Sums have another order under `vmap`. A seed in a group of its own is the same run
bit for bit as alone, and otherwise the same to rounding.
"""

import concurrent.futures
import contextvars
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis.config import TrainConfig
from trellis.cores import usable_cores
from trellis.policies.policy import Policy
from trellis.training.base import TrainerBase
from trellis.training.build import MakeEnv, Model
from trellis.training.compiled import (
    CompiledTrainer,
    build_program,
    schedule_of,
    why_not_compiled,
)
from trellis.training.program import compiled_iterations, on_host
from trellis.training.program_parts import Program
from trellis.training.state import TrainState
from trellis.training.team import LocalTeam

Iterated = tuple[TrainState, dict[str, Any]]
"""Next state and metrics of a seed."""
SMALL = 2_000_000
"""Largest number of states × parameters of an iteration that is small on a CPU."""


@dataclasses.dataclass(frozen=True)
class SeedsState(TrainState):
    """State of all seeds; its own fields are those of the first one."""

    states: tuple[TrainState, ...] = ()
    """State of each seed."""


class SeedsTrainer(TrainerBase[SeedsState]):
    """Trains several seeds of one configuration at once.

    Args:
        config: Settings of the runs; each seed replaces that of the settings.
        seeds: The seeds.
        make_env: Function that creates batches; by default from `config.env`.
        policy: Custom policy; by default the one that the settings describe.
        groups: Number of groups. Default: as many as the device and the settings suggest.

    Raises:
        ValueError: Environment or settings do not allow a compiled iteration; the message says why.
    """

    def __init__(
        self,
        config: TrainConfig,
        seeds: Sequence[int],
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        *,
        groups: int | None = None,
    ):
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be different numbers, got {list(seeds)}")
        self.seeds, self.trainers = tuple(seeds), list[CompiledTrainer]()
        try:
            for seed in seeds:
                of_seed = dataclasses.replace(config, seed=seed)
                team = LocalTeam(of_seed, make_env, policy)
                reason = why_not_compiled(team, of_seed)
                if reason:
                    team.close()
                    raise ValueError(
                        f"several seeds cannot be trained at once, because {reason}: train them"
                        " one by one with --seed"
                    )
                self.trainers.append(CompiledTrainer(of_seed, team, make_env))
        except BaseException:
            self._close_trainers()
            raise
        first = self.trainers[0]
        super().__init__(first.config, first.model, make_env)
        for trainer in self.trainers:
            trainer.program = first.program  # All are equal, and one of them is compiled once.
        parts = np.array_split(
            np.arange(len(seeds)), groups or num_groups(config, first.model, len(seeds))
        )
        shard = first.places[0].shard
        program = build_program(config, first.model, shard, copies=len(parts[0]))
        self._groups = [_Group([self.trainers[i] for i in part], program) for part in parts]
        self._threads = concurrent.futures.ThreadPoolExecutor(usable_cores())
        self._is_compiled = False
        self.rows: list[dict[str, Any]] = [{} for _ in seeds]
        """Metrics of the last iteration of each seed."""

    def start(self) -> SeedsState:
        """Return the states before the first iteration."""
        return joined([trainer.start() for trainer in self.trainers])

    def iterate(self, state: SeedsState) -> tuple[SeedsState, dict[str, Any]]:
        """Run one iteration of all seeds and return the next states and the metrics.

        The metrics are means over seeds; `rows` holds those of each seed.
        """
        begun = time.perf_counter()
        states = iter(state.states)
        calls = [(group.iterate, [next(states) for _ in group.trainers]) for group in self._groups]
        pairs: list[Iterated] = []
        if not self._is_compiled:  # The first group compiles the program that all of them use.
            iterate, mine = calls.pop(0)
            pairs += iterate(mine)
            self._is_compiled = True
        # A copy of the context keeps how NumPy treats overflow.
        futures = [
            self._threads.submit(contextvars.copy_context().run, iterate, mine)
            for iterate, mine in calls
        ]
        concurrent.futures.wait(futures)  # If a group fails, no other is left behind.
        for future in futures:
            pairs += future.result()
        seconds = time.perf_counter() - begun
        for _, row in pairs:
            row["steps_per_second"] *= row["seconds_iteration"] / seconds
            row["seconds_iteration"] = seconds
        self.rows = [metrics for _, metrics in pairs]
        metrics = means(self.rows)
        metrics["steps_per_second"] *= len(self.seeds)
        return joined([state for state, _ in pairs]), metrics

    def with_evaluation(self, state: SeedsState) -> tuple[SeedsState, dict[str, Any]]:
        """Evaluate every seed, and add the results to its metrics in `rows`."""
        pairs = [t.with_evaluation(s) for t, s in zip(self.trainers, state.states, strict=True)]
        for row, (_, evaluation) in zip(self.rows, pairs, strict=True):
            row |= evaluation
        return joined([state for state, _ in pairs]), means([metrics for _, metrics in pairs])

    def hold_environments(self) -> None:
        """Give the environments on the device back to the batches, for their snapshots."""
        for group in self._groups:
            group.hold_environments()

    def to_checkpoint(self, state: SeedsState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Not supported: each seed has a checkpoint of its own, made by its trainer."""
        raise TypeError("save each seed with its trainer: SeedsTrainer.trainers")

    def from_checkpoint(
        self, arrays: dict[str, np.ndarray], values: Mapping[str, Any]
    ) -> SeedsState:
        """Not supported: each seed has a checkpoint of its own, loaded by its trainer."""
        raise TypeError("load each seed with its trainer: SeedsTrainer.trainers")

    def close(self) -> None:
        """Close all environments."""
        self._threads.shutdown()
        self._close_trainers()
        super().close()

    def _close_trainers(self) -> None:
        for trainer in self.trainers:
            trainer.close()


class _Group:
    """Seeds whose iterations are one program, made by `vmap`; one seed needs none.

    Args:
        trainers: Trainers of the seeds.
        program: Program of one of several seeds.
    """

    def __init__(self, trainers: list[CompiledTrainer], program: Program):
        self.trainers, self._program = trainers, program
        self._rows: Any = None
        """Environments of all seeds on the device; None if the batches hold them."""

    def iterate(self, states: Sequence[TrainState]) -> list[Iterated]:
        """Run one iteration of all seeds."""
        if len(states) == 1:
            return [self.trainers[0].iterate(states[0])]
        begun = time.perf_counter()
        states = [t.begin(s) for t, s in zip(self.trainers, states, strict=True)]
        if any(each.path is None for each in states):
            self.hold_environments()  # New episodes start in the batches.
        inputs = [t.inputs(s) for t, s in zip(self.trainers, states, strict=True)]
        if self._rows is None or any(started for *_, started in inputs):
            self._rows = _stacked([t.places[0].rows for t in self.trainers], jnp.stack)
        first = self.trainers[0]
        schedule = schedule_of(first.config, first.model, states[0].steps)
        learned, running, chance = (
            _stacked([each[index] for each in inputs], np.stack) for index in range(3)
        )
        outputs = compiled_iterations(self._program, learned, schedule, self._rows, running, chance)
        for trainer, each in zip(self.trainers, states, strict=True):
            trainer.prepare_next(each)
        found, self._rows = on_host(outputs), outputs.place.rows
        pairs = []
        for index, (trainer, each) in enumerate(zip(self.trainers, states, strict=True)):
            mine = jax.tree.map(lambda leaf, index=index: leaf[index], found)
            pairs.append(trainer.end(each, trainer.results(each, mine, [begun])))
        return pairs

    def hold_environments(self) -> None:
        """Give the environments on the device back to the batches, for their snapshots."""
        if self._rows is not None:
            for index, trainer in enumerate(self.trainers):
                rows = jax.tree.map(lambda leaf, index=index: leaf[index], self._rows)
                trainer.places[0].rows = rows
            self._rows = None


def num_groups(config: TrainConfig, model: Model, seeds: int) -> int:
    """Return the number of groups that is fastest, as far as measurements show.

    Args:
        config: Settings of the runs.
        model: Policy and critic.
        seeds: Number of seeds.
    """
    if jax.default_backend() != "cpu":
        return 1
    small = config.sampling.batch_size * model.policy.num_params <= SMALL
    return min(seeds, usable_cores()) if small else seeds


def joined(states: Sequence[TrainState]) -> SeedsState:
    """Return the state of all seeds."""
    first = {field.name: getattr(states[0], field.name) for field in dataclasses.fields(TrainState)}
    return SeedsState(**first, states=tuple(states))


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of every number over seeds, and the most frequent of every word.

    A name that some seeds do not have, because no episode has ended, is the mean of the others.
    """
    metrics: dict[str, Any] = {}
    for name in {name: None for row in rows for name in row}:
        values = [row[name] for row in rows if name in row]
        if all(isinstance(value, int | float) for value in values):
            metrics[name] = type(values[0])(np.mean(values))
        else:
            metrics[name] = max(values, key=values.count)
    return metrics


def _stacked(trees: Sequence[Any], stack: Any) -> Any:
    return jax.tree.map(lambda *leaves: stack(leaves), *trees)
