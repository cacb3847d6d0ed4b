"""Converts finite MDPs to Gymnasium environments, and Gymnasium's toy-text environments to MDPs.

The expected discounted return of the environment is the MDP's η(π) (Sec. 2).
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trellis.theory.mdp import FiniteMDP, Reals


class FiniteMDPEnv(gymnasium.Env[Any, Any]):
    """Gymnasium environment of an MDP; its expected discounted return is η(π).

    A step earns the reward of the state that it leaves. The episode terminates when it reaches a
    state that is never left and has reward 0.

    Args:
        mdp: The MDP.
        one_hot: Whether observations are one-hot float32 vectors, on which a linear softmax policy
            is tabular, or the index of the state.
        max_episode_steps: Time limit. An MDP without terminal states needs one.

    Example:
        >>> from trellis.theory import chain
        >>> env = to_gymnasium(chain(3), max_episode_steps=10)
        >>> env.reset(seed=0)
        (0, {})
        >>> env.step(1)
        (1, 0.01, False, False, {})
    """

    def __init__(
        self, mdp: FiniteMDP, *, one_hot: bool = False, max_episode_steps: int | None = None
    ):
        self.action_space = spaces.Discrete(mdp.num_actions)
        self.observation_space = observation_space(mdp, one_hot=one_hot)
        self._one_hot = np.eye(mdp.num_states, dtype=np.float32) if one_hot else None
        self._max_episode_steps = max_episode_steps
        self._next, self._first = cumulative(mdp.P), cumulative(mdp.rho0)
        self._rewards, self._is_over = mdp.action_rewards, mdp.is_over
        self.state, self.elapsed = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in a state sampled from ρ₀ and return its observation."""
        super().reset(seed=seed)
        self.state, self.elapsed = self._sample(self._first), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sample the next state and return it with the reward of the previous state."""
        reward = float(self._rewards[self.state, action])
        self.state = self._sample(self._next[self.state, action])
        self.elapsed += 1
        limit = self._max_episode_steps
        truncated = limit is not None and self.elapsed >= limit
        return self._observe(), reward, bool(self._is_over[self.state]), truncated, {}

    def _sample(self, cumulative_row: Reals) -> int:
        return int(np.searchsorted(cumulative_row, self.np_random.random(), side="right"))

    def _observe(self) -> Any:
        return self.state if self._one_hot is None else self._one_hot[self.state].copy()


to_gymnasium = FiniteMDPEnv
"""Turn an MDP into a Gymnasium environment: `to_gymnasium(mdp)`."""


def observation_space(mdp: FiniteMDP, *, one_hot: bool) -> spaces.Space[Any]:
    """Return the observation space: one-hot vectors of states, or indices of states."""
    if one_hot:
        return spaces.Box(0.0, 1.0, (mdp.num_states,), np.float32)
    return spaces.Discrete(mdp.num_states)


def cumulative(probabilities: Reals) -> Reals:
    """Return cumulative sums along the last axis, scaled so that they end in exactly 1."""
    sums = np.cumsum(probabilities, axis=-1)
    return sums / sums[..., -1:]


def from_gymnasium(env: gymnasium.Env[Any, Any] | str, *, gamma: float) -> FiniteMDP:
    """Return the MDP of an environment that has a table of transitions `P`.

    FrozenLake, CliffWalking and Taxi have one. Rewards become r[s, a], averaged over the next
    state. Transitions that terminate lead to one additional, last state with reward 0. Time limits
    are not part of the MDP.

    Args:
        env: An environment or its id.
        gamma: Discount factor of the MDP.

    Raises:
        ValueError: The environment has no such table.

    Example:
        >>> mdp = from_gymnasium("FrozenLake-v1", gamma=0.95)
        >>> mdp.num_states, mdp.num_actions
        (17, 4)
    """
    made = gymnasium.make(env) if isinstance(env, str) else env
    table: Any = getattr(made.unwrapped, "P", None)
    rho0: Any = getattr(made.unwrapped, "initial_state_distrib", None)
    if table is None or rho0 is None:
        raise ValueError(
            f"{made} has no table of transitions (env.unwrapped.P) or no initial distribution"
            " (initial_state_distrib); FrozenLake-v1, CliffWalking-v1 and Taxi-v4 have both. Build"
            " a FiniteMDP from your own tables instead"
        )
    states, actions = len(table), len(table[0])
    P = np.zeros((states + 1, actions, states + 1))
    r = np.zeros((states + 1, actions))
    P[states, :, states] = 1.0
    for state, choices in table.items():
        for action, outcomes in choices.items():
            for probability, following, reward, terminated in outcomes:
                P[state, action, states if terminated else following] += probability
                r[state, action] += probability * reward
    if isinstance(env, str):
        made.close()
    used = states + 1 if P[:states, :, states].any() else states
    return FiniteMDP(P[:used, :, :used], r[:used], np.append(rho0, 0.0)[:used], gamma)
