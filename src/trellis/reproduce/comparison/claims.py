"""What the paper's text claims about its comparison, sentence by sentence, and what was found here.

Every verdict is computed from the results. A claim has none if it was not measured or if too few
seeds leave it open. Where a sentence is about several methods or tasks, those that were not run are
named beside it. Vine with a critic is shown but not counted, since the paper has none. What the
paper leaves open is defined here:

- a problem is solved when the mean over seeds meets `SOLVED`;
- a method learns as fast as another when it needs about as many simulator steps to come `WAY` of
  the way from single-path TRPO's first return to its last.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trellis.reproduce.comparison.gait import WALKS_LENGTH, WALKS_VELOCITY
from trellis.reproduce.files import Record

Results = Mapping[str, Record]
"""The contents of each task's file."""

EASIER, LARGER = ("cartpole", "swimmer"), ("hopper", "walker")
TASKS = (*EASIER, *LARGER)
OTHERS = ("natural-gradient", "empirical-fim", "cem", "cma")
"""Methods that Figure 4 has besides TRPO, on all tasks."""
CARTPOLE_RETURN = 950.0
"""Return of a solved cart-pole; an episode has 1,000 steps."""
SWIMMER_VELOCITY = 3.0 / 40.0
"""Velocity of a solved swimmer in m/s: its own length of 3 m within an episode of 40 s."""
SOLVED = {
    "cartpole": f"mean return of at least {CARTPOLE_RETURN:g}",
    "swimmer": f"mean forward velocity of at least {SWIMMER_VELOCITY:g} m/s",
    **dict.fromkeys(
        LARGER,
        f"median episode of at least {WALKS_LENGTH} steps and mean forward velocity of at least"
        f" {WALKS_VELOCITY:g} m/s",
    ),
}
SINGLE_PATH, VINE = ("trpo",), ("trpo-vine", "trpo-vine-of-states")
TRPO = (*SINGLE_PATH, *VINE)
OURS = ("trpo-vine-bootstrap", "trpo-vine-short")
"""Methods that the paper does not have."""
WAY = 0.9
"""Part of the way to single-path TRPO's last return at which speeds are compared."""
SIMILAR = 1.5
"""A factor in steps, either way, within which two methods learn about as fast."""
CLEARLY = 1.1
"""A factor within which nobody can tell which of them is slower."""

NOT_MEASURED = "not measured here"
Finding = tuple[str, bool | None]
"""A text, and whether the paper's claim holds; None where that is open."""
Kinds = Sequence[Sequence[str]]
"""Methods of each kind, one of which has to be run."""
Find = Callable[[Results, Kinds, Sequence[str]], list[Finding]]


def solved(task: str, record: Record) -> bool:
    """Return whether runs meet the task's criterion."""
    if task == "cartpole":
        return record["mean_return"] >= CARTPOLE_RETURN
    if task == "swimmer":
        return record["mean_velocity"] >= SWIMMER_VELOCITY
    return record["median_length"] >= WALKS_LENGTH and record["mean_velocity"] >= WALKS_VELOCITY


def steps_to(record: Record, goal: float) -> float:
    """Return the simulator steps until the mean curve reaches `goal`; inf if it never does."""
    curve = record["curves"]["return_by_steps"]
    reached = np.flatnonzero(np.array(curve["mean"]) >= goal)
    return float(curve["x"][reached[0]]) if len(reached) else np.inf


def _methods(tasks: Results, name: str) -> Mapping[str, Record]:
    return tasks.get(name, {}).get("methods", {})


def _missing(tasks: Results, kinds: Kinds, names: Sequence[str]) -> list[str]:
    """Return what was not run: whole tasks, and kinds of methods on others."""
    found = []
    for name in names:
        methods = _methods(tasks, name)
        absent = [kind[0] for kind in kinds if not set(kind) & methods.keys()]
        if len(absent) == len(kinds):
            found.append(name)
        elif absent:
            found.append(f"{', '.join(absent)} on {name}")
    return found


def _solves(
    tasks: Results, kinds: Kinds, names: Sequence[str], *, expected: bool = True
) -> list[Finding]:
    """Return whether each method that was run solves each task, and what it does."""
    found: list[Finding] = []
    for name in names:
        methods = _methods(tasks, name)
        for record in (methods[method] for kind in kinds for method in kind if method in methods):
            runs, achieved = record["runs"], solved(name, record)
            words = f"{name}, {record['label']}: {'' if achieved else 'not '}solved"
            words += f" (return {record['mean_return']:.0f}"
            if "mean_velocity" in record:
                words += f", {record['mean_velocity']:.2f} m/s"
                words += f", median episode {record['median_length']:.0f}"
            words += f"; {sum(solved(name, run) for run in runs)} of {len(runs)} seeds)"
            found.append((words, achieved is expected if len(runs) > 1 else None))
    return found


def _best(tasks: Results, _kinds: Kinds, _names: Sequence[str]) -> list[Finding]:
    """Return which mean score is the highest, where TRPO and something else were run."""
    found: list[Finding] = []
    for name, task in tasks.items():
        records = {key: record for key, record in task["methods"].items() if key not in OURS}
        for scale in sorted({record["scale"] for record in records.values()}):
            # With other budgets a method is not better or worse.
            alike = {key: record for key, record in records.items() if record["scale"] == scale}
            trpo = [record for key, record in alike.items() if key in TRPO]
            others = [record for key, record in alike.items() if key not in TRPO]
            if trpo and others:
                found.append(_best_of(name, trpo, others))
            elif len(alike) < len(records):
                labels = ", ".join(record["label"] for record in alike.values())
                found.append((f"{name}: at scale {scale:g} only {labels}", None))
    return found


def _best_of(name: str, trpo: Sequence[Record], others: Sequence[Record]) -> Finding:
    """Return the best method on one task, at one scale."""
    ours, other = (max(those, key=lambda record: record["mean_return"]) for those in (trpo, others))
    ahead = ours["mean_return"] >= other["mean_return"]
    first, second = (ours, other) if ahead else (other, ours)
    words = f"{name}: {first['label']} has the highest mean, {first['mean_return']:.0f}"
    equals = [record["label"] for record in others if record["mean_return"] == ours["mean_return"]]
    if equals and ahead:
        return f"{words}, and so have {', '.join(equals)}", True
    # Student's intervals, which a single seed does not have.
    low, high = first["interval_95"][0], second["interval_95"][1]
    apart = low is not None and high is not None and low > high
    how = "intervals apart" if apart else "within the seeds' spread"
    words += f", {second['label']} {second['mean_return']:.0f} ({how})"
    return words, ahead if apart else None


def _speed(
    tasks: Results, kinds: Kinds, names: Sequence[str], *, slower: bool = False
) -> list[Finding]:
    """Return how many times the steps of single-path TRPO a method needs for most of the way."""
    found: list[Finding] = []
    (base,), (method,) = kinds
    for name in names:
        methods = _methods(tasks, name)
        if method not in methods or base not in methods:
            continue
        trpo, other = methods[base], methods[method]
        curve = trpo["curves"]["return_by_steps"]["mean"]
        goal = curve[0] + WAY * (curve[-1] - curve[0])
        ratio = steps_to(other, goal) / steps_to(trpo, goal)
        times = f"{ratio:.2f} times the steps of" if np.isfinite(ratio) else "never as far as"
        words = (
            f"{name}, {other['label']}: {times} {trpo['label']} to {WAY:.0%} of its way, final"
            f" return {other['mean_return']:.0f} against {trpo['mean_return']:.0f}"
        )
        holds = bool(ratio > 1 if slower else 1 / SIMILAR <= ratio <= SIMILAR)
        if other["scale"] != trpo["scale"]:
            doubt = " (at another scale)"
        elif slower and 1 / CLEARLY <= ratio <= CLEARLY:
            doubt = " (too near to tell)"
        elif min(len(other["runs"]), len(trpo["runs"])) < 2:
            doubt = " (of a single seed)"
        else:
            doubt = ""
        found.append((words + doubt, None if doubt else holds))
    return found


_fails = functools.partial(_solves, expected=False)
_is_slower = functools.partial(_speed, slower=True)
BOTH, NATURAL, SEARCH = (SINGLE_PATH, VINE), (("natural-gradient",),), (("cem",), ("cma",))
ALL = (*BOTH, *((name,) for name in OTHERS))
CLAIMS: tuple[tuple[str, str, Find, Kinds, Sequence[str]], ...] = (
    ("8.1", "Single path and vine TRPO solved all of the problems", _solves, BOTH, TASKS),
    ("8.1", "… yielding the best solutions", _best, ALL, TASKS),
    ("8.1", "Natural gradient performed well on the two easier problems", _solves, NATURAL, EASIER),
    (
        "8.1",
        "… but was unable to generate hopping and walking gaits that made forward progress",
        *(_fails, NATURAL, LARGER),
    ),
    ("8.1", "CEM and CMA … performed poorly on the larger problems", _fails, SEARCH, LARGER),
    (
        "8.1",
        "The max KL method learned somewhat more slowly than our final method (cart-pole)",
        *(_is_slower, (SINGLE_PATH, ("max-kl",)), ("cartpole",)),
    ),
    (
        "6",
        "The rate of improvement in the policy is similar to the empirical FIM",
        *(_speed, (SINGLE_PATH, ("empirical-fim",)), TASKS),
    ),
)
"""Section, sentence, how it is judged, and the kinds of methods and the tasks that it is about."""


def claims(tasks: Results) -> list[dict[str, Any]]:
    """Return every claim with its place in the paper, what was found, and whether it holds."""
    judged = []
    for section, sentence, find, kinds, names in CLAIMS:
        found = find(tasks, kinds, names)
        verdicts = {holds for _, holds in found}
        words = [text for text, _ in found]
        if find is _solves and kinds is BOTH:
            words += [f"not counted: {text}" for text, _ in _solves(tasks, (OURS,), names)]
        judged.append(
            {
                "section": section,
                "paper": sentence,
                "found": "; ".join(words) or NOT_MEASURED,
                "holds": False if False in verdicts else True if verdicts == {True} else None,
                "missing": _missing(tasks, kinds, names) if words else [],
            }
        )
    return judged
