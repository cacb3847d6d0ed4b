"""Tests of the robot that sees, in a process of its own, because MuJoCo reads MUJOCO_GL once."""

import os
import subprocess
import sys

import numpy as np
import pytest

from trellis import envs

CHECK = """
import numpy as np
from trellis import envs

batch = envs.make("trellis/SeeingReacher-v0", 2)
first = batch.reset(np.arange(2), np.array([3, 4]))
assert first["camera"].shape == (2, 64, 64, 3)
red = (first["camera"][..., 0] > 150) & (first["camera"][..., 1] < 80)
assert red.reshape(2, -1).sum(axis=1).min() > 3, "the goal must be in the picture"
# Where the red pixels are is where the goal is: columns along x, rows against y.
for index in range(2):
    rows, columns = np.nonzero(red[index])
    goal = batch._goal[index]
    scale = 0.55 * np.tan(np.pi / 8) / 32
    seen = np.array([columns.mean() - 31.5, 31.5 - rows.mean()]) * scale
    assert np.linalg.norm(seen - goal) < 0.02, (seen, goal)
snapshot = batch.snapshot(np.arange(2))
action = np.full((2, 2), 0.5, np.float32)
one = [batch.step(action) for _ in range(3)]
again = batch.restore(np.arange(2), snapshot)
assert np.array_equal(again["camera"], first["camera"])
other = [batch.step(action) for _ in range(3)]
for a, b in zip(one, other):
    assert np.array_equal(a.observation["camera"], b.observation["camera"])
    assert np.array_equal(a.observation["joints"], b.observation["joints"])
    assert np.array_equal(a.reward, b.reward)
assert not np.array_equal(one[0].observation["camera"], one[2].observation["camera"])
assert batch.render(0).shape == (480, 480, 3)
print("works")
"""


def test_the_goal_is_in_the_picture_snapshots_are_exact_and_the_exit_is_quiet():
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "MUJOCO_GL": "egl", "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no OpenGL context" in done.stderr or "libEGL" in done.stderr:
        pytest.skip("this machine has no EGL")
    assert "works" in done.stdout, done.stderr
    assert not done.stderr, "the batch was not closed, and its renderer must not fail at exit"


def test_other_senses_need_no_pictures():
    state = envs.make("trellis/SeeingReacher-v0", 2, senses="state")
    observation = state.reset(np.arange(2), np.arange(2))
    assert observation.shape == (2, 10)
    blind = envs.make("trellis/SeeingReacher-v0", 2, senses="joints")
    joints = blind.reset(np.arange(2), np.arange(2))
    np.testing.assert_array_equal(joints, observation[:, :6])
    step = state.step(np.zeros((2, 2), np.float32))
    distance = np.linalg.norm(step.observation[:, 8:], axis=1)
    np.testing.assert_allclose(step.reward, np.exp(-distance / 0.05), rtol=1e-4)
    with pytest.raises(ValueError, match="senses must be"):
        envs.make("trellis/SeeingReacher-v0", 1, senses="nose")
