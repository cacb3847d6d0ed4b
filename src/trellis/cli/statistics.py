"""`trellis plot` and `trellis compare`: what the logs of runs say."""

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trellis.cli.folder import Flag, Runs
from trellis.cli.messages import asking


def plot(
    runs: Runs,
    *,
    out: Path = Path("curves.png"),
    x: Literal["steps", "seconds"] = "steps",
    evaluations: Flag[bool] = False,
) -> int:
    """Draws learning curves; runs that differ in their seed alone become a mean with a 95% band.

    Args:
        out: The picture to write.
        x: What the return is drawn against.
        evaluations: Draws the evaluations without noise instead of the training episodes.
    """
    with asking():
        from trellis.analysis import curves as plots

        y = "eval_return_mean" if evaluations else "episode_return_mean"
        print(plots.draw(runs, out, x=x, y=y))
    return 0


def compare(
    runs: Runs,
    *,
    training: Flag[bool] = False,
    json_: Annotated[Flag[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Compares final performance: interquartile means, 95% intervals, probability of improvement.

    Args:
        training: Takes the training episodes of the last tenth instead of the last evaluation.
        json_: Prints one JSON object and nothing else.
    """
    with asking():
        from trellis.analysis import compare as compare_runs

        found = compare_runs.compare_runs(runs, training=training)
    if json_:
        print(json.dumps(found))
    else:
        compare_runs.show(found)
    return 0
