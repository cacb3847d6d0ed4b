"""A population played as one batch does what its members do one by one."""

from dataclasses import dataclass

import numpy as np
import pytest

from trellis import envs
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.search.population import parameter_scales, play_population, require_layers
from trellis.spaces import observation_encoder

HOPPER, CARTPOLE = "trellis/PaperHopper-v0", "CartPole-v1"
SEEDS = np.array([3, 14])


def setting(env_id):
    discrete = env_id == CARTPOLE
    distribution = Categoricals((2,)) if discrete else DiagGaussian(3)
    policy = Policy(MLP(4 if discrete else 12, (8, 8), distribution.num_outputs), distribution)
    thetas = np.random.default_rng(0).standard_normal((6, policy.num_params))
    return policy, thetas.astype(np.float32)


def play_all(env_id, policy, thetas, seeds=SEEDS, **options):
    env = envs.make(env_id, len(thetas) * len(seeds))
    _, encode = observation_encoder(env.observation_space)
    options = {"most_steps": 150, **options}
    played = play_population(env, policy, encode, lambda x: x, thetas, seeds, **options)
    env.close()
    return played


def play_one(env_id, policy, theta, seed):
    """A loop over one environment, with nothing batched, masked or left out."""
    env = envs.make(env_id, 1)
    _, encode = observation_encoder(env.observation_space)
    observation = encode(env.reset(np.arange(1), np.array([seed])))
    total, length = 0.0, 0
    for _ in range(150):
        params, _ = policy.distribution_params(theta, observation)
        seen, reward, terminated, truncated = env.step(policy.distribution.mode(params))
        observation = encode(seen)
        total, length = total + reward[0], length + 1
        if terminated[0] or truncated[0]:
            break
    return total, length


@pytest.mark.parametrize("env_id", [HOPPER, CARTPOLE])
def test_members_play_as_they_do_alone(env_id):
    policy, thetas = setting(env_id)
    played = play_all(env_id, policy, thetas)
    for member, theta in enumerate(thetas):
        for episode, seed in enumerate(SEEDS):
            total, length = play_one(env_id, policy, theta, seed)
            assert played.lengths[member, episode] == length
            np.testing.assert_allclose(played.returns[member, episode], total, rtol=1e-5)
    assert len(np.unique(played.lengths)) > 3, "the members should end at different times"


def test_a_member_does_not_notice_who_plays_beside_it():
    policy, thetas = setting(HOPPER)
    whole = play_all(HOPPER, policy, thetas)
    some = play_all(HOPPER, policy, thetas[[4, 1]])
    assert some.returns.tobytes() == whole.returns[[4, 1]].tobytes()


def test_noise_changes_what_is_played_and_observations_are_those_acted_in():
    policy, thetas = setting(HOPPER)
    quiet = play_all(HOPPER, policy, thetas, keep_observations=True)
    one, two, other = (
        play_all(HOPPER, policy, thetas, noise=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert sum(map(len, quiet.observations)) == quiet.lengths.sum()
    assert not one.observations
    assert one.returns.tobytes() == two.returns.tobytes()
    assert one.returns.tobytes() != other.returns.tobytes()
    assert one.returns.tobytes() != quiet.returns.tobytes()


def test_episodes_are_cut_at_the_length_that_was_asked_for():
    policy, thetas = setting(HOPPER)
    played = play_all(HOPPER, policy, thetas, most_steps=5)
    assert played.lengths.max() == 5


def test_the_scale_of_a_parameter_is_that_of_its_unit():
    policy = Policy(MLP(4, (9,), 2), DiagGaussian(2))
    expected = [1 / 2] * (4 * 9 + 9) + [1 / 3] * (9 * 2 + 2) + [1.0] * 2
    np.testing.assert_allclose(parameter_scales(policy), expected)


def test_other_networks_are_refused():
    @dataclass(frozen=True)
    class Strange:
        num_outputs: int = 2
        shapes: tuple = ()

    with pytest.raises(ValueError, match=r"a policy that is an MLP, .* got Strange"):
        require_layers(Policy(Strange(), Categoricals((2,))))  # pyright: ignore
