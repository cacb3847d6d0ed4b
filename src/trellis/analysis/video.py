"""Videos of a policy at work, off screen: pictures of one environment, streamed into an MP4.

OpenGL without a display is the part that differs from machine to machine. MuJoCo looks at MUJOCO_GL
once, when it is imported, and a value that names a missing library breaks that import. So
`prepare_gl` picks what is there, before any environment is made.
"""

import ctypes.util
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv

MAX_FPS = 60.0
"""Faster simulations show every second step, or every third, still in real time."""
FALLBACK_FPS = 30.0
"""Where nothing says how long a step takes."""
GL_ADVICE = (
    "Pictures without a display need EGL or OSMesa. On Debian and Ubuntu: apt install libegl1"
    " (then MUJOCO_GL=egl, the default here) or apt install libosmesa6 (then MUJOCO_GL=osmesa)."
    " `trellis doctor` tells whether it works."
)


class NoPictureError(RuntimeError):
    """This environment cannot be drawn on this machine; the message says what is missing."""


class Recording(NamedTuple):
    """What was filmed."""

    path: Path
    frames: int
    fps: float
    returns: tuple[float, ...]
    """Of each episode, as far as it was filmed."""
    lengths: tuple[int, ...]


def prepare_gl() -> None:
    """Chooses a way to draw without a display, unless one was chosen; before mujoco is imported."""
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or "mujoco" in sys.modules:
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            # Gymnasium's own MuJoCo environments draw through PyOpenGL, which asks for the same.
            os.environ.setdefault("PYOPENGL_PLATFORM", name)
            return


def require(
    path: Path, *, episodes: int = 1, max_steps: int | None = None, fps: float | None = None
) -> Any:
    """What writes videos; raises where that is missing, or what is asked for cannot be."""
    if path.suffix.lower() != ".mp4":
        raise ValueError(f"a video is an .mp4 file, got {path}")
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if fps is not None and not fps > 0:
        raise ValueError(f"fps must be > 0, got {fps}")
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401
    except ImportError as missing:
        raise ImportError(
            f"videos need {missing.name}: pip install 'trellis-rl[video]'"
        ) from missing
    return imageio.v2


def record(
    env: BatchEnv,
    act: Callable[[Any], NDArray[Any]],
    path: str | Path,
    *,
    episodes: int = 1,
    max_steps: int | None = None,
    seed: int = 0,
    fps: float | None = None,
) -> Recording:
    """Films the first row of `env` for some episodes; the file appears when it is whole.

    Args:
        env: a batch that can `render(index)`.
        act: from observations of all rows to actions of all rows.
        path: of the MP4.
        episodes: how many, one after the other; episode k is reset with seed + k.
        max_steps: after which an episode is cut off; None for its own end.
        seed: of the first episode.
        fps: shows every step at this rate; None for real time.
    """
    path = Path(path)
    imageio = require(path, episodes=episodes, max_steps=max_steps, fps=fps)
    stride, rate = (1, fps) if fps is not None else real_time(env)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The first picture before the file: where nothing can be drawn, nothing is left behind.
    everyone = np.arange(env.num_envs)
    first_row = everyone == 0
    env.reset(everyone, np.full(env.num_envs, seed))
    _lighten(env)
    _picture(env)
    partial = path.with_name(f".{path.stem}.partial.mp4")
    returns, lengths, frames = [], [], 0
    try:
        with imageio.get_writer(
            partial, format="FFMPEG", fps=rate, codec="libx264", quality=7, macro_block_size=2
        ) as film:
            for episode in range(episodes):
                observation = env.reset(everyone, np.full(env.num_envs, seed + episode))
                total, length, over = 0.0, 0, False
                film.append_data(_picture(env))
                frames += 1
                while not over:
                    step = env.step(act(observation), first_row)
                    observation = step.observation
                    total += float(step.reward[0])
                    length += 1
                    over = bool(step.terminated[0] or step.truncated[0]) or length == max_steps
                    if over or length % stride == 0:
                        film.append_data(_picture(env))
                        frames += 1
                returns.append(total)
                lengths.append(length)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Recording(path, frames, rate, tuple(returns), tuple(lengths))


def real_time(env: BatchEnv) -> tuple[int, float]:
    """How many steps a frame stands for, and frames per second, so that the film is not faster or
    slower than what it shows."""
    seconds = getattr(env, "seconds_per_step", None)
    if seconds is None:
        rows = getattr(env, "envs", None)
        metadata = rows[0].metadata if rows else {}
        per_second = float(metadata.get("render_fps") or FALLBACK_FPS)
    else:
        per_second = 1.0 / float(seconds)
    stride = math.ceil(per_second / MAX_FPS)
    return stride, per_second / stride


def _lighten(env: BatchEnv) -> None:
    """Fine shadows and smooth edges make up most of the time where no graphics card helps (68 of
    225 ms a frame of Hopper-v5 are left without); only MuJoCo's models have these settings."""
    visual = getattr(getattr(env, "model", None), "vis", None)
    if visual is not None:
        visual.quality.shadowsize = min(visual.quality.shadowsize, 1024)
        visual.quality.offsamples = 0


def _picture(env: BatchEnv) -> NDArray[np.uint8]:
    render = getattr(env, "render", None)
    if render is None:
        raise NoPictureError(f"{env.env_id} has no pictures: its batch has no render method")
    # What a missing display, driver or package raises depends on the environment.
    try:
        picture = np.asarray(render(0))
    except Exception as failure:
        advice = f" {GL_ADVICE}" if "mujoco" in sys.modules else ""
        raise NoPictureError(f"{env.env_id} cannot be drawn here: {failure}.{advice}") from failure
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise NoPictureError(
            f"{env.env_id} draws pictures of shape {picture.shape}, not (height, width, 3)"
        )
    return picture.astype(np.uint8, copy=False)
