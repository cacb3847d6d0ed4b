"""Check what is installed on this machine, and whether it works, by trying it."""

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import trellis
from trellis.analysis import video
from trellis.cli.errors import say

NEEDED = (
    *("numpy", "scipy", "jax", "jaxtyping", "optax", "safetensors", "gymnasium", "tyro", "rich"),
    *("threadpoolctl", "cma", "cloudpickle", "packaging"),
)
"""Modules of the required packages."""
EXTRAS = {
    "mujoco": ("mujoco", "imageio"),
    "plots": ("matplotlib",),
    "video": ("imageio", "imageio_ffmpeg", "pygame"),
    "tensorboard": ("tensorboardX",),
    "export": ("onnx", "onnxruntime", "flatbuffers"),
    "tune": ("optuna",),
    "atari": ("ale_py", "numba"),
    "ray": ("ray",),
}
"""Modules that each extra installs."""
SUITES = {
    "jax-envs": ("gymnax", "six", "flax", "pgx", "jumanji", "navix", "xminigrid", "craftax"),
    "brax": ("brax", "mujoco_playground", "mujoco.mjx"),
}
"""Modules of the JAX suites by extra. They load slowly, so they are looked up, not imported."""
PHYSICS_SECONDS = 1.0
"""Time to step the physics for."""
GL_SECONDS = 60
"""Time to wait for a rendered image."""
# For another process, because a broken graphics driver can end the process.
RENDER = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().any()
"""
CheckState = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One line of the report. Only a broken check makes the command fail."""

    name: str
    """Name of the package, or of what was tried."""
    state: CheckState
    """Result: ok, missing (an optional part) or broken."""
    detail: str
    """Version or measurement, or what to do."""


def report() -> int:
    """Print every check, and return 1 if a check is broken."""
    found: dict[CheckState, list[str]] = {"ok": [], "missing": [], "broken": []}
    for check in checks():
        print(f"{check.name:<22} {check.state:<8} {check.detail}", flush=True)
        found[check.state].append(check.name)
    if found["missing"]:
        say(f"Optional parts that are missing: {', '.join(found['missing'])}.")
    if found["broken"]:
        say(f"Broken: {', '.join(found['broken'])}. The last column says why.")
        return 1
    say("Everything required works.")
    return 0


_distributions = functools.cache(importlib.metadata.packages_distributions)


def checks() -> Iterator[Check]:
    """Yield the result of each check as soon as it is known."""
    video.prepare_gl()  # First, because MuJoCo chooses how to render when it is imported.
    yield Check("trellis", "ok", trellis.__version__)
    yield Check("python", "ok", f"{platform.python_version()}, {platform.platform(terse=True)}")
    yield Check("cores", "ok", _cores())
    for module in NEEDED:
        yield package(module, "pip install trellis-rl", needed=True)
    extras = {module: extra for extra, modules in EXTRAS.items() for module in modules}
    for module, extra in extras.items():
        yield package(module, f"pip install 'trellis-rl[{extra}]'", needed=False)
    for extra, modules in SUITES.items():
        for module in modules:
            install = f"pip install 'trellis-rl[{extra}]'"
            yield package(module, install, needed=False, load=False)
    yield attempt("compiling with JAX", compile_with_jax)
    yield attempt("device in use", device_in_use)
    if importlib.util.find_spec("mujoco"):
        yield attempt("batched physics", step_physics)
        how = f"MUJOCO_GL={os.environ.get('MUJOCO_GL', 'not set')}"
        reason = render_failure()
        yield (
            Check("rendering off screen", "missing", f"{how}: {reason}. {video.GL_ADVICE}")
            if reason
            else Check("rendering off screen", "ok", how)
        )


def package(module: str, install: str, *, needed: bool, load: bool = True) -> Check:
    """Check whether a package can be imported, and which version it has.

    Args:
        module: Its module.
        install: Command that installs it.
        needed: Whether it is required.
        load: Whether to import it; otherwise it is only looked up.
    """
    if not _exists(module):
        kind = "required" if needed else "optional"
        return Check(module, "broken" if needed else "missing", f"{kind}, install with: {install}")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

    def version() -> str:
        if load:
            importlib.import_module(module)
        # A module within another package's belongs to a distribution of that name.
        names = [module.replace(".", "-")] if "." in module else _distributions().get(module)
        return importlib.metadata.version(names[0]) if names else "version unknown"

    return attempt(module, version)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Its parent is missing.
        return False


def attempt(name: str, what: Callable[[], str]) -> Check:
    """Check whether `what` runs without an error."""
    try:
        return Check(name, "ok", what())
    except Exception as failure:
        return Check(name, "broken", f"{type(failure).__name__}: {failure}")


def compile_with_jax() -> str:
    """Compile a derivative, and compare it with its closed form."""
    import jax
    import numpy as np

    start = time.perf_counter()
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    slope = np.asarray(jax.jit(jax.grad(lambda v: jax.numpy.tanh(v).sum()))(x))
    seconds = time.perf_counter() - start
    if not np.allclose(slope, 1 - np.tanh(x) ** 2, atol=1e-5):
        raise ArithmeticError("the derivative of tanh is wrong; reinstall jax and jaxlib")
    return f"took {seconds:.1f} s"


def device_in_use() -> str:
    """Return the device that computes, and all devices of its kind."""
    import jax

    devices = jax.devices()
    return f"{devices[0].platform}: {devices[0].device_kind}, {len(devices)} of them"


def step_physics() -> str:
    """Step Hopper-v5 with random actions on all cores, and return the speed."""
    import numpy as np

    from trellis.envs import make

    num_envs = 32
    env = make("Hopper-v5", num_envs)
    rng = np.random.default_rng(0)
    everyone = np.arange(num_envs)
    env.reset(everyone, everyone)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < PHYSICS_SECONDS:
        step = env.step(rng.uniform(-1, 1, (num_envs, 3)))
        over = np.flatnonzero(step.terminated | step.truncated)
        if over.size:
            env.reset(over, over)
        steps += num_envs
    rate = steps / (time.perf_counter() - start)
    env.close()
    return f"{rate:,.0f} steps per second of Hopper-v5"


def render_failure() -> str | None:
    """Return why MuJoCo cannot render, or None if it can. `trellis record` needs it."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", RENDER], capture_output=True, text=True, timeout=GL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no image within {GL_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["?"])[-1] if done.returncode else None


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} usable of {os.cpu_count()}"
