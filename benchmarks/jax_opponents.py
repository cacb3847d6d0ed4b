"""Measures the speed of training on gymnax CartPole: Trellis against rejax's PPO.

    python -m benchmarks.jax_opponents --rejax-python build/rejax/bin/python --keep

Both have as many environments, steps per iteration and network units, fit their critics with as
many samples per gradient step, and pass over each batch as often. They train by turns, each in a
process of its own that has compiled before, so both meet the same machine. rejax needs a virtual
environment with a gymnax that it supports:

    python -m venv build/rejax
    build/rejax/bin/pip install rejax==0.1.3 'gymnax==0.0.9' six
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

OUT = Path("results/speed/jax_opponents.json")
ENVS, STEPS, HIDDEN, EPOCHS, MINIBATCH = 64, 64, (64, 64), 4, 256
GOAL = 1.0
"""Smallest ratio of steps per second, Trellis over rejax."""
SECONDS = 2.0
"""Length of a turn."""


def trellis_iterations() -> Iterator[Callable[[], None]]:
    """Yield a function that trains by one iteration with TRPO."""
    from trellis import config
    from trellis.runs.trainers import make_trainer

    settings = config.TrainConfig(
        "gymnax/CartPole-v1",
        policy=config.PolicyConfig(hidden=HIDDEN),
        sampling=config.SamplingConfig(num_envs=ENVS, steps_per_env=STEPS),
        estimation=config.EstimationConfig(
            critic_hidden=HIDDEN, critic_epochs=EPOCHS, critic_minibatch=MINIBATCH
        ),
    )
    trainer = make_trainer(settings)
    state = trainer.start()

    def iterate() -> None:
        nonlocal state
        state, _ = trainer.iterate(state)

    yield iterate


def rejax_iterations() -> Iterator[Callable[[], None]]:
    """Yield a function that trains by one iteration with rejax's PPO."""
    import jax
    import rejax

    suite: Any = rejax
    algorithm = suite.get_algo("ppo").create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": HIDDEN},
        num_envs=ENVS,
        num_steps=STEPS,
        num_epochs=EPOCHS,
        num_minibatches=ENVS * STEPS // MINIBATCH,
        normalize_observations=True,
        normalize_rewards=True,
    )
    state = algorithm.init_state(jax.random.PRNGKey(0))
    step = jax.jit(lambda state: algorithm.train_iteration(state))

    def iterate() -> None:
        nonlocal state
        state = jax.block_until_ready(step(state))

    yield iterate


KINDS = {"trellis": trellis_iterations, "rejax": rejax_iterations}


def serve(kind: str) -> None:
    """Train for a turn whenever a line comes in, and answer with steps per second."""
    iterate = next(KINDS[kind]())
    for _ in range(3):
        iterate()
    print("ready", flush=True)
    for _ in sys.stdin:
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            iterate()
            count += 1
        print(count * ENVS * STEPS / (time.perf_counter() - start), flush=True)


class Opponent:
    """A process that trains when it is asked to."""

    def __init__(self, python: str, kind: str):
        command = [python, "-m", "benchmarks.jax_opponents", "--serve", kind]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._read()  # "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended with code {self._process.wait()}")
        return line

    def turn(self) -> float:
        """Return the steps per second of one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(pythons: dict[str, str], turns: int) -> dict[str, Any]:
    """Return the median steps per second of both, and the median of the ratios of a turn."""
    opponents = {kind: Opponent(python, kind) for kind, python in pythons.items()}
    found: dict[str, list[float]] = {kind: [] for kind in opponents}
    for _ in range(turns):
        for kind, opponent in opponents.items():
            found[kind].append(opponent.turn())
    for opponent in opponents.values():
        opponent.close()
    ratios = [ours / theirs for ours, theirs in zip(found["trellis"], found["rejax"], strict=True)]
    return {
        "envs": ENVS,
        "steps_per_env": STEPS,
        "hidden": HIDDEN,
        "epochs": EPOCHS,
        "minibatch": MINIBATCH,
        "steps_per_second": {kind: median(rates) for kind, rates in found.items()},
        "turns": found,
        "ratio": median(ratios),
        "goal": GOAL,
    }


def main() -> None:
    """Measure, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rejax-python", default="build/rejax/bin/python")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help=f"write {OUT}")
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    figures = measure({"trellis": sys.executable, "rejax": args.rejax_python}, args.turns)
    for kind, rate in figures["steps_per_second"].items():
        print(f"{kind:<8} {rate:>12,.0f} steps per second")
    print(f"ratio {figures['ratio']:.2f}, goal {GOAL}")
    if args.keep:
        from benchmarks.wallclock import machine
        from trellis.reproduce.files import made_by, write_json

        made = made_by("python -m benchmarks.jax_opponents --keep")
        write_json(OUT, {**made, "machine": machine(), **figures})


if __name__ == "__main__":
    main()
