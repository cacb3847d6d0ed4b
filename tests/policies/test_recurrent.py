"""Tests of policies with memory: cells, sequences, L, KL and F·v through time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from tests.problems import random_theta
from trellis.config import PolicyConfig, StepConfig
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator, gradient_and_outputs, sum_evaluation
from trellis.optimization.fisher import choose_rows, fisher_operator
from trellis.optimization.rules import Curvature
from trellis.optimization.trust_region import TrustRegion, local_step
from trellis.policies import (
    GRU,
    LSTM,
    MLP,
    Categoricals,
    DiagGaussian,
    Policy,
    RecurrentNet,
    Sequences,
    build_policy,
)
from trellis.policies.convolutions import ConvNet
from trellis.policies.recurrent import NoEncoder

SEQUENCES, LENGTH = 4, 5
ENCODER = MLP(3, (), 4, output_scale=1.0)
POLICIES = {
    "gru": Policy(RecurrentNet(ENCODER, GRU(3), 2), DiagGaussian(2)),
    "lstm": Policy(RecurrentNet(NoEncoder(3), LSTM(3), 3), Categoricals((3,))),
}
policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def fast_for(name):
    """Run a test with both policies; only one is in the fast suite, because each is compiled."""
    cases = [
        pytest.param(policy, id=key, marks=[] if key == name else pytest.mark.slow)
        for key, policy in POLICIES.items()
    ]
    return pytest.mark.parametrize("policy", cases)


def sequence_batch(policy, theta, rng, *, dtype=np.float64, sequences=SEQUENCES):
    """Return sequences with episodes that start inside them, played step by step in NumPy."""
    shape = sequences, LENGTH
    observation = rng.normal(size=(*shape, 3)).astype(dtype)
    starts = rng.random(shape) < 0.3
    starts[0], starts[1, 2] = False, True
    first = rng.normal(size=(sequences, policy.carry_size)).astype(dtype) * 0.5
    distribution, carry, action, log_q = policy.distribution, first, [], []
    for t in range(LENGTH):
        carry = np.where(starts[:, t, None], 0.0, carry)
        params, carry = policy.distribution_params(theta, observation[:, t], carry)
        action.append(distribution.sample(params, distribution.noise(rng, (sequences,))))
        log_q.append(distribution.log_prob(params, action[-1]))
    n = sequences * LENGTH
    action, log_q = np.stack(action, 1).reshape(n, 1, -1), np.stack(log_q, 1).reshape(n, 1)
    weight = rng.uniform(0.2, 1.5, size=n).astype(dtype)
    value = (np.tanh(action[..., 0]) + rng.normal(size=(n, 1))).astype(dtype)
    states = Sequences(observation.reshape(n, 3), starts.ravel(), first)
    return StateBatch(states, action, log_q.astype(dtype), value, weight, 2.5 * weight[::-1])


def problem(policy, seed=0, **kind):
    rng = np.random.default_rng(seed)
    theta = random_theta(policy, rng).astype(kind.get("dtype", np.float64))
    return rng, theta, sequence_batch(policy, theta, rng, **kind)


@fast_for("gru")
@pytest.mark.usefixtures("x64")
def test_fisher_product_is_the_hessian_of_the_mean_kl(policy):
    rng, theta, batch = problem(policy)

    def sum_kl(new, old):
        outputs = [policy.outputs(point, batch.observation) for point in (old, new)]
        params = [policy.params_of(p, o) for p, o in zip((old, new), outputs, strict=True)]
        return jnp.sum(batch.kl_weight * policy.distribution.kl(old=params[0], new=params[1]))

    hessian = np.asarray(jax.jit(jax.hessian(sum_kl))(theta, theta))
    chunks = cut(batch, 2 * LENGTH, 3, np.float64)
    product = jax.jit(lambda v: fisher_operator(policy, Curvature.ANALYTIC, theta, chunks)(v))
    for v in rng.normal(size=(3, policy.num_params)):
        expected = hessian @ v
        assert np.linalg.norm(product(v) - expected) < 1e-6 * np.linalg.norm(expected)


@fast_for("lstm")
def test_recomputed_log_probabilities_equal_those_of_sampling(policy):
    _, theta, batch = problem(policy, dtype=np.float32)

    @jax.jit
    def log_prob(states):
        params, _ = policy.distribution_params(theta, states)
        return policy.distribution.log_prob(params, batch.action[:, 0])

    states = batch.observation
    np.testing.assert_allclose(log_prob(states), batch.log_q[:, 0], rtol=2e-5, atol=2e-6)
    forgetful = states._replace(starts=np.zeros(SEQUENCES * LENGTH, bool))
    assert np.abs(log_prob(forgetful) - batch.log_q[:, 0]).max() > 1e-3


@fast_for("gru")
def test_kl_of_equal_parameters_is_exactly_zero(policy):
    _, theta, batch = problem(policy, dtype=np.float32, sequences=7)
    chunks = cut(batch, 2 * LENGTH, 4, np.float32)

    @jax.jit
    def evaluate(old, new):
        _, outputs = gradient_and_outputs(policy, Estimator.IMPORTANCE, old, chunks)
        return sum_evaluation(policy, Estimator.IMPORTANCE, old, new, chunks, outputs)

    sums = evaluate(theta, theta.copy())
    assert (sums.gain, sums.kl, sums.max_kl) == (0.0, 0.0, 0.0)


@pytest.mark.slow
@fast_for("lstm")
@pytest.mark.usefixtures("x64")
def test_gradient_is_that_of_episodes_played_step_by_step(policy):
    rng, theta, batch = problem(policy, seed=1)
    states = batch.observation

    def surrogate(theta):
        total = 0.0
        for sequence in range(SEQUENCES):
            carry = states.carry[sequence : sequence + 1]
            for row in range(sequence * LENGTH, (sequence + 1) * LENGTH):
                carry = np.zeros_like(carry) if states.starts[row] else carry
                observation = states.observation[row : row + 1]
                params, carry = policy.distribution_params(theta, observation, carry)
                log_prob = policy.distribution.log_prob(params, batch.action[row])
                ratio = np.exp(log_prob - batch.log_q[row])
                total += np.sum(batch.surrogate_weight[row] * ratio * batch.value[row])
        return total

    chunks = cut(batch, LENGTH, 5, np.float64)
    gradient = jax.jit(gradient_and_outputs, static_argnums=(0, 1))
    sums, _ = gradient(policy, Estimator.IMPORTANCE, theta, chunks)
    v = rng.normal(size=policy.num_params)
    step = 1e-6 * v
    slope = (surrogate(theta + step) - surrogate(theta - step)) / 2e-6
    assert sums.gradient @ v == pytest.approx(float(slope), rel=1e-6)


def test_fisher_subset_holds_whole_sequences():
    weight = np.ones((100, 50))
    weight[::2] = 0
    rows = choose_rows(weight.ravel(), 0.1, np.random.default_rng(0), length=50)
    assert len(rows) == 20  # at least 1,000 states
    assert (rows % 2 == 1).all()
    policy = POLICIES["gru"]
    _, theta, batch = problem(policy, dtype=np.float32, sequences=300)
    region = TrustRegion(policy, StepConfig(), expected_states=1500, sequence_length=LENGTH)
    chunks, subset = region.cut(theta, batch, np.random.default_rng(1))
    size = chunks.batch.kl_weight.shape[1]
    assert size % LENGTH == 0
    assert chunks.batch.observation.carry.shape[1] == size // LENGTH
    assert subset.batch.kl_weight.astype(bool).sum() == 1000
    carries = subset.batch.observation.carry.reshape(-1, policy.carry_size)
    found = (batch.observation.carry[:, None] == carries[:200]).all(axis=-1).any(axis=0)
    assert found.all()


def test_a_chunk_that_would_cut_a_sequence_is_refused():
    _, theta, batch = problem(POLICIES["gru"], dtype=np.float32)
    region = TrustRegion(POLICIES["gru"], StepConfig(), expected_states=20)
    with pytest.raises(ValueError, match="would cut sequences of 5"):
        region.cut(theta, batch, np.random.default_rng(0))


@pytest.mark.slow
@policies
def test_chunks_and_capacity_do_not_change_the_step(policy):
    _, theta, batch = problem(policy, dtype=np.float32, sequences=12)
    steps = [
        local_step(
            policy,
            StepConfig(),
            Estimator.IMPORTANCE,
            theta,
            *(cut(batch, size * LENGTH, capacity, np.float32) for _ in range(2)),
        )[0]
        for size, capacity in ((12, 1), (3, 4), (3, 8))
    ]
    assert steps[1].tobytes() == steps[2].tobytes()
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-3, atol=1e-4)


def test_a_policy_with_memory_needs_a_carry():
    policy = POLICIES["gru"]
    theta = policy.init(np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs a carry: start an episode with initial_carry"):
        policy.distribution_params(theta, np.zeros((2, 3)))
    carry = policy.initial_carry(2)
    assert carry.shape == (2, 3)
    assert Policy(MLP(3, (), 2), DiagGaussian(2)).initial_carry(2) is None


@pytest.mark.parametrize(
    ("memory", "hidden", "cell", "encoder"),
    [
        ("gru", (8, 4), GRU(6), MLP(5, (8,), 4, output_scale=2**0.5)),
        ("lstm", (), LSTM(6), NoEncoder(5)),
    ],
)
def test_build_policy_puts_the_memory_after_the_hidden_layers(memory, hidden, cell, encoder):
    config = PolicyConfig(hidden=hidden, memory=memory, memory_units=6)
    policy = build_policy(config, spaces.Box(-1, 1, (5,)), spaces.Discrete(3))
    assert policy.network == RecurrentNet(encoder, cell, 3)


@pytest.mark.slow
def test_pictures_are_encoded_in_pieces_with_the_same_result():
    encoder = ConvNet((1, 12, 12), (2,), (), 3, output_scale=1.0)
    policy = Policy(RecurrentNet(encoder, GRU(2), 2), Categoricals((2,)))
    rng = np.random.default_rng(0)
    theta = random_theta(policy, rng).astype(np.float32)
    pictures = rng.integers(0, 255, (6, 1, 12, 12)).astype(np.uint8)
    states = Sequences(pictures, np.zeros(6, bool), np.zeros((2, 2), np.float32))
    outputs = np.asarray(policy.outputs(theta, states))
    weights, _ = policy.unflatten(theta)
    carry = policy.initial_carry(2)
    for t in range(3):
        expected, carry = policy.network.step(weights, pictures[[t, 3 + t]], carry)
        np.testing.assert_allclose(outputs[[t, 3 + t]], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("memory", "gate"), [("gru", 0), ("lstm", 1)])
def test_the_span_bounds_how_long_units_remember_at_first(memory, gate):
    box = spaces.Box(-1.0, 1.0, (3,))
    biases = []
    for span in (1.0, 8.0):
        config = PolicyConfig(hidden=(), memory=memory, memory_units=50, memory_span=span)
        policy = build_policy(config, box, box)
        weights, _ = policy.unflatten(policy.init(np.random.default_rng(0)))
        biases.append(weights[2][50 * gate : 50 * (gate + 1)])
    assert not biases[0].any()
    assert 0 <= biases[1].min() < biases[1].max() <= np.log(8.0)
    assert biases[1].max() > np.log(6.0)
