"""Report what is installed on this machine and whether it works: every check tries it."""

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

NEEDED = (
    *("numpy", "scipy", "jax", "jaxtyping", "optax", "safetensors", "gymnasium", "tyro", "rich"),
    *("threadpoolctl", "cma", "cloudpickle"),
)
EXTRAS = {
    "mujoco": ("mujoco", "imageio"),
    "plots": ("matplotlib",),
    "video": ("imageio", "imageio_ffmpeg", "pygame"),
    "tensorboard": ("tensorboardX",),
    "atari": ("ale_py", "numba"),
    "ray": ("ray",),
}
"""Modules that each extra installs."""
PHYSICS_SECONDS = 1.0
GL_SECONDS = 60
# In its own process: a broken driver can end a process, and MuJoCo's import with it.
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
    """One line of the report; only a broken check fails."""

    name: str
    state: CheckState
    detail: str


def report() -> int:
    """Print every check; return 1 if something needed or installed is broken."""
    failed = False
    for check in checks():
        print(f"{check.name:<22} {check.state:<8} {check.detail}", flush=True)
        failed |= check.state == "broken"
    return int(failed)


def checks() -> Iterator[Check]:
    """Yield the checks, each when it is made."""
    video.prepare_gl()  # Before the physics: MuJoCo decides how to render when it is imported.
    yield Check("trellis", "ok", trellis.__version__)
    yield Check("python", "ok", f"{platform.python_version()}, {platform.platform(terse=True)}")
    yield Check("cores", "ok", _cores())
    for module in NEEDED:
        yield package(module, "pip install trellis-rl", needed=True)
    for extra, modules in EXTRAS.items():
        for module in modules:
            yield package(module, f"pip install 'trellis-rl[{extra}]'", needed=False)
    yield attempt("compiling with JAX", compile_with_jax)
    if importlib.util.find_spec("mujoco"):
        yield attempt("batched physics", step_physics)
        how = f"MUJOCO_GL={os.environ.get('MUJOCO_GL', 'not set')}"
        reason = render_failure()
        yield (
            Check("rendering off screen", "missing", f"{how}: {reason}. {video.GL_ADVICE}")
            if reason
            else Check("rendering off screen", "ok", how)
        )


def package(module: str, install: str, *, needed: bool) -> Check:
    """Check whether a package can be imported, and in which version."""
    if importlib.util.find_spec(module) is None:
        return Check(module, "broken" if needed else "missing", install)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

    def version() -> str:
        importlib.import_module(module)
        names = importlib.metadata.packages_distributions().get(module)
        return importlib.metadata.version(names[0]) if names else "version unknown"

    return attempt(module, version)


def attempt(name: str, what: Callable[[], str]) -> Check:
    """Check whether `what` works; any failure is a finding."""
    try:
        return Check(name, "ok", what())
    except Exception as failure:
        return Check(name, "broken", f"{type(failure).__name__}: {failure}")


def compile_with_jax() -> str:
    """Compile a derivative and compare it with its closed form."""
    import jax
    import numpy as np

    start = time.perf_counter()
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    slope = np.asarray(jax.jit(jax.grad(lambda v: jax.numpy.tanh(v).sum()))(x))
    seconds = time.perf_counter() - start
    if not np.allclose(slope, 1 - np.tanh(x) ** 2, atol=1e-5):
        raise ArithmeticError("the derivative of tanh came out wrong")
    devices = ", ".join(str(device) for device in jax.devices())
    return f"{seconds:.1f} s, on {devices}"


def step_physics() -> str:
    """Step Hopper-v5 with random actions for a second, on all cores."""
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
    return f"mujoco.batch.Batch, {rate:,.0f} steps of Hopper-v5 a second"


def render_failure() -> str | None:
    """Return why MuJoCo cannot render, which `trellis record` needs; None if it can."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", RENDER], capture_output=True, text=True, timeout=GL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {GL_SECONDS} s"
    return (done.stderr.strip().splitlines() or ["?"])[-1] if done.returncode else None


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} usable of {os.cpu_count()}"
