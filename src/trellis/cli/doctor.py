"""What is installed on this machine and whether it works, each tried rather than looked up."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import trellis
from trellis.analysis import video

NEEDED = (
    "numpy",
    "scipy",
    "jax",
    "optax",
    "safetensors",
    "gymnasium",
    "tyro",
    "rich",
    "threadpoolctl",
    "cma",
)
EXTRAS = {
    "mujoco": ("mujoco", "imageio"),
    "plots": ("matplotlib",),
    "video": ("imageio", "imageio_ffmpeg", "pygame"),
    "tensorboard": ("tensorboardX",),
    "atari": ("ale_py", "numba"),
    "ray": ("ray",),
}
"""By the name of the extra: the modules that it brings."""
PHYSICS_SECONDS = 1.0
GL_SECONDS = 60
# In a process of its own: a broken driver can end a process, and MuJoCo's import with it.
DRAW = """
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().any()
"""
State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """One line of the report. Missing is a choice; broken is not."""

    name: str
    state: State
    detail: str


def report() -> int:
    """Prints every check; 1 if something is broken that is needed, or that was installed."""
    failed = False
    for check in checks():
        print(f"{check.name:<22} {check.state:<8} {check.detail}", flush=True)
        failed |= check.state == "broken"
    return int(failed)


def checks():
    """All checks, each made when it is asked for."""
    video.prepare_gl()  # Before the physics: MuJoCo decides how to draw when it is imported.
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
        yield drawing()


def package(module: str, install: str, *, needed: bool) -> Check:
    """Whether a package is there and can be imported, in which version."""
    if importlib.util.find_spec(module) is None:
        return Check(module, "broken" if needed else "missing", install)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        importlib.import_module(module)
    except Exception as failure:
        return Check(module, "broken", f"{type(failure).__name__}: {failure}")
    names = importlib.metadata.packages_distributions().get(module, [module])
    try:
        return Check(module, "ok", importlib.metadata.version(names[0]))
    except importlib.metadata.PackageNotFoundError:
        return Check(module, "ok", "version unknown")


def attempt(name: str, what: Callable[[], str]) -> Check:
    """Tries it; any failure is a finding."""
    try:
        return Check(name, "ok", what())
    except Exception as failure:
        return Check(name, "broken", f"{type(failure).__name__}: {failure}")


def compile_with_jax() -> str:
    """A compiled derivative, checked against its closed form."""
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
    """A second of Hopper-v5 with random actions, on all cores."""
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


def drawing() -> Check:
    """Whether MuJoCo can draw; without, training works and `trellis record` does not."""
    how = os.environ.get("MUJOCO_GL", "not set")
    try:
        done = subprocess.run(
            [sys.executable, "-c", DRAW], capture_output=True, text=True, timeout=GL_SECONDS
        )
        reason = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
    except subprocess.TimeoutExpired:
        reason = f"no answer within {GL_SECONDS} s"
    if not reason:
        return Check("drawing off screen", "ok", f"MUJOCO_GL={how}")
    return Check("drawing off screen", "missing", f"MUJOCO_GL={how}: {reason}. {video.GL_ADVICE}")


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} usable of {os.cpu_count()}"
