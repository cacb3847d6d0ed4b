"""Shards in one process: the sums of parts are those of the whole, and runs can be taken up."""

import dataclasses

import numpy as np
import pytest

from tests.training.cases import CARTPOLE, SHARDS, SINGLE_PATH, VINE, bytes_of, num_bytes
from trellis.config import EstimationConfig, SamplingConfig, StepConfig
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.objective import DistributedObjective, LocalObjective
from trellis.optimization.rules import rule_of
from trellis.optimization.step import take_step
from trellis.training.reduction import reduce_tree
from trellis.training.team import LocalTeam
from trellis.training.trainer import Trainer


def collected(config):
    """A team that has just estimated what its samples are worth, and a θ."""
    trainer = Trainer(config)
    state, team = trainer.start(), trainer.team
    assert isinstance(team, LocalTeam)
    team.collect(state.theta, state.observation_moments, 0)
    estimated = team.estimate(state.critic, 1.0)
    return trainer, state.theta, estimated


@pytest.fixture(scope="module")
def both():
    """The team's objective, one over the same data as a whole, θ, and the values."""
    trainer, theta, estimated = collected(CARTPOLE)
    trainer.team.prepare_step(estimated.values)
    team = DistributedObjective(trainer.team.ask)
    shards = trainer.team.shards
    parts = [shard._batch(estimated.values) for shard in shards]
    whole = type(parts[0])(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))
    region = shards[0]._trust_region
    # All states are in the Fisher matrix: there are fewer than it takes at least.
    chunks = region.cut(theta, whole, np.random.default_rng(0))
    curvature = rule_of(CARTPOLE.step).curvature
    local = LocalObjective(trainer.policy, shards[0]._estimator, curvature, theta, *chunks)
    values = np.concatenate([part.value for part in parts])
    yield team, local, theta, values
    trainer.close()


def by_hand(samples, value_of, gamma, gae_lambda):
    """GAE of one path after the other, backwards."""
    steps, paths = samples.reward.shape
    value = value_of(samples.observation, samples.age)
    advantage = np.zeros((steps, paths))
    for path in range(paths):
        after, later = None, 0.0
        if not samples.ended[-1, path]:
            stands = samples.last_observation[path][None]
            after = value_of(stands, samples.age[-1:, path] + 1)[0]
        for t in reversed(range(steps)):
            if samples.ended[t, path]:
                (row,) = np.flatnonzero((samples.final_at == (t, path)).all(axis=1))
                seen = samples.final_observation[row][None]
                after = value_of(seen, samples.age[t : t + 1, path] + 1)[0]
                after, later = 0.0 if samples.terminated[t, path] else after, 0.0
            surprise = samples.reward[t, path] + gamma * after - value[t, path]
            advantage[t, path] = later = surprise + gamma * gae_lambda * later
            after = value[t, path]
    return advantage


@pytest.mark.parametrize("critic", ["mlp", "linear"])
def test_settings_reach_the_estimates(critic):
    estimation = EstimationConfig(
        gamma=0.9,
        gae_lambda=0.6,
        critic=critic,
        critic_hidden=(8,),
        advantages="center",
        discount_states=True,
        normalize_rewards=False,
    )
    sampling = dataclasses.replace(CARTPOLE.sampling, shards=1, steps_per_env=60)
    config = dataclasses.replace(CARTPOLE, estimation=estimation, sampling=sampling)
    trainer = Trainer(config)
    state, (shard,) = trainer.start(), trainer.team.shards
    critic_state = dict(state.critic)
    rng = np.random.default_rng(0)
    for name, array in critic_state.items():
        if array.dtype.kind == "f":
            critic_state[name] = array + 0.1 * rng.normal(size=array.shape).astype(array.dtype)
    trainer.team.collect(state.theta, state.observation_moments, 0)
    estimated = trainer.team.estimate(critic_state, 1.0)
    samples = shard._samples
    assert samples.terminated.any()

    def value_of(observation, age):
        return shard.model.critic.predict(critic_state, observation, age)

    expected = by_hand(samples, value_of, 0.9, 0.6)
    np.testing.assert_allclose(shard._values, expected, rtol=1e-4, atol=1e-4)
    batch = shard._batch(estimated.values)
    centered = (expected - expected.mean()).ravel()
    np.testing.assert_allclose(batch.value[:, 0], centered, rtol=1e-4, atol=1e-4)
    weight = (0.9**samples.age).ravel()
    np.testing.assert_allclose(batch.surrogate_weight, weight, rtol=1e-5)
    np.testing.assert_allclose(batch.kl_weight, weight, rtol=1e-5)
    trainer.close()


class TestAnswers:
    """Against one objective over the data of all shards, cut and compiled as a whole."""

    def test_gradients_add_up(self, both):
        team, local, *_ = both
        ours, theirs = team.start(), local.start()
        weight = theirs.sums.surrogate_weight
        for one, other in zip(ours.sums, theirs.sums, strict=True):
            np.testing.assert_allclose(one / weight, other / weight, rtol=1e-4, atol=1e-6)
        assert ours.fisher_weight == theirs.fisher_weight

    def test_fisher_products_add_up(self, both):
        team, local, theta, _ = both
        v = np.random.default_rng(1).normal(size=theta.shape).astype(np.float32)
        weight = local.start().fisher_weight
        ours, theirs = team.fisher_product(v) / weight, local.fisher_product(v) / weight
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_evaluations_add_up(self, both):
        team, local, theta, _ = both
        d = np.random.default_rng(2).normal(size=theta.shape).astype(np.float32)
        for multiple in np.float32([0.1, 0.01]):
            ours, theirs = team.evaluate(d, multiple), local.evaluate(d, multiple)
            weight = local.start().sums.kl_weight
            for one, other, per in zip(ours, theirs, (weight, weight, 1), strict=True):
                np.testing.assert_allclose(one / per, other / per, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(team.max_quadratic_kl(d), local.max_quadratic_kl(d), rtol=1e-4)

    def test_advantages_are_standardized_over_all_shards(self, both):
        values = both[3]
        np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-4)
        means = [part.mean() for part in np.split(values, SHARDS)]
        assert np.abs(means).max() > 0.01

    def test_the_same_step_serves_both(self, both):
        team, local, theta, _ = both
        ours, info = take_step(team, theta, StepConfig(max_kl=0.05), python_while)
        theirs, _ = take_step(local, theta, StepConfig(max_kl=0.05), python_while)
        assert info.status == 0
        np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_shards_draw_from_streams_of_their_own():
    trainer, _, _ = collected(CARTPOLE)
    first, *others = (shard._samples.raw_observation for shard in trainer.team.shards)
    assert all(not np.array_equal(first, other) for other in others)
    trainer.close()


def test_the_fisher_matrix_has_its_share_of_states_from_every_shard():
    sampling = SamplingConfig(num_envs=8, steps_per_env=500, shards=SHARDS)
    trainer, theta, estimated = collected(dataclasses.replace(CARTPOLE, sampling=sampling))
    for shard in trainer.team.shards:
        rng = np.random.default_rng(0)
        _, subset = shard._trust_region.cut(theta, shard._batch(estimated.values), rng)
        assert subset.batch.kl_weight.sum() == 1000 / SHARDS
    trainer.close()


def test_samples_never_travel():
    """Twice the time steps do not change the size of one answer."""
    sizes = []
    for steps in (16, 32):
        sampling = dataclasses.replace(SINGLE_PATH, steps_per_env=steps)
        trainer, theta, _ = collected(dataclasses.replace(CARTPOLE, sampling=sampling))
        team, state = trainer.team, trainer.start()
        answers = [
            team.collect(theta, state.observation_moments, 1),
            estimated := team.estimate(state.critic, 1.0),
            team.prepare_step(estimated.values),
            team.ask(lambda part: part.start()),
            team.ask(lambda part, theta=theta: part.fisher_product(theta)),
            team.ask(lambda part, theta=theta: part.evaluate(theta, np.float32(0.1))),
            team.finish(theta, state.observation_moments),
        ]
        trainer.close()
        sizes.append([num_bytes(answer) for answer in answers])
    assert sizes[0] == sizes[1]


def test_a_run_in_shards_goes_on_bit_for_bit_from_its_checkpoint():
    trainer = Trainer(CARTPOLE)
    state, _ = trainer.iterate(trainer.start())
    frozen = trainer.to_checkpoint(state)
    assert frozen[0]["path/age"].shape == (SINGLE_PATH.num_envs,)
    state, _ = trainer.iterate(state)
    other = Trainer(CARTPOLE)
    resumed, _ = other.iterate(other.from_checkpoint(*frozen))
    assert bytes_of(other, resumed) == bytes_of(trainer, state)


@pytest.mark.parametrize("sampling", [SINGLE_PATH, VINE], ids=["single-path", "vine"])
def test_what_shards_cannot_divide_is_refused(sampling):
    with pytest.raises(ValueError, match=r"must be a multiple of shards \(3\), got"):
        dataclasses.replace(sampling, shards=3)


def test_a_shard_has_its_part_of_everything():
    assert SINGLE_PATH.part.num_envs * SHARDS == SINGLE_PATH.num_envs
    vine = VINE.part.vine
    assert (vine.trunks * SHARDS, vine.states * SHARDS) == (VINE.vine.trunks, VINE.vine.states)
    assert SINGLE_PATH.part.batch_size * SHARDS == SINGLE_PATH.batch_size
    assert reduce_tree((0, 1), {(0, 1): "alone"}) == "alone"
