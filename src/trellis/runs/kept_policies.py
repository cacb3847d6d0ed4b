"""The policy of every iteration of a run, kept in `policies/` for `trellis improvement`.

`policies/000123/` has the format of a checkpoint, with θ and the observation statistics alone. A
policy is written before the checkpoint of its iteration, so a run that was killed has every policy
up to its newest checkpoint. Policies of a future that a resumed run has left are removed.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path

from trellis.checkpoint_format import CheckpointError, Header, checkpoint_folders, load
from trellis.config import TrainConfig
from trellis.config.file import from_checkpoint
from trellis.policies.saved import SavedPolicy
from trellis.policies.saved_agent import require_same_settings
from trellis.policies.saved_layout import describe, read_layout
from trellis.runs.checkpoint import save
from trellis.runs.folder import as_json
from trellis.runs.run_state import AnyTrainer
from trellis.training.state import TrainState

POLICIES = "policies"
"""Folder of a run that holds the policy of every iteration."""
ALL = 10**9
"""Number of policies to keep: more than any run has iterations."""


def keep_policy(trainer: AnyTrainer, folder: Path, state: TrainState) -> None:
    """Write the policy of a state, and remove those of later iterations."""
    arrays = {"theta": state.theta, **state.observation_moments.to_arrays("observation_moments")}
    values = {"iteration": state.iteration, "steps": state.steps}
    values |= describe(trainer.model.spaces, trainer.policy)
    config = as_json(trainer.config)
    save(folder / POLICIES, state.iteration, arrays, values, keep=ALL, config=config)


def kept_iterations(folder: Path) -> list[int]:
    """Return the iterations after which a policy was kept, in order."""
    found = checkpoint_folders(folder / POLICIES)
    return [int(path.name) for path in found if path.name.isdigit()]


def load_kept(folder: Path, iteration: int, config: TrainConfig) -> SavedPolicy:
    """Return the policy of a run after an iteration, checked against its settings.

    Raises:
        CheckpointError: The policy is missing, damaged, or does not fit the settings.
    """

    def check(header: Header) -> Collection[str]:
        if header.config is None:
            raise CheckpointError("it has no settings")
        require_same_settings(folder, config, from_checkpoint(header.config, f"{path}"))
        return read_layout(header, config, None, None).expected

    path = folder / POLICIES / f"{iteration:06d}"
    saved = load(path, check)
    return dataclasses.replace(SavedPolicy.from_checkpoint(saved, config), iteration=iteration)
