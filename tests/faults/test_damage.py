"""A damaged byte in any file of a run, or a file cut short, is noticed or changes nothing.

Noticed: an error, or a warning while the rest is used. Harmless: what was read is the same.
"""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trellis import SavedPolicy
from trellis.analysis.logged_run import LoggedRun
from trellis.checkpoint_format import load_latest
from trellis.config import TrainConfig
from trellis.runs.folder import read_config

FLIPS, TRUNCATIONS = 1_000, 64


def same(one: Any, other: Any) -> bool:
    """Whether two results of a reader are equal, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def _settings(folder: Path) -> Any:
    return read_config(folder)


def _log(folder: Path) -> Any:
    return LoggedRun(folder, TrainConfig("CartPole-v1")).rows


def _checkpoint(folder: Path) -> Any:
    return load_latest(folder / "checkpoints")


def _agent(folder: Path) -> Any:
    policy = SavedPolicy.load(folder)
    moments = policy.observation_moments
    return policy.config, policy.theta, moments.mean, moments.squares, policy.steps


KINDS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "settings": ("run", "config.json", _settings),
    "log": ("run", "metrics.jsonl", _log),
    "values of a checkpoint": ("run", "checkpoints/000002/values.json", _checkpoint),
    "arrays of a checkpoint": ("run", "checkpoints/000002/arrays.safetensors", _checkpoint),
    "settings of an agent": ("agent", "config.json", _agent),
    "values of an agent": ("agent", "checkpoints/000002/values.json", _agent),
    "arrays of an agent": ("agent", "checkpoints/000002/arrays.safetensors", _agent),
}
"""Folder, file and reader of each kind of damage."""


def outcome(folder: Path, read: Callable[[Path], Any], expected: Any) -> str:
    """How a reader takes a damaged folder: noticed, harmless, or silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read(folder)
        except (ValueError, OSError, RuntimeError) as error:
            return "noticed" if str(error) else "silent"
    if caught:
        return "noticed"
    return "harmless" if same(found, expected) else "silent"


def damage(kind: str, whole: Path, folder: Path, flips: int, truncations: int) -> dict[str, int]:
    """Damage a file in many ways, one at a time, and count the outcomes."""
    source, name, read = KINDS[kind]
    shutil.copytree(whole.with_name(source), folder)
    expected, data = read(folder), (folder / name).read_bytes()
    rng = np.random.default_rng(len(data))
    damaged = []
    for number in range(flips):
        changed = bytearray(data)
        mask = 1 << rng.integers(8) if number % 2 else rng.integers(1, 256)
        changed[rng.integers(len(data))] ^= int(mask)
        damaged.append(bytes(changed))
    ends = np.unique(np.linspace(0, len(data) - 1, truncations).astype(int))
    damaged += [data[:end] for end in ends]
    if name == "metrics.jsonl":  # Between two lines, nothing looks broken.
        lines = data.splitlines(keepends=True)
        damaged += [b"".join(lines[:end]) for end in range(len(lines))]
    counts = {"noticed": 0, "harmless": 0, "silent": 0}
    for changed in damaged:
        (folder / name).write_bytes(changed)
        counts[outcome(folder, read, expected)] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_little_damage_is_noticed(kind, good_agent, tmp_path):
    counts = damage(kind, good_agent, tmp_path / "copy", 25, 6)
    assert counts["silent"] == 0, counts


@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_noticed_or_harmless(kind, good_agent, tmp_path, trial):
    counts = damage(kind, good_agent, tmp_path / "copy", FLIPS, TRUNCATIONS)
    with trial(f"damage, {kind}", sum(counts.values())):
        assert counts["silent"] == 0, counts
        if kind != "settings of an agent":  # A copy for people, which nobody reads.
            assert counts["noticed"] > 0.8 * FLIPS, counts
