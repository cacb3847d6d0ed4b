"""Mistakes on the command line: exit code, and one line that names the mistake and what to do.

Every case runs in this process, and none trains.
"""

import json
import os
import shlex
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis.cli import parse_errors
from trellis.cli.main import main
from trellis.config import TrainConfig, to_json
from trellis.runs.folder import write_config

RUN = TrainConfig("CartPole-v1", seed=4, total_steps=500)


class Odd(gymnasium.Env):
    """An environment that cannot be copied, or that no policy can observe."""

    action_space = spaces.Discrete(2)

    def __init__(self, text=False):
        self.observation_space = spaces.Text(5) if text else spaces.Box(-1, 1, (4,))
        self.generator = (number for number in range(3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


@pytest.fixture(scope="module", autouse=True)
def odd_environments():
    gymnasium.register("Uncopyable-v0", Odd)
    gymnasium.register("Unreadable-v0", Odd, kwargs={"text": True})
    yield
    for name in ("Uncopyable-v0", "Unreadable-v0"):
        gymnasium.registry.pop(name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a run that has no checkpoint, and files that are in the way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run", RUN)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    (tmp_path / "file").write_text("")
    return tmp_path


def files(folder):
    return sorted(folder.rglob("*"))


def message(capsys, line, code):
    """Return the message of a command that fails: one line on standard error, nothing else."""
    capsys.readouterr()
    assert main(shlex.split(line)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    *_, last = captured.err.splitlines()
    assert last.startswith("trellis: ")
    assert "Traceback" not in captured.err
    return captured.err


TRAIN_HELP = "`trellis train --help` lists all options."
MISTAKES = [
    # The command.
    ("trian CartPole-v1", "no command 'trian'. Did you mean train? `trellis --help` lists them."),
    ("fly", "no command 'fly'. `trellis --help` lists them."),
    # Arguments that are missing, unknown or too many.
    ("train", "missing argument: ENV, for example: trellis train CartPole-v1. `trellis envs`"),
    ("train ''", "missing argument: ENV, for example: trellis train CartPole-v1"),
    ("train CartPole-v1 more", f"unexpected argument 'more'. {TRAIN_HELP}"),
    ("train CartPole-v1 --stps 5", f"unknown option --stps. Did you mean --steps? {TRAIN_HELP}"),
    ("train CartPole-v1 --gamma 1", "unknown option --gamma. Did you mean --estimation.gamma?"),
    ("train CartPole-v1 --zzz=1", f"unknown option --zzz. {TRAIN_HELP}"),
    ("train CartPole-v1 --steps", f"--steps needs a value: INT. {TRAIN_HELP}"),
    ("resume", "missing argument: RUN. `trellis resume --help` lists all options."),
    ("eval", "missing argument: RUN. `trellis eval --help` lists all options."),
    ("eval run --jsn", "unknown option --jsn. Did you mean --json?"),
    ("plot", "name at least one run folder"),
    ("envs --everything", "unknown option --everything. `trellis envs --help`"),
    # Values of the wrong type.
    ("train CartPole-v1 --steps many", "--steps must be a whole number, got 'many'"),
    ("train CartPole-v1 --steps 1.5", "--steps must be a whole number, got '1.5'"),
    ("train CartPole-v1 --steps inf", "--steps must be a whole number, got 'inf'"),
    ("train CartPole-v1 --max-iterations x", "--max-iterations must be a whole number, got 'x'"),
    ("train CartPole-v1 --max-kl big", "--max-kl must be a number, got 'big'"),
    ("train CartPole-v1 --policy.hidden a b", "--policy.hidden must be whole numbers, got 'a b'"),
    ("train CartPole-v1 --sampler vines", "--sampler must be one of single-path, vine, got 'vines"),
    ("train CartPole-v1 --env-options gravity", "--env-options must be NAME=VALUE pairs, got 'gra"),
    ("plot run --x hours", "--x must be one of steps, seconds, got 'hours'"),
    ("eval run --episodes x", "--episodes must be a whole number, got 'x'"),
    # Values that no setting may have.
    ("train CartPole-v1 --max-kl -0.01", "max_kl must be > 0, got -0.01"),
    ("train CartPole-v1 --max-kl nan", "max_kl must be a finite number, got nan"),
    ("train CartPole-v1 --step.damping inf", "damping must be a finite number, got inf"),
    ("train CartPole-v1 --steps 0", "total_steps must be at least 1, got 0"),
    ("train CartPole-v1 --seed -1", "seed must be at least 0 and less than 2^63, got -1"),
    ("train CartPole-v1 --estimation.gamma 1.5", "gamma must be in (0, 1], got 1.5"),
    ("train CartPole-v1 --policy.hidden 0", "hidden must be sizes of at least 1, got (0,)"),
    ("train CartPole-v1 --method ppo", "method must be one of trpo, natural-gradient, empirical"),
    ("train CartPole-v1 --workers 0", "workers must be at least 1, got 0"),
    ("eval run --episodes 0", "episodes must be at least 1, got 0"),
    ("resume run --steps -1", "steps must be at least 1, got -1"),
    ("record run --seed -1", "seed must be at least 0, got -1"),
    ("record run --max-steps 0", "max_steps must be at least 1, got 0"),
    ("record run --out video.gif", "a video is an .mp4 file, got video.gif"),
    # Trackers, formats and tuning.
    ("train CartPole-v1 --track comet", "--track must be one of wandb, mlflow, tensorboard, got"),
    ("plot run --format gif", "--format must be one of auto, png, svg, pdf, got 'gif'"),
    ("plot run --out a.png --format svg", "--out a.png and --format svg contradict each other"),
    ("compare run --format html", "--format must be one of text, markdown, csv, json, got 'html'"),
    ("compare run --format csv --json", "--json and --format csv exclude each other"),
    ("tune", "missing argument: ENV"),
    ("tune CartPole-v1 --trials 0", "trials must be at least 1, got 0"),
    ("tune CartPole-v1 --trials x", "--trials must be a whole number, got 'x'"),
    ("tune CartPole-v1 --parts all", "--parts must be one of step, estimation, sampling, policy"),
    ("tune CartPole-v1 --out full", "full is a folder; choose another --study or --out"),
    # Settings that exclude each other.
    ("train CartPole-v1 --method natural-gradient", "multiplier must be set for natural-gradient"),
    (
        "train CartPole-v1 --method natural-gradient --step.multiplier 0.1",
        "advantages must be center or raw for natural-gradient",
    ),
    ("train CartPole-v1 --step.multiplier 1", "multiplier must be None for trpo (set max_kl inst"),
    ("train CartPole-v1 --method cem --sampler vine", "sampler must be single-path for cem"),
    ("train CartPole-v1 --shards 3", "num_envs must be a multiple of shards (3), got 16"),
    (
        "train CartPole-v1 --sampler vine --sampling.vine.states 20000",
        "states must be at most trunks × trunk_length = 16,000, got 20000",
    ),
    (
        "train CartPole-v1 --config run/config.json --preset modern/classic",
        "--preset and --config exclude each other; leave out --preset",
    ),
    ("eval run --best --last", "--best and --last exclude each other; leave out one of them"),
    ("train CartPole-v1 --cluster local", "--shards N"),
    ("train CartPole-v1 --workers 2", "add --cluster local"),
    (
        "train gymnax/Pendulum-v1 --method cma --step.final-max-kl 0.001",
        "final_max_kl has no effect with the method cma: leave it out",
    ),
    ("train CartPole-v1 --method max-kl --step.no-line-search", "line_search has no effect"),
    ("train CartPole-v1 --env-options foo=1", "CartPole-v1 has no option 'foo'; it has render_mo"),
    # Presets and environments.
    ("train CartPole-v1 --preset modern/clasic", "did you mean modern/classic? `trellis presets`"),
    ("train CartPole-v1 --preset zzz", "there is no preset 'zzz'; `trellis presets` lists them"),
    ("train Hoper-v5", "Did you mean Hopper-v5"),
    ("train NoSuchEnvironment", "`trellis envs` lists"),
    ("train no_such_module:Toy-v0", "the module no_such_module"),
    ("train Unreadable-v0", "ObservationWrapper"),
    (
        "train Uncopyable-v0 --sampler vine --sampling.vine.states 2 --sampling.vine.trunks 2",
        "--sampler single-path",
    ),
    # Files and folders.
    ("train CartPole-v1 --out full", "full exists and is not empty; choose another --out"),
    ("train CartPole-v1 --out file", "choose another --out"),
    ("train CartPole-v1 --out file/run", "is not a folder that you can write to; choose another"),
    ("reproduce theory --out file/new", "is not a folder that you can write to; choose another"),
    ("train --config nowhere.json", "nowhere.json cannot be read: No such file"),
    ("train --config run", "run is a folder; give the file in it: run/config.json"),
    ("resume nowhere", "nowhere is not a run: there is no config.json in it; check the path"),
    ("eval file", "file is not a run: there is no config.json in it; check the path"),
    ("record nowhere", "nowhere is not a run: there is no config.json in it; check the path"),
    ("plot nowhere", "nowhere is not a run: there is no config.json in it; check the path"),
    ("compare nowhere", "nowhere is not a run: there is no config.json in it; check the path"),
    ("eval run", "checkpoint"),
    ("resume pretrained/CartPole-v1", "is a policy without the state of its training"),
    ("improvement pretrained/CartPole-v1", "is a policy without the state of its training"),
    ("share run --to file", "is not a folder that you can write to; choose another --to"),
    ("export run --out file/policy.onnx", "is not a folder that you can write to; choose another"),
    # Experiments.
    ("reproduce theroy", "no experiment 'theroy'. Did you mean theory? `trellis reproduce --help`"),
    (
        "reproduce training --scale 0.5",
        "unknown option --scale. `trellis reproduce training --help",
    ),
    ("reproduce cartpole --tasks hopper", "unknown option --tasks."),
    ("reproduce theory --parallel 4", "unknown option --parallel."),
    ("reproduce theory --evaluate-only", "unknown option --evaluate-only."),
    ("reproduce theory --seeds 0", "seeds must be at least 1, got 0"),
    ("reproduce training --parallel 0", "parallel must be at least 1, got 0"),
    ("reproduce locomotion --tasks jumper", "there is no task 'jumper'"),
    ("reproduce cartpole --methods ppo", "there is no method 'ppo'"),
    ("reproduce cartpole --vine-scale 2", "scale must be in (0, 1], got 2"),
    ("reproduce ablations --parts cg", "there is no part 'cg'"),
    ("reproduce ablations --scale 0", "scale must be in (0, 1], got 0"),
    ("reproduce atari --games Chess", "there is no game 'Chess'"),
    ("reproduce atari --evaluate-only", "there is no run of"),
    ("reproduce vine-variance --batches 1", "batches must be at least 2, got 1"),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(line, words, folder, capsys):
    before = files(folder)
    error = message(capsys, line, 2)
    assert words in error
    if not line.startswith("reproduce atari"):  # It says first which folder it works in.
        assert len(error.splitlines()) == 1
    assert files(folder) == before


def test_a_folder_that_holds_a_run_has_its_own_exit_code(folder, capsys):
    error = message(capsys, "train CartPole-v1 --out run", 4)
    assert "trellis resume run" in error


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_steps": "many"}, "total_steps must be a whole number, got 'many'"),
        ({"step": 3}, "step must be a JSON object, got 3"),
        ({"step": {"max_kl": "0.1"}}, "step.max_kl must be a number, got '0.1'"),
        ({"step": {"max_kl": -1.0}}, "max_kl must be > 0, got -1.0"),
        ({"step": {"max_kil": 1.0}}, "step has no setting step.max_kil; did you mean step.max_kl?"),
        ({"policy": {"hidden": 64}}, "policy.hidden must be a list of whole numbers, got 64"),
        ({"sampling": {"sampler": "x"}}, "sampling.sampler must be one of single-path, vine, got"),
        ({"stepp": {}}, "the configuration has no setting stepp; did you mean step?"),
        (
            {"schema_version": 99},
            "schema_version must be 1 to 3, got 99; use the version of trellis-rl",
        ),
        ({"env": None}, "the configuration has no env; add it"),
    ],
)
def test_an_invalid_config_file_is_one_line(changes, words, tmp_path, capsys):
    path = tmp_path / "config.json"
    values = {**to_json(RUN), **changes}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    error = message(capsys, f"train --config {path}", 2)
    assert error.startswith(f"trellis: {path} cannot be read: {words}")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"env": "Cart', "cannot be read: Unterminated string starting at: line 1 column 9"),
        (b"[1, 2]", "cannot be read: a configuration must be a JSON object, got [1, 2]"),
        (b"\xff\xfe", "cannot be read: 'utf-8' codec"),
        (json.dumps({**to_json(RUN), "env": "callable:mine"}).encode(), "TRPO.load(path, env=...)"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_line(content, words, tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(content)
    error = message(capsys, f"train --config {tmp_path / 'a.json'}", 2)
    assert words in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("package", "line", "command"),
    [
        ("mujoco", "train Hopper-v5", "pip install 'trellis-rl[mujoco]'"),
        ("ray", "train CartPole-v1 --cluster local --shards 2", "pip install 'trellis-rl[ray]'"),
        ("imageio_ffmpeg", "record run", "pip install 'trellis-rl[video]'"),
    ],
)
def test_a_missing_package_is_named_with_its_install_command(
    package, line, command, folder, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    assert command in message(capsys, line, 2)


def test_without_the_hook_of_tyro_a_mistake_still_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr(parse_errors, "events", None)
    assert main(["eval", "run", "--jsn"]) == 2
    assert "--jsn" in capsys.readouterr().err


@pytest.mark.parametrize("write_through", [False, True])
def test_nobody_reads_the_output_any_more(write_through, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        stream.reconfigure(write_through=write_through)
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["presets"]) == 141
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_elsewhere_is_an_error(monkeypatch):
    def closed(*_, **__):
        raise BrokenPipeError("the simulator is gone")

    monkeypatch.setattr("builtins.print", closed)
    reader, writer = os.pipe()
    with open(writer, "w") as stream, open(reader):
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["presets"]) == 1
