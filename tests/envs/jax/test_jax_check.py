"""`check_env` knows environments in JAX: what it refuses, and what it reports of good ones."""

from typing import Any

import jax.numpy as jnp
import pytest
from gymnasium import spaces

import trellis
from tests.envs.jax.environments import Drift, Walk
from trellis.envs.jax import suites
from trellis.envs.jax.functional import Transition


def levels(report):
    return {check.name: check.level for check in report.checks}


@pytest.mark.parametrize("env", [Walk(), Walk])
def test_a_good_environment_passes_every_check(env, capsys):
    report = trellis.check_env(env)
    assert report.ok
    assert report.env_id == "Walk"
    assert report.warnings == ()
    assert {"reset", "step", "seeds", "snapshots", "time limit"} <= set(levels(report))
    assert "Walk can be trained." in capsys.readouterr().out


Base: Any = Walk  # What follows is wrong on purpose.


class WrongState(Base):
    def step(self, key, state, action):
        return super().step(key, state, action)._replace(state={"position": state["position"]})


class WrongShape(Base):
    observation_space = spaces.Box(-1.0, 1.0, (3,))


class Branches(Base):
    def step(self, key, state, action):
        if state["position"] > 0:
            action = 0
        return super().step(key, state, action)


class FiveValues(Base):
    def step(self, key, state, action):
        return state, self._observe(state), 0.0, False, False


class TwoRewards(Base):
    def step(self, key, state, action):
        return Transition(state, self._observe(state), jnp.zeros(2), jnp.array(False))


class ThreeValues(Base):
    def reset(self, key):
        return (*super().reset(key), {})


@pytest.mark.parametrize(
    ("env", "where", "words"),
    [
        (WrongState(), "step", "must keep the structure of the state"),
        (WrongShape(), "reset", "the observation_space has shape (3,)"),
        (Branches(), "step", "JAX cannot compile it"),
        (FiveValues(), "step", "must return a Transition, got tuple of 5"),
        (TwoRewards(), "step", "reward must be a scalar, got shape (2,)"),
        (ThreeValues(), "reset", "must return (state, observation), got tuple of 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_wrong_is_named(env, where, words):
    report = trellis.check_env(env, verbose=False)
    assert not report.ok
    (error,) = report.errors
    assert error.name == where
    assert words in error.detail
    assert "\n" not in error.detail


def test_a_dict_of_observations_passes():
    assert trellis.check_env(Drift(), verbose=False).ok


def test_a_missing_suite_is_an_error_with_the_command(monkeypatch):
    monkeypatch.setattr(suites, "installed", lambda module: False)
    report = trellis.check_env("gymnax/CartPole-v1", verbose=False)
    assert not report.ok
    assert "pip install 'trellis-rl[jax-envs]'" in report.errors[0].detail
