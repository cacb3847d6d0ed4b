"""The iteration of TRPO as one pure function that JAX compiles: sample, estimate, step (Sec. 6).

`iteration` does what `Trainer.iterate` does, with the same functions where they exist: the scan of
the compiled sampler, the advantages and the critic fit of `estimation`, and `take_step`. All random
numbers are inputs. They come from the streams of the ordinary trainer, so both trainers give the
same run up to rounding. Nothing leaves the device in between.

The function may run in several places at once, each with its own environments. Then `axes` names
the axes of `shard_map` or `vmap`, and sums over states become sums over these axes. The sampling
scan needs none of them.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from trellis.arrays import Array
from trellis.estimation.advantages import rescale, subtracts_mean
from trellis.estimation.compiled import (
    Running,
    fit_critic,
    path_advantages,
    path_statistics,
    values_of,
)
from trellis.estimation.device_moments import DeviceMoments, of_values
from trellis.estimation.normalization import MOST_STATES
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator
from trellis.optimization.fisher import RESIDUAL_BUDGET_BYTES
from trellis.optimization.objective import DeviceObjective, LocalObjective
from trellis.optimization.rules import rule_of
from trellis.optimization.step import StepInfo, StepInputs, take_step
from trellis.sampling.first_invalid import first_invalid
from trellis.sampling.scan import Paths, scaled, walk
from trellis.training.program_parts import (
    Chance,
    Learned,
    Outputs,
    PlaceOutputs,
    Program,
    Schedule,
)


def iteration(
    program: Program,
    learned: Learned,
    schedule: Schedule,
    rows: Any,
    running: Running,
    chance: Chance,
) -> Outputs:
    """Run one iteration.

    Args:
        program: The parts of the run.
        learned: Parameters and statistics before the iteration.
        schedule: Values that change with the progress of the run.
        rows: State of the environments.
        running: Sums along the episodes before the first step.
        chance: Random numbers.
    """
    settings, critic, axes = program.estimation, program.critic, program.axes
    value_of = None if critic is None else functools.partial(values_of, critic, learned.critic)

    def final_values(observation: Array, truncated: Array) -> Array:
        nothing = jnp.zeros(truncated.shape, jnp.float32)
        if value_of is None:
            return nothing
        return jax.lax.cond(jnp.any(truncated), value_of, lambda _: nothing, observation)

    with jax.named_scope("sampling"):
        rows, paths = walk(
            program.walker, learned.theta, learned.scaling, rows, chance.paths, final_values
        )

    with jax.named_scope("estimation"):
        observation = scaled(paths.raw_observation, learned.scaling)
        last = program.walker.encode(rows.observation)
        statistics, running = path_statistics(
            paths,
            running,
            settings,
            new_episodes=program.new_episodes,
            longest=program.longest,
        )
        observed = of_values(paths.raw_observation[..., : program.features])
        scale = jnp.float32(1.0)
        if settings.normalize_rewards:
            returns = learned.returns.merge(statistics.returns.over(axes))
            scale = jnp.sqrt(returns.variance + 1e-8)
        gain = statistics.gain.over(axes).mean if settings.criterion == "average" else 0.0
        value = last_value = None
        if value_of is not None:
            value, last_value = value_of(observation), value_of(scaled(last, learned.scaling))
        advantage = path_advantages(paths, value, last_value, settings, scale, gain)
        fit, fitted = None, learned.critic
        if critic is not None:
            target, rate = advantage + value, schedule.learning_rate
            fit = fit_critic(critic, learned.critic, observation, target, chance.batches, rate)
            fitted = _averaged(fit.critic, axes)
        moments = of_values(advantage)
        values = moments.over(axes)

    with jax.named_scope("step"):
        centered = subtracts_mean(settings)
        scaled_advantage = rescale(advantage, settings.advantages, values, centered=centered)
        batch = _state_batch(paths, observation, scaled_advantage)
        theta, info = _take_step(program, learned.theta, batch, chance.fisher_rows, schedule.inputs)

    policy = program.walker.policy
    params, _ = policy.distribution_params(theta, observation[-1])
    kl = jnp.float32(0.0)
    if learned.scaling is not None:
        moved = learned.observations.merge(observed.over(axes))
        kl = _normalization_kl(program, theta, observation, paths.raw_observation, moved)
    place = PlaceOutputs(
        rows,
        last,
        rows.elapsed,
        running,
        statistics,
        observed,
        None if fit is None else fit._replace(critic={}),
        moments,
        jnp.mean(policy.distribution.entropy(params)),
        kl,
        first_invalid(program.walker, paths),
    )
    return Outputs(theta, info, fitted, scale, values, place)


compiled_iteration = jax.jit(iteration, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def compiled_iterations(
    program: Program,
    learned: Learned,
    schedule: Schedule,
    rows: Any,
    running: Running,
    chance: Chance,
) -> Outputs:
    """Run one iteration of several runs at once; inputs but `schedule` have an axis for the run."""

    def one_run(learned: Learned, rows: Any, running: Running, chance: Chance) -> Outputs:
        return iteration(program, learned, schedule, rows, running, chance)

    return jax.vmap(one_run)(learned, rows, running, chance)


AXIS = "device"
"""Name of the axis of the devices."""


@functools.partial(jax.jit, static_argnums=(0, 1))
def iteration_on_devices(
    program: Program,
    mesh: Mesh,
    learned: Learned,
    schedule: Schedule,
    rows: Any,
    running: Running,
    chance: Chance,
) -> Outputs:
    """Run one iteration on several devices, each with its own environments.

    Rows, sums and random numbers have a leading axis for the device, and so have the results of
    each place.
    """

    def on_one(learned: Learned, schedule: Schedule, *place: Any) -> Outputs:
        mine = jax.tree.map(lambda leaf: leaf[0], place)
        outputs = iteration(program, learned, schedule, *mine)
        return outputs._replace(place=jax.tree.map(lambda leaf: leaf[None], outputs.place))

    everywhere: Any = PartitionSpec()
    each: Any = PartitionSpec(AXIS)
    inputs = everywhere, everywhere, each, each, each
    outputs = Outputs(*[everywhere] * 5, place=each)
    # The check of replication does not know loops that start from constants.
    run = jax.shard_map(on_one, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    return run(learned, schedule, rows, running, chance)


def on_host(outputs: Outputs) -> Outputs:
    """Return outputs as NumPy arrays, without the environments, which stay on the device."""
    return jax.tree.map(np.asarray, outputs._replace(place=outputs.place._replace(rows=None)))


def _state_batch(paths: Paths, observation: Array, advantage: Array) -> StateBatch:
    """Return the batch of all states, like `advantages.state_batch`."""
    n = advantage.size
    ones = jnp.ones(n, jnp.float32)
    return StateBatch(
        observation=observation.reshape(n, -1),
        action=paths.action.reshape(n, 1, -1),
        log_q=paths.log_q.reshape(n, 1),
        value=advantage.reshape(n, 1),
        surrogate_weight=ones,
        kl_weight=ones,
    )


def _take_step(
    program: Program, theta: Array, batch: StateBatch, rows: Array, inputs: StepInputs
) -> tuple[Array, StepInfo]:
    """Take the step with the states of all places."""
    subset = jax.tree.map(lambda leaf: leaf[rows], batch)
    pieces = [
        cut(part, size, -(-len(part.kl_weight) // size), theta.dtype)
        for part, size in zip((batch, subset), program.chunk_sizes, strict=True)
    ]
    objective = LocalObjective(
        program.walker.policy,
        Estimator.IMPORTANCE,
        rule_of(program.step).curvature,
        theta,
        *pieces,
        entropy_bonus=program.step.entropy_bonus,
        one_program=True,
        residual_budget=RESIDUAL_BUDGET_BYTES // program.copies,
    )
    if program.axes:
        objective = DeviceObjective(objective, program.axes)
    return take_step(objective, theta, program.step, inputs=inputs)


def _averaged(critic: dict[str, Array], axes: tuple[str, ...]) -> dict[str, Array]:
    """Return the mean of the critics of all places, which have equally many samples."""
    if not axes:
        return critic
    floats = {name: value for name, value in critic.items() if value.dtype.kind == "f"}
    return {**critic, **jax.lax.pmean(floats, axes)}


def _normalization_kl(
    program: Program, theta: Array, observation: Array, raw: Array, moved: DeviceMoments
) -> Array:
    """Return the mean KL between π_θ with the old and with the new observation statistics."""
    policy, (times, envs) = program.walker.policy, observation.shape[:2]
    step = -(-times * envs // MOST_STATES)
    new = scaled(raw[::step], (moved.mean, 1.0 / jnp.sqrt(moved.variance + 1e-8)))
    old_params, _ = policy.distribution_params(theta, observation[::step])
    new_params, _ = policy.distribution_params(theta, new)
    return jnp.mean(policy.distribution.kl(old=old_params, new=new_params))
