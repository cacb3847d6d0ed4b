"""Learning curves, from the logs of runs alone: return against steps or seconds.

Runs that differ in nothing but their seed are one curve, the mean over seeds on a common grid, with
a 95% confidence band (Student's t). A single run is drawn as it is. A panel per environment.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.config import to_json
from trellis.runs.folder import read_config
from trellis.runs.log import read_metrics

X = Literal["steps", "seconds"]
Y = Literal["episode_return_mean", "eval_return_mean"]
CONFIDENCE = 0.95
GRID_POINTS = 300
NOT_AN_EXPERIMENT = (
    "schema_version",
    "seed",
    "threads",
    "total_steps",
    "max_iterations",
    "eval_every",
    "eval_episodes",
    "eval_drawn",
    "checkpoint_every",
    "keep_checkpoints",
)
"""Settings in which repetitions of one experiment may differ."""
LABELS = {
    "steps": "simulator steps",
    "seconds": "seconds of training",
    "episode_return_mean": "mean return of finished episodes",
    "eval_return_mean": "mean return of evaluations",
}
# Okabe and Ito's colours, which those who see red and green alike can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@dataclass(frozen=True)
class Curve:
    """One run: where it is, what it was, and its return where it is known."""

    folder: Path
    config: Mapping[str, Any]
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @property
    def settings(self) -> dict[str, Any]:
        """What makes the experiment, flat: `step.max_kl` and so on."""
        return settings_of(self.config, NOT_AN_EXPERIMENT)


class Band(NamedTuple):
    """A mean over seeds and its confidence interval, on one grid."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def draw(
    folders: Sequence[str | Path],
    path: str | Path,
    *,
    x: X = "steps",
    y: Y = "episode_return_mean",
) -> Path:
    """Draws the curves of these runs into a picture; its path.

    Raises:
        FileNotFoundError: a folder is not a run.
        ValueError: there is nothing to draw, or a run is given twice.
    """
    if not folders:
        raise ValueError("name at least one run to draw")
    groups = group([read_curve(folder, x, y) for folder in folders])
    pyplot = load_pyplot()
    environments = list(dict.fromkeys(curves[0].config["env"] for curves in groups))
    with pyplot.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(
            1,
            len(environments),
            figsize=(1.2 + 5.8 * len(environments), 4.4),
            squeeze=False,
            layout="constrained",
        )
        for axis, environment in zip(axes[0], environments, strict=True):
            here = [curves for curves in groups if curves[0].config["env"] == environment]
            _draw_panel(axis, here, x)
            axis.set(title=environment, xlabel=LABELS[x])
        axes[0, 0].set_ylabel(LABELS[y])
        path = Path(path)
        path = path if path.suffix else path.with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)
    return path


def read_curve(folder: str | Path, x: X = "steps", y: Y = "episode_return_mean") -> Curve:
    """The curve of one run; iterations in which no episode ended are left out."""
    folder = Path(folder)
    config = read_settings(folder)
    rows = read_metrics(folder) if (folder / "metrics.jsonl").is_file() else []
    across = seconds(rows) if x == "seconds" else [row["steps"] for row in rows]
    points = [(at, row[y]) for at, row in zip(across, rows, strict=True) if row.get(y) is not None]
    if not points:
        what = "no evaluation" if y == "eval_return_mean" else "no episode"
        raise ValueError(f"there is nothing to draw in {folder}: {what} has ended in it yet")
    return Curve(folder, config, *np.array(points, np.float64).T)


def read_settings(folder: Path) -> dict[str, Any]:
    """The configuration of a run as plain values."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is not a run: it has no config.json")
    # Through the configuration, so that a run from before a setting existed has its default.
    return json.loads(json.dumps(to_json(read_config(folder))))


def settings_of(config: Mapping[str, Any], but: Sequence[str]) -> dict[str, Any]:
    """Settings flat, `step.max_kl` and so on, but for some."""
    return dict(_flatten({k: v for k, v in config.items() if k not in but}))


def group(curves: Sequence[Curve]) -> list[list[Curve]]:
    """The curves by experiment: together are those that differ in nothing but their seed."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        key = json.dumps(curve.settings, sort_keys=True)
        for other in groups.setdefault(key, []):
            if other.config["seed"] == curve.config["seed"]:
                raise ValueError(
                    f"{other.folder} and {curve.folder} have the same settings and the same seed"
                    f" {curve.config['seed']}: a mean would count one experiment twice; leave one"
                    " of them out"
                )
        groups[key].append(curve)
    return list(groups.values())


def band(curves: Sequence[Curve], points: int = GRID_POINTS) -> Band:
    """Mean and 95% interval of at least two curves, where all of them have something to say."""
    # Not scipy.stats, which takes a second to load.
    from scipy.special import stdtrit

    start = max(curve.x[0] for curve in curves)
    end = min(curve.x[-1] for curve in curves)
    if start > end:
        raise ValueError(
            "these runs have no part in common: "
            + ", ".join(f"{c.folder} has {c.x[0]:g} to {c.x[-1]:g}" for c in curves)
        )
    grid = np.linspace(start, end, points)
    values = np.array([np.interp(grid, curve.x, curve.y) for curve in curves])
    n = len(curves)
    mean = values.mean(axis=0)
    half = stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return Band(grid, mean, mean - half, mean + half)


def names(groups: Sequence[Sequence[Curve]]) -> list[str]:
    """What to call each experiment: method and preset, and the settings in which they differ."""
    settings = [curves[0].settings for curves in groups]
    keys = dict.fromkeys(key for each in settings for key in each)
    base = ("step.method", "preset")
    varied = [
        key
        for key in keys
        if key not in base and len({repr(each.get(key)) for each in settings}) > 1
    ]
    columns = [
        (key.split(".")[-1], short([each.get(key) for each in settings])) for key in varied[:4]
    ]
    labels = []
    for index, curves in enumerate(groups):
        words = [str(settings[index][key]) for key in base if settings[index].get(key) is not None]
        words += [f"{name}={values[index]}" for name, values in columns]
        count = f"{len(curves)} seeds" if len(curves) > 1 else f"seed {curves[0].config['seed']}"
        labels.append(f"{', '.join(words)} ({count})")
    return labels


def _draw_panel(axis: Any, groups: Sequence[Sequence[Curve]], x: X) -> None:
    for index, (curves, label) in enumerate(zip(groups, names(groups), strict=True)):
        color = COLORS[index % len(COLORS)]
        if len(curves) == 1:
            axis.plot(curves[0].x, curves[0].y, color=color, label=label, linewidth=1.3)
            continue
        shown = band(curves)
        axis.plot(shown.x, shown.mean, color=color, label=label, linewidth=1.6)
        axis.fill_between(shown.x, shown.low, shown.high, color=color, alpha=0.18, linewidth=0)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    axis.set_xlim(left=0)
    if x == "steps":
        from matplotlib.ticker import EngFormatter

        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def seconds(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Time spent in iterations up to and with each: evaluations and pauses do not count."""
    parts = ("seconds_sampling", "seconds_estimation", "seconds_update")
    return np.cumsum([sum(row.get(part) or 0.0 for part in parts) for row in rows])


def _flatten(values: Mapping[str, Any], prefix: str = ""):
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def short(values: Sequence[Any]) -> list[str]:
    """Values of a setting in few letters, but as many as it takes to tell them apart."""
    words = [_short(value) for value in values]
    exact = [repr(value) for value in values]
    return words if len(set(words)) == len(set(exact)) else exact


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "×".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def load_pyplot() -> Any:
    """matplotlib without a display; says what to install where it is missing."""
    try:
        import matplotlib
    except ImportError as missing:
        raise ImportError("plots need matplotlib: pip install 'trellis-rl[plots]'") from missing
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
