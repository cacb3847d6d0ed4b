"""Measures Atari: stepping, sampling and training over raw emulators.

The raw emulators run in as many processes as our workers (two per core), repeat random actions four
times and compute no frames. All competitors take turns.

    python -m benchmarks atari
"""

import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.environments import ratio, take_turns
from benchmarks.figure import Figure
from trellis import envs, presets
from trellis.config import SamplingConfig
from trellis.envs.atari.batch import AtariBatch
from trellis.policies.build import build_policy
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder
from trellis.training.trainer import Trainer

GAME, ROM = "ALE/Pong-v5", "pong"
NUM_ENVS, STEPS, ROUNDS = 64, 32, 9
RAW_ROUNDS = 3
"""Rounds of the raw emulators before and after an iteration."""

RAW = """
import sys, random
from trellis.envs.atari.game import AtariGame, emulator
rom, rows, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
emulators = [emulator(AtariGame(rom)) for _ in range(rows)]
numbers = [action.value for action in emulators[0].getMinimalActionSet()]
choose = random.Random(0).choice
print("ready", flush=True)
while sys.stdin.readline():
    for _ in range(steps):
        for ale in emulators:
            action = choose(numbers)
            for _ in range(4):
                ale.act(action)
            if ale.game_over():
                ale.reset_game()
    print("done", flush=True)
"""


class RawEmulators:
    """Processes that only emulate games."""

    def __init__(self, workers: int):
        rows = [NUM_ENVS // workers + (i < NUM_ENVS % workers) for i in range(workers)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", RAW, ROM, str(count), str(STEPS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for count in rows
        ]
        self._wait()

    def _wait(self) -> None:
        for process in self._processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("a process of raw emulators ended unexpectedly")

    def run(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        self._wait()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def drive(env: AtariBatch, actions: np.ndarray) -> None:
    """Step the lanes of a batch in turn, as samplers do."""
    for t in range(len(actions) + 1):
        for lane, rows in enumerate(env.lanes):
            if t > 0:
                step = env.receive(lane)
                ended = rows.start + np.flatnonzero(step.terminated | step.truncated)
                if ended.size:
                    env.reset(ended, ended + t)
            if t < len(actions):
                env.send(lane, actions[t, rows])


def speeds() -> list[Figure]:
    from ale_py.vector_env import AtariVectorEnv

    config = presets.resolve(GAME, "paper/atari-single-path")
    small, large = (
        AtariBatch(GAME, ROM, NUM_ENVS, preprocessing=p) for p in ("paper", "gymnasium")
    )
    factored = envs.make(GAME, NUM_ENVS, **config.env_options)
    _, encode = observation_encoder(factored.observation_space)
    policy = build_policy(config.policy, factored.observation_space, factored.action_space)
    theta = policy.init(np.random.default_rng(0))
    sampler = SinglePath(factored, policy, encode, SamplingConfig(steps_per_env=STEPS))
    paths = None

    def sample() -> None:
        nonlocal paths
        _, paths = sampler.collect(theta, lambda x: x, paths, 0)

    actions = np.random.default_rng(0).integers(6, size=(STEPS, NUM_ENVS))
    for env in (small, large):
        env.reset(np.arange(NUM_ENVS), np.arange(NUM_ENVS))
    workers = len(small.pids)
    raw = RawEmulators(workers)
    theirs = AtariVectorEnv(ROM, NUM_ENVS, num_threads=os.cpu_count() or 1)
    theirs.reset(seed=0)

    def drive_theirs() -> None:
        for action in actions:
            theirs.step(action)

    try:
        bare, paper, gymnasium, vector, sampling = take_turns(
            raw.run,
            lambda: drive(small, actions),
            lambda: drive(large, actions),
            drive_theirs,
            sample,
            rounds=ROUNDS,
        )
    finally:
        raw.close()
        theirs.close()
        for env in (small, large, factored):
            env.close()
    rate = NUM_ENVS * STEPS / np.median(bare)
    print(f"  raw emulators: {rate:,.0f} steps/s of four frames in {workers} processes")
    return [
        Figure("stepping Pong (paper) over raw emulators", ratio(bare, paper), 0.75, True),
        Figure("stepping Pong (gymnasium) over raw emulators", ratio(bare, gymnasium), 0.75, True),
        Figure(
            "stepping Pong (gymnasium) over AtariVectorEnv", ratio(vector, gymnasium), 1.0, True
        ),
        Figure("sampling Pong (paper) over raw emulators", ratio(bare, sampling), 0.5, True),
    ]


def iterations(preset: str, count: int) -> list[float]:
    """Return seconds of iterations of a preset over those of raw emulators for the same steps.

    The emulators run before and after every iteration. The first iteration compiles and is not
    counted.
    """
    trainer = Trainer(presets.resolve(GAME, preset))
    raw = RawEmulators(2 * (os.cpu_count() or 1))
    ratios = []
    try:
        state, metrics = trainer.iterate(trainer.start())
        for _ in range(count):
            before, (bare,) = metrics["steps"], take_turns(raw.run, rounds=RAW_ROUNDS)
            start = time.perf_counter()
            state, metrics = trainer.iterate(state)
            took = time.perf_counter() - start
            bare += take_turns(raw.run, rounds=RAW_ROUNDS)[0]
            steps = metrics["steps"] - before
            ratios.append(took / (np.mean(bare) / (NUM_ENVS * STEPS) * steps))
            sampling, update = metrics["seconds_sampling"], took - metrics["seconds_sampling"]
            print(f"  {preset}, {steps:,} steps: sampling {sampling:.2f} s, rest {update:.2f} s")
    finally:
        raw.close()
        trainer.close()
    return ratios


def training() -> list[Figure]:
    """Measure whole iterations of the presets."""
    paper = float(np.median(iterations("paper/atari-single-path", 1)))
    modern = float(np.median(iterations("modern/atari", 5)))
    name = "an iteration of paper/atari-single-path over raw emulators"
    return [
        Figure(name, paper, 3.3, at_least=False),
        Figure("training Pong (modern/atari) over raw emulators", 1 / modern, 0.35, True),
    ]


def run() -> list[Figure]:
    """Return all figures of this group."""
    return [*speeds(), *training()]
