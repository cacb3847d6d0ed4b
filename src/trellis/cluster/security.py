"""Protects Ray: whoever reaches its ports without a token can run code as the user who started it.

A Ray of this machine only (`local`) listens on the loopback interface. It asks for a token that
exists only in the memory of its processes. A cluster that others started may ask for a token or
not: `asks_for_token` checks it.
"""

import contextlib
import importlib
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger(__name__)

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Environment variables of Ray: whether it asks for a token, the token, and a file with it."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable that lets Ray use several machines, on every system despite its name."""
PROBE_SECONDS = 20.0
"""Time limit for the check whether a cluster asks for a token."""
_OPEN, _REFUSED = 0, 3
_PROBE = f"""
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5)
except AuthenticationError:
    sys.exit({_REFUSED})
"""


@contextlib.contextmanager
def private_settings() -> Iterator[list[str]]:
    """Make a Ray that starts in this block private to this machine and this process.

    Yields:
        Names of environment variables that the cluster needs while it runs.
    """
    added = []
    if MODE not in os.environ:
        os.environ[MODE] = "token"
        added.append(MODE)
    if os.environ[MODE].lower() != "token":
        logger.warning(
            "%s=%s: other users of this machine can run code as you through the ports of Ray."
            " Unset the variable to use a token.",
            *(MODE, os.environ[MODE]),
        )
    # Without a token in the environment, Ray would write one to the home directory.
    if TOKEN not in os.environ and TOKEN_PATH not in os.environ:
        os.environ[TOKEN] = secrets.token_hex(32)
        added.append(TOKEN)
    old = os.environ.get(LOOPBACK)
    os.environ[LOOPBACK] = "0"
    _read_again()
    try:
        from ray._private import ray_constants

        several, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
        try:
            yield added
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = several
    except BaseException:
        forget(added)
        raise
    finally:
        os.environ.pop(LOOPBACK)
        if old is not None:
            os.environ[LOOPBACK] = old


def forget(variables: list[str]) -> None:
    """Remove the environment variables of a cluster that has ended, such as its token."""
    for name in variables:
        os.environ.pop(name, None)
    if variables:
        _read_again()


def _read_again() -> None:
    """Make Ray read the environment variables again, which it reads once when it is imported."""
    raylet: Any = importlib.import_module("ray._raylet")  # It has no types.
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def asks_for_token(address: str) -> bool | None:
    """Return whether the cluster at this address asks for a token; None if the check fails."""
    hidden = (MODE, TOKEN, TOKEN_PATH)
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    # A separate process, because Ray reads these settings once. The home may contain a token.
    environment |= {MODE: "disabled", "HOME": os.devnull}
    try:
        code = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE, address],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
        ).returncode
    except subprocess.TimeoutExpired:
        return None
    return {_OPEN: False, _REFUSED: True}.get(code)


def use_token() -> list[str]:
    """Make Ray send its token; return the environment variables that this added.

    By default Ray sends no token, because a stranger's cluster could steal it.
    """
    if MODE in os.environ:
        return []
    os.environ[MODE] = "token"
    _read_again()
    return [MODE]


def warn_if_open(address: str, asks: bool | None) -> None:
    """Warn if a cluster asks for no token."""
    if asks:
        return
    found = "asks for no token" if asks is False else "may ask for no token (the check failed)"
    logger.warning(
        "The cluster at %s %s: whoever reaches its ports can run code as you, on all its machines."
        " Start it with %s=token, see docs/guide/cluster.md.",
        *(address, found, MODE),
    )
