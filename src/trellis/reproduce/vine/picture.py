"""Figure 1 of the paper from real states: the trunks and branches of one vine iteration.

The paper's hopper learns by vine for a while, so that its trunks are hops and not falls. Then a
small iteration is drawn by where its torso is: the trunks, the states of the rollout set on them,
and the rollouts that start there with common random numbers.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from trellis import envs, presets
from trellis.sampling.samples import Samples
from trellis.sampling.vine import Vine
from trellis.training.build import env_from_catalog
from trellis.training.trainer import Trainer

X, Z = 0, 1
"""Of the hopper's state: the torso's place along the way, and its height."""
FILE = "vine-branches.png"


class Filmed:
    """A batch that keeps what was seen in it since the last restore."""

    def __init__(self, env: envs.BatchEnv):
        self._env = env
        self.seen: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def restore(self, ids: np.ndarray, rows: Any) -> Any:
        self.seen = [self._env.restore(ids, rows)]
        return self.seen[0]

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Any:
        step = self._env.step(actions, active)
        self.seen.append(step.observation)
        return step


def collect(iterations: int, seed: int = 0, **vine: int) -> tuple[Samples, np.ndarray]:
    """One small iteration of a hopper that has learned: its samples, and the states along all
    rollouts, (time, K, N, ...); one that has ended stays where it is."""
    config = presets.resolve("trellis/PaperHopper-v0", "paper/hopper-vine")
    config = dataclasses.replace(config, seed=seed)
    trainer = Trainer(config)
    state = trainer.start()
    for _ in range(iterations):
        state, _ = trainer.iterate(state)
    small = dataclasses.replace(config.sampling.vine, **vine)
    make_env, filmed = env_from_catalog(config), []

    def make(num_envs: int) -> Any:
        filmed.append(Filmed(make_env(num_envs)))
        return filmed[-1]

    trunks = make_env(small.trunks)
    sampler = Vine(
        trunks,
        make,
        trainer.policy,
        trainer.encode,
        trunk_length=small.trunk_length,
        states=small.states,
        actions=small.actions,
        rollout_length=small.rollout_length,
        gamma=config.estimation.gamma,
        seed=seed,
    )
    samples, _ = sampler.collect(state.theta, lambda x: x, None, iterations)
    seen = np.stack(filmed[0].seen)
    sampler.close()
    trunks.close()
    trainer.close()
    return samples, seen.reshape(len(seen), small.actions, small.states, -1)


def draw(samples: Samples, rollouts: np.ndarray, path: Path) -> None:
    """Trunks as lines, the rollout set as dots, and a colour for each of a state's actions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    assert samples.branches is not None
    figure, axis = pyplot.subplots(figsize=(11, 4.5), layout="constrained")
    trunks = samples.raw_observation
    for trunk in range(trunks.shape[1]):
        begins = np.flatnonzero(samples.age[:, trunk] == 0)
        for part in np.split(trunks[:, trunk], begins[1:]):
            axis.plot(part[:, X], part[:, Z], color="0.35", linewidth=1.6, zorder=2)
    colors = [f"C{k}" for k in range(rollouts.shape[1])]
    for k, color in enumerate(colors):
        for n, length in enumerate(samples.branches.length[:, k]):
            way = rollouts[: length + 1, k, n]
            axis.plot(way[:, X], way[:, Z], color=color, linewidth=0.9, alpha=0.9, zorder=3)
    start = rollouts[0, 0]
    axis.plot(start[:, X], start[:, Z], "o", color="black", markersize=5, zorder=4)
    handles = [
        Line2D([], [], color="0.35", linewidth=1.6, label="trunks"),
        Line2D([], [], color="black", marker="o", linestyle="", label="rollout set"),
        *(
            Line2D([], [], color=color, label=f"rollout after action {k + 1}")
            for k, color in enumerate(colors)
        ),
    ]
    axis.legend(handles=handles, fontsize=8, loc="best")
    axis.set(xlabel="x of the torso (m)", ylabel="height of the torso (m)")
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def run(out: Path, iterations: int = 25) -> Path:
    """Writes the picture to the folder `out`; its path."""
    samples, rollouts = collect(
        iterations, trunks=3, trunk_length=100, states=10, actions=4, rollout_length=40
    )
    out.mkdir(parents=True, exist_ok=True)
    draw(samples, rollouts, out / FILE)
    return out / FILE


def main() -> None:
    """`python -m trellis.reproduce.vine.picture --out DIR [--iterations N]`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--iterations", type=int, default=25, help="of learning beforehand")
    arguments = parser.parse_args()
    print(f"wrote {run(arguments.out, arguments.iterations)}")


if __name__ == "__main__":
    main()
