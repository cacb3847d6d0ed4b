"""Tests that slow environments get small batches and processes, and that choices of users stay."""

import dataclasses
import io
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis import TRPO, presets
from trellis.agent_inputs import names_of
from trellis.cli import train_options
from trellis.config import SamplingConfig, StepConfig, TrainConfig
from trellis.envs.catalog import is_batched
from trellis.envs.gym.make import make_gym
from trellis.runs.progress import BarProgress, LineProgress
from trellis.training import pace
from trellis.training.pace import PICTURES, choose, fitted, measure

SLOW = dataclasses.replace(presets.resolve("Slow-v0"))


class Slow(gymnasium.Env):
    """An environment whose steps take `seconds` of a clock."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds=0.0, clock=None):
        self.seconds, self.clock, self.steps = seconds, clock, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.clock is not None:
            self.clock.now += self.seconds
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, False, self.steps == 10, {}


class Camera(Slow):
    observation_space = spaces.Box(0, 255, (12, 12, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((12, 12, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((12, 12, 3), np.uint8), *super().step(action)[1:]


class Clock:
    """A clock that only the environment moves."""

    now = 0.0

    def perf_counter(self):
        return self.now


def maker(monkeypatch, seconds, kind=Slow):
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return lambda: make_gym(lambda: kind(seconds, clock), 1)


@pytest.mark.parametrize(("seconds", "speed"), [(0.05, 20), (0.001, 1000), (5.0, 0.2)])
def test_speed_is_measured(monkeypatch, seconds, speed):
    found, space = measure(maker(monkeypatch, seconds), seed=0)
    assert found == pytest.approx(speed, rel=0.1)
    assert space == Slow.observation_space


@pytest.mark.parametrize(
    ("speed", "cores", "num_envs", "workers"),
    [
        (20, 2, 8, 2),  # 400 steps in ten seconds
        (20, 1, 4, None),
        (0.1, 2, 4, 2),
        (80, 2, 26, 2),
        (150, 1, 24, None),
        (205, 1, 32, None),  # 2,050 steps in ten seconds: as before
        (5000, 8, 32, None),
    ],
)
def test_iterations_take_about_ten_seconds(speed, cores, num_envs, workers):
    new = choose(SLOW, speed, cores=cores, can_move=True)
    assert new.get("sampling.num_envs", 32) == num_envs
    assert new.get("env_options.workers") == workers
    if new:
        assert num_envs % (workers or 2) == 0
        assert new["checkpoint_every"] <= max(600 * speed * (workers or 1), 64 * num_envs) + 64 * 32


def test_fast_environments_keep_their_settings(monkeypatch):
    config = presets.resolve("Slow-v0")
    found = fitted(config, (), maker(monkeypatch, 1e-4))
    assert found.config is config
    assert str(found) == ""


def test_what_was_chosen_is_said_and_is_plain_settings(monkeypatch):
    found = fitted(SLOW, (), maker(monkeypatch, 0.05))
    assert found.config.sampling.num_envs == 4  # A callable stays in this process.
    assert str(found).startswith("Slow-v0 makes 20 steps/s: an iteration has 4 × 64 steps and 10")
    assert (
        dataclasses.replace(
            found.config, sampling=SLOW.sampling, checkpoint_every=SLOW.checkpoint_every
        )
        == SLOW
    )


@pytest.mark.parametrize(
    "chosen", [{"sampling.num_envs"}, {"sampling"}, {"sampling.num_envs", "checkpoint_every"}]
)
def test_choices_of_the_user_stay(monkeypatch, chosen):
    found = fitted(SLOW, chosen, maker(monkeypatch, 0.05)).config
    assert found.sampling == SLOW.sampling
    measured = "sampling" not in chosen  # With all sizes chosen, nothing is measured.
    stays = not measured or "checkpoint_every" in chosen
    assert (found.checkpoint_every == SLOW.checkpoint_every) == stays


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(SLOW, preset="modern/mujoco"),
        dataclasses.replace(SLOW, step=StepConfig("cem")),
        dataclasses.replace(SLOW, sampling=SamplingConfig(sampler="vine")),
        dataclasses.replace(SLOW, sampling=SamplingConfig(shards=2)),
    ],
)
def test_other_runs_are_not_measured(config):
    assert fitted(config, (), lambda: pytest.fail("made")).config is config


def test_batched_environments_are_not_made(monkeypatch):
    monkeypatch.setattr(pace, "measure", lambda *_: pytest.fail("measured"))
    config = dataclasses.replace(presets.resolve("Pendulum-v1"), preset="modern/default")
    assert fitted(config).config is config
    assert is_batched("CartPole-v1", {"workers": 2})
    assert not is_batched("FrozenLake-v1", {"map_name": None})


def test_an_environment_that_fails_is_left_to_the_trainer():
    def make():
        raise OSError("no such simulator")

    assert fitted(SLOW, (), make).config is SLOW


def test_pictures_get_the_settings_of_pictures(monkeypatch):
    found = fitted(SLOW, {"policy.hidden"}, maker(monkeypatch, 1e-4, Camera)).config
    assert found.estimation.critic_epochs == PICTURES["estimation.critic_epochs"]
    assert found.policy.hidden == SLOW.policy.hidden
    assert found.sampling == SLOW.sampling


def test_the_agent_and_the_command_line_know_what_was_chosen():
    given = {"sampling": {"num_envs": 2}, "seed": 1, "step": StepConfig(), "env_options": {"a": 1}}
    assert names_of(given) == {"sampling.num_envs", "seed", "step", "env_options.a"}
    asked = train_options.parse(["CartPole-v1", "--sampling.num-envs=16", "--seed", "3"])
    assert asked.chosen >= {"sampling.num_envs", "seed"}
    assert "checkpoint_every" not in asked.chosen


def test_the_agent_of_a_slow_environment(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "measure", lambda make, seed: (0.5, Slow.observation_space))
    with TRPO(Slow, max_iterations=1, sampling={"steps_per_env": 2}) as agent:
        assert agent.config.sampling.num_envs == 4
        agent.save(tmp_path / "agent")
    values = json.loads((tmp_path / "agent/config.json").read_text())
    assert values["sampling"]["num_envs"] == 4
    monkeypatch.setattr(pace, "measure", lambda *_: pytest.fail("measured again"))
    assert TRPO.load(tmp_path / "agent", env=Slow).config.sampling.num_envs == 4


def test_progress_within_an_iteration():
    now, stream = [0.0], io.StringIO()
    config = TrainConfig("Slow-v0", sampling=SamplingConfig(num_envs=4, steps_per_env=8))
    progress = LineProgress(config, stream=stream, clock=lambda: now[0])
    for _ in range(6):
        now[0] += 2.0
        progress.add_steps("sampling", 4)
    progress.update({"iteration": 1, "steps": 32})
    progress.add_steps("evaluating", 3)
    now[0] += 6.0
    progress.add_steps("evaluating", 3)
    lines = stream.getvalue().splitlines()
    assert lines[1:3] == ["Sampling 12/32 steps …", "Sampling 24/32 steps …"]
    assert lines[-1] == "Evaluating 6 steps …"


def test_the_bar_shows_steps_within_an_iteration():
    now = [0.0]
    bar = BarProgress(TrainConfig("Slow-v0"), clock=lambda: now[0], live=False)
    now[0] = 2.0
    bar.add_steps("sampling", 64)
    assert bar._rich.tasks[0].fields["left"] == "sampling 64/2,048 steps"
