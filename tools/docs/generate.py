"""Write the generated pages of docs/reference, as `make docs-pages` does.

Settings come from the dataclasses in `trellis.config`, options from the help of each command. The
pages are part of the repository, and a test checks that they are current.
"""

import argparse
import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import os
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from trellis import config, presets
from trellis.cli import main, reproduce
from trellis.cli.train_options import ALIASES

ROOT = Path(__file__).resolve().parents[2]
HELP_WIDTH = 80
CHOICES = "one of "
"""Start of a rule that lists the values of a setting."""
LARGE = 10_000
"""Numbers from here on are written with commas."""
NOTICE = "<!-- Written by `make docs-pages`; do not edit. -->"


def pages() -> dict[Path, str]:
    """Return the text of each generated page by its path."""
    folder = Path("docs/reference")
    return {folder / "settings.md": settings_page(), folder / "command-line.md": command_page()}


def settings_page() -> str:
    """Return the page with every setting: name, type, default and meaning."""
    lines = [
        "# Settings",
        NOTICE,
        "",
        "A run is a function of its settings. They are frozen dataclasses"
        " ([`trellis.config`](api/config.md)), saved in `config.json`.",
        "",
        "| where | how to set `max_kl` of the group `step` |",
        "|---|---|",
        "| command line | `trellis train Hopper-v5 --step.max-kl 0.02` |",
        '| Python | `TRPO("Hopper-v5", step={"max_kl": 0.02})` |',
        '| JSON file for `--config` | `{"step": {"max_kl": 0.02}, …}` |',
        "",
        "The defaults below are those of the dataclasses. A [preset](#presets) changes some of"
        " them: `trellis train ENV --help` shows the defaults for an environment.",
        "",
    ]
    for title, name, kind in _groups():
        lines += [f"{'###' if ': ' in title else '##'} {title}", ""]
        about = _sentence(kind.__doc__)
        lines += [about, ""] if name else ["Settings of the run as a whole.", ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        lines += [_setting_row(name, field, text) for field, text in _fields(kind)]
        lines.append("")
    lines += ["## Presets", "", "A preset is a name for a set of settings, chosen by `--preset`."]
    lines += ["", "| preset | description |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(p.about)} |" for name, p in presets.PRESETS.items()]
    lines += ["", "| environment | its preset |", "|---|---|"]
    lines += [f"| `{env}` | `{name}` |" for env, name in presets.BY_ENVIRONMENT.items()]
    games, other = presets.resolve("ALE/Pong-v5").preset, presets.resolve("other").preset
    lines += [f"| `ALE/…` | `{games}` |", f"| any other | `{other}` |"]
    return "\n".join(lines) + "\n"


def _groups() -> Iterator[tuple[str, str, type]]:
    """Yield title, prefix and class of each group of settings, the run itself first."""

    def inner(prefix: str, kind: type) -> Iterator[tuple[str, str, type]]:
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if dataclasses.is_dataclass(hints[field.name]):
                path = f"{prefix}{field.name}"
                yield ": ".join(path.split(".")).capitalize(), path, hints[field.name]
                yield from inner(f"{path}.", hints[field.name])

    yield "Run", "", config.TrainConfig
    yield from inner("", config.TrainConfig)


def _fields(kind: Any) -> Iterator[tuple[dataclasses.Field[Any], str]]:
    """Yield the settings of a class, without groups, each with the string below it."""
    hints = typing.get_type_hints(kind)
    body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
    texts = {}
    for statement, following in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            texts[ast.unparse(statement.target)] = ast.literal_eval(following.value)
    for field in dataclasses.fields(kind):
        if not dataclasses.is_dataclass(hints[field.name]):
            yield field, _sentence(texts.get(field.name))


def _setting_row(group: str, field: Any, text: str) -> str:
    name = f"{group}.{field.name}" if group else field.name
    setting = f'<a id="{name}"></a>`{field.name}`'
    if alias := ALIASES.get(name) or ALIASES.get(field.name):
        setting += f" (`{alias}`)"
    kind, rules = _type_name(field.type), list(field.metadata)
    if rules and rules[0].startswith(CHOICES):
        kind = ", ".join(f"`{choice}`" for choice in rules[0].removeprefix(CHOICES).split(", "))
    elif rules and kind != "str":
        kind += f", {_cell(rules[0])}"
    return f"| {setting} | {kind} | {_default(field)} | {_cell(text)} |"


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if isinstance(kind, UnionType):
        return " or ".join(_type_name(part) for part in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return "list of int"
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is not None:
        return "mapping"
    return kind.__name__


def _default(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value >= LARGE:
        return f"{value:,}"
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _sentence(text).replace("|", "\\|").replace("<", "&lt;")


def command_page() -> str:
    """Return the page with the help of every command."""
    lines = [
        "# Command line",
        NOTICE,
        "",
        "The help of every command, as the program prints it. Results go to standard output,"
        " everything else to standard error.",
        "",
        *_help_block([]),
        "## Exit codes",
        "",
        *_table_in(main.__doc__),
        "",
    ]
    for name in main.COMMANDS:
        lines += [f"## trellis {name}", ""]
        if name == "train":
            lines += ["[Settings](settings.md) lists the same options as tables.", ""]
        lines += _help_block([name])
        if name == "reproduce":
            for experiment in reproduce.EXPERIMENTS:
                lines += [f"### trellis reproduce {experiment}", ""]
                lines += _help_block([name, experiment])
    return "\n".join(lines).rstrip() + "\n"


def _table_in(text: str | None) -> list[str]:
    rows = [line for line in (text or "").splitlines() if line.startswith("|")]
    if not rows:
        raise ValueError("the docstring of trellis.cli.main has no table of exit codes")
    return rows


def _help_block(command: list[str]) -> list[str]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), _plain_terminal():
        main.main([*command, "--help"])
    text = "\n".join(line.rstrip() for line in shown.getvalue().strip().splitlines())
    return ["```text", text, "```", ""]


@contextlib.contextmanager
def _plain_terminal() -> Iterator[None]:
    """Make help texts the same on every terminal: fixed width, no colors."""
    wanted = {"COLUMNS": str(HELP_WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def stale_pages(root: Path = ROOT) -> list[Path]:
    """Return the generated pages that differ from what is in the repository."""
    stale = []
    for path, text in pages().items():
        file = root / path
        if not file.exists() or file.read_text("utf-8") != text:
            stale.append(path)
    return stale


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.docs.generate").parse_args()
    for path, text in pages().items():
        (ROOT / path).write_text(text, "utf-8")
        print(path, file=sys.stderr)
