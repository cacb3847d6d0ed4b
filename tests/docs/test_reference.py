"""The reference describes everything that it should: names, settings, metrics, commands, spaces."""

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.docs import metrics
from tools.docs import generate, public_names
from trellis import config
from trellis.actions import UnsupportedSpaceError, action_kind
from trellis.cli.main import COMMANDS
from trellis.optimization.step import Status
from trellis.pictures import LARGEST_SIDE, picture_layout
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.runs.log_lines import CHECKSUM
from trellis.sampling.proposals import MAX_ENUMERATED, ProposalError, choose_proposal
from trellis.spaces import observation_encoder

ROOT = generate.ROOT
REFERENCE = ROOT / "docs/reference"
NAMES = public_names.public_names()
STRANGE = re.compile(r"(?:Of|Likewise|As|And|Taken)\b")
"""Words that no docstring starts with."""


def strange(text: str) -> bool:
    return bool(STRANGE.match(text)) or len(text.split()) < 3


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_documented(name):
    text = public_names.docstring(name, NAMES[name])
    assert not strange(text), f"{name}: {text!r}"
    assert text.partition("\n\n")[0].endswith((".", ":")), text


def test_public_names_are_on_a_page():
    shown = "\n".join(path.read_text("utf-8") for path in (REFERENCE / "api").glob("*.md"))
    directives = set(re.findall(r"^::: (\S+)$", shown, re.MULTILINE))
    missing = [
        name
        for name, value in NAMES.items()
        if not {name.rpartition(".")[0], getattr(value, "__module__", "")} & directives
        and not any(name.startswith(f"{directive}.") for directive in directives)
    ]
    assert missing == []


def test_generated_pages_are_current():
    stale = [str(path) for path in generate.stale_pages()]
    assert stale == [], "run `make docs-pages` and commit what it writes"


def test_every_setting_is_described():
    page = (REFERENCE / "settings.md").read_text("utf-8")

    def names(values: dict, prefix: str = ""):
        for name, value in values.items():
            if isinstance(value, dict) and name != "env_options":
                yield from names(value, f"{prefix}{name}.")
            elif name != "schema_version":
                yield f"{prefix}{name}"

    for name in names(config.to_json(config.TrainConfig(env="CartPole-v1"))):
        row = re.search(rf'<a id="{re.escape(name)}"></a>.*\| (.+) \|$', page, re.MULTILINE)
        assert row, name
        assert not strange(row[1]), f"{name}: {row[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_described(command):
    assert f"## trellis {command}\n" in (REFERENCE / "command-line.md").read_text("utf-8")


def test_every_metric_is_described_and_exists():
    """The blocks of the pages check the same for new runs."""
    # What those unfinished runs of an earlier version do not have.
    logged = {
        "eval_return_mean",
        "eval_return_std",
        "eval_length_mean",
        "reward_per_step",
        "normalization_kl",
        "surrogate_scale",
        "seconds_iteration",  # Of environments in JAX.
        CHECKSUM,
    }
    for path in (ROOT / "tests/data/runs").glob("*/metrics.jsonl"):  # Vine, CEM and CMA among them.
        logged |= metrics.logged_in(path)
    assert metrics.described() == logged
    assert metrics.described_statuses() == {status.name.lower() for status in Status}


OBSERVATIONS = {
    "`Box` of any shape": spaces.Box(-1, 1, (2, 3)),
    "`Box` of pictures": spaces.Box(0, 255, (4, 20, 20), np.uint8),
    "`Discrete`": spaces.Discrete(3),
    "`MultiDiscrete`": spaces.MultiDiscrete([2, 3]),
    "`MultiBinary`": spaces.MultiBinary(3),
    "`Dict`": spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(0, 1, (2,))])),
    "`Tuple`": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    "`Text`": spaces.Text(3),
    "`Sequence`": spaces.Sequence(spaces.Discrete(2)),
    "`Graph`": spaces.Graph(spaces.Box(0, 1, (1,)), None),
    "`OneOf`": spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
}
ACTIONS = {
    "`Box` of floats": spaces.Box(-1, 1, (2,)),
    "`Box` of integers": spaces.Box(0, 5, (2,), np.int32),
    **{name: OBSERVATIONS[name] for name in OBSERVATIONS if "Box" not in name},
}


def table_in(page: str, heading: str) -> dict[str, bool]:
    text = (REFERENCE / page).read_text("utf-8").partition(f"## {heading}\n")[2]
    rows = re.findall(r"^\| (`.+?) \| (yes|no) \|", text.partition("\n##")[0], re.MULTILINE)
    return {name: answer == "yes" for name, answer in rows}


def works(function, space: spaces.Space) -> bool:
    try:
        function(space)
    except UnsupportedSpaceError:
        return False
    return True


def test_spaces_are_supported_as_described():
    observations = {name: works(observation_encoder, s) for name, s in OBSERVATIONS.items()}
    assert table_in("spaces.md", "Observation spaces") == observations
    actions = {name: works(action_kind, space) for name, space in ACTIONS.items()}
    assert table_in("spaces.md", "Action spaces") == actions


def test_pictures_are_as_described():
    def is_picture(shape, high=255, kind: Any = np.uint8):
        return picture_layout(spaces.Box(0, high, shape, kind)) is not None

    assert is_picture((16, 10, 10))
    assert not is_picture((17, 20, 20))
    assert not is_picture((4, 9, 10))
    assert not is_picture((4, 10, 10), high=1)
    assert not is_picture((4, 10, 10), kind=np.float32)
    assert is_picture((84, 84, 3))
    assert is_picture((84, 84))
    assert is_picture((4, 84, 84, 3))
    assert not is_picture((7, 7, 3))
    assert not is_picture((8, 84, 84, 3))
    page = (REFERENCE / "spaces.md").read_text("utf-8")
    assert f"longer than {LARGEST_SIDE} pixels" in page


@pytest.mark.parametrize(
    ("proposal", "distribution", "fits"),
    [
        ("policy", DiagGaussian(2), True),
        ("uniform", DiagGaussian(2), False),
        ("every", DiagGaussian(2), False),
        ("policy", Categoricals((3,)), True),
        ("uniform", Categoricals((3,)), True),
        ("every", Categoricals((MAX_ENUMERATED,)), True),
        ("every", Categoricals((2,) * 6), False),
    ],
)
def test_proposals_fit_as_described(proposal, distribution, fits):
    settings = config.VineConfig(proposal=proposal)
    if fits:
        choose_proposal(settings, distribution)
    else:
        with pytest.raises(ProposalError):
            choose_proposal(settings, distribution)
    assert f"at most {MAX_ENUMERATED} combinations" in (REFERENCE / "spaces.md").read_text("utf-8")
