"""Real tasks by their presets, far enough to tell learning from luck."""

import dataclasses

import pytest

from trellis import presets
from trellis.training.trainer import Trainer

pytestmark = pytest.mark.slow


def trained(env, preset=None, **settings):
    trainer = Trainer(dataclasses.replace(presets.resolve(env, preset), **settings))
    state = trainer.start()
    while not trainer.config.is_over(state.iteration, state.steps):
        state, metrics = trainer.iterate(state)
        assert metrics["kl"] <= trainer.config.step.max_kl
    try:
        return trainer.evaluate(state, 20).mean_return
    finally:
        trainer.close()


def test_gymnasiums_hopper_hops():
    assert trained("Hopper-v5", total_steps=600_000) > 1000


def test_the_papers_cart_pole_is_balanced_without_a_critic():
    assert trained("trellis/PaperCartPole-v0", "paper/cartpole") > 900


def test_the_papers_swimmer_swims():
    """Its length of 3 m within an episode, a tenth of the way."""
    assert trained("trellis/PaperSwimmer-v0", "paper/swimmer", max_iterations=20) > 40
