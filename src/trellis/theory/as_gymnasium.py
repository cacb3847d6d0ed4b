"""Finite MDPs as Gymnasium environments, and Gymnasium's toy-text environments as finite MDPs.

Gymnasium is loaded when one of these is called, not before: the theory itself needs arrays alone.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.theory.mdp import FiniteMDP

if TYPE_CHECKING:
    import gymnasium


def to_gymnasium(
    mdp: FiniteMDP, *, one_hot: bool = False, max_episode_steps: int | None = None
) -> "gymnasium.Env[Any, Any]":
    """The MDP as an environment whose discounted return has the expectation η(π).

    A step pays the reward of the state that it leaves. Observations are the state's number, or
    with `one_hot` a float32 vector, on which a linear softmax policy is a tabular one. An episode
    is terminated on reaching a state that is never left and pays nothing, and otherwise goes on
    until `max_episode_steps` truncate it: without such states, set it, or it never ends.
    """
    import gymnasium
    from gymnasium import spaces

    cumulative, initial = cumulative_rows(mdp.P), cumulative_rows(mdp.rho0)
    rewards = np.broadcast_to(mdp.r.reshape(mdp.num_states, -1), (mdp.num_states, mdp.num_actions))
    over = mdp.is_over

    class FiniteMDPEnv(gymnasium.Env[Any, Any]):
        """One state of the MDP, moved by actions."""

        def __init__(self) -> None:
            self.action_space = spaces.Discrete(mdp.num_actions)
            self.observation_space = (
                spaces.Box(0.0, 1.0, (mdp.num_states,), np.float32)
                if one_hot
                else spaces.Discrete(mdp.num_states)
            )
            self.state, self.elapsed = 0, 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.state, self.elapsed = self._draw(initial), 0
            return self._observe(), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            reward = float(rewards[self.state, action])
            self.state = self._draw(cumulative[self.state, action])
            self.elapsed += 1
            late = max_episode_steps is not None and self.elapsed >= max_episode_steps
            return self._observe(), reward, bool(over[self.state]), late, {}

        def _draw(self, row: Any) -> int:
            return int(np.searchsorted(row, self.np_random.random(), side="right"))

        def _observe(self) -> Any:
            if not one_hot:
                return self.state
            observation = np.zeros(mdp.num_states, np.float32)
            observation[self.state] = 1.0
            return observation

    return FiniteMDPEnv()


def from_gymnasium(env: "gymnasium.Env[Any, Any] | str", *, gamma: float) -> FiniteMDP:
    """The MDP behind FrozenLake, CliffWalking, Taxi and whatever else publishes its table `P`.

    Rewards become r[s, a], averaged over the next state. Where transitions terminate, one state is
    added at the end, which they lead to and which pays nothing. A time limit is no part of it.
    """
    import gymnasium

    made = gymnasium.make(env) if isinstance(env, str) else env
    table: Any = getattr(made.unwrapped, "P", None)
    rho0: Any = getattr(made.unwrapped, "initial_state_distrib", None)
    if table is None or rho0 is None:
        raise ValueError(
            f"{made} does not publish its transitions (env.unwrapped.P) and initial distribution"
            " (initial_state_distrib), as FrozenLake-v1, CliffWalking-v1 and Taxi-v4 do; build a"
            " FiniteMDP from your own tables instead"
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
    if not P[:states, :, states].any():
        return FiniteMDP(P[:states, :, :states], r[:states], np.asarray(rho0, np.float64), gamma)
    return FiniteMDP(P, r, np.append(np.asarray(rho0, np.float64), 0.0), gamma)


def cumulative_rows(probabilities: Any) -> Any:
    """Cumulative sums along the last axis that end in exactly 1, so that no draw can miss them."""
    sums = np.cumsum(probabilities, axis=-1)
    return sums / sums[..., -1:]
