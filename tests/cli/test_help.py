"""Help texts: what is in them, how they look, and that they are plain sentences."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trellis
from trellis import presets
from trellis.cli import options, train_options
from trellis.cli.main import COMMANDS, main
from trellis.cli.reproduce import EXPERIMENTS
from trellis.config import EstimationConfig, TrainConfig
from trellis.presets import PRESETS

FORBIDDEN = ("Of ", "Likewise", "As ", "And ", "Taken")
"""Words that no help text begins with."""
LONGEST_SENTENCE = 25


def option_names(config, prefix="--"):
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from option_names(value, f"{name}.")
        elif name != "--env":
            yield name


def help_of(capsys, *args):
    """Return the lines of a help text, without the lines of its boxes."""
    assert main([*args, "--help"]) == 0
    return re.sub("[│─╭╮╰╯]", " ", capsys.readouterr().out).splitlines()


def joined(lines):
    return " ".join(" ".join(lines).split())


def require_plain(text, where):
    """Full sentences: a capital letter or a symbol first, a period last, nothing too long."""
    assert text, where
    assert not text.startswith(FORBIDDEN), where
    assert len(text.split()) >= 3, where
    assert text[0].isupper() or not text[0].isascii() or text[1] in "/ ,", where
    assert text.endswith("."), where
    for sentence in re.split(r"(?<=[.;:]) ", text):
        assert len(sentence.split()) <= LONGEST_SENTENCE, where


def fields_with_help():
    """Every option of every command that is a field of a dataclass."""
    for name, field in train_options._settings(TrainConfig(env="?")):
        yield name, field.helptext
    for field in options.fields_of(train_options.RunArguments):
        yield field.name, field.helptext


@pytest.mark.parametrize("columns", [80, 120])
def test_every_setting_is_an_option_with_its_help_and_default(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = help_of(capsys, "train")
    assert max(map(len, lines)) <= columns
    text = joined(lines)
    names = list(option_names(TrainConfig(env="?")))
    assert {"--search.elite-fraction", "--sampling.vine.rollout-length"} < set(names)
    for name in names:
        assert re.search(rf"{re.escape(name)}[, ]", text), name
    for words in ("Passes over the batch per critic fit.", "δ in Eq. 12", "--steps", "--out"):
        assert words in text
    # ENV is required, --help has no default, and all other options have one.
    assert text.count("(required)") == 1
    assert text.count("(default: ") == len(names) + len(
        options.fields_of(train_options.RunArguments)
    )
    assert "None" not in text


def test_common_options_come_first_and_the_rest_is_grouped(capsys):
    lines = [line.strip() for line in help_of(capsys, "train")]
    boxes = [line for line in lines if re.fullmatch(r"(\w+ )?options|positional arguments", line)]
    groups = [f"{group} options" for group in train_options.GROUPS]
    assert boxes == ["positional arguments", "options", *groups]
    common = joined(lines[lines.index("options") : lines.index("policy options")])
    flags = ("steps", "seed", "preset", "config", "out", "method", "sampler", "eval-every")
    for flag in flags:
        assert f"--{flag}" in common


def test_help_for_an_environment_shows_its_own_defaults(capsys):
    text = joined(help_of(capsys, "train", "--steps", "0", "Swimmer-v5"))
    gamma = presets.resolve("Swimmer-v5").estimation.gamma
    assert f"(default: {gamma})" in text
    assert "(default: modern/swimmer)" in text
    assert gamma != EstimationConfig().gamma


@pytest.mark.parametrize(("name", "text"), [*fields_with_help()], ids=lambda value: str(value)[:40])
def test_every_option_is_explained_in_plain_sentences(name, text):
    text = text() if callable(text) else text
    require_plain(" ".join((text or "").split()), name)


def test_every_preset_and_command_is_explained_in_a_line():
    for name, preset in PRESETS.items():
        require_plain(preset.about, name)
    for name, command in COMMANDS.items():
        first = (command.__doc__ or "").splitlines()[0]
        require_plain(first, name)
        assert len(first) <= 66, name  # The overview has 80 columns.
    for name, (*_, about) in EXPERIMENTS.items():
        assert about.endswith("."), name


def test_help_is_quick_and_complete():
    code = (
        "import sys; from trellis.cli.main import main; code = main(['--help']);"
        "code = code or main(['train', 'CartPole-v1', '--help']);"
        "heavy = {'jax', 'mujoco', 'matplotlib', 'gymnasium'} & set(sys.modules);"
        "sys.exit(code or (f'loaded {heavy}' if heavy else 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(trellis.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
