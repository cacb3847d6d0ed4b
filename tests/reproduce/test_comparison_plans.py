"""The runs of the comparison as data: their sizes, their settings, their names."""

import itertools

import pytest

from trellis.reproduce.comparison.experiment import CartPoleComparison, Locomotion
from trellis.reproduce.comparison.plans import METHODS, SWEEP_SEED, TASKS, settings, swept_values


@pytest.mark.parametrize(
    ("task", "steps", "vine_steps"),
    [
        # Table 2: paths × 1,000; 16 × 1,000 along trunks and so many rollouts of 50 or 100.
        ("swimmer", 50_000, 16_000 + 500 * 50),
        ("hopper", 1_000_000, 16_000 + 2_500 * 100),
        ("walker", 1_000_000, 16_000 + 2_500 * 100),
    ],
)
def test_a_full_run_has_the_papers_budget(task, steps, vine_steps):
    path = settings(TASKS[task], METHODS["trpo"])
    vine = settings(TASKS[task], METHODS["trpo-vine"])
    assert path.sampling.most_steps == steps
    assert vine.sampling.most_steps == vine_steps
    assert vine.sampling.is_vine
    for config in (path, vine):
        assert config.total_steps == 200 * config.sampling.most_steps
        assert config.max_iterations == 200
        assert config.estimation.advantages == "center"
        assert config.step.max_kl == 0.01


@pytest.mark.parametrize(
    ("task", "steps"), [("swimmer", 16_000 + 2_000 * 50), ("hopper", 16_000 + 10_000 * 100)]
)
def test_read_the_other_way_q_values_are_states_of_four_rollouts(task, steps):
    config = settings(TASKS[task], METHODS["trpo-vine-of-states"])
    assert config.sampling.most_steps == steps
    assert (config.total_steps, config.max_iterations) == (200 * steps, 200)


@pytest.mark.parametrize(
    ("task", "reading"),
    [
        ("swimmer", "trpo-vine"),
        ("hopper", "trpo-vine-of-states"),
        ("walker", "trpo-vine-of-states"),
    ],
)
def test_a_critic_may_say_what_follows_a_rollout(task, reading):
    critic = settings(TASKS[task], METHODS["trpo-vine-bootstrap"])
    plain = settings(TASKS[task], METHODS[reading])
    assert critic.sampling.vine.bootstrap
    assert not plain.sampling.vine.bootstrap
    assert (critic.estimation.critic, plain.estimation.critic) == ("mlp", "none")
    assert critic.total_steps == plain.total_steps


@pytest.mark.parametrize("task", ["swimmer", "hopper", "walker"])
def test_short_rollouts_have_the_steps_of_table_2_and_a_critic(task):
    short = settings(TASKS[task], METHODS["trpo-vine-short"])
    single = settings(TASKS[task], METHODS["trpo"])
    vine = short.sampling.vine
    assert (vine.rollout_length, vine.actions, vine.bootstrap) == (10, 4, True)
    assert vine.states < vine.trunks * vine.trunk_length
    assert short.sampling.most_steps == single.sampling.most_steps
    assert short.total_steps == single.total_steps
    assert short.estimation.critic == "mlp"
    assert short.step == single.step


@pytest.mark.parametrize(
    "method", ["trpo-vine-of-states", "trpo-vine-bootstrap", "trpo-vine-short"]
)
def test_the_cart_pole_has_no_other_reading(method):
    with pytest.raises(ValueError, match="no column for the cart-pole: use trpo-vine"):
        CartPoleComparison(methods=(method,))


def test_scale_shrinks_iterations_and_never_their_number():
    scaled = Locomotion(seeds=1, scale=0.1, vine_scale=0.5)
    (plan,) = scaled.compared(TASKS["hopper"], METHODS["trpo"], None)
    (vine,) = scaled.compared(TASKS["hopper"], METHODS["trpo-vine"], None)
    assert plan.config.sampling.most_steps == 100_000
    assert vine.config.sampling.most_steps == 8_000 + 312 * 4 * 100
    assert plan.config.max_iterations == vine.config.max_iterations == 200
    assert plan.folder != vine.folder
    assert "scale-0.1" in str(plan.folder)
    assert "scale-0.5" in str(vine.folder)
    for wrong in ({"scale": 0.0}, {"vine_scale": 1.5}):
        with pytest.raises(ValueError, match=r"scale must be in \(0, 1\]"):
            Locomotion(**wrong)


def test_natural_gradient_is_swept_in_factors_of_three_with_a_seed_of_its_own():
    task, method = TASKS["swimmer"], METHODS["natural-gradient"]
    values = swept_values(task, method)
    for smaller, larger in itertools.pairwise(values):
        assert larger / smaller == pytest.approx(3, rel=0.01)
    swept = Locomotion().swept(task, method)
    assert [plan.config.step.multiplier for plan in swept] == values
    assert {plan.config.seed for plan in swept} == {SWEEP_SEED}
    compared = Locomotion().compared(task, method, values[2])
    assert {plan.config.step.multiplier for plan in compared} == {values[2]}
    assert not {plan.folder for plan in swept} & {plan.folder for plan in compared}
    assert SWEEP_SEED not in [plan.config.seed for plan in compared]


def test_the_penalties_are_the_inverse_multipliers():
    task = TASKS["hopper"]
    multipliers = swept_values(task, METHODS["natural-gradient"])
    penalties = swept_values(task, METHODS["kl-penalty"])
    assert [1 / value for value in reversed(multipliers)] == pytest.approx(penalties, rel=0.01)
