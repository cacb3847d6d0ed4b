"""The page of the training results: final returns, learning curves, files."""

from pathlib import Path

from trellis.analysis.statistics import interval_text
from trellis.reproduce import page
from trellis.reproduce.files import Record
from trellis.reproduce.page import BLANK

FIGURE = "curves"
SB3 = "https://sb3-contrib.readthedocs.io/en/master/modules/trpo.html"
TIANSHOU = "https://github.com/thu-ml/tianshou/tree/master/examples/mujoco"
NNABLA = "https://github.com/sony/nnabla-rl/tree/master/reproductions/algorithms/mujoco"
PUBLISHED = {
    "InvertedDoublePendulum-v5": f"8,994 ([nnabla-rl]({NNABLA}))",
    "Hopper-v5": f"3,372 ([sb3-contrib]({SB3}))",
    "Walker2d-v5": f"4,502 ([sb3-contrib]({SB3}))",
    "Swimmer-v5": f"359 ([sb3-contrib]({SB3}))",
    "HalfCheetah-v5": f"4,527 ([Tianshou]({TIANSHOU}))",
}
"""Highest published mean over seeds of TRPO at 1M steps that we know of, and its source."""
FILES = {
    "training.json": "Final returns of every run and their means.",
    "training.csv": "One row per run.",
    "curves.json": "Learning curves: mean over seeds and 95% band.",
}


def write(results: Record, curves: Record, out: Path) -> None:
    """Write the page, from training.json and curves.json alone."""
    tasks = results["tasks"]
    lines = [
        "# Training with the modern presets",
        "",
        "The final policy of each run plays"
        f" {results['episodes']} episodes without exploration noise. The table shows the mean over"
        " seeds. `trellis reproduce training` writes this page.",
        "",
        "## Final returns",
        "",
        *page.table(
            ("task", "steps", "mean return", "95% interval", "goal", "reached", "best published"),
            [_row(task) for task in tasks],
        ),
        "The interval is Student's interval over seeds. Goals were set before these runs. The"
        " published means are for TRPO after 1M steps, on earlier versions of the tasks (v3)."
        " sb3-contrib has three seeds, Tianshou ten.",
        "",
        "## Each seed",
        "",
        *page.table(
            ("task", *(f"seed {run['seed']}" for run in tasks[0]["runs"])),
            [
                (task["env"], *(f"{run['mean_return']:,.0f}" for run in task["runs"]))
                for task in tasks
            ],
        ),
        "## Learning curves",
        "",
        "The curves show training episodes, which include exploration noise. So they can lie far"
        " below the final return, as on InvertedDoublePendulum-v5.",
        "",
        *page.picture(FIGURE, "Learning curves of the modern presets"),
    ]
    if curves["source"] != "logs":
        lines += [f"Source of the curves: {curves['source']}.", ""]
    commits = sorted({run["commit"] for task in tasks for run in task["runs"]})
    lines += [
        "## Command",
        "",
        "```sh",
        f"# runs by commits {', '.join(commits)}; written by commit {results['commit']}",
        results["command"],
        "```",
        "",
    ]
    page.write(out, lines, FILES)


def _row(task: Record) -> list[str]:
    goal, mean = task["goal"], task["mean_return"]
    start = task["first_return"]
    return [
        task["env"],
        f"{task['steps']:,}",
        f"{mean:,.0f}",
        interval_text(*task["interval_95"], spec=",.0f", blank=BLANK),
        f"above the start, {start:,.0f}" if goal is None else f"{goal:,.0f}",
        "yes" if mean >= (start if goal is None else goal) else "no",
        PUBLISHED.get(task["env"], BLANK),
    ]
