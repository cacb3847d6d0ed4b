"""Payloads that are files: special ones, links, and large ones."""

import hashlib
import json
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.faults.commands import EVERY, READ_LOG, READ_STATE, SHOW_LOG
from tests.faults.payloads.base import NOBODY, TYPED, Payload, Place
from tests.forge import forge_rows, forge_values, read_settings
from trellis import checkpoint_format
from trellis.config.file import config_text

SPARSE_BYTES = 3 << 30
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


def kinds_of_files() -> Iterator[Payload]:
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
        READ_STATE | SHOW_LOG,
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
        READ_STATE | SHOW_LOG,
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


def links_to_write_through() -> Iterator[Payload]:
    """Names that some version has written to, as links to a file or a folder outside."""
    names = (
        "config.json.tmp",
        ".config.json.0123456789abcdef.tmp",
        ".metrics.jsonl.0123456789abcdef.tmp",
        "video.mp4",
        "policy.npz",
        "numpy_policy.py",
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
            exported = name.endswith(".npz") and what == "folder"
            yield Payload(
                f"{name} is a link to a {what}",
                "links: written",
                apply,
                frozenset(["export"]) if exported else NOBODY,
                (READ_STATE | SHOW_LOG) if later else NOBODY,
            )


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(SPARSE_BYTES)


def sizes() -> Iterator[Payload]:
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
