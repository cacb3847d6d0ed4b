"""`trellis train` and `trellis resume`."""

import collections
import contextlib
import os
import shlex
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from trellis.cli.consent import (
    Import,
    TrustEnv,
    allow_env,
    import_modules,
    search_current_folder,
)
from trellis.cli.errors import say, usage_errors
from trellis.cli.runs import Run, config_of

if TYPE_CHECKING:
    from trellis.config import TrainConfig
    from trellis.training.state import TrainState


def train(args: Sequence[str]) -> int:
    """Train a policy: `trellis train ENV`, with every setting as an option."""
    with usage_errors():
        from trellis.cli import train_options
        from trellis.runs.folder import RunFolderError, require_empty, resume_command
        from trellis.runs.run import RunInterrupted
        from trellis.runs.run import train as run_training
        from trellis.runs.trainers import make_trainer

        asked = train_options.parse(args)
        config, out = asked.settings, asked.out
        if out is not None:
            require_empty(out)
        if config.env in args:  # The user's own command line names it.
            search_current_folder()
        elif asked.config is not None:
            allow_env(config.env, config.env_options, asked.config, trust_env=asked.trust_env)
        _pin_threads(config)
        trainer = make_trainer(config, cluster=asked.cluster, workers=asked.workers)
        out = out or new_folder(config.env, config.seed)
    try:
        say(
            f"Training {config.env} with {config.step.method} ({config.preset}), seed"
            f" {config.seed}, {config.total_steps:,} steps, in {out}"
        )
        with usage_errors(ValueError, TypeError, ImportError, RunFolderError):
            state = run_training(trainer, out)
    except RunInterrupted:
        raise
    except KeyboardInterrupt as stop:
        # A second Ctrl-C, which does not wait for the iteration's end.
        raise KeyboardInterrupt(
            f"stopped at once; resume from the last checkpoint with: {resume_command(out)}"
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
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Resume a run, bit for bit, from its last checkpoint.

    Args:
        steps: Extends the run to this total number of simulator steps.
        cluster: Where its shards run from now on, as for `trellis train`.
        workers: Number of Ray workers. Default: one per CPU of the cluster.
    """
    with usage_errors():
        from trellis.checkpoint_format import CheckpointError
        from trellis.runs.folder import RunFolderError
        from trellis.runs.log import LogError
        from trellis.runs.run import resume as resume_training

        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        config = config_of(run)
        import_modules(import_)
        allow_env(config.env, config.env_options, run, trust_env=trust_env)
        say(f"Resuming {config.env}, seed {config.seed}, in {run}")
        _pin_threads(config)
    invalid = (ValueError, TypeError, ImportError, MemoryError)
    with usage_errors(*invalid, RunFolderError, CheckpointError, LogError):
        state = resume_training(run, steps=steps, cluster=cluster, workers=workers)
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
    from trellis.runs.log import stream_metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opening the log has warned already.
        last = collections.deque(stream_metrics(folder), maxlen=1)
    final = last[0] if last else {}
    print(f"Trained for {state.steps:,} steps in {state.iteration:,} iterations.")
    mean, std = final.get("eval_return_mean"), final.get("eval_return_std")
    if isinstance(mean, float) and isinstance(std, float):
        print(f"Evaluation: return {mean:.1f} ± {std:.1f} (best {state.best_return:.1f}).")
    print("Next:")
    for command in ("eval", "record", "plot"):
        print(f"  {shlex.join(['trellis', command, str(folder)])}")
    return 0
