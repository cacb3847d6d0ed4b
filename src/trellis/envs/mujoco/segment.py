"""Steps a batch many times and computes the rewards of all these steps together.

Between two steps of the simulator only observations and ends of episodes are needed. A reward is a
function of one row: the state after the step, positions before it, and the action. So the rewards
of many steps are one call of the task's `outcome`, with the same bits as one call per step.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import Values
from trellis.envs.values import first_not_finite

if TYPE_CHECKING:
    from trellis.envs.mujoco.batch import MujocoBatch


class Transition(NamedTuple):
    """Result of a step without its reward, with one row per environment."""

    observation: Values
    """Observations after the step."""
    terminated: NDArray[np.bool_]
    """Whether the step ended the episode in a terminal state."""
    truncated: NDArray[np.bool_]
    """Whether the step ended the episode at the time limit."""
    reward: None = None
    """`Segment.rewards` returns the rewards of all steps."""


class Segment:
    """Steps of all environments of a batch, whose rewards are computed at the end.

    Args:
        env: Batch of a task that has `MujocoTask.terminated`.
        steps: Largest number of steps.
    """

    def __init__(self, env: "MujocoBatch", steps: int):
        physics = env.physics
        self._env, self._physics, self._time = env, physics, 0
        self._before = np.empty((steps, *physics.qpos.shape))
        self._after = np.empty((steps, *physics.coordinates.shape))

    def step(self, actions: NDArray[np.floating]) -> Transition:
        """Advance all environments by one step, as `BatchEnv.step` does."""
        env, time = self._env, self._time
        mapped = env.map_actions(actions)
        self._before[time] = self._physics.qpos
        observation, terminated = env.advance(mapped)
        self._after[time] = self._physics.coordinates
        self._time = time + 1
        if first_not_finite(mapped) is not None:  # Stop here rather than at the end.
            env.check_finite("reward", self._reward(slice(time, time + 1), mapped[None])[0])
        return Transition(observation, terminated, env.truncated())

    def rewards(self, actions: NDArray[np.floating]) -> Values:
        """Return the rewards of all steps, (time, env).

        Args:
            actions: Actions of all steps, (time, env, ...), as they were passed to `step`.

        Raises:
            BadValueError: A reward is not finite. The error names the last step of the segment.
        """
        mapped = self._env.map_actions(actions.reshape(-1, *actions.shape[2:]))
        found = self._reward(slice(0, self._time), mapped.reshape(actions.shape))
        if first_not_finite(found) is not None:
            for step in found:
                self._env.check_finite("reward", step)
        return found

    def _reward(self, times: slice, actions: NDArray[np.floating]) -> Values:
        env, physics = self._env, self._physics
        before, after = self._before[times], self._after[times]
        split, shape = before.shape[2], before.shape[:2]
        rows = after.reshape(-1, after.shape[2])
        physics = physics._replace(coordinates=rows, qpos=rows[:, :split], qvel=rows[:, split:])
        actions = actions.reshape(-1, *actions.shape[2:])
        outcome = env.task.outcome(physics, before.reshape(-1, split), actions, env.options)
        return outcome.reward.reshape(shape)
