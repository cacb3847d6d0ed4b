"""The abstract's claim of monotonic improvement, from what `trellis improvement` measured.

`improvement/TASK-METHOD.json` holds the output of `trellis improvement RUN --json` for a run with
the method's settings. A case disagrees if more iterations fall for certain than chance explains. It
agrees if not, and if chance does not explain that more improve than fall (a sign test). The
discounted return counts, because it is the paper's η.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trellis.analysis.improvement import CHANCE
from trellis.reproduce.comparison.findings import SHORT_KINDS, Finding, Kinds, Results, title
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.files import read_json

FOLDER = "improvement"
"""Folder of the measurements within the results."""
UNIT = "discounted"
"""Return whose gains count."""
TAIL = 0.025
"""Probability of more falls by chance than are allowed."""


def with_improvement(out: Path, task: str, method: str) -> dict[str, Any]:
    """Return what a method's record gains from its measurement; nothing without one."""
    found = read_json(out / FOLDER / f"{task}-{method}.json")
    return {"improvement": found[UNIT]} if found else {}


def by_chance(iterations: int) -> int:
    """Return the largest number of falls that chance explains, if no policy changed."""
    from scipy.special import bdtr

    allowed = 0
    while bdtr(allowed, iterations, CHANCE) < 1 - TAIL:
        allowed += 1
    return allowed


def _more(up: int, down: int) -> bool:
    """Return whether chance does not explain that more iterations improve than fall."""
    from scipy.special import bdtrc

    # P(at least `up` of all) if both are equally likely.
    return up > 0 and float(bdtrc(up - 1, up + down, 0.5)) <= TAIL


def improves(tasks: Results, kinds: Kinds, names: Sequence[str]) -> list[Finding]:
    """Return whether a method improves in every iteration, for each task and kind."""
    found = []
    for name in names:
        for kind in kinds:
            for method in kind:
                record = tasks.get(name, {}).get("methods", {}).get(method, {})
                if "improvement" in record:
                    found.append(_finding(name, method, record["improvement"]))
                    break
    return found


def unmeasured(tasks: Results, kinds: Kinds, names: Sequence[str]) -> list[str]:
    """Return the cases without a measurement."""
    return [
        f"{SHORT_KINDS.get(kind[0], METHODS[kind[0]].label)} on {title(name)}"
        for name in names
        for kind in kinds
        if not improves(tasks, (kind,), (name,))
    ]


def _finding(name: str, method: str, summary: dict[str, Any]) -> Finding:
    count, up, down = (summary[key] for key in ("iterations", "improved", "fell"))
    allowed = by_chance(count)
    outcome = f"{up} of {count} iterations improve, {down} fall (chance: up to {allowed})"
    holds = False if down > allowed else True if _more(up, down) else None
    kind = SHORT_KINDS.get(method, METHODS[method].label)
    return Finding(title(name), METHODS[method].label, kind, outcome, holds, f"{up}/{down}")


def list_improvements(found: Sequence[Finding]) -> str:
    """Return how many iterations of each kind of method improve and fall."""
    texts = []
    for kind in dict.fromkeys(case.kind for case in found):
        pairs = [case.short.split("/") for case in found if case.kind == kind]
        up, down = (sum(int(pair[index]) for pair in pairs) for index in (0, 1))
        texts.append(f"{kind} {up} up, {down} down")
    return "; ".join(texts)
