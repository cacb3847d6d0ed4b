"""The paper's claims about TRPO's parts, and what the ablations found about each of them.

Verdicts are computed from the results. The gain of a variation is its final return minus the first
return of the unchanged method.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trellis.reproduce.files import Record
from trellis.reproduce.page import judge

FALL = 0.5
"""Part of the unchanged method's gain that a catastrophe loses."""
NEARLY = 0.9
"""Part of the best gain that counts as equally good."""
Rows = Sequence[Record]


class Finding(NamedTuple):
    """What was found about a claim."""

    evidence: str
    """What was found, in at most 15 words."""
    holds: bool | None
    """Whether the claim holds; None if the runs are too few or the base learned nothing."""
    cases: list[dict[str, str]]
    """One row per variation, by the headings of a table."""


def largest_fall(seen: np.ndarray) -> float:
    """Return the largest drop of a return below its best value so far."""
    seen = seen[np.isfinite(seen)]
    return float(np.max(np.maximum.accumulate(seen) - seen, initial=0.0))


def _final(row: Record) -> float:
    return row["final_return"]["value"]


def _gain(row: Record, base: Record) -> float:
    return _final(row) - float(np.mean([run["first_return"] for run in base["runs"]]))


def _reaches(row: Record, base: Record, gain: float) -> bool | None:
    """Return whether the gain of a variation is at least `gain`; None if its interval has both."""
    interval, start = row["final_return"], _final(base) - _gain(base, base)
    if interval["low"] is None or interval["high"] is None:
        return None
    if interval["low"] - start >= gain:
        return True
    return False if interval["high"] - start < gain else None


def _paper(rows: Rows) -> Record:
    return next(row for row in rows if row["is_the_paper"])


def _verdict(holds: bool | None, base: Record, rows: Rows) -> bool | None:
    """Return None if a variation has a single run, or if the base learned nothing."""
    few = any(len(row["runs"]) < 2 for row in (base, *rows))
    return None if few or _gain(base, base) <= 0 else holds


def _line_search(without: Rows, with_: Rows) -> Finding:
    base = _paper(with_)
    catastrophe = FALL * _gain(base, base)
    cases, more, judged, largest_kl = [], [], [], []
    totals = {"without": [0, 0], "with": [0, 0]}
    for row in without:
        partner = next(other for other in with_ if other["asked"] == row["asked"])
        shares = []
        for name, each in (("without", row), ("with", partner)):
            falls = sum(run["largest_fall"] >= catastrophe for run in each["runs"])
            largest = max(run["largest_kl"] for run in each["runs"]) / row["asked"]
            count = len(each["runs"])
            cases.append(
                {
                    "δ": f"{row['asked']:g}",
                    "line search": "no" if name == "without" else "yes",
                    "largest KL": f"{largest:.2f} δ",
                    "catastrophes": f"{falls} of {count} runs",
                    "final return": f"{_final(each):.1f}",
                }
            )
            totals[name] = [totals[name][0] + falls, totals[name][1] + count]
            shares.append(falls / count)
            if name == "without":
                largest_kl.append(largest)
        more.append(shares[0] - shares[1])
        judged += [row, partner]
    (falls, runs), (falls_with, runs_with) = totals["without"], totals["with"]
    evidence = (
        f"catastrophes: {falls}/{runs} runs without, {falls_with}/{runs_with} with; KL up to"
        f" {max(largest_kl):.1f} δ without"
    )
    # The claim is about rare events: a few runs without any do not contradict it.
    holds = _verdict(max(more) > 0 and min(more) >= 0, base, judged) if falls else None
    return Finding(evidence, holds, cases)


def _cg(rows: Rows) -> Finding:
    base = _paper(rows)
    means = [row["mean_return"] for row in rows if row["value"] > base["value"]]
    holds = None
    limit = base["mean_return"]["high"]  # None for a single seed.
    if limit is not None and all(mean["low"] is not None for mean in means):
        if any(mean["low"] > limit for mean in means):
            holds = False
        elif all(mean["high"] <= limit for mean in means):
            holds = True
    cases = [
        {
            "CG iterations": f"{row['value']:g}",
            "mean return over training": f"{row['mean_return']['value']:.1f}",
            "final return": f"{_final(row):.1f}",
        }
        for row in rows
    ]
    best = max((mean["value"] for mean in means), default=float("nan"))
    evidence = (
        f"mean return over training: {base['mean_return']['value']:.1f} for"
        f" {base['value']:g} iterations, at most {best:.1f} for more"
    )
    return Finding(evidence, holds, cases)


def _fisher(rows: Rows) -> Finding:
    paper, full = _paper(rows), max(rows, key=lambda row: row["value"])
    cases = [
        {
            "data": f"{row['value']:.0%}",
            "final return": f"{_final(row):.1f}",
            "95% interval": _interval(row["final_return"]),
            "mean return over training": f"{row['mean_return']['value']:.1f}",
            "seconds per step": f"{np.mean([run['seconds_update'] for run in row['runs']]):.2f}",
        }
        for row in rows
    ]
    holds = _reaches(paper, full, NEARLY * _gain(full, full))
    evidence = (
        f"final return {_final(paper):.1f} on {paper['value']:.0%} of the data,"
        f" {_final(full):.1f} on {full['value']:.0%}"
    )
    return Finding(evidence, _verdict(holds, full, [paper]), cases)


def _penalty(penalty: Rows, constraint: Rows) -> Finding:
    base = _paper(constraint)
    best = max(_gain(row, base) for row in (*constraint, *penalty))
    cases, texts, certain, possible = [], [], [], []
    for name, group in (("δ", constraint), ("C", penalty)):
        good = [_gain(row, base) >= NEARLY * best for row in group]
        decided = [_reaches(row, base, NEARLY * best) for row in group]
        cases += [
            {
                "setting": f"{name} = {row['value']:g}",
                "final return": f"{_final(row):.1f}",
                "95% interval": _interval(row["final_return"]),
                f"gain within {1 - NEARLY:.0%} of the best": ("yes" if is_good else "no")
                + (", not certain" if sure is None else ""),
            }
            for row, is_good, sure in zip(group, good, decided, strict=True)
        ]
        texts.append(f"{name} {sum(good)}/{len(group)} values")
        certain.append(sum(sure is True for sure in decided) / len(group))
        possible.append(sum(sure is not False for sure in decided) / len(group))
    holds = True if certain[0] > possible[1] else False if possible[0] < certain[1] else None
    evidence = f"within {1 - NEARLY:.0%} of the best gain: {', '.join(texts)}"
    if holds is None:
        evidence += "; intervals overlap"
    return Finding(evidence, _verdict(holds, base, (*constraint, *penalty)), cases)


def _interval(estimate: Mapping[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    return "–" if low is None or high is None else f"{low:.1f} to {high:.1f}"


@dataclass(frozen=True)
class PaperClaim:
    """A sentence of the paper, and how it is judged."""

    judge: Callable[..., Finding]
    parts: tuple[str, ...]
    """Parts of TRPO that have to be run; the first one names the claim."""
    section: str
    claim: str
    """The sentence in at most 12 words."""
    paper: str
    """The sentence in the paper's words."""


CLAIMS = (
    PaperClaim(
        *(_line_search, ("no-line-search", "max-kl"), "App. C"),
        "Without the line search, some steps are catastrophic",
        "Without this line search, the algorithm occasionally computes large steps that cause a"
        " catastrophic degradation of performance",
    ),
    PaperClaim(
        *(_cg, ("cg-iterations",), "App. C.1"),
        "More than ten CG iterations do not help",
        "We found k = 10 to be quite effective, and using higher k did not result in faster policy"
        " improvement",
    ),
    PaperClaim(
        *(_fisher, ("fisher-fraction",), "App. C.1"),
        "A tenth of the data is enough for the Fisher matrix",
        "Since the Fisher information matrix merely acts as a metric, it can be computed on a"
        " subset of the data without severely degrading the quality of the final step. Hence, we"
        " can compute it on 10% of the data",
    ),
    PaperClaim(
        *(_penalty, ("penalty", "max-kl"), "Sec. 6"),
        "A constraint is easier to set than a penalty",
        "Empirically, it is hard to robustly choose the penalty coefficient, so we use a hard"
        " constraint instead of a penalty",
    ),
)


def claims(rows: Rows) -> list[dict[str, Any]]:
    """Return the verdicts on the claims whose parts were all run."""
    judged = []
    for claim in CLAIMS:
        groups = [[row for row in rows if row["group"] == part] for part in claim.parts]
        if all(groups):
            found = claim.judge(*groups)
            texts = [
                ", ".join(f"{name} {value}" for name, value in case.items()) for case in found.cases
            ]
            judged.append(
                {
                    "group": claim.parts[0],
                    "section": claim.section,
                    "claim": claim.claim,
                    "paper": claim.paper,
                    "verdict": judge([found.holds]).value,
                    "evidence": found.evidence,
                    "found": "; ".join(texts),
                    "holds": found.holds,
                    "cases": found.cases,
                }
            )
    return judged
