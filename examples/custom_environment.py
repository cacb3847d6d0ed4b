"""Train on an environment of your own, which can be any `gymnasium.Env`."""

import gymnasium
import numpy as np
from gymnasium import spaces

from trellis import TRPO


class Thermostat(gymnasium.Env):
    """A room that loses heat; the task is to keep it at 20 degrees with a heater."""

    observation_space = spaces.Box(-50, 50, (2,), np.float32)
    action_space = spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.inside, self.outside = self.np_random.uniform([10, -10], [25, 15])
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        self.inside += 2.0 * float(action[0]) + 0.05 * (self.outside - self.inside)
        self.outside += self.np_random.normal(scale=0.2)
        self.t += 1
        reward = -abs(self.inside - 20.0)
        return self._observe(), reward, False, self.t >= 100, {}

    def _observe(self):
        return np.array([self.inside - 20.0, self.outside], np.float32)


def main(total_timesteps: int = 100_000) -> float:
    agent = TRPO(Thermostat, seed=0, sampling={"num_envs": 8, "steps_per_env": 128})
    print(f"before: {agent.evaluate(episodes=10).mean_return:.1f}")
    agent.learn(total_timesteps)
    result = agent.evaluate(episodes=10).mean_return
    print(f"after:  {result:.1f}  (0 means 20 degrees at every step)")
    return result


if __name__ == "__main__":
    main()
