"""Learning curves: grouped by experiment, interpolated, with the right band, from logs alone."""

import json
import sys

import numpy as np
import pytest

from trellis.analysis import curves as plots
from trellis.analysis.logged_run import group_runs
from trellis.config import TrainConfig, to_json
from trellis.runs.folder import RunFolderError

pytest.importorskip("matplotlib")


def write_run(folder, returns, *, steps=None, seconds=0.5, env="CartPole-v1", seed=0, **settings):
    folder.mkdir()
    config = to_json(TrainConfig(env=env, seed=seed))
    for key, value in settings.items():
        part, _, name = key.partition("__")
        if name:
            config[part][name] = value
        else:
            config[part] = value
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for index, value in enumerate(returns):
        at = steps[index] if steps else 100 * (index + 1)
        row = {"iteration": index + 1, "steps": at, "episode_return_mean": value}
        row |= {"seconds_sampling": seconds, "seconds_update": 0.1, "seconds_estimation": None}
        lines.append(json.dumps(row) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def test_a_curve_leaves_out_what_is_not_known(tmp_path):
    curve = plots.read_curve(write_run(tmp_path / "a", [None, 10.0, None, 30.0]))
    np.testing.assert_array_equal(curve.line.x, [200, 400])
    np.testing.assert_array_equal(curve.line.y, [10, 30])
    # Time passes also in iterations without an episode's end.
    curve = plots.read_curve(tmp_path / "a", x="seconds")
    np.testing.assert_allclose(curve.line.x, [1.2, 2.4])


def timed(*seconds, steps=1000):
    """The log of iterations that took these times."""
    return [
        {"steps": steps * (k + 1), "seconds_sampling": s, "seconds_update": None}
        for k, s in enumerate(seconds)
    ]


def test_the_time_axis_does_not_jump_where_a_run_was_resumed():
    usual = [1.0, 1.2] * 10
    # Compilation after a resume, and a process that was suspended for a while.
    resumed = [*usual[:8], 20.0, *usual[9:14], 1300.0, *usual[15:]]
    np.testing.assert_allclose(plots.seconds(timed(*resumed)), np.cumsum(usual), atol=0.5)
    assert np.diff(plots.seconds(timed(*resumed))).max() < 2
    # Waiting for the first compilation is part of training.
    first = plots.seconds(timed(30.0, *usual))
    np.testing.assert_allclose(first, np.cumsum([30.0, *usual]))
    # A slow iteration is not an interruption, nor is one with more steps.
    slow = [*usual[:5], 6.0, *usual[6:]]
    np.testing.assert_allclose(plots.seconds(timed(*slow)), np.cumsum(slow))
    longer = timed(*resumed)
    for row in longer[14:]:
        row["steps"] += 1_300_000
    assert plots.seconds(longer)[-1] > 1300
    assert plots.seconds(timed(1.0)) == [1.0]


def test_the_band_is_student_t_over_seeds_on_a_common_grid(tmp_path):
    # Straight lines, so that interpolation is exact: y = x, y = 2x, y = 6x, logged at other steps.
    steps = ([100, 200, 700], [150, 300, 450, 600], [100, 650])
    curves = [
        plots.read_curve(write_run(tmp_path / str(k), [slope * s for s in at], steps=at, seed=k))
        for k, (slope, at) in enumerate(zip((1, 2, 6), steps, strict=True))
    ]
    band = plots.band([curve.line for curve in curves])
    assert (band.x[0], band.x[-1]) == (150, 600)
    np.testing.assert_allclose(band.mean, 3 * band.x)
    # t(0.975, 2) = 4.302653 from a table; the standard deviation of 1, 2, 6 is √7.
    np.testing.assert_allclose(band.high - band.mean, 4.302653 * np.sqrt(7 / 3) * band.x, rtol=1e-6)
    np.testing.assert_allclose(band.mean - band.low, band.high - band.mean)


def test_runs_group_by_everything_but_seed_and_bookkeeping(tmp_path):
    curves = [
        plots.read_curve(folder)
        for folder in (
            write_run(tmp_path / "a", [1.0], seed=0),
            write_run(tmp_path / "b", [1.0], seed=0, step__max_kl=0.02),
            write_run(tmp_path / "c", [1.0], seed=1, threads=1, checkpoint_every=5),
            write_run(tmp_path / "d", [1.0], seed=0, preset="paper"),
            # Another length and other evaluations: schedules and scores differ.
            write_run(tmp_path / "e", [1.0], seed=2, total_steps=5),
            write_run(tmp_path / "f", [1.0], seed=3, eval_drawn=True),
        )
    ]
    groups = group_runs(curves)
    named = [[c.folder.name for c in g] for _, g in groups]
    assert named == [["a", "c"], ["b"], ["d"], ["e"], ["f"]]
    first, second, third = plots.names(groups[:3])
    assert first == "trpo, max_kl=0.01 (2 seeds)"
    assert second == "trpo, max_kl=0.02 (seed 0)"
    assert third == "trpo, paper, max_kl=0.01 (seed 0)"


def test_one_experiment_is_not_counted_twice(tmp_path):
    runs = [write_run(tmp_path / name, [1.0, 2.0], seed=3) for name in "ab"]
    with pytest.raises(ValueError, match=r"a and .*b have the same settings and the same seed 3"):
        plots.plot(runs, tmp_path / "p.png")


def test_a_picture_of_one_run_and_of_many(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    runs = [write_run(tmp_path / f"r{k}", [1.0 * k, 2.0, None, 4.0], seed=k) for k in range(3)]
    other = write_run(tmp_path / "o", [5.0, 6.0], env="Hopper-v5")
    one = plots.plot(runs[:1], tmp_path / "new" / "one.png")
    many = plots.plot([*runs, other], tmp_path / "many.png", x="seconds")
    narrow, wide = image.imread(one), image.imread(many)
    assert wide.shape[1] > 1.5 * narrow.shape[1]
    vector = plots.plot(runs, tmp_path / "one.svg")
    assert vector.read_text().startswith("<?xml")
    for picture in (narrow, wide):
        # Something is plotted in the first colour, and most of it is background.
        blue = np.abs(picture[..., :3] - np.array([0, 0x72, 0xB2]) / 255).sum(axis=2) < 0.1
        assert blue.sum() > 300
        assert (picture[..., :3].min(axis=2) > 0.98).mean() > 0.7


def test_what_cannot_be_plotted_says_why(tmp_path, monkeypatch):
    with pytest.raises(RunFolderError, match=r"nowhere is not a run: there is no config.json"):
        plots.plot([tmp_path / "nowhere"], tmp_path / "p.png")
    empty = write_run(tmp_path / "empty", [None, None])
    with pytest.raises(ValueError, match=r"empty has nothing to plot: no episode has ended"):
        plots.plot([empty], tmp_path / "p.png")
    with pytest.raises(ValueError, match=r"empty has nothing to plot: no evaluation has ended"):
        plots.plot([empty], tmp_path / "p.png", y="eval_return_mean")
    early = write_run(tmp_path / "early", [1.0, 2.0], steps=[1, 2])
    late = write_run(tmp_path / "late", [1.0, 2.0], steps=[5, 6], seed=1)
    with pytest.raises(ValueError, match="no common part"):
        plots.plot([early, late], tmp_path / "p.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'trellis-rl\[plots\]'"):
        plots.plot([early], tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()
