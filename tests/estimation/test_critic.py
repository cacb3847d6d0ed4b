import jax
import numpy as np
import pytest

import trellis.estimation.critic as critic_module
from trellis.config import EstimationConfig
from trellis.estimation.critic import LinearCritic, MLPCritic
from trellis.sampling.frames import FrameStore, Stacks


def mlp(features, **settings):
    return MLPCritic(features, EstimationConfig(**settings))


NETWORK = mlp(3, critic_hidden=(32, 32), critic_learning_rate=3e-3)


def data(seed=0, n=2000):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    age = rng.integers(0, 50, size=n)
    return x, age, (2 * x[:, 0] - x[:, 1] ** 2 + 0.02 * age + 1).astype(np.float32)


def test_the_linear_critic_finds_a_function_of_its_features():
    critic = LinearCritic(3, ridge=0.0)
    x, age, target = data()
    rng = np.random.default_rng(0)
    state, _ = critic.fit(critic.init(rng), x, age, target, rng)
    np.testing.assert_allclose(critic.predict(state, x, age), target, atol=1e-4)


def test_the_network_learns_and_adam_continues_from_its_state():
    critic = NETWORK
    x, _, _ = data()
    target = np.sin(x[:, 0]) + x[:, 1]
    state = critic.init(np.random.default_rng(0))
    losses = []
    for i in range(8):
        state, loss = critic.fit(state, x, None, target, np.random.default_rng(i))
        losses.append(loss)
    assert losses[-1] < 0.02 * np.var(target)
    assert state["adam_count"] == 8 * 10 * (2000 // 128)
    error = critic.predict(state, x, None) - target
    assert np.mean(error**2) < 0.02 * np.var(target)


def test_a_fit_that_diverges_is_undone(caplog):
    critic = mlp(3, critic_hidden=(32, 32), critic_learning_rate=1e30)
    x, _, target = data()
    state = critic.init(np.random.default_rng(0))
    after, loss = critic.fit(state, x, None, target, np.random.default_rng(1))
    assert not np.isfinite(loss)
    assert after is state
    assert "Try a smaller critic_learning_rate" in caplog.text


def test_the_fit_is_plain_adam():
    """A fit with one minibatch of all samples equals Adam written out."""
    critic = mlp(
        2, critic_hidden=(), critic_learning_rate=0.1, critic_epochs=3, critic_minibatch=100
    )
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(50, 2)).astype(np.float32), rng.normal(size=50)
    state = critic.init(rng)
    w = state["weights"].astype(np.float64)
    mu = nu = 0.0
    design = np.concatenate([x, np.ones((50, 1))], axis=1)
    for t in range(1, 4):
        gradient = 2 * design.T @ (design @ w - target) / 50
        mu, nu = 0.9 * mu + 0.1 * gradient, 0.999 * nu + 0.001 * gradient**2
        w -= 0.1 * (mu / (1 - 0.9**t)) / (np.sqrt(nu / (1 - 0.999**t)) + 1e-8)
    state, _ = critic.fit(state, x, None, target, np.random.default_rng(1))
    np.testing.assert_allclose(state["weights"], w, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("minibatch", [64, 70])
def test_minibatches_of_pictures_equal_the_sum_of_their_pieces(minibatch, monkeypatch):
    """Minibatches consist of whole pieces and a remainder; all rows have equal weight."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(140, 2, 14, 14), dtype=np.uint8)
    target = rng.normal(size=140)

    def fit(at_once, rows):
        monkeypatch.setattr(critic_module, "PICTURES_AT_ONCE", at_once)
        settings = EstimationConfig(critic_hidden=(8,), critic_epochs=2, critic_minibatch=rows)
        network = MLPCritic((2, 14, 14), settings, (4, 4))
        state = network.init(np.random.default_rng(1))
        return network.fit(state, pictures, None, target, np.random.default_rng(2))

    pieces, loss = fit(32, minibatch)
    jax.clear_caches()
    whole, loss_of_whole = fit(1000, minibatch)
    jax.clear_caches()
    np.testing.assert_allclose(pieces["adam_mu"], whole["adam_mu"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss, loss_of_whole, rtol=1e-5)


def test_stored_pictures_give_the_fit_and_the_values_of_xla():
    """Stored frames go through numba's code, and plain pictures through XLA."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    store = FrameStore(50, (14, 14), np.int8)
    store.add(rng.integers(-128, 128, size=(50, 14, 14), dtype=np.int8))
    stacks = Stacks(rng.integers(0, 50, size=(140, 2)).astype(np.int32), store)
    settings = EstimationConfig(critic_hidden=(8,), critic_epochs=2, critic_minibatch=70)
    critic = MLPCritic((2, 14, 14), settings, (4, 4))
    start, target = critic.init(rng), rng.normal(size=140)
    fits = [
        critic.fit(start, x, None, target, np.random.default_rng(1), rate)
        for x, rate in ((stacks, None), (np.asarray(stacks), None), (stacks, 0.0))
    ]
    (ours, loss), (theirs, other), (still, _) = fits
    assert loss == pytest.approx(other, rel=1e-5)
    assert ours["adam_count"] == theirs["adam_count"] == 4
    for name in ("weights", "adam_mu", "adam_nu"):
        scale = np.abs(theirs[name]).max()
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4 * scale)
    assert still["weights"].tobytes() == start["weights"].tobytes()
    values = [critic.predict(ours, x, None) for x in (stacks.reshape(2, 70), np.asarray(stacks))]
    assert values[0].shape == (2, 70)
    np.testing.assert_allclose(values[0].ravel(), values[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("critic", [NETWORK, LinearCritic(3)], ids=["mlp", "linear"])
def test_the_same_seed_gives_the_same_bytes(critic):
    x, age, target = data(1)
    results = [
        critic.fit(critic.init(np.random.default_rng(0)), x, age, target, np.random.default_rng(2))[
            0
        ]
        for _ in range(2)
    ]
    for name in results[0]:
        assert results[0][name].tobytes() == results[1][name].tobytes()
