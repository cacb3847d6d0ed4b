"""The compiled iteration is the ordinary one, up to rounding, and resumes bit for bit."""

import dataclasses

import jax
import numpy as np
import pytest

import trellis.envs
from tests.envs.jax.environments import Balance, Stuck, Walk
from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, StepConfig, TrainConfig
from trellis.runs.trainers import make_trainer
from trellis.training.compiled import CompiledTrainer, why_not_compiled
from trellis.training.team import LocalTeam
from trellis.training.trainer import Trainer

SAMPLING = SamplingConfig(num_envs=6, steps_per_env=40)
ESTIMATION = EstimationConfig(critic_hidden=(8,), critic_epochs=2, critic_minibatch=50)
CLOCKS = (
    *("seconds_iteration", "seconds_sampling", "seconds_estimation", "seconds_update"),
    *("steps_per_second", "cg_residual"),
)
"""Metrics that differ from run to run, or are all rounding error."""


def config_of(estimation=ESTIMATION, sampling=SAMPLING, **step):
    return TrainConfig(
        env="test/env",
        seed=3,
        policy=PolicyConfig(hidden=(8,), output_scale=0.5),
        sampling=sampling,
        estimation=estimation,
        step=StepConfig(**step),
    )


def maker(env):
    return lambda count: trellis.envs.make(env, count)


def compiled(config, env):
    trainer = make_trainer(config, maker(env))
    assert isinstance(trainer, CompiledTrainer)
    return trainer


CASES = {
    "discrete": (Walk(), config_of()),
    "bounds and schedules": (
        Balance(),
        dataclasses.replace(
            config_of(
                dataclasses.replace(ESTIMATION, final_critic_learning_rate=1e-4),
                fisher_fraction=1.0,
                final_max_kl=0.001,
                min_log_std=-0.01,
                entropy_bonus=0.01,
            ),
            total_steps=600,
        ),
    ),
    "paper": (
        Balance(),
        config_of(
            EstimationConfig(
                critic="none",
                advantages="center",
                normalize_observations=False,
                normalize_rewards=False,
            ),
            dataclasses.replace(SAMPLING, steps_per_env=70, whole_paths=True),
        ),
    ),
    "average": (Walk(), config_of(dataclasses.replace(ESTIMATION, criterion="average"))),
}


@pytest.mark.parametrize(
    "case", ["discrete", *(pytest.param(c, marks=pytest.mark.slow) for c in list(CASES)[1:])]
)
def test_compiled_and_ordinary_trainer_agree(case):
    env, config = CASES[case]
    trainers = [Trainer(config, maker(env)), compiled(config, env)]
    states = [trainer.start() for trainer in trainers]
    start = states[0]
    for _ in range(3):
        results = [t.iterate(s) for t, s in zip(trainers, states, strict=True)]
        states = [state for state, _ in results]
        slow, fast = (metrics for _, metrics in results)
        assert slow["episodes"] > 0
        for name in slow.keys() - CLOCKS:
            if isinstance(slow[name], str):
                assert slow[name] == fast[name]
            else:
                assert fast[name] == pytest.approx(slow[name], rel=1e-3, abs=1e-5), name
        for a, b in zip(*map(leaves, states), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
    assert np.abs(states[0].theta - start.theta).max() > 1e-3


def leaves(state):
    moments = [vars(m) for m in (state.observation_moments, state.return_moments)]
    return jax.tree.leaves(
        (state.theta, state.critic, moments, state.discounted_return, state.path)
    )


def test_a_checkpoint_continues_bit_for_bit():
    env, config = CASES["discrete"]
    trainer = compiled(config, env)
    state, _ = trainer.iterate(trainer.start())
    arrays, values = trainer.to_checkpoint(state)
    arrays = {name: array.copy() for name, array in arrays.items()}
    state, _ = trainer.iterate(state)
    state, metrics = trainer.iterate(state)
    other = compiled(config, env)
    again = other.from_checkpoint(arrays, values)
    again, _ = other.iterate(again)
    again, repeated = other.iterate(again)
    for a, b in zip(leaves(state), leaves(again), strict=True):
        assert np.array_equal(a, b)
    assert {k: v for k, v in metrics.items() if k not in CLOCKS} == {
        k: v for k, v in repeated.items() if k not in CLOCKS
    }
    snapshots = [t.to_checkpoint(s)[0] for t, s in ((trainer, state), (other, again))]
    for name, values in snapshots[0].items():
        assert np.array_equal(values, snapshots[1][name]), name


@pytest.mark.slow
def test_a_past_state_starts_new_episodes(caplog):
    env, config = CASES["discrete"]
    trainer = compiled(config, env)
    first, _ = trainer.iterate(trainer.start())
    trainer.iterate(first)
    state, _ = trainer.iterate(first)
    assert "new episodes start" in caplog.text
    assert state.iteration == 2
    assert state.path is not None
    assert (state.path.age <= SAMPLING.steps_per_env).all()


@pytest.mark.slow
def test_a_reward_that_is_not_finite_is_an_error():
    class Broken(Balance):
        def step(self, key, state, action):
            moved = super().step(key, state, action)
            return moved._replace(reward=moved.reward / (state[0] > 1.0))

    trainer = compiled(CASES["paper"][1], Broken())
    with pytest.raises(trellis.envs.BadValueError, match="reward is not finite"):
        trainer.iterate(trainer.start())


@pytest.mark.slow
def test_a_mask_that_allows_no_action_is_an_error():
    trainer = compiled(CASES["paper"][1], Stuck())
    with pytest.raises(trellis.envs.BadValueError, match="action_mask allows no action") as caught:
        trainer.iterate(trainer.start())
    assert caught.value.step == 3  # No card is left after three steps.


@pytest.mark.parametrize(
    ("reason", "config"),
    [
        (
            "2 shards need as many devices",
            config_of(sampling=dataclasses.replace(SAMPLING, shards=2)),
        ),
        ("the critic is linear", config_of(dataclasses.replace(ESTIMATION, critic="linear"))),
        ("the method is max-kl", config_of(method="max-kl")),
        ("states are discounted", config_of(EstimationConfig(discount_states=True))),
    ],
)
def test_other_settings_use_the_ordinary_trainer(reason, config):
    trainer = make_trainer(config, maker(Walk()))
    assert type(trainer) is Trainer
    assert isinstance(trainer.team, LocalTeam)
    assert reason in why_not_compiled(trainer.team, config)
