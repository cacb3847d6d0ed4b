"""Record videos of a policy off screen: frames of one environment, streamed into an MP4.

OpenGL without a display differs from machine to machine. MuJoCo reads MUJOCO_GL once, when it is
imported, and a value that names a missing library breaks that import. So `prepare_gl` picks a
library that exists, before any environment is made.
"""

import ctypes.util
import math
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv
from trellis.policies.acting import BatchActor

MAX_FPS = 60.0
"""Largest frame rate. A faster simulation skips steps and still plays in real time."""
FALLBACK_FPS = 30.0
"""Frame rate of an environment that does not state the duration of a step."""
GL_ADVICE = (
    "Rendering without a display needs EGL or OSMesa. On Debian and Ubuntu: apt install libegl1"
    " (then MUJOCO_GL=egl, the default here) or apt install libosmesa6 (then MUJOCO_GL=osmesa)."
    " `trellis doctor` checks whether it works."
)


class NoPictureError(RuntimeError):
    """This environment cannot be rendered on this machine; the message says what is missing."""


class Recording(NamedTuple):
    """A recorded video and its episodes."""

    path: Path
    frames: int
    fps: float
    returns: tuple[float, ...]
    """Return of the recorded part of each episode."""
    lengths: tuple[int, ...]
    """Number of recorded steps of each episode."""


def prepare_gl() -> None:
    """Choose how MuJoCo renders without a display. Call it before MuJoCo is imported.

    A value of MUJOCO_GL that is set already stays.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or "mujoco" in sys.modules:
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            # Gymnasium's own MuJoCo environments render through PyOpenGL, which needs the same.
            os.environ.setdefault("PYOPENGL_PLATFORM", name)
            return


def check_request(
    path: Path, *, episodes: int = 1, max_steps: int | None = None, fps: float | None = None
) -> None:
    """Raise an error if a request is invalid or a package for videos is missing."""
    if path.suffix.lower() != ".mp4":
        raise ValueError(f"a video is an .mp4 file, got {path}; end its name with .mp4")
    if path.is_dir() and not path.is_symlink():
        raise ValueError(f"{path} is a folder: choose another --out for the video")
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if fps is not None and not fps > 0:
        raise ValueError(f"fps must be > 0, got {fps}")
    try:
        import imageio.v2  # noqa: F401
        import imageio_ffmpeg  # noqa: F401
    except ImportError as missing:
        raise ImportError(
            f"videos need {missing.name}: pip install 'trellis-rl[video]'"
        ) from missing


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
    """Record the first environment of a batch; the file appears when it is complete.

    Args:
        env: Batch with a method `render(index)`.
        act: Function from observations of the whole batch to its actions.
        path: The MP4 to write.
        episodes: Number of episodes, one after the other; episode k is reset with seed + k.
        max_steps: Number of steps after which an episode is cut off. Default: never.
        seed: Seed of the first episode.
        fps: Frame rate at which every step is shown. Default: real time.
    """
    path = Path(path)
    check_request(path, episodes=episodes, max_steps=max_steps, fps=fps)
    import imageio.v2

    open_writer: Any = imageio.v2.get_writer
    stride, rate = (1, fps) if fps is not None else real_time(env)
    path.parent.mkdir(parents=True, exist_ok=True)
    # One frame before the file is opened: if rendering fails, nothing is left behind.
    everyone = np.arange(env.num_envs)
    first_only = everyone == 0
    env.reset(everyone, np.full(env.num_envs, seed))
    _reduce_quality(env)
    _render(env)
    # Nobody can have prepared a link of this name in a run folder.
    partial = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.partial.mp4")
    partial.touch(exist_ok=False)
    returns, lengths, frames = [], [], 0
    try:
        with open_writer(
            partial, format="FFMPEG", fps=rate, codec="libx264", quality=7, macro_block_size=2
        ) as writer:
            for episode in range(episodes):
                observation = env.reset(everyone, np.full(env.num_envs, seed + episode))
                if isinstance(act, BatchActor):
                    act.start_episodes()
                total, length, over = 0.0, 0, False
                writer.append_data(_render(env))
                frames += 1
                while not over:
                    step = env.step(act(observation), first_only)
                    observation = step.observation
                    total += float(step.reward[0])
                    length += 1
                    over = bool(step.terminated[0] or step.truncated[0]) or length == max_steps
                    if over or length % stride == 0:
                        writer.append_data(_render(env))
                        frames += 1
                returns.append(total)
                lengths.append(length)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Recording(path, frames, rate, tuple(returns), tuple(lengths))


def real_time(env: BatchEnv) -> tuple[int, float]:
    """Return the steps per frame and frames per second of a video in real time."""
    per_second = FALLBACK_FPS
    if (seconds := getattr(env, "seconds_per_step", None)) is not None:
        per_second = 1.0 / float(seconds)
    elif members := getattr(env, "envs", None):
        per_second = float(members[0].metadata.get("render_fps") or FALLBACK_FPS)
    stride = math.ceil(per_second / MAX_FPS)
    return stride, per_second / stride


def _reduce_quality(env: BatchEnv) -> None:
    """Turn off fine shadows and smooth edges of MuJoCo models.

    Without a graphics card they take most of the time: a frame of Hopper-v5 takes 68 ms instead of
    225 ms.
    """
    visual = getattr(getattr(env, "model", None), "vis", None)
    if visual is not None:
        visual.quality.shadowsize = min(visual.quality.shadowsize, 1024)
        visual.quality.offsamples = 0


def _render(env: BatchEnv) -> NDArray[np.uint8]:
    render = getattr(env, "render", None)
    if render is None:
        raise NoPictureError(f"{env.env_id} cannot be rendered: its batch has no render method")
    # What a missing display, driver or package raises depends on the environment.
    try:
        picture = np.asarray(render(0))
    except Exception as failure:
        advice = f" {GL_ADVICE}" if "mujoco" in sys.modules else ""
        raise NoPictureError(
            f"{env.env_id} cannot be rendered here: {failure}.{advice}"
        ) from failure
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise NoPictureError(
            f"{env.env_id} renders frames of shape {picture.shape}, not (height, width, 3)"
        )
    return picture.astype(np.uint8, copy=False)
