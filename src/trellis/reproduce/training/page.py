"""The page of the training results: final returns, learning curves, files."""

from pathlib import Path

from trellis.analysis.statistics import interval_text
from trellis.reproduce import page
from trellis.reproduce.files import Record
from trellis.reproduce.kept_runs import files_of
from trellis.reproduce.page import BLANK

FIGURE = "curves"
SB3 = "https://sb3-contrib.readthedocs.io/en/master/modules/trpo.html"
TIANSHOU = "https://github.com/thu-ml/tianshou/tree/master/examples/mujoco"
NNABLA = "https://github.com/sony/nnabla-rl/tree/master/reproductions/algorithms/mujoco"
BASELINES = "https://github.com/openai/baselines-results"
PUBLISHED = {
    "InvertedDoublePendulum-v5": f"8,994 ([nnabla-rl]({NNABLA}))",
    "Hopper-v5": f"3,372 ([sb3-contrib]({SB3}))",
    "Walker2d-v5": f"4,502 ([sb3-contrib]({SB3}))",
    "Swimmer-v5": f"359 ([sb3-contrib]({SB3}))",
    "HalfCheetah-v5": f"4,527 ([Tianshou]({TIANSHOU}))",
    "Ant-v5": f"3,554 ([sb3-contrib]({SB3}))",
    "Humanoid-v5": f"810 ([Tianshou]({TIANSHOU}))",
    "InvertedPendulum-v5": f"1,000 ([nnabla-rl]({NNABLA}))",
    "Reacher-v5": f"−4.8 ([baselines]({BASELINES}))",
    "Ant-v5-3M": f"4,897 ([Tianshou]({TIANSHOU}))",
    "Humanoid-v5-3M": f"5,154 ([Tianshou]({TIANSHOU}))",
}
"""Highest published mean over seeds of TRPO after these steps that we know of, and its source."""
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
            (
                *("task", "steps", "seeds", "mean return", "95% interval", "interquartile mean"),
                *("goal", "reached", "best published"),
            ),
            [_row(task) for task in tasks],
        ),
        "The interval is Student's interval over seeds. Goals were set before these runs. The"
        " published means are for TRPO after as many steps, on earlier versions of the tasks (v3)."
        " sb3-contrib has three seeds, Tianshou ten.",
        "",
        "## Each seed",
        "",
        *page.table(
            ("task", "first seed", "returns", "lowest over mean"), [_seeds(task) for task in tasks]
        ),
        "## Learning curves",
        "",
        "The curves show training episodes, which include exploration noise. So they can lie far"
        " below the final return, as on InvertedDoublePendulum-v5.",
        "",
        *page.picture(FIGURE, "Learning curves of the modern presets"),
    ]
    default = curves.get("source", "logs")
    sources = {name: curve.get("source", default) for name, curve in curves["tasks"].items()}
    for source in sorted(set(sources.values()) - {"logs"}):
        named = ", ".join(name for name in sources if sources[name] == source)
        lines += [f"Source of the curves of {named}: {source}.", ""]
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
    page.write(out, lines, {**FILES, **files_of(out)})


def _name(task: Record) -> str:
    return task.get("task", task["env"])


def _row(task: Record) -> list[str]:
    goal, mean = task["goal"], task["mean_return"]
    start, spec = task["first_return"], spec_of(mean)
    middle = task.get("interquartile_mean")
    return [
        _name(task),
        f"{task['steps']:,}",
        str(len(task["runs"])),
        f"{mean:{spec}}",
        interval_text(*task["interval_95"], spec=spec, blank=BLANK),
        BLANK if middle is None else f"{middle:{spec}}",
        f"above the start, {start:,.0f}" if goal is None else f"{goal:,}",
        "yes" if mean >= (start if goal is None else goal) else "no",
        PUBLISHED.get(_name(task), BLANK),
    ]


def _seeds(task: Record) -> list[str]:
    spec = spec_of(task["mean_return"])
    returns = [run["mean_return"] for run in task["runs"]]
    lowest = min(returns) / task["mean_return"]
    return [
        _name(task),
        str(min(run["seed"] for run in task["runs"])),
        " ".join(f"{value:{spec}}" for value in returns),
        f"{lowest:.2f}" if task["mean_return"] > 0 else BLANK,
    ]


def spec_of(mean: float) -> str:
    """Return the format of a task's returns: one decimal for small ones."""
    return ",.0f" if abs(mean) >= 100 else ",.1f"
