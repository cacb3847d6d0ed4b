"""Environments that each isolate one thing that can go wrong, with answers known in closed form."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Probe(gymnasium.Env):
    """An episode of `length` steps; observations in [-1, 1]; what it pays is up to the subclass."""

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
    """Action 1 pays 1, action 0 nothing."""

    def reward(self, action):
        return float(action == 1)


class ObservationMatters(Probe):
    """The action has to follow the sign of the observation."""

    def reward(self, action):
        return 1.0 if (action == 1) == (self.sign > 0) else -1.0


class DelayedReward(Probe):
    """What pays after ten steps is the very first action."""

    length = 10

    def reward(self, action):
        if self.t == 0:
            self.first = action
        return float(self.first == 1) * 10.0 if self.t == self.length - 1 else 0.0


class ContinuousTarget(Probe):
    """The mean has to become 0.5 times the sign of the observation."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reward(self, action):
        return -float((action[0] - 0.5 * self.sign) ** 2)


class FactorsMatter(Probe):
    """Two factors, each with one right choice."""

    action_space = spaces.MultiDiscrete([3, 2])

    def reward(self, action):
        return float(action[0] == 2) + float(action[1] == 0)


class Endless(Probe):
    """Pays 1 at every step and never terminates; a time limit of 5 cuts it."""

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, False, self.t >= 5, {}


class DictObservation(Probe):
    """As `ObservationMatters`, with the sign hidden among other things."""

    observation_space = spaces.Dict(
        {"noise": spaces.Discrete(3), "sign": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def _observe(self):
        sign = super()._observe()
        return {"noise": int(self.np_random.integers(3)), "sign": sign}

    def reward(self, action):
        return 1.0 if (action == 1) == (self.sign > 0) else -1.0
