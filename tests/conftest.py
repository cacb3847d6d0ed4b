"""Provides what all tests share: a cache of compiled programs, and a double-precision fixture."""

import hashlib
import os
import platform
import signal
from pathlib import Path

import jax
import pytest

IN_ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
"""Option of XLA to compile each program in one piece. It takes a sixth less time on two cores and
generates the same code."""
UNOPTIMIZED = "--xla_backend_optimization_level=0"
"""Option of XLA for the fast tests, whose programs compile for longer than they run. The slow tests
run optimized programs, as users do."""


def pytest_configure(config: pytest.Config) -> None:
    """Cache compiled programs, so that later tests, workers, subprocesses and sessions load them.

    Tests of signals need SIGINT and SIGHUP, so neither is ignored, whatever started the tests.

    Compiled code depends on the processor, so each kind of processor has a folder of its own.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, None)):
        if signal.getsignal(number) is signal.SIG_IGN:  # As in the background of a shell.
            signal.signal(number, handler or signal.SIG_DFL)
    flags = os.environ.get("XLA_FLAGS", "")
    if "split_count" not in flags and jax.__version_info__ < (0, 11):  # An unknown option aborts.
        flags = f"{flags} {IN_ONE_PIECE}"
    if "optimization_level" not in flags and config.getoption("markexpr").startswith("not slow"):
        flags = f"{flags} {UNOPTIMIZED}"
    os.environ["XLA_FLAGS"] = flags.strip()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Subprocesses share compiled modules, too.
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    if cache is None:
        return
    folder = cache.mkdir(f"jax-{jax.__version__}-{processor()}")
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


def processor() -> str:
    """Return a name for the kind of processor."""
    about, cpuinfo = platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        about += "".join(sorted({line for line in lines if line.startswith(("model", "flags"))}))
    return hashlib.sha256(about.encode()).hexdigest()[:8]


@pytest.fixture
def x64():
    """Enable double precision during a test."""
    with jax.enable_x64(True):
        yield
