"""The page of the robot that sees: returns, normalized scores, claims, a figure and a video."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.reproduce import page
from trellis.reproduce.files import Record, write_json
from trellis.reproduce.kept_runs import files_of
from trellis.reproduce.page import BLANK, Claim, judge
from trellis.reproduce.variant_curves import plot_variants

NAMES = {"both": "camera and joints", "joints": "joints alone", "state": "full state"}
FILES = {
    "seeing.json": "Returns and scores of every run.",
    "curves.svg": "The figure.",
    "reaching.mp4": "Eight episodes of the policy with a camera, seed 0.",
}
SEEING, BLIND = 0.8, 0.3
"""Smallest score with the camera, and largest score without it, that the claims allow."""
SEEDS = 3
"""Number of seeds that a verdict needs; with fewer the claim is undecided."""
Runs = Mapping[str, Sequence[Record]]
"""Kept runs by what the policy perceives."""


def write(out: Path, runs: Runs, made: Mapping[str, str]) -> None:
    """Write seeing.json, the figure and the page."""
    everyone = [run for kept in runs.values() for run in kept]
    random = float(np.mean([run["first_return"] for run in everyone])) if everyone else 0.0
    full = [run["mean_return"] for run in runs["state"]]
    rows = [_measure(senses, run, random, full) for senses in NAMES for run in runs[senses]]
    write_json(out / "seeing.json", {**made, "random": random, "rows": rows})
    curves = {NAMES[senses]: [run["curve"] for run in runs[senses]] for senses in NAMES}
    if everyone:
        label = "mean return of training episodes"
        plot_variants(out / "curves.png", curves, ylabel=label, of="returns")
    lines = [
        "# A robot that sees",
        "",
        "An arm with two joints reaches for a disc. Its camera takes a picture of 64×64 pixels in"
        " every step, and only the picture shows where the disc is. A score of 0 is the random"
        " policy (the first episodes of training), 1 is the mean of the runs with the full state."
        " All policies have the settings of the preset `modern/camera`.",
        "",
        *page.claims_table(claims(rows), "Claims"),
        "## Runs",
        "",
        f"The return of a random policy is {random:.2f}. Every final policy played 100 episodes.",
        "",
        *page.table(
            ("policy perceives", "seed", "steps", "mean return", "score", "minutes"),
            [_row(row) for row in rows],
        ),
        *(page.picture("curves", "Learning curves by what the policy perceives") if rows else []),
        *(["[Video of the policy with a camera](reaching.mp4)", ""] if _has_video(out) else []),
        "## Command",
        "",
        *page.commands([("seeing.json", made)]),
    ]
    page.write(out, lines, {**FILES, **files_of(out)})


def _has_video(out: Path) -> bool:
    return (out / "reaching.mp4").is_file()


def claims(rows: Sequence[Record]) -> list[Claim]:
    """Return the claims about seeing, with their verdicts."""
    scores = {senses: [row["score"] for row in rows if row["senses"] == senses] for senses in NAMES}
    known = {senses: [s for s in found if s is not None] for senses, found in scores.items()}

    def has_enough(senses: str) -> bool:
        return len(known[senses]) >= SEEDS

    def evidence(senses: str) -> str:
        shown = ", ".join(f"{score:.2f}" for score in known[senses])
        return f"scores {shown}" if shown else "no run"

    return [
        Claim(
            "",
            f"With its camera the robot reaches a score of at least {SEEING}",
            judge((score >= SEEING for score in known["both"]), enough_seeds=has_enough("both")),
            evidence("both"),
            "[runs](#runs)",
        ),
        Claim(
            "",
            f"Without pictures the same policy stays below {BLIND}",
            judge((score < BLIND for score in known["joints"]), enough_seeds=has_enough("joints")),
            evidence("joints"),
            "[runs](#runs)",
        ),
    ]


def _measure(senses: str, run: Record, random: float, full: Sequence[float]) -> dict[str, Any]:
    """Return a run with its normalized score, if the full state was trained."""
    score = None
    if full and np.mean(full) != random:
        score = float((run["mean_return"] - random) / (np.mean(full) - random))
    return {
        "senses": senses,
        "seed": run["seed"],
        "steps": run["steps"],
        "return": run["mean_return"],
        "score": score,
        "seconds": run["seconds"],
    }


def _row(row: Record) -> list[str]:
    return [
        NAMES[row["senses"]],
        str(row["seed"]),
        f"{row['steps']:,}",
        f"{row['return']:.2f}",
        BLANK if row["score"] is None else f"{row['score']:.2f}",
        f"{row['seconds'] / 60:.1f}",
    ]
