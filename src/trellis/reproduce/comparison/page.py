"""The page of a comparison: claims, a section per task, the evidence, the files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trellis.analysis.statistics import interval_text
from trellis.reproduce import page
from trellis.reproduce.comparison import figure
from trellis.reproduce.comparison.findings import GAIN, LEAST_SEEDS, SIMILAR, SOLVED, solved, title
from trellis.reproduce.comparison.gait import EPISODES
from trellis.reproduce.comparison.improvement import FOLDER
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.files import Record
from trellis.reproduce.page import BLANK, Claim, Verdict, cell

AGREES = {True: "yes", False: "no", None: "undecided"}
TABLE: dict[str, Callable[[str, str, Record], str]] = {
    "method": lambda _, method, record: figure.full_label(method, record),
    "scale": lambda *of: f"{of[-1]['scale']:g}",
    "seeds": lambda *of: str(len(of[-1]["runs"])),
    "solved": lambda task, _, record: f"{sum(solved(task, run) for run in record['runs'])}",
    "return": lambda *of: f"{of[-1]['mean_return']:.1f}",
    "95% interval": lambda *of: interval_text(*of[-1]["interval_95"], blank=BLANK),
    "m/s": lambda *of: cell(of[-1].get("mean_velocity"), ".2f"),
    "median episode": lambda *of: cell(of[-1].get("median_length"), ".0f"),
    "reward per step": lambda *of: cell(of[-1]["final_reward"]["mean"], ".2f"),
    "minutes": lambda *of: f"{of[-1]['mean_minutes']:.1f}",
    "paper's minutes": lambda *of: cell(of[-1]["paper_minutes"], "g"),
}
"""The columns of a task's table: heading, and the cell of a task, method and record."""
COLUMNS = (
    ("scale", "Steps per iteration, as a part of the paper's."),
    ("seeds, solved", "Number of runs, and of runs that solve the task."),
    (
        "return",
        f"Mean over seeds of the final policy, {EPISODES} episodes without exploration noise.",
    ),
    ("95% interval", "Student's interval over seeds."),
    ("m/s", "Mean forward velocity."),
    ("median episode", "Median over seeds of the median episode length, in steps."),
    (
        "reward per step",
        "Mean reward of a time step in the last tenth of training, with exploration noise.",
    ),
    ("minutes", "Time in iterations. Runs that share cores are slower."),
    ("paper's minutes", "Computation time in Table 2, for runs at full scale."),
)
"""What the columns mean."""
FILES = {
    "scores.csv": "One row per task and method: return, interval, velocity, minutes.",
    "runs.csv": "One row per run, including the runs of the sweeps.",
    "claims.json": "Every claim with its verdict and every case.",
    **{f"{name}.json": f"Scores of {title(name)}: settings, runs, evaluations." for name in SOLVED},
}


def write(out: Path, tasks: Record, claims: Sequence[Record]) -> None:
    """Write the page of a folder; every number comes from the JSON files."""
    names = {method for task in tasks.values() for method in task["methods"]}
    only = METHODS[names.pop()].label if len(names) == 1 else None
    lines = [
        f"# {only or 'Comparison of methods'} (Section 8.1)",
        "",
        "The paper compares seven algorithms, two of them TRPO, on four tasks. This page"
        f" {'has one of them' if only else 'repeats that comparison'}. The commands under each task"
        " made the results; with `--report-only` they write this page again without training.",
        "",
        *page.claims_table(
            _row(index, claim)
            for index, claim in enumerate(claims, start=1)
            if claim["findings"] or not only
        ),
        *page.verdict_meanings(),
    ]
    for name, task in tasks.items():
        lines += _task_section(name, task)
    lines += [
        "## What the columns mean",
        "",
        *page.table(("column", "meaning"), COLUMNS),
        *page.table(("task", "solved means"), [(title(name), SOLVED[name]) for name in tasks]),
        "## Methods",
        "",
        *page.table(("method", "`--methods`", "description"), _methods(tasks)),
        "## Evidence for each claim",
        "",
        "A method solves a task if every seed does. It does not solve it if no seed does. Anything"
        f" else is undecided, and so are fewer than {LEAST_SEEDS} seeds.",
        "",
        f"Two methods learn about as fast if their steps to {GAIN:.0%} of single path's gain in"
        f" return differ by at most a factor of {SIMILAR:g}. *Chance: up to n* is the largest"
        " number of iterations that would fall by chance alone, if no policy changed.",
        "",
    ]
    for index, claim in enumerate(claims, start=1):
        if claim["findings"]:
            lines += _evidence(index, claim)
    measured = sorted(path.relative_to(out).as_posix() for path in out.glob(f"{FOLDER}/*.json"))
    about = "Gains of single iterations, as `trellis improvement RUN --json` printed them."
    page.write(out, lines, FILES | dict.fromkeys(measured, about))


def _row(index: int, claim: Record) -> Claim:
    verdict = Verdict(claim["verdict"])
    link = f"[claim {index}](#claim-{index})" if claim["findings"] else BLANK
    return Claim(_place(claim), claim["claim"], verdict, claim["evidence"], link)


def _place(claim: Record) -> str:
    section = claim["section"]
    return "Abstract" if section == "abstract" else f"Sec. {section}"


def _task_section(name: str, task: Record) -> list[str]:
    """Return the figures, the scores, the sweeps, the videos and the commands of a task."""
    records = task["methods"]
    rows = [[text(name, *each) for text in TABLE.values()] for each in records.items()]
    used = [index for index in range(len(TABLE)) if any(row[index] != BLANK for row in rows)]
    columns = list(TABLE)
    heading = title(name)
    compared = len(records) > 1 and figure.REFERENCE in records
    gray = " The gray line is single-path TRPO." if compared else ""
    still = ""
    if task["standing_reward"] is not None:
        still = f" A policy that stands still has {task['standing_reward']:g}."
    lines = [
        f"## {heading[0].upper()}{heading[1:]}",
        "",
        f"Each run has {task['iterations']} iterations. This is Figure 4 as the paper seems to have"
        " plotted it: the mean reward per time step of the stochastic policy. The paper plots minus"
        f" that.{still}",
        "",
        *page.picture(f"{name}-reward", f"Reward per time step on {heading}"),
        "The next figure has the return of training episodes. A panel shows one method: the mean"
        f" over seeds with its 95% band.{gray}",
        "",
        *page.picture(name, f"Learning curves of each method on {heading}"),
    ]
    lines += page.table(
        [columns[index] for index in used], [[row[index] for index in used] for row in rows]
    )
    for method, sweep in task["sweeps"].items():
        lines += _sweep(METHODS[method].label, sweep)
    videos = [f"[{METHODS[method].label}]({video})" for method, video in task["videos"].items()]
    if videos:
        lines += [f"Videos: {'; '.join(videos)}.", ""]
    made = [(figure.label(method, record), record) for method, record in records.items()]
    return [*lines, *page.commands(made)]


def _sweep(label: str, sweep: Record) -> list[str]:
    """Return the sweep of one setting, with the chosen value in bold."""
    runs = sweep["runs"]
    heading = [sweep["setting"], *(f"{run['value']:g}" for run in runs)]
    returns = [cell(run["training_return"], ".0f") for run in runs]
    chosen = [run["value"] == sweep["chosen"] for run in runs]
    row = ["return", *(f"**{r}**" if c else r for r, c in zip(returns, chosen, strict=True))]
    edge = " It lies at the edge of the sweep." if sweep["chosen_is_at_the_edge"] else ""
    return [
        f"Sweep of {label}: mean return in the last tenth of training, one run per value. Bold: the"
        f" chosen value.{edge}",
        "",
        *page.table(heading, [row]),
    ]


def _methods(tasks: Record) -> list[tuple[str, str, str]]:
    """Return the name, option and description of the methods that were run."""
    used = {method for task in tasks.values() for method in task["methods"]}
    return [(m.label, f"`{m.name}`", m.about) for m in METHODS.values() if m.name in used]


def _evidence(index: int, claim: Record) -> list[str]:
    """Return the section of one claim: the paper's words, and every case."""
    lines = [
        f"### Claim {index}",
        "",
        f"“{claim['paper']}” ({_place(claim)}). Verdict: {claim['verdict']}.",
        "",
    ]
    rows = [
        (
            *(case["task"], case["method"], case["found"]),
            AGREES[case["holds"]] if case["counted"] else "not counted",
        )
        for case in claim["findings"]
    ]
    lines += page.table(("task", "method", "found", "agrees"), rows)
    if claim["missing"]:
        lines += [f"Not run: {'; '.join(claim['missing'])}.", ""]
    return lines
