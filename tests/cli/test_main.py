"""The command line: every setting an option, every mistake a message, every exit code meant."""

import dataclasses
import io
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import datetime
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests import forge
from trellis import checkpoint_format, presets
from trellis.cli import consent, options, train_options
from trellis.cli import train as training
from trellis.cli.main import COMMANDS, main
from trellis.cli.reproduce import EXPERIMENTS
from trellis.config import TrainConfig, from_json, to_json
from trellis.policies.saved import SavedPolicy
from trellis.runs import checkpoint
from trellis.runs.log import read_metrics
from trellis.training.evaluation import evaluate_saved
from trellis.training.trainer import Trainer

# Small and quick; two iterations of 64 steps.
QUICK = ["--sampling.num-envs", "4", "--sampling.steps-per-env", "16", "--policy.hidden", "8"]
QUICK += ["--estimation.critic-epochs", "1", "--eval-episodes", "2"]
SHORT_EPISODES = ["--env-options", "max_episode_steps=40"]


class Odd(gymnasium.Env):
    """Observations that no policy reads, or values that no environment should give."""

    action_space = spaces.Discrete(2)

    def __init__(self, text=False, bad_after=None):
        self.observation_space = spaces.Text(5) if text else spaces.Box(-1, 1, (4,))
        self._text, self._bad_after, self._steps = text, bad_after, 0

    def _observe(self):
        return "abc" if self._text else np.zeros(4, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        reward = float("nan") if self._steps == self._bad_after else 0.0
        return self._observe(), reward, self._steps % 5 == 0, False, {}


@pytest.fixture(scope="module", autouse=True)
def odd_environments():
    gymnasium.register("Unreadable-v0", Odd, kwargs={"text": True})
    gymnasium.register("Faulty-v0", Odd, kwargs={"bad_after": 20})
    yield
    for name in ("Unreadable-v0", "Faulty-v0"):
        gymnasium.registry.pop(name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of two iterations; copy it before changing it."""
    folder = tmp_path_factory.mktemp("runs") / "cartpole"
    args = ["train", "CartPole-v1", *QUICK, *SHORT_EPISODES, "--steps", "128", "--seed", "3"]
    assert main([*args, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def says(capsys, args, code, *words):
    """Runs a command that fails: one message with these words, nothing else."""
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    for word in words:
        assert word in captured.err
    return captured.err


def test_options_override_the_preset_wherever_they_stand():
    line = "--step.max-kl 0.5 --steps 1e4 Swimmer-v5 --seed 7 --policy.hidden 5 6"
    line += " --step.no-line-search"
    parsed = train_options.parse(line.split())
    config, out = parsed.settings, parsed.out
    expected = presets.resolve("Swimmer-v5")
    step = dataclasses.replace(expected.step, max_kl=0.5, line_search=False)
    policy = dataclasses.replace(expected.policy, hidden=(5, 6))
    assert out is None
    assert config == dataclasses.replace(
        expected, step=step, policy=policy, total_steps=10_000, seed=7
    )
    assert train_options.parse(["Swimmer-v5"]).settings == expected


def test_preset_and_short_names():
    line = "CartPole-v1 --preset paper/cartpole --method max-kl-step --max-kl 0.3 --out a/b"
    parsed = train_options.parse(line.split())
    config, out = parsed.settings, parsed.out
    assert config.preset == "paper/cartpole"
    assert config.estimation.critic == "none"
    assert (config.step.method, config.step.max_kl) == ("max-kl-step", 0.3)
    assert str(out) == "a/b"


def test_a_method_that_needs_more_is_checked_as_a_whole():
    # Neither option is valid alone, so nothing may be checked before all are read.
    line = "CartPole-v1 --preset paper/cartpole --method natural-gradient --step.multiplier 0.1"
    assert train_options.parse(line.split()).settings.step.multiplier == 0.1
    with pytest.raises(ValueError, match="multiplier must be set"):
        train_options.parse(["CartPole-v1", "--method", "natural-gradient"])


def test_settings_of_a_preset_that_the_method_ignores_are_left_out():
    for method, final in (("cma", None), ("cem", None), ("max-kl-step", 0.001)):
        step = train_options.parse(["gymnax/Pendulum-v1", "--method", method]).settings.step
        assert (step.method, step.final_max_kl) == (method, final)


def test_options_of_the_environment():
    line = "CartPole-v1 --env-options max_episode_steps=9 sutton_barto_reward=true name=x=y"
    options = train_options.parse(line.split()).settings.env_options
    assert options == {"max_episode_steps": 9, "sutton_barto_reward": True, "name": "x=y"}


def test_training_leaves_a_run_and_says_what_is_next(trained):
    config = json.loads((trained / "config.json").read_text())
    assert (config["env"], config["seed"], config["total_steps"]) == ("CartPole-v1", 3, 128)
    assert config["policy"]["hidden"] == [8]
    assert [row["steps"] for row in read_metrics(trained)] == [64, 128]


def test_without_out_the_run_has_its_own_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = [
        *QUICK,
        *SHORT_EPISODES,
        "--steps",
        "64",
        "--seed",
        "5",
        "--preset",
        "modern/default",
    ]
    assert main(["train", "trellis/PaperCartPole-v0", *options]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("trellis-PaperCartPole-v0-5-2")
    out = capsys.readouterr().out
    assert "Last evaluation: return" in out
    for command in ("eval", "record", "plot"):
        assert f"trellis {command} runs/{folder.name}" in out


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "datetime", Mock(now=lambda: datetime(2026, 1, 2)))
    names = [training.new_folder("ALE/Pong-v5", 1).name for _ in range(3)]
    first = "ALE-Pong-v5-1-20260102-000000"
    assert names == [first, f"{first}-2", f"{first}-3"]


def test_steps_that_are_asked_for_are_not_cut_short_by_a_preset():
    def limits(*options):
        config = train_options.parse(["trellis/PaperSwimmer-v0", *options]).settings
        return config.total_steps, config.max_iterations

    assert limits() == (10_000_000, 200)
    assert limits("--steps", "20000000") == (20_000_000, None)
    assert limits("--total_steps=20000000") == (20_000_000, None)
    assert limits("--steps", "20000000", "--max-iterations", "7") == (20_000_000, 7)


@pytest.fixture
def config_file(tmp_path):
    """Writes settings as a run's config.json has them; None removes one."""

    def write(name="config.json", **changes):
        config = TrainConfig("Swimmer-v5", seed=4, total_steps=500, max_iterations=7)
        values = {**to_json(config), **changes}
        path = tmp_path / name
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
        return path

    return write


def test_a_config_file_holds_all_settings(config_file, trained, tmp_path):
    path = config_file()
    expected = from_json(json.loads(path.read_text()))
    assert train_options.parse(["--config", str(path)]).settings == expected
    # Not those of the preset that another environment would have.
    parsed = train_options.parse(["CartPole-v1", f"--config={path}"])
    assert parsed.settings == dataclasses.replace(expected, env="CartPole-v1")
    again = tmp_path / "again"
    assert main(["train", "--config", str(trained / "config.json"), "--out", str(again)]) == 0
    assert (again / "config.json").read_bytes() == (trained / "config.json").read_bytes()
    same = [
        checkpoint_format.load_latest(run / "checkpoints").arrays["theta"]
        for run in (trained, again)
    ]
    np.testing.assert_array_equal(*same)


def test_options_override_a_config_file(config_file):
    path = config_file(env_options={"a": 1, "b": 2}, preset="modern/swimmer")
    line = f"--seed 9 --config {path} --policy.hidden 5 --env-options b=3 --eval-every 0"
    config = train_options.parse(line.split()).settings
    assert (config.env, config.seed, config.preset) == ("Swimmer-v5", 9, "modern/swimmer")
    assert (config.policy.hidden, config.eval_every) == ((5,), 0)
    assert config.env_options == {"a": 1, "b": 3}
    assert (config.total_steps, config.max_iterations) == (500, 7)
    longer = train_options.parse(["--config", str(path), "--steps", "1e3"]).settings
    assert (longer.total_steps, longer.max_iterations) == (1000, None)


def test_files_that_a_config_file_names_need_consent(config_file, capsys):
    path = str(config_file(env="Hopper-v5", env_options={"xml_file": "/dev/zero"}))
    words = ("'xml_file=/dev/zero'", "name files to be read", "--trust-env")
    for line in (["train"], ["train", "Hopper-v5"], ["tune", "Hopper-v5"]):
        says(capsys, [*line, "--config", path], 2, *words)
    typed = ["--env-options", "xml_file=./nothing.xml"]
    error = says(capsys, ["train", "Hopper-v5", "--config", path, *typed], 2, "nothing.xml")
    assert "--trust-env" not in error


def test_help_with_a_config_file_shows_its_defaults(config_file, capsys):
    assert main(["train", "--config", str(config_file(threads=77)), "--help"]) == 0
    assert "(default: 77)" in capsys.readouterr().out


def test_a_run_in_use_has_its_own_exit_code(run, capsys):
    program = (
        "import sys; from pathlib import Path; from trellis.runs.folder import locked\n"
        "with locked(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        says(capsys, ["resume", run, "--steps", "192"], 3, "another process")
        other.communicate()
    assert main(["resume", str(run), "--steps", "192"]) == 0


def test_every_experiment_has_its_own_options(capsys):
    assert main(["reproduce", "--help"]) == 0
    listed = capsys.readouterr().out
    for name in EXPERIMENTS:
        assert f"\n  {name} " in listed
        assert main(["reproduce", name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--out" in text
        assert "None" not in text
        assert ("--games" in text) == (name == "atari")
        assert ("--parts" in text) == (name == "ablations")
        assert ("--methods" in text) == (name in ("comparison", "cartpole", "locomotion"))
    assert main(["reproduce"]) == 2


def test_eval_prints_one_json_object(trained, capsys):
    results = []
    for which in ([], ["--last"], ["--best"]):
        assert main(["eval", str(trained), "--json", "--episodes", "4", *which]) == 0
        results.append(json.loads(capsys.readouterr().out))
    default, last, best = results
    assert default == last
    assert (default["policy"], best["policy"]) == ("last", "best")
    assert default["episodes"] == len(default["returns"]) == 4
    assert default["mean_return"] == pytest.approx(np.mean(default["returns"]))
    assert default["std_return"] == pytest.approx(np.std(default["returns"]))
    # One step, one point: as long as the episodes were, and the option reached the environment.
    assert default["returns"] == default["lengths"]
    assert max(default["lengths"]) <= 40
    assert main(["eval", str(trained)]) == 0
    assert "over 20 episodes" in capsys.readouterr().out


def test_eval_of_the_same_policy_gives_what_training_saw(trained, capsys):
    assert main(["eval", str(trained), "--json", "--episodes", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mean_return"] == pytest.approx(read_metrics(trained)[-1]["eval_return_mean"])


def test_best_and_last_are_two_policies(run, capsys):
    folder = run / checkpoint_format.CHECKPOINTS
    saved = checkpoint_format.load_latest(folder)
    arrays = {**saved.arrays, "best_theta": -saved.arrays["theta"]}
    values = {**saved.values, "best_iteration": 1, "best_steps": 64}
    checkpoint.save(folder, saved.iteration, arrays, values, keep=1)
    found = {}
    for which in ("--best", "--last"):
        assert main(["eval", str(run), "--json", which]) == 0
        found[which] = json.loads(capsys.readouterr().out)
    assert found["--best"]["returns"] != found["--last"]["returns"]
    assert (found["--best"]["iteration"], found["--best"]["steps"]) == (1, 64)
    assert (found["--last"]["iteration"], found["--last"]["steps"]) == (2, 128)


def test_the_best_policy_is_scored_on_episodes_that_did_not_choose_it(run):
    last, best = SavedPolicy.load(run), SavedPolicy.load(run, best=True)
    assert best.is_best
    assert best.theta.tobytes() == last.theta.tobytes(), "here they are the same policy"
    assert (best.iteration, best.steps) == (last.iteration, last.steps)
    lengths = [evaluate_saved(policy, 8).lengths.tolist() for policy in (last, best)]
    assert lengths[0] != lengths[1]


def test_resume_extends_a_finished_run(run, capsys):
    assert main(["resume", str(run)]) == 0
    assert f"finished already. To extend it: trellis resume {run} --steps 256" in (
        capsys.readouterr().err
    )
    assert len(read_metrics(run)) == 2
    assert main(["resume", str(run), "--steps", "1.92e2"]) == 0
    assert "finished already" not in capsys.readouterr().err
    assert [row["steps"] for row in read_metrics(run)] == [64, 128, 192]
    assert [row["iteration"] for row in read_metrics(run)] == [1, 2, 3]


def test_ctrl_c_leaves_a_run_that_resumes(tmp_path, monkeypatch, capsys):
    folder, iterate = tmp_path / "a b", Trainer.iterate

    def interrupted(self, state):
        if state.iteration == 1:
            signal.raise_signal(signal.SIGINT)
        return iterate(self, state)

    monkeypatch.setattr(Trainer, "iterate", interrupted)
    args = ["train", "CartPole-v1", *QUICK, "--steps", "256", "--out", str(folder)]
    err = says(capsys, args, 130, f"trellis resume '{folder}'")
    assert "after iteration 2" in err
    monkeypatch.undo()
    assert main(["resume", str(folder)]) == 0
    assert [row["iteration"] for row in read_metrics(folder)] == [1, 2, 3, 4]


def test_plot_and_record(run, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("imageio_ffmpeg")
    picture = tmp_path / "c.png"
    assert main(["plot", str(run), "--out", str(picture), "--x", "seconds", "--evaluations"]) == 0
    assert capsys.readouterr().out.strip() == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["record", str(run), "--max-steps", "5", "--episodes", "2", "--best"]) == 0
    assert "12 frames at 50 a second, return 5.0, 5.0" in capsys.readouterr().out
    assert b"ftyp" in (run / "video.mp4").read_bytes()[:16]


TOY = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Toy-v0", CartPoleEnv, max_episode_steps=20)
"""


@pytest.fixture
def current_folder(tmp_path, monkeypatch):
    """The current folder, with a module that registers Toy-v0, on nobody's import path."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toyworld.py").write_text(TOY)
    yield tmp_path
    sys.modules.pop("toyworld", None)
    gymnasium.registry.pop("Toy-v0", None)


def test_environments_of_the_current_folder(current_folder, capsys):
    says(capsys, ["train", "toyword:Toy-v0"], 2, "the module toyword", "in the folder")
    (current_folder / "broken.py").write_text("import nothing_of_this_name\n")
    says(capsys, ["train", "broken:Toy-v0"], 2, "No module named 'nothing_of_this_name'")
    assert main(["train", "toyworld:Toy-v0", *QUICK, "--steps", "64", "--out", "run"]) == 0
    assert main(["eval", "run", "--episodes", "2"]) == 0  # It is imported already.


def test_a_run_does_not_decide_what_is_imported(current_folder, trained, monkeypatch, capsys):
    """Neither the current folder nor an installed module, until the user agrees."""
    run = shutil.copytree(trained, current_folder / "run")
    forge.forge_config(run, env="toyworld:Toy-v0")
    line = ["eval", "run", "--episodes", "2"]
    repeat = "trellis eval run --episodes 2 --import toyworld"
    error = says(
        capsys, line, 2, "the module toyworld", str(current_folder / "toyworld.py"), repeat
    )
    assert len(error.splitlines()) == 1
    says(capsys, ["resume", "run"], 2, "trellis resume run --import toyworld")
    monkeypatch.setattr(sys, "path", [*sys.path, str(current_folder)])
    says(capsys, line, 2, "trellis eval run --episodes 2 --trust-env")
    says(capsys, ["record", "run"], 2, "trellis record run --trust-env")
    says(capsys, ["train", "--config", "run/config.json"], 2, "toyworld", "--trust-env")
    assert main(["plot", "run"]) == main(["compare", "run", "--training"]) == 0
    assert "toyworld" not in sys.modules
    monkeypatch.setattr("trellis.cli.consent._says_yes", lambda reason: False)
    says(capsys, line, 2, "--trust-env")
    monkeypatch.setattr("trellis.cli.consent._says_yes", lambda reason: "toyworld.py" in reason)
    assert main(line) == 0
    assert "toyworld" in sys.modules


@pytest.mark.parametrize(("answer", "agrees"), [("y\n", True), ("no\n", False), ("", False)])
def test_a_person_at_a_terminal_is_asked(answer, agrees, monkeypatch, capsys):
    terminal = io.StringIO(answer)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert not consent._says_yes("It would be imported.")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert consent._says_yes("It would be imported.") is agrees
    assert "It would be imported.\nDo you trust it? [y/N]" in capsys.readouterr().err


def test_the_flag_gives_consent_and_import_searches_the_current_folder(
    current_folder, trained, capsys
):
    run = shutil.copytree(trained, current_folder / "run")
    forge.forge_config(run, env="toyworld:Toy-v0")
    assert main(["eval", "run", "--episodes", "2", "--import", "toyworld"]) == 0
    says(capsys, ["eval", "run", "--import", "nowhere"], 2, "no module nowhere")
    forge.forge_config(run, env="CartPole-v1", env_options={"xml_file": "../x.xml"})
    says(capsys, ["eval", "run"], 2, "name files", "xml_file=../x.xml", "--trust-env")
    says(capsys, ["eval", "run", "--trust-env"], 2, "xml_file")  # CartPole has no such option.


def test_mistakes_about_a_run(run, tmp_path, capsys, monkeypatch):
    says(capsys, ["train", "CartPole-v1", "--out", run], 4, "holds a run already", "trellis resume")
    says(capsys, ["resume", run, "--steps", "64"], 2, "is a run of 128 steps")
    says(capsys, ["resume", run, "--steps", "-1"], 2, "steps must be at least 1")
    says(capsys, ["eval", run, "--episodes", "0"], 2, "episodes must be at least 1, got 0")
    says(capsys, ["eval", run, "--best", "--last"], 2, "exclude each other")
    says(capsys, ["record", run, "--out", tmp_path / "f.gif"], 2, ".mp4 file")
    says(capsys, ["record", run, "--seed", "-1"], 2, "seed must be at least 0")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    says(capsys, ["record", run], 2, "pip install 'trellis-rl[video]'")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    says(capsys, ["plot", run], 2, "pip install 'trellis-rl[plots]'")
    forge.forge_config(run, env="Acrobot-v1")
    says(capsys, ["resume", run], 2, "another environment", "observation space")
    says(capsys, ["eval", run], 2, "the policy does not fit the actions of Acrobot-v1")
    forge.forge_config(run, env="callable:mine")
    for command in ("eval", "resume"):
        says(capsys, [command, run], 2, "environment callable:mine", "TRPO.load")
    forge.forge_config(run, env="CartPole-v1", policy={"hidden": [9]})
    for command in ("eval", "resume"):
        says(capsys, [command, run], 2, "policy of 58 parameters", "the policy here has 65")
    forge.forge_config(run, in_checkpoint=False, step={"max_kl": 0.5})
    for command in ("eval", "resume"):
        says(capsys, [command, run], 2, "other settings than the checkpoint", "step.max_kl is 0.5")
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace("0.5", "0.4"))
    for command in ("eval", "resume", "plot", "compare"):
        says(capsys, [command, run], 2, "config.json cannot be read", "SHA-256 does not match")
    (run / "config.json").write_text(text)
    shutil.rmtree(run / "checkpoints")
    says(capsys, ["eval", run], 2, "no checkpoint")


def test_a_failure_during_training_says_how_to_resume(tmp_path, capsys):
    folder = tmp_path / "run"
    args = ["train", "Faulty-v0", *QUICK, "--out", folder]
    err = says(capsys, args, 1, "reward is not finite", f"trellis resume {folder}")
    assert "Faulty-v0" in err
    assert main([*map(str, args[:-1]), str(tmp_path / "other"), "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_guide_shows_commands_that_are_there():
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *root.glob("docs/guide*.md"), *root.glob("docs/guide/*.md")]
    text = "\n".join(page.read_text() for page in pages).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in re.findall("^trellis .*", text, re.M)]
    assert len(lines) > 8
    for _, command, *args in lines:
        assert command in COMMANDS
        if command == "train" and not {"--help", "--config"} & set(args):
            train_options.parse(args)


def test_every_documented_reproduction_has_options_that_are_there():
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("results/**/README.md")]
    texts = [page.read_text() for page in pages]
    lines = [line for text in texts for line in re.findall(r"trellis reproduce [^`#\n…]+", text)]
    lines = [line for line in lines if not {"EXPERIMENT", "[-h]"} & {*line.split()}]
    assert len(lines) > 20
    for _, _, name, *args in map(str.split, lines):
        module, kind, _ = EXPERIMENTS[name]
        experiment = import_module(f"trellis.reproduce.{module}.experiment")
        options.read(getattr(experiment, kind), name, args)


def test_python_m_trellis_answers_without_the_current_folder(tmp_path):
    (tmp_path / "tyro.py").write_text("raise AssertionError('imported from the current folder')\n")
    done = subprocess.run(
        [sys.executable, "-m", "trellis", "nothing"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trellis: there is no command 'nothing'")


def test_the_list_of_presets(capsys):
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(presets.PRESETS)
    (hopper,) = (line for line in lines if line.startswith("paper/hopper "))
    assert "Hopper of the paper: single path, 1,000 paths of 1,000 steps, no critic." in hopper


def test_the_list_of_environments(capsys):
    assert main(["envs"]) == 0
    usable = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert main(["envs", "--all"]) == 0  # Longer ids make wider columns.
    everything = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"Acrobot-v1", "CartPole-v1"} <= {line.split()[0] for line in usable}
    assert not any("pip install" in line for line in usable)
    assert set(usable) <= set(everything)
    missing = [line for line in everything if "pip install" in line]
    assert len(everything) == len(usable) + len(missing)
