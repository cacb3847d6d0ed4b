"""Tests of vine: start, end, cost and common random numbers of its branches."""

import functools

import numpy as np
import pytest

from tests.probes import ContinuousTarget, DelayedReward, Endless, FactorsMatter
from trellis import envs
from trellis.actions import action_kind
from trellis.config import SamplingConfig, VineConfig
from trellis.estimation.advantages import (
    moments_by_state,
    rescale_by_state,
    rollout_values,
    state_weights,
    vine_batch,
)
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.sampling import vine
from trellis.sampling.proposals import Proposal, ProposalError, choose_proposal
from trellis.sampling.rollouts import Rollouts
from trellis.sampling.vine import Vine
from trellis.spaces import observation_encoder
from trellis.theory import garnet
from trellis.theory.as_batch import to_batch

MDP = garnet(6, 3, 3, np.random.default_rng(0), gamma=0.9, action_rewards=True)
MAKERS = {
    "finite MDP": functools.partial(to_batch, MDP),
    "CartPole-v1": functools.partial(envs.make, "CartPole-v1"),
    "paper hopper": functools.partial(envs.make, "trellis/PaperHopper-v0"),
    "gymnasium objects": functools.partial(envs.make, DelayedReward),
}


def same(x):
    return x


def choose(proposal, distribution, actions):
    return choose_proposal(VineConfig(proposal=proposal, actions=actions), distribution)


def policy_for(env, hidden=(50, 50)):
    features, encode = observation_encoder(env.observation_space)
    kind = action_kind(env.action_space)
    distribution = DiagGaussian(kind) if isinstance(kind, int) else Categoricals(kind)
    network = MLP(features, hidden, distribution.num_outputs, output_scale=1.0)
    return Policy(network, distribution), encode


def grow(make_env, *, trunks=4, theta=None, iteration=0, normalize=same, **options):
    env = make_env(trunks)
    policy, encode = policy_for(env)
    streams = {name: options.pop(name) for name in ("seed", "shard") if name in options}
    gamma = options.pop("gamma", 0.9)
    sizes = {"trunk_length": 25, "states": 20, "actions": 3, "rollout_length": 6}
    settings = VineConfig(trunks=trunks, **{**sizes, **options})
    sampling = SamplingConfig(sampler="vine", vine=settings)
    vine = Vine(env, make_env, policy, encode, sampling, gamma=gamma, **streams)
    theta = policy.init(np.random.default_rng(0)) if theta is None else theta
    samples, path = vine.collect(theta, normalize, None, iteration)
    assert path is None
    return samples, policy, theta


class TestBranches:
    def test_start_from_the_states_of_their_places(self):
        """With rollouts of one step, Q̂ is the reward of (s, a), which identifies the state."""
        samples, _, _ = grow(MAKERS["finite MDP"], rollout_length=1, proposal="every")
        branches = samples.branches
        state = samples.raw_observation[tuple(branches.place.T)].argmax(axis=1)
        np.testing.assert_array_equal(branches.reward_sum, MDP.r[state])
        np.testing.assert_array_equal(branches.action[0, :, 0], [0, 1, 2])
        assert len(np.unique(state)) > 3

    @pytest.mark.parametrize("length", [1, 4, 12])
    def test_end_where_their_episode_terminates(self, length):
        """`DelayedReward` gives 10 times its first action in the tenth step and terminates."""
        samples, _, _ = grow(
            MAKERS["gymnasium objects"], rollout_length=length, states=60, proposal="every"
        )
        branches = samples.branches
        at = tuple(branches.place.T)
        left = 10 - samples.age[at][:, None]
        np.testing.assert_array_equal(branches.length, np.minimum(left, length) * [1, 1])
        terminated = branches.length == left
        np.testing.assert_allclose(
            branches.remaining, np.where(terminated, 0.0, 0.9**branches.length)
        )
        start = np.array(at).T - np.stack([samples.age[at], np.zeros(60, int)], axis=1)
        chosen = samples.action[tuple(start.T)][:, :1]  # the first action of the trunk's episode
        chosen = np.where(samples.age[at][:, None] == 0, branches.action[..., 0], chosen)
        pays = np.where(terminated & (chosen == 1), 10.0 * 0.9 ** (left - 1), 0.0)
        np.testing.assert_allclose(branches.reward_sum, pays, rtol=1e-12)
        np.testing.assert_array_equal(branches.final_age, 10 - left + branches.length)

    def test_are_truncated_and_not_terminated_by_a_time_limit(self):
        samples, _, _ = grow(functools.partial(envs.make, Endless), rollout_length=3, states=40)
        branches = samples.branches
        left = 5 - samples.age[tuple(branches.place.T)][:, None]
        length = np.minimum(left, 3) * [1, 1]
        np.testing.assert_array_equal(branches.length, length)
        np.testing.assert_allclose(branches.remaining, 0.9**length)
        np.testing.assert_allclose(branches.reward_sum, (1 - 0.9**length) / (1 - 0.9))

        ten = rollout_values(branches, 2.0, lambda seen, age: np.full(age.shape, 10.0))
        np.testing.assert_allclose(ten, branches.reward_sum / 2.0 + 10.0 * 0.9**length)
        constant = rollout_values(branches, 2.0, cut_value=20.0)
        np.testing.assert_allclose(constant, ten)

    def test_have_normalized_observations(self):
        samples, _, _ = grow(MAKERS["CartPole-v1"], normalize=lambda x: 3.0 * x)
        plain, _, _ = grow(MAKERS["CartPole-v1"], normalize=lambda x: 3.0 * x, rollout_length=1)
        np.testing.assert_array_equal(samples.branches.place, plain.branches.place)
        at = tuple(plain.branches.place.T)
        # One step of 20 ms away from the start, in normalized units.
        moved = plain.branches.final_observation - samples.observation[at][:, None]
        expected = 0.02 * samples.observation[at][:, None, [1, 3]]
        np.testing.assert_allclose(moved[..., [0, 2]], expected * np.ones((1, 2, 1)), atol=1e-5)


class TestTheRolloutSet:
    def test_is_chosen_uniformly_without_repetition(self):
        counts = np.zeros((5, 2), int)
        for iteration in range(150):
            samples, _, _ = grow(
                MAKERS["finite MDP"],
                trunks=2,
                trunk_length=5,
                states=4,
                rollout_length=1,
                iteration=iteration,
            )
            place = samples.branches.place
            assert len(np.unique(place, axis=0)) == 4
            counts[tuple(place.T)] += 1
        z = (counts - 150 * 0.4) / np.sqrt(150 * 0.4 * 0.6)
        assert np.abs(z).max() < 3.5

    def test_can_be_all_states(self):
        samples, _, _ = grow(MAKERS["finite MDP"], states=100)
        assert samples.branches.reward_sum.shape == (100, 3)


class TestCommonRandomNumbers:
    @pytest.mark.parametrize("name", MAKERS)
    @pytest.mark.parametrize("max_envs", [1024, 20])
    @pytest.mark.parametrize("copies", [2, 5])
    def test_copies_of_an_action_give_the_same_q_bit_for_bit(self, name, max_envs, copies):
        q, final = run_copies(MAKERS[name], copies, common=True, max_envs=max_envs)
        for k in range(1, copies):
            assert q[k].tobytes() == q[0].tobytes()
            assert final[k].tobytes() == final[0].tobytes()
        assert np.unique(final, axis=1).shape[1] > 1

    @pytest.mark.parametrize("name", ["finite MDP", "CartPole-v1", "paper hopper"])
    def test_without_them_copies_differ(self, name):
        _, final = run_copies(MAKERS[name], 2, common=False)
        assert not np.array_equal(final[0], final[1])

    def test_the_environments_noise_is_shared_only_with_common_random_numbers(self):
        """With a deterministic policy, the MDP's transitions are the only noise."""
        policy, _ = policy_for(to_batch(MDP, 1), hidden=())
        theta = np.zeros(policy.num_params, np.float32)
        theta[-3:] = [50.0, 0.0, 0.0]
        q, _ = run_copies(MAKERS["finite MDP"], 3, common=True, hidden=(), theta=theta)
        assert q[0].tobytes() == q[1].tobytes() == q[2].tobytes()
        q, _ = run_copies(MAKERS["finite MDP"], 3, common=False, hidden=(), theta=theta)
        assert not np.array_equal(q[0], q[1])


def run_copies(make_env, copies, *, common, hidden=(50, 50), theta=None, states=13, max_envs=1024):
    """Return Q̂ and final observations of `copies` rollouts with equal first actions per state."""
    env = make_env(states)
    policy, encode = policy_for(env, hidden)
    theta = policy.init(np.random.default_rng(0)) if theta is None else theta
    seen = encode(env.reset(np.arange(states), np.arange(states)))
    params, _ = policy.distribution_params(theta, seen)
    rng = np.random.default_rng(1)
    first = policy.distribution.sample(params, policy.distribution.noise(rng, (states,)))
    grower = Rollouts(
        make_env,
        policy,
        encode,
        VineConfig(states=states, rollout_length=8, common_random_numbers=common),
        actions=copies,
        gamma=0.9,
        max_envs=max_envs,
    )
    outcomes = grower.run(
        theta, same, env.snapshot(np.arange(states)), np.stack([first] * copies), rng
    )
    assert outcomes.length.max() > 1
    return outcomes.reward_sum, outcomes.final_observation


class TestProposals:
    def test_auto_chooses_by_the_action_space(self):
        assert choose("auto", DiagGaussian(2), 4) == (Proposal.POLICY, 4)
        assert choose("auto", Categoricals((2,)), 4) == (Proposal.EVERY, 2)
        assert choose("auto", Categoricals((3, 3, 2)), 4) == (Proposal.UNIFORM, 4)
        assert choose("every", Categoricals((3, 3, 2)), 4) == (Proposal.EVERY, 18)
        assert choose("auto", Categoricals((6, 6)), 40) == (Proposal.UNIFORM, 40)

    def test_an_invalid_proposal_is_an_error_that_names_a_valid_one(self):
        for name in ("uniform", "every"):
            with pytest.raises(ProposalError, match="use the proposal 'policy'"):
                choose(name, DiagGaussian(2), 4)
        with pytest.raises(ProposalError, match=r"there are 64.*'uniform'"):
            choose("every", Categoricals((4, 4, 4)), 4)
        with pytest.raises(ProposalError, match="actions must be at least 2, got 1"):
            choose("policy", DiagGaussian(2), 1)

    def test_log_q_belongs_to_the_sampled_action(self):
        samples, policy, theta = grow(functools.partial(envs.make, ContinuousTarget), states=100)
        branches = samples.branches
        params, _ = policy.distribution_params(theta, samples.observation)
        at = tuple(branches.place.T)
        for k in range(3):
            expected = policy.distribution.log_prob(
                type(params)(params.mean[at], params.log_std), branches.action[:, k]
            )
            np.testing.assert_allclose(branches.log_q[:, k], expected, rtol=1e-4, atol=1e-5)
        z = (branches.action[..., 0] - params.mean[at]) / np.exp(params.log_std)
        assert abs(z.mean()) < 4 / np.sqrt(z.size)
        assert len(np.unique(z)) == z.size

    def test_uniform_samples_each_choice_of_each_factor_equally_often(self):
        samples, _, _ = grow(
            functools.partial(envs.make, FactorsMatter), states=100, proposal="uniform", actions=8
        )
        branches = samples.branches
        np.testing.assert_allclose(branches.log_q, -np.log(6), rtol=1e-6)
        for factor, size in enumerate((3, 2)):
            counts = np.bincount(branches.action[..., factor].ravel(), minlength=size)
            z = (counts - 800 / size) / np.sqrt(800 / size * (1 - 1 / size))
            assert np.abs(z).max() < 4

    def test_the_mixture_of_factored_actions_has_its_density_and_its_rewards(self):
        make_env = functools.partial(envs.make, FactorsMatter)
        policy, _ = policy_for(make_env(1))
        theta = policy.init(np.random.default_rng(0))
        theta[-5:] = [1.0, 0.0, -1.0, 0.5, -2.0]  # biases of the last layer: 3 + 2 logits
        options = {"states": 100, "actions": 8, "rollout_length": 1, "proposal": "mixture"}
        samples, policy, _ = grow(make_env, theta=theta, **options)
        branches = samples.branches
        logits, _ = policy.distribution_params(theta, samples.observation)
        logits = logits[tuple(branches.place.T)].astype(np.float64)
        pi = np.ones(branches.log_q.shape)
        for factor, part in enumerate((logits[:, :3], logits[:, 3:])):
            p = np.exp(part) / np.exp(part).sum(axis=1, keepdims=True)
            pi *= np.take_along_axis(p, branches.action[..., factor], axis=1)
        np.testing.assert_allclose(np.exp(branches.log_q), pi / 2 + 1 / 12, rtol=1e-5)
        first, second = branches.action[..., 0], branches.action[..., 1]
        np.testing.assert_array_equal(branches.reward_sum, (first == 2) * 1.0 + (second == 0))
        # Σ π(a|s)·r(a)/q(a|s) is unbiased for the mean reward of a state.
        exact = np.exp(logits[0, 2]) / np.exp(logits[0, :3]).sum()
        exact += np.exp(logits[0, 3]) / np.exp(logits[0, 3:]).sum()
        terms = pi / np.exp(branches.log_q) * branches.reward_sum
        assert abs(terms.mean() - exact) < 4 * terms.std() / np.sqrt(terms.size)


@pytest.mark.parametrize("max_envs", [1024, 16])
def test_every_simulator_step_is_counted_once(max_envs, monkeypatch):
    monkeypatch.setattr(vine, "MAX_ENVS", max_envs)  # with 16 the last chunk is padded
    stepped = []

    class Counting:
        def __init__(self, env):
            self._env = env

        def __getattr__(self, name):
            return getattr(self._env, name)

        def step(self, actions, active=None):
            stepped.append(len(actions) if active is None else int(active.sum()))
            return self._env.step(actions, active)

    samples, _, _ = grow(lambda n: Counting(envs.make("CartPole-v1", n)), rollout_length=60)
    assert samples.steps == sum(stepped)
    assert samples.branches.length.min() < samples.branches.length.max()


def test_the_batch_has_all_trunk_states_and_values_only_in_the_rollout_set():
    samples, _, _ = grow(MAKERS["CartPole-v1"])
    q = rollout_values(samples.branches, 1.0)
    weight = state_weights(samples, 0.9)
    batch = vine_batch(samples, samples.branches, q, weight)
    rows = samples.branches.place @ [4, 1]
    others = np.setdiff1d(np.arange(100), rows)
    np.testing.assert_allclose(batch.kl_weight, 0.9 ** samples.age.ravel(), rtol=1e-6)
    np.testing.assert_array_equal(batch.surrogate_weight[rows], batch.kl_weight[rows])
    np.testing.assert_allclose(batch.value[rows], q, rtol=1e-6)
    for field in (batch.surrogate_weight, batch.value, batch.log_q, batch.action):
        assert not field[others].any()
    np.testing.assert_array_equal(
        batch.observation[rows], samples.observation[tuple(samples.branches.place.T)]
    )


def test_only_differences_within_a_state_are_rescaled():
    q = np.array([[1.0, 3.0], [100.0, 102.0]])
    assert rescale_by_state(q, "center", moments_by_state(q)) is q
    scaled = rescale_by_state(q, "standardize", moments_by_state(q))
    np.testing.assert_allclose(scaled[:, 1] - scaled[:, 0], 2.0, rtol=1e-6)


def test_branches_depend_on_the_seed_alone():
    one, again, other, later = (
        grow(MAKERS["paper hopper"], seed=seed, iteration=iteration)[0].branches
        for seed, iteration in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    for field, again_field in zip(one[:-2], again[:-2], strict=True):  # no carry, no mask
        assert field.tobytes() == again_field.tobytes()
    for different in (other, later):
        assert not np.array_equal(one.place, different.place)
        assert not np.array_equal(one.action, different.action)
