"""The environment contract as functions: call them with a factory `make(num_envs) -> BatchEnv`.

Each raises AssertionError where the contract is broken. Comparisons are of bytes, not of numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis.envs.batch import BatchEnv, Snapshot, Step, leaves

Make = Callable[[int], BatchEnv]


def random_actions(env: BatchEnv, rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random actions in the form that a policy samples, (*shape, num_envs, ...)."""
    space, lead = env.action_space, (*shape, env.num_envs)
    if isinstance(space, spaces.Box):
        return rng.normal(size=(*lead, *space.shape)).astype(np.float32)
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=lead)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(*lead, *space.shape))
    raise NotImplementedError(f"no random actions for {space}")


def same(one: Any, other: Any) -> bool:
    """Return whether two observations of any structure are equal bit for bit."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def assert_same_step(one: Step, other: Step, when: str) -> None:
    for name in Step._fields:
        assert same(getattr(one, name), getattr(other, name)), f"{name} differs {when}"


def take(observation: Any, rows: Any) -> Any:
    """Return some rows of an observation or a `Step` of any structure."""
    if isinstance(observation, Step):
        return Step(*(take(part, rows) for part in observation))
    if isinstance(observation, dict):
        return {name: take(part, rows) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(take(part, rows) for part in observation)
    return observation[rows]


def take_rows(snapshot: Snapshot, index: np.ndarray) -> Snapshot:
    return {name: values[index] for name, values in snapshot.items()}


def rollout(env: BatchEnv, actions: np.ndarray) -> list[Step]:
    """Return the steps of all environments, each until its episode ends."""
    active, steps = np.ones(env.num_envs, bool), []
    for action in actions:
        steps.append(env.step(action, active.copy()))
        active &= ~(steps[-1].terminated | steps[-1].truncated)
    return steps


class _Seeds:
    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> np.ndarray:
        self.next += count
        return np.arange(self.next - count, self.next)


def check_replay(make: Make, pairs: int, *, num_envs: int = 32, horizon: int = 8) -> None:
    """Check that restored states from the middle of episodes replay the same steps.

    They replay in place, in another environment of the batch, and in another batch.
    """
    env, other = make(num_envs), make(num_envs)
    rng, seeds, everyone = np.random.default_rng(0), _Seeds(), np.arange(num_envs)
    observation = env.reset(everyone, seeds.take(num_envs))
    for _ in range(-(-pairs // num_envs)):
        for action in random_actions(env, rng, int(rng.integers(1, 4))):
            step = env.step(action)
            observation = step.observation
            ended = np.flatnonzero(step.terminated | step.truncated)
            if ended.size:
                first = env.reset(ended, seeds.take(ended.size))
                observation = _put(observation, ended, first)
        snapshot = env.snapshot(everyone)
        actions = random_actions(env, rng, horizon)
        future = rollout(env, actions)

        assert same(env.restore(everyone, snapshot), observation), "restore: another observation"
        for t, (a, b) in enumerate(zip(future, rollout(env, actions), strict=True)):
            assert_same_step(a, b, f"in place, {t} steps after the restore")

        order = rng.permutation(num_envs)
        for batch, where in ((env, "another row"), (other, "another batch")):
            again = batch.restore(everyone, take_rows(snapshot, order))
            assert same(again, take(observation, order)), f"{where}: another observation"
            moved = rollout(batch, actions[:, order])
            for t, (a, b) in enumerate(zip(future, moved, strict=True)):
                assert_same_step(take(a, order), b, f"in {where}, {t} steps after the restore")
        env.restore(everyone, snapshot)
    env.close()
    other.close()


def check_replay_of_ends(make: Make, pairs: int, *, num_envs: int = 32) -> None:
    """Check that a state one step before the end of an episode ends again after a restore."""
    env = make(num_envs)
    rng, seeds, everyone = np.random.default_rng(1), _Seeds(), np.arange(num_envs)
    found = 0
    while found < pairs:
        env.reset(everyone, seeds.take(num_envs))
        going = np.ones(num_envs, bool)
        last: dict[int, tuple[Snapshot, np.ndarray, Step]] = {}
        while going.any():
            snapshot, action = env.snapshot(everyone), random_actions(env, rng)
            step = env.step(action, going.copy())
            for row in np.flatnonzero(going & (step.terminated | step.truncated)):
                one = np.array([row])
                last[int(row)] = (take_rows(snapshot, one), action[one], take(step, one))
            going &= ~(step.terminated | step.truncated)
        for shift, where in ((0, "in place"), (1, "in another row")):
            actions = random_actions(env, rng)
            # In other environments at another time, so that an unchanged state cannot pass.
            env.reset(everyone, seeds.take(num_envs))
            for row, (snapshot, action, _) in last.items():
                target = (row + shift) % num_envs
                env.restore(np.array([target]), snapshot)
                actions[target] = action[0]
            again = env.step(actions)
            for row, (_, _, step) in last.items():
                target = np.array([(row + shift) % num_envs])
                assert_same_step(step, take(again, target), f"{where}, one step before the end")
        found += len(last)
    env.close()


def check_mask(make: Make, *, num_envs: int = 8, steps: int = 12) -> None:
    """Check that inactive environments do not change and do not affect active ones."""
    env, twin = make(num_envs), make(num_envs)
    rng, everyone = np.random.default_rng(2), np.arange(num_envs)
    observation = env.reset(everyone, everyone)
    twin.reset(everyone, everyone)
    idle = np.arange(0, num_envs, 2)
    active = np.ones(num_envs, bool)
    active[idle] = False
    snapshot = env.snapshot(idle)
    for action in random_actions(env, rng, steps):
        masked, full = env.step(action, active.copy()), twin.step(action)
        assert_same_step(take(masked, active), take(full, active), "beside idle rows")
        assert same(take(masked.observation, idle), take(observation, idle)), "idle rows moved"
        assert not masked.reward[idle].any(), "idle rows have a reward"
        assert not (masked.terminated | masked.truncated)[idle].any(), "idle rows ended"
        if (full.terminated | full.truncated).any():
            break
    assert same(dict(snapshot), dict(env.snapshot(idle))), "the state of idle rows changed"
    env.close()
    twin.close()


def check_seeds(make: Make, *, num_envs: int = 6, steps: int = 10) -> None:
    """Check that an episode is a function of its seed and actions alone.

    It does not depend on its index, on the batch size or on earlier episodes. A reset of some
    environments does not affect the others.
    """
    env, rng, everyone = make(num_envs), np.random.default_rng(3), np.arange(num_envs)
    first = env.reset(everyone, everyone)
    actions = random_actions(env, rng, steps)
    future = rollout(env, actions)
    order = rng.permutation(num_envs)
    again = env.reset(everyone, order)
    assert same(again, take(first, order)), "the same seed starts elsewhere in another row"
    for a, b in zip(future, rollout(env, actions[:, order]), strict=True):
        assert_same_step(take(a, order), b, "with the same seed in another row")
    alone = make(1)
    assert same(alone.reset(np.array([0]), np.array([2])), take(first, [2]))
    for a, b in zip(future, rollout(alone, actions[:, 2:3]), strict=True):
        assert_same_step(take(a, [2]), b, "in a batch of one")
    alone.close()
    env.reset(everyone, everyone)
    env.step(actions[0])
    others = env.snapshot(everyone[1:])
    assert same(env.reset(everyone[:1], everyone[:1]), take(first, everyone[:1]))
    assert same(dict(others), dict(env.snapshot(everyone[1:]))), "a reset changed other rows"
    env.close()


def check_handed_out(make: Make, *, num_envs: int = 4, steps: int = 6) -> None:
    """Check that arrays that a batch has returned are never written to again."""
    env, rng, everyone = make(num_envs), np.random.default_rng(4), np.arange(num_envs)
    kept = [env.reset(everyone, everyone)]
    copies = [[leaf.copy() for leaf in leaves(kept[0])]]
    start = env.snapshot(everyone)
    for action in random_actions(env, rng, steps):
        step = env.step(action)
        for part in (step.observation, step.reward, step.terminated, step.truncated):
            kept.append(part)
            copies.append([leaf.copy() for leaf in leaves(part)])
        kept.append(dict(env.info))
        copies.append([leaf.copy() for leaf in leaves(kept[-1])])
    snapshot = dict(env.snapshot(everyone))
    kept.append(snapshot)
    copies.append([leaf.copy() for leaf in leaves(snapshot)])
    kept.append(env.restore(everyone, start))
    copies.append([leaf.copy() for leaf in leaves(kept[-1])])
    env.step(random_actions(env, rng))
    kept.append(env.reset(everyone[:2], everyone[:2]))
    copies.append([leaf.copy() for leaf in leaves(kept[-1])])
    env.step(random_actions(env, rng))
    for part, copy in zip(kept, copies, strict=True):
        for leaf, before in zip(leaves(part), copy, strict=True):
            assert leaf.dtype == object or same(leaf, before), "an array was written to again"
    env.close()


def _put(observation: Any, rows: np.ndarray, new: Any) -> Any:
    if isinstance(observation, dict):
        return {name: _put(part, rows, new[name]) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_put(part, rows, n) for part, n in zip(observation, new, strict=True))
    observation = observation.copy()
    observation[rows] = new
    return observation
