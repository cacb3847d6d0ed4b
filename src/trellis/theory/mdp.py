"""Finite MDPs and the exact quantities of Section 2, by linear solves.

An MDP is (S, A, P, r, ρ₀, γ) and a tabular policy is an array π[s, a]. With P_π and r_π the
transitions and rewards under π,

    V_π = r_π + γ P_π V_π                        values
    Q_π(s, a) = r(s) + γ Σ_s' P(s'|s, a) V_π(s')
    A_π = Q_π − V_π
    η(π) = Σ_s ρ₀(s) V_π(s)                      performance
    ρ_π = ρ₀ + γ P_πᵀ ρ_π                        visitation: discounted, sums to 1/(1 − γ)
    L_π(π̃) = η(π) + Σ_s ρ_π(s) Σ_a π̃(a|s) A_π(s, a)                                  (Eq. 3)

One LU factorization of I − γ P_π serves V_π and, transposed, ρ_π. Rewards may also depend on the
action, r[s, a]; all of Sections 2 and 3 holds then too, and only Appendix B's expansion, which
needs r to be a vector over states, is refused.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

Reals = NDArray[np.float64]

# How far a row may be from summing to 1: wide enough for sums of decimal fractions in float64,
# tight enough to refuse float32 tables, whose error would drown the tolerances of the theory.
SUM_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """(S, A, P, r, ρ₀, γ) of Section 2, checked when made; its arrays cannot be written to."""

    P: Reals
    """P[s, a, s']: the probability of s' after action a in state s."""
    r: Reals
    """r[s] as in the paper, or r[s, a]; collected in the state in which the action is chosen."""
    rho0: Reals
    """The distribution of the initial state."""
    gamma: float
    """The discount factor, in [0, 1)."""

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
        """How many states there are."""
        return self.P.shape[0]

    @property
    def num_actions(self) -> int:
        """How many actions there are, the same in every state."""
        return self.P.shape[1]

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Which states are never left and pay nothing: where an episode may as well end."""
        states = np.arange(self.num_states)
        stays = (self.P[states, :, states] >= 1.0 - SUM_TOLERANCE).all(axis=1)
        return stays & (self.r.reshape(self.num_states, -1) == 0.0).all(axis=1)

    @property
    def action_rewards(self) -> Reals:
        """r[s, a], also where the rewards depend on the state alone."""
        return np.broadcast_to(self.r.reshape(self.num_states, -1), self.P.shape[:2])

    def check_policy(self, policy: ArrayLike) -> Reals:
        """Return the policy as a float64 array [s, a]; raise `ValueError` where it is invalid."""
        policy = np.asarray(policy, np.float64)
        if policy.shape != self.P.shape[:2]:
            raise ValueError(
                f"a policy must have shape {self.P.shape[:2]} for"
                f" {self.num_states} states and {self.num_actions} actions, got {policy.shape}"
            )
        _check_distributions("policy", policy, ("s",), "a")
        return policy

    def uniform_policy(self) -> Reals:
        """Return the policy that gives every action the same probability."""
        return np.full(self.P.shape[:2], 1.0 / self.num_actions)

    def transitions(self, policy: ArrayLike) -> Reals:
        """Return P_π[s, s'] = Σ_a π(a|s) P(s'|s, a)."""
        return np.matmul(self.check_policy(policy)[:, None, :], self.P)[:, 0, :]

    def rewards(self, policy: ArrayLike) -> Reals:
        """Return r_π[s] = Σ_a π(a|s) r(s, a), which is r itself where it depends on s alone."""
        return self.r if self.r.ndim == 1 else (self.check_policy(policy) * self.r).sum(axis=1)

    def lookahead(self, values: Reals) -> Reals:
        """Return r(s, a) + γ Σ_s' P(s'|s, a) v(s') as [s, a]: Q_π where the values are V_π."""
        return self.action_rewards + self.gamma * (self.P @ values)

    def evaluate(self, policy: ArrayLike) -> "PolicyEvaluation":
        """Return all exact quantities of a policy, from one factorization."""
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
        """Return η(π)."""
        return self.evaluate(policy).performance

    def state_distributions(self, policy: ArrayLike, horizon: int) -> Reals:
        """Return P(s_t = s | π) as [t, s], for t < horizon."""
        transitions = self.transitions(policy)
        rows = np.empty((horizon, self.num_states))
        now = self.rho0
        for t in range(horizon):
            rows[t] = now
            now = now @ transitions
        return rows


@dataclass(frozen=True, eq=False)
class PolicyEvaluation:
    """The exact quantities of one policy in one MDP."""

    mdp: FiniteMDP
    policy: Reals
    values: Reals
    """V_π[s]."""
    q_values: Reals
    """Q_π[s, a]."""
    advantages: Reals
    """A_π[s, a]."""
    visitation: Reals
    """ρ_π[s], which sums to 1/(1 − γ)."""
    performance: float
    """η(π)."""

    @property
    def max_advantage(self) -> float:
        """ε = max_{s,a} |A_π(s, a)| of Theorem 1."""
        return float(np.abs(self.advantages).max())

    def expected_advantage(self, new: ArrayLike) -> Reals:
        """Return Ā(s) = Σ_a π̃(a|s) A_π(s, a), Appendix A.

        Taken over π̃ − π, which changes nothing, for Σ_a π(a|s) A_π(s, a) = 0, but makes Ā exactly
        0 for π̃ = π and small for small steps.
        """
        return ((self.mdp.check_policy(new) - self.policy) * self.advantages).sum(axis=1)

    def surrogate_gain(self, new: ArrayLike) -> float:
        """Return L_π(π̃) − L_π(π)."""
        return float(self.visitation @ self.expected_advantage(new))

    def surrogate(self, new: ArrayLike) -> float:
        """Return L_π(π̃), Eq. 3."""
        return self.performance + self.surrogate_gain(new)


def _read_only(array: Any) -> Reals:
    """Return a read-only float64 copy."""
    copy = np.array(array, np.float64)
    copy.flags.writeable = False
    return copy


def _check_distributions(name: str, array: Reals, axes: tuple[str, ...], last: str) -> None:
    """Raise `ValueError` for the first row along the last axis that is no distribution.

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
