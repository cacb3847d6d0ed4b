"""Payloads in the settings and in the log of a run."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from tests.faults.commands import EVERY, READ_LOG, READ_STATE, SHOW_LOG
from tests.faults.payloads.base import NOBODY, TYPED, Payload, Place, RunsCode
from tests.forge import forge_config, forge_rows, forge_values


def config_content() -> Iterator[Payload]:
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
        lambda place: (place.run / "config.json").write_bytes(pickle.dumps(RunsCode(place.trap))),
        EVERY,
    )
    yield Payload(
        "settings of another run",
        "settings: not those of the checkpoint",
        lambda place: forge_config(place.run, in_checkpoint=False, estimation={"gamma": 0.5}),
        READ_STATE | {"improvement"},
    )
    yield Payload(
        "settings that are not valid in the checkpoint",
        "settings: not those of the checkpoint",
        lambda place: forge_values(place.saved, config={"env": 1}),
        READ_STATE,
    )


def log_content() -> Iterator[Payload]:
    kind = "log: forged rows"

    def rows(
        name: str,
        change: Callable[[list[dict]], Any],
        refused: frozenset[str] = NOBODY,
        **more: Any,
    ) -> Payload:
        return Payload(name, kind, lambda place: forge_rows(place.run, change), refused, **more)

    yield rows(
        "a text as the return",
        lambda rows: rows[1].update(episode_return_mean="high", eval_return_mean="high"),
        SHOW_LOG,
    )
    yield rows(
        "a return without episodes",
        lambda rows: rows[1].update(episodes=0, episode_return_mean=1.0),
        frozenset(["compare"]),
    )
    yield rows(
        "seconds as text", lambda rows: rows[0].update(seconds_sampling="1"), SHOW_LOG - {"compare"}
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
        lambda place: (place.run / "metrics.jsonl").write_bytes(pickle.dumps(RunsCode(place.trap))),
        frozenset(["plot", "compare"]),
        frozenset(["resume", "report"]),
    )
