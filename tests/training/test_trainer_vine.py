"""The loop with vine: it learns, repeats itself exactly, and refuses what cannot be branched."""

import copy
import dataclasses
import json
import threading

import numpy as np
import pytest

from tests import probes
from tests.training.test_trainer import bytes_of, run
from trellis import TRPO, envs, presets
from trellis.config import (
    EstimationConfig,
    PolicyConfig,
    SamplingConfig,
    StepConfig,
    TrainConfig,
    VineConfig,
    from_json,
    to_json,
)
from trellis.runs.run import resume, train
from trellis.training.trainer import Trainer

NO_CRITIC = EstimationConfig(
    critic="none", advantages="center", normalize_observations=False, normalize_rewards=False
)
SMALL = TrainConfig(
    "CartPole-v1",
    policy=PolicyConfig(hidden=(16,)),
    sampling=SamplingConfig(
        sampler="vine",
        vine=VineConfig(trunks=4, trunk_length=25, states=25, actions=4, rollout_length=12),
    ),
    estimation=NO_CRITIC,
    step=StepConfig(max_kl=0.2),
)


def with_vine(config=SMALL, **settings):
    vine = dataclasses.replace(config.sampling.vine, **settings)
    sampling = dataclasses.replace(config.sampling, vine=vine)
    return dataclasses.replace(config, sampling=sampling)


def train_probe(probe, iterations=12, **settings):
    """The return of what was learned in large steps."""
    config = with_vine(dataclasses.replace(SMALL, env="probe"), **settings)
    trainer = Trainer(config, lambda n: envs.make(probe, n))
    state, _ = run(trainer, trainer.start(), iterations)
    return trainer.evaluate(state, 20).mean_return


class TestLearning:
    @pytest.mark.slow
    @pytest.mark.parametrize("proposal", ["every", "policy"])
    def test_what_the_observation_says(self, proposal):
        assert train_probe(probes.ObservationMatters, proposal=proposal) == 1.0

    @pytest.mark.slow
    def test_what_pays_later(self):
        """Only one state of ten matters, and only at the end of a rollout."""
        assert train_probe(probes.DelayedReward) == 10.0

    @pytest.mark.slow
    def test_where_a_continuous_action_belongs(self):
        assert train_probe(probes.ContinuousTarget, 25) > -0.02

    @pytest.mark.slow
    def test_both_factors_of_an_action(self):
        assert train_probe(probes.FactorsMatter, proposal="uniform") == 2.0
        assert train_probe(probes.FactorsMatter, proposal="mixture") == 2.0

    @pytest.mark.slow
    def test_the_papers_cart_pole(self):
        preset = presets.resolve("trellis/PaperCartPole-v0", "paper/cartpole-vine")
        trainer = Trainer(with_vine(preset, trunks=8, trunk_length=250))
        state, history = run(trainer, trainer.start(), 20)
        assert history[0]["episode_return_mean"] < 50
        assert trainer.evaluate(state, 10).mean_return > 500
        assert all(row["kl"] <= 0.01 for row in history)


def test_steps_are_those_of_trunks_and_rollouts():
    trainer = Trainer(SMALL)
    state, history = run(trainer, trainer.start(), 2)
    # CartPole-v1 has two actions, which are both tried.
    assert [row["rollouts"] for row in history] == [50, 50]
    rollouts = 50 * sum(row["rollout_length_mean"] for row in history)
    np.testing.assert_allclose(state.steps, 2 * 100 + rollouts)
    assert 0 < rollouts <= 2 * 50 * 12


MODERN = EstimationConfig(critic_hidden=(16,), critic_epochs=2, critic_minibatch=64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        with_vine(
            dataclasses.replace(SMALL, env="trellis/PaperHopper-v0", estimation=MODERN),
            bootstrap=True,
        ),
    ],
    ids=["without a critic", "bootstrap and normalization"],
)
def test_a_frozen_run_goes_on_bit_for_bit(config):
    trainer = Trainer(config)
    state, _ = run(trainer, trainer.start(), 2)
    frozen = copy.deepcopy(trainer.to_checkpoint(state))
    state, expected = run(trainer, state, 2)

    other = Trainer(config)
    resumed, history = run(other, other.from_checkpoint(*frozen), 2)
    assert history == expected
    assert bytes_of(other, resumed) == bytes_of(trainer, state)
    assert ("critic_loss" in expected[0]) == config.sampling.vine.bootstrap


def test_the_same_seed_gives_the_same_history_and_another_another():
    def history(seed, **settings):
        trainer = Trainer(with_vine(dataclasses.replace(SMALL, seed=seed), **settings))
        state, rows = run(trainer, trainer.start(), 2)
        return rows, bytes_of(trainer, state)

    assert history(3) == history(3)
    assert history(3)[1]["theta"] != history(4)[1]["theta"]
    assert history(3)[1]["theta"] != history(3, common_random_numbers=False)[1]["theta"]


@pytest.mark.slow
def test_environments_that_no_checkpoint_can_hold_resume_bit_for_bit(tmp_path):
    """Trunks start anew in every iteration: what lives in memory alone is not missed."""
    config = dataclasses.replace(
        SMALL, env="probe", total_steps=1200, eval_every=0, checkpoint_every=1
    )

    def make(settings):
        return Trainer(settings, lambda n: envs.make(probes.DelayedReward, n))

    whole = train(make(config), tmp_path / "whole", quiet=True, tensorboard=False)
    stopped = train(
        make(config),
        tmp_path / "parts",
        quiet=True,
        tensorboard=False,
        callbacks=[lambda state, _: state.iteration < 2],
    )
    assert 0 < stopped.steps < whole.steps
    resumed = resume(tmp_path / "parts", quiet=True, tensorboard=False, make_trainer=make)
    assert resumed.steps == whole.steps
    assert resumed.theta.tobytes() == whole.theta.tobytes()


class NotCopyable(probes.ActionMatters):
    def __init__(self):
        self.lock = threading.Lock()


class TestRefusals:
    def test_environments_that_cannot_be_put_back(self):
        config = dataclasses.replace(SMALL, env="probe")
        with pytest.raises(envs.NotRestorableError) as caught:
            Trainer(config, lambda n: envs.make(NotCopyable, n))
        message = str(caught.value)
        assert "cannot be restored" in message
        assert "get_state()" in message
        assert "--sampler single-path" in message

    def test_proposals_that_do_not_cover_the_actions(self):
        config = dataclasses.replace(SMALL, env="trellis/PaperHopper-v0")
        with pytest.raises(ValueError, match="use the proposal 'policy'"):
            Trainer(with_vine(config, proposal="uniform"))

    def test_the_empirical_fisher_matrix(self):
        step = StepConfig(method="empirical-fim")
        with pytest.raises(ValueError, match="with the vine sampler use the method trpo"):
            Trainer(dataclasses.replace(SMALL, step=step))

    def test_settings_that_cannot_be(self):
        with pytest.raises(ValueError, match="states must be at most trunks × trunk_length = 100"):
            with_vine(states=101)
        with pytest.raises(ValueError, match="rollout_length must be at least 1, got 0"):
            with_vine(rollout_length=0)
        with pytest.raises(ValueError, match="critic must be linear or mlp for vine"):
            with_vine(bootstrap=True)


def test_a_configuration_from_before_vine_can_be_read():
    values = json.loads(json.dumps(to_json(dataclasses.replace(SMALL, sampling=SamplingConfig()))))
    del values["sampling"]["vine"], values["sampling"]["sampler"]
    assert from_json(values).sampling == SamplingConfig()
    assert from_json(json.loads(json.dumps(to_json(SMALL)))) == SMALL


@pytest.mark.parametrize(
    ("task", "q_values", "length"), [("swimmer", 500, 50), ("hopper", 2500, 100)]
)
def test_presets_have_the_numbers_of_table_2(task, q_values, length):
    config = presets.resolve("x", f"paper/{task}-vine")
    vine = config.sampling.vine
    assert config.sampling.is_vine
    assert (vine.trunks, vine.trunk_length, vine.actions) == (16, 1000, 4)
    assert vine.states * vine.actions == q_values
    assert vine.rollout_length == length
    assert (config.step.max_kl, config.estimation.gamma) == (0.01, 0.99)
    assert config.estimation.advantages == "center"
    assert config.max_iterations == 200


@pytest.mark.slow
def test_the_python_door():
    agent = TRPO(
        "CartPole-v1",
        policy=Trainer(SMALL).policy,
        sampling=SMALL.sampling,
        estimation=SMALL.estimation,
        step=SMALL.step,
    )
    agent.learn(500)
    assert agent.steps >= 500
    agent.close()
