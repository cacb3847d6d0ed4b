"""What each command of `trellis` does; `cli.py` calls them.

Options are their parameters, read by tyro. What is heavy (JAX, MuJoCo, matplotlib) is loaded by the
command that needs it. Results go to standard output, words about the work to standard error.
"""

import contextlib
import dataclasses
import functools
import json
import os
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from trellis.experiments.reproduce import reproduce
from trellis.messages import asking, running, say

if TYPE_CHECKING:
    from trellis.learners import Learner
    from trellis.runs.config import TrainConfig
    from trellis.runs.state import TrainState

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Folder of a run.")]
Flag = tyro.conf.FlagCreatePairsOff
Best = Annotated[Flag[bool], tyro.conf.arg(help="The policy that did best in evaluations.")]
Last = Annotated[Flag[bool], tyro.conf.arg(help="The policy of the last checkpoint (default).")]


def train(args: Sequence[str]) -> int:
    """Trains a policy: `trellis train ENV`, with every setting as an option."""
    with asking():
        from trellis import train_options
        from trellis.learners import make_trainer
        from trellis.runs.folder import require_empty, resume_command
        from trellis.runs.run import RunInterrupted
        from trellis.runs.run import train as run_training

        config, out, where = train_options.parse(args)
        if out is not None:
            require_empty(out)
        _pin_threads(config)
        trainer = make_trainer(config, cluster=where.cluster, workers=where.workers)
        out = out or new_folder(config.env, config.seed)
    try:
        say(
            f"Training {config.env} with {config.step.method} ({config.preset}), seed"
            f" {config.seed}, {config.total_steps:,} steps, in {out}"
        )
        with running():
            state = run_training(trainer, out)
    except RunInterrupted:
        raise
    except KeyboardInterrupt as stop:
        # A second Ctrl-C, which does not wait for the iteration's end.
        raise KeyboardInterrupt(
            f"stopped at once; go on from the last checkpoint with: {resume_command(out)}"
        ) from stop
    finally:
        trainer.close()
    return _summary(out, state)


def resume(
    run: Run,
    *,
    steps: int | None = None,
    cluster: Annotated[str | None, tyro.conf.arg(metavar="local|auto|HOST:PORT")] = None,
    workers: int | None = None,
) -> int:
    """Goes on with a run, bit for bit where its last checkpoint was.

    Args:
        steps: Extends the run to so many simulator steps in all.
        cluster: Where its shards go on, as for `trellis train`, wherever they ran before.
        workers: Of the cluster; as many as it has CPUs for, unless said.
    """
    with asking():
        from trellis.learners import make_trainer
        from trellis.runs.run import resume as resume_training

        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        config = _config(run)
        say(f"Going on with {config.env}, seed {config.seed}, in {run}")
        _pin_threads(config)
        make = functools.partial(make_trainer, cluster=cluster, workers=workers)
    with running():
        state = resume_training(run, steps=steps, make_trainer=make)
    return _summary(run, state)


def evaluate(
    run: Run,
    *,
    episodes: int = 20,
    best: Best = False,
    last: Last = False,
    json_: Annotated[Flag[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Evaluates the policy of a run, as its settings say: as a rule without exploration noise.

    Args:
        episodes: How many, from seeds that depend on the run's own alone.
        json_: Prints one JSON object and nothing else.
    """
    with asking():
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        trainer, state = _open(run, best, last)
    try:
        result = trainer.evaluate(state, episodes, best=best)
    finally:
        trainer.close()
    values = {
        "mean_return": result.mean_return,
        "std_return": result.std_return,
        "episodes": result.episodes,
        "mean_length": result.mean_length,
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        "env": trainer.config.env,
        "seed": trainer.config.seed,
        "policy": "best" if best and state.best_theta is not None else "last",
        "iteration": state.iteration,
        "steps": state.steps,
        "run": str(run),
    }
    if json_:
        print(json.dumps(values))
    else:
        print(
            f"{values['env']}, {values['policy']} policy of a run of {state.steps:,} steps:"
            f" return {result.mean_return:.1f} ± {result.std_return:.1f} over {result.episodes}"
            f" episodes of {result.mean_length:.0f} steps on average"
        )
    return 0


def record(
    run: Run,
    *,
    out: Path | None = None,
    episodes: int = 1,
    max_steps: int | None = None,
    seed: int = 0,
    best: Best = False,
    last: Last = False,
) -> int:
    """Makes a video of a run's policy, off screen.

    Args:
        out: The MP4 to write; RUN/video.mp4 by default.
        episodes: How many, one after the other.
        max_steps: After which an episode is cut off.
        seed: Of the first episode.
    """
    from trellis import video

    video.prepare_gl()
    with asking():
        import numpy as np

        from trellis import envs

        path = out or run / "video.mp4"
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, got {seed}")
        video.require(path, episodes=episodes, max_steps=max_steps)
        trainer, state = _open(run, best, last)
        config = trainer.config
        options = {**config.env_options, "render_mode": "rgb_array"}
        env = envs.make(config.env, 1, nthread=1, **options)
    act = trainer.player(state, np.random.default_rng(seed), best=best)
    say(f"Filming {episodes} episode{'s' * (episodes > 1)} of {config.env} …")
    try:
        film = video.record(env, act, path, episodes=episodes, max_steps=max_steps, seed=seed)
    finally:
        env.close()
        trainer.close()
    returns = ", ".join(f"{value:.1f}" for value in film.returns)
    print(f"{film.path}: {film.frames} frames at {film.fps:.4g} a second, return {returns}")
    return 0


def plot(
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help="Folders of runs."),
    ],
    *,
    out: Path = Path("curves.png"),
    x: Literal["steps", "seconds"] = "steps",
    evaluations: Flag[bool] = False,
) -> int:
    """Draws learning curves; runs that differ in their seed alone become a mean with a 95% band.

    Args:
        out: The picture to write.
        x: What the return is drawn against.
        evaluations: Draws the evaluations without noise instead of the training episodes.
    """
    with asking():
        from trellis import plots

        y = "eval_return_mean" if evaluations else "episode_return_mean"
        print(plots.draw(runs, out, x=x, y=y))
    return 0


def compare(
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help="Folders of runs."),
    ],
    *,
    training: Flag[bool] = False,
    json_: Annotated[Flag[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Compares final performance: interquartile means, 95% intervals, probability of improvement.

    Args:
        training: Takes the training episodes of the last tenth instead of the last evaluation.
        json_: Prints one JSON object and nothing else.
    """
    with asking():
        from trellis import compare_runs

        found = compare_runs.compare_runs(runs, training=training)
    if json_:
        print(json.dumps(found))
    else:
        compare_runs.show(found)
    return 0


def environments(*, all_: Annotated[Flag[bool], tyro.conf.arg(name="all")] = False) -> int:
    """Lists what can be trained here: fast batches first, then everything else.

    Args:
        all_: Also what needs a package that is not installed, with the line that installs it.
    """
    from trellis.envs import list_environments

    listed = list_environments()
    rows = [row for row in listed if all_ or not row.missing]
    width = max(len(row.env_id) for row in rows)
    for row in rows:
        how = f"{row.runs}; {row.restorable}"
        print(f"{row.env_id:<{width}}  {row.missing or how}")
    if len(rows) < len(listed):
        say(f"{len(listed) - len(rows)} more need a package: trellis envs --all")
    return 0


def list_presets() -> int:
    """Lists the named settings that a run can start from."""
    from trellis.runs.presets import PRESETS

    width = max(map(len, PRESETS))
    for name, preset in PRESETS.items():
        print(f"{name:<{width}}  {preset.about}")
    return 0


def doctor() -> int:
    """Tells what is installed here and whether it works; fails if something needed does not."""
    from trellis import doctor as checks

    return checks.report()


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "record": record,
    "plot": plot,
    "compare": compare,
    "reproduce": reproduce,
    "envs": environments,
    "presets": list_presets,
    "doctor": doctor,
}


def _pin_threads(config: "TrainConfig") -> None:
    """One thread of XLA's for each shard, wherever it runs: with another number its sums may come
    in another order. A run of one shard, which stays on one machine, takes all cores."""
    if config.sampling.shards > 1:
        os.environ.setdefault("NPROC", "1")


def new_folder(env_id: str, seed: int) -> Path:
    """runs/ENV-SEED-TIMESTAMP, with a number behind it where another run has begun in the same
    second."""
    name = env_id.replace("/", "-").replace(":", "-")
    first = folder = Path("runs") / f"{name}-{seed}-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
        number += 1
        folder = first.with_name(f"{first.name}-{number}")


def _config(run: Path) -> "TrainConfig":
    """The settings of a run whose environment has an id, so that it can be made again."""
    from trellis.agent import CALLABLE_PREFIX
    from trellis.runs.folder import read_config

    config = read_config(run)
    if config.env.startswith(CALLABLE_PREFIX):
        raise ValueError(
            f"{run} was trained on {config.env}, which the command line cannot make: load it from"
            " Python, with TRPO.load(path, env=…)"
        )
    return config


def _open(run: Path, best: bool, last: bool) -> tuple["Learner", "TrainState"]:
    """A run's policy, ready to act, without the environments that it was trained in."""
    from trellis.learners import make_trainer
    from trellis.runs import checkpoint
    from trellis.runs.config import SamplingConfig

    if best and last:
        raise ValueError("--best and --last exclude each other")
    config = _config(run)
    saved = checkpoint.load_latest(run / checkpoint.CHECKPOINTS)
    trainer = make_trainer(dataclasses.replace(config, sampling=SamplingConfig(1, 1)))
    arrays = {k: v for k, v in saved.arrays.items() if not k.startswith(("env/", "path/"))}
    state = trainer.thaw(arrays, saved.values)
    if best and state.best_theta is None:
        say(f"{run} has no evaluation yet: taking its last policy")
    return trainer, state


def _summary(folder: Path, state: "TrainState") -> int:
    from trellis.runs.log import read_metrics

    rows = read_metrics(folder)
    final = rows[-1] if rows else {}
    print(f"Trained for {state.steps:,} steps in {state.iteration:,} iterations.")
    if final.get("eval_return_mean") is not None:
        print(
            f"Evaluation: return {final['eval_return_mean']:.1f}"
            f" ± {final['eval_return_std']:.1f} (best {state.best_return:.1f})."
        )
    print("Next:")
    for command in ("eval", "record", "plot"):
        print(f"  {shlex.join(['trellis', command, str(folder)])}")
    return 0
