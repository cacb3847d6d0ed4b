"""Tests of training policies with memory: samples, resume, shards, vine, evaluation and probes."""

import dataclasses

import numpy as np
import pytest

from tests.training.cases import CARTPOLE, VINE, bytes_of, train
from trellis import presets
from trellis.analysis import video
from trellis.config import PolicyConfig, StepConfig, TrainConfig, VineConfig
from trellis.estimation.advantages import state_batch, with_carries
from trellis.moments import Moments
from trellis.policies import SavedPolicy
from trellis.policies.normalizer import make_normalizer
from trellis.training.build import build_sampler, env_maker
from trellis.training.policy_evaluation import evaluate_policy
from trellis.training.shard import Shard
from trellis.training.trainer import Trainer

SMALL = dataclasses.replace(
    CARTPOLE,
    env="trellis/CartPoleNoVelocity-v0",
    policy=PolicyConfig(hidden=(4,), memory="gru", memory_units=3),
    sampling=dataclasses.replace(CARTPOLE.sampling, shards=1),
)
SMALL_VINE = dataclasses.replace(SMALL, sampling=dataclasses.replace(VINE, shards=1))


def untrained(config):
    """Return a policy of a run that has not begun."""
    trainer = Trainer(config)
    policy = trainer.policy_of(trainer.start())
    trainer.close()
    return policy


def collect(config, iterations=1):
    """Return the samples of the last of some iterations, with the model and θ."""
    make_env = env_maker(config)
    shard = Shard(config)
    theta = shard.model.policy.init(np.random.default_rng(0)) * 3
    sampler, _ = build_sampler(config, make_env(config.sampling.paths), make_env, shard.model)
    normalize = make_normalizer(None, enabled=False)
    state = None
    for iteration in range(iterations):
        samples, state = sampler.collect(theta, normalize, state, iteration)
    return samples, shard.model, theta


def test_carries_follow_the_paths_and_restart_with_episodes():
    samples, model, theta = collect(SMALL, iterations=3)
    carries, policy = samples.carries, model.policy
    assert (samples.age[0] > 0).any()  # Episodes continue from one iteration to the next,
    assert carries.before[0][samples.age[0] > 0].any()  # and so does the memory.
    assert samples.ended.any()
    assert not carries.before[samples.age == 0].any()
    for t in range(len(samples.reward)):
        _, after = policy.distribution_params(theta, samples.observation[t], carries.before[t])
        following = carries.before[t + 1] if t + 1 < len(samples.reward) else carries.last
        goes_on = ~samples.ended[t]
        assert (following[goes_on] == after[goes_on]).all()
        at = np.flatnonzero(samples.final_at[:, 0] == t)
        assert (carries.final[at] == after[samples.final_at[at, 1]]).all()


def test_the_critic_may_see_the_carry():
    samples, _, _ = collect(SMALL)
    seen = with_carries(samples)
    assert seen.observation.shape == (*samples.observation.shape[:2], 2 + 3)
    assert (seen.last_observation[:, :3] == samples.carries.last).all()
    assert (seen.final_observation[:, :3] == samples.carries.final).all()


def test_branches_continue_the_memory_of_their_state():
    samples, model, theta = collect(SMALL_VINE)
    place = tuple(samples.branches.place.T)
    observation, before = samples.observation[place], samples.carries.before[place]
    _, after = model.policy.distribution_params(theta, observation, before)
    single = samples.branches.length == 1
    short = VineConfig(trunks=4, trunk_length=24, states=8, actions=2, rollout_length=1)
    config = dataclasses.replace(
        SMALL_VINE, sampling=dataclasses.replace(SMALL_VINE.sampling, vine=short)
    )
    once, _, _ = collect(config)
    assert (once.branches.final_carry == after[:, None]).all()  # The same trunks, one step each.
    assert not single.all()
    assert not (samples.branches.final_carry == after[:, None]).all()


@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize("config", [SMALL, SMALL_VINE], ids=["single path", "vine"])
def test_sequences_repeat_the_log_probabilities_of_sampling(config, memory):
    vine = dataclasses.replace(config.sampling.vine, proposal="policy")  # So that log q is log π.
    sampling = dataclasses.replace(config.sampling, vine=vine)
    sizes = {"memory_span": 2, "output_scale": 1.0}  # So that log π depends on the memory.
    policy = dataclasses.replace(config.policy, memory=memory, **sizes)
    config = dataclasses.replace(config, policy=policy, sampling=sampling)
    samples, model, theta = collect(config, iterations=3)
    assert samples.ended[:-1].any()  # Episodes start inside the sequences.
    assert samples.log_q.std() > 0.1
    parts = [(samples._replace(branches=None), samples.reward)]
    if samples.branches is not None:
        parts.append((samples, samples.branches.reward_sum))
    for part, values in parts:
        batch = state_batch(part, values, Moments.of_mean(0.0, 1, 1.0), config.estimation)
        params, _ = model.policy.distribution_params(theta, batch.observation)
        counts = batch.surrogate_weight > 0  # The states with actions.
        for action, log_q in zip(batch.action.swapaxes(0, 1), batch.log_q.T, strict=True):
            log_prob = np.asarray(model.policy.distribution.log_prob(params, action))
            np.testing.assert_allclose(log_prob[counts], log_q[counts], rtol=2e-5, atol=2e-5)


def test_acting_needs_the_memory_and_an_episode_keeps_it():
    policy = untrained(SMALL)
    observations = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    with pytest.raises(ValueError, match=r"has memory: write `act = policy.episode\(\)`"):
        policy.act(observations[0])
    policy = dataclasses.replace(policy, theta=policy.theta * 30)
    act, carry, batch = policy.episode(True), policy.initial_carry(), policy.actor()
    for observation in observations:
        action, carry = policy.act(observation, True, carry=carry)
        assert action == act(observation) == batch(observation[None])[0]
    assert carry.shape == (3,)
    np.testing.assert_array_equal(carry, batch.carry[0])
    actions, carries = policy.act(observations, True, carry=policy.initial_carry(4))
    assert len(actions) == 4
    assert carries.shape == (4, 3)
    batch.start_episodes()
    assert batch.carry is None


@pytest.mark.parametrize(
    ("carry", "message"),
    [
        ((3,), r"shape \(2, 3\), got \(3,\)"),
        ((3, 3), r"shape \(2, 3\), got \(3, 3\)"),
        ((2, 4), r"shape \(2, 3\), got \(2, 4\)"),
    ],
)
def test_a_carry_of_another_shape_is_refused(carry, message):
    policy, observations = untrained(SMALL), np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=message):
        policy.act(observations, carry=np.zeros(carry, np.float32))
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(1, 3\)"):
        policy.act(observations[0], carry=policy.initial_carry(1))
    _, after = policy.act(observations[0], carry=np.zeros(3))
    assert after.dtype == np.float32


def test_an_evaluation_forgets_between_episodes():
    policy = untrained(SMALL)
    policy = dataclasses.replace(policy, theta=policy.theta * 30)
    import gymnasium

    env = gymnasium.make(SMALL.env)
    one_by_one = evaluate_policy(policy, env, episodes=3)
    together = evaluate_policy(policy, SMALL.env, episodes=3)
    np.testing.assert_array_equal(one_by_one.returns, together.returns)


@pytest.mark.parametrize("method", ["max-kl", "cem", "cma"])
def test_methods_without_sequences_are_refused(method):
    with pytest.raises(ValueError, match=f"memory must be none for {method}, which treats"):
        TrainConfig("CartPole-v1", policy=SMALL.policy, step=StepConfig(method=method))


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, SMALL_VINE], ids=["single path", "vine"])
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_resume_is_exact(config, memory):
    config = dataclasses.replace(config, policy=dataclasses.replace(config.policy, memory=memory))
    straight = Trainer(config)
    state = straight.start()
    for _ in range(2):
        state, _ = straight.iterate(state)
    saved = straight.to_checkpoint(state)
    assert ("path/carry" in saved[0]) != config.sampling.is_vine
    resumed = Trainer(config)
    other = resumed.from_checkpoint(*saved)
    for _ in range(2):
        state, metrics = straight.iterate(state)
        other, _ = resumed.iterate(other)
    assert metrics["status"] == "accepted"
    assert bytes_of(straight, state) == bytes_of(resumed, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        StepConfig(method="natural-gradient", multiplier=0.1),
        StepConfig(method="max-kl-step"),
        StepConfig(method="kl-penalty"),
        StepConfig(method="empirical-fim"),
        StepConfig(method="policy-gradient"),
    ],
    ids=lambda step: step.method,
)
def test_other_update_rules_take_steps(step):
    estimation = dataclasses.replace(SMALL.estimation, advantages="center")
    _, history = train(dataclasses.replace(SMALL, step=step, estimation=estimation), iterations=2)
    assert history[-1]["status"] == "accepted"


@pytest.mark.slow
def test_four_shards_repeat_bit_for_bit():
    config = dataclasses.replace(SMALL, sampling=CARTPOLE.sampling)
    assert config.sampling.shards == 4
    assert train(config, iterations=3) == train(config, iterations=3)


@pytest.mark.slow
def test_a_saved_agent_with_memory_is_opened_and_recorded(tmp_path):
    from trellis import TRPO

    sizes = {"sampling": SMALL.sampling, "estimation": SMALL.estimation}
    with TRPO(SMALL.env, policy=SMALL.policy, **sizes) as agent:
        agent.learn(200)
        agent.save(tmp_path / "agent")
        act = agent.episode(deterministic=True)
        act(np.zeros(2, np.float32))
    policy = SavedPolicy.load(tmp_path / "agent")
    assert policy.policy.carry_size == 3
    env = env_maker(SMALL)(1)
    made = video.record(env, policy.actor(), tmp_path / "v.mp4", episodes=2, max_steps=5)
    assert len(made.returns) == 2


PROBES = {"trellis/TMaze-v0": (0.95, 0.65), "trellis/Repeat-v0": (0.95, 0.45)}


def solved(env_id, memory, steps):
    """Return the mean return of 200 episodes after training with the environment's preset."""
    config = presets.resolve(env_id)
    policy = dataclasses.replace(config.policy, memory=memory)
    trainer = Trainer(dataclasses.replace(config, policy=policy))
    state = trainer.start()
    while state.steps < steps:
        state, _ = trainer.iterate(state)
    mean_return = trainer.evaluate(state, 200).mean_return
    trainer.close()
    return mean_return


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("memory", ["gru", "lstm", "none"])
@pytest.mark.parametrize("env_id", PROBES)
def test_probes_are_solved_with_memory_and_not_without(env_id, memory):
    enough, too_much = PROBES[env_id]
    reached = solved(env_id, memory, 200_000)
    assert reached < too_much if memory == "none" else reached >= enough
