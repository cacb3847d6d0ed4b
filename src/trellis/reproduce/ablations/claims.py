"""The paper's sentences about TRPO's parts, and what the ablations found about each.

Verdicts are computed. A "way" is how far training came: from the first return to the final one, as
a part of the same for the unchanged method. What counts is fixed in the constants below.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FALL = 0.5
"""A return that falls by so much of the unchanged method's way is a catastrophe."""
NEARLY = 0.9
"""Of the way: as good as."""

Row = Mapping[str, Any]


def claims(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the paper says of the parts that are here."""
    there = {row["group"] for row in rows}
    speaks_of = {
        _line_search: {"no-line-search", "max-kl"},
        _cg: {"cg-iterations"},
        _fisher: {"fisher-fraction"},
        _penalty: {"max-kl", "penalty"},
    }
    return [judge(rows) for judge, parts in speaks_of.items() if parts <= there]


def largest_fall(seen: np.ndarray) -> float:
    """How far a return falls below its best so far, at worst."""
    seen = seen[np.isfinite(seen)]
    return float(np.max(np.maximum.accumulate(seen) - seen, initial=0.0))


def _claim(group: str, place: str, paper: str, found: str, holds: bool | None) -> dict[str, Any]:
    """None: too few runs to say, or nothing was learned that could be degraded."""
    return {"group": group, "section": place, "paper": paper, "found": found, "holds": holds}


def _of(rows: Sequence[Row], group: str) -> list[Row]:
    return [row for row in rows if row["group"] == group]


def _final(row: Row) -> float:
    return row["final_return"]["value"]


def way(row: Row, base: Row) -> float:
    """How far a variation came, where the unchanged method came to 1."""
    return (_final(row) - _start(base)) / (_final(base) - _start(base))


def _learned(base: Row) -> bool:
    """Whether there is a way to measure others by."""
    return _final(base) > _start(base)


def _start(base: Row) -> float:
    return float(np.mean([run["first_return"] for run in base["runs"]]))


def _paper(rows: Sequence[Row]) -> Row:
    return next(row for row in rows if row["is_the_paper"])


def _are_few(rows: Sequence[Row]) -> bool:
    """A single run of anything says nothing about the next."""
    return any(len(row["runs"]) < 2 for row in rows)


def _line_search(rows: Sequence[Row]) -> dict[str, Any]:
    base = _paper(_of(rows, "max-kl"))
    catastrophe = FALL * (_final(base) - _start(base))
    words, more, few = [], [], _are_few([base])
    for row in _of(rows, "no-line-search"):
        partner = next(r for r in _of(rows, "max-kl") if r["asked"] == row["asked"])
        few = few or _are_few([row, partner])
        parts = []
        for name, each in (("without", row), ("with", partner)):
            falls = sum(run["largest_fall"] >= catastrophe for run in each["runs"])
            largest = max(run["largest_kl"] for run in each["runs"]) / row["asked"]
            words.append(
                f"δ = {row['asked']:g}, {name}: largest step {largest:.2f} δ, catastrophes in"
                f" {falls} of {len(each['runs'])} runs, final return {_final(each):.1f}"
            )
            parts.append(falls / len(each["runs"]))
        more.append(parts[0] - parts[1])
    return _claim(
        "no-line-search",
        "App. C",
        "Without this line search, the algorithm occasionally computes large steps that cause a"
        " catastrophic degradation of performance",
        "; ".join(words),
        None if few or not _learned(base) else max(more) > 0 and min(more) >= 0,
    )


def _cg(rows: Sequence[Row]) -> dict[str, Any]:
    group = _of(rows, "cg-iterations")
    base = _paper(group)
    more = [row for row in group if row["value"] > base["value"]]
    words = [f"k = {row['value']:g}: {row['mean_return']['value']:.1f}" for row in group]
    return _claim(
        "cg-iterations",
        "App. C.1",
        "We found k = 10 to be quite effective, and using higher k did not result in faster policy"
        " improvement",
        "mean return over training, " + ", ".join(words),
        _none_is_ahead(more, base),
    )


def _none_is_ahead(rows: Sequence[Row], base: Row) -> bool | None:
    """False if an interval of theirs is above all of the base's, open if only a mean is."""
    means = [row["mean_return"] for row in rows]
    limit = base["mean_return"]["high"]  # a single seed has none
    if limit is None or any(mean["low"] is None for mean in means):
        return None
    if any(mean["low"] > limit for mean in means):
        return False
    return True if all(mean["value"] <= base["mean_return"]["value"] for mean in means) else None


def _fisher(rows: Sequence[Row]) -> dict[str, Any]:
    group = _of(rows, "fisher-fraction")
    full = max(group, key=lambda row: row["value"])
    words = [
        f"{row['value']:.0%}: final return {_final(row):.1f},"
        f" {np.mean([run['seconds_update'] for run in row['runs']]):.2f} s a step"
        for row in group
    ]
    return _claim(
        "fisher-fraction",
        "App. C.1",
        "Since the Fisher information matrix merely acts as a metric, it can be computed on a"
        " subset of the data without severely degrading the quality of the final step. Hence, we"
        " can compute it on 10% of the data",
        "; ".join(words),
        None
        if _are_few([_paper(group), full]) or not _learned(full)
        else way(_paper(group), full) >= NEARLY,
    )


def _penalty(rows: Sequence[Row]) -> dict[str, Any]:
    constraint, penalty = _of(rows, "max-kl"), _of(rows, "penalty")
    base = _paper(constraint)
    best = max((*constraint, *penalty), key=_final)

    def good(group: Sequence[Row]) -> list[Row]:
        return [row for row in group if way(row, base) >= NEARLY * way(best, base)]

    words = [
        f"{name} {symbol}: {len(good(group))} of {len(group)} values come within {1 - NEARLY:.0%}"
        " of the best way ("
        + ", ".join(f"{row['value']:g}: {_final(row):.1f}" for row in group)
        + ")"
        for name, symbol, group in (("constraint", "δ", constraint), ("penalty", "C", penalty))
    ]
    return _claim(
        "penalty",
        "Sec. 6",
        "Empirically, it is hard to robustly choose the penalty coefficient, so we use a hard"
        " constraint instead of a penalty",
        "; ".join(words),
        None
        if _are_few([*constraint, *penalty]) or not _learned(base)
        else len(good(constraint)) / len(constraint) > len(good(penalty)) / len(penalty),
    )
