"""`trellis train` and `trellis resume`."""

import collections
import contextlib
import os
import shlex
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trellis.cli import tracking
from trellis.cli.consent import (
    Import,
    TrustEnv,
    allow_env,
    import_modules,
    search_current_folder,
)
from trellis.cli.devices import (
    DeviceKind,
    choose_devices,
    describe_devices,
    require_device,
    require_shards,
    with_shards,
)
from trellis.cli.errors import require_writable, say, usage_errors
from trellis.cli.options import unset
from trellis.cli.runs import RunFolder, config_of
from trellis.cli.tracking import Trackers

if TYPE_CHECKING:
    from trellis.cli.train_options import Arguments
    from trellis.config import TrainConfig
    from trellis.training.base import TrainerBase
    from trellis.training.seeds import SeedsState
    from trellis.training.state import TrainState

NEXT_STEPS = {
    "eval": "evaluate the policy",
    "record": "record a video",
    "plot": "plot the learning curve",
}
"""Commands to suggest after training."""


def train(args: Sequence[str]) -> int:
    """Train a policy on an environment."""
    with usage_errors():
        from trellis.cli import train_options

        asked = train_options.parse(args)  # First, so that help and mistakes need not wait for JAX.
        from trellis.runs.folder import RunFolderError, require_empty
        from trellis.runs.run import closing
        from trellis.runs.run import train as run_training
        from trellis.runs.trainers import make_trainer
        from trellis.training.pace import Pace, fitted

        config, out = asked.settings, asked.out
        _require_workers(asked.workers)
        choose_devices(asked.device, asked.devices)
        config = with_shards(config, asked.devices, asked.chosen)
        _require_seeds(asked)
        _pin_threads(config)
        require_device(asked.device)
        if out is not None:
            require_empty(out)
            require_writable(out)
        named = config.env in args  # The user's own command line names it.
        if named:
            search_current_folder()
        if asked.config is not None:
            typed = {arg.partition("=")[0] for arg in args}
            options = {k: v for k, v in config.env_options.items() if k not in typed}
            trusted = asked.trust_env
            allow_env(config.env, options, asked.config, trust_env=trusted, named=named)
        callbacks = tracking.callbacks(asked.track)
        pace = Pace(config, None) if asked.config else fitted(config, asked.chosen)
        config = pace.config
        if asked.seeds is None:
            where = {"cluster": asked.cluster, "workers": asked.workers}
            made = make_trainer(config, **where, devices=asked.devices)
        else:
            made = _seeds_trainer(config, asked.seeds)
    with closing(made) as trainer:
        with usage_errors(OSError):
            seeds = "" if asked.seeds is None else f"-to-{config.seed + asked.seeds - 1}"
            out = out or new_folder(config.env, f"{config.seed}{seeds}")
        folder = out.absolute()  # An environment may change the working directory.
        each = f"{asked.seeds} seeds at once from" if asked.seeds else "seed"
        say(
            f"Training {config.env} with {config.step.method}: {config.total_steps:,} steps, {each}"
            f" {config.seed}, preset {config.preset or 'none'}"
        )
        if str(pace):
            say(str(pace))
        # The workers of a cluster have devices of their own.
        used = "" if asked.cluster else describe_devices(asked.device, asked.devices)
        if used:
            say(used)
        say(f"Run folder: {out} (stop with Ctrl-C, continue with `trellis resume`)")
        with usage_errors(ValueError, TypeError, ImportError, RunFolderError):
            if asked.seeds is not None:
                return _train_seeds(trainer, folder, out)
            state = run_training(trainer, folder, callbacks=callbacks)
    return _summary(folder, state, out)


def _require_seeds(asked: "Arguments") -> None:
    """Raise if `--seeds` is no number, or does not go with the other options."""
    from trellis.runs.seeds import MOST_SEEDS

    if asked.seeds is None:
        return
    if not 1 <= asked.seeds <= MOST_SEEDS:
        raise ValueError(f"seeds must be from 1 to {MOST_SEEDS:,}, got {asked.seeds}")
    others = {"--cluster": asked.cluster, "--track": asked.track, "--devices": asked.devices}
    for name, value in others.items():
        if value:
            raise ValueError(f"--seeds and {name} exclude each other; leave out one")


def _seeds_trainer(config: "TrainConfig", count: int) -> "TrainerBase[Any]":
    """Return the trainer of several seeds, from that of the settings on."""
    from trellis.training.seeds import SeedsTrainer

    return SeedsTrainer(config, range(config.seed, config.seed + count))


def _train_seeds(trainer: "TrainerBase[Any]", folder: Path, shown: Path) -> int:
    """Train several seeds at once, and print what they have reached."""
    from trellis.runs.seeds import train_seeds
    from trellis.training.seeds import SeedsTrainer

    assert isinstance(trainer, SeedsTrainer)
    return _seeds_summary(train_seeds(trainer, folder), shown)


def _seeds_summary(state: "SeedsState", shown: Path) -> int:
    """Print what the seeds of a folder have reached, and which commands come next."""
    best = [each.best_return for each in state.states]
    print(f"Trained {len(best)} seeds for {state.steps:,} steps each.")
    if min(best) > -float("inf"):
        print(f"Best evaluations: from {min(best):,.1f} to {max(best):,.1f}.")
    print("Next steps:")
    print(f"  {shlex.join(['trellis', 'plot', str(shown)])}  # plot the mean curve with its band")
    print(f"  {shlex.join(['trellis', 'compare', str(shown)])}  # interquartile mean and interval")
    return 0


def resume(
    run: RunFolder,
    *,
    steps: Annotated[int | None, unset("the total of the run")] = None,
    cluster: Annotated[str | None, unset("this process", metavar="local|auto|HOST:PORT")] = None,
    workers: Annotated[int | None, unset("one per CPU of the cluster")] = None,
    device: Annotated[DeviceKind | None, unset("JAX chooses", metavar="cpu|gpu|tpu")] = None,
    devices: Annotated[int | None, unset("one")] = None,
    track: Trackers = (),
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Continue a run from its last checkpoint, bit for bit.

    Args:
        steps: Total simulator steps, to extend a run.
        cluster: Where the shards run from now on, as for `trellis train`.
        workers: Number of Ray workers.
        device: Kind of device that learns.
        devices: Number of devices, as the run had them for the same bits.
    """
    with usage_errors():
        from trellis.checkpoint_format import CHECKPOINTS, CheckpointError, newest_iteration
        from trellis.envs.errors import EnvError
        from trellis.runs.folder import RunFolderError
        from trellis.runs.log_lines import LogError
        from trellis.runs.run import resume as resume_training
        from trellis.runs.seeds import is_group

        if steps is not None and steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        _require_workers(workers)
        choose_devices(device, devices)
        if is_group(run):
            if devices is not None:
                raise ValueError(f"{run} holds seeds that are trained at once: leave out --devices")
            require_device(device)
            return _resume_seeds(run, steps, cluster, track, import_, trust_env=trust_env)
        config = config_of(run)
        require_shards(config, devices)
        _pin_threads(config)
        require_device(device)
        callbacks = tracking.callbacks(track)
        import_modules(import_)
        allow_env(config.env, config.env_options, run, trust_env=trust_env)
        say(f"Resuming {config.env} with {config.step.method}, seed {config.seed}, in {run}")
        folder = run.absolute()  # An environment may change the working directory.
        before = newest_iteration(folder / CHECKPOINTS)
    invalid = (ValueError, TypeError, ImportError, MemoryError, EnvError)
    with usage_errors(*invalid, RunFolderError, CheckpointError, LogError):
        state = resume_training(
            folder,
            steps=steps,
            cluster=cluster,
            workers=workers,
            devices=devices,
            callbacks=callbacks,
        )
    if state.iteration == before:
        more = shlex.join(["trellis", "resume", str(run), "--steps", str(2 * config.total_steps)])
        say(f"This run had finished already. To extend it: {more}")
    return _summary(folder, state, run)


def _resume_seeds(
    run: Path,
    steps: int | None,
    cluster: str | None,
    track: Sequence[str],
    modules: Sequence[str],
    *,
    trust_env: bool,
) -> int:
    """Continue all seeds of a folder."""
    from trellis.checkpoint_format import CheckpointError
    from trellis.envs.errors import EnvError
    from trellis.runs.folder import RunFolderError
    from trellis.runs.log_lines import LogError
    from trellis.runs.seeds import resume_seeds, seed_folders

    if cluster or track:
        raise ValueError(
            f"{run} holds seeds that are trained at once: leave out --cluster, --track"
        )
    folders = seed_folders(run)
    config = config_of(folders[0])
    import_modules(modules)
    allow_env(config.env, config.env_options, run, trust_env=trust_env)
    say(f"Resuming {config.env} with {config.step.method}, {len(folders)} seeds, in {run}")
    invalid = (ValueError, TypeError, ImportError, MemoryError, EnvError)
    with usage_errors(*invalid, RunFolderError, CheckpointError, LogError):
        return _seeds_summary(resume_seeds(run.absolute(), steps=steps), run)


def new_folder(env_id: str, seed: int | str) -> Path:
    """Create and return runs/ENV-SEED-TIMESTAMP, with a number if that folder exists."""
    name = env_id.replace("/", "-").replace(":", "-")
    first = folder = Path("runs") / f"{name}-{seed}-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
        number += 1
        folder = first.with_name(f"{first.name}-{number}")


def _require_workers(workers: int | None) -> None:
    """Raise before Ray starts, which takes seconds."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


def _pin_threads(config: "TrainConfig") -> None:
    """Give each shard one XLA thread, because the order of sums depends on the number of threads.

    A run with one shard stays on one machine and uses all cores.
    """
    if config.sampling.shards > 1:
        os.environ.setdefault("NPROC", "1")


def _summary(folder: Path, state: "TrainState", shown: Path) -> int:
    """Print what the run in `folder` has reached and which commands with `shown` come next."""
    from trellis.runs.log import stream_metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opening the log has warned already.
        last = collections.deque(stream_metrics(folder), maxlen=1)
    final = last[0] if last else {}
    times = "1 iteration" if state.iteration == 1 else f"{state.iteration:,} iterations"
    print(f"Trained for {state.steps:,} steps in {times}.")
    mean, std = final.get("eval_return_mean"), final.get("eval_return_std")
    if isinstance(mean, float) and isinstance(std, float):
        print(
            f"Last evaluation: return {mean:,.1f} ± {std:,.1f}"
            f" (best evaluation {state.best_return:,.1f})."
        )
    print("Next steps:")
    for command, purpose in NEXT_STEPS.items():
        print(f"  {shlex.join(['trellis', command, str(shown)])}  # {purpose}")
    return 0
