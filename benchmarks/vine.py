"""How much of the simulator's speed is left once a vine grows in it.

The rival does the same physics and nothing else: a vine iteration is recorded (which rows were put
where, which were stepped with which controls), and the bare `Batch` repeats it, trunks and branches
in batches of the same sizes. Both take turns, and the median of the rounds counts.

The bound is for a hopper halfway through the paper's 200 iterations. In the first ones rollouts end
after a dozen steps: the batch is mostly masked rows, and trunks, 16 rows at a time, are a third of
all steps. What is left then is printed as well.

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
"""Iterations."""


class Recorded:
    """A batch whose physics is written down: a list of (ids, states) and (ids, controls)."""

    def __init__(self, env: Any):
        self._env = env
        self.script: list[tuple[str, Any, np.ndarray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def _put(self, ids: np.ndarray, observation: Any) -> Any:
        self.script.append(("put", ids, self._env.snapshot(ids)["state"]))
        return observation

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Any:
        return self._put(ids, self._env.reset(ids, seeds))

    def restore(self, ids: np.ndarray, rows: Any) -> Any:
        return self._put(ids, self._env.restore(ids, rows))

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Any:
        ids = None if active is None or active.all() else np.flatnonzero(active)
        controls = self._env.map_actions(actions)
        self.script.append(("step", ids, controls if ids is None else controls[ids]))
        return self._env.step(actions, active)

    def bare_loop(self) -> Callable[[], None]:
        """The recorded physics once more, on a batch without anything around it."""
        batch = mujoco_batch(self._env)
        state, ctrl, nstep = batch.state, batch.bind("ctrl"), self._env.options.frame_skip
        end = self._env.snapshot(np.arange(self._env.num_envs))["state"]

        def loop() -> None:
            for what, ids, rows in self.script:
                if what == "put":
                    state[ids] = rows
                    continue
                if ids is None:
                    ctrl[:] = rows
                else:
                    ctrl[ids] = rows
                batch.step(ids, nstep=nstep)

        loop()
        if not np.array_equal(state, end):
            raise RuntimeError("the bare loop did not do the same physics")
        return loop


def learned() -> list[np.ndarray]:
    """θ after so many iterations each."""
    trainer = Trainer(presets.resolve(ENV, PRESET))
    state, found = trainer.start(), []
    for iterations in LEARNED_FOR:
        while state.iteration < iterations:
            state, _ = trainer.iterate(state)
        found.append(state.theta)
    trainer.close()
    return found


def collect(theta: np.ndarray, *, record: bool = False) -> tuple[Callable[[], Samples], list[Any]]:
    """A function that grows one vine iteration at the paper's numbers, and its batches."""
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
    """Our speed as a share of the bare loop's, and in simulator steps a second."""
    recorded, made = collect(theta, record=True)
    steps = recorded().steps
    loops = [env.bare_loop() for env in made]
    ours, _ = collect(theta)
    if ours().steps != steps:
        raise RuntimeError("two runs of one vine iteration differ")
    bare_seconds, our_seconds = take_turns(lambda: [loop() for loop in loops], ours, rounds=7)
    return ratio(bare_seconds, our_seconds), steps / median(our_seconds)


def run() -> list[Figure]:
    """All figures of this side."""
    *earlier, halfway = learned()
    share, speed = over_bare_batch(halfway)
    name = "paper hopper by vine"
    return [
        Figure(f"{name}, over the bare Batch loop", share, 0.7, at_least=True),
        Figure(f"{name}, thousand simulator steps a second", speed / 1000, None, at_least=True),
        *(
            Figure(f"{name}, after {after} iterations", over_bare_batch(theta)[0], None, True)
            for after, theta in zip(LEARNED_FOR, earlier, strict=False)
        ),
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
