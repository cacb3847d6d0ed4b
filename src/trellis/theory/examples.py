"""Builds example MDPs for the theory of Sections 2 and 3: random MDPs, a gridworld and a chain."""

import numpy as np

from trellis.theory.mdp import FiniteMDP, Reals

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Moves of a gridworld, (row, column): up, right, down, left."""

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
"""Four rooms of Sutton, Precup and Singh (1999), with a start, a goal and four doors."""


def garnet(
    num_states: int,
    num_actions: int,
    branching: int,
    rng: np.random.Generator,
    *,
    gamma: float = 0.9,
    action_rewards: bool = False,
) -> FiniteMDP:
    """Return a random MDP (a Garnet).

    Each (s, a) leads to `branching` random states. Their probabilities are the gaps between
    `branching` − 1 uniform cuts of [0, 1], as in Archibald, McKinnon and Thomas (1995). Rewards are
    standard normal and the initial state is uniform.

    Args:
        num_states: Number of states.
        num_actions: Number of actions.
        branching: Number of possible next states of each (s, a).
        rng: Source of the random numbers.
        gamma: Discount factor.
        action_rewards: Whether rewards depend on the action too, r[s, a].

    Example:
        >>> mdp = garnet(num_states=10, num_actions=3, branching=4, rng=np.random.default_rng(0))
        >>> mdp.P.shape
        (10, 3, 10)
    """
    if not 1 <= branching <= num_states:
        raise ValueError(f"branching must be in [1, {num_states}], got {branching}")
    pairs = num_states * num_actions
    cuts = np.sort(rng.random((pairs, branching - 1)), axis=1)
    probabilities = np.diff(cuts, axis=1, prepend=0.0, append=1.0)
    # The first `branching` entries of a random permutation are distinct states.
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
    """Return a gridworld that is written as text.

    In the layout `S` is a start, `G` a goal (reward +1), `X` a pit (reward −1), `#` a wall and `.`
    a free cell. The actions are up, right, down and left. A move into a wall or off the grid leaves
    the state unchanged. Goals and pits give their reward on the step spent in them and lead to one
    last state, which has reward 0 and is never left. States are the cells that are not walls, in
    reading order, then the last state.

    Args:
        layout: Rows of equal length; at least one start.
        gamma: Discount factor.
        slip: Probability that a move goes in a random direction.
        step_reward: Reward of all cells that are neither goal nor pit.

    Example:
        >>> mdp = gridworld("S.G", slip=0.0)
        >>> mdp.num_states, mdp.r.tolist()
        (4, [0.0, 0.0, 1.0, 0.0])
    """
    if not 0.0 <= slip <= 1.0:
        raise ValueError(f"slip must be in [0, 1], got {slip}")
    rows = layout.split()
    unknown = set("".join(rows)) - set("SGX#.")
    if unknown or len({len(row) for row in rows}) != 1:
        raise ValueError(
            "a layout must have rows of equal length made of S, G, X, # and '.': found unknown"
            f" signs {sorted(unknown)} and row lengths {sorted({len(row) for row in rows})}"
        )
    cells = [(i, j) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign != "#"]
    index = {cell: number for number, cell in enumerate(cells)}
    signs = [rows[i][j] for i, j in cells]
    if "S" not in signs:
        raise ValueError("a layout must have at least one start S, got none")
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
    """Return a chain of states with a small reward at its start and reward 1 at its end.

    Action 0 moves left and action 1 moves right. A move beyond an end leaves the state unchanged.
    The first state is the start.

    Args:
        num_states: Number of states, at least 2.
        gamma: Discount factor.
        slip: Probability that a move goes in the opposite direction.
        small_reward: Reward of the first state.

    Example:
        >>> mdp = chain(3)
        >>> mdp.r.tolist(), mdp.P[0, 1].tolist()
        ([0.01, 0.0, 1.0], [0.0, 1.0, 0.0])
    """
    if num_states < 2:
        raise ValueError(f"num_states must be at least 2, got {num_states}")
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
    """Return a random policy [s, a] whose rows are Dirichlet distributed.

    Args:
        mdp: The MDP that the policy is for.
        rng: Source of the random numbers.
        concentration: Parameter of the Dirichlet distribution; small values give nearly
            deterministic rows.
        zero_share: Approximate share of probabilities that are exactly 0; 1 gives deterministic
            rows.

    Example:
        >>> random_policy(chain(4), np.random.default_rng(0)).shape
        (4, 2)
    """
    shape = (mdp.num_states, mdp.num_actions)
    policy = rng.gamma(concentration, size=shape) + 1e-12
    policy[rng.random(shape) < zero_share] = 0.0
    empty = policy.sum(axis=1) == 0.0
    policy[empty, rng.integers(mdp.num_actions, size=int(empty.sum()))] = 1.0
    return policy / policy.sum(axis=1, keepdims=True)
