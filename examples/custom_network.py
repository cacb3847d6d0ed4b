"""Train with a policy network of your own: define its weight shapes, initial weights and outputs.

`apply` runs on NumPy arrays beside the simulator and on JAX arrays in the update. So it uses only
operators and functions of the array namespace of its input.
"""

from dataclasses import dataclass

import numpy as np

from trellis import TRPO
from trellis.policies import Categoricals, Policy
from trellis.policies.networks import orthogonal


@dataclass(frozen=True)
class Residual:
    """A tanh layer with a linear shortcut around it."""

    inputs: int
    hidden: int
    num_outputs: int

    @property
    def shapes(self):
        return (
            (self.inputs, self.hidden),
            (self.hidden, self.num_outputs),
            (self.inputs, self.num_outputs),
        )

    @property
    def values_per_state(self):
        return self.hidden + self.num_outputs

    def init(self, rng):
        scales = (1.0, 0.01, 0.01)
        return [s * orthogonal(rng, *shape) for s, shape in zip(scales, self.shapes, strict=True)]

    def apply(self, weights, observation):
        first, second, shortcut = weights
        hidden = observation @ first
        xp = hidden.__array_namespace__()
        return xp.tanh(hidden) @ second + observation @ shortcut


def main(total_timesteps: int = 60_000) -> float:
    policy = Policy(Residual(inputs=4, hidden=32, num_outputs=2), Categoricals((2,)))
    agent = TRPO("CartPole-v1", seed=0, policy=policy)
    print(f"{agent.policy.num_params} parameters, θ is {agent.theta.shape} {np.dtype('float32')}")
    agent.learn(total_timesteps)
    result = agent.evaluate(episodes=10).mean_return
    print(f"mean return {result:.1f}")
    return result


if __name__ == "__main__":
    main()
