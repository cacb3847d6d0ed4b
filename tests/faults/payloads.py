"""Run folders that somebody made to do harm: what each has, and who must refuse it.

A payload is a function that changes a copy of a good run. `outside` is a folder whose content no
command may change, and `trap` a file that only malicious code would create.
"""

import json
import os
import pickle
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.commands import EVERY, NEED_ENV, READ_LOG, READ_STATE
from tests.forge import (
    change_values,
    forge_arrays,
    forge_bytes,
    forge_config,
    forge_rows,
    forge_values,
    newest,
    read_settings,
)
from trellis.config_file import config_text

SPARSE_BYTES = 3 << 30
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Place:
    """Where a payload acts."""

    run: Path
    """A copy of a good run."""
    outside: Path
    """A folder beside it, which must not change."""
    trap: Path
    """A file that is created if code from the payload runs."""

    @property
    def victim(self) -> Path:
        """A file outside of the run."""
        return self.outside / "victim"

    @property
    def saved(self) -> Path:
        """The newest checkpoint."""
        return newest(self.run)


@dataclass(frozen=True)
class Payload:
    """One malicious run folder."""

    name: str
    kind: str
    """Class of payloads that it belongs to."""
    apply: Callable[[Place], Any]
    refused: frozenset[str] = NOBODY
    """Commands that end with one line and exit code 2; the others succeed."""
    warned: frozenset[str] = NOBODY
    """Commands that succeed with a warning, such as one about an earlier checkpoint."""
    large: bool = False
    """Whether it tries to fill the memory."""


def payloads() -> Iterator[Payload]:
    """Yield all payloads."""
    yield from _modules()
    yield from _kinds_of_files()
    yield from _links_to_write_through()
    yield from _sizes()
    yield from _config_content()
    yield from _log_content()
    yield from _checkpoint_content()
    yield from _tensors()
    yield from _values()


def _trap_module(path: Path, trap: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"open({str(trap)!r}, 'w').close()\n")


def _modules() -> Iterator[Payload]:
    kind = "code: module of the environment"

    def module(name: str, env: str, *files: str) -> Payload:
        def apply(place: Place) -> None:
            for file in files:
                _trap_module(place.run.parent / file.format(run=place.run.name), place.trap)
            forge_config(place.run, env=env.format(run=place.run.name))

        return Payload(name, kind, apply, NEED_ENV)

    yield module("a module in the current folder", "payload:CartPole-v1", "payload.py")
    yield module("a module in the run", "{run}.payload:CartPole-v1", "{run}/payload.py")
    package = ("pack/__init__.py", "pack/inner.py")
    yield module("a module in a package", "pack.inner:CartPole-v1", *package)
    yield module("a module of the standard library", "this:CartPole-v1")
    yield module("a module of Gymnasium", "gymnasium.utils.play:CartPole-v1")
    yield module("a module of Trellis", "trellis.cli.doctor2:CartPole-v1")
    yield module("a relative module", "..payload:CartPole-v1", "payload.py")
    yield module("an empty module", ":CartPole-v1")
    yield module("two modules", "payload:other:CartPole-v1", "payload.py")
    yield module("a statement", "__import__('payload'):CartPole-v1", "payload.py")
    yield module("a registered entry point", "FaultyEntry-v0", "payload.py")

    def options(name: str, **values: Any) -> Payload:
        return Payload(
            name,
            "code: options of the environment",
            lambda place: forge_config(place.run, env_options=values),
            NEED_ENV,
        )

    yield options("a file of a model", xml_file="/dev/zero")
    yield options("a file in the home folder", xml_file="~/model.xml")
    yield options("a file in a list", desc=["SF", "../map"])
    yield options("too many workers", workers=10**6)
    yield options("another environment", env="payload:CartPole-v1")
    yield options("a name that is none", **{"a b; import os": 1})
    refused = "settings: options that the environment refuses"
    for name, values in {
        "an unknown option": {"payload": 1},
        "a time limit in words": {"max_episode_steps": "long"},
        "a negative time limit": {"max_episode_steps": -7},
        "workers as text": {"workers": "many"},
    }.items():
        yield Payload(
            name,
            refused,
            lambda place, values=values: forge_config(place.run, env_options=values),
            NEED_ENV,
        )
    yield Payload(
        "a callable",
        "code: options of the environment",
        lambda place: forge_config(place.run, env="callable:os.system"),
        NEED_ENV | {"TRPO.load"},
    )


TYPED = frozenset(["train --config"])
"""Commands whose user types the path of the file, which may be a link, and may edit the file."""
FILES = {
    "config.json": EVERY,
    "metrics.jsonl": READ_LOG,
    "checkpoints/000002/values.json": NOBODY,
    "checkpoints/000002/arrays.safetensors": NOBODY,
}
"""Files of a run, and who refuses a run in which one is of another kind."""


def _replace(path: Path, make: Callable[[Path], Any]) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def _link_outside(place: Place, name: str) -> None:
    path = place.run / name
    target = place.outside / path.name
    shutil.move(path, target)
    path.symlink_to(target)


def _hard_link(place: Place, name: str) -> None:
    path = place.run / name
    os.link(path, place.outside / path.name)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # The name of a socket must be short.
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _kinds_of_files() -> Iterator[Payload]:
    ways: dict[str, Callable[[Path], Any]] = {
        "a named pipe": os.mkfifo,
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "a link to a pipe": lambda path: path.symlink_to("/proc/self/fd/0"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a link to nothing": lambda path: path.symlink_to("nothing"),
        "a socket": _socket,
        "a folder": lambda path: path.mkdir(),
    }
    for name, refused in FILES.items():
        warned = READ_STATE if not refused else NOBODY
        for what, make in ways.items():
            yield Payload(
                f"{name} is {what}",
                "hang: special files",
                lambda place, name=name, make=make: _replace(place.run / name, make),
                refused,
                warned,
            )
        yield Payload(
            f"{name} is a link to a file outside",
            "links: read",
            lambda place, name=name: _link_outside(place, name),
            refused - TYPED,
            warned,
        )
        yield Payload(
            f"{name} is a hard link",
            "links: read",
            lambda place, name=name: _hard_link(place, name),
        )
    folder = "links: folders"
    yield Payload(
        "checkpoints is a link",
        folder,
        lambda place: _link_outside(place, "checkpoints"),
        READ_STATE | {"plot", "compare"},
    )
    yield Payload(
        "the newest checkpoint is a link",
        folder,
        lambda place: _link_outside(place, "checkpoints/000002"),
        NOBODY,
        READ_STATE,
    )
    yield Payload(
        "checkpoints is a named pipe",
        "hang: special files",
        lambda place: _replace(place.run / "checkpoints", os.mkfifo),
        READ_STATE | {"plot", "compare"},
    )
    yield Payload(
        "video.mp4 is a folder",
        "hang: special files",
        lambda place: (place.run / "video.mp4").mkdir(),
        frozenset(["record"]),
    )
    yield Payload(
        "tensorboard is a link",
        folder,
        lambda place: (
            shutil.rmtree(place.run / "tensorboard", ignore_errors=True),
            (place.run / "tensorboard").symlink_to(place.outside),
        ),
        frozenset(["resume"]),
    )


def _links_to_write_through() -> Iterator[Payload]:
    """Names that some version has written to, as links to a file or a folder outside."""
    names = (
        "config.json.tmp",
        ".config.json.0123456789abcdef.tmp",
        ".metrics.jsonl.0123456789abcdef.tmp",
        "video.mp4",
        ".video.partial.mp4",
        "checkpoints/.tmp-0123456789abcdef",
        "checkpoints/.tmp-gone-000001",
        "checkpoints/.old-000002",
        "checkpoints/000003",
        "checkpoints/000004",
        "tensorboard/events",
    )
    for name in names:
        for what in ("file", "folder"):

            def apply(place: Place, name: str = name, what: str = what) -> None:
                path = place.run / name
                path.parent.mkdir(exist_ok=True)
                path.symlink_to(place.victim if what == "file" else place.outside)

            is_checkpoint = name.endswith(("000003", "000004", "000002"))
            later = is_checkpoint and not name.endswith("000002")
            yield Payload(
                f"{name} is a link to a {what}",
                "links: written",
                apply,
                NOBODY,
                (READ_STATE | {"plot", "compare"}) if later else NOBODY,
            )


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(SPARSE_BYTES)


def _sizes() -> Iterator[Payload]:
    kind = "memory: large files"
    for name, refused in FILES.items():
        yield Payload(
            f"{name} is a sparse file of 3 GB",
            kind,
            lambda place, name=name: _sparse(place.run / name),
            refused,
            READ_STATE if not refused else NOBODY,
            large=True,
        )
    yield Payload(
        "settings of 2 MB",
        kind,
        lambda place: (place.run / "config.json").write_text(
            config_text({**read_settings(place.run), "preset": "x" * (2 << 20)})
        ),
        EVERY,
    )
    yield Payload(
        "a line of 70 kB in the log",
        kind,
        lambda place: forge_rows(place.run, lambda rows: rows[0].update(x="y" * 70_000)),
        READ_LOG,
    )
    yield Payload(
        "2,000 empty lines in the log",
        kind,
        lambda place: (place.run / "metrics.jsonl").write_bytes(b"\n" * 2_000),
        READ_LOG,
    )
    yield Payload(
        "a gigabyte of short lines in the log",
        kind,
        lambda place: _many_lines(place.run / "metrics.jsonl"),
        READ_LOG,
        large=True,
    )
    yield Payload(
        "an array of 1 GB under a name of its own",
        kind,
        lambda place: _huge_array(place, "env/other"),
        warned=frozenset(["resume", "TRPO.load"]),
        large=True,
    )
    yield Payload(
        "parameters of 1 GB",
        kind,
        lambda place: _huge_array(place, "theta"),
        warned=READ_STATE,
        large=True,
    )


def _many_lines(path: Path) -> None:
    with open(path, "wb") as file:
        for _ in range(64):
            file.write(b"{}\n" * (1 << 22))


def _huge_array(place: Place, name: str) -> None:
    """Arrays of a safetensors file, of which one is 1 GB of zeros."""
    import hashlib

    import safetensors.numpy

    from trellis import checkpoint_format

    path = place.saved
    arrays = {k: v for k, v in checkpoint_format.load(path).arrays.items() if k != name}
    plain = safetensors.numpy.save(arrays)
    length = struct.unpack("<Q", plain[:8])[0]
    header, body = json.loads(plain[8 : 8 + length]), plain[8 + length :]
    size = 1 << 30
    header[name] = {
        "dtype": "F32",
        "shape": [size // 4],
        "data_offsets": [len(body), len(body) + size],
    }
    text = json.dumps(header).encode()
    start = struct.pack("<Q", len(text)) + text + body
    digest = hashlib.sha256(start)
    with open(path / "arrays.safetensors", "wb") as file:
        file.write(start)
        file.truncate(len(start) + size)
    zeros = bytes(1 << 24)
    for _ in range(size >> 24):
        digest.update(zeros)
    forge_values(path, arrays_sha256=digest.hexdigest(), arrays_bytes=len(start) + size)


class _RunsCode:
    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)


def _config_content() -> Iterator[Payload]:
    def text(
        name: str,
        kind: str,
        change: Callable[[str], str | bytes],
        warned: frozenset[str] = NOBODY,
    ) -> Payload:
        def apply(place: Place) -> None:
            path = place.run / "config.json"
            new = change(path.read_text())
            path.write_bytes(new if isinstance(new, bytes) else new.encode())

        return Payload(name, kind, apply, EVERY - warned, warned)

    damage, numbers = "settings: damaged", "settings: out of range"
    yield text("empty", damage, lambda old: "")
    yield text("not text", damage, lambda old: b"\xff\xfe" + old.encode())
    yield text("a list", damage, lambda old: f"[{old}]")
    yield text("null", damage, lambda old: "null")
    yield text("100,000 brackets", damage, lambda old: "[" * 100_000)
    yield text("deep objects", damage, lambda old: '{"a":' * 900 + "1" + "}" * 900)
    yield text("a name twice", damage, lambda old: old.replace("{", '{"env": "x",', 1))
    yield text("NaN", damage, lambda old: old.replace("0.99", "NaN"))
    yield text("an edited number", damage, lambda old: old.replace("0.99", "0.98"), TYPED)
    checksum = 'sha256": "'
    yield text(
        "an edited checksum", damage, lambda old: old.replace(checksum, checksum + "0"), TYPED
    )
    yield text("4,000 digits", numbers, lambda old: old.replace("128", "1" * 4_000))
    yield text("5,000 digits", numbers, lambda old: old.replace("128", "1" * 5_000))
    yield text("1e999", numbers, lambda old: old.replace("0.99", "1e999"))

    def setting(name: str, kind: str, **changes: Any) -> Payload:
        return Payload(name, kind, lambda place: forge_config(place.run, **changes), EVERY)

    yield setting("20 digits", numbers, total_steps=10**20)
    yield setting("a billion environments", numbers, sampling={"num_envs": 10**9})
    yield setting("endless iterations", numbers, sampling={"steps_per_env": 10**15})
    yield setting("a million threads", numbers, threads=10**6)
    yield setting("a billion episodes", numbers, eval_episodes=10**9)
    yield setting("a billion units", numbers, policy={"hidden": [10**9]})
    yield setting("a thousand layers", numbers, policy={"hidden": [1] * 1_000})
    yield setting("a negative unit", numbers, seed=-1)
    kinds = "settings: wrong type"
    yield setting("a text as a number", kinds, total_steps="many")
    yield setting("a list as settings", kinds, step=[1, 2])
    yield setting("an unknown setting", kinds, __class__="os.system")
    yield setting("a control character in a name", kinds, **{"\x1b[2J\nname": 1})
    yield setting("a control character in the environment", kinds, env="\x1b[2J\nCartPole-v1")
    yield setting("a long environment", kinds, env="x" * 5_000)
    yield setting("no environment", kinds, env="")
    yield setting("another version", kinds, schema_version=99)
    yield Payload(
        "a pickle",
        "code: pickles",
        lambda place: (place.run / "config.json").write_bytes(pickle.dumps(_RunsCode(place.trap))),
        EVERY,
    )
    yield Payload(
        "settings of another run",
        "settings: not those of the checkpoint",
        lambda place: forge_config(place.run, in_checkpoint=False, estimation={"gamma": 0.5}),
        READ_STATE,
    )
    yield Payload(
        "settings that are not valid in the checkpoint",
        "settings: not those of the checkpoint",
        lambda place: forge_values(place.saved, config={"env": 1}),
        READ_STATE,
    )


def _log_content() -> Iterator[Payload]:
    kind = "log: forged rows"

    def rows(
        name: str,
        change: Callable[[list[dict]], Any],
        refused: frozenset[str] = NOBODY,
        **more: Any,
    ) -> Payload:
        return Payload(name, kind, lambda place: forge_rows(place.run, change), refused, **more)

    figures = frozenset(["plot", "compare"])
    yield rows(
        "a text as the return",
        lambda rows: rows[1].update(episode_return_mean="high", eval_return_mean="high"),
        figures,
    )
    yield rows(
        "a return without episodes",
        lambda rows: rows[1].update(episodes=0, episode_return_mean=1.0),
        frozenset(["compare"]),
    )
    yield rows(
        "seconds as text", lambda rows: rows[0].update(seconds_sampling="1"), frozenset(["plot"])
    )
    yield rows("no steps", lambda rows: rows[0].pop("steps"), warned=READ_LOG)
    yield rows("no iteration", lambda rows: rows[0].pop("iteration"), warned=READ_LOG)
    yield rows("a negative iteration", lambda rows: rows[0].update(iteration=-1), warned=READ_LOG)
    yield rows(
        "steps of 4,000 digits",
        lambda rows: rows[0].update(steps=int("1" * 4_000)),
        warned=READ_LOG,
    )
    yield rows("a list in a row", lambda rows: rows[0].update(kl=[1]), warned=READ_LOG)
    yield rows("a row twice", lambda rows: rows.insert(1, rows[0]), warned=READ_LOG)
    yield rows("a row is missing", lambda rows: rows.pop(0), warned=READ_LOG)
    yield Payload(
        "a pickle",
        "code: pickles",
        lambda place: (place.run / "metrics.jsonl").write_bytes(
            pickle.dumps(_RunsCode(place.trap))
        ),
        figures,
        frozenset(["resume"]),
    )


def _checkpoint_content() -> Iterator[Payload]:
    def file(name: str, kind: str, make: Callable[[Place], bytes]) -> Payload:
        return Payload(
            name,
            kind,
            lambda place: forge_bytes(place.saved, make(place)),
            warned=READ_STATE,
        )

    kind = "checkpoint: forged files"
    yield file("a pickle", "code: pickles", lambda place: pickle.dumps(_RunsCode(place.trap)))
    yield file("an empty file", kind, lambda place: b"")
    yield file("a header of 2^63 bytes", kind, lambda place: struct.pack("<Q", 2**63) + b"{}")
    yield file("deep JSON as header", kind, lambda place: _header(b"[" * 50_000))
    yield file("a list as header", kind, lambda place: _header(b"[]"))
    for name, about in {
        "a shape of 2^39": {"dtype": "F32", "shape": [2**39], "data_offsets": [0, 2**41]},
        "a negative shape": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        "a shape of fractions": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]},
        "an unknown type": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]},
        "no shape": {"dtype": "F32", "data_offsets": [0, 4]},
        "offsets outside": {"dtype": "F32", "shape": [1], "data_offsets": [100, 104]},
        "offsets backwards": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
    }.items():
        header = json.dumps({"theta": about}).encode()
        yield file(name, kind, lambda place, header=header: _header(header) + b"1234")
    twice = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    overlap = json.dumps({"theta": twice, "best_theta": twice}).encode()
    yield file("arrays that overlap", kind, lambda place: _header(overlap) + b"1234")

    def envelope(name: str, **changes: Any) -> Payload:
        return Payload(
            name,
            "checkpoint: forged values",
            lambda place: forge_values(place.saved, **changes),
            warned=READ_STATE,
        )

    yield envelope("another iteration", iteration=7)
    yield envelope("a text as iteration", iteration="2")
    yield envelope("a negative iteration", iteration=-2)
    yield envelope("an iteration of 30 digits", iteration=10**30)
    yield envelope("a list as values", values=[1])
    yield envelope("an unknown float", values={"$float": "os"})
    yield envelope("versions that clear the screen", versions={"jax": "\x1b[2J"})
    yield envelope("a list as versions", versions=[])
    yield envelope("a text as settings", config="{}")
    yield envelope("another version", schema_version=99)
    yield Payload(
        "a pickle as values",
        "code: pickles",
        lambda place: (place.saved / "values.json").write_bytes(
            pickle.dumps(_RunsCode(place.trap))
        ),
        warned=READ_STATE,
    )


def _header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _tensors() -> Iterator[Payload]:
    kind = "checkpoint: forged tensors"

    def tensor(
        name: str,
        change: Callable[[dict[str, np.ndarray]], dict[str, Any]],
        refused: frozenset[str] = READ_STATE,
    ) -> Payload:
        def apply(place: Place) -> None:
            from trellis import checkpoint_format

            arrays = checkpoint_format.load(place.saved).arrays
            forge_arrays(place.saved, **change(arrays))

        return Payload(name, kind, apply, refused)

    yield tensor("theta of int8", lambda a: {"theta": a["theta"].astype(np.int8)})
    yield tensor("theta of float16", lambda a: {"theta": a["theta"].astype(np.float16)})
    yield tensor("theta of booleans", lambda a: {"theta": a["theta"] > 0})
    yield tensor("theta as a matrix", lambda a: {"theta": a["theta"][None]})
    yield tensor("theta too short", lambda a: {"theta": a["theta"][:-1]})
    yield tensor("theta too long", lambda a: {"theta": np.append(a["theta"], a["theta"])})
    yield tensor("theta with NaN", lambda a: {"theta": a["theta"] * np.float32(np.nan)})
    yield tensor("no theta", lambda a: {"theta": None})
    yield tensor("an unknown array", lambda a: {"payload": np.zeros(3)})
    yield tensor("a name with a path", lambda a: {"env__..__x": np.zeros((4, 3))})
    yield tensor(
        "negative variance",
        lambda a: {"observation_moments__squares": -a["observation_moments/squares"]},
    )
    yield tensor(
        "another shape of variance", lambda a: {"observation_moments__squares": np.ones(5)}
    )
    yield tensor("a scalar mean", lambda a: {"observation_moments__mean": np.zeros(())})
    yield tensor("an infinite mean", lambda a: {"observation_moments__mean": np.full(4, np.inf)})
    yield tensor("a negative count", lambda a: {"observation_moments__count": np.array(-5.0)})
    yield tensor("a count that is NaN", lambda a: {"observation_moments__count": np.array(np.nan)})
    yield tensor("no moments", lambda a: {"observation_moments__count": None})
    yield tensor(
        "another shape of the best theta", lambda a: {"best_theta": np.zeros(3, np.float32)}
    )
    yield tensor("the best theta without moments", lambda a: {"best_moments__mean": None})
    whole = frozenset(["resume", "TRPO.load"])
    yield tensor("another critic", lambda a: {"critic__weights": np.zeros(3, np.float32)}, whole)
    yield tensor("no critic", lambda a: {"critic__weights": None}, whole)
    yield tensor(
        "a critic with NaN",
        lambda a: {"critic__weights": a["critic/weights"] * np.float32(np.nan)},
        whole,
    )
    yield tensor(
        "negative second moments of Adam",
        lambda a: {"critic__adam_nu": a["critic/adam_nu"] - np.float32(1)},
        whole,
    )
    yield tensor(
        "a negative number of Adam steps",
        lambda a: {"critic__adam_count": np.array(-1, np.int32)},
        whole,
    )
    yield tensor("other discounted returns", lambda a: {"discounted_return": np.zeros(5)}, whole)
    yield tensor(
        "discounted returns with NaN", lambda a: {"discounted_return": np.full(4, np.nan)}, whole
    )
    yield tensor(
        "other observations", lambda a: {"path__observation": np.zeros((4, 9), np.float32)}, whole
    )
    yield tensor("a negative age", lambda a: {"path__age": np.full(4, -1)}, whole)
    yield tensor("half a path", lambda a: {"path__age": None}, whole)
    yield tensor("part of a search", lambda a: {"search__mean": np.zeros(3)}, whole)
    yield tensor(
        "the state of other environments", lambda a: {"env__state": np.zeros((9, 4))}, whole
    )
    env = frozenset(["resume"])
    yield tensor(
        "another state of the environments", lambda a: {"env__state": np.zeros((4, 9))}, env
    )
    yield tensor(
        "a state of another type", lambda a: {"env__state": np.zeros((4, 4), np.int8)}, env
    )
    yield tensor("a state of NaN", lambda a: {"env__state": np.full((4, 4), np.nan)}, env)
    yield tensor("an infinite state", lambda a: {"env__state": np.full((4, 4), np.inf)}, env)
    yield tensor("a negative time", lambda a: {"env__elapsed": np.full(4, -7)}, env)
    yield tensor("more state of the environments", lambda a: {"env__step": np.zeros((4, 2))}, env)
    yield tensor("less state of the environments", lambda a: {"env__seed": None}, env)


def _values() -> Iterator[Payload]:
    kind = "checkpoint: forged descriptions"

    def values(name: str, refused: frozenset[str] = READ_STATE, **changes: Any) -> Payload:
        return Payload(
            name,
            kind,
            lambda place: change_values(place.saved, lambda values: values.update(changes)),
            refused,
        )

    def box(shape: Any, **more: Any) -> dict[str, Any]:
        return {"box": shape, "low": -1, "high": 1, "dtype": "float32", **more}

    yield values("a huge box", observation_space=box([2**20, 2**20]))
    yield values("a box of 2^64 values", observation_space=box([2**32, 2**32]))
    yield values("a box with 40 axes", observation_space=box([1] * 40))
    yield values("a negative box", observation_space=box([-4]))
    yield values("a box of objects", observation_space=box([4], dtype="object"))
    yield values("a box of bytes out of range", observation_space=box([4], dtype="uint8"))
    yield values("a huge binary action", action_space={"multi_binary": 10**12})
    yield values("a huge discrete action", action_space={"discrete": 10**18, "start": 0})
    yield values("a discrete action of 30 digits", action_space={"discrete": 10**30, "start": 0})
    yield values("no actions", action_space={"discrete": 0, "start": 0})
    yield values("a list as space", observation_space=["box"])
    yield values("a text as space", observation_space="Box")
    deep: Any = box([4])
    for _ in range(12):
        deep = {"tuple": [deep]}
    yield values("a deep space", observation_space=deep)
    brackets = {"observation space": "(" * 50_000, "action space": "Discrete(2)"}
    yield values("a text of brackets", observation_space=None, action_space=None, spaces=brackets)
    call = {
        "observation space": "Discrete(__import__('os').getpid())",
        "action space": "Discrete(2)",
    }
    yield values("a call as space", observation_space=None, action_space=None, spaces=call)
    yield values("no spaces", observation_space=None, action_space=None, spaces=None)
    yield values("another policy", policy="MLP 4×1")
    yield values("a list as policy", policy=[1])
    yield values("negative steps", steps=-1)
    yield values("steps as text", steps="128")
    yield values("steps of 30 digits", steps=10**30)
    yield values("an iteration that is true", iteration=True)
    whole = frozenset(["resume", "TRPO.load"])
    yield values("the best return as text", whole, best_return="high")
    yield values("a best return that is NaN", whole, best_return={"$float": "nan"})


PAYLOADS = list(payloads())
