"""Runs of several seeds that are trained at once: one folder with a run folder per seed.

seeds.json       the seeds
seed-0/          the run of seed 0: settings, log and checkpoints, as of any other run
seed-1/          …

Each seed is an ordinary run for every command that reads runs. Checkpoints of all seeds are written
one after the other. A process may be killed in between, so all seeds continue from the newest
iteration of which every one of them has a whole checkpoint.
"""

import contextlib
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

from trellis.checkpoint_format import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointError,
    CheckpointWarning,
    MismatchError,
    checkpoint_folders,
)
from trellis.config import TrainConfig
from trellis.envs.consent import require_consent
from trellis.runs.folder import (
    RunFolderError,
    locked,
    make_folder,
    read_config,
    require_empty,
    write_config,
    write_whole,
)
from trellis.runs.kept_policies import keep_policy
from trellis.runs.log import RunLog
from trellis.runs.progress import make_progress
from trellis.runs.run import RunInterrupted, RunOptions, advance, closing, crossed
from trellis.runs.run_state import extended, load_state, read_checkpoint, save_state
from trellis.safe_files import is_there, read_file
from trellis.signals import stop_signals
from trellis.training.checkpoint_arrays import check_header
from trellis.training.seeds import SeedsState, SeedsTrainer, joined

SEEDS_FILE = "seeds.json"
"""File that names the seeds of a folder."""
SEEDS_BYTES = 1 << 20
"""Largest size of that file."""
MOST_SEEDS = 4096
"""Largest number of seeds that are trained at once."""


def is_group(folder: Path | str) -> bool:
    """Return whether a folder holds runs of several seeds that are trained at once."""
    return is_there(Path(folder), SEEDS_FILE)


def seed_folders(folder: Path | str) -> list[Path]:
    """Return the run folder of each seed, in the order of the seeds."""
    return [Path(folder) / f"seed-{seed}" for seed in read_seeds(folder)]


def read_seeds(folder: Path | str) -> list[int]:
    """Return the seeds of a folder.

    Raises:
        RunFolderError: The file is damaged.
    """
    path = Path(folder) / SEEDS_FILE
    try:
        values = json.loads(read_file(Path(folder), SEEDS_FILE, limit=SEEDS_BYTES))
        seeds = values["seeds"]
        valid = isinstance(seeds, list) and 0 < len(seeds) <= MOST_SEEDS
        if not valid or not all(type(seed) is int and seed >= 0 for seed in seeds):
            raise ValueError("seeds must be a list of numbers from 0")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from error
    return seeds


def expanded(folders: Sequence[Path]) -> list[Path]:
    """Return run folders, with the folders of all seeds in place of a folder of several."""
    found: list[Path] = []
    for folder in folders:
        found += seed_folders(folder) if is_group(folder) else [folder]
    return found


def train_seeds(
    trainer: SeedsTrainer, folder: Path | str, **options: Unpack[RunOptions]
) -> SeedsState:
    """Train all seeds in a new folder until the runs are over, and return the last states.

    Args:
        trainer: Trainer of all seeds. It stays open.
        folder: Folder to create.
        **options: See `RunOptions`. Callbacks get the means over seeds.
    """
    folder = Path(folder).absolute()
    require_empty(folder)
    state = trainer.start()
    make_folder(folder)
    with locked(folder):
        require_empty(folder)
        write_whole(folder / SEEDS_FILE, json.dumps({"seeds": list(trainer.seeds)}) + "\n")
        for each, one, mine in zip(
            trainer.trainers, state.states, seed_folders(folder), strict=True
        ):
            make_folder(mine)
            write_config(mine, each.config)
            save_state(each, mine, one)
        return _train(trainer, folder, state, **options)


def resume_seeds(
    folder: Path | str,
    *,
    steps: int | None = None,
    make_trainer: Callable[[TrainConfig, Sequence[int]], SeedsTrainer] | None = None,
    trust_env: bool = False,
    **options: Unpack[RunOptions],
) -> SeedsState:
    """Continue the runs of all seeds in a folder, bit for bit, and return the last states.

    Args:
        folder: Folder of several seeds.
        steps: Total number of steps to extend the runs to.
        make_trainer: Function that makes the trainer from settings and seeds, for runs whose
            environment has no id. Default: the trainer that the settings describe.
        trust_env: Whether to import the module that the runs name for their environment.
        **options: See `RunOptions`.
    """
    folder = Path(folder).absolute()
    with locked(folder):
        folders, seeds = seed_folders(folder), read_seeds(folder)
        missing = [mine for mine in folders if not (mine / CHECKPOINTS).is_dir()]
        if missing:
            raise RunFolderError(
                f"{missing[0]} has no checkpoint, because training stopped before it began: remove"
                f" {folder} and train again"
            )
        configs = [read_config(mine) for mine in folders]
        config = configs[0]
        if make_trainer is None:
            require_consent(config.env, config.env_options, folder, trusted=trust_env)
        saved = _newest_whole(folders, configs)
        first = extended(folders[0], config, saved[0], steps)
        trainer = (make_trainer or SeedsTrainer)(first, seeds)
        with closing(trainer):
            parts = zip(trainer.trainers, folders, saved, strict=True)
            state = joined([load_state(each, mine, one) for each, mine, one in parts])
            return _train(trainer, folder, state, **options)


def _newest_whole(
    folders: Sequence[Path], configs: Sequence[TrainConfig]
) -> list[Checkpoint | None]:
    """Return the checkpoints of the newest iteration that is whole in every seed.

    A warning names those that are damaged. A whole checkpoint that does not fit is an error.
    """
    damaged: list[str] = []
    for iteration in _common_iterations(folders):
        try:
            saved = [
                read_checkpoint(mine, of_seed, check_header, iteration)
                for of_seed, mine in zip(configs, folders, strict=True)
            ]
        except MismatchError:
            raise
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(
                f"{'; '.join(damaged)}. All seeds continue from iteration {iteration} instead.",
                CheckpointWarning,
                stacklevel=3,
            )
        return saved
    raise CheckpointError(
        f"the seeds in {folders[0].parent} have no whole checkpoint of one iteration in common:"
        f" {'; '.join(damaged)}"
    )


def _common_iterations(folders: Sequence[Path]) -> list[int]:
    """Return the iterations of which every seed has a checkpoint, newest first."""
    common: set[int] | None = None
    for folder in folders:
        names = [path.name for path in checkpoint_folders(folder / CHECKPOINTS)]
        mine = {int(name) for name in names if name.isdigit()}
        common = mine if common is None else common & mine
    if not common:
        raise CheckpointError(
            f"the seeds in {folders[0].parent} have no checkpoint of one iteration in common:"
            " continue each of them with trellis resume"
        )
    return sorted(common, reverse=True)


def _train(
    trainer: SeedsTrainer,
    folder: Path,
    state: SeedsState,
    *,
    quiet: bool = False,
    callbacks: Sequence[Any] = (),
    tensorboard: bool = True,
    log_interval: int | None = None,
) -> SeedsState:
    config: TrainConfig = trainer.config
    folders, begun = seed_folders(folder), (state.iteration, state.steps)
    with contextlib.ExitStack() as stack:
        for mine in folders:
            stack.enter_context(locked(mine))
        logs = [
            stack.enter_context(
                RunLog(mine, from_iteration=state.iteration, tensorboard=tensorboard)
            )
            for mine in folders
        ]
        progress = stack.enter_context(
            make_progress(config, begun, quiet=quiet, log_interval=log_interval)
        )
        signals = stack.enter_context(stop_signals(quiet=quiet))

        def write_logs(_: Any, __: dict[str, Any]) -> None:
            for log, row in zip(logs, trainer.rows, strict=True):
                log.write(row)

        def keep_policies(state: Any) -> None:
            if config.keep_policies:
                for each, mine, one in zip(trainer.trainers, folders, state.states, strict=True):
                    keep_policy(each, mine, one)

        def save_if_due(before: int, state: Any, going: bool) -> None:
            keep_policies(state)
            if not going or crossed(before, state.steps, config.checkpoint_every):
                trainer.hold_environments()
                for log, each, mine, one in zip(
                    logs, trainer.trainers, folders, state.states, strict=True
                ):
                    log.sync()
                    save_state(each, mine, one)

        keep_policies(state)
        last = advance(
            trainer,
            state,
            lambda state: config.is_over(state.iteration, state.steps),
            [write_logs, *callbacks, lambda _, row: progress.update(row)],
            config=config,
            folder=folder,
            eval_every=config.eval_every,
            should_stop=signals.check,
            after=save_if_due,
        )
    assert isinstance(last, SeedsState)
    if signals.received:
        raise RunInterrupted(last, folder, signals.received[0])
    return last
