"""Writes the page and the figure of the wall-clock comparison from the kept blocks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import figures
from trellis.reproduce import page
from trellis.reproduce.page import BLANK

NAMES = {
    "trellis": "Trellis",
    "sb3-trpo": "sb3-contrib TRPO",
    "sb3-ppo": "SB3 PPO",
    "sbx-sac": "SBX SAC",
    "sbx-crossq": "SBX CrossQ",
}
RETURNS = {
    "Hopper-v5": (1_000, 2_000, 3_000),
    "Walker2d-v5": (1_000, 2_500, 4_000),
    "HalfCheetah-v5": (2_000, 4_000, 6_000),
    "Swimmer-v5": (100, 200, 340),
    "Ant-v5": (1_000, 2_500, 4_000),
}
"""Fixed returns whose minutes the table shows."""
GRID = 81
FILES = {"blocks": "One JSON file per task and seed: every evaluation of every opponent."}
Block = Mapping[str, Any]


def read_blocks(out: Path) -> list[Block]:
    """Return all kept blocks."""
    return [json.loads(path.read_text()) for path in sorted((out / "blocks").glob("*.json"))]


def curve(
    blocks: Sequence[Block], task: str, opponent: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return minutes and returns (seed, minute) of an opponent; None if it has not run."""
    found = [block for block in blocks if block["task"] == task and opponent in block["curves"]]
    if not found:
        return None
    minutes = np.linspace(0, min(block["minutes"] for block in found), GRID)
    rows = []
    for block in found:
        points = block["curves"][opponent]
        x = [point["seconds"] / 60 for point in points]
        rows.append(np.interp(minutes, x, [point["return"] for point in points]))
    return minutes, np.array(rows)


def targets_of(blocks: Sequence[Block]) -> dict[str, float]:
    """Return the mean return of sb3-contrib's TRPO at the end of its minutes, by task."""
    targets = {}
    for task in RETURNS:
        found = curve(blocks, task, "sb3-trpo")
        if found is not None:
            targets[task] = float(found[1][:, -1].mean())
    return targets


def minutes_to(blocks: Sequence[Block], task: str, target: float) -> dict[str, float | None]:
    """Return the minutes until the mean over seeds reaches a return; None if it never does."""
    result: dict[str, float | None] = {}
    for opponent in NAMES:
        found = curve(blocks, task, opponent)
        if found is None:
            continue
        reached = np.flatnonzero(found[1].mean(axis=0) >= target)
        result[opponent] = float(found[0][reached[0]]) if len(reached) else None
    return result


def write_page(out: Path) -> None:
    """Write the figure, the tables and the page."""
    blocks = read_blocks(out)
    tasks = [task for task in RETURNS if any(block["task"] == task for block in blocks)]
    here = [name for name in NAMES if any(name in block["curves"] for block in blocks)]
    plot(blocks, tasks, here, out / "wallclock.png")
    lengths = ", ".join(f"{m:g}" for m in sorted({block["minutes"] for block in blocks}))
    machines = "; ".join(sorted({block["machine"] for block in blocks}))
    commits = ", ".join(sorted({block["commit"] for block in blocks}))
    lines = [
        "# Return against minutes",
        "",
        f"Every opponent trains alone on all cores for the same time ({lengths} minutes). The clock"
        " counts training with compilation, and stops for evaluations: 10 episodes without"
        " exploration noise. An opponent that never reaches a return counts as slower.",
        "",
        *page.picture("wallclock", "Return against minutes of training"),
        "## Minutes to the return that sb3-contrib's TRPO has at the end",
        "",
        *page.table(
            ("task", "seeds", "return", *(NAMES[name] for name in here)),
            [
                (
                    task,
                    str(sum(block["task"] == task for block in blocks)),
                    f"{target:,.0f}",
                    *_cells(minutes_to(blocks, task, target), here),
                )
                for task, target in targets_of(blocks).items()
            ],
        ),
        "## Minutes to fixed returns",
        "",
        *page.table(
            ("task", "return", *(NAMES[name] for name in here)),
            [
                (task, f"{target:,}", *_cells(minutes_to(blocks, task, target), here))
                for task in tasks
                for target in RETURNS[task]
            ],
        ),
        "## Return at the end",
        "",
        *page.table(
            ("task", *(NAMES[name] for name in here)),
            [(task, *(_end(blocks, task, name) for name in here)) for task in tasks],
        ),
        "## Steps per second",
        "",
        *page.table(
            ("task", *(NAMES[name] for name in here)),
            [(task, *(_speed(blocks, task, name) for name in here)) for task in tasks],
        ),
        "## Command",
        "",
        "```sh",
        f"# {machines}; blocks by commits {commits}",
        "make bench WHAT=wallclock",
        "```",
        "",
    ]
    page.write(out, lines, FILES)


def plot(blocks: Sequence[Block], tasks: Sequence[str], names: Sequence[str], path: Path) -> None:
    """Write a panel per task: the mean over seeds, and the range of the seeds as a band."""
    columns = min(3, len(tasks))
    with figures.open_grid(path, len(tasks), columns=columns, svg=True) as (figure, axes):
        for axis, task in zip(axes, tasks, strict=True):
            for index, name in enumerate(names):
                found = curve(blocks, task, name)
                if found is None:
                    continue
                minutes, rows = found
                color = figures.COLORS[index]
                low, high = rows.min(axis=0), rows.max(axis=0)
                figures.plot_band(axis, minutes, rows.mean(axis=0), low, high, color=color)
                axis.plot([], [], color=color, label=NAMES[name])
            axis.set(title=task, xlabel="minutes of training")
        axes[0].legend(fontsize=7)
        figure.supylabel("return without exploration noise")


def _cells(minutes: Mapping[str, float | None], names: Sequence[str]) -> list[str]:
    def text(name: str) -> str:
        if name not in minutes:
            return BLANK
        found = minutes[name]
        return "never" if found is None else f"{found:.1f}"

    return [text(name) for name in names]


def _end(blocks: Sequence[Block], task: str, name: str) -> str:
    found = curve(blocks, task, name)
    return BLANK if found is None else f"{found[1][:, -1].mean():,.0f}"


def _speed(blocks: Sequence[Block], task: str, name: str) -> str:
    ends = [
        block["curves"][name][-1]
        for block in blocks
        if block["task"] == task and name in block["curves"]
    ]
    if not ends:
        return BLANK
    return f"{np.mean([point['steps'] / point['seconds'] for point in ends]):,.0f}"
