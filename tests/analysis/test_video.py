"""Videos: they show what happened, in real time, and no partial file is left."""

import os
import subprocess
import sys

import numpy as np
import pytest

from trellis.analysis import video
from trellis.envs import make

imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")


def still(env):
    zero = np.zeros((env.num_envs, *env.action_space.shape))
    return lambda observation: zero


@pytest.fixture
def cartpole():
    env = make("CartPole-v1", 3)
    yield env
    env.close()


def test_a_video_of_cartpole_has_every_step(cartpole, tmp_path):
    path = tmp_path / "videos" / "cartpole.mp4"
    recording = video.record(cartpole, still(cartpole), path, episodes=2, seed=5)
    # Pushed to one side, the pole falls after about ten steps; +1 a step, a picture before each
    # episode. The second episode starts elsewhere.
    assert recording.returns == tuple(map(float, recording.lengths))
    assert all(7 <= length <= 12 for length in recording.lengths)
    assert recording.frames == sum(recording.lengths) + 2
    assert recording.fps == 50.0
    with imageio.get_reader(path) as reader:
        pictures = [np.asarray(picture) for picture in reader]
        assert reader.get_meta_data()["fps"] == 50.0
    assert len(pictures) == recording.frames
    assert pictures[0].shape == (320, 480, 3)
    # Compression is lossy; the first picture is that of the state it was taken in.
    cartpole.reset(np.arange(3), np.full(3, 5))
    assert np.abs(pictures[0].astype(int) - cartpole.render(0)).mean() < 4
    assert os.listdir(path.parent) == ["cartpole.mp4"]


def test_a_video_can_be_cut_short_and_slowed_down(cartpole, tmp_path):
    recording = video.record(cartpole, still(cartpole), tmp_path / "a.mp4", max_steps=4, fps=10)
    assert (recording.lengths, recording.frames, recording.fps) == ((4,), 5, 10)


def test_a_failure_half_way_leaves_no_file(cartpole, tmp_path):
    calls = 0

    def act(observation):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ZeroDivisionError
        return np.zeros(3)

    with pytest.raises(ZeroDivisionError):
        video.record(cartpole, act, tmp_path / "a.mp4")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"path": "a.gif"}, ".mp4"),
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"fps": -1.0}, "fps must be > 0"),
    ],
)
def test_invalid_requests_are_refused_in_words(cartpole, tmp_path, wrong, message):
    path = tmp_path / wrong.pop("path", "a.mp4")
    with pytest.raises(ValueError, match=message):
        video.record(cartpole, still(cartpole), path, **wrong)
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_rendered_the_reason_is_told(cartpole, tmp_path, monkeypatch):
    def render(index):
        raise RuntimeError("no context")

    monkeypatch.setattr(cartpole, "render", render)
    monkeypatch.setitem(sys.modules, "mujoco", object())
    with pytest.raises(video.NoPictureError, match=r"CartPole-v1.*no context.*apt install libegl1"):
        video.record(cartpole, still(cartpole), tmp_path / "a.mp4")
    assert os.listdir(tmp_path) == []


def test_real_time_skips_steps_that_the_eye_would_miss(cartpole, monkeypatch):
    assert video.real_time(cartpole) == (1, 50.0)
    monkeypatch.setattr(cartpole, "seconds_per_step", 0.008)
    stride, fps = video.real_time(cartpole)
    assert stride == 3
    assert 1 / fps == pytest.approx(stride * 0.008)


def test_gl_is_chosen_once_and_only_where_it_is_there(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for there, chosen in ((("EGL", "OSMesa"), "egl"), (("OSMesa",), "osmesa"), ((), None)):
        monkeypatch.delenv("MUJOCO_GL", raising=False)
        monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
        find = {name: f"lib{name}.so" for name in there}.get
        monkeypatch.setattr(video.ctypes.util, "find_library", find)
        video.prepare_gl()
        assert os.environ.get("MUJOCO_GL") == chosen
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    video.prepare_gl()
    assert os.environ["MUJOCO_GL"] == "glfw"


# In its own process: MuJoCo decides how to render when it is first imported.
RECORD_HOPPER = """
import sys, numpy as np
from trellis.analysis import video
video.prepare_gl()
from trellis.envs import make
env = make("Hopper-v5", 1)
try:
    recording = video.record(env, lambda o: np.zeros((1, 3)), sys.argv[1], max_steps=12, fps=30)
except video.NoPictureError as why:
    print("no GL:", why)
else:
    print(recording.frames)
"""


def test_a_video_of_hopper_off_screen(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "hopper.mp4"
    done = subprocess.run(
        [sys.executable, "-c", RECORD_HOPPER, str(path)], capture_output=True, text=True, check=True
    )
    if done.stdout.startswith("no GL"):
        pytest.skip(done.stdout)
    assert int(done.stdout) == 13
    with imageio.get_reader(path) as reader:
        pictures = np.array([np.asarray(picture, float) for picture in reader])
    assert pictures.shape == (13, 480, 480, 3)
    assert pictures[0].std() > 10
    assert np.abs(pictures[12] - pictures[0]).max() > 50
