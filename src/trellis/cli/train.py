"""`trellis train` and `trellis resume`."""

import contextlib
import functools
import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from trellis.cli.folder import Run, config_of
from trellis.cli.messages import asking, running, say

if TYPE_CHECKING:
    from trellis.config import TrainConfig
    from trellis.training.state import TrainState


def train(args: Sequence[str]) -> int:
    """Trains a policy: `trellis train ENV`, with every setting as an option."""
    with asking():
        from trellis.cli import train_options
        from trellis.runs.folder import require_empty, resume_command
        from trellis.runs.run import RunInterrupted
        from trellis.runs.run import train as run_training
        from trellis.runs.trainers import make_trainer

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
        from trellis.runs.run import resume as resume_training
        from trellis.runs.trainers import make_trainer

        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        config = config_of(run)
        say(f"Going on with {config.env}, seed {config.seed}, in {run}")
        _pin_threads(config)
        make = functools.partial(make_trainer, cluster=cluster, workers=workers)
    with running():
        state = resume_training(run, steps=steps, make_trainer=make)
    return _summary(run, state)


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


def _pin_threads(config: "TrainConfig") -> None:
    """One thread of XLA's for each shard, wherever it runs: with another number its sums may come
    in another order. A run of one shard, which stays on one machine, takes all cores."""
    if config.sampling.shards > 1:
        os.environ.setdefault("NPROC", "1")


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
