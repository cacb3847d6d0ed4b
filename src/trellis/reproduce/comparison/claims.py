"""What the paper's text says about its comparison, sentence by sentence, and what was found here.

Every verdict is computed from the results. What was not measured has none, nor has what too few
seeds leave open; where a sentence is about several methods or tasks, those that were not run are
named beside it. Vine with a critic is shown and not counted, since the paper has none. What the
paper leaves open is fixed here:

- a problem is solved when the mean over seeds meets `SOLVED`;
- a method learns as fast as another when it needs about as many simulator steps to come `WAY` of
  the way from single-path TRPO's first return to its last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.reproduce.gait import WALKS_LENGTH, WALKS_VELOCITY

Results = Mapping[str, Any]
"""By task: what its file holds."""
Record = Mapping[str, Any]
"""What it holds of a method."""

EASIER, LARGER = ("cartpole", "swimmer"), ("hopper", "walker")
TASKS = (*EASIER, *LARGER)
OTHERS = ("natural-gradient", "empirical-fim", "cem", "cma")
"""What Figure 4 has besides TRPO, on all tasks."""
CARTPOLE_RETURN = 950.0
"""Of the 1,000 steps of an episode."""
SWIMMER_VELOCITY = 3.0 / 40.0
"""Metres a second: its own length of 3 m within an episode of 40 s."""
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
"""What the paper has not."""
WAY = 0.9
SIMILAR = 1.5
"""A factor in steps, either way, within which two methods learn about as fast."""
CLEARLY = 1.1
"""A factor within which nobody can tell which of them is slower."""

NOT_MEASURED = "not measured here"
Finding = tuple[str, bool | None]
"""In words, and whether it is as the paper says; None where that is open."""


def claims(tasks: Results) -> list[dict[str, Any]]:
    """Every claim with its place in the paper, what was found, and whether it holds here."""
    return [
        _claim(
            "8.1",
            "Single path and vine TRPO solved all of the problems",
            _solving(tasks, TRPO, TASKS, expected=True),
            _missing(tasks, (SINGLE_PATH, VINE), TASKS),
            [words for words, _ in _solving(tasks, OURS, TASKS, expected=True)],
        ),
        _claim(
            "8.1",
            "… yielding the best solutions",
            _best(tasks),
            _missing(tasks, (SINGLE_PATH, VINE, *((name,) for name in OTHERS)), TASKS),
        ),
        _claim(
            "8.1",
            "Natural gradient performed well on the two easier problems",
            _solving(tasks, ("natural-gradient",), EASIER, expected=True),
            _missing(tasks, (("natural-gradient",),), EASIER),
        ),
        _claim(
            "8.1",
            "… but was unable to generate hopping and walking gaits that made forward progress",
            _solving(tasks, ("natural-gradient",), LARGER, expected=False),
            _missing(tasks, (("natural-gradient",),), LARGER),
        ),
        _claim(
            "8.1",
            "CEM and CMA … performed poorly on the larger problems",
            _solving(tasks, ("cem", "cma"), LARGER, expected=False),
            _missing(tasks, (("cem",), ("cma",)), LARGER),
        ),
        _claim(
            "8.1",
            "The max KL method learned somewhat more slowly than our final method (cart-pole)",
            _speed(tasks, "max-kl", ("cartpole",), slower=True),
            _missing(tasks, (SINGLE_PATH, ("max-kl",)), ("cartpole",)),
        ),
        _claim(
            "6",
            "The rate of improvement in the policy is similar to the empirical FIM",
            _speed(tasks, "empirical-fim", TASKS, slower=False),
            _missing(tasks, (SINGLE_PATH, ("empirical-fim",)), TASKS),
        ),
    ]


def solved(task: str, record: Record) -> bool:
    """Whether these runs, or this one, meet the task's criterion."""
    if task == "cartpole":
        return record["mean_return"] >= CARTPOLE_RETURN
    if task == "swimmer":
        return record["mean_velocity"] >= SWIMMER_VELOCITY
    return record["median_length"] >= WALKS_LENGTH and record["mean_velocity"] >= WALKS_VELOCITY


def steps_to(record: Record, goal: float) -> float:
    """Simulator steps until the mean curve of training returns reaches `goal`; inf if never."""
    curve = record["curves"]["return_by_steps"]
    reached = np.flatnonzero(np.array(curve["mean"]) >= goal)
    return float(curve["x"][reached[0]]) if len(reached) else np.inf


def _claim(
    section: str,
    sentence: str,
    found: Sequence[Finding],
    missing: Sequence[str],
    not_counted: Sequence[str] = (),
) -> dict[str, Any]:
    verdicts = {holds for _, holds in found}
    words = [words for words, _ in found] + [f"not counted: {words}" for words in not_counted]
    return {
        "section": section,
        "paper": sentence,
        "found": "; ".join(words) or NOT_MEASURED,
        "holds": False if False in verdicts else True if verdicts == {True} else None,
        "missing": list(missing) if words else [],
    }


def _missing(tasks: Results, kinds: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """What was not run: whole tasks, and kinds of methods on others."""
    found = []
    for name in names:
        methods = tasks.get(name, {}).get("methods", {})
        absent = [kind[0] for kind in kinds if not set(kind) & methods.keys()]
        if len(absent) == len(kinds):
            found.append(name)
        elif absent:
            found.append(f"{', '.join(absent)} on {name}")
    return found


def _solving(
    tasks: Results, methods: Sequence[str], names: Sequence[str], *, expected: bool
) -> list[Finding]:
    """For each task and method that was measured: whether it is solved, and what it does."""
    found: list[Finding] = []
    for name in names:
        for method in methods:
            record = tasks.get(name, {}).get("methods", {}).get(method)
            if record is None:
                continue
            achieved = solved(name, record)
            count = sum(solved(name, run) for run in record["runs"])
            word = "solved" if achieved else "not solved"
            found.append(
                (
                    f"{name}, {record['label']}: {word} ({_doing(record)};"
                    f" {count} of {len(record['runs'])} seeds)",
                    achieved is expected if len(record["runs"]) > 1 else None,
                )
            )
    return found


def _doing(record: Record) -> str:
    words = f"return {record['mean_return']:.0f}"
    if "mean_velocity" in record:
        words += (
            f", {record['mean_velocity']:.2f} m/s, median episode {record['median_length']:.0f}"
        )
    return words


def _best(tasks: Results) -> list[Finding]:
    """Where TRPO and something else were run: which mean score is the highest."""
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
    """On one task, at one scale."""
    ours, other = (max(those, key=lambda record: record["mean_return"]) for those in (trpo, others))
    if ours["mean_return"] == other["mean_return"]:
        equals = [r["label"] for r in others if r["mean_return"] == ours["mean_return"]]
        words = f"{name}: {ours['label']} has the highest mean, {ours['mean_return']:.0f}"
        return f"{words}, and so have {', '.join(equals)}", True
    ahead = ours["mean_return"] > other["mean_return"]
    first, second = (ours, other) if ahead else (other, ours)
    apart = _apart(first, second)
    how = "intervals apart" if apart else "within the seeds' spread"
    words = (
        f"{name}: {first['label']} has the highest mean, {first['mean_return']:.0f},"
        f" {second['label']} {second['mean_return']:.0f} ({how})"
    )
    return words, ahead if apart else None


def _apart(higher: Record, lower: Record) -> bool:
    """Whether Student's intervals do not meet; a single seed has none."""
    low, high = higher["interval_95"][0], lower["interval_95"][1]
    return low is not None and high is not None and low > high


def _speed(tasks: Results, method: str, names: Sequence[str], *, slower: bool) -> list[Finding]:
    """How many times the steps of single-path TRPO a method needs for most of the way."""
    found: list[Finding] = []
    for name in names:
        methods = tasks.get(name, {}).get("methods", {})
        if method not in methods or "trpo" not in methods:
            continue
        curve = methods["trpo"]["curves"]["return_by_steps"]["mean"]
        goal = curve[0] + WAY * (curve[-1] - curve[0])
        ratio = steps_to(methods[method], goal) / steps_to(methods["trpo"], goal)
        times = f"{ratio:.2f} times the steps of" if np.isfinite(ratio) else "never as far as"
        words = (
            f"{name}, {methods[method]['label']}: {times} {methods['trpo']['label']} to"
            f" {WAY:.0%} of its way, final return {methods[method]['mean_return']:.0f} against"
            f" {methods['trpo']['mean_return']:.0f}"
        )
        holds = ratio > 1 if slower else 1 / SIMILAR <= ratio <= SIMILAR
        if methods[method]["scale"] != methods["trpo"]["scale"]:
            found.append((f"{words} (at another scale)", None))
        elif slower and 1 / CLEARLY <= ratio <= CLEARLY:
            found.append((f"{words} (too near to tell)", None))
        elif min(len(methods[each]["runs"]) for each in (method, "trpo")) < 2:
            found.append((f"{words} (of a single seed)", None))
        else:
            found.append((words, bool(holds)))
    return found
