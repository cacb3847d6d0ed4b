"""The page of the theory experiment: claims, learning, tightness, step sizes."""

from pathlib import Path

from trellis.reproduce import page
from trellis.reproduce.files import Record
from trellis.reproduce.page import Claim, cell, judge
from trellis.reproduce.theory.figure import TRPO_DELTA
from trellis.reproduce.theory.table import table_rows

FIGURE = "theory"
SMALL = 0.1
"""A step is very small if its max KL is below this part of the paper's δ."""
USUAL_GAMMA = 0.9
"""Smallest discount for which the size of a step is judged."""
FILES = {
    "theory.json": "All measurements.",
    "theory.csv": "One row per problem and method.",
}
BOUNDS = (
    ("total_variation", "max total variation", "g"),
    ("error", "error of L", ".2g"),
    ("appendix_a", "App. A", ".2g"),
    ("eq6", "Eq. 6", ".2g"),
    ("theorem1", "Theorem 1", ".2g"),
    ("kl_form", "Eq. 9", ".2g"),
    ("surrogate_gain", "gain of L", ".2g"),
)


def write(results: Record, out: Path) -> None:
    """Write the page, from theory.json alone."""
    sweep = results["sweep"]
    lines = [
        "# What the guarantee costs (Section 3)",
        "",
        "Everything on this page is exact: the problems are finite MDPs, and nothing is sampled."
        f" Garnet problems are {results['seeds']} random MDPs with {sweep['states']} states and"
        f" {sweep['actions']} actions. All methods start from the uniform policy."
        " `trellis reproduce theory` writes this page.",
        "",
        *page.claims_table(_claims(results)),
        *page.verdict_meanings(),
        "## Figure",
        "",
        *page.picture(FIGURE, "Learning, tightness of the bounds, size of steps"),
        "## Learning",
        "",
        f"Closed share of the gap to the optimum after {sweep['iterations']} iterations. The last"
        " column is the median number of iterations in which the trust region closes 95% of it.",
        "",
        *_learning(results),
        "## Tightness",
        "",
        "Error of L, and the bounds on it, for mixtures of the uniform and the greedy policy"
        f" (Garnet, γ = {sweep['tightness_gamma']:g}, medians).",
        "",
        *page.table(
            [heading for _, heading, _ in BOUNDS],
            [[cell(row[name], spec) for name, _, spec in BOUNDS] for row in results["tightness"]],
        ),
        "## Step size",
        "",
        f"First step of Algorithm 1 (Garnet, medians). The paper's experiments use δ ="
        f" {TRPO_DELTA:g}.",
        "",
        *page.table(
            ("γ", "C", "max KL", "mixture step of Eq. 5"),
            [
                (
                    f"{row['gamma']:g}",
                    *(cell(row[key], ".2g") for key in ("penalty", "max_kl", "mixture_step")),
                )
                for row in results["steps"]
            ],
        ),
        "## Command",
        "",
        "```sh",
        f"# written by commit {results['commit']}",
        f"trellis reproduce theory --seeds {results['seeds']}",
        "```",
        "",
    ]
    page.write(out, lines, FILES)


def _learning(results: Record) -> list[str]:
    """Return a table of what three methods achieve on each problem."""
    radius = f"max KL ≤ {min(results['sweep']['radii']):g}"
    methods = ("Algorithm 1", "conservative policy iteration", radius)
    rows = {(row["problem"], row["method"]): row for row in table_rows(results)}
    problems = dict.fromkeys(problem for problem, _ in rows)
    return page.table(
        ("problem", *methods, "iterations to 95%"),
        [
            (
                problem,
                *(_percent(rows[problem, method]["closed_last"]) for method in methods),
                cell(rows[problem, radius]["iterations_to_95_percent"], "g"),
            )
            for problem in problems
        ],
    )


def _percent(share: float) -> str:
    """Return a share with two digits, or with three near 1."""
    return f"{100 * share:.3g}%" if share > 0.99 else f"{100 * share:.2g}%"


def _claims(results: Record) -> list[Claim]:
    learning = results["learning"]
    algorithm1 = [row for row in learning if row["method"] == "Algorithm 1"]
    falls = sum(row["falls"] for row in algorithm1)
    broken = sum(row["broken_certificates"] for row in learning)
    steps = [row for row in results["steps"] if row["gamma"] >= USUAL_GAMMA]
    sizes = [row["max_kl"] for row in steps]
    radius = f"max KL ≤ {min(results['sweep']['radii']):g}"
    regions = [row for row in learning if row["method"] == radius]
    pairs = list(zip(regions, algorithm1, strict=True))
    ahead = [region["closed_mean"][-1] >= other["closed_mean"][-1] for region, other in pairs]
    return [
        Claim(
            "Sec. 3",
            "Algorithm 1 never lowers η",
            judge(row["falls"] == 0 for row in algorithm1),
            f"{falls} falls on {len(algorithm1)} problems",
            "[learning](#learning)",
        ),
        Claim(
            "Theorem 1",
            "η gains at least what the bounds guarantee",
            judge(row["broken_certificates"] == 0 for row in learning),
            f"{broken} broken guarantees for {len(learning)} pairs of problem and method",
            "[tightness](#tightness)",
        ),
        Claim(
            "Sec. 4",
            "With the penalty C, steps are very small",
            judge(size < SMALL * TRPO_DELTA for size in sizes),
            f"max KL {min(sizes):.1g} to {max(sizes):.1g} for γ ≥ {USUAL_GAMMA:g}; paper: δ ="
            f" {TRPO_DELTA:g}",
            "[step size](#step-size)",
        ),
        Claim(
            "Sec. 4",
            "A trust region takes larger steps than the penalty C",
            judge(ahead),
            f"{radius} closes more of the gap on {sum(ahead)}/{len(ahead)} problems",
            "[learning](#learning)",
        ),
    ]
