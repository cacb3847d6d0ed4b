"""Packages a policy: the smallest folder that `SavedPolicy.load` opens, with its scores.

config.json      the settings of the run
checkpoints/     θ and the observation statistics, as safetensors
results.json     scores, commit and command
"""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis import strict_json
from trellis.analysis.commands import train_command
from trellis.checkpoint_format import CHECKPOINTS, read_versions
from trellis.policies.saved import SavedPolicy
from trellis.policies.saved_layout import describe
from trellis.runs import checkpoint
from trellis.runs.folder import RunFolderError, as_json, make_folder, write_config
from trellis.runs.log import METRICS
from trellis.runs.provenance import UNKNOWN
from trellis.safe_files import is_there, read_file, write_file
from trellis.strict_json import shown
from trellis.training.evaluation import Evaluation

CARD = "results.json"
"""File with the scores of a packaged policy."""
CARD_BYTES = 1 << 16
"""Largest results.json that is read."""


@dataclass(frozen=True)
class Card:
    """Scores of a policy and where it comes from."""

    env: str
    """Id of the environment."""
    mean_return: float
    """Mean return over the episodes."""
    std_return: float
    """Standard deviation of the returns."""
    episodes: int
    """Number of episodes that were played."""
    stochastic: bool
    """Whether actions were sampled instead of the most probable ones."""
    steps: int
    """Simulator steps of training."""
    seed: int
    """Seed of the run."""
    method: str
    """Method that trained the policy."""
    policy: str
    """Which policy of the run it is: last or best."""
    commit: str
    """Commit that trained the policy."""
    command: str
    """Command that trains the policy again."""

    @property
    def score(self) -> str:
        """Mean and standard deviation of the returns as text."""
        return f"{self.mean_return:,.1f} ± {self.std_return:,.1f}"


def make_card(saved: SavedPolicy, folder: Path, evaluation: Evaluation) -> Card:
    """Return the card of a policy from the run in `folder`."""
    versions = read_versions(folder / CHECKPOINTS)
    return Card(
        env=saved.config.env,
        mean_return=float(evaluation.mean_return),
        std_return=float(evaluation.std_return),
        episodes=evaluation.episodes,
        stochastic=saved.config.eval_drawn,
        steps=saved.steps,
        seed=saved.config.seed,
        method=saved.config.step.method,
        policy="best" if saved.is_best else "last",
        commit=shown(versions.get("commit", UNKNOWN), 40, quotes=False),
        command=shlex.join(train_command(saved.config)),
    )


def write_policy(saved: SavedPolicy, card: Card, folder: Path) -> None:
    """Write a policy and its card into a folder; a policy that is there is replaced.

    Raises:
        RunFolderError: The folder holds a training run.
    """
    if is_there(folder, METRICS):
        raise RunFolderError(f"{folder} holds a training run; choose another folder")
    make_folder(folder)
    values = {
        "iteration": saved.iteration,
        "steps": saved.steps,
        **describe(saved.spaces, saved.policy),
    }
    arrays = {"theta": saved.theta, **saved.observation_moments.to_arrays("observation_moments")}
    config = as_json(saved.config)
    checkpoint.save(folder / CHECKPOINTS, saved.iteration, arrays, values, keep=1, config=config)
    write_config(folder, saved.config)
    text = json.dumps(dataclasses.asdict(card), indent=2, ensure_ascii=False, allow_nan=False)
    write_file(folder, CARD, text.encode() + b"\n")


def read_card(folder: Path) -> Card:
    """Return the card of a packaged policy.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not a card.
    """
    values = strict_json.parse(read_file(folder, CARD, limit=CARD_BYTES))
    kinds = {field.name: field.type for field in dataclasses.fields(Card)}
    if not isinstance(values, Mapping) or values.keys() != kinds.keys():
        raise ValueError(f"{folder / CARD} is not a card: its names must be {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not _is_kind(values[name], kind):
            raise ValueError(f"{folder / CARD}: {name} is not valid, got {shown(values[name])}")
    return Card(**values)


def _is_kind(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind
