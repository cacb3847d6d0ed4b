"""Finite MDPs to try the theory on: random ones (Garnet), a gridworld, a chain."""

import numpy as np

from trellis.theory.mdp import FiniteMDP, Reals

# Up, right, down, left as (row, column) moves.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))

FOUR_ROOMS = """
S....#.....
.....#.....
...........
.....#.....
.....#.....
#.####.....
.....###.##
.....#.....
.....#.....
...........
.....#....G
"""
"""The four rooms of Sutton, Precup and Singh (1999): a start, a goal, four doors."""


def garnet(
    num_states: int,
    num_actions: int,
    branching: int,
    rng: np.random.Generator,
    *,
    gamma: float = 0.9,
    action_rewards: bool = False,
) -> FiniteMDP:
    """Return a random MDP: each (s, a) leads to `branching` states with random probabilities.

    The probabilities are the gaps between `branching` − 1 uniform cuts of [0, 1], as in Archibald,
    McKinnon and Thomas (1995). Rewards are standard normal per state (per state and action with
    `action_rewards`), the initial state is uniform.
    """
    if not 1 <= branching <= num_states:
        raise ValueError(f"branching must be in [1, {num_states}], got {branching}")
    pairs = num_states * num_actions
    cuts = np.sort(rng.random((pairs, branching - 1)), axis=1)
    probabilities = np.diff(cuts, axis=1, prepend=0.0, append=1.0)
    # The first `branching` places of a random permutation: distinct states.
    keys = rng.random((pairs, num_states))
    targets = np.argpartition(keys, branching - 1, axis=1)[:, :branching]
    P = np.zeros((pairs, num_states))
    np.put_along_axis(P, targets, probabilities, axis=1)
    reward_shape = (num_states, num_actions) if action_rewards else (num_states,)
    return FiniteMDP(
        P=P.reshape(num_states, num_actions, num_states),
        r=rng.standard_normal(reward_shape),
        rho0=np.full(num_states, 1.0 / num_states),
        gamma=gamma,
    )


def gridworld(
    layout: str = FOUR_ROOMS, *, gamma: float = 0.95, slip: float = 0.1, step_reward: float = 0.0
) -> FiniteMDP:
    """Return a gridworld: `S` start, `G` goal (+1), `X` pit (−1), `#` wall, `.` free.

    The actions are up, right, down, left; with probability `slip` the move is in one of the four
    directions at random, and a move into a wall or off the grid stays. Goal and pit pay on the
    step spent in them and then lead to one last state, which pays nothing and never ends; other
    cells pay `step_reward`. States are the free cells in reading order, then the last one.
    """
    if not 0.0 <= slip <= 1.0:
        raise ValueError(f"slip must be in [0, 1], got {slip}")
    rows = layout.split()
    unknown = set("".join(rows)) - set("SGX#.")
    if unknown or len({len(row) for row in rows}) != 1:
        raise ValueError(
            f"a layout is rows of one length made of S, G, X, # and '.': unknown signs"
            f" {sorted(unknown)}, row lengths {sorted({len(row) for row in rows})}"
        )
    cells = [(i, j) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign != "#"]
    index = {cell: number for number, cell in enumerate(cells)}
    signs = [rows[i][j] for i, j in cells]
    if "S" not in signs:
        raise ValueError("a layout needs at least one start S")
    over = len(cells)
    P = np.zeros((over + 1, len(MOVES), over + 1))
    P[over, :, over] = 1.0
    for (i, j), state in index.items():
        if signs[state] in "GX":
            P[state, :, over] = 1.0
            continue
        reached = [index.get((i + down, j + right), state) for down, right in MOVES]
        for action, intended in enumerate(reached):
            P[state, action, intended] += 1.0 - slip
            for target in reached:
                P[state, action, target] += slip / len(MOVES)
    pay = {"G": 1.0, "X": -1.0}
    r = np.array([pay.get(sign, step_reward) for sign in signs] + [0.0])
    starts = np.array([sign == "S" for sign in signs] + [False], np.float64)
    return FiniteMDP(P, r, starts / starts.sum(), gamma)


def chain(
    num_states: int, *, gamma: float = 0.9, slip: float = 0.0, small_reward: float = 0.01
) -> FiniteMDP:
    """Return a corridor with a small reward at its start and reward 1 at its end.

    Action 0 goes left, 1 goes right, each the other way with probability `slip`; the ends hold.
    """
    if num_states < 2:
        raise ValueError(f"a chain needs at least 2 states, got {num_states}")
    states = np.arange(num_states)
    left, right = np.maximum(states - 1, 0), np.minimum(states + 1, num_states - 1)
    P = np.zeros((num_states, 2, num_states))
    for action, (meant, other) in enumerate(((left, right), (right, left))):
        P[states, action, meant] += 1.0 - slip
        P[states, action, other] += slip
    r = np.zeros(num_states)
    r[0], r[-1] = small_reward, 1.0
    return FiniteMDP(P, r, np.eye(num_states)[0], gamma)


def random_policy(
    mdp: FiniteMDP, rng: np.random.Generator, *, concentration: float = 1.0, zero_share: float = 0.0
) -> Reals:
    """Return a policy with Dirichlet rows; about `zero_share` of its probabilities are exactly 0.

    Small concentrations give nearly deterministic rows; `zero_share` = 1 gives deterministic ones.
    """
    shape = (mdp.num_states, mdp.num_actions)
    policy = rng.gamma(concentration, size=shape) + 1e-12
    policy[rng.random(shape) < zero_share] = 0.0
    empty = policy.sum(axis=1) == 0.0
    policy[empty, rng.integers(mdp.num_actions, size=int(empty.sum()))] = 1.0
    return policy / policy.sum(axis=1, keepdims=True)
