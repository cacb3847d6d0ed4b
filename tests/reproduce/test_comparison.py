"""The comparison from runs whose outcome is known: what it chooses, counts, claims and writes."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.reproduce.invented import finish, write_run
from tests.reproduce.pages import check_page
from tests.reproduce.pages import claims as page_claims
from trellis.agent import TRPO
from trellis.analysis.curves import seconds
from trellis.config import SamplingConfig, TrainConfig
from trellis.reproduce.comparison import findings, gait, table
from trellis.reproduce.comparison import plans as comparison_plans
from trellis.reproduce.comparison.claims import claims
from trellis.reproduce.comparison.experiment import CartPoleComparison, Locomotion
from trellis.reproduce.comparison.figure import was_timed
from trellis.reproduce.comparison.findings import steps_to
from trellis.reproduce.comparison.improvement import by_chance
from trellis.reproduce.comparison.kept_logs import keep, read_logs, write_logs
from trellis.reproduce.comparison.kept_runs import all_logs, finish_method, keep_run
from trellis.reproduce.comparison.scores import (
    curve,
    curves,
    method_record,
    returns,
    reward_per_step,
    steps,
)
from trellis.reproduce.comparison.table import merged
from trellis.reproduce.files import ResultsError
from trellis.reproduce.page import judge
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep_progress import SweepProgress
from trellis.runs.folder import RunFolderError, read_config
from trellis.runs.provenance import commit

pytest.importorskip("matplotlib")


def verdict(judged, start):
    """The first claim whose sentence starts so; claims by Figure 4's unit come after it."""
    return next(claim for claim in judged if claim["paper"].startswith(start))


def test_a_comparison_chooses_counts_and_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_plans, "ITERATIONS", 20)
    monkeypatch.setattr(findings, "LEAST_SEEDS", 2)
    names = ("trpo", "natural-gradient", "max-kl-step")
    asked = CartPoleComparison(
        tmp_path / "out", seeds=2, methods=names, scale=0.1, runs=tmp_path / "runs"
    )
    task = comparison_plans.TASKS["cartpole"]
    trpo, natural, max_kl = (comparison_plans.METHODS[name] for name in names)
    values = comparison_plans.swept_values(task, natural)
    for plan, last in zip(asked.swept(task, natural), [1, 2, 3, 500, 5, 6], strict=True):
        finish(plan, last)
    for method, value, late in ((trpo, None, 0.4), (natural, values[3], 0.5), (max_kl, None, 0.8)):
        for plan in asked.compared(task, method, value):
            finish(plan, 990.0 + plan.config.seed, rises_until=late)
    scores = {"trpo": 1000.0, "natural-gradient": 980.0, "max-kl-step": 700.0}

    def evaluate(folder):
        score = scores[read_config(folder).step.method]
        return gait.Episodes(np.full(20, score), np.full(20, 900), None)

    monkeypatch.setattr(gait, "evaluate", evaluate)
    said: list[str] = []
    asked.run(said.append)
    assert said[0] == "10 of 10 runs are finished"

    found = json.loads((tmp_path / "out" / "cartpole.json").read_text())
    assert found["iterations"] == 20
    sweep = found["sweeps"]["natural-gradient"]
    assert sweep["chosen"] == values[3]
    assert not sweep["chosen_is_at_the_edge"]
    assert [run["value"] for run in sweep["runs"]] == values
    record = found["methods"]["trpo"]
    assert record["command"] == (
        f"trellis reproduce cartpole --out {tmp_path / 'out'} --seeds 2 --runs {tmp_path / 'runs'}"
        " --parallel 2 --methods trpo natural-gradient max-kl-step --scale 0.1"
    )
    assert record["commit"] == commit()
    assert record["mean_return"] == 1000.0
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    assert record["runs"][0]["minutes"] == pytest.approx(20 * 1.5 / 60)

    judged = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
    assert verdict(judged, "Single path")["holds"] is True
    slow = verdict(judged, "The max KL")
    assert slow["holds"] is True
    assert "returns 700 and 1000" in slow["found"]
    assert slow["evidence"].startswith("steps to 90% of gain: ")
    assert verdict(judged, "CEM")["holds"] is None
    assert verdict(judged, "CEM")["found"] == "not measured"

    with (tmp_path / "out" / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["role"] for row in rows].count("swept") == 6
    assert len(rows) == 12
    with (tmp_path / "out" / "scores.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == list(scores)
    text = check_page(tmp_path / "out")
    assert "| TRPO, single path | 0.1 | 2 | 2 | 1000.0 |" in text
    assert [claim[1] for claim in page_claims(text)] == [
        *("not tested", "not tested", "partly", "does not hold"),
        *("partly", "not tested", "partly", "partly", "not tested", "not tested"),
        *("not tested", "not tested", "holds", "not tested"),
    ]
    assert (tmp_path / "out" / "cartpole.png").stat().st_size > 10_000

    # Methods that are run later are added, and what there was is not lost.
    scores["trpo"] = 900.0
    again = dataclasses.replace(asked, methods=("trpo",))
    monkeypatch.setattr(table.figure, "plot", lambda *_: None)
    again.run(said.append)
    later = json.loads((tmp_path / "out" / "cartpole.json").read_text())
    assert list(later["methods"]) == ["trpo", "natural-gradient", "max-kl-step"]
    assert later["methods"]["max-kl-step"] == found["methods"]["max-kl-step"]
    assert later["sweeps"] == found["sweeps"]
    assert later["methods"]["trpo"]["mean_return"] == 900.0
    text = (tmp_path / "out/README.md").read_text()
    assert "--methods trpo --scale 0.1\n" in text
    assert "# natural gradient; max KL step (written by commit" in text
    # Everything but the JSON of the tasks and the logs is made from them.
    assert len(read_logs(tmp_path / "out", "cartpole", "natural-gradient")) == 8
    kept = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    for name in kept:
        if name in ("scores.csv", "runs.csv", "claims.json", "README.md"):
            (tmp_path / "out" / name).unlink()
    dataclasses.replace(again, report_only=True).write_pages()
    assert kept == {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    # Nor is it replaced by less.
    few, small = dataclasses.replace(again, seeds=1), dataclasses.replace(again, scale=0.01)
    for less, words in ((few, "1 seeds at scale 0.1"), (small, "2 seeds at scale 0.01")):
        with pytest.raises(ResultsError, match=rf"2 seeds at scale 0\.1; {words}.*--out"):
            less.run(said.append)
    assert json.loads((tmp_path / "out" / "cartpole.json").read_text()) == later
    # Run folders may be lost: what has a kept log is not trained again, nor evaluated.
    shutil.rmtree(tmp_path / "runs")
    scores.clear()
    said.clear()
    asked.run(said.append)
    assert said[0] == "10 of 10 runs are finished"
    remade = json.loads((tmp_path / "out" / "cartpole.json").read_text())
    for method, record in later["methods"].items():
        assert remade["methods"][method]["runs"] == record["runs"]
    assert remade["sweeps"] == later["sweeps"]
    forced = dataclasses.replace(asked, again=True)
    assert not any(plan.finished for plan in forced.compared(task, trpo, None))
    smaller = dataclasses.replace(asked, scale=0.2)
    assert not any(plan.finished for plan in smaller.compared(task, trpo, None))


def test_a_run_that_ended_is_kept_before_its_method_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_plans, "ITERATIONS", 5)
    task, method = comparison_plans.TASKS["cartpole"], comparison_plans.METHODS["trpo"]
    asked = CartPoleComparison(tmp_path / "out", seeds=2, runs=tmp_path / "runs")
    first, _ = asked.compared(task, method, None)
    finish(first, 900.0)
    log = keep(first, "compared", {"mean_return": 900.0})
    keep_run(tmp_path / "out", "cartpole", "trpo", log)
    keep_run(tmp_path / "out", "cartpole", "trpo", log)
    shutil.rmtree(tmp_path / "runs")
    kept, other = asked.compared(task, method, None)
    assert (kept.finished, other.finished) == (True, False)
    assert kept.rows == log.rows
    assert len(all_logs(tmp_path / "out", "cartpole", "trpo")) == 1
    # A log without scores is of no use, since the policy is lost.
    keep_run(tmp_path / "out", "cartpole", "trpo", log._replace(score=None))
    assert not any(plan.finished for plan in asked.compared(task, method, None))
    finish_method(tmp_path / "out", "cartpole", "trpo", [log])
    assert asked.compared(task, method, None)[0].finished
    assert not list((tmp_path / "out/logs/unfinished").glob("*.gz"))


def test_videos_and_sweeps_go_with_the_runs_they_are_of():
    before = {"methods": {"trpo": 1, "cem": 2}, "sweeps": {"trpo": 3}, "videos": {"trpo": "a.mp4"}}
    found = merged(before, {"methods": {"trpo": 4}, "sweeps": {}, "videos": {}})
    assert found == {"methods": {"trpo": 4, "cem": 2}, "sweeps": {}, "videos": {}}


def record(
    method,
    score,
    *,
    velocity=1.0,
    length=1000.0,
    curve=(0.0, 10.0),
    band=0.0,
    interval=(None, None),
    reward=(2.0, 1.9, 2.1),
):
    run = {"mean_return": score, "mean_velocity": velocity, "median_length": length}
    mean = np.linspace(*curve, 11)
    lines = {"mean": mean, "low": mean - band, "high": mean + band}
    curves = {"return_by_steps": {"x": list(range(0, 110, 10)), **lines}}
    about = {"label": method, "scale": 1.0, "interval_95": interval}
    about["final_reward"] = {"mean": reward[0], "interval_95": reward[1:]}
    return {**about, **run, "runs": [run] * 3, "curves": curves}


def test_claims_follow_the_numbers():
    def judge(**methods):
        return claims({"hopper": {"methods": methods}})

    walks = judge(
        trpo=record("A", 2000.0, interval=(1900.0, 2100.0)),
        cem=record("B", 300.0, velocity=0.2, interval=(200.0, 400.0)),
    )
    assert verdict(walks, "Single path")["holds"] is True
    assert "3 of 3 seeds" in verdict(walks, "Single path")["found"]
    fallen = {"mean_return": 900.0, "mean_velocity": 2.0, "median_length": 300.0}
    some, two = record("A", 2000.0), record("A", 2000.0)
    some["runs"] = [*some["runs"], fallen]
    two["runs"] = two["runs"][:2]
    for undecided, count in ((some, "3 of 4 seeds"), (two, "2 of 2 seeds")):
        found = verdict(judge(trpo=undecided), "Single path")
        assert found["holds"] is None
        assert count in found["found"]
    others = ["cart-pole", "swimmer", "vine on hopper", "walker"]
    assert verdict(walks, "Single path")["missing"] == others
    assert verdict(walks, "CEM")["missing"] == ["CMA on hopper", "walker"]
    assert verdict(walks, "… yielding")["missing"][2].startswith("vine, natural gradient, ")
    other = judge(**{"trpo": record("A", 2000.0), "trpo-vine-of-states": record("B", 2000.0)})
    assert verdict(other, "Single path")["missing"] == ["cart-pole", "swimmer", "walker"]
    # A critic is not the paper's vine.
    critic = judge(
        **{"trpo": record("A", 200.0, length=100.0), "trpo-vine-bootstrap": record("B", 2000.0)}
    )
    assert verdict(critic, "Single path")["holds"] is False
    assert verdict(critic, "Single path")["missing"] == others
    assert (
        "not counted: hopper, TRPO, vine with critic: solved" in verdict(critic, "Single")["found"]
    )
    assert verdict(critic, "… yielding")["holds"] is None
    assert verdict(walks, "… yielding")["holds"] is True
    assert verdict(walks, "CEM")["holds"] is True
    falls = judge(trpo=record("A", 2000.0, length=499.0), cem=record("B", 2500.0))
    assert verdict(falls, "Single path")["holds"] is False
    assert verdict(falls, "… yielding")["holds"] is None  # one seed
    assert verdict(falls, "CEM")["holds"] is False
    close = judge(
        trpo=record("A", 2000.0, interval=(1500.0, 2500.0)),
        cem=record("B", 2100.0, interval=(2050.0, 2150.0)),
    )
    assert verdict(close, "… yielding")["holds"] is None
    ahead = judge(
        trpo=record("A", 2000.0, interval=(500.0, 3500.0)),
        cem=record("B", 1999.0, interval=(1990.0, 2008.0)),
    )
    assert verdict(ahead, "… yielding")["holds"] is None
    assert verdict(judge(trpo=record("A", 2.0), cem=record("B", 1.0)), "… yiel")["holds"] is None
    scaled = judge(
        trpo=record("A", 2000.0, interval=(1900.0, 2100.0)),
        cem={**record("B", 300.0, interval=(200.0, 400.0)), "scale": 0.1},
    )
    assert verdict(scaled, "… yielding")["holds"] is None
    assert (
        "CEM: no other method to compare with at scale 0.1"
        in verdict(scaled, "… yielding")["found"]
    )
    small = {**record("C", 300.0, interval=(200.0, 400.0)), "scale": 0.1}
    mixed = judge(
        trpo=record("A", 2000.0, interval=(1900.0, 2100.0)),
        **{"trpo-vine": {**record("D", 900.0, interval=(800.0, 1000.0)), "scale": 0.1}},
        cem=record("B", 3000.0, interval=(2900.0, 3100.0)),
        cma=small,
    )
    # Each at its own scale: the one where TRPO is behind counts.
    assert verdict(mixed, "… yielding")["holds"] is False
    assert "TRPO, vine: highest mean, 900; CMA 300" in verdict(mixed, "… yielding")["found"]
    apart = judge(
        trpo=record("A", 2000.0, interval=(1900.0, 2040.0)),
        cem=record("B", 2100.0, interval=(2050.0, 2150.0)),
    )
    assert verdict(apart, "… yielding")["holds"] is False
    # The goal is 9 of 10: after 90 steps here; at half the slope, never.
    assert steps_to(record("A", 0.0), 9.0) == 90
    alike = judge(**{"trpo": record("A", 1.0), "empirical-fim": record("B", 1.0, curve=(0, 11.3))})
    assert verdict(alike, "The rate")["holds"] is True
    assert "0.89 × the steps" in verdict(alike, "The rate")["found"]
    slow = judge(**{"trpo": record("A", 1.0), "empirical-fim": record("B", 1.0, curve=(0, 5))})
    assert verdict(slow, "The rate")["holds"] is False
    assert "never reaches" in verdict(slow, "The rate")["found"]
    other = {**record("B", 1.0), "scale": 0.1}
    scaled = judge(**{"trpo": record("A", 1.0), "empirical-fim": other})
    assert verdict(scaled, "The rate")["holds"] is None


@pytest.mark.parametrize(
    ("end", "band", "holds"),
    [(5.0, 0.1, True), (9.2, 0.1, True), (9.2, 1.0, None), (10.0, 0.1, None), (20.0, 0.1, False)],
)
def test_slower_is_decided_by_the_bands(end, band, holds):
    """TRPO reaches its goal of 9 after 90 steps; at 9.2 the other one does after 100."""
    methods = {"trpo": record("A", 1.0), "max-kl-step": record("B", 1.0, curve=(0, end), band=band)}
    found = claims({"cartpole": {"methods": methods}})
    assert verdict(found, "The max KL")["holds"] is holds


def test_curves_are_means_over_seeds_against_steps_and_seconds():
    def rows(slope):
        return [
            {
                "steps": 100 * k,
                "episode_return_mean": None if k == 2 else slope * 100.0 * k,
                "episode_length_mean": 50.0,
                "seconds_sampling": 2.0,
            }
            for k in range(1, 6)
        ]

    logs = [rows(1.0), rows(3.0)]
    found = curve(logs, steps, returns)
    np.testing.assert_allclose(found["mean"], 2.0 * np.array(found["x"]), rtol=1e-5)
    # t(0.975, 1) = 12.7062 from a table; the standard deviation of 1 and 3 is √2.
    half = (np.array(found["high"]) - found["low"]) / 2
    np.testing.assert_allclose(half, 12.7062 * np.array(found["x"]), rtol=1e-4)
    np.testing.assert_allclose(curve(logs, seconds, returns)["x"][-1], 10.0)
    np.testing.assert_allclose(curve(logs[:1], steps, reward_per_step)["mean"][-1], 500 / 50)


def test_a_search_counts_its_steps_as_policy_iterations():
    logs = [
        [{"iteration": k, "steps": 300 * k, "reward_per_step": seed + k} for k in range(1, 21)]
        for seed in (0, 2)
    ]
    own, by_steps = curves(logs), curves(logs, iteration_steps=600)
    assert own["curves"]["reward_by_iterations"]["x"][-1] == 20
    assert by_steps["curves"]["reward_by_iterations"]["x"][-1] == 10
    # The last tenth has the rewards 19 and 20, and 21 and 22.
    assert own["final_reward"]["mean"] == 20.5


def test_kept_logs_have_every_metric_of_every_run(tmp_path):
    config = TrainConfig("CartPole-v1", seed=3)
    returns_ = [1.23456789, None, 3.0]
    plan = RunPlan(write_run(tmp_path / "run", config, returns_, status="accepted"), config)
    write_logs(tmp_path, "cartpole", "trpo", [keep(plan, "compared"), keep(plan, "swept")])
    one, other = read_logs(tmp_path, "cartpole", "trpo")
    assert (one.role, other.role) == ("compared", "swept")
    assert one.config["seed"] == 3
    rows = plan.rows
    assert [row["episode_return_mean"] for row in one.rows] == [1.23457, None, 3.0]
    assert [row["status"] for row in one.rows] == ["accepted"] * 3
    assert [row.keys() for row in one.rows] == [row.keys() for row in rows]
    path = tmp_path / "logs" / "cartpole-trpo.jsonl.gz"
    before = path.read_bytes()
    write_logs(tmp_path, "cartpole", "trpo", [one, other])
    assert path.read_bytes() == before
    path.write_bytes(before[:-20])
    with pytest.raises(ResultsError, match="is not a kept log"):
        read_logs(tmp_path, "cartpole", "trpo")
    assert read_logs(tmp_path, "cartpole", "cem") == []


@pytest.mark.parametrize(
    ("reward", "holds"), [((2.0, 1.9, 2.1), True), ((1.0, 0.5, 1.5), None), ((0.5, 0, 1), False)]
)
def test_a_gait_by_its_reward_per_time_step(reward, holds):
    found = claims({"hopper": {"methods": {"trpo": record("A", 1.0, reward=reward)}}})
    (claim,) = [each for each in found if each["claim"].startswith("TRPO earns more")]
    assert claim["holds"] is holds
    assert f"reward per time step {reward[0]:.2f}" in claim["found"]


def test_improvement_is_judged_by_certain_falls():
    assert by_chance(50) == 4  # P(more than 4 falls by chance) is 0.8%, more than 3: 3.6%.

    def verdict_of(improved, fell):
        gains = {"iterations": 50, "improved": improved, "fell": fell}
        trpo = {**record("A", 1.0), "improvement": gains}
        found = claims({"hopper": {"methods": {"trpo": trpo}}})[0]
        return found["verdict"], found["evidence"]

    assert verdict_of(30, 1) == ("partly", "single path 30 up, 1 down; 3 cases not run")
    assert verdict_of(30, 9)[0] == "does not hold"
    assert verdict_of(1, 2)[0] == "undecided"
    # Equal chances explain 3 against 2 (p = 0.5) and 5 against 0 (p = 0.031), but not 6 against 0.
    assert verdict_of(3, 2)[0] == verdict_of(5, 0)[0] == "undecided"
    assert verdict_of(6, 0)[0] == "partly"
    assert claims({"hopper": {"methods": {"trpo": record("A", 1.0)}}})[0]["verdict"] == "not tested"


def test_the_papers_minutes_stand_beside_full_budgets_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_plans, "ITERATIONS", 3)
    task, methods = comparison_plans.TASKS["walker"], comparison_plans.METHODS

    def minutes(name, scale):
        runs = tmp_path / f"{name}-{scale}"
        asked = Locomotion(seeds=1, scale=scale, runs=runs)
        plans = asked.compared(task, methods[name], None)
        finish(plans[0], 10.0)
        played = gait.Episodes(np.full(20, 10.0), np.full(20, 900), None)
        scores = [played.summary()]
        return method_record(task, methods[name], scale, plans, scores, None)["paper_minutes"]

    assert minutes("trpo", 1.0) == 100
    assert minutes("trpo-vine", 1.0) == 40
    assert minutes("trpo", 0.1) is None
    assert minutes("trpo-vine", 0.5) is None
    assert minutes("cem", 1.0) is None  # Table 2 is about TRPO.


def test_a_gait_is_measured_in_the_episodes_of_an_evaluation(tmp_path):
    agent = TRPO("trellis/PaperSwimmer-v0", seed=5, sampling=SamplingConfig(1, 1))
    agent.save(tmp_path / "run")
    seen = gait.evaluate(tmp_path / "run", 3)
    evaluated = agent.evaluate(3)
    agent.close()
    np.testing.assert_array_equal(seen.returns, evaluated.returns)
    np.testing.assert_array_equal(seen.lengths, evaluated.lengths)
    # Its first policy hardly moves a joint, and then the reward is the velocity.
    assert seen.velocities is not None
    np.testing.assert_allclose(seen.velocities, seen.returns / seen.lengths, atol=1e-3)
    assert np.abs(seen.velocities).max() > 1e-3
    long = gait.Episodes(np.zeros(2), np.array([100, 900]), np.array([0.0, 1.0]))
    assert long.summary()["mean_velocity"] == pytest.approx(0.9)
    assert long.summary()["median_length"] == 500


def test_a_run_of_other_settings_is_not_taken_for_the_planned_one(tmp_path):
    config = TrainConfig("CartPole-v1", seed=3, total_steps=1000)
    plan = RunPlan(tmp_path / "run", config)
    plan.check()
    assert plan.progress == 0
    other = dataclasses.replace(plan.config, step=dataclasses.replace(plan.config.step, max_kl=0.5))
    write_run(plan.folder, other, [1.0])
    with pytest.raises(RunFolderError, match=r"step.max_kl is 0.5 there, 0.01 here"):
        plan.check()
    longer = RunPlan(tmp_path / "longer", config)
    write_run(longer.folder, dataclasses.replace(longer.config, total_steps=2000), [1.0])
    with pytest.raises(RunFolderError, match="total_steps 2000, not 1000"):
        longer.check()


def test_an_iteration_limit_ends_a_run_before_its_steps_are_spent(tmp_path):
    config = TrainConfig(env="CartPole-v1", total_steps=1000, max_iterations=4)
    assert not config.is_over(3, 900)
    assert config.is_over(4, 400)
    assert config.is_over(3, 1000)
    plan = RunPlan(tmp_path / "run", config)
    write_run(plan.folder, plan.config, [1.0, 1.0, 1.0])
    assert plan.progress == 0.75
    assert not plan.finished
    done = RunPlan(tmp_path / "done", config)
    write_run(done.folder, done.config, [1.0] * 4)
    assert done.finished
    last = done.folder / "checkpoints" / "000004"
    last.rename(last.with_name("000003"))
    assert not done.finished  # The last checkpoint could not be written: it is yet to come.


def test_time_left_is_by_the_work_that_is_left():
    @dataclasses.dataclass
    class Run:
        progress: float
        config: TrainConfig

    now = 0.0
    runs = [Run(p, TrainConfig("?", total_steps=n)) for p, n in ((0.5, 100), (0.0, 300))]
    progress = SweepProgress(runs, lambda: now)
    assert progress.line() == "0/2 runs, time left unknown"
    now, runs[0].progress, runs[1].progress = 60.0, 1.0, 0.5
    # 50 + 150 of the work in a minute; 150 are left.
    assert progress.seconds_left() == pytest.approx(45.0)
    progress.ended(runs[0])
    now, runs[1].progress = 36_000.0, 0.5
    assert progress.line() == "1/2 runs, 7:30:00 left"


def test_only_runs_that_had_the_machine_to_themselves_have_a_time_axis():
    def record(threads, x):
        return {
            "runs": [{"threads": 0}, {"threads": threads}],
            "curves": {"return_by_seconds": {"x": x}},
        }

    assert was_timed(record(0, [1.0, 2.0]))
    assert not was_timed(record(1, [1.0, 2.0]))
    assert not was_timed(record(0, []))


def test_runs_of_different_seconds_have_no_curve_against_time():
    def log(start):
        return [{"steps": 10 * i, "episode_return_mean": i, "at": start + i} for i in range(1, 4)]

    logs = [log(0), log(5)]

    def at(rows):
        return np.array([row["at"] for row in rows], float)

    assert curve(logs, at, returns)["x"] == []
    assert curve(logs, steps, returns)["x"][-1] == 30


@pytest.mark.parametrize(
    ("found", "complete", "word"),
    [
        ([True, True], True, "holds"),
        ([True, True], False, "partly"),
        ([True, None], True, "partly"),
        ([True, False], True, "partly"),
        ([False, None], False, "does not hold"),
        ([None], True, "undecided"),
        ([], True, "not tested"),
    ],
)
def test_a_verdict_is_one_of_four_words(found, complete, word):
    assert judge(found, complete=complete) == word
