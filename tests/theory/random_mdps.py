"""Random MDPs with pairs of policies, on which the properties in this folder are checked."""

import os
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from trellis.theory.examples import garnet, random_policy
from trellis.theory.mdp import FiniteMDP, PolicyEvaluation, Reals


@dataclass(frozen=True, eq=False)
class Problem:
    mdp: FiniteMDP
    old: PolicyEvaluation
    new: Reals


GAMMAS = st.one_of(st.just(0.0), st.floats(0.0, 1e-3), st.floats(0.0, 0.99), st.just(0.99))


@st.composite
def problems(
    draw: st.DrawFn, *, max_states: int = 6, max_actions: int = 4, state_rewards: bool = False
) -> Problem:
    """Small MDPs with every awkward thing: one state or action, sure transitions, unreachable
    states, no rewards at all, policies with zeros, deterministic ones, pairs far apart and near.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_states = draw(st.integers(1, max_states))
    made = garnet(
        num_states,
        draw(st.integers(1, max_actions)),
        draw(st.integers(1, num_states)),
        rng,
        gamma=draw(GAMMAS),
        action_rewards=not state_rewards and draw(st.booleans()),
    )
    reward_scale = draw(st.sampled_from([1.0, 1.0, 1.0, 1e-3, 0.0]))
    rho0 = made.rho0
    if draw(st.booleans()):
        rho0 = np.eye(num_states)[draw(st.integers(0, num_states - 1))]
    mdp = FiniteMDP(made.P, reward_scale * made.r, rho0, made.gamma)
    old, new = (
        random_policy(
            mdp,
            rng,
            concentration=draw(st.sampled_from([0.05, 1.0, 20.0])),
            zero_share=draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        )
        for _ in range(2)
    )
    distance = draw(st.sampled_from([1.0, 0.1, 1e-3, 1e-6]))
    return Problem(mdp, mdp.evaluate(old), (1.0 - distance) * old + distance * new)


def examples(count: int) -> settings:
    """Return settings for a number of fixed examples, without a time limit per example.

    The fast suite takes a fifth of them, `make test-slow` takes all.
    """
    return settings(
        max_examples=count if os.environ.get("TRELLIS_EXAMPLES") == "all" else count // 5,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
