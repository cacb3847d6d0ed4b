"""The page of the experiment on action masks: counts, scores, claims and a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trellis.reproduce import page
from trellis.reproduce.files import Record, write_json
from trellis.reproduce.page import Claim, judge
from trellis.reproduce.variant_curves import LAST, last_score, plot_variants, steps_to

NAMES = {"mask": "action mask", "penalty": "penalty"}
FILES = {
    "masks.json": "Counts and scores of every run.",
    "runs.jsonl": "One JSON line per finished run: counts, curve and commit.",
    "curves.svg": "The figure.",
}
Runs = Mapping[str, Sequence[Record]]
"""Kept runs by variant."""


def write(out: Path, runs: Runs, made: Mapping[str, str]) -> None:
    """Write masks.json, the figure and the page."""
    target = max(last_score(run["curve"]) for run in runs["penalty"])
    rows = [
        {
            "variant": name,
            "seed": run["seed"],
            "steps": run["steps"],
            "illegal": run["illegal"],
            "first_score": run["curve"]["score"][0],
            "score": last_score(run["curve"]),
            "steps_to_target": steps_to(run["curve"], target),
        }
        for name, of_variant in runs.items()
        for run in of_variant
    ]
    write_json(out / "masks.json", {**made, "target": target, "rows": rows})
    curves = {NAMES[name]: [run["curve"] for run in kept] for name, kept in runs.items()}
    plot_variants(out / "curves.png", curves, ylabel="safe squares per episode")
    lines = [
        "# Action masks",
        "",
        "Minesweeper of jumanji has 100 squares, and a square can be opened once, so most of the"
        " 100 actions become illegal in the course of a game. One policy sees the game's own"
        " mask. The other has the same settings without the mask: an illegal action ends its"
        " episode and costs 1, by jumanji's own rule. Illegal actions are counted in every step of"
        " training.",
        "",
        *page.claims_table(claims(rows, target), "Claims"),
        "## Runs",
        "",
        "The score is the mean number of squares opened safely per episode, over the last"
        f" {LAST:.0%} of the steps; the first score is that of the first hundredth. The last column"
        " has the steps until the score of the best run with penalties was first reached. Random"
        " legal moves open 90 / 11 = 8.2 squares on average, so a part of the difference is there"
        " from the start. The score of the penalties' best run is below that of random legal moves,"
        " so only the final scores show what was learned.",
        "",
        *page.table(
            (
                *("policy", "seed", "steps", "illegal actions"),
                *("first score", "score", f"steps to {target:.1f}"),
            ),
            [_row(row) for row in rows],
        ),
        *page.picture("curves", "Safe squares per episode, with masks and with penalties"),
        "## Command",
        "",
        *page.commands([("masks.json", made)]),
    ]
    page.write(out, lines, FILES)


def claims(rows: Sequence[Record], target: float) -> list[Claim]:
    """Return the claims about masks, with their verdicts."""
    masked = [row for row in rows if row["variant"] == "mask"]
    others = [row for row in rows if row["variant"] == "penalty"]
    illegal, steps = sum(row["illegal"] for row in masked), sum(row["steps"] for row in masked)
    ours, theirs = ([row["steps_to_target"] or np.inf for row in part] for part in (masked, others))
    reached = np.isfinite(theirs).sum()
    return [
        Claim(
            "",
            "No illegal action is taken",
            judge([row["illegal"] == 0 for row in masked]),
            f"{illegal:,} of {steps:,} actions, {len(masked)} seeds",
            "[runs](#runs)",
        ),
        Claim(
            "",
            "A score is reached in fewer steps with masks than with penalties",
            judge([steps < min(theirs) for steps in ours]),
            f"{target:.1f} squares: {max(ours):,.0f} steps with masks; {min(theirs):,.0f} with"
            f" penalties ({reached} of {len(others)} runs)",
            "[runs](#runs)",
        ),
    ]


def _row(row: Record) -> list[str]:
    reached = row["steps_to_target"]
    return [
        NAMES[row["variant"]],
        str(row["seed"]),
        f"{row['steps']:,}",
        f"{row['illegal']:,}",
        f"{row['first_score']:.1f}",
        f"{row['score']:.1f}",
        page.BLANK if reached is None else f"{reached:,.0f}",
    ]
