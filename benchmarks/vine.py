"""Measures the speed of vine sampling over a bare loop of the simulator.

The bare loop does only the physics. A vine iteration is recorded: which states were restored, and
which environments were stepped with which controls. A bare `Batch` repeats it, with trunks and
branches in batches of the same sizes. Both take turns, and the median over rounds is the result.

The bound is for a hopper halfway through the paper's 200 iterations. In the first iterations,
rollouts end after a dozen steps. Then most environments of the batch are masked, and trunks, 16
environments at a time, are a third of all steps. These figures are printed without a bound.

    python -m benchmarks.vine
"""

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.environments import mujoco_batch, ratio, take_turns
from benchmarks.figure import Figure
from trellis import envs, presets
from trellis.policies.build import build_policy
from trellis.sampling.samples import Samples
from trellis.sampling.vine import Vine
from trellis.spaces import observation_encoder
from trellis.training.trainer import Trainer

ENV = "trellis/PaperHopper-v0"
PRESET = "paper/hopper-vine"
LEARNED_FOR = (0, 25, 100)
"""Numbers of training iterations before the measurements."""


class Recorded:
    """Batch that records its physics: restored states and steps with controls, in order.

    Args:
        env: The batch.
    """

    def __init__(self, env: Any):
        self._env = env
        self.script: list[tuple[str, Any, np.ndarray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def _record_states(self, ids: np.ndarray, observation: Any) -> Any:
        self.script.append(("restore", ids, self._env.snapshot(ids)["state"]))
        return observation

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Any:
        return self._record_states(ids, self._env.reset(ids, seeds))

    def restore(self, ids: np.ndarray, snapshot: Any) -> Any:
        return self._record_states(ids, self._env.restore(ids, snapshot))

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Any:
        ids = None if active is None or active.all() else np.flatnonzero(active)
        controls = self._env.map_actions(actions)
        self.script.append(("step", ids, controls if ids is None else controls[ids]))
        return self._env.step(actions, active)

    def bare_loop(self) -> Callable[[], None]:
        """Return a function that repeats the recorded physics on a bare batch."""
        batch = mujoco_batch(self._env)
        state, ctrl, nstep = batch.state, batch.bind("ctrl"), self._env.options.frame_skip
        end = self._env.snapshot(np.arange(self._env.num_envs))["state"]

        def loop() -> None:
            for what, ids, values in self.script:
                if what == "restore":
                    state[ids] = values
                    continue
                if ids is None:
                    ctrl[:] = values
                else:
                    ctrl[ids] = values
                batch.step(ids, nstep=nstep)

        loop()
        if not np.array_equal(state, end):
            raise RuntimeError("the bare loop did not end in the same states as the environment")
        return loop


def learned() -> list[np.ndarray]:
    """Return θ after each number of iterations in `LEARNED_FOR`."""
    trainer = Trainer(presets.resolve(ENV, PRESET))
    state, found = trainer.start(), []
    for iterations in LEARNED_FOR:
        while state.iteration < iterations:
            state, _ = trainer.iterate(state)
        found.append(state.theta)
    trainer.close()
    return found


def collect(theta: np.ndarray, *, record: bool = False) -> tuple[Callable[[], Samples], list[Any]]:
    """Return a function that collects a vine iteration of the paper's size, and its batches."""
    config = presets.resolve(ENV, PRESET)
    made = []

    def make(num_envs: int) -> Any:
        env = envs.make(ENV, num_envs)
        made.append(Recorded(env) if record else env)
        return made[-1]

    env = make(config.sampling.paths)
    _, encode = observation_encoder(env.observation_space)
    policy = build_policy(config.policy, env.observation_space, env.action_space)
    sampler = Vine(env, make, policy, encode, config.sampling, gamma=config.estimation.gamma)
    return lambda: sampler.collect(theta, lambda x: x, None, 0)[0], made


def over_bare_batch(theta: np.ndarray) -> tuple[float, float]:
    """Return our speed over the bare loop's, and our simulator steps per second."""
    recorded, made = collect(theta, record=True)
    steps = recorded().steps
    loops = [env.bare_loop() for env in made]
    ours, _ = collect(theta)
    if ours().steps != steps:
        raise RuntimeError("two runs of one vine iteration differ")
    bare_seconds, our_seconds = take_turns(lambda: [loop() for loop in loops], ours, rounds=7)
    return ratio(bare_seconds, our_seconds), steps / median(our_seconds)


def run() -> list[Figure]:
    """Return all figures of this group."""
    *earlier, halfway = learned()
    share, speed = over_bare_batch(halfway)
    name = "paper hopper by vine"
    return [
        Figure(f"{name}, over the bare Batch loop", share, 0.7, at_least=True),
        Figure(f"{name}, thousand simulator steps per second", speed / 1000, None, at_least=True),
        *(
            Figure(f"{name}, after {after} iterations", over_bare_batch(theta)[0], None, True)
            for after, theta in zip(LEARNED_FOR, earlier, strict=False)
        ),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
