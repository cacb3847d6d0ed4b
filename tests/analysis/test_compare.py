"""Statistics of few runs against numbers worked out by hand; `trellis compare` on invented runs."""

import dataclasses
import json

import numpy as np
import pytest

from tests.reproduce.invented import write_run
from trellis.analysis import statistics
from trellis.analysis.compare import compare_runs
from trellis.analysis.labels import group_labels
from trellis.analysis.tables import show
from trellis.config import SamplingConfig, StepConfig, TrainConfig


def rows(*scores):
    return [np.array(row, float) for row in scores]


def test_interquartile_means_by_hand():
    # Eight scores: two are cut at either end, whatever their task.
    assert (
        statistics.interquartile_mean(rows([9, 1, 100, 4], [-50, 3, 2, 8])) == (2 + 3 + 4 + 8) / 4
    )
    # Five: one at either end.
    assert statistics.interquartile_mean(rows([1000, 3, 1, 2, -7])) == 2
    assert statistics.interquartile_mean(rows([5, 8])) == 6.5
    with pytest.raises(ValueError, match="no scores"):
        statistics.interquartile_mean([])


def test_probability_of_improvement_by_hand():
    # 3 beats 1 and 2; 2 beats 1 and ties with 2: 3.5 of 4.
    assert statistics.probability_of_improvement(rows([3, 2]), rows([1, 2])) == 3.5 / 4
    # A second task that is lost counts as much, whatever its scale and number of runs.
    new, old = rows([3, 2], [-9e9]), rows([1, 2], [0, 1, 2])
    assert statistics.probability_of_improvement(new, old) == (3.5 / 4 + 0) / 2
    assert statistics.probability_of_improvement(rows([1, 5]), rows([5, 1])) == 0.5


def test_bootstrap_intervals_of_a_mean_are_those_of_the_normal():
    scores = np.random.default_rng(0).normal(10.0, 2.0, 400)
    found = statistics.bootstrap(lambda group: float(np.mean(group[0])), [scores])
    half = 1.96 * scores.std() / 20
    assert found.value == scores.mean()
    assert found.low == pytest.approx(scores.mean() - half, abs=0.03)
    assert found.high == pytest.approx(scores.mean() + half, abs=0.03)


def test_the_bootstrap_resamples_within_tasks():
    # Each task is constant: resampling within tasks always gives the same mean.
    def mean(group):
        return float(np.mean([row.mean() for row in group]))

    assert statistics.bootstrap(mean, rows([0, 0, 0], [10, 10, 10])) == (5, 5, 5)
    alone = statistics.bootstrap(mean, rows([3.0]))
    assert alone.value == 3
    assert np.isnan(alone.low)
    # One run against five: resampling the five tells nothing about the one.
    one = statistics.bootstrap(
        statistics.probability_of_improvement, rows([10.0]), rows([0, 1, 2, 3, 4])
    )
    assert one.value == 1
    assert np.isnan(one.high)
    two = statistics.bootstrap(mean, rows([1.0, 2.0]))
    assert np.isnan(two.high)


@pytest.mark.parametrize(("tasks", "runs", "least"), [(1, 5, 0.92), (1, 10, 0.93), (4, 4, 0.94)])
def test_intervals_of_few_runs_cover_the_truth_nearly_as_often_as_they_say(tasks, runs, least):
    rng, hits, trials = np.random.default_rng(0), 0, 400
    for seed in range(trials):
        scores = [rng.normal(size=runs) for _ in range(tasks)]
        found = statistics.bootstrap(
            statistics.interquartile_mean, scores, resamples=400, seed=seed
        )
        hits += found.low <= 0 <= found.high
    # Plain percentiles cover 0.895, 0.9125 and 0.8775 of these trials.
    assert least <= hits / trials <= 0.99


def test_students_interval_from_a_table():
    # t(0.975, 4) = 2.776445; the standard deviation of 1…5 is √2.5.
    found = statistics.mean_interval([1, 2, 3, 4, 5])
    assert found.value == 3
    assert found.high - found.value == pytest.approx(2.776445 * np.sqrt(2.5 / 5), rel=1e-6)
    assert np.isnan(statistics.mean_interval([1.0]).low)


def test_labels_say_no_more_than_it_takes():
    base = {"step.method": "trpo", "sampling.sampler": "single-path", "step.max_kl": 0.01, "n": 1}
    vine = {**base, "sampling.sampler": "vine", "step.max_kl": 0.02, "n": 2}
    other = {**base, "step.method": "cem", "n": 3}
    assert group_labels([base, vine, other]) == [
        "trpo, sampler=single-path",
        "trpo, sampler=vine",
        "cem",
    ]
    assert group_labels([base, {**base, "step.max_kl": 0.1}]) == [
        "trpo, max_kl=0.01",
        "trpo, max_kl=0.1",
    ]
    assert group_labels([base]) == ["trpo"]
    assert group_labels([base, other], mixed=["trpo"]) == ["trpo, sampler=single-path", "cem"]
    near = [{**base, "gamma": 0.9999999}, {**base, "gamma": 0.9999998}]
    assert group_labels(near) == ["trpo, gamma=0.9999999", "trpo, gamma=0.9999998"]
    assert group_labels([base, {**base, "n": 1.0}]) == ["trpo, n=1", "trpo, n=1.0"]


def test_runs_are_grouped_and_compared(tmp_path, capsys):
    folders = []
    for env, gain in (("CartPole-v1", 0.0), ("Hopper-v5", 1000.0)):
        for method, scores in (("trpo", [5, 6, 7]), ("max-kl", [1, 2, 8])):
            for seed, score in enumerate(scores):
                config = TrainConfig(env=env, seed=seed, step=StepConfig(method=method))
                folder = tmp_path / f"{env}-{method}-{seed}"
                evaluated = {"eval_return_mean": gain + score}
                folders.append(write_run(folder, config, [0.0] * 18 + [40.0, 60.0], **evaluated))
    found = compare_runs(folders)
    assert [(row["env"], row["group"]) for row in found["groups"]] == [
        ("CartPole-v1", "trpo"),
        ("CartPole-v1", "max-kl"),
        ("Hopper-v5", "trpo"),
        ("Hopper-v5", "max-kl"),
    ]
    first = found["groups"][0]
    assert first["interquartile_mean"]["value"] == first["mean"] == 6
    assert 5 <= first["interquartile_mean"]["low"] < 6 < first["interquartile_mean"]["high"] <= 7
    (pair,) = found["improvement"]
    assert (pair["group"], pair["over"]) == ("trpo", "max-kl")
    assert pair["envs"] == ["CartPole-v1", "Hopper-v5"]
    assert pair["value"] == pytest.approx(6 / 9)
    assert 0 <= pair["low"] < 6 / 9 < pair["high"] <= 1
    show(found)
    assert "Probability of improvement" in capsys.readouterr().out
    trained = compare_runs(folders[:3], training=True)["groups"][0]
    assert trained["scores"] == [50, 50, 50]


def test_samplers_are_not_pooled_over_environments(tmp_path):
    folders = []
    for env, sampler in (("CartPole-v1", "single-path"), ("Hopper-v5", "vine")):
        for method in ("trpo", "cem"):
            used = sampler if method == "trpo" else "single-path"
            config = TrainConfig(
                env, sampling=SamplingConfig(sampler=used), step=StepConfig(method=method)
            )
            folder = tmp_path / f"{env}-{method}"
            folders.append(write_run(folder, config, [0.0] * 20, eval_return_mean=1.0))
    pairs = [(p["group"], p["over"], p["envs"]) for p in compare_runs(folders)["improvement"]]
    assert pairs == [
        ("trpo, sampler=single-path", "cem", ["CartPole-v1"]),
        ("cem", "trpo, sampler=vine", ["Hopper-v5"]),
    ]


def test_runs_of_different_length_are_not_pooled(tmp_path, capsys):
    """And those that are not over are said to be so."""
    long = TrainConfig(env="CartPole-v1", total_steps=2000)
    short = dataclasses.replace(long, total_steps=1000)
    folders = [
        write_run(tmp_path / "long", long, [1.0] * 20, eval_return_mean=5.0),
        write_run(tmp_path / "short", short, [1.0] * 10, eval_return_mean=1.0),
        write_run(
            tmp_path / "going", dataclasses.replace(long, seed=1), [None] * 7, eval_return_mean=2.0
        ),
    ]
    found = compare_runs(folders)
    groups = {row["group"]: row for row in found["groups"]}
    assert groups["trpo, total_steps=2000"]["scores"] == [5.0, 2.0]
    assert groups["trpo, total_steps=2000"]["unfinished"] == [str(folders[2])]
    assert groups["trpo, total_steps=1000"]["scores"] == [1.0]
    assert groups["trpo, total_steps=1000"]["unfinished"] == []
    show(found)
    assert "unfinished runs (1 in all)" in capsys.readouterr().out


def test_a_run_from_before_a_setting_existed_has_its_default(tmp_path):
    runs = [
        write_run(tmp_path / str(seed), TrainConfig(env="CartPole-v1", seed=seed), [1.0])
        for seed in range(2)
    ]
    config = json.loads((runs[0] / "config.json").read_text())
    del config["step"]["damping_in_step_length"]
    (runs[0] / "config.json").write_text(json.dumps(config))
    assert len(compare_runs(runs, training=True)["groups"]) == 1


def test_what_cannot_be_compared(tmp_path):
    run = write_run(tmp_path / "a", TrainConfig(env="CartPole-v1"), [1.0])
    with pytest.raises(ValueError, match="has not been evaluated yet: compare it with --training"):
        compare_runs([run])
    twice = write_run(tmp_path / "b", TrainConfig(env="CartPole-v1"), [1.0])
    with pytest.raises(ValueError, match="same settings and the same seed 0"):
        compare_runs([run, twice], training=True)
    silent = write_run(tmp_path / "c", TrainConfig(env="CartPole-v1"), [1.0] * 18 + [None] * 2)
    with pytest.raises(ValueError, match=r"no episode of .* ended in the last tenth"):
        compare_runs([silent], training=True)
    assert compare_runs([run], training=True)["groups"][0]["interquartile_mean"]["low"] is None
