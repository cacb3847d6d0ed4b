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

from trellis.cli.errors import say, usage_errors
from trellis.cli.runs import Run, config_of

if TYPE_CHECKING:
    from trellis.config import TrainConfig
    from trellis.training.state import TrainState


def train(args: Sequence[str]) -> int:
    """Train a policy: `trellis train ENV`, with every setting as an option."""
    with usage_errors():
        from trellis.cli import train_options
        from trellis.runs.folder import RunFolderError, require_empty
        from trellis.runs.run import closing
        from trellis.runs.run import train as run_training
        from trellis.runs.trainers import make_trainer

        asked = train_options.parse(args)
        config, out = asked.settings, asked.out
        if out is not None:
            require_empty(out)
        _pin_threads(config)
        made = make_trainer(config, cluster=asked.cluster, workers=asked.workers)
    with closing(made) as trainer:
        with usage_errors(OSError):
            out = (out or new_folder(config.env, config.seed)).absolute()
        say(
            f"Training {config.env} with {config.step.method} ({config.preset}), seed"
            f" {config.seed}, {config.total_steps:,} steps, in {out}"
        )
        with usage_errors(ValueError, TypeError, ImportError, RunFolderError):
            state = run_training(trainer, out)
    return _summary(out, state)


def resume(
    run: Run,
    *,
    steps: int | None = None,
    cluster: Annotated[str | None, tyro.conf.arg(metavar="local|auto|HOST:PORT")] = None,
    workers: int | None = None,
) -> int:
    """Resume a run, bit for bit, from its last checkpoint.

    Args:
        steps: Extends the run to this total number of simulator steps.
        cluster: Where its shards run from now on, as for `trellis train`.
        workers: Number of Ray workers. Default: one per CPU of the cluster.
    """
    with usage_errors():
        from trellis.runs.folder import RunFolderError
        from trellis.runs.run import resume as resume_training
        from trellis.runs.trainers import make_trainer

        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        config = config_of(run)
        say(f"Resuming {config.env}, seed {config.seed}, in {run}")
        _pin_threads(config)
        make = functools.partial(make_trainer, cluster=cluster, workers=workers)
        run = run.absolute()
    with usage_errors(ValueError, TypeError, ImportError, RunFolderError):
        state = resume_training(run, steps=steps, make_trainer=make)
    return _summary(run, state)


def new_folder(env_id: str, seed: int) -> Path:
    """Create and return runs/ENV-SEED-TIMESTAMP, with a number if another run has that name."""
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
    """Give each shard one XLA thread, wherever it runs: the order of sums depends on the number.

    A run of one shard stays on one machine and takes all cores.
    """
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
