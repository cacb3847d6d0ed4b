"""Make hero.png, the first picture of the README: two gaits beside their learning curves.

Everything comes from `results/full-size`, which `trellis reproduce locomotion` wrote: frames of its
videos, and the returns of the training episodes in its JSON files.

    python docs/pictures/hero.py
"""

import json
from pathlib import Path
from typing import NamedTuple

import imageio.v3 as iio
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results" / "full-size"
WIDTH, HEIGHT = 1600, 700
"""Pixels; a page shows the picture at half this size."""


class Gait(NamedTuple):
    """One row of the picture."""

    task: str
    does: str
    frames: range
    """Frames of the video, which has 50 in a second."""
    center: int
    """Column of a frame around which it is cropped."""
    color: str
    """A color of the Okabe-Ito palette, which color-blind readers can tell apart."""


GAITS = (
    Gait("hopper", "hops", range(121, 151, 6), 228, "#D55E00"),
    Gait("walker", "walks", range(94, 129, 7), 240, "#0072B2"),
)
CROP = (120, 465, 188)
"""First and last line of a frame, and the width of its crop."""


def main() -> None:
    """Write hero.png beside this file."""
    plt.rcParams.update({"font.size": 21, "font.family": "DejaVu Sans", "axes.linewidth": 1.5})
    figure = plt.figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
    grid = figure.add_gridspec(
        2, 2, width_ratios=(1.62, 1), left=0, right=0.985, top=0.93, bottom=0.115, wspace=0.2,
        hspace=0.32,
    )  # fmt: skip
    for row, gait in enumerate(GAITS):
        method = json.loads((RESULTS / f"{gait.task}.json").read_text())["methods"]["trpo"]
        _filmstrip(figure.add_subplot(grid[row, 0]), gait, method)
        _curve(figure.add_subplot(grid[row, 1]), gait, method, last=row == len(GAITS) - 1)
    figure.savefig(HERE / "hero.png", dpi=100)


def _filmstrip(axes, gait: Gait, method: dict) -> None:
    video = iio.imread(RESULTS / f"{gait.task}-trpo.mp4")
    top, bottom, width = CROP
    left = gait.center - width // 2
    images = [video[i, top:bottom, left : left + width] for i in gait.frames]
    gap = 6
    for index, image in enumerate(images):
        x = index * (width + gap)
        axes.imshow(image, extent=(x, x + width, bottom - top, 0), interpolation="lanczos")
    axes.set(xlim=(0, len(images) * (width + gap) - gap), ylim=(bottom - top, 0))
    axes.set_axis_off()
    axes.set_aspect("auto")
    velocity = method["mean_velocity"]
    axes.set_title(
        f"  The {gait.task} {gait.does} at {velocity:.1f} m/s", loc="left", fontweight="bold"
    )


def _curve(axes, gait: Gait, method: dict, *, last: bool) -> None:
    curve = method["curves"]["return_by_seconds"]
    minutes = [seconds / 60 for seconds in curve["x"]]
    axes.plot(minutes, curve["mean"], color=gait.color, linewidth=3)
    axes.set_title(f"Return in training ({gait.task})", loc="left", fontsize=22)
    axes.set(xlim=(0, 60), ylim=(0, None), xticks=range(0, 61, 15))
    axes.set_yticks([0, 1000, 2000, 3000][: 3 if gait.task == "hopper" else 4])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if last:
        axes.set_xlabel("minutes on two CPU cores")


if __name__ == "__main__":
    main()
