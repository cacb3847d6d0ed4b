"""Checkpoints under attack: killed writers, damaged files, full disks, code in disguise."""

import errno
import hashlib
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from trellis import checkpoint_format
from trellis.checkpoint_format import CheckpointError, CheckpointWarning, load, load_latest
from trellis.runs import checkpoint
from trellis.runs.checkpoint import save

RNG = np.random.default_rng(0)


def content(iteration: int) -> tuple[dict, dict]:
    """A state that can be told from every other iteration's, in arrays and in values."""
    rng = np.random.default_rng(iteration)
    arrays = {"theta": rng.normal(size=7).astype(np.float32), "count": np.array(iteration)}
    return arrays, {"iteration": iteration, "best": float(rng.normal())}


def save_content(folder: Path, iteration: int, keep: int = 10) -> Path:
    return save(folder, iteration, *content(iteration), keep=keep)


def is_content(loaded: checkpoint.Checkpoint, iteration: int) -> bool:
    arrays, values = content(iteration)
    same = loaded.arrays.keys() == arrays.keys() and all(
        loaded.arrays[k].dtype == a.dtype and loaded.arrays[k].tobytes() == a.tobytes()
        for k, a in arrays.items()
    )
    return same and loaded.values == values and loaded.iteration == iteration


def test_what_goes_in_comes_out_bit_for_bit(tmp_path):
    arrays = {
        "theta": RNG.normal(size=(3, 4)).astype(np.float32),
        "nan": np.array([np.nan, -0.0, np.inf]),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.int64),
        "flags": np.array([True, False]),
        "bytes": RNG.integers(256, size=50).astype(np.uint8),
        "strided": np.arange(12).reshape(3, 4).T[::2],
        "big-endian": np.arange(5, dtype=">i4"),
    }
    values = {
        "best": -math.inf,
        "tenth": 0.1,
        "huge": 2**127 + 1,
        "nested": {"list": [1, None, "ü", True, {"a": math.inf}], "tuple": (1, 2)},
        "numpy": np.float64(1 / 3),
    }
    loaded = load(save(tmp_path, 12, arrays, values, keep=1))
    assert loaded.iteration == 12
    assert loaded.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        got = loaded.arrays[name]
        assert got.shape == array.shape
        assert got.dtype == array.dtype.newbyteorder("=")
        assert got.tobytes() == array.astype(got.dtype).tobytes(), name
        assert got.flags.writeable
    expected = {**values, "nested": {"list": values["nested"]["list"], "tuple": [1, 2]}}
    assert loaded.values == expected
    assert math.isnan(load(save(tmp_path, 13, {}, {"x": math.nan}, keep=1)).values["x"])


def test_values_are_strict_json(tmp_path):
    path = save(tmp_path, 1, {}, {"a": math.nan, "b": -math.inf}, keep=1)

    def refuse(word):
        pytest.fail(f"{word} in {path}")

    written = json.loads((path / "values.json").read_text(), parse_constant=refuse)
    assert written["schema_version"] == checkpoint_format.SCHEMA_VERSION
    assert {"trellis-rl", "jax", "numpy"} <= written["versions"].keys()


@pytest.mark.parametrize(
    ("arrays", "values", "name"),
    [
        ({"held": np.array([None])}, {}, "held"),
        ({"held": np.array(["word"])}, {}, "held"),
        ({}, {"held": {1: 2}}, "values.held"),
        ({}, {"held": [object()]}, r"values.held\[0\]"),
        ({}, {"held": {"$float": "nan"}}, "values.held"),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(tmp_path, arrays, values, name):
    with pytest.raises(TypeError, match=name):
        save(tmp_path, 1, arrays, values, keep=1)
    assert not list(tmp_path.iterdir())


def test_the_last_few_stay(tmp_path):
    for iteration in range(1, 8):
        save_content(tmp_path, iteration, keep=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000005", "000006", "000007"]
    assert is_content(load_latest(tmp_path), 7)


def test_numbers_beyond_six_digits_are_ordered_as_numbers(tmp_path):
    for iteration in (999_999, 1_000_000):
        save_content(tmp_path, iteration)
    assert is_content(load_latest(tmp_path), 1_000_000)


def test_saving_again_replaces(tmp_path):
    save(tmp_path, 3, {}, {"which": "first"}, keep=1)
    save(tmp_path, 3, {}, {"which": "second"}, keep=1)
    assert load_latest(tmp_path).values == {"which": "second"}
    assert [p.name for p in tmp_path.iterdir()] == ["000003"]


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path, monkeypatch):
    save_content(tmp_path, 3)
    real = os.replace

    def killed(source, target, **folders):
        if target == "000003":
            raise KeyboardInterrupt
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_content(tmp_path, 3)
    monkeypatch.undo()
    assert is_content(load_latest(tmp_path), 3)
    save_content(tmp_path, 3)
    assert [p.name for p in tmp_path.iterdir()] == ["000003"]


def test_stale_temporaries_go(tmp_path):
    (tmp_path / ".tmp-abc").mkdir()
    (tmp_path / ".tmp-abc" / "arrays.safetensors").write_bytes(b"half")
    save_content(tmp_path, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]


@pytest.mark.parametrize(
    ("function", "call"), [("mkdir", 2), ("open", 6), ("fsync", 1), ("replace", 1)]
)
def test_a_folder_that_is_removed_while_saving_is_made_again(tmp_path, monkeypatch, function, call):
    folder = tmp_path / "checkpoints"
    save_content(folder, 1)
    real, calls = getattr(os, function), []

    def remove_first(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            shutil.rmtree(folder)
        return real(*args, **kwargs)

    monkeypatch.setattr(os, function, remove_first)
    save_content(folder, 2)
    monkeypatch.undo()
    assert [path.name for path in folder.iterdir()] == ["000002"], "the moment was reached"
    assert is_content(load_latest(folder), 2)


def test_a_run_that_fell_back_gives_up_the_future_it_had(tmp_path):
    for iteration in (1, 2, 3):
        save_content(tmp_path, iteration)
    (tmp_path / "000003" / "values.json").unlink()
    with pytest.warns(CheckpointWarning, match="000003.*Loading .*000002"):
        assert load_latest(tmp_path).iteration == 2
    # With keep=1 the damaged one would otherwise be all that is left.
    save(tmp_path, 2, {}, {"again": True}, keep=1)
    assert load_latest(tmp_path).values == {"again": True}


def damage(folder: Path, rng: np.random.Generator) -> str:
    path = folder / ("arrays.safetensors", "values.json")[rng.integers(2)]
    data = bytearray(path.read_bytes())
    match rng.integers(4):
        case 0:
            path.write_bytes(data[: rng.integers(len(data))])
            return "cut short"
        case 1:
            path.unlink()
            return "missing"
        case 2:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        case _:
            for _ in range(rng.integers(2, 20)):
                data[rng.integers(len(data))] = rng.integers(256)
    path.write_bytes(data)
    return "flipped"


def test_200_damaged_checkpoints_never_load_wrong(tmp_path):
    outcomes = {"cut short": 0, "missing": 0, "flipped": 0, "unharmed": 0}
    for iteration in (1, 2):
        save_content(tmp_path / "good", iteration)
    for trial in range(200):
        folder = tmp_path / str(trial)
        shutil.copytree(tmp_path / "good", folder)
        kind = damage(folder / "000002", np.random.default_rng(trial))
        try:
            loaded = load(folder / "000002")
        except CheckpointError:
            outcomes[kind] += 1
            with pytest.warns(CheckpointWarning, match="000002"):
                assert is_content(load_latest(folder), 1)
        else:  # White space can be flipped to other white space: then nothing has changed.
            assert is_content(loaded, 2)
            outcomes["unharmed"] += 1
    assert min(outcomes[k] for k in ("cut short", "missing", "flipped")) > 30
    assert outcomes["unharmed"] < 10


def test_none_good_says_what_is_wrong_with_each(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        load_latest(tmp_path / "nowhere")
    for iteration in (1, 2):
        (save_content(tmp_path, iteration) / "arrays.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"000002.*damaged.*000001.*damaged"):
        load_latest(tmp_path)


class RunsCode:
    def __reduce__(self):
        return os.mkdir, (os.environ["TRELLIS_TEST_TRAP"],)


def forge(path: Path, **changes) -> None:
    """Rewrites values.json with a digest that fits: what an attacker would do."""
    envelope = {**json.loads((path / "values.json").read_text()), **changes}
    del envelope["sha256"]
    if "arrays_sha256" in changes:
        envelope["arrays_bytes"] = (path / "arrays.safetensors").stat().st_size
    envelope["sha256"] = checkpoint_format.digest(envelope)
    (path / "values.json").write_text(json.dumps(envelope))


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    trap = tmp_path / "trap"
    monkeypatch.setenv("TRELLIS_TEST_TRAP", str(trap))
    payload = pickle.dumps(RunsCode())
    path = save_content(tmp_path / "run", 1)
    (path / "arrays.safetensors").write_bytes(payload)
    forge(path, arrays_sha256=hashlib.sha256(payload).hexdigest())
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load(path)
    (path / "values.json").write_bytes(payload)
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)
    assert not trap.exists()
    pickle.loads(payload)  # The trap itself works.
    assert trap.exists()


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", "[" * 100_000, '{"schema_version": NaN}', "1" * 5000, "\x00"]
)
def test_json_that_is_not_a_checkpoint_is_refused(tmp_path, text):
    path = save_content(tmp_path, 1)
    (path / "values.json").write_text(text)
    with pytest.raises(CheckpointError, match="000001"):
        load(path)


def test_another_schema_is_told_apart_from_damage(tmp_path):
    path = save_content(tmp_path, 1)
    forge(path, schema_version=99)
    with pytest.raises(CheckpointError, match="schema version 99"):
        load(path)


def test_versions_are_compared_in_words(tmp_path):
    path = save_content(tmp_path, 1)
    assert checkpoint.version_differences(load(path)) == []
    forge(path, versions={**checkpoint.installed_versions(), "jax": "0.0.1"})
    here = checkpoint.installed_versions()["jax"]
    assert checkpoint.version_differences(load(path)) == [f"jax 0.0.1, here {here}"]


def test_versions_are_read_without_the_arrays(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoint_format.read_versions(tmp_path)
    forge(save_content(tmp_path, 1), versions={"jax": "0.0.1"})
    newest = save_content(tmp_path, 2)
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    assert checkpoint_format.read_versions(tmp_path) == checkpoint.installed_versions()
    (newest / "values.json").write_bytes(b"damaged")
    assert checkpoint_format.read_versions(tmp_path) == {"jax": "0.0.1"}
    (tmp_path / "000001" / "values.json").unlink()
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        checkpoint_format.read_versions(tmp_path)


@pytest.mark.parametrize("file_number", [1, 2])
def test_no_space_is_a_clear_error_and_loses_nothing(tmp_path, monkeypatch, file_number):
    save_content(tmp_path, 1)
    real, written = checkpoint.write_and_sync, 0

    def full(at, name, data):
        nonlocal written
        written += 1
        real(at, name, data[: len(data) // 2])
        if written == file_number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.unlink(name, dir_fd=at)
        real(at, name, data)

    monkeypatch.setattr(checkpoint, "write_and_sync", full)
    with pytest.raises(CheckpointError, match=r"no space left .* iteration 2 .*free some space"):
        save_content(tmp_path, 2)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]
    assert is_content(load_latest(tmp_path), 1)
    save_content(tmp_path, 2)
    assert is_content(load_latest(tmp_path), 2)


def test_a_disk_that_is_really_full(tmp_path):
    """A file system of 256 KiB, in a namespace of its own, where the kernel grants one."""
    code = CHILD_HEAD + (
        "import subprocess\n"
        "if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k', 'x', sys.argv[1]]"
        ", stderr=subprocess.DEVNULL).returncode: sys.exit(77)\n"
        "folder = Path(sys.argv[1]) / 'checkpoints'\n"
        "checkpoint.save(folder, 1, {'theta': np.ones(1000)}, {}, keep=3)\n"
        "try: checkpoint.save(folder, 2, {'theta': np.ones(100_000)}, {}, keep=3)\n"
        "except checkpoint_format.CheckpointError as error: print(error)\n"
        "latest = checkpoint_format.load_latest(folder)\n"
        "print([p.name for p in folder.iterdir()], latest.iteration)\n"
    )
    try:
        done = subprocess.run(
            ["unshare", "-rm", sys.executable, "-c", code, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("no space left to write the checkpoint of iteration 2")
    assert second == "['000001'] 1"


CHILD_HEAD = """
import sys
from pathlib import Path
import numpy as np
from trellis import checkpoint_format
from trellis.runs import checkpoint
"""
CHILD_WRITES = (
    CHILD_HEAD
    + """
folder, iteration = Path(sys.argv[1]), int(sys.argv[2])
while True:
    iteration += 1
    arrays = {"theta": np.full(20_000, iteration, np.float32), "x": np.arange(iteration % 7)}
    checkpoint.save(folder, iteration, arrays, {"of": iteration}, keep=2)
    print(iteration, flush=True)
"""
)


def kill_while_writing(folder: Path, kills: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    last = 0
    for _ in range(kills):
        command = [sys.executable, "-c", CHILD_WRITES, str(folder), str(last)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        announced = int(child.stdout.readline())
        time.sleep(rng.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        announced = max([announced, *map(int, child.stdout.read().split("\n")[:-1])])
        child.wait()
        child.stdout.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Not even a damaged one that is passed over.
            loaded = load_latest(folder)
        # What was announced is there, or the next, whose announcement the kill forestalled.
        assert loaded.iteration in (announced, announced + 1)
        assert loaded.values == {"of": loaded.iteration}
        assert np.all(loaded.arrays["theta"] == loaded.iteration)
        assert len(loaded.arrays["x"]) == loaded.iteration % 7
        assert len([p for p in folder.iterdir() if p.name.isdigit()]) <= 3
        last = loaded.iteration


def test_killed_at_random_moments(tmp_path):
    kill_while_writing(tmp_path, kills=6, seed=0)


@pytest.mark.slow
def test_killed_at_100_random_moments(tmp_path):
    kill_while_writing(tmp_path, kills=100, seed=1)
