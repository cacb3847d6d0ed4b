"""Tests of the critic fit beside the step: the same bits, and its errors are not lost."""

import contextlib
from typing import Literal

import numpy as np
import pytest

from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, TrainConfig
from trellis.training.background import Background
from trellis.training.trainer import Trainer


def small(critic: Literal["mlp", "linear"] = "mlp"):
    return TrainConfig(
        "CartPole-v1",
        policy=PolicyConfig(hidden=(16,)),
        sampling=SamplingConfig(num_envs=8, steps_per_env=32),
        estimation=EstimationConfig(
            critic=critic, critic_hidden=(16,), critic_epochs=2, critic_minibatch=64
        ),
    )


class Done:
    """Result of a call that did not run in the background."""

    def __init__(self, call):
        self.value = call()

    def result(self):
        return self.value


@pytest.mark.parametrize("critic", ["mlp", "linear"])
def test_a_critic_fitted_beside_the_step_has_the_bits_of_one_fitted_before_it(critic, monkeypatch):
    def run():
        with contextlib.closing(Trainer(small(critic))) as trainer:
            state, metrics = trainer.iterate(trainer.start())
            for _ in range(2):
                state, metrics = trainer.iterate(state)
            return trainer.to_checkpoint(state)[0], metrics["critic_loss"]

    calls = []
    beside, loss = run()
    monkeypatch.setattr(
        "trellis.training.shard.Background", lambda call: calls.append(call) or Done(call)
    )
    before, loss_before = run()
    assert len(calls) == 3
    assert loss == loss_before
    for name, values in before.items():
        assert np.asarray(values).tobytes() == np.asarray(beside[name]).tobytes()


def test_a_critic_fit_that_raises_is_an_error_of_the_iteration(monkeypatch):
    def fail(*_):
        raise FloatingPointError("fit failed")

    with contextlib.closing(Trainer(small())) as trainer:
        state, _ = trainer.iterate(trainer.start())
        with monkeypatch.context() as patched:
            patched.setattr("trellis.estimation.critic.MLPCritic.fit", fail)
            with pytest.raises(FloatingPointError, match="fit failed"):
                trainer.iterate(state)
        again, metrics = trainer.iterate(state)  # with new episodes
        assert again.iteration == 2
        assert np.isfinite(metrics["critic_loss"])


def test_a_background_call_keeps_how_numpy_treats_overflow():
    with np.errstate(over="raise"):
        assert Background(lambda: np.geterr()["over"]).result() == "raise"
