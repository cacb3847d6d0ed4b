"""Tests of schedules, of the bound on log std, and of exact resume with every one of them."""

import dataclasses

import numpy as np
import pytest

from tests.training.cases import CARTPOLE, SINGLE_PATH, bytes_of
from trellis.config import StepConfig
from trellis.training.schedules import critic_learning_rate, linear, step_inputs
from trellis.training.trainer import Trainer

STEPS = 3 * SINGLE_PATH.num_envs * SINGLE_PATH.steps_per_env
"""Steps of three iterations."""
PENDULUM = dataclasses.replace(
    CARTPOLE,
    env="Pendulum-v1",
    total_steps=STEPS,
    sampling=dataclasses.replace(SINGLE_PATH, shards=1),
)


def with_options(config=PENDULUM, *, estimation=None, **step):
    return dataclasses.replace(
        config,
        estimation=dataclasses.replace(config.estimation, **(estimation or {})),
        step=dataclasses.replace(config.step, **step),
    )


AVERAGE = {"criterion": "average", "reset_cost": 1.0}
DECAY = {"final_critic_learning_rate": 1e-5}
OPTIONS = {
    "max_kl": with_options(final_max_kl=0.001),
    "learning rate": with_options(estimation=DECAY),
    "entropy": with_options(entropy_bonus=0.01),
    "floor": with_options(min_log_std=-0.01),
    "average": with_options(estimation=AVERAGE),
}
EVERYTHING = with_options(
    estimation=AVERAGE | DECAY, final_max_kl=0.001, entropy_bonus=0.01, min_log_std=-0.01
)


def test_a_schedule_is_a_straight_line_that_ends():
    assert linear(3.0, 1.0, 0.0) == 3.0
    assert linear(3.0, 1.0, 0.25) == 2.5
    assert linear(3.0, 1.0, 1.0) == linear(3.0, 1.0, 7.0) == 1.0
    config = OPTIONS["learning rate"]
    assert critic_learning_rate(config, 0) == config.estimation.critic_learning_rate
    assert critic_learning_rate(config, STEPS) == pytest.approx(1e-5)
    assert critic_learning_rate(PENDULUM, STEPS) is None


def iterate(config, iterations, frozen=None):
    """Return the trainer and its state after some iterations, and the metrics."""
    trainer = Trainer(config)
    state = trainer.start() if frozen is None else trainer.from_checkpoint(*frozen)
    history = []
    for _ in range(iterations):
        state, metrics = trainer.iterate(state)
        history.append(metrics)
    return trainer, state, history


def check_resume(config):
    trainer, state, _ = iterate(config, 1)
    frozen = trainer.to_checkpoint(state)
    trainer.close()
    resumed, ours, _ = iterate(config, 2, frozen)
    whole, theirs, history = iterate(config, 3)
    assert bytes_of(resumed, ours) == bytes_of(whole, theirs)
    resumed.close()
    whole.close()
    return theirs, history


def test_a_run_with_every_option_continues_bit_for_bit():
    _, history = check_resume(EVERYTHING)
    trainer, state, _ = iterate(EVERYTHING, 2)
    trainer.close()
    assert state.theta[-1] == pytest.approx(-0.01, abs=1e-6), "without its bound it is lower"
    bounds = [linear(0.05, 0.001, i / 3) for i in range(3)]
    assert all(row["kl"] <= bound for row, bound in zip(history, bounds, strict=True))
    # δ is used in full: the step of the last iteration is far smaller than that of the first.
    assert history[0]["kl"] > 0.03 > 0.02 > history[2]["kl"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_with_an_option_continues_bit_for_bit_and_differs(name):
    state, _ = check_resume(OPTIONS[name])
    plain, theirs, _ = iterate(PENDULUM, 3)
    plain.close()
    same = bytes(state.theta) == bytes(theirs.theta) and all(
        np.array_equal(state.critic[k], theirs.critic[k]) for k in state.critic
    )
    assert not same


@pytest.mark.slow
def test_options_work_in_shards():
    check_resume(dataclasses.replace(EVERYTHING, sampling=SINGLE_PATH))


@pytest.mark.slow
def test_log_std_stops_at_its_bound():
    config = with_options(min_log_std=-0.002, max_kl=0.05)
    trainer, state, history = iterate(config, 3)
    low = state.theta[-1]
    assert low == pytest.approx(-0.002, abs=1e-6) or low > -0.002
    assert all(row["status"] == "accepted" for row in history)
    lower = step_inputs(config, trainer.model.policy, 0).lower
    assert np.isneginf(lower[:-1]).all()
    assert lower[-1] == np.float32(-0.002)
    trainer.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "cem", "entropy_bonus": 0.1}, "entropy_bonus has no effect with the method"),
        ({"method": "kl-penalty", "final_max_kl": 0.1}, "final_max_kl has no effect"),
        ({"method": "max-kl", "min_log_std": -1.0}, "min_log_std has no effect"),
        ({"final_max_kl": 0.0}, "final_max_kl must be > 0"),
        ({"entropy_bonus": -1.0}, "entropy_bonus must be >= 0"),
    ],
)
def test_options_without_effect_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        StepConfig(**settings)


def test_a_floor_without_log_std_is_an_error():
    with pytest.raises(ValueError, match="min_log_std needs continuous actions"):
        Trainer(with_options(dataclasses.replace(PENDULUM, env="CartPole-v1"), min_log_std=-1.0))


def test_options_that_do_not_fit_together_are_errors():
    with pytest.raises(ValueError, match="at least min_log_std"):
        with_options(min_log_std=0.5)
    with pytest.raises(ValueError, match="has no effect without critic mlp"):
        with_options(estimation={"critic": "linear", **DECAY})
    with pytest.raises(ValueError, match="horizon has no effect with critic mlp"):
        with_options(estimation={"horizon": 5})
