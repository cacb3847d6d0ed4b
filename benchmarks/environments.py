"""Measures the speed of MuJoCo environments over a bare loop of the simulator.

The bare loop does the same physics: it repeats the environment's run with the same controls, and
restores the same states where an episode ended. All competitors take turns, and the median over
rounds is the result.

    python -m benchmarks.environments
"""

import time
from collections.abc import Callable
from statistics import median

import gymnasium
import numpy as np

from benchmarks.figure import Figure
from trellis.envs.mujoco import paper, v5
from trellis.envs.mujoco.batch import MujocoBatch

ROUNDS = 25


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def take_turns(*runs: Callable[[], object], rounds: int = ROUNDS) -> list[list[float]]:
    """Return the seconds of every run in every round, interleaved, without a warm-up round."""
    times = [[seconds(run) for run in runs] for _ in range(rounds + 1)]
    return [list(column) for column in zip(*times[1:], strict=True)]


def ratio(rival: list[float], ours: list[float]) -> float:
    """Return our speed over the rival's, the median over rounds."""
    return median(r / o for r, o in zip(rival, ours, strict=True))


def random_actions(env: MujocoBatch, steps: int) -> np.ndarray:
    shape = steps, env.num_envs, *env.action_space.shape  # pyright: ignore
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def drive(env: MujocoBatch, actions: np.ndarray, restored: list | None = None) -> None:
    """Execute all actions, starting a new episode whenever one ends.

    Args:
        env: The batch.
        actions: Actions, (time, env, ...).
        restored: List to which the environments that were reset and their states are appended.
    """
    next_seed = env.num_envs
    env.reset(np.arange(env.num_envs), np.arange(env.num_envs))
    for action in actions:
        step = env.step(action)
        ended = np.flatnonzero(step.terminated | step.truncated)
        if ended.size:
            env.reset(ended, np.arange(next_seed, next_seed + ended.size))
            next_seed += ended.size
        if restored is not None:
            restored.append((ended, env.snapshot(ended)["state"]))


def bare_loop(env: MujocoBatch, actions: np.ndarray) -> Callable[[], None]:
    """Return a function that does only the physics of `drive(env, actions)`."""
    restored: list = []
    env.reset(np.arange(env.num_envs), np.arange(env.num_envs))
    start = env.snapshot(np.arange(env.num_envs))["state"]
    drive(env, actions, restored)
    end = env.snapshot(np.arange(env.num_envs))["state"]

    batch = mujoco_batch(env)
    state, ctrl, nstep = batch.state, batch.bind("ctrl"), env.options.frame_skip

    def loop() -> None:
        state[:] = start
        for action, (ended, states) in zip(actions, restored, strict=True):
            ctrl[:] = action
            batch.step(nstep=nstep)
            if ended.size:
                state[ended] = states

    loop()
    if not np.array_equal(state, end):
        raise RuntimeError("the bare loop did not end in the same states as the environment")
    return loop


def mujoco_batch(env: MujocoBatch):
    from mujoco.batch import Batch

    return Batch(env.model, env.num_envs)


def overhead(name: str, env: MujocoBatch, steps: int, bound: float) -> Figure:
    actions = random_actions(env, steps)
    bare, ours = take_turns(bare_loop(env, actions), lambda: drive(env, actions))
    return Figure(name, ratio(bare, ours), bound, at_least=True)


def hopper(num_envs: int) -> MujocoBatch:
    return MujocoBatch("Hopper-v5", v5.TASKS["Hopper-v5"], num_envs)


def hopper_over_bare_batch(num_envs: int) -> Figure:
    env = hopper(num_envs)
    name = f"Hopper-v5, {num_envs} environments, over the bare Batch loop"
    return overhead(name, env, 12_800 // num_envs, 0.9)


def paper_hopper_over_bare_batch() -> Figure:
    env_id = "trellis/PaperHopper-v0"
    env = MujocoBatch(env_id, paper.TASKS[env_id], 256)
    return overhead("paper hopper, 256 environments, over the bare Batch loop", env, 200, 0.8)


def hopper_over_sync_vector_env() -> Figure:
    env = hopper(64)
    actions = random_actions(env, 30)
    rival = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("Hopper-v5")] * 64)

    def step_rival() -> None:
        rival.reset(seed=0)
        for action in actions:
            rival.step(action)

    theirs, ours = take_turns(step_rival, lambda: drive(env, actions), rounds=5)
    rival.close()
    return Figure(
        "Hopper-v5, 64 environments, all cores, over SyncVectorEnv", ratio(theirs, ours), 2.5, True
    )


def over_gymnasium(env_id: str, num_envs: int = 32) -> Figure:
    """Return the speed of a batch over one environment of Gymnasium, both with random actions."""
    env = MujocoBatch(env_id, v5.TASKS[env_id], num_envs)
    actions = random_actions(env, 8)
    rival = gymnasium.make(env_id)
    high = env.action_space.high  # pyright: ignore

    def step_rival() -> None:
        rival.reset(seed=0)
        for action in actions.reshape(-1, actions.shape[-1])[: 4 * num_envs]:
            _, _, terminated, truncated, _ = rival.step(action * high)
            if terminated or truncated:
                rival.reset()

    theirs, ours = take_turns(step_rival, lambda: drive(env, actions), rounds=9)
    rival.close()
    name = f"{env_id}, {num_envs} environments, all cores, over one of Gymnasium"
    return Figure(name, 2 * ratio(theirs, ours), 1.8, at_least=True)


def run() -> list[Figure]:
    """Return all figures of this group."""
    return [
        hopper_over_bare_batch(64),
        hopper_over_bare_batch(256),
        hopper_over_sync_vector_env(),
        paper_hopper_over_bare_batch(),
        over_gymnasium("Ant-v5"),
        over_gymnasium("Humanoid-v5"),
        over_gymnasium("HumanoidStandup-v5"),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
