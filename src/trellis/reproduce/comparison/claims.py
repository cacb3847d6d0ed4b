"""The paper's claims about its comparison, and what was found about each of them.

Every verdict is computed from the results. A case has none if it was not measured or if the seeds
leave it undecided. Vine with a critic is listed but not counted, since the paper has no
critic. What a gait is has two readings: a long episode with forward velocity, and a reward per time
step above that of standing still. Claims about gaits are judged by both.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trellis.reproduce.comparison.findings import (
    EASIER,
    LARGER,
    OTHERS,
    OURS,
    SINGLE_PATH,
    TASKS,
    VINE,
    Find,
    Finding,
    Kinds,
    Results,
    best,
    count_best,
    count_moves,
    count_solved,
    list_speeds,
    missing,
    moves,
    solves,
    speed,
)
from trellis.reproduce.comparison.improvement import improves, list_improvements, unmeasured
from trellis.reproduce.page import judge

NOT_MEASURED = "not measured"
_fails = functools.partial(solves, expected=False)
_does_not_move = functools.partial(moves, expected=False)
_is_slower = functools.partial(speed, slower=True)
BOTH, NATURAL, SEARCH = (SINGLE_PATH, VINE), (("natural-gradient",),), (("cem",), ("cma",))
ALL = (*BOTH, *((name,) for name in OTHERS))


@dataclass(frozen=True)
class PaperClaim:
    """A sentence of the paper, and how it is judged."""

    section: str
    claim: str
    """The sentence in at most 12 words."""
    paper: str
    """The sentence in the paper's words."""
    find: Find
    summarize: Callable[[Sequence[Finding]], str]
    """Function that returns the evidence."""
    kinds: Kinds
    tasks: Sequence[str]


CLAIMS = (
    *(
        PaperClaim(
            "abstract",
            f"{name} TRPO tends to improve in every iteration",
            "TRPO tends to give monotonic improvement",
            *(improves, list_improvements, (kind,), TASKS),
        )
        for name, kind in (("Single-path", SINGLE_PATH), ("Vine", VINE))
    ),
    PaperClaim(
        "abstract",
        "One set of step settings solves all problems",
        "… with little tuning of hyperparameters (single path, δ = 0.01 everywhere)",
        *(solves, count_solved, (SINGLE_PATH,), TASKS),
    ),
    PaperClaim(
        "4",
        "The mean-KL constraint learns about as fast as the max-KL constraint",
        "This type of constrained update has similar empirical performance to the maximum KL",
        *(speed, list_speeds, (SINGLE_PATH, ("max-kl", "max-kl-step")), ("cartpole",)),
    ),
    PaperClaim(
        "8.1",
        "Single-path and vine TRPO solve all problems",
        "Single path and vine TRPO solved all of the problems",
        *(solves, count_solved, BOTH, TASKS),
    ),
    PaperClaim(
        "8.1",
        "TRPO earns more per time step than standing still",
        "Single path and vine TRPO solved all of the problems (by Figure 4's unit)",
        *(moves, count_moves, BOTH, LARGER),
    ),
    PaperClaim(
        "8.1",
        "TRPO gives the best solutions",
        "… yielding the best solutions",
        *(best, count_best, ALL, TASKS),
    ),
    PaperClaim(
        "8.1",
        "Natural gradient solves cart-pole and swimmer",
        "Natural gradient performed well on the two easier problems",
        *(solves, count_solved, NATURAL, EASIER),
    ),
    PaperClaim(
        "8.1",
        "Natural gradient finds no hopping or walking gait",
        "… but was unable to generate hopping and walking gaits that made forward progress",
        *(_fails, count_solved, NATURAL, LARGER),
    ),
    PaperClaim(
        "8.1",
        "Natural gradient earns no more per time step than standing still",
        "Natural gradient … was unable to generate … gaits (by Figure 4's unit)",
        *(_does_not_move, count_moves, NATURAL, LARGER),
    ),
    PaperClaim(
        "8.1",
        "CEM and CMA do poorly on hopper and walker",
        "CEM and CMA … performed poorly on the larger problems",
        *(_fails, count_solved, SEARCH, LARGER),
    ),
    PaperClaim(
        "8.1",
        "CEM and CMA earn no more per time step than standing still",
        "CEM and CMA performed poorly (by Figure 4's unit)",
        *(_does_not_move, count_moves, SEARCH, LARGER),
    ),
    PaperClaim(
        "8.1",
        "Max KL learns somewhat more slowly on cart-pole",
        "The max KL method learned somewhat more slowly than our final method (cart-pole)",
        *(_is_slower, list_speeds, (SINGLE_PATH, ("max-kl", "max-kl-step")), ("cartpole",)),
    ),
    PaperClaim(
        "6",
        "The empirical Fisher matrix learns about as fast",
        "The rate of improvement in the policy is similar to the empirical FIM",
        *(speed, list_speeds, (SINGLE_PATH, ("empirical-fim",)), TASKS),
    ),
)


def claims(tasks: Results) -> list[dict[str, Any]]:
    """Return every claim with its place in the paper, its verdict and what was found."""
    judged = []
    for claim in CLAIMS:
        found = claim.find(tasks, claim.kinds, claim.tasks)
        lacks = unmeasured if claim.find is improves else missing
        absent = lacks(tasks, claim.kinds, claim.tasks) if found else []
        agreements = {finding.holds for finding in found}
        evidence = claim.summarize(found) if found else NOT_MEASURED
        if absent:
            evidence += f"; {len(absent)} case{'s' * (len(absent) > 1)} not run"
        counted = [(finding, True) for finding in found]
        if claim.find is solves and claim.kinds is BOTH:
            counted += [(finding, False) for finding in solves(tasks, (OURS,), claim.tasks)]
        texts = [
            f"{'' if is_counted else 'not counted: '}{case.task}, {case.method}: {case.outcome}"
            for case, is_counted in counted
        ]
        judged.append(
            {
                "section": claim.section,
                "claim": claim.claim,
                "paper": claim.paper,
                "verdict": judge(agreements, complete=not absent).value,
                "evidence": evidence,
                "found": "; ".join(texts) or NOT_MEASURED,
                "findings": [
                    {
                        "task": case.task,
                        "method": case.method,
                        "found": case.outcome,
                        "holds": case.holds,
                        "counted": is_counted,
                    }
                    for case, is_counted in counted
                ],
                "holds": False if False in agreements else True if agreements == {True} else None,
                "missing": absent,
            }
        )
    return judged
