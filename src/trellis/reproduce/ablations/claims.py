"""The paper's sentences about TRPO's parts, and what the ablations found about each.

Verdicts are computed from the results. A variation gains what its final return is above the first
returns of the unchanged method.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.reproduce.files import Record

FALL = 0.5
"""Part of the unchanged method's gain by which a catastrophe lowers the return."""
NEARLY = 0.9
"""Part of the gain that counts as equally good."""
Rows = Sequence[Record]
Finding = tuple[str, bool | None]
"""A text, and whether the paper's claim holds; None if runs are too few or nothing was learned."""


def largest_fall(seen: np.ndarray) -> float:
    """Return how far a return falls below its best so far, at worst."""
    seen = seen[np.isfinite(seen)]
    return float(np.max(np.maximum.accumulate(seen) - seen, initial=0.0))


def _final(row: Record) -> float:
    return row["final_return"]["value"]


def _gain(row: Record, base: Record) -> float:
    return _final(row) - float(np.mean([run["first_return"] for run in base["runs"]]))


def _paper(rows: Rows) -> Record:
    return next(row for row in rows if row["is_the_paper"])


def _verdict(holds: bool, base: Record, rows: Rows) -> bool | None:
    """Return None if something has a single run, or if the base learned nothing."""
    few = any(len(row["runs"]) < 2 for row in (base, *rows))
    return None if few or _gain(base, base) <= 0 else holds


def _line_search(without: Rows, with_: Rows) -> Finding:
    base = _paper(with_)
    catastrophe = FALL * _gain(base, base)
    words, more, judged = [], [], []
    for row in without:
        partner = next(other for other in with_ if other["asked"] == row["asked"])
        shares = []
        for name, each in (("without", row), ("with", partner)):
            falls = sum(run["largest_fall"] >= catastrophe for run in each["runs"])
            largest = max(run["largest_kl"] for run in each["runs"]) / row["asked"]
            words.append(
                f"δ = {row['asked']:g}, {name}: largest step {largest:.2f} δ, catastrophes in"
                f" {falls} of {len(each['runs'])} runs, final return {_final(each):.1f}"
            )
            shares.append(falls / len(each["runs"]))
        more.append(shares[0] - shares[1])
        judged += [row, partner]
    return "; ".join(words), _verdict(max(more) > 0 and min(more) >= 0, base, judged)


def _cg(rows: Rows) -> Finding:
    base = _paper(rows)
    means = [row["mean_return"] for row in rows if row["value"] > base["value"]]
    words = [f"k = {row['value']:g}: {row['mean_return']['value']:.1f}" for row in rows]
    holds = None
    limit = base["mean_return"]["high"]  # None for a single seed.
    if limit is not None and all(mean["low"] is not None for mean in means):
        if any(mean["low"] > limit for mean in means):
            holds = False
        elif all(mean["value"] <= base["mean_return"]["value"] for mean in means):
            holds = True
    return "mean return over training, " + ", ".join(words), holds


def _fisher(rows: Rows) -> Finding:
    paper, full = _paper(rows), max(rows, key=lambda row: row["value"])
    words = [
        f"{row['value']:.0%}: final return {_final(row):.1f},"
        f" {np.mean([run['seconds_update'] for run in row['runs']]):.2f} s a step"
        for row in rows
    ]
    holds = _gain(paper, full) >= NEARLY * _gain(full, full)
    return "; ".join(words), _verdict(holds, full, [paper])


def _penalty(penalty: Rows, constraint: Rows) -> Finding:
    base = _paper(constraint)
    best = max(_gain(row, base) for row in (*constraint, *penalty))
    words, shares = [], []
    for name, group in (("constraint δ", constraint), ("penalty C", penalty)):
        good = sum(_gain(row, base) >= NEARLY * best for row in group)
        values = ", ".join(f"{row['value']:g}: {_final(row):.1f}" for row in group)
        words.append(
            f"{name}: {good} of {len(group)} values come within {1 - NEARLY:.0%} of the best way"
            f" ({values})"
        )
        shares.append(good / len(group))
    return "; ".join(words), _verdict(shares[0] > shares[1], base, (*constraint, *penalty))


CLAIMS: tuple[tuple[Callable[..., Finding], tuple[str, ...], str, str], ...] = (
    (
        *(_line_search, ("no-line-search", "max-kl"), "App. C"),
        "Without this line search, the algorithm occasionally computes large steps that cause a"
        " catastrophic degradation of performance",
    ),
    (
        *(_cg, ("cg-iterations",), "App. C.1"),
        "We found k = 10 to be quite effective, and using higher k did not result in faster policy"
        " improvement",
    ),
    (
        *(_fisher, ("fisher-fraction",), "App. C.1"),
        "Since the Fisher information matrix merely acts as a metric, it can be computed on a"
        " subset of the data without severely degrading the quality of the final step. Hence, we"
        " can compute it on 10% of the data",
    ),
    (
        *(_penalty, ("penalty", "max-kl"), "Sec. 6"),
        "Empirically, it is hard to robustly choose the penalty coefficient, so we use a hard"
        " constraint instead of a penalty",
    ),
)
"""How a claim is judged, the parts that it is about, its place in the paper, and its words."""


def claims(rows: Rows) -> list[dict[str, Any]]:
    """Return the verdicts on the claims whose parts were all run."""
    judged = []
    for judge, parts, section, paper in CLAIMS:
        groups = [[row for row in rows if row["group"] == part] for part in parts]
        if all(groups):
            found, holds = judge(*groups)
            about = {"group": parts[0], "section": section, "paper": paper}
            judged.append({**about, "found": found, "holds": holds})
    return judged
