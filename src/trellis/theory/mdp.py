"""Defines finite MDPs and computes the exact quantities of Section 2 by linear solves.

An MDP is (S, A, P, r, ρ₀, γ) and a tabular policy is an array π[s, a]. With P_π and r_π the
transitions and rewards under π,

    V_π = r_π + γ P_π V_π                        values
    Q_π(s, a) = r(s) + γ Σ_s' P(s'|s, a) V_π(s')
    A_π = Q_π − V_π
    η(π) = Σ_s ρ₀(s) V_π(s)                      performance
    ρ_π = ρ₀ + γ P_πᵀ ρ_π                        visitation: discounted, sums to 1/(1 − γ)
    L_π(π̃) = η(π) + Σ_s ρ_π(s) Σ_a π̃(a|s) A_π(s, a)                                  (Eq. 3)

One LU factorization of I − γ P_π gives V_π and, transposed, ρ_π. Rewards may also depend on the
action, r[s, a]. All of Sections 2 and 3 holds in that case too. Only the expansion of Appendix B
needs rewards r[s].
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

Reals = NDArray[np.float64]
"""An array of float64 numbers."""

SUM_TOLERANCE = 1e-8
"""Largest error of the sum of a distribution. It permits sums of decimal fractions in float64 and
rejects float32 tables, whose errors would exceed the tolerances of the theory."""


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Finite Markov decision process (S, A, P, r, ρ₀, γ) of Section 2.

    The arrays are validated and copied when the MDP is created, and are read-only afterwards.

    Example:
        >>> P = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]  # action = next state
        >>> mdp = FiniteMDP(P, r=[0.0, 1.0], rho0=[1.0, 0.0], gamma=0.5)
        >>> mdp.performance([[0.0, 1.0], [0.0, 1.0]])
        1.0
    """

    P: Reals
    """Transition probabilities P[s, a, s'] of s' after action a in state s."""
    r: Reals
    """Rewards r[s] as in the paper, or r[s, a], of the state in which the action is chosen."""
    rho0: Reals
    """Distribution ρ₀[s] of the initial state."""
    gamma: float
    """Discount factor, in [0, 1)."""

    def __post_init__(self) -> None:
        gamma = float(self.gamma)
        if not 0.0 <= gamma < 1.0:
            raise ValueError(f"gamma must be in [0, 1), got {self.gamma}")
        P, r, rho0 = (_read_only(array) for array in (self.P, self.r, self.rho0))
        if P.ndim != 3 or P.shape[0] != P.shape[2] or 0 in P.shape:
            raise ValueError(f"P must have shape (states, actions, states), got {P.shape}")
        states, actions, _ = P.shape
        if r.shape not in ((states,), (states, actions)):
            raise ValueError(
                f"r must have shape ({states},) or ({states}, {actions}) for the {states} states"
                f" and {actions} actions of P, got {r.shape}"
            )
        if rho0.shape != (states,):
            raise ValueError(
                f"rho0 must have shape ({states},) for the {states} states of P, got {rho0.shape}"
            )
        _check_distributions("P", P, ("s", "a"), "s'")
        _check_distributions("rho0", rho0, (), "s")
        if not np.isfinite(r).all():
            index = tuple(np.argwhere(~np.isfinite(r))[0])
            raise ValueError(f"r[{_place(('s', 'a'), index)}] = {r[index]} is not finite")
        for name, value in (("P", P), ("r", r), ("rho0", rho0), ("gamma", gamma)):
            object.__setattr__(self, name, value)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return self.P.shape[0]

    @property
    def num_actions(self) -> int:
        """Number of actions, the same in every state."""
        return self.P.shape[1]

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Mask of the terminal states, which are never left and have reward 0."""
        states = np.arange(self.num_states)
        stays = (self.P[states, :, states] >= 1.0 - SUM_TOLERANCE).all(axis=1)
        return stays & (self.r.reshape(self.num_states, -1) == 0.0).all(axis=1)

    @property
    def action_rewards(self) -> Reals:
        """Rewards as r[s, a], even if they depend only on the state."""
        return np.broadcast_to(self.r.reshape(self.num_states, -1), self.P.shape[:2])

    def check_policy(self, policy: ArrayLike) -> Reals:
        """Return the policy as a float64 array [s, a], or raise `ValueError` if it is invalid."""
        policy = np.asarray(policy, np.float64)
        if policy.shape != self.P.shape[:2]:
            raise ValueError(
                f"policy must have shape {self.P.shape[:2]} for"
                f" {self.num_states} states and {self.num_actions} actions, got {policy.shape}"
            )
        _check_distributions("policy", policy, ("s",), "a")
        return policy

    def uniform_policy(self) -> Reals:
        """Return the policy that gives every action the same probability."""
        return np.full(self.P.shape[:2], 1.0 / self.num_actions)

    def transitions(self, policy: ArrayLike) -> Reals:
        """Return the transitions under a policy, P_π[s, s'] = Σ_a π(a|s) P(s'|s, a)."""
        return np.matmul(self.check_policy(policy)[:, None, :], self.P)[:, 0, :]

    def rewards(self, policy: ArrayLike) -> Reals:
        """Return the expected rewards under a policy, r_π[s] = Σ_a π(a|s) r(s, a)."""
        return self.r if self.r.ndim == 1 else (self.check_policy(policy) * self.r).sum(axis=1)

    def lookahead(self, values: Reals) -> Reals:
        """Return r(s, a) + γ Σ_s' P(s'|s, a) v(s') as [s, a]; this is Q_π if `values` is V_π."""
        return self.action_rewards + self.gamma * (self.P @ values)

    def evaluate(self, policy: ArrayLike) -> "PolicyEvaluation":
        """Return the exact values, advantages, visitation and performance of a policy.

        Args:
            policy: Probabilities π[s, a].

        Example:
            >>> from trellis.theory import chain
            >>> mdp = chain(3)
            >>> mdp.evaluate(mdp.uniform_policy()).values.round(3).tolist()
            [2.583, 3.134, 4.383]
        """
        policy = self.check_policy(policy)
        system = np.eye(self.num_states) - self.gamma * self.transitions(policy)
        factors = linalg.lu_factor(system, overwrite_a=True)
        values = linalg.lu_solve(factors, self.rewards(policy))
        q_values = self.lookahead(values)
        return PolicyEvaluation(
            mdp=self,
            policy=policy,
            values=values,
            q_values=q_values,
            advantages=q_values - values[:, None],
            visitation=linalg.lu_solve(factors, self.rho0, trans=1),
            performance=float(self.rho0 @ values),
        )

    def performance(self, policy: ArrayLike) -> float:
        """Return η(π), the expected discounted return of a policy."""
        return self.evaluate(policy).performance

    def state_distributions(self, policy: ArrayLike, horizon: int) -> Reals:
        """Return the probabilities P(s_t = s | π) as [t, s], for t < horizon."""
        transitions = self.transitions(policy)
        rows = np.empty((horizon, self.num_states))
        now = self.rho0
        for t in range(horizon):
            rows[t] = now
            now = now @ transitions
        return rows


@dataclass(frozen=True, eq=False)
class PolicyEvaluation:
    """Exact quantities of one policy in one MDP; `FiniteMDP.evaluate` creates it."""

    mdp: FiniteMDP
    """MDP that the policy was evaluated in."""
    policy: Reals
    """Policy π[s, a]."""
    values: Reals
    """State values V_π[s]."""
    q_values: Reals
    """Action values Q_π[s, a]."""
    advantages: Reals
    """Advantages A_π[s, a] = Q_π[s, a] − V_π[s]."""
    visitation: Reals
    """Discounted visitation frequencies ρ_π[s], which sum to 1/(1 − γ)."""
    performance: float
    """Expected discounted return η(π)."""

    @property
    def max_advantage(self) -> float:
        """Largest absolute advantage, ε = max_{s,a} |A_π(s, a)| of Theorem 1."""
        return float(np.abs(self.advantages).max())

    def expected_advantage(self, new: ArrayLike) -> Reals:
        """Return Ā(s) = Σ_a π̃(a|s) A_π(s, a) of a new policy π̃ (Appendix A).

        The sum is over (π̃ − π) A_π, which is equal because Σ_a π(a|s) A_π(s, a) = 0. In this form Ā
        is exactly 0 for π̃ = π and accurate for small steps.
        """
        return ((self.mdp.check_policy(new) - self.policy) * self.advantages).sum(axis=1)

    def surrogate_gain(self, new: ArrayLike) -> float:
        """Return L_π(π̃) − L_π(π), the gain of the surrogate for a new policy π̃."""
        return float(self.visitation @ self.expected_advantage(new))

    def surrogate(self, new: ArrayLike) -> float:
        """Return L_π(π̃), the surrogate objective for a new policy π̃ (Eq. 3)."""
        return self.performance + self.surrogate_gain(new)


def _read_only(array: Any) -> Reals:
    """Return a read-only float64 copy."""
    copy = np.array(array, np.float64)
    copy.flags.writeable = False
    return copy


def _check_distributions(name: str, array: Reals, axes: tuple[str, ...], last: str) -> None:
    """Raise `ValueError` for the first row along the last axis that is not a distribution.

    `axes` are the names of the leading axes and `last` is the name of the last one.
    """
    if not (array >= 0.0).all():  # also catches NaN
        index = tuple(np.argwhere(~(array >= 0.0))[0])
        what = "negative" if array[index] < 0.0 else "not a number"
        raise ValueError(f"{name}[{_place((*axes, last), index)}] = {array[index]} is {what}")
    sums = np.asarray(array.sum(axis=-1))
    wrong = ~(np.abs(sums - 1.0) <= SUM_TOLERANCE)
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0])
        where = f"{name}[{_place(axes, index)}]" if axes else name
        raise ValueError(
            f"{where} sums to {sums[index]:.10g} over {last}, not to 1: make it a probability"
            f" distribution (tolerance {SUM_TOLERANCE:g})"
        )


def _place(axes: tuple[str, ...], index: tuple[Any, ...]) -> str:
    return ", ".join(f"{axis}={int(i)}" for axis, i in zip(axes, index, strict=False))
