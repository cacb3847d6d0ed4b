"""Payloads that name a module or a file for the environment."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.commands import NEED_ENV, READ_OPTIONS
from tests.faults.payloads.base import Payload, Place
from tests.forge import forge_config


def _trap_module(path: Path, trap: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"open({str(trap)!r}, 'w').close()\n")


def modules() -> Iterator[Payload]:
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
            READ_OPTIONS,
        )

    yield options("a file of a model", xml_file="/dev/zero")
    yield options("a file in the home folder", xml_file="~/model.xml")
    yield options("a file in a list", desc=["SF", "../map"])
    yield options("too many workers", workers=10**6)
    yield options("many workers", workers=1000)
    yield options("a large map", desc=["S" + "F" * 997 + "G"] * 500)
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
            READ_OPTIONS,
        )
    yield Payload(
        "a callable",
        "code: options of the environment",
        lambda place: forge_config(place.run, env="callable:os.system"),
        NEED_ENV | {"TRPO.load"},
    )
