"""Table 1 of the paper with our rows below: as numbers, as text and as table.csv.

Our scores are means over seeds of the mean over episodes. The 95% interval is over seeds, or over
the episodes of a single run. A score is above random if its whole interval lies above the interval
of random actions under the same rules.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis.labels import assignment, short
from trellis.analysis.statistics import mean_interval
from trellis.presets.paper import ATARI_ITERATIONS, ATARI_STEPS_PER_ITERATION
from trellis.reproduce import files
from trellis.reproduce.atari.plans import GAMES, PRESETS, RECIPES
from trellis.reproduce.files import Record
from trellis.reproduce.page import BLANK

PAPER = {
    "random": (354, 1.2, 0, -20.4, 157, 110, 179),
    "human (Mnih et al. 2013)": (7456, 31.0, 368, -3.0, 18900, 28010, 3690),
    "deep Q learning (Mnih et al. 2013)": (4092, 168.0, 470, 20.0, 1952, 1705, 581),
    "UCC-I (Guo et al. 2014)": (5702, 380, 741, 21, 20025, 2995, 692),
    "TRPO, single path": (1425.2, 10.8, 534.6, 20.9, 1973.5, 1908.6, 568.4),
    "TRPO, vine": (859.5, 34.2, 430.8, 20.9, 7732.5, 788.4, 450.2),
}
"""Table 1 of the paper, with the games in the order of `GAMES`."""
PAPER_STEPS = {
    "TRPO, single path": ATARI_ITERATIONS * ATARI_STEPS_PER_ITERATION["single-path"],
    "TRPO, vine": ATARI_ITERATIONS * ATARI_STEPS_PER_ITERATION["vine"],
}
"""Simulator steps in Table 3."""
PRESET_STEPS = {
    RECIPES["paper"]: PAPER_STEPS["TRPO, single path"],
    RECIPES["paper-vine"]: PAPER_STEPS["TRPO, vine"],
}
"""Simulator steps in Table 3, by preset."""


def label(run: Record) -> str:
    """Return the name of a run's row: its preset, its scale and the settings that differ."""
    words = [assignment(key, *short([value])) for key, value in run["differs"].items()]
    scale = run.get("scale", 1.0)  # Runs from before have no scale.
    return ", ".join([run["preset"], *([f"scale {scale:g}"] if scale != 1 else []), *words])


def part_of_table_3(preset: str, steps: Sequence[int]) -> str:
    """Return the simulator steps of some runs as a part of Table 3's; blank for our own recipe."""
    total = PRESET_STEPS.get(preset)
    if total is None:
        return BLANK
    ends = dict.fromkeys(f"{100 * end / total:.2g}%" for end in (min(steps), max(steps)))
    return " to ".join(ends)


def random_label(random: Record) -> str:
    """Return the name of the row of random actions under some rules."""
    return f"random actions ({_options(random['env_options'])})"


def find_random(randoms: Iterable[Record], game: str, options: Mapping[str, Any]) -> Record | None:
    """Return the result of random actions in a game under these rules, or None."""
    same = (r for r in randoms if r["game"] == game and r["env_options"] == options)
    return next(same, None)


def rows(runs: Sequence[Record], randoms: Sequence[Record]) -> list[dict[str, Any]]:
    """Return our rows with a cell per game: random actions first, then the presets.

    Runs of different planned steps are in different rows.
    """
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    ordered = sorted(runs, key=lambda run: PRESETS.index(run["preset"]))
    for name, record in (
        *((random_label(random), random) for random in randoms),
        *((label(run), run) for run in ordered),
    ):
        row = {"row": name, "preset": record.get("preset"), "games": {}}
        kind = name, record.get("planned_steps")
        found.setdefault(kind, row)["games"].setdefault(record["game"], []).append(record)
    for row in found.values():
        games = [game for game in GAMES if game in row["games"]]
        row["games"] = {game: _cell(row["games"][game], randoms) for game in games}
    return list(found.values())


def _cell(records: Sequence[Record], randoms: Sequence[Record]) -> dict[str, Any]:
    """Return the cell of one row and game, from random actions or from runs with other seeds."""
    first = records[0]
    score = mean_interval([record["evaluation"]["mean_score"] for record in records])
    interval = score.interval if len(records) > 1 else first["evaluation"]["interval_95"]
    cell = {"mean_score": score.value, "interval_95": interval}
    if "seed" not in first:
        return cell
    random = find_random(randoms, first["game"], first["env_options"])
    top = None if random is None else random["evaluation"]["interval_95"][1]
    return {
        **cell,
        "above_random": None if interval[0] is None or top is None else interval[0] > top,
        "seeds": [run["seed"] for run in records],
        "steps": [run["steps"] for run in records],
        "finished": all(run["finished"] for run in records),
        "mean_minutes": float(np.mean([run["minutes"] for run in records])),
    }


def table(results: Record) -> list[list[str]]:
    """Return Table 1 as text, with the heading in the first row, the paper's rows, then ours."""
    lines = [["", "from", "steps", *GAMES.values()]]
    for name, scores in PAPER.items():
        steps = count(PAPER_STEPS[name]) if name in PAPER_STEPS else BLANK
        lines.append([name, "the paper", steps, *(f"{score:g}" for score in scores)])
    for row in results["rows"]:
        cells = [row["games"].get(game) for game in GAMES]
        steps = [value for cell in cells if cell for value in cell.get("steps", ())]
        scores = [BLANK if cell is None else f"{cell['mean_score']:.1f}" for cell in cells]
        lines.append([row["row"], "here", steps_range(steps), *scores])
    return lines


def write(results: Record, out: Path) -> None:
    """Write table.csv from the numbers in atari.json."""
    heading, *lines = table(results)
    columns = ["row", *heading[1:]]
    rows = (dict(zip(columns, line, strict=True)) for line in lines)
    files.write_csv(out / "table.csv", columns, rows)


def count(steps: float) -> str:
    """Return a number of steps as a short text, such as 8.0M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if steps >= size:
            return f"{steps / size:.1f}{unit}"
    return f"{steps:g}"


def steps_range(steps: Sequence[int]) -> str:
    """Return the smallest and the largest number of steps as one short text."""
    ends = list(dict.fromkeys(count(f(steps)) for f in (min, max))) if steps else [BLANK]
    return " to ".join(ends)


def _options(options: Mapping[str, Any]) -> str:
    return json.dumps(options, sort_keys=True).strip("{}").replace('"', "") or "default rules"
