"""Provides the buffer that a sampler fills while it collects one iteration (Sec. 5).

`RolloutBuffer` records actions and their outcomes and turns them into `Samples`. It stores
observations in an `ObservationBuffer`.

A lane is a slice of environments. Lanes may be at different time steps.
"""

from typing import Any

import jax
import numpy as np

from trellis.policies.distributions import Distribution
from trellis.policies.normalizer import Normalizer
from trellis.sampling.environment import SegmentSteps, Transition
from trellis.sampling.observation_buffers import TimeEnvArrays, make_observation_buffer
from trellis.sampling.samples import Carries, PathState, Samples


class RolloutBuffer:
    """Samples of one iteration while they are collected, and the current state of the paths.

    Args:
        state: State of the paths before the first step; the buffer works on a copy.
        steps: Number of time steps to collect.
        normalize: Function from encoded observations to the policy's inputs.
    """

    def __init__(self, state: PathState, steps: int, normalize: Normalizer):
        self.state = state.copy()
        first, shape = state.observation, (steps, len(state.observation))
        self._observations = make_observation_buffer(shape, normalize, first)
        self._arrays = TimeEnvArrays(shape)
        self._final_observations: list[Any] = []
        self._final_carries: list[np.ndarray] = []

    def gather(self, t: int, lane: slice) -> np.ndarray:
        """Record the current observations of a lane at time t and return them normalized."""
        return self._observations.gather(t, lane, self.state.observation[lane])

    def carry(self, lane: slice) -> np.ndarray | None:
        """Return what the policy carries in a lane; None for feed-forward policies."""
        return None if self.state.carry is None else self.state.carry[lane]

    def add_action(
        self,
        t: int,
        lane: slice,
        outputs: np.ndarray,
        action: np.ndarray,
        carry: np.ndarray | None = None,
    ) -> None:
        """Record the network outputs of a lane at time t and the action sampled from them.

        Args:
            t: Time of the action.
            lane: The environments.
            outputs: Outputs of the network.
            action: The actions.
            carry: What a policy with memory carries to the next step.
        """
        self._arrays.write(t, lane, outputs=outputs, action=action)
        if carry is not None and self.state.carry is not None:
            self._arrays.write(t, lane, carry=self.state.carry[lane])
            self.state.carry[lane] = carry

    def add_step(
        self, t: int, lane: slice, observation: np.ndarray, step: Transition
    ) -> np.ndarray:
        """Record the step that followed the action of time t.

        Args:
            t: Time of the action.
            lane: The environments that made the step.
            observation: Encoded observation of the step.
            step: The step.

        Returns:
            The environments whose episode has ended; `start_episodes` must follow for them.
        """
        current, _, _, carry = self.state
        terminated, truncated = step.terminated, step.truncated
        self._arrays.write(t, lane, terminated=terminated, truncated=truncated)
        if step.reward is not None:
            self._arrays.write(t, lane, reward=step.reward)
        self._observations.advance(lane, current[lane], observation)
        current[lane] = observation
        (ended,) = (terminated | truncated).nonzero()
        ids = lane.start + ended
        if len(ids):
            self._final_observations.append(self._observations.look_up(ids, current[ids]))
            if carry is not None:
                self._final_carries.append(carry[ids])
        return ids

    def start_episodes(self, ids: np.ndarray, observation: np.ndarray) -> None:
        """Start new episodes in environments `ids` from the encoded observations of a reset."""
        current, _, _, carry = self.state
        current[ids] = observation
        self._observations.start_episodes(ids, observation)
        if carry is not None:
            carry[ids] = 0.0

    def samples(
        self, distribution: Distribution, free: np.ndarray, segment: SegmentSteps | None = None
    ) -> Samples:
        """Return all samples, once every lane has made its last step.

        This also brings the ages and the returns in `state` up to date.

        Args:
            distribution: Distribution that the actions were sampled from.
            free: Parameters of the distribution that do not depend on the state.
            segment: Object that made the steps, if rewards were left for the end.
        """
        arrays, observations = self._arrays, self._observations
        current = self.state.observation
        last = observations.look_up(np.arange(len(current)), current)
        final = jax.tree.map(
            lambda *parts: np.concatenate(parts), last[:0], *self._final_observations
        )
        # `argwhere` has the order of the lists: steps are added by time, then by environment.
        ended = arrays["terminated"] | arrays["truncated"]
        age = ages(self.state.age, ended)
        np.copyto(self.state.age, np.where(ended[-1], 0, age[-1] + 1))
        reward = arrays["reward"] if segment is None else segment.rewards(arrays["action"])
        episode_return = add_up(self.state.episode_return, reward, ended)
        params = distribution.params(arrays["outputs"], free)
        return Samples(
            observation=observations.rebuild(observations.recorded()),
            raw_observation=observations.raw["observation"],
            action=arrays["action"],
            log_q=distribution.log_prob(params, arrays["action"]),
            reward=reward,
            terminated=arrays["terminated"],
            truncated=arrays["truncated"],
            age=age,
            final_at=np.argwhere(ended),
            final_observation=observations.rebuild(final),
            last_observation=observations.rebuild(last),
            episode_return=episode_return,
            episode_length=age[ended] + 1,
            carries=self._carries(),
        )

    def _carries(self) -> Carries | None:
        last = self.state.carry
        if last is None:
            return None
        final = np.concatenate([last[:0], *self._final_carries])
        return Carries(self._arrays["carry"], final, last.copy())


def add_up(total: np.ndarray, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Return the return of each episode that ended, in order, and bring `total` up to date.

    Args:
        total: Return of each environment's episode so far; it changes in place.
        reward: Rewards, (time, env).
        ended: Whether each step ended its episode, (time, env).
    """
    finished = [total[:0]]
    some_end = np.logical_or.reduce(ended, axis=1)
    for step, ends, some in zip(reward, ended, some_end, strict=True):
        total += step
        if some:
            finished.append(total[ends])
            total[ends] = 0.0
    return np.concatenate(finished)


def ages(first: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Return the time within the episode of every step, (time, env).

    Args:
        first: Time within the episode of the first step of each environment.
        ended: Whether each step ended its episode, (time, env).
    """
    steps = np.arange(len(ended))[:, None]
    # Time of the last end before each step; an episode that continues began `first` steps before.
    before = np.concatenate([(-1 - first)[None], np.where(ended, steps, -1 - first)[:-1]])
    return steps - 1 - np.maximum.accumulate(before)
