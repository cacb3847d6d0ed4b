"""Tests of policies and critics for several inputs: pictures and vectors together."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import trellis
from trellis.config import EstimationConfig, PolicyConfig
from trellis.estimation.critic import MLPCritic
from trellis.estimation.state_batch import StateBatch, cut
from trellis.inputs import Inputs
from trellis.moments import Moments
from trellis.optimization.fisher import fisher_operator
from trellis.optimization.rules import Curvature
from trellis.policies.build import build_policy, require_fit
from trellis.policies.networks import MLP
from trellis.policies.normalizer import PictureStandardizer, Standardizer
from trellis.policies.sequences import Sequences
from trellis.sampling.frames import FrameStore, Stacks
from trellis.spaces import SeveralFeatures, observation_encoder

CAMERA = spaces.Box(0, 255, (12, 11, 3), np.uint8)
SPACE = spaces.Dict(
    {
        "camera": CAMERA,
        "joints": spaces.Box(-1.0, 1.0, (2,)),
        "more": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 255, (10, 10), np.uint8)]),
    }
)
ACTIONS = spaces.Box(-1.0, 1.0, (2,))


def policy(space=SPACE, actions=ACTIONS, **options):
    return build_policy(PolicyConfig(hidden=(5, 4), channels=(2,)), space, actions, **options)


def random_inputs(rng, n):
    pictures = [rng.integers(0, 256, (n, *s), np.uint8) for s in ((3, 12, 11), (1, 10, 10))]
    return Inputs(tuple(pictures), rng.normal(size=(n, 5)))


def stored(pictures):
    """Return pictures as indices of frames in stores, as samplers keep them."""
    stacks = []
    for picture in pictures:
        store = FrameStore(64, picture.shape[2:])
        index = store.add(picture.reshape(-1, *picture.shape[2:])).reshape(len(picture), -1)
        stacks.append(Stacks(index, store))
    return tuple(stacks)


class Seeing(gymnasium.Env):
    """One-step bandit: the brightness of the picture says which way to go, the vector nothing."""

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (10, 10, 1), np.uint8), "joint": spaces.Box(-1.0, 1.0, (1,))}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def _look(self):
        self.bright = int(self.np_random.integers(2))
        camera = np.full((10, 10, 1), 200 * self.bright, np.uint8)
        return {"camera": camera, "joint": self.np_random.uniform(-1, 1, 1).astype(np.float32)}

    def step(self, action):
        reward = float(action == self.bright)
        return self._look(), reward, bool(self.np_random.random() < 0.1), False, {}

    def get_state(self):
        return {"bright": np.array(self.bright)}

    def set_state(self, state):
        self.bright = int(state["bright"])


def test_the_encoder_separates_pictures_from_everything_else():
    features, encode = observation_encoder(SPACE)
    assert isinstance(features, SeveralFeatures)
    assert int(features) == 12 * 11 + 10 * 10 + 2 + 3
    batch = {
        "camera": np.ones((4, 12, 11, 3), np.uint8),
        "joints": np.full((4, 2), 0.5),
        "more": (np.array([0, 1, 2, 0]), np.zeros((4, 10, 10), np.uint8)),
    }
    inputs = encode(batch)
    assert [picture.shape for picture in inputs.pictures] == [(4, 3, 12, 11), (4, 1, 10, 10)]
    assert inputs.rows[1].tolist() == [0.5, 0.5, 0.0, 1.0, 0.0]
    flat, _ = observation_encoder(SPACE, "flatten")
    assert flat == 12 * 11 * 3 + 2 + 3 + 100


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_fisher_product_is_the_dense_hessian_of_the_mean_kl():
    ours, rng = policy(), np.random.default_rng(0)
    theta, weight = rng.normal(size=ours.num_params) * 0.2, rng.uniform(0.5, 1.5, 6)
    inputs = random_inputs(rng, 6)

    def mean_kl(new):
        old, _ = ours.distribution_params(jnp.asarray(theta), inputs)
        kl = ours.distribution.kl(old=old, new=ours.distribution_params(new, inputs)[0])
        return jnp.sum(weight * kl)

    v = rng.normal(size=ours.num_params)
    gradient = jax.grad(mean_kl)
    expected = jax.jit(lambda t: jax.jvp(gradient, (t,), (v,))[1])(theta)
    ones = np.ones((6, 1))
    states = Inputs(stored(inputs.pictures), inputs.rows)
    batch = StateBatch(states, np.zeros((6, 1, 2)), ones, ones, weight, weight)
    chunks = cut(batch, 4, 2, np.float64)
    product = fisher_operator(ours, Curvature.ANALYTIC, jnp.asarray(theta), chunks)(v)
    assert np.linalg.norm(product - expected) < 1e-6 * np.linalg.norm(expected)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_fisher_product_of_pictures_with_memory_is_the_dense_hessian():
    config = PolicyConfig(hidden=(3, 3), channels=(2,), memory="gru", memory_units=2)
    ours, rng = build_policy(config, SPACE, spaces.Discrete(3)), np.random.default_rng(0)
    theta, weight = rng.normal(size=ours.num_params) * 0.2, rng.uniform(0.5, 1.5, 6)
    inputs = random_inputs(rng, 6)
    carry, starts = rng.normal(size=(2, ours.carry_size)), np.array([0, 0, 1, 0, 0, 0], bool)
    states = Sequences(inputs, starts, carry)

    def params(theta):
        return ours.distribution_params(theta, states)[0]

    def sum_kl(new):
        old = params(jnp.asarray(theta))
        return jnp.sum(weight * ours.distribution.kl(old=old, new=params(new)))

    v = rng.normal(size=ours.num_params)
    expected = jax.jit(lambda t: jax.jvp(jax.grad(sum_kl), (t,), (v,))[1])(theta)
    ones = np.ones((6, 1))
    states = states._replace(observation=Inputs(stored(inputs.pictures), inputs.rows))
    batch = StateBatch(states, np.zeros((6, 1, 1)), ones, ones, weight, weight)
    chunks = cut(batch, 3, 2, np.float64)  # A sequence per chunk.
    product = fisher_operator(ours, Curvature.ANALYTIC, jnp.asarray(theta), chunks)(v)
    assert np.linalg.norm(product - expected) < 1e-6 * np.linalg.norm(expected)


def test_standardizes_every_part_by_its_own_moments():
    rng = np.random.default_rng(0)
    inputs = random_inputs(rng, 30)
    frames = [picture[:, 0].reshape(30, -1) for picture in inputs.pictures]
    moments = Moments.of(np.concatenate([*frames, inputs.rows], axis=1), (237,))
    scaled = Standardizer(moments)(inputs)
    alone = PictureStandardizer(Moments.of(inputs.pictures[1][:, 0], (10, 10)))
    np.testing.assert_array_equal(scaled.pictures[1], alone(inputs.pictures[1]))
    rows = Standardizer(Moments.of(inputs.rows, (5,)))(inputs.rows)
    np.testing.assert_allclose(scaled.rows, rows, rtol=1e-6)


def test_an_own_encoder_replaces_the_one_of_its_key():
    class Mean:
        num_outputs, shapes, values_per_state = 1, ((1,),), 1

        def init(self, rng):
            return [np.ones(1)]

        def apply(self, weights, observation):
            scale = weights[0].__array_namespace__().asarray(observation, dtype=weights[0].dtype)
            return weights[0] * scale.mean(axis=(-3, -2, -1))[..., None]

    rng = np.random.default_rng(0)
    ours = policy(encoders={"camera": Mean(), "joints": MLP(2, (3,), 2)})
    assert [network.num_outputs for network in ours.network.encoders] == [1, 5, 2, 5]
    params, _ = ours.distribution_params(ours.init(rng), random_inputs(rng, 3))
    assert params.mean.shape == (3, 2)


@pytest.mark.parametrize(
    ("encoders", "error", "message"),
    [
        (
            {"nose": MLP(2, (), 2)},
            ValueError,
            "'nose', but the parts of the observation are camera",
        ),
        ({"camera": "conv"}, TypeError, "'camera' must be a network, but str has no num_outputs"),
        ({"joints": MLP(5, (), 2)}, ValueError, "'joints' must have the inputs 2, got 5"),
        ({"camera": MLP(396, (), 2)}, ValueError, r"the inputs \(3, 12, 11\), got 396"),
        ([MLP(2, (), 2)], TypeError, "encoders must map keys to networks, got list"),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused(encoders, error, message):
    with pytest.raises(error, match=message):
        policy(encoders=encoders)


def test_a_policy_must_fit_the_rule_for_pictures():
    flat = build_policy(PolicyConfig(pictures="flatten"), SPACE, ACTIONS)
    require_fit(flat, SPACE, ACTIONS, "Mine-v0", "flatten")
    require_fit(policy(), SPACE, ACTIONS, "Mine-v0")
    with pytest.raises(ValueError, match="must be a SeveralNetwork, as build_policy makes it, got"):
        require_fit(flat, SPACE, ACTIONS, "Mine-v0")
    config, own = PolicyConfig(pictures="flatten"), {"joints": MLP(2, (3,), 2)}
    with pytest.raises(ValueError, match="pictures must be convolve for encoders, got 'flatten'"):
        build_policy(config, SPACE, ACTIONS, encoders=own)


def test_the_critic_values_observations_in_chunks():
    features, _ = observation_encoder(SPACE)
    critic = MLPCritic(features, EstimationConfig(critic_hidden=(4,)), (2,))
    state, rng = critic.init(np.random.default_rng(0)), np.random.default_rng(1)
    inputs = random_inputs(rng, 40)
    inputs.rows = inputs.rows.astype(np.float32)
    value = critic.predict(state, inputs.reshape(8, 5, -1), np.zeros((8, 5)))
    assert value.shape == (8, 5)
    few = critic.predict(state, inputs[:5], np.zeros(5))
    np.testing.assert_allclose(value[0], few, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("sampler", ["single-path", "vine"])
def test_trains_from_pictures_and_resumes_exactly(sampler, memory, tmp_path):
    settings = {
        "policy": {"hidden": (8,), "channels": (2,), "memory": memory, "memory_units": 3},
        "sampling": {"num_envs": 4, "steps_per_env": 64, "sampler": sampler},
        "step": {"max_kl": 0.05},
    }
    if sampler == "vine":
        vine = {"trunks": 4, "trunk_length": 32, "states": 16, "rollout_length": 5}
        settings["sampling"]["vine"] = vine
    with trellis.TRPO(Seeing, **settings) as agent:
        agent.learn(1024, progress_bar=False)
        agent.save(tmp_path / "agent")
        agent.learn(512, progress_bar=False)
        theta = agent.theta
    with trellis.TRPO.load(tmp_path / "agent", env=Seeing) as agent:
        agent.learn(512, progress_bar=False)
        np.testing.assert_array_equal(agent.theta, theta)
        observation, _ = Seeing().reset(seed=0)
        act = agent.predict if memory == "none" else agent.episode()
        assert act(observation) in (0, 1)
