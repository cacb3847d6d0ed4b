"""Tests that vine's proposals and rollouts respect action masks."""

import numpy as np
import pytest

from trellis import envs
from trellis.config import PolicyConfig, SamplingConfig, VineConfig
from trellis.envs.games.knights_tour import KNIGHTS_TOUR
from trellis.policies.build import build_policy
from trellis.policies.distributions import Categoricals
from trellis.policies.masked import MASKED
from trellis.sampling.proposals import Proposal, is_legal, propose
from trellis.sampling.vine import Vine
from trellis.spaces import observation_encoder

LOGITS = np.array([[0.5, MASKED, 1.0, MASKED, 2.0], [0.1, 0.2, 0.3, 1.0, MASKED]])
FACTORS = Categoricals((3, 2))


@pytest.mark.parametrize("proposal", [Proposal.UNIFORM, Proposal.MIXTURE, Proposal.POLICY])
def test_proposals_choose_legal_actions_with_their_probability(proposal):
    rng = np.random.default_rng(0)
    action, log_q = propose(proposal, FACTORS, LOGITS, (4000, 2), rng)
    assert is_legal(FACTORS, LOGITS, np.asarray(action)).all()
    # The frequencies of the joint actions of state 0 are q.
    for choice in ((0, 1), (2, 1)):
        chosen = (np.asarray(action)[:, 0] == choice).all(axis=1)
        q = np.exp(log_q[chosen, 0][0])
        assert abs(chosen.mean() - q) < 4 * np.sqrt(q * (1 - q) / 4000)


def test_enumeration_marks_illegal_actions():
    rng = np.random.default_rng(0)
    action, _ = propose(Proposal.EVERY, FACTORS, LOGITS, (6, 2), rng)
    legal = is_legal(FACTORS, LOGITS, action)
    assert legal[:, 0].tolist() == [False, True, False, False, False, True]
    assert legal[:, 1].tolist() == [True, False] * 3
    assert is_legal(FACTORS, LOGITS * 0, action) is None


def test_rollouts_never_execute_an_illegal_move():
    executed = []

    def make(num_envs):
        batch = envs.make(KNIGHTS_TOUR, num_envs, size=4)
        inner = batch._step

        def step(actions, active):
            legal = batch._legal(batch._state)[np.arange(num_envs), actions]
            executed.extend(legal[active].tolist())
            return inner(actions, active)

        batch._step = step
        return batch

    vine = VineConfig(trunks=3, trunk_length=6, states=8, rollout_length=4, actions=8)
    env = make(3)
    policy = build_policy(PolicyConfig(hidden=(4,)), env.observation_space, env.action_space)
    _, encode = observation_encoder(env.observation_space)
    sampling = SamplingConfig(sampler="vine", vine=vine)
    sampler = Vine(env, make, policy, encode, sampling, gamma=0.99)
    assert sampler.proposal is Proposal.EVERY
    theta = policy.init(np.random.default_rng(0))
    samples, _ = sampler.collect(theta, lambda x: x, None, 0)
    branches = samples.branches
    assert executed
    assert all(executed)
    assert branches.legal.shape == (8, 8)
    assert not branches.legal.all()
    assert (branches.length[~branches.legal] == 0).all()
    assert (branches.length[branches.legal] > 0).all()
    sampler.close()
