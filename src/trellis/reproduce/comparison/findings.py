"""What was found in each case of a claim: a task and a method, with the numbers.

A case agrees with the claim or not only if the seeds decide it: all of them or none solve a
problem, and 95% intervals decide about means. The paper leaves some terms open, which are defined
here:

- a problem is solved if every seed meets `SOLVED`, and not solved if none does;
- a gait makes forward progress if its reward per time step is above that of standing still, which
  is what Figure 4 can show;
- a method learns as fast as another if it needs about the same simulator steps for `GAIN` of the
  way from single-path TRPO's first return to its last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from trellis.reproduce.comparison.gait import WALKS_LENGTH, WALKS_VELOCITY
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.comparison.plans import TASKS as ALL_TASKS
from trellis.reproduce.files import Record

Results = Mapping[str, Record]
"""The contents of each task's file."""

EASIER, LARGER = ("cartpole", "swimmer"), ("hopper", "walker")
TASKS = (*EASIER, *LARGER)
OTHERS = ("natural-gradient", "empirical-fim", "cem", "cma")
"""Methods besides TRPO that Figure 4 has on all tasks."""
CARTPOLE_RETURN = 950.0
"""Return of a solved cart-pole; an episode has 1,000 steps."""
SWIMMER_VELOCITY = 3.0 / 40.0
"""Velocity of a solved swimmer in m/s: its own length of 3 m within an episode of 40 s."""
SOLVED = {
    "cartpole": f"mean return of at least {CARTPOLE_RETURN:g}",
    "swimmer": f"mean velocity of at least {SWIMMER_VELOCITY:g} m/s",
    **dict.fromkeys(
        LARGER,
        f"median episode of at least {WALKS_LENGTH} steps, mean velocity of at least"
        f" {WALKS_VELOCITY:g} m/s",
    ),
}
SINGLE_PATH, VINE = ("trpo",), ("trpo-vine", "trpo-vine-of-states")
TRPO = (*SINGLE_PATH, *VINE)
OURS = ("trpo-vine-bootstrap", "trpo-vine-short")
"""Methods that the paper does not have."""
LEAST_SEEDS = 3
"""Smallest number of seeds that decide whether a method solves a task."""
GAIN = 0.9
"""Part of single-path TRPO's gain in return at which speeds are compared."""
SIMILAR = 1.5
"""Factor in steps, either way, within which two methods learn about as fast."""


class Finding(NamedTuple):
    """What was found in one case of a claim."""

    task: str
    method: str
    """Label of a method."""
    kind: str
    """Short name of the kind of method, for the evidence."""
    outcome: str
    """What was found, in at most 15 words."""
    holds: bool | None
    """Whether the case agrees with the claim; None if it is undecided."""
    short: str
    """What was found, in a few words, for the evidence."""


Kinds = Sequence[Sequence[str]]
"""Methods of each kind; at least one of a kind has to be run."""
Find = Callable[[Results, Kinds, Sequence[str]], list[Finding]]
SHORT_KINDS = {"trpo": "single path", "trpo-vine": "vine"}


Line = Literal["mean", "low", "high"]


def title(task: str) -> str:
    """Return the name of a task on a page."""
    return ALL_TASKS[task].title


def label(method: str, record: Record) -> str:
    """Return the name of a method on a page; results of an unknown method bring their own."""
    return METHODS[method].label if method in METHODS else record["label"]


def solved(task: str, record: Record) -> bool:
    """Return whether runs meet the task's criterion."""
    if task == "cartpole":
        return record["mean_return"] >= CARTPOLE_RETURN
    if task == "swimmer":
        return record["mean_velocity"] >= SWIMMER_VELOCITY
    return record["median_length"] >= WALKS_LENGTH and record["mean_velocity"] >= WALKS_VELOCITY


def steps_to(record: Record, goal: float, line: Line = "mean") -> float:
    """Return the simulator steps until a curve reaches `goal`; inf if it never does.

    Args:
        record: Results of a method.
        goal: Return to reach.
        line: The mean over seeds, or an end of its 95% band.
    """
    curve = record["curves"]["return_by_steps"]
    reached = np.flatnonzero(np.array(curve[line]) >= goal)
    return float(curve["x"][reached[0]]) if len(reached) else np.inf


def _methods(tasks: Results, name: str) -> Mapping[str, Record]:
    return tasks.get(name, {}).get("methods", {})


def _kind(kind: Sequence[str]) -> str:
    return SHORT_KINDS.get(kind[0]) or METHODS[kind[0]].label


def missing(tasks: Results, kinds: Kinds, names: Sequence[str]) -> list[str]:
    """Return the cases that were not run: whole tasks, and kinds of methods on other tasks."""
    found = []
    for name in names:
        methods = _methods(tasks, name)
        absent = [_kind(kind) for kind in kinds if not set(kind) & methods.keys()]
        if len(absent) == len(kinds):
            found.append(title(name))
        elif absent:
            found.append(f"{', '.join(absent)} on {title(name)}")
    return found


def solves(
    tasks: Results, kinds: Kinds, names: Sequence[str], *, expected: bool = True
) -> list[Finding]:
    """Return whether each method solves each task."""
    found: list[Finding] = []
    for name in names:
        methods = _methods(tasks, name)
        for kind in kinds:
            for method in (method for method in kind if method in methods):
                record = methods[method]
                runs = record["runs"]
                meeting = sum(solved(name, run) for run in runs)
                achieved = {len(runs): True, 0: False}.get(meeting)
                words = {True: "solved", False: "not solved", None: "undecided"}[achieved]
                outcome = f"{words}; return {record['mean_return']:.0f}"
                if "mean_velocity" in record:
                    outcome += f", {record['mean_velocity']:.2f} m/s"
                    outcome += f", median episode {record['median_length']:.0f}"
                outcome += f"; {meeting} of {len(runs)} seeds"
                decided = achieved is not None and len(runs) >= LEAST_SEEDS
                holds = achieved is expected if decided else None
                about = title(name), label(method, record), _kind(kind)
                found.append(Finding(*about, outcome, holds, words))
    return found


def moves(
    tasks: Results, kinds: Kinds, names: Sequence[str], *, expected: bool = True
) -> list[Finding]:
    """Return whether each method has more reward per time step than standing still."""
    found: list[Finding] = []
    for name in names:
        methods, still = _methods(tasks, name), ALL_TASKS[name].standing_reward
        if still is None:
            raise ValueError(f"{name} has no reward of standing still")
        for kind in kinds:
            for method in (method for method in kind if method in methods):
                record = methods[method]
                reward, (low, high) = (
                    record["final_reward"]["mean"],
                    record["final_reward"]["interval_95"],
                )
                outcome = f"reward per time step {reward:.2f}, 95% interval " + (
                    "unknown" if low is None else f"{low:.2f} to {high:.2f}"
                )
                above = None if low is None else _decide(low, high, (still, np.inf))
                holds = None if above is None else above is expected
                if low is None:  # A single seed.
                    above = reward > still
                words = {True: "above", False: "not above", None: "undecided"}[above]
                about = title(name), label(method, record), _kind(kind)
                found.append(Finding(*about, outcome, holds, words))
    return found


def count_moves(found: Sequence[Finding]) -> str:
    """Return the number of tasks on which each kind of method does better than standing still."""
    return f"above standing still: {_count(found, 'above')}{_too_few(found)}"


def _count(found: Sequence[Finding], word: str) -> str:
    texts = []
    for kind in dict.fromkeys(finding.kind for finding in found):
        cases = [finding for finding in found if finding.kind == kind]
        tasks = {finding.task for finding in cases}
        done = {finding.task for finding in cases if finding.short == word}
        texts.append(f"{kind} {len(done)}/{len(tasks)} tasks")
    return ", ".join(texts)


def count_solved(found: Sequence[Finding]) -> str:
    """Return the number of tasks that each kind of method solves."""
    return f"solved: {_count(found, 'solved')}{_too_few(found)}"


def _too_few(found: Sequence[Finding]) -> str:
    """Return a remark if a case has an outcome that too few seeds show."""
    few = any(finding.holds is None and finding.short != "undecided" for finding in found)
    return ", few seeds" if few else ""


def best(tasks: Results, _kinds: Kinds, _names: Sequence[str]) -> list[Finding]:
    """Return which mean score is the highest on each task with TRPO and another method."""
    found: list[Finding] = []
    for name, task in tasks.items():
        records = {
            key: {**record, "label": label(key, record)}
            for key, record in task["methods"].items()
            if key not in OURS
        }
        for scale in sorted({record["scale"] for record in records.values()}):
            # Methods with different budgets are not compared.
            alike = {key: record for key, record in records.items() if record["scale"] == scale}
            trpo = [record for key, record in alike.items() if key in TRPO]
            others = [record for key, record in alike.items() if key not in TRPO]
            if trpo and others:
                found.append(_best_of(title(name), trpo, others))
            elif len(alike) < len(records):
                labels = " and ".join(record["label"] for record in alike.values())
                outcome = f"no other method to compare with at scale {scale:g}"
                found.append(Finding(title(name), labels, "TRPO", outcome, None, "alone"))
    return found


def _best_of(name: str, trpo: Sequence[Record], others: Sequence[Record]) -> Finding:
    """Return the best method on one task at one scale."""
    ours, other = (max(those, key=lambda record: record["mean_return"]) for those in (trpo, others))
    ahead = ours["mean_return"] >= other["mean_return"]
    first, second = (ours, other) if ahead else (other, ours)
    words = f"highest mean, {first['mean_return']:.0f}"
    equals = sum(record["mean_return"] == ours["mean_return"] for record in others)
    if equals and ahead:
        outcome = f"{words}, shared with {equals} other method{'s' * (equals > 1)}"
        return Finding(name, first["label"], "TRPO", outcome, None, "tied")
    # A single seed has no Student interval.
    low, high = first["interval_95"][0], second["interval_95"][1]
    apart = low is not None and high is not None and low > high
    how = "intervals do not overlap" if apart else "undecided by the intervals"
    outcome = f"{words}; {second['label']} {second['mean_return']:.0f}; {how}"
    short = ("best" if ahead else "behind") if apart else "undecided"
    return Finding(name, first["label"], "TRPO", outcome, ahead if apart else None, short)


def count_best(found: Sequence[Finding]) -> str:
    """Return on which tasks TRPO is the best method."""
    texts = []
    for place in ("best", "tied", "behind", "undecided"):
        tasks = dict.fromkeys(finding.task for finding in found if finding.short == place)
        if tasks:
            texts.append(f"{place}: {', '.join(tasks)}")
    return "; ".join(texts) or "TRPO and others ran at different scales"


def speed(
    tasks: Results, kinds: Kinds, names: Sequence[str], *, slower: bool = False
) -> list[Finding]:
    """Return how many times the steps of single-path TRPO a method needs."""
    found: list[Finding] = []
    (base,), choices = kinds
    for name in names:
        methods = _methods(tasks, name)
        method = next((choice for choice in choices if choice in methods), None)
        if method is None or base not in methods:
            continue
        trpo, other = methods[base], methods[method]
        curve = trpo["curves"]["return_by_steps"]["mean"]
        goal = curve[0] + GAIN * (curve[-1] - curve[0])
        ratio = steps_to(other, goal) / steps_to(trpo, goal)
        least = steps_to(other, goal, "high") / steps_to(trpo, goal, "low")
        most = steps_to(other, goal, "low") / steps_to(trpo, goal, "high")
        reached = np.isfinite(ratio)
        times = f"{ratio:.2f} × the steps to" if reached else "never reaches"
        outcome = (
            f"{times} {GAIN:.0%} of the gain; returns {other['mean_return']:.0f} and"
            f" {trpo['mean_return']:.0f}"
        )
        holds = _decide(least, most, (1.0, np.inf) if slower else (1 / SIMILAR, SIMILAR))
        if other["scale"] != trpo["scale"]:
            doubt = " (different scales)"
        elif min(len(other["runs"]), len(trpo["runs"])) < 2:
            doubt = " (one seed)"
        else:
            doubt = " (intervals overlap)" if holds is None else ""
        about = title(name), label(method, other), _kind((method,))
        short = f"{f'{ratio:.2f}×' if reached else 'never'} ({title(name)})"
        found.append(Finding(*about, outcome + doubt, None if doubt else holds, short))
    return found


def _decide(low: float, high: float, inside: tuple[float, float]) -> bool | None:
    """Return whether an interval lies inside another; None if they overlap in part."""
    if inside[0] < low and high <= inside[1]:
        return True
    return False if high <= inside[0] or low > inside[1] else None


def list_speeds(found: Sequence[Finding]) -> str:
    """Return the steps on each task as a multiple of single path's."""
    return f"steps to {GAIN:.0%} of gain: {', '.join(finding.short for finding in found)}"
