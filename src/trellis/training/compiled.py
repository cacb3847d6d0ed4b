"""Trains on environments in JAX with iterations that are one compiled program each.

`CompiledTrainer` is a `Trainer` whose iteration runs on the device from the first sample to the new
θ: only statistics come back. States, checkpoints, evaluations and metrics are those of `Trainer`,
and so is the run, up to rounding. While the device computes, the random numbers of the next
iteration are made.

`why_not_compiled` says which settings need the ordinary trainer.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trellis.config import TrainConfig
from trellis.estimation.compiled import Running
from trellis.estimation.critic import MLPCritic
from trellis.estimation.device_moments import to_device, to_host
from trellis.estimation.estimates import Estimated
from trellis.optimization.fisher import num_rows
from trellis.optimization.rules import StepSize, rule_of
from trellis.optimization.trust_region import even_chunk, largest_chunk_of
from trellis.policies.normalizer import make_normalizer
from trellis.sampling.compiled import CompiledPath, scaling_of
from trellis.training.build import MakeEnv, Model
from trellis.training.place import Place
from trellis.training.program import AXIS, compiled_iteration, iteration_on_devices, on_host
from trellis.training.program_parts import Chance, Learned, Outputs, Program, Schedule
from trellis.training.reduction import reduce_tree
from trellis.training.schedules import critic_learning_rate, step_inputs
from trellis.training.shard import Shard
from trellis.training.state import TrainState
from trellis.training.team import LocalTeam
from trellis.training.trainer import Results, Trainer

SMALLEST_CHUNK = 64
"""Smallest number of states per chunk, if several runs share the cache."""


def why_not_compiled(team: LocalTeam, config: TrainConfig, devices: int | None = None) -> str:
    """Return why iterations cannot be one compiled program; an empty text if they can.

    Args:
        team: Team of a run.
        config: Settings of the run.
        devices: Number of devices. Default: one, or as JAX chooses.
    """
    shard, settings, shards = team.shards[0], config.estimation, config.sampling.shards
    reasons = {
        "the environment is not written in JAX": not hasattr(shard.env, "functions"),
        "the sampler is vine": config.sampling.is_vine,
        "the policy has memory, or sees pictures": not isinstance(shard.sampler, CompiledPath),
        f"{shards} shards need as many devices": shards != (devices or 1),
        "the critic is linear": not isinstance(shard.model.critic, MLPCritic | None),
        "the baseline depends on time": settings.critic == "none" and settings.baseline == "time",
        "the returns have a horizon": settings.critic == "none" and settings.horizon is not None,
        "states are discounted": settings.discount_states,
        "first layers are compensated": settings.compensate_normalization,
        f"the method is {config.step.method}": rule_of(config.step).step_size is StepSize.SOLVED,
    }
    return next((reason for reason, is_true in reasons.items() if is_true), "")


class CompiledTrainer(Trainer):
    """Trainer whose iterations are one compiled program; see `why_not_compiled`.

    Args:
        config: Settings of the run.
        team: Team with the environments.
        make_env: Function that creates batches for evaluations; by default from `config.env`.
        devices: Devices that the shards are on, one shard each. Default: one shard, on the device
            that JAX chooses.
    """

    def __init__(
        self,
        config: TrainConfig,
        team: LocalTeam,
        make_env: MakeEnv | None = None,
        devices: Sequence[Any] | None = None,
    ):
        super().__init__(config, make_env, team=team)
        self.places = [Place(config, shard) for shard in team.shards]
        self._mesh = None if devices is None else Mesh(np.array(devices), (AXIS,))
        axes = () if devices is None else (AXIS,)
        self.program = build_program(config, self.model, team.shards[0], axes=axes)
        self._rows: Any = None
        """Environments on the devices; None if the batches hold them."""

    def to_checkpoint(self, state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state, with snapshots of environments, as named arrays and plain values."""
        self.hold_environments()
        return super().to_checkpoint(state)

    def from_checkpoint(
        self, arrays: dict[str, np.ndarray], values: Mapping[str, Any]
    ) -> TrainState:
        """Return the state of a checkpoint, and make the environments continue from it."""
        self._rows = None
        return super().from_checkpoint(arrays, values)

    def hold_environments(self) -> None:
        """Give the environments on the devices back to the batches, for their snapshots."""
        if self._rows is not None:
            for place, rows in zip(self.places, self._parts(self._rows), strict=True):
                place.rows = rows
            self._rows = None

    def inputs(self, state: TrainState) -> tuple[Learned, Running, Chance, bool]:
        """Return the inputs of the program, after new episodes have started if they are due.

        The last result is whether they have; then the batches hold the environments.
        """
        parts = [place.inputs(state.iteration) for place in self.places]
        running, chance = (
            self._joined([part[index] for part in parts], np.stack) for index in (0, 1)
        )
        return learned_of(state, self.config), running, chance, parts[0].started

    def prepare_next(self, state: TrainState) -> None:
        """Make the random numbers of the next iteration, while the device computes this one."""
        for place in self.places:
            place.prepare(state.iteration + 1)

    def results(self, state: TrainState, outputs: Outputs, clock: list[float]) -> Results:
        """Return the results of an iteration from what the program returned.

        Args:
            state: State before the iteration.
            outputs: Outputs of the program on the host.
            clock: Time before the iteration; the time after it is added.
        """
        clock.append(time.perf_counter())
        found = zip(self.places, self._parts(outputs.place), strict=True)
        answers = [place.results(part, outputs.critic) for place, part in found]
        spans = {(index, index + 1): answer for index, answer in enumerate(answers)}
        collected, critic_fit, finished = reduce_tree((0, len(answers)), spans)
        returns, observed = collected.returns, collected.observations
        old, moments = state.return_moments, state.observation_moments
        return Results(
            collected,
            float(outputs.reward_scale),
            old if returns is None else old.merge(returns),
            Estimated(to_host(outputs.values), critic_fit),
            outputs.theta,
            outputs.info,
            moments if observed is None else moments.merge(observed),
            finished,
            clock,
        )

    def _run(self, state: TrainState) -> Results:
        clock = [time.perf_counter()]
        learned, running, chance, started = self.inputs(state)
        schedule = schedule_of(self.config, self.model, state.steps)
        if started or self._rows is None:
            self._rows = self._joined([place.rows for place in self.places], jnp.stack)
        inputs = learned, schedule, self._rows, running, chance
        if self._mesh is None:
            outputs = compiled_iteration(self.program, *inputs)
        else:
            outputs = iteration_on_devices(self.program, self._mesh, *inputs)
        self.prepare_next(state)
        results = self.results(state, on_host(outputs), clock)
        self._rows = outputs.place.rows
        return results

    def _joined(self, trees: Sequence[Any], stack: Any) -> Any:
        """Return the inputs of all places as one, on their devices."""
        if self._mesh is None:
            return trees[0]
        joined = jax.tree.map(lambda *leaves: stack(leaves), *trees)
        return jax.device_put(joined, NamedSharding(self._mesh, PartitionSpec(AXIS)))

    def _parts(self, tree: Any) -> list[Any]:
        """Return what belongs to each place."""
        if self._mesh is None:
            return [tree]
        places = range(len(self.places))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in places]


def build_program(
    config: TrainConfig,
    model: Model,
    shard: Shard,
    *,
    copies: int = 1,
    axes: tuple[str, ...] = (),
) -> Program:
    """Return the program of a run.

    Args:
        config: Settings of the run.
        model: Policy and critic.
        shard: Environments and sampler.
        copies: Number of runs that are computed at once, which share cache and memory.
        axes: Names of the axes that the shards are on.
    """
    states, shards = config.sampling.part.batch_size, config.sampling.shards
    subset = min(states, num_rows(states, config.step.fisher_fraction, shards))
    largest = max(SMALLEST_CHUNK, largest_chunk_of(model.policy) // copies)
    assert isinstance(shard.sampler, CompiledPath)
    assert isinstance(model.critic, MLPCritic | None)
    return Program(
        shard.sampler.walker,
        model.critic,
        config.estimation,
        config.step,
        model.moments_shape[-1],
        config.sampling.starts_new_episodes,
        shard.env.max_episode_steps,
        (even_chunk(states, largest), even_chunk(subset, largest)),
        copies,
        axes,
    )


def learned_of(state: TrainState, config: TrainConfig) -> Learned:
    """Return what training changes, as inputs of the program."""
    moments, enabled = state.observation_moments, config.estimation.normalize_observations
    return Learned(
        state.theta,
        state.critic,
        scaling_of(make_normalizer(moments, enabled=enabled)),
        to_device(moments),
        to_device(state.return_moments),
    )


def schedule_of(config: TrainConfig, model: Model, steps: int) -> Schedule:
    """Return the values that change with the progress of the run."""
    rate = critic_learning_rate(config, steps)
    inputs = step_inputs(config, model.policy, steps)
    return Schedule(inputs, None if rate is None else np.float32(rate))
