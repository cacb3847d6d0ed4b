"""Studies: search spaces, pruning, resuming and the best settings, on a task with a known answer.

The trainer is replaced by one whose evaluations are a closed form of the settings.
"""

import dataclasses
import types

import numpy as np
import pytest

from trellis import presets
from trellis.cli.main import main
from trellis.config.file import load_config
from trellis.training.base import TrainerBase
from trellis.tuning import spaces, study

optuna = pytest.importorskip("optuna")
BASE = presets.resolve("CartPole-v1", None)


@dataclasses.dataclass(frozen=True)
class State:
    steps: int = 0
    iteration: int = 0
    best_return: float = -np.inf
    theta: object = None
    observation_moments: object = None
    best_theta: object = None
    best_moments: object = None
    best_iteration: int = 0
    best_steps: int = 0


class Trainer:
    """A trainer whose policy is best for max_kl = 0.03 and improves with the steps."""

    iterations = 0

    def __init__(self, config, trained):
        self.config, self._trained = config, trained

    def start(self):
        return State()

    def iterate(self, state):
        type(self).iterations += 1
        if not state.iteration:
            self._trained.append(self.config)
        state = State(state.steps + 100, state.iteration + 1)
        return state, {"steps": state.steps, "iteration": state.iteration}

    def evaluate(self, state, episodes):
        value = -abs(np.log(self.config.step.max_kl / 0.03)) + state.steps / 1e6
        return types.SimpleNamespace(mean_return=value, std_return=0.0, mean_length=1.0)

    with_evaluation = TrainerBase.with_evaluation

    def close(self):
        pass


@pytest.fixture
def trained(monkeypatch):
    """The settings of every trial that a study began."""
    found = []
    monkeypatch.setattr(study, "make_trainer", lambda config: Trainer(config, found))
    return found


def open_study(folder, **options):
    return study.Study(folder / "a.study", BASE, **{"steps": 500, "parts": ("step",), **options})


def test_the_first_trial_is_the_preset_the_best_is_near_the_optimum_and_bad_ones_are_stopped(
    tmp_path, trained
):
    tuned, results, Trainer.iterations = open_study(tmp_path), [], 0
    with pytest.raises(study.StudyError, match="no finished trial yet"):
        _ = tuned.best_config
    tuned.run(15, results.append)
    assert tuned.finished == len(trained) == len(results) == 15
    assert trained[0] == dataclasses.replace(BASE, total_steps=500)
    best = tuned.best_config
    assert abs(np.log(best.step.max_kl / 0.03)) < abs(np.log(BASE.step.max_kl / 0.03)) / 2
    # Only the step varies, and the length is that of the preset again.
    assert dataclasses.replace(best, step=BASE.step) == BASE
    assert len({config.step.max_kl for config in trained}) == 15
    pruned = [result for result in results if result.pruned]
    assert pruned
    assert Trainer.iterations < 15 * 5
    assert all(result.value < tuned.best.value for result in pruned)


def test_an_interrupted_study_continues(tmp_path, trained, monkeypatch):
    def interrupt(self, state, episodes):
        raise KeyboardInterrupt

    tuned = open_study(tmp_path)
    tuned.run(3)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tuned.run(4)
    tuned._study.ask()  # As if the process had been killed in a trial.
    again = open_study(tmp_path)
    assert again.finished == 3
    before = len(trained)
    again.run(5)
    assert (again.finished, len(trained) - before) == (5, 2)
    values = [config.step.max_kl for config in trained]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 600}, r"other steps \(500 there, 600 here\); choose another --study"),
        ({"parts": ("policy",)}, "other parts"),
        ({"evaluations": 2}, "other evaluations"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"evaluations": 0}, "evaluations must be at least 1, got 0"),
        ({"parts": ()}, "parts must be some of step, estimation, sampling, policy"),
        ({"parts": ("stp",)}, "parts must be some of step"),
    ],
)
def test_another_study_in_the_file_is_refused(tmp_path, trained, options, words):
    open_study(tmp_path)
    kept = (tmp_path / "a.study").read_bytes()
    with pytest.raises(ValueError, match=words):
        open_study(tmp_path, **options)
    assert (tmp_path / "a.study").read_bytes() == kept


def test_trials_are_compared_after_equal_steps(tmp_path, trained, monkeypatch):
    reported = []
    monkeypatch.setattr(optuna.Trial, "report", lambda self, value, step: reported.append(step))
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda self: False)
    iterate = Trainer.iterate

    def large(self, state):
        state, _ = iterate(self, state)
        state = dataclasses.replace(state, steps=250 * state.iteration)
        return state, {"steps": state.steps, "iteration": state.iteration}

    open_study(tmp_path).run(1)
    assert reported == [1, 2, 3, 4, 5]
    monkeypatch.setattr(Trainer, "iterate", large)
    open_study(tmp_path).run(2)
    assert reported[5:] == [2, 5]


def test_settings_without_effect_do_not_vary():
    walker = presets.resolve("trellis/PaperWalker-v0", "paper/walker-vine")
    names = spaces.names_in(walker, spaces.PARTS)
    assert "step.max_kl" in names
    assert not [name for name in names if "critic" in name or "lambda" in name]
    assert not [name for name in names if name.startswith("sampling.")]
    assert set(spaces.names_in(BASE, spaces.PARTS)) == set(spaces.SPACES)


@pytest.mark.parametrize("name", spaces.SPACES)
def test_every_space_has_valid_values_and_includes_the_preset(name):
    for env in ("CartPole-v1", "Hopper-v5"):
        base = presets.resolve(env, None)
        space = spaces.space_of(base, name)
        ends = space if isinstance(space, tuple) else (space.low, space.high)
        part, _, setting = name.partition(".")
        for value in ends:
            spaces.changed(base, {part: {setting: value}})
        fixed = spaces.defaults(base, [part])
        assert spaces.suggest(optuna.trial.FixedTrial(fixed), base, [part]) == base


def test_the_command_writes_settings_that_train_reads(tmp_path, trained, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["tune", "CartPole-v1", "--steps", "500", "--parts", "step", "--trials"]
    assert main([*line, "2"]) == 0
    assert main([*line, "4"]) == 0
    assert main([*line, "1", "--study", "new/a/b.study", "--out", "new/c/d.json"]) == 0
    assert load_config(tmp_path / "new/c/d.json") == BASE
    captured = capsys.readouterr()
    assert "4/4: " in captured.err
    assert "trellis train CartPole-v1 --config CartPole-v1.json" in captured.out
    assert len(trained) == 5
    best = load_config(tmp_path / "CartPole-v1.json")
    assert best.total_steps == BASE.total_steps
    assert best.step.max_kl in {config.step.max_kl for config in trained}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--trials 0", "trials must be at least 1, got 0"),
        ("--steps 0", "steps must be at least 1, got 0"),
        ("--parts", "parts must be some of step"),
        ("--parts stp", "--parts must be one of step, estimation, sampling, policy, got 'stp'"),
        ("--preset zzz", "there is no preset 'zzz'"),
        ("--preset modern/classic --config x.json", "exclude each other"),
        ("--config x.json", "x.json cannot be read"),
        ("--study folder", "folder is a folder; choose another --study"),
        ("--study full.tex", "full.tex is not the file of a study"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path, trained, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "full.tex").write_text("my thesis\n")
    code = main(
        ["tune", "CartPole-v1", *options.split(), *["--trials", "1"][: 2 * ("--tr" not in options)]]
    )
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert (tmp_path / "full.tex").read_text() == "my thesis\n"
    assert code == 2
    assert words in captured.err.splitlines()[-1]
    assert captured.out == ""
    assert trained == []


@pytest.mark.parametrize("env", ["NoSuchTask-v0", "no_such_module:Task-v0"])
def test_an_unknown_environment_leaves_no_file(tmp_path, monkeypatch, capsys, env):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", env, "--trials", "1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
