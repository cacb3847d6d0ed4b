"""Probe environments, each of which isolates one possible error and has a known answer."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Probe(gymnasium.Env):
    """Base class: episodes of `length` steps and observations in [-1, 1]."""

    length = 1
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def _observe(self):
        self.sign = self.np_random.choice([-1.0, 1.0])
        return np.array([self.sign], np.float32)

    def step(self, action):
        reward = self.reward(action)
        self.t += 1
        return self._observe(), reward, self.t >= self.length, False, {}

    def reward(self, action):
        raise NotImplementedError


class ActionMatters(Probe):
    """Action 1 has reward 1 and action 0 has reward 0."""

    def reward(self, action):
        return float(action == 1)


class ObservationMatters(Probe):
    """The reward depends on whether the action matches the sign of the observation."""

    def reward(self, action):
        return 1.0 if (action == 1) == (self.sign > 0) else -1.0


class DelayedReward(Probe):
    """The reward after ten steps depends on the first action."""

    length = 10

    def reward(self, action):
        if self.t == 0:
            self.first = action
        return float(self.first == 1) * 10.0 if self.t == self.length - 1 else 0.0


class ContinuousTarget(Probe):
    """The best action is 0.5 times the sign of the observation."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reward(self, action):
        return -float((action[0] - 0.5 * self.sign) ** 2)


class FactorsMatter(Probe):
    """The action has two factors, each with one right choice."""

    action_space = spaces.MultiDiscrete([3, 2])

    def reward(self, action):
        return float(action[0] == 2) + float(action[1] == 0)


class Endless(Probe):
    """The reward is 1 in every step; episodes are truncated after 5 steps."""

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, False, self.t >= 5, {}


class DictObservation(Probe):
    """The same task as `ObservationMatters`, with a Dict observation."""

    observation_space = spaces.Dict(
        {"noise": spaces.Discrete(3), "sign": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def _observe(self):
        sign = super()._observe()
        return {"noise": int(self.np_random.integers(3)), "sign": sign}

    def reward(self, action):
        return 1.0 if (action == 1) == (self.sign > 0) else -1.0
