"""The page about vine: claims of Section 5.2, variances, branches."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trellis.reproduce import files, page
from trellis.reproduce.files import Record
from trellis.reproduce.page import Claim, judge
from trellis.reproduce.vine.figure import case_name

VARIANCE, BIAS, BRANCHES = "vine-variance", "vine-bias", "vine-branches"
"""Names of the data files and figures without their ending."""
CLEARLY = 1.5
"""Factor from which a difference in variance counts."""
FILES = {
    f"{VARIANCE}.json": "All measurements of variance.",
    f"{BIAS}.json": "Bias and noise of the gradient by proposal.",
    f"{BRANCHES}.json": "States along the trunks and rollouts of the picture.",
    "walker-rollout-length.csv": "Four training runs on the walker with other rollout lengths.",
}
TIME_BASELINE = "single path, time baseline"
"""Name of single path with the baseline of the paper's presets."""
COLUMNS: dict[str, Callable[[Record], float]] = {
    "differences: separate / common": lambda row: row["factor"],
    "gradient: separate / common": lambda row: _ratio(row, "vine, separate noise", "per_q_value"),
    "single path / vine, per Q-value": lambda row: _ratio(row, "single path", "per_q_value"),
    "single path / vine, per step": lambda row: _ratio(row, "single path", "per_step"),
    "steps per Q-value": lambda row: _steps_per_q_value(row),
}
"""The columns of the table about variance."""
BASELINE_COLUMNS: dict[str, Callable[[Record], float]] = {
    "time baseline / vine, per Q-value": lambda row: _ratio(row, TIME_BASELINE, "per_q_value"),
    "time baseline / vine, per step": lambda row: _ratio(row, TIME_BASELINE, "per_step"),
}
"""Columns for single path with the time baseline, which older data files do not have."""


def write(out: Path) -> None:
    """Write the page from the data files in the folder."""
    results = files.read_json(out / f"{VARIANCE}.json")
    lines = [
        "# Vine (Section 5.2)",
        "",
        "Vine samples several actions in each of a set of states, and a short rollout after each"
        " action. `trellis reproduce vine-variance`, `vine-bias` and `vine-picture` write this"
        " page.",
        "",
    ]
    if results:
        lines += _variance_section(results)
    bias = files.read_json(out / f"{BIAS}.json")
    if bias:
        lines += _bias_section(bias)
    if (out / f"{BRANCHES}.json").exists():
        lines += [
            "## Trunks and branches",
            "",
            "One small iteration on the paper's hopper, after some learning: three trunks, ten"
            " branch states, four rollouts of at most 40 steps from each of them (Figure 1).",
            "",
            *page.picture(BRANCHES, "Trunks and branches of one vine iteration on the hopper"),
            "```sh",
            "trellis reproduce vine-picture",
            "```",
            "",
        ]
    page.write(out, lines, FILES)


def _variance_section(results: Record) -> list[str]:
    sweep, rows = results["sweep"], results["rows"]
    has_baseline = all(TIME_BASELINE in row["gradients"] for row in rows)
    columns = COLUMNS | (BASELINE_COLUMNS if has_baseline else {})
    return [
        *page.claims_table(_claims(rows)),
        *page.verdict_meanings(),
        "## Variance",
        "",
        "Each ratio compares two variances. *Differences* is the variance of Q̂(s, a₁) − Q̂(s, a₂)"
        " over the noise, with separate noise and with common random numbers. *Gradient* is the"
        " variance of the surrogate's gradient over"
        f" {sweep['batches']} batches, relative to its squared mean. Above 1, the second name in a"
        " heading is better.",
        "",
        *page.table(
            ("case", *columns),
            [
                (case_name(row), *(f"{value(row):.3g}" for value in columns.values()))
                for row in rows
            ],
        ),
        *page.picture(VARIANCE, "Variances of vine and single path"),
        f"Single path has {sweep['paths']} paths per batch. Vine cuts its rollouts at the paper's"
        " length, so the two methods estimate slightly different targets.",
        "",
        "```sh",
        f"# written by commit {results['commit']}",
        f"trellis reproduce vine-variance --batches {sweep['batches']}",
        "```",
        "",
    ]


def _bias_section(results: Record) -> list[str]:
    sweep = results["sweep"]
    return [
        "## Proposals",
        "",
        f"The gradient of the self-normalized estimator with K = {sweep['tried']} of"
        f" {sweep['actions']} actions, against the exact ∇L, with exact Q-values. All choices of"
        f" actions are enumerated; numbers are means over {sweep['mdps']} random MDPs. The policy"
        " gives its best action the probability in the first column and shares the rest equally."
        " *Cosine* is 1 if the expected gradient has the right direction. *Length* is its length"
        " relative to ∇L. *Noise* is the variance over the squared mean, times the rollouts per"
        " state, without the noise of Q̂. The mixture is half policy, half uniform.",
        "",
        *page.table(
            ("best action", "proposal", "rollouts per state", "cosine", "length", "noise"),
            [
                (
                    f"{row['best_action']:g}",
                    row["proposal"],
                    f"{row['rollouts']:.0f}",
                    f"{row['cosine']:.3f}",
                    f"{row['length']:.2f}",
                    f"{row['noise_per_rollout']:.1f}",
                )
                for row in results["rows"]
            ],
        ),
        "Uniform actions point elsewhere once the policy prefers an action. The policy's own"
        " actions point right, but a decided policy samples the same action four times. The mixture"
        " has neither problem, so `paper/atari-vine` uses it. `every` has no bias at 4.5 times the"
        " rollouts per state.",
        "",
        "```sh",
        "trellis reproduce vine-bias",
        "```",
        "",
    ]


def _claims(rows: Sequence[Record]) -> list[Claim]:
    factors = [row["factor"] for row in rows]
    # Single path with the better of its baselines.
    paths = [[name for name in row["gradients"] if name.startswith("single path")] for row in rows]
    per_q_value = [
        min(_ratio(row, name, "per_q_value") for name in names)
        for row, names in zip(rows, paths, strict=True)
    ]
    steps = [_steps_per_q_value(row) for row in rows]
    link = "[variance](#variance)"
    return [
        Claim(
            "Sec. 5.2",
            "Common random numbers greatly reduce the variance of Q-value differences",
            judge(factor >= CLEARLY for factor in factors),
            f"variance lower by a factor of {min(factors):.1f} to {max(factors):.1f}",
            link,
        ),
        Claim(
            "Sec. 5.2",
            "Per Q-value, vine has much lower variance than single path",
            judge(ratio >= CLEARLY for ratio in per_q_value),
            f"variance lower by a factor of {min(per_q_value):.1f} to {max(per_q_value):.1f}",
            link,
        ),
        Claim(
            "Sec. 5.2",
            "Vine needs far more simulator calls per estimate",
            judge(count >= CLEARLY for count in steps),
            f"{min(steps):.0f} to {max(steps):.0f} steps per Q-value; single path: 1",
            link,
        ),
    ]


def _ratio(row: Record, other: str, key: str) -> float:
    return row["gradients"][other][key] / row["gradients"]["vine"][key]


def _steps_per_q_value(row: Record) -> float:
    vine = row["gradients"]["vine"]
    return vine["steps"] / vine["q_values"]
