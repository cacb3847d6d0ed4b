"""Built-in callbacks, and the one rule: False stops training."""

import gymnasium
import numpy as np
import pytest

from tests.test_agent import TINY, make_agent
from trellis import TRPO
from trellis.callbacks import Checkpoint, Evaluate, Progress, StopOnReturn, TrainingCallback
from trellis.runs.log import read_metrics


def test_a_callback_starts_and_closes_also_after_an_error(tmp_path):
    events = []

    class Watch(TrainingCallback):
        def start(self, run):
            events.append((run.state.steps, run.config.total_steps, run.folder))

        def __call__(self, state, metrics):
            events.append(state.steps)
            metrics["mine"] = 3
            if state.steps == 512:
                raise RuntimeError("enough")

        def close(self):
            events.append("closed")

    agent, folder = make_agent(), tmp_path / "run"
    agent.learn(256, Watch(), log_dir=folder)
    assert events == [(0, 256, folder), 256, "closed"]
    assert read_metrics(folder)[0]["mine"] == 3
    events.clear()
    with pytest.raises(RuntimeError, match="enough"):
        agent.learn(1000, [Watch()])
    assert events == [(256, 1256, None), 512, "closed"]


@pytest.mark.parametrize(("answer", "iterations"), [(False, 1), (np.False_, 1), (0, 2), (None, 2)])
def test_false_stops_and_nothing_else_does(answer, iterations):
    seen = []
    make_agent().learn(512, [lambda state, metrics: answer, lambda *_: seen.append(1)])
    assert len(seen) == iterations


def test_training_stops_when_the_return_is_enough():
    returns = [10.0, 20.0, None, 5.0, 30.0, 30.0]

    def fake(state, metrics):
        value = returns[state.iteration - 1]
        metrics.pop("eval_return_mean", None)
        if value is not None:
            metrics["eval_return_mean"] = value

    def steps(stop):
        return make_agent().learn(6 * 256, [fake, stop], progress_bar=False).steps // 256

    assert steps(StopOnReturn(20)) == 2
    assert steps(StopOnReturn(20, patience=2)) == 6
    assert steps(StopOnReturn(31)) == 6
    assert steps(StopOnReturn(0, training=True)) == 1


def test_evaluations_are_added_to_the_metrics_and_the_best_policy_is_saved(tmp_path):
    class Short(gymnasium.wrappers.TimeLimit):
        """The same task with a time limit of 5, whose return is always 5."""

        def __init__(self):
            super().__init__(gymnasium.make("CartPole-v1").unwrapped, 5)

    rows, evaluate = [], Evaluate(512, 3, save_best=tmp_path / "best")
    short = Evaluate(256, 2, env=Short, name="short")
    agent = make_agent()
    agent.learn(
        1024, [evaluate, short, lambda _, metrics: rows.append(metrics)], progress_bar=False
    )
    assert ["eval_return_mean" in row for row in rows] == [False, True, False, True]
    assert [row["short_return_mean"] for row in rows] == [5.0] * 4
    assert [steps for steps, _ in evaluate.history] == [512, 1024]
    returns = [result.mean_return for _, result in evaluate.history]
    assert [row["eval_return_mean"] for row in rows[1::2]] == returns
    best = TRPO.load(tmp_path / "best", policy=TINY)
    assert best.theta.tobytes() == evaluate.best.theta.tobytes()
    assert best.steps == [512, 1024][int(np.argmax(returns))]


def test_checkpoints_are_agents_and_the_oldest_go(tmp_path):
    agent, checkpoint = make_agent(), Checkpoint(tmp_path / "saved", every=256, keep=2)
    agent.learn(768, checkpoint, progress_bar=False)
    names = sorted(path.name for path in (tmp_path / "saved").iterdir())
    assert names == ["steps-0000000512", "steps-0000000768"]
    first = TRPO.load(tmp_path / "saved" / names[0], policy=TINY)
    assert first.learn(256, progress_bar=False).theta.tobytes() == agent.theta.tobytes()


def test_progress_of_a_loop_without_one(capsys):
    make_agent().learn(512, Progress(log_interval=1), progress_bar=False)
    shown = capsys.readouterr().err
    assert "iteration 1 " in shown
    assert "512/512 steps" in shown


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StopOnReturn(1, patience=0), "patience must be a whole number of at least 1"),
        (lambda: Evaluate(0), "every must be a whole number of at least 1, got 0"),
        (lambda: Evaluate(1, episodes=-1), "episodes must be a whole number of at least 1"),
        (lambda: Checkpoint("x", every=1.5), "every must be a whole number of at least 1, got 1.5"),
        (lambda: Checkpoint("x", keep=0), "keep must be a whole number of at least 1"),
        (lambda: Progress(log_interval=0), "log_interval must be a whole number of at least 1"),
    ],
)
def test_a_wrong_argument_is_refused_before_training(make, words):
    with pytest.raises(ValueError, match=words):
        make()
