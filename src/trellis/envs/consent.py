"""Consent to make an environment that a run folder names.

A run of `module:Id` needs its module, and importing a module runs its code. The user decides what
is imported, not the folder. No consent is needed for environments of Gymnasium and of Trellis, nor
for a module that this process has imported already.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import gymnasium

FREE = frozenset(["ale_py", "gymnasium", "gymnasium.envs", "trellis", "trellis.envs"])
"""Modules that Trellis imports itself."""
OURS = ("ale_py.", "gymnasium.envs.", "trellis.envs.")
"""Beginnings of the modules that hold environments of Gymnasium and Trellis."""
MOST_WORKERS = 1024
"""Largest number of worker processes that a run folder may ask for."""
FREE_WORKERS = 32
"""Largest number of worker processes without consent."""
FREE_BYTES = 1 << 14
"""Largest size of the options as JSON without consent: a map of that size takes a second."""

_given: set[tuple[str, str]] = set()


class ConsentError(RuntimeError):
    """A run folder names something that is not used without consent.

    Attributes:
        reason: What would happen, and why it needs consent.
        module_here: Module that only the current folder has; None if that is not the reason.
    """

    exit_code = 2
    """Exit code of a command that fails for this reason."""

    def __init__(self, reason: str, module_here: str | None = None):
        super().__init__(f"{reason} If you trust it, pass trust_env=True.")
        self.reason, self.module_here = reason, module_here


def require_consent(
    env_id: str,
    options: Mapping[str, Any],
    source: Path | str,
    *,
    trusted: bool = False,
    named: bool = False,
) -> None:
    """Raise `ConsentError` if an environment needs consent that was not given in this process.

    Args:
        env_id: Id that the folder names.
        options: Options of the environment that it names.
        source: The folder or file, for the message.
        trusted: Whether the user gives consent now.
        named: Whether the user named the environment, so that only its options need consent.

    Raises:
        ValueError: The id or an option is not valid, with consent or without.
    """
    module = module_of_id(env_id)
    _require_options(env_id, options, source)
    request = env_id, _as_text(options)
    if trusted:
        _given.add(request)
    if request in _given:
        return
    module = module if module not in FREE else None
    module = module or _entry_module(env_id.rpartition(":")[2])
    if module is not None and module not in sys.modules and not named:
        place, here = _place(module)
        raise ConsentError(
            f"{source} names the environment {env_id}, for which the module {module} ({place})"
            " would be imported. That runs its code.",
            module if here else None,
        )
    _require_harmless(env_id, options, source)


def require_option_consent(
    name: str, options: Mapping[str, Any], source: Path | str, *, trusted: bool = False
) -> None:
    """Raise `ConsentError` if options from a folder, for the user's own callable, need consent.

    Args:
        name: Name of the callable, for the message.
        options: Options that the folder has for it.
        source: The folder, for the message.
        trusted: Whether the user gives consent.

    Raises:
        ValueError: An option is not valid, with consent or without.
    """
    _require_options(name, options, source)
    if not trusted:
        _require_harmless(name, options, source)


def module_of_id(env_id: str) -> str | None:
    """Return the module in `module:Id`; None for an id without one.

    Raises:
        ValueError: The text before the colon is not the name of a module.
    """
    module, colon, _ = env_id.rpartition(":")
    if not colon:
        return None
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{env_id!r} is not an environment: {module!r} is not a module's name")
    return module


def file_of_module(module: str) -> str | None:
    """Return the file that importing a module would run; None if there is no such module.

    Nothing is imported, not even the packages that the module is in.
    """
    return _location(_find(module, None))


def _require_options(env_id: str, options: Mapping[str, Any], source: Path | str) -> None:
    for name, value in options.items():
        if not name.isidentifier() or name in ("env", "num_envs", "nthread"):
            raise ValueError(f"{source} has an invalid option of {env_id}: {name[:80]!r}")
        if name == "workers" and not (type(value) is int and 0 <= value <= MOST_WORKERS):
            raise ValueError(
                f"{source} asks for {str(value)[:80]!r} workers of {env_id}; it must be a number"
                f" from 0 to {MOST_WORKERS:,}"
            )


def _require_harmless(env_id: str, options: Mapping[str, Any], source: Path | str) -> None:
    """Raise `ConsentError` if options take much time or memory, or name files."""
    workers, size = options.get("workers", 0), len(_as_text(options))
    if workers > FREE_WORKERS or size > FREE_BYTES:
        raise ConsentError(
            f"{source} has options of {env_id} that take much time or memory:"
            f" {workers} workers, {size:,} bytes of options."
        )
    files = [f"{name}={value}"[:100] for name, value in options.items() if _names_file(value)]
    if files:
        raise ConsentError(
            f"{source} has options of {env_id} that name files to be read: {files!r}."
        )


def _as_text(options: Mapping[str, Any]) -> str:
    return json.dumps(options, sort_keys=True, default=str)


def _entry_module(name: str) -> str | None:
    """Return the module of a registered environment that is neither Gymnasium's nor ours."""
    spec = gymnasium.registry.get(name)
    entry = None if spec is None else spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else None
    return None if module is None or f"{module}.".startswith(OURS) else module


def _place(module: str) -> tuple[str, bool]:
    """Return where a module would come from, and whether only the current folder has it."""
    file = file_of_module(module)
    if file is not None:
        return f"from {file}", False
    here = _location(_find(module, [os.getcwd()]))
    if here is not None:
        return f"from {here}, in the current folder, which is not searched by default", True
    return "which is not installed", False


def _find(module: str, path: list[str] | None) -> ModuleSpec | None:
    """Return how a module would be imported; `path` replaces the import path."""
    found, name, finders = None, "", [PathFinder] if path else list(sys.meta_path)
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        specs = (_ask(finder, name, path) for finder in finders)
        found = next((spec for spec in specs if spec is not None), None)
        if found is None:
            return None
        path = _folders(found)
    return found


def _ask(finder: Any, name: str, path: list[str] | None) -> ModuleSpec | None:
    try:
        return finder.find_spec(name, path)
    except KeyError:  # A package without __init__.py, whose parent has not been imported.
        return PathFinder.find_spec(name.rpartition(".")[2], path)


def _location(spec: ModuleSpec | None) -> str | None:
    if spec is None:
        return None
    return next((place for place in (spec.origin, *_folders(spec)) if place), None)


def _folders(spec: ModuleSpec) -> list[str]:
    """Return the folders that a package is searched in."""
    folders = spec.submodule_search_locations or []
    # Without __init__.py this is an object that would look up the parent in sys.modules.
    return list(getattr(folders, "_path", folders))


def _names_file(value: Any) -> bool:
    """Return whether an option looks like the path of a file."""
    if isinstance(value, Mapping):
        return any(map(_names_file, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_names_file, value))
    return isinstance(value, str) and (
        "/" in value or "\\" in value or value.startswith((".", "~"))
    )
