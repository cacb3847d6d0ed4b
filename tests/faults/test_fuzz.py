"""Whatever a file holds, its reader returns a value or raises an expected error, in bounds.

Hypothesis makes the content: JSON of any structure, good files with some parts replaced, and bytes.
"""

import json
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forge import forge_bytes, forge_values
from trellis import strict_json
from trellis.checkpoint_format import CheckpointError, load
from trellis.config import TrainConfig, from_json, to_json
from trellis.config.file import bounded, config_text, read_run_config
from trellis.envs.consent import require_consent
from trellis.policies.saved import SavedPolicy
from trellis.runs import checkpoint
from trellis.runs.log import read_metrics
from trellis.runs.log_lines import LogError, add_checksum
from trellis.space_json import SpaceFormatError, space_from_json, space_from_text

FEW, MANY, SECONDS = 25, 1_500, 5_000
MEMORY_BYTES = 512 << 20

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**3), 10**3),
    st.integers(),
    st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**40, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["env", "../x", "\x1b[2J", "a:b", "__class__", "$float", "nan", "inf", "-inf"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
CONFIG = to_json(TrainConfig("CartPole-v1"))
SPACE_KEYS = ["box", "low", "high", "dtype", "discrete", "start", "multi_discrete"]
SPACE_KEYS += ["multi_binary", "dict", "tuple"]
space_values = st.recursive(
    st.one_of(scalars, st.sampled_from(["float32", "uint8", "object", "bool"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(SPACE_KEYS), inner, max_size=4),
    ),
    max_leaves=8,
)


def paths_of(value: Any, path: tuple = ()) -> list[tuple]:
    """Where the entries of nested settings are."""
    found = [path] if path else []
    for name, part in value.items() if isinstance(value, dict) else ():
        found += paths_of(part, (*path, name))
    return found


def replaced(tree: Any, path: tuple, value: Any) -> Any:
    if not path:
        return value
    return {**tree, path[0]: replaced(tree[path[0]], path[1:], value)}


def fuzz(strategy: st.SearchStrategy, check: Callable[[Any], None], examples: int) -> None:
    """Call a check with many examples, each in five seconds, together in 512 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=examples,
        deadline=SECONDS,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(example)

    run()
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth * 1024 < MEMORY_BYTES


def as_bytes(example: Any) -> bytes:
    return example if isinstance(example, bytes) else json.dumps(example).encode()


def check_settings(folder: Path) -> tuple[st.SearchStrategy, Callable[[Any], None]]:
    changed = st.tuples(st.sampled_from(paths_of(CONFIG)), values).map(
        lambda pair: replaced(CONFIG, *pair)
    )
    folder.mkdir()

    def check(example: Any) -> None:
        try:
            data = as_bytes(example)
            if isinstance(example, dict):
                data = config_text(example).encode()
            (folder / "config.json").write_bytes(data)
            config = read_run_config(folder)
            assert bounded(from_json(to_json(config))) == config
            require_consent(config.env, config.env_options, folder, trusted=True)
        except ValueError as error:
            assert str(error)  # noqa: PT017

    return st.one_of(changed, values, st.binary(max_size=200)), check


def check_log(folder: Path) -> tuple[st.SearchStrategy, Callable[[Any], None]]:
    rows = st.dictionaries(
        st.one_of(st.sampled_from(["iteration", "steps", "kl", "checksum"]), st.text(max_size=5)),
        values,
        max_size=6,
    )
    line = st.one_of(
        rows.map(lambda row: add_checksum(json.dumps(row).encode())),
        values.map(lambda value: json.dumps(value).encode() + b"\n"),
        st.binary(max_size=100),
    )
    folder.mkdir()

    def check(lines: list[bytes]) -> None:
        (folder / "metrics.jsonl").write_bytes(b"".join(lines))
        try:
            for row in read_metrics(folder):
                assert type(row["iteration"]) is int
                assert type(row["steps"]) is int
                json.dumps(row, allow_nan=False)
        except LogError as error:
            assert str(error)  # noqa: PT017

    return st.lists(line, max_size=6), check


def check_checkpoint(folder: Path) -> tuple[st.SearchStrategy, Callable[[Any], None]]:
    path = checkpoint.save(folder / "checkpoints", 1, {}, {}, keep=1)
    names = ["schema_version", "iteration", "versions", "values", "config", "arrays_bytes"]
    about = st.fixed_dictionaries(
        {"dtype": st.sampled_from(["F32", "I8", "BOOL", "x"])},
        optional={"shape": values, "data_offsets": values},
    )
    header = st.dictionaries(st.text(max_size=8), st.one_of(about, values), max_size=4)
    original = (path / "values.json").read_bytes()

    def check(example: tuple[Any, Any]) -> None:
        changes, arrays = example
        (path / "values.json").write_bytes(original)
        text = arrays if isinstance(arrays, bytes) else json.dumps(arrays).encode()
        length = len(text).to_bytes(8, "little")
        forge_bytes(path, text if isinstance(arrays, bytes) else length + text)
        forge_values(path, **changes)
        try:
            saved = load(path)
            assert isinstance(saved.values, dict)
            assert type(saved.iteration) is int
        except CheckpointError as error:
            assert str(error)  # noqa: PT017

    changes = st.dictionaries(st.sampled_from(names), values, max_size=2)
    return st.tuples(changes, st.one_of(header, st.binary(max_size=64))), check


def check_spaces(folder: Path) -> tuple[st.SearchStrategy, Callable[[Any], None]]:
    def check(example: Any) -> None:
        read = space_from_text if isinstance(example, str) else space_from_json
        try:
            space = read(example)
            assert space is not None
        except SpaceFormatError as error:
            assert str(error)  # noqa: PT017

    words = ["Box", "Discrete", "(", ")", "[", "]", ",", "-", "inf", "1", "4", "float32", " ", "'"]
    texts = st.lists(st.sampled_from(words), max_size=20).map("".join)
    return st.one_of(space_values, texts, st.text(max_size=30)), check


def check_descriptions(folder: Path) -> tuple[st.SearchStrategy, Callable[[Any], None]]:
    """The values of a checkpoint whose arrays are those of a good one."""
    saved = load(max((folder / "checkpoints").iterdir()))
    path = max((folder / "checkpoints").iterdir())
    names = ["iteration", "steps", "best_return", "spaces", "observation_space", "action_space"]
    changes = st.dictionaries(
        st.sampled_from([*names, "policy"]), st.one_of(values, space_values), min_size=1, max_size=2
    )
    original = (path / "values.json").read_bytes()
    described = json.loads(original)["values"]
    assert saved.iteration

    def check(example: dict[str, Any]) -> None:
        (path / "values.json").write_bytes(original)
        forge_values(path, values={**described, **example})
        try:
            policy = SavedPolicy.load(folder)
            assert policy.theta.shape == (policy.policy.num_params,)
        except (CheckpointError, ValueError) as error:
            assert str(error)  # noqa: PT017

    return changes, check


READERS = {
    "settings": check_settings,
    "log": check_log,
    "checkpoint": check_checkpoint,
    "spaces": check_spaces,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_a_little_of_anything(reader, tmp_path):
    fuzz(*READERS[reader](tmp_path / "folder"), FEW)


@pytest.mark.fault
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_anything(reader, tmp_path, trial):
    with trial(f"fuzzing, {reader}", MANY):
        fuzz(*READERS[reader](tmp_path / "folder"), MANY)


@pytest.mark.fault
def test_a_policy_is_described_by_anything(good_agent, tmp_path, trial):
    import shutil

    folder = shutil.copytree(good_agent, tmp_path / "agent")
    with trial("fuzzing, descriptions", MANY):
        fuzz(*check_descriptions(folder), MANY)


def test_strict_json_has_limits():
    for text, words in (
        ("[" * 40 + "]" * 40, "deeper than 32"),
        ("[" * 100_000, "nested too deeply"),
        ("[]" * 200_001, "more than 200,000"),
        ('{"a": 1, "a": 2}', "twice"),
        ("1e400", "out of range"),
        ("-Infinity", "not JSON"),
        ("1" * 4_000, "4000 digits"),
        (str(2**128), "out of range"),
    ):
        with pytest.raises(ValueError, match=words):
            strict_json.parse(text.encode())
    assert strict_json.parse(str(2**127).encode()) == 2**127
    assert len(strict_json.shown("\x1b" * 1_000)) == 80
    assert strict_json.shown(10**5_000) == "a value of type int"
