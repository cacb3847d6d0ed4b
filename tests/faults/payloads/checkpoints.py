"""Payloads in a checkpoint: its files, its tensors, and what it says about spaces and policies."""

import json
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.commands import READ_STATE
from tests.faults.payloads.base import Payload, Place, RunsCode
from tests.forge import change_values, forge_arrays, forge_bytes, forge_values, read_settings
from trellis import checkpoint_format


def checkpoint_content() -> Iterator[Payload]:
    def file(name: str, kind: str, make: Callable[[Place], bytes]) -> Payload:
        return Payload(
            name,
            kind,
            lambda place: forge_bytes(place.saved, make(place)),
            warned=READ_STATE,
        )

    kind = "checkpoint: forged files"
    yield file("a pickle", "code: pickles", lambda place: pickle.dumps(RunsCode(place.trap)))
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
        lambda place: (place.saved / "values.json").write_bytes(pickle.dumps(RunsCode(place.trap))),
        warned=READ_STATE,
    )


def _header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def tensors() -> Iterator[Payload]:
    kind = "checkpoint: forged tensors"

    def tensor(
        name: str,
        change: Callable[[dict[str, np.ndarray]], dict[str, Any]],
        refused: frozenset[str] = READ_STATE,
    ) -> Payload:
        def apply(place: Place) -> None:
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
    yield tensor("an extreme state", lambda a: {"env__state": np.full((4, 4), 1e30)}, env)
    yield tensor("a time after the limit", lambda a: {"env__elapsed": np.full(4, 21)}, env)
    yield tensor("a negative time", lambda a: {"env__elapsed": np.full(4, -7)}, env)
    yield tensor("more state of the environments", lambda a: {"env__step": np.zeros((4, 2))}, env)
    yield tensor("less state of the environments", lambda a: {"env__seed": None}, env)


def kept_policies() -> Iterator[Payload]:
    """Payloads in the policy of an iteration, which has the format of a checkpoint."""
    refused = frozenset(["improvement"])

    def payload(name: str, apply: Callable[[Path], Any]) -> Payload:
        kind = "policies: forged files"
        return Payload(name, kind, lambda place: apply(place.run / "policies/000001"), refused)

    yield payload("a policy that is a link", lambda path: _link(path))
    yield payload("a policy of two bytes", lambda path: forge_bytes(path, b"{}"))
    yield payload(
        "a policy with NaN", lambda path: forge_arrays(path, theta=np.full(50, np.nan, np.float32))
    )
    yield payload(
        "a policy of another run",
        lambda path: forge_values(path, config={**read_settings(path.parents[1]), "seed": 5}),
    )
    yield payload("a policy without settings", lambda path: forge_values(path, config=None))


def _link(path: Path) -> None:
    shutil.move(path, path.with_name("moved"))
    path.symlink_to("moved")


def descriptions() -> Iterator[Payload]:
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
    # It can be exported: it is a box of four values, however deep.
    yield values("a deep space", READ_STATE - {"export"}, observation_space=deep)
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
