"""Table 1 and Figure 5 from runs whose outcome is known: what is planned, counted and written."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from tests.reproduce.invented import write_run
from tests.reproduce.pages import check_page, claims
from trellis import checkpoint_format, presets
from trellis.config import EstimationConfig, PolicyConfig, TrainConfig
from trellis.envs.batch import Step
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.saved import SavedPolicy
from trellis.policies.saved_layout import describe
from trellis.reproduce.atari import scores as atari_scores
from trellis.reproduce.atari.experiment import Atari
from trellis.reproduce.atari.figure import cost_curve
from trellis.reproduce.atari.plans import GAMES, env_id, extend
from trellis.reproduce.atari.table import rows
from trellis.reproduce.experiment import command
from trellis.reproduce.files import ResultsError
from trellis.runs import checkpoint
from trellis.runs.folder import RunFolderError, read_config, write_config
from trellis.training.evaluation import Evaluation, play

PONG, BREAKOUT = env_id("Pong"), env_id("Breakout")


def test_a_paper_run_has_tables_3s_budget_and_scale_never_takes_iterations():
    full = Atari(games=("Pong",), scale=1.0).plans[0].config
    assert full.preset == "paper/atari-single-path"
    assert (full.sampling.most_steps, full.max_iterations) == (100_000, 500)
    assert full.total_steps == 500 * 100_000
    assert full.env == "ALE/Pong-v5"
    assert not full.sampling.whole_paths  # Games continue, so that they end.
    for scale, trunks in ((1.0, 8), (0.5, 4), (0.05, 1)):
        vine = Atari(games=("Pong",), recipe="paper-vine", scale=scale).plans[0].config
        assert 0 <= scale * 400_000 - vine.sampling.most_steps < 400
        assert (vine.sampling.vine.trunks, vine.sampling.vine.trunk_length) == (trunks, 5000)
        assert vine.max_iterations == 500
    (plan,) = Atari(games=("Pong",), steps=50_000).plans
    assert plan.config.sampling.most_steps == 10_000
    assert plan.config.sampling.num_envs == 8
    assert plan.config.total_steps == 50_000
    assert plan.folder.as_posix() == "runs/atari/paper-atari-single-path-scale-0.1/Pong-0"
    old = Atari(games=("Pong",), preset="paper/atari-single-path").plans[0].config
    assert dataclasses.replace(old, threads=full.threads) == full
    modern = Atari(games=("Pong", "Qbert"), recipe="modern", seeds=2, steps=10**7).plans
    assert [plan.folder.name for plan in modern] == ["Pong-0", "Pong-1", "Qbert-0", "Qbert-1"]
    assert modern[3].config.total_steps == 10**7


def test_the_command_is_what_was_asked_for():
    asked = {"games": ("Pong",), "preset": "paper/atari-vine", "steps": 10, "scale": 0.5}
    experiment = Atari(Path("here"), runs=Path("there"), **asked)
    assert command(experiment) == (
        "trellis reproduce atari --out here --seeds 1 --runs there --parallel 1 --games Pong"
        " --preset paper/atari-vine --steps 10 --scale 0.5"
    )
    assert command(Atari(evaluate_only=True)) == (
        "trellis reproduce atari --out results/atari --seeds 1 --parallel 1 --evaluate-only"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"games": ("Chess",)}, "there is no game 'Chess'"),
        ({"preset": "modern/hopper"}, "there is no Atari preset 'modern/hopper'"),
        ({"recipe": "ours"}, "there is no recipe 'ours'"),
        ({"recipe": "modern", "scale": 0.5}, "scale applies to the paper's recipes only"),
        ({"preset": "paper/atari-vine", "scale": 0.0}, r"scale must be in \(0, 1\]"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_invalid_experiments_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Atari(**wrong)


def test_more_steps_extend_a_run_and_fewer_do_not(tmp_path):
    (plan,) = Atari(games=("Pong",), steps=2000, runs=tmp_path).plans
    extend(plan)  # There is none yet.
    write_run(plan.folder, dataclasses.replace(plan.config, total_steps=1000), [0.0] * 10)
    assert plan.finished
    extend(plan)
    assert read_config(plan.folder).total_steps == 2000
    assert plan.progress == 0.5
    (shorter,) = Atari(games=("Pong",), steps=500, runs=tmp_path).plans
    extend(shorter)
    assert read_config(plan.folder).total_steps == 2000
    with pytest.raises(RunFolderError, match="total_steps 2000, not 500"):
        shorter.check()


def begin(folder, config: TrainConfig, theta: float, returns=(-20.0, -10.0), **row: Any):
    """A run with a policy, of 100 steps an iteration."""
    write_run(folder, config, returns, **row)
    save(folder, theta, len(returns))


def save(folder, theta: float, iteration: int) -> None:
    spaces = Box(-1, 1, (2,)), Discrete(2)
    policy = build_policy(read_config(folder).policy, *spaces)
    arrays = {"theta": np.full(policy.num_params, theta, np.float32)}
    arrays |= Moments.zeros(spaces[0].shape).to_arrays("observation_moments")
    values = {"iteration": iteration, "steps": 100 * iteration, **describe(spaces, policy)}
    checkpoint.save(folder / checkpoint_format.CHECKPOINTS, iteration, arrays, values, keep=1)


@pytest.fixture
def played(monkeypatch):
    """What is played: θ is what a policy scores, give or take 1; random actions have 1 in the mean,
    and 0 where they are factored."""
    seen: list[Any] = []

    def play_policy(policy, episodes):
        seen.append((policy.config.env, float(policy.theta[0])))
        return scores(policy.theta[0], episodes)

    def play_random(env, options, episodes):
        seen.append((env, options))
        return scores(0.0 if "actions" in options else 1.0, episodes)

    monkeypatch.setattr(atari_scores, "play_policy", play_policy)
    monkeypatch.setattr(atari_scores, "play_random", play_random)
    return seen


def scores(mean: float, episodes: int) -> Evaluation:
    return Evaluation(mean + np.resize([-1.0, 1.0], episodes), np.full(episodes, 7))


def cells(out, start: str) -> dict[str, str]:
    with (out / "table.csv").open(encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["row"].startswith(start)]
    return row


@pytest.mark.slow
def test_a_report_is_the_papers_table_and_ours_and_plays_nothing_twice(tmp_path, played):
    pytest.importorskip("matplotlib")
    runs, out = tmp_path / "runs", tmp_path / "out"
    modern = dataclasses.replace(presets.resolve(PONG), total_steps=200)
    paper = presets.resolve(BREAKOUT, "paper/atari-single-path")
    sampling = dataclasses.replace(paper.sampling, num_envs=3)
    begin(runs / "a" / "pong", modern, 10.0)
    begin(runs / "b", dataclasses.replace(modern, seed=1), 12.0, (-20.0,))
    begin(runs / "c", dataclasses.replace(paper, sampling=sampling), 1.2)
    begin(runs / "new", dataclasses.replace(modern, seed=2), 99.0, [])
    write_config(runs / "newer", dataclasses.replace(modern, seed=3))
    begin(runs / "other", TrainConfig("CartPole-v1", preset="modern/classic"), 99.0)
    said: list[str] = []
    asked = Atari(out, games=("Pong", "Breakout"), runs=runs, recipe="modern", evaluate_only=True)
    results = asked.run(said.append)

    assert json.loads((out / "atari.json").read_text()) == results
    assert {run["command"] for run in results["runs"]} == {command(asked)}
    assert f"\n{command(asked)}\n" in check_page(out)
    assert "Skipping new: it has no iteration yet" in said
    assert "Skipping newer: it has no iteration yet" in said
    facts = {run["run"]: run for run in results["runs"]}
    assert facts.keys() == {"a/pong", "b", "c"}
    assert [facts[name]["finished"] for name in facts] == [True, False, False]
    assert facts["b"]["steps"] == 100
    assert facts["b"]["minutes"] == pytest.approx(1.5 / 60, abs=0.01)
    assert facts["a/pong"]["curve"] == {"steps": [100.0, 200.0], "cost": [20.0, 10.0]}
    assert facts["c"]["differs"] == {"sampling.num_envs": 3}
    # Student's interval of 30 episodes that are 1 off: 2.0452 × 1.0171 / √30.
    low, high = facts["a/pong"]["evaluation"]["interval_95"]
    assert (10 - low, high - 10) == pytest.approx((0.3798, 0.3798), abs=1e-3)

    # By both kinds of rules where there are runs: Breakout's have factored actions.
    assert [what for what in played if isinstance(what[1], dict)] == [
        (PONG, {"preprocessing": "paper"}),
        (BREAKOUT, {"preprocessing": "paper"}),
        (BREAKOUT, {"preprocessing": "paper", "actions": "factored"}),
    ]
    by_name = {row["row"]: row["games"] for row in results["rows"]}
    pong = by_name["modern/atari"]["Pong"]
    assert pong["mean_score"] == 11
    assert pong["interval_95"] == pytest.approx([11 - 12.7062, 11 + 12.7062], abs=1e-3)
    assert pong["above_random"] is False  # Two runs that differ by 2 say little.
    breakout = by_name["paper/atari-single-path, num_envs=3"]["Breakout"]
    assert breakout["above_random"] is True  # 0.82 to 1.58, against ±0.38 by the same rules.

    assert len(cells(out, "UCC-I")) == 3 + len(GAMES)
    assert cells(out, "human")["Seaquest"] == "28010"
    assert cells(out, "TRPO, vine")["steps"] == "200.0M"
    ours = cells(out, "modern/atari")
    assert (ours["Pong"], ours["Breakout"], ours["steps"]) == ("11.0", "–", "100 to 200")
    text = (out / "README.md").read_text()
    assert (
        "| modern | modern/atari | Pong | 2 | 100 to 200 | – | no | 11.0 | -1.7 to 23.7 | no | 0 |"
        in text
    )
    assert (out / "curves.png").stat().st_size > 10_000
    assert claims(text)[0][1] == "not tested"  # No run of the paper's presets is finished.
    for name in ("README.md", "curves.svg", "table.csv"):
        (out / name).unlink()
    dataclasses.replace(asked, report_only=True).write_pages()
    assert check_page(out) == text
    assert (out / "curves.svg").exists()

    played.clear()
    begin(runs / "d", modern, 13.0)
    with pytest.raises(ResultsError, match="same settings and the same seed"):
        asked.run(said.append)
    assert not played
    (runs / "a" / "pong" / "config.json").unlink()  # So d is the only one with seed 0,
    save(runs / "b", 13.0, 2)  # and b has gone on.
    (runs / "c" / "config.json").unlink()  # Breakout is not asked for, and stays.
    results = dataclasses.replace(asked, games=("Pong",)).run(said.append)
    assert played == [(PONG, 13.0), (PONG, 13.0)]
    assert {run["run"] for run in results["runs"]} == {"b", "c", "d"}
    pong = next(row for row in results["rows"] if row["row"] == "modern/atari")["games"]["Pong"]
    assert pong["steps"] == [200, 200]
    assert pong["above_random"] is True
    assert cells(out, "paper/atari")["Breakout"] == "1.2"


def test_two_reports_into_one_folder_keep_each_others_results(tmp_path, played, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    for game in (PONG, BREAKOUT):
        config = dataclasses.replace(presets.resolve(game), total_steps=200)
        begin(tmp_path / "runs" / game, config, 10.0)
    play = atari_scores.play_policy
    asked = Atari(out, games=("Pong",), runs=tmp_path / "runs", recipe="modern", evaluate_only=True)

    def meanwhile(*args):
        if args[0].config.env == PONG:
            dataclasses.replace(asked, games=("Breakout",)).run(print)
        return play(*args)

    monkeypatch.setattr(atari_scores, "play_policy", meanwhile)
    asked.run(print)
    found = json.loads((out / "atari.json").read_text())
    assert {run["game"] for run in found["runs"]} == {"Pong", "Breakout"}
    assert {record["game"] for record in found["random"]} == {"Pong", "Breakout"}


def test_a_row_and_a_cell_say_which_recipe_and_scale_they_have(tmp_path, played):
    pytest.importorskip("matplotlib")
    runs = tmp_path / "runs"
    for steps in (None, 40_000):
        (plan,) = Atari(games=("Pong",), runs=runs, steps=steps).plans
        extend(plan)
        if steps is None:
            begin(plan.folder, plan.config, 10.0)
    results = Atari(tmp_path, games=("Pong",), runs=runs, evaluate_only=True).run(print)
    (run,) = results["runs"]
    assert (run["scale"], run["differs"]) == (0.1, {})
    text = (tmp_path / "README.md").read_text()
    row = "| paper | paper/atari-single-path, scale 0.1 | Pong | 1 | 200 | 0.0004% | no |"
    assert row in text


def test_a_finished_run_is_kept_when_its_folder_is_lost(tmp_path, played, monkeypatch):
    pytest.importorskip("matplotlib")
    trained: list[int] = []

    def train(plans, parallel, say):
        for plan in plans:
            trained.append(plan.config.seed)
            returns = [10.0] * (plan.config.total_steps // 100)
            begin(plan.folder, plan.config, 10.0, returns)

    monkeypatch.setattr("trellis.reproduce.atari.experiment.execute", train)
    asked = Atari(
        tmp_path, games=("Pong",), runs=tmp_path / "1", recipe="modern", steps=200, seeds=2
    )
    asked.run(print)
    assert trained == [0, 1]
    elsewhere = dataclasses.replace(asked, runs=tmp_path / "2", seeds=3)
    results = elsewhere.run(print)
    assert trained == [0, 1, 2]
    assert [run["seed"] for run in results["runs"]] == [0, 1, 2]
    longer = dataclasses.replace(asked, runs=tmp_path / "3", steps=300, seeds=1)
    results = longer.run(print)
    assert trained == [0, 1, 2, 0]  # It needs more steps than the kept one has.
    assert [(run["seed"], run["planned_steps"]) for run in results["runs"]][-1] == (0, 300)
    assert len(results["runs"]) == 4
    (plan,) = dataclasses.replace(asked, runs=tmp_path / "4", seeds=1).plans
    begin(plan.folder, plan.config, 99.0, (-20.0,))  # The same run, unfinished.
    again = dataclasses.replace(asked, runs=tmp_path / "4", seeds=1).run(print)
    assert again["runs"] == results["runs"]


def test_one_command_continues_every_unfinished_run(tmp_path):
    modern = dataclasses.replace(presets.resolve(PONG), total_steps=200)
    paper = dataclasses.replace(presets.resolve(BREAKOUT, "paper/atari-vine"), seed=7)
    begin(tmp_path / "finished", modern, 1.0)
    begin(tmp_path / "a" / "cut off", dataclasses.replace(modern, seed=1, total_steps=300), 1.0)
    begin(tmp_path / "b", paper, 1.0)
    asked = Atari(runs=tmp_path, unfinished=True)
    assert [plan.folder.name for plan in asked.plans] == ["cut off", "b"]
    for plan in asked.plans:
        plan.check()  # With its own settings, whatever recipe and scale they are of.
    assert asked.parallel == 1
    assert dataclasses.replace(asked, games=("Breakout",)).plans == asked.plans[1:]


def test_above_random_means_all_of_it_above_all_of_it():
    def above(low, random_high):
        played = {"mean_score": 0.0, "interval_95": [-1.0, random_high]}
        random = {"game": "Pong", "env_options": {}, "evaluation": played}
        run = {"game": "Pong", "env_options": {}, "preset": "modern/atari", "differs": {}}
        run |= {"seed": 0, "steps": 1, "finished": True, "minutes": 1.0}
        run["evaluation"] = {"mean_score": 5.0, "interval_95": [low, 9.0]}
        return rows([run], [random])[-1]["games"]["Pong"]["above_random"]

    assert above(1.01, 1.0) is True
    assert above(0.99, 1.0) is False
    assert above(1.0, 1.0) is False
    assert above(None, 1.0) is None  # A single episode has no interval.


def test_without_runs_there_is_nothing_to_report(tmp_path):
    with pytest.raises(ResultsError, match="there is no run of Pong"):
        Atari(tmp_path, games=("Pong",), runs=tmp_path, evaluate_only=True).run(print)


def test_a_curve_is_minus_the_mean_over_episodes():
    assert cost_curve([{"steps": 10, "episode_return_mean": None}]) == {"steps": [], "cost": []}
    log = [
        {"steps": 10 * i, "episode_return_mean": 3.0 if i % 2 else -1.0, "episodes": 2 - i % 2}
        for i in range(1, 1001)
    ]
    found = cost_curve(log)
    # Ten iterations a point: 5 episodes of 3 points, 10 of −1.
    assert found["cost"] == pytest.approx([-1 / 3] * 100, rel=1e-5)
    assert len(found["steps"]) == 100
    assert 9_900 < found["steps"][-1] <= 10_000


class Counter:
    """Pays 1 a step; row i ends after i + 1 of them, and goes on paying."""

    def reset(self, ids, seeds):
        self.elapsed, self.asked = np.zeros(len(ids), int), []
        return self.elapsed

    def step(self, actions, active):
        self.asked.append(active.tolist())
        self.elapsed = self.elapsed + 1
        over = self.elapsed > np.arange(len(self.elapsed))
        return Step(self.elapsed, np.ones(len(over)), over & (np.arange(len(over)) < 2), over)


def test_episodes_end_once():
    env = Counter()
    played = play(cast(Any, env), lambda observation: observation, np.zeros(3, int))
    assert played.returns.tolist() == played.lengths.tolist() == [1, 2, 3]
    assert env.asked == [[True, True, True], [False, True, True], [False, False, True]]


def linear(theta, moments: Moments | None = None, **settings: Any) -> SavedPolicy:
    """A linear policy for the cart-pole."""
    config = TrainConfig("CartPole-v1", policy=PolicyConfig(hidden=()), **settings)
    spaces = Box(-np.inf, np.inf, (4,)), Discrete(2)
    policy = build_policy(config.policy, *spaces)
    theta = np.asarray(theta, np.float32).ravel()
    return SavedPolicy(policy, theta, moments or Moments.zeros((4,)), spaces, config)


def test_actions_are_sampled_and_random_ones_are_uniform():
    settings = EstimationConfig(critic="none", normalize_observations=False)
    # A policy without an opinion; the same way every time, a pole falls after 8 to 10 steps.
    indifferent = linear(np.zeros(10), estimation=settings)
    sampled = atari_scores.play_policy(indifferent, 200)
    uniform = atari_scores.play_random("CartPole-v1", {}, 200)
    for played in (sampled, uniform):
        assert played.mean_length == pytest.approx(22.2, abs=4 * 12 / np.sqrt(200))
    again = atari_scores.play_policy(indifferent, 200)
    np.testing.assert_array_equal(sampled.lengths, again.lengths)
    left = atari_scores.play_policy(linear([0] * 8 + [20, 0], estimation=settings), 20)
    assert left.lengths.max() <= 11


def test_a_policy_sees_what_it_saw_in_training():
    # Pushes to the right where the cart's normalized place is above 0, else to the left.
    theta = [[-50, 50], [0, 0], [0, 0], [0, 0], [0, 0]]
    far_right = Moments.of(np.random.default_rng(0).normal(10.0, 0.01, (100, 4)), (4,))
    far_left = Moments.of(np.random.default_rng(0).normal(-10.0, 0.01, (100, 4)), (4,))
    # Always to one side, a pole falls after 8 to 10 steps; by the place as it is, later.
    for moments in (far_right, far_left):
        assert atari_scores.play_policy(linear(theta, moments), 20).lengths.max() <= 11
    assert atari_scores.play_policy(linear(theta), 20).lengths.max() > 11


def test_games_are_played_by_their_own_rules():
    pytest.importorskip("ale_py")
    options = {"preprocessing": "paper", "actions": "factored", "max_frames": 80, "noop_max": 0}
    played = atari_scores.play_random(PONG, options, 2)
    assert played.lengths.tolist() == [20, 20]
