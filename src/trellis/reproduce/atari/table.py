"""Table 1 with our rows below the paper's: as numbers, as table.csv, and as a README.

Ours have the mean score over seeds of the mean over episodes; its 95% interval is over seeds, or
over the episodes of a single run. A score counts as above random actions where its interval lies
wholly above that of the random row that was measured by the same rules.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis.curves import short
from trellis.analysis.statistics import mean_interval
from trellis.presets.paper import ATARI_ITERATIONS, ATARI_STEPS_PER_ITERATION
from trellis.reproduce.atari.plans import GAMES, PRESETS

Record = Mapping[str, Any]
BLANK = "–"
PAPER = {
    "random": (354, 1.2, 0, -20.4, 157, 110, 179),
    "human (Mnih et al. 2013)": (7456, 31.0, 368, -3.0, 18900, 28010, 3690),
    "deep Q learning (Mnih et al. 2013)": (4092, 168.0, 470, 20.0, 1952, 1705, 581),
    "UCC-I (Guo et al. 2014)": (5702, 380, 741, 21, 20025, 2995, 692),
    "TRPO, single path": (1425.2, 10.8, 534.6, 20.9, 1973.5, 1908.6, 568.4),
    "TRPO, vine": (859.5, 34.2, 430.8, 20.9, 7732.5, 788.4, 450.2),
}
"""Table 1 of the paper, games in the order of `GAMES`."""
PAPER_STEPS = {
    "TRPO, single path": ATARI_ITERATIONS * ATARI_STEPS_PER_ITERATION["single-path"],
    "TRPO, vine": ATARI_ITERATIONS * ATARI_STEPS_PER_ITERATION["vine"],
}
"""Table 3."""


def label(run: Record) -> str:
    """The row that a run belongs to: its preset, and what it has otherwise."""
    words = [f"{key.split('.')[-1]}={short([value])[0]}" for key, value in run["differs"].items()]
    return ", ".join([run["preset"], *words])


def random_label(random: Record) -> str:
    """The row of random actions by some rules."""
    return f"random actions ({_options(random['env_options'])})"


def rows(runs: Sequence[Record], randoms: Sequence[Record]) -> list[dict[str, Any]]:
    """Our rows: random actions first, then the presets, each with a cell for every game it has."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(map(random_label, randoms)):
        here = [random for random in randoms if random_label(random) == name]
        cells = {random["game"]: _random_cell(random) for random in here}
        found.append({"row": name, "preset": None, "games": _in_order(cells)})
    order = {preset: index for index, preset in enumerate(PRESETS)}
    for name in dict.fromkeys(map(label, sorted(runs, key=lambda run: order[run["preset"]]))):
        here = [run for run in runs if label(run) == name]
        games = dict.fromkeys(run["game"] for run in here)
        cells = {g: _cell([run for run in here if run["game"] == g], randoms) for g in games}
        found.append({"row": name, "preset": here[0]["preset"], "games": _in_order(cells)})
    return found


def _in_order(cells: Mapping[str, Any]) -> dict[str, Any]:
    return {game: cells[game] for game in GAMES if game in cells}


def _random_cell(random: Record) -> dict[str, Any]:
    played = random["evaluation"]
    return {"mean_score": played["mean_score"], "interval_95": played["interval_95"]}


def _cell(runs: Sequence[Record], randoms: Sequence[Record]) -> dict[str, Any]:
    """The runs of one row in one game, seeds together."""
    seeds = [run["seed"] for run in runs]
    mean, low, high = mean_interval([run["evaluation"]["mean_score"] for run in runs])
    interval = [low, high] if len(runs) > 1 else runs[0]["evaluation"]["interval_95"]
    options = runs[0]["env_options"]
    reference = next(
        (r for r in randoms if r["game"] == runs[0]["game"] and r["env_options"] == options), None
    )
    return {
        "mean_score": mean,
        "interval_95": interval,
        "above_random": _above(interval, reference),
        "seeds": seeds,
        "steps": [run["steps"] for run in runs],
        "finished": all(run["finished"] for run in runs),
        "mean_minutes": float(np.mean([run["minutes"] for run in runs])),
    }


def _above(interval: Sequence[float | None], random: Record | None) -> bool | None:
    """Whether all of it is above all of the random row's; None where either is not known."""
    top = None if random is None else random["evaluation"]["interval_95"][1]
    return None if interval[0] is None or top is None else interval[0] > top


def table(results: Record) -> list[list[str]]:
    """Table 1, the paper's rows and ours, as words; the first row is the heading."""
    lines = [["", "from", "steps", *GAMES.values()]]
    for name, scores in PAPER.items():
        steps = count(PAPER_STEPS[name]) if name in PAPER_STEPS else BLANK
        lines.append([name, "the paper", steps, *(f"{score:g}" for score in scores)])
    for row in results["rows"]:
        cells = [row["games"].get(game) for game in GAMES]
        steps = [value for cell in cells if cell for value in cell.get("steps", ())]
        scores = [BLANK if cell is None else f"{cell['mean_score']:.1f}" for cell in cells]
        lines.append([row["row"], "here", _range(steps), *scores])
    return lines


def write(results: Record, out: Path) -> None:
    """table.csv and README.md, from the numbers in atari.json alone."""
    with (out / "table.csv").open("w", newline="", encoding="utf-8") as file:
        lines = table(results)
        csv.writer(file, lineterminator="\n").writerows([["row", *lines[0][1:]], *lines[1:]])
    (out / "README.md").write_text(_readme(results), encoding="utf-8")


def _readme(results: Record) -> str:
    settings = results["settings"]
    lines = ["# Atari, Table 1 and Figure 5", ""]
    lines += _commands(results["runs"])
    lines += _markdown(table(results))
    lines += [
        "",
        f"Scores of ours are means over {settings['episodes']} episodes of the last policy, actions"
        f" {settings['actions']}. Steps are the agent's. A run that is not finished stands with the"
        " steps that it has. Random actions are uniform, measured by the same rules.",
        "",
        "## Runs",
        "",
        *_markdown(_details(results)),
        "",
        "The 95% interval is over seeds, or over the episodes of a single run. It is above random"
        " where all of it is above the interval of random actions by the same rules.",
    ]
    if any(run["curve"]["steps"] for run in results["runs"]):
        lines += ["", "![Learning curves](curves.png)"]
    return "\n".join(lines) + "\n"


def _commands(runs: Sequence[Record]) -> list[str]:
    """What made the report on which runs."""
    made: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        made.setdefault((run["command"], run["commit"]), []).append(run["run"])
    lines: list[str] = []
    for (command, commit), names in made.items():
        lines += [f"`{command}`, reported by commit {commit} ({', '.join(names)}).", ""]
    return lines


def _details(results: Record) -> list[list[str]]:
    heading = ["preset", "game", "seeds", "steps", "finished", "score", "95% interval"]
    lines = [[*heading, "above random", "minutes"]]
    verdict = {True: "yes", False: "no", None: BLANK}
    for row in results["rows"]:
        if row["preset"] is None:
            continue
        for game, cell in row["games"].items():
            low, high = cell["interval_95"]
            lines.append(
                [
                    *(row["row"], GAMES[game], str(len(cell["seeds"])), _range(cell["steps"])),
                    *(verdict[cell["finished"]], f"{cell['mean_score']:.1f}"),
                    BLANK if low is None else f"{low:.1f} to {high:.1f}",
                    *(verdict[cell["above_random"]], f"{cell['mean_minutes']:.0f}"),
                ]
            )
    return lines


def _markdown(lines: Sequence[Sequence[str]]) -> list[str]:
    # Q*bert has a star, which is not to make the rest of the table slanted.
    text = [f"| {' | '.join(line)} |".replace("*", r"\*") for line in lines]
    return [text[0], f"|{'---|' * len(lines[0])}", *text[1:]]


def count(steps: float) -> str:
    """In few letters: 8.0M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if steps >= size:
            return f"{steps / size:.1f}{unit}"
    return f"{steps:g}"


def _range(steps: Sequence[int]) -> str:
    ends = list(dict.fromkeys(count(f(steps)) for f in (min, max))) if steps else [BLANK]
    return " to ".join(ends)


def _options(options: Mapping[str, Any]) -> str:
    return json.dumps(options, sort_keys=True).strip("{}").replace('"', "") or "as they are"
