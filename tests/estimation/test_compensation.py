"""Networks stay the same functions when observation statistics move."""

import dataclasses

import numpy as np
import pytest

from tests.training.cases import CARTPOLE, SINGLE_PATH, VINE, bytes_of
from trellis.config import EstimationConfig, PolicyConfig, StepConfig, TrainConfig
from trellis.estimation.compensation import compensated, compensated_critic, require_compensable
from trellis.estimation.critic import LinearCritic, MLPCritic
from trellis.moments import Moments
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import DiagGaussian
from trellis.policies.networks import MLP, unflatten
from trellis.policies.normalizer import Standardizer
from trellis.policies.policy import Policy
from trellis.training.trainer import Trainer

ON = EstimationConfig(compensate_normalization=True)
RNG = np.random.default_rng(3)
RAW = RNG.normal([5.0, -2.0, 0.1], [3.0, 0.5, 0.02], size=(400, 3))
OLD, NEW = Moments.of(RAW[:100] * 0.8, (3,)), Moments.of(RAW, (3,))


def outputs(network, vector, moments, raw=RAW):
    """Outputs for observations that are standardized in the precision of the parameters."""
    standardizer = Standardizer(moments)
    x = (raw - standardizer.mean) * standardizer.factor.astype(vector.dtype)
    assert np.abs(x).max() < 10  # The clip does not act.
    return network.apply(unflatten(network, vector)[0], x.astype(vector.dtype))


@pytest.mark.parametrize("hidden", [(), (8,), (8, 4)], ids=str)
@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_outputs_do_not_change(hidden, dtype, error):
    network = MLP(3, hidden, 2, output_scale=1.0)
    policy = Policy(network, DiagGaussian(2))
    theta = RNG.normal(size=policy.num_params).astype(dtype)
    moved = compensated(network, theta, OLD, NEW)
    assert (moved.dtype, moved.shape) == (dtype, theta.shape)
    before = outputs(network, theta, OLD)
    np.testing.assert_allclose(outputs(network, moved, NEW), before, rtol=0, atol=error * 10)
    unmoved = outputs(network, theta, NEW)
    assert np.abs(unmoved - before).max() > 0.1  # Without compensation they do change.


def test_the_critic_keeps_its_values():
    critic = MLPCritic(3, EstimationConfig(critic_hidden=(8,)))
    state = critic.init(np.random.default_rng(0))
    moved = compensated_critic(critic, state, OLD, NEW)
    before = outputs(critic.network, state["weights"], OLD)
    np.testing.assert_allclose(outputs(critic.network, moved["weights"], NEW), before, atol=2e-5)
    assert np.array_equal(moved["adam_nu"], state["adam_nu"])
    linear = LinearCritic(3)
    assert compensated_critic(linear, {"coefficients": np.ones(10)}, OLD, NEW)["coefficients"].all()


def test_what_is_left_alone():
    network = MLP(3, (4,), 1)
    theta = RNG.normal(size=21).astype(np.float32)
    assert compensated(network, theta, Moments.zeros((3,)), NEW) is theta
    assert np.array_equal(compensated(network, theta, OLD, OLD), theta)
    constant = RAW.copy()
    constant[:, 2] = 7.0  # A sensor that was constant so far.
    moved = compensated(network, theta, Moments.of(constant[:100], (3,)), NEW)
    assert np.array_equal(moved[8:12], theta[8:12])
    assert np.abs(moved).max() < 100


def test_networks_that_cannot_absorb_a_change():
    pictures = Policy(ConvNet((4, 36, 36), (4, 4), (8,), 2), DiagGaussian(2))
    no_biases = Policy(MLP(3, (8,), 2, hidden_biases=False), DiagGaussian(2))
    linear = Policy(MLP(3, (), 2, hidden_biases=False), DiagGaussian(2))
    require_compensable(linear, None)
    for policy in (pictures, no_biases):
        with pytest.raises(ValueError, match="dense layers with biases"):
            require_compensable(policy, None)


@pytest.mark.parametrize(
    "settings",
    [
        {"estimation": EstimationConfig(compensate_normalization=True, critic="linear")},
        {
            "estimation": EstimationConfig(
                compensate_normalization=True, normalize_observations=False
            )
        },
        {"policy": PolicyConfig(hidden=(8,), hidden_biases=False)},
        {"step": StepConfig(method="cem")},
    ],
    ids=["linear critic", "no statistics", "no biases", "cem"],
)
def test_settings_that_do_not_go_together(settings):
    default = {"estimation": ON}
    with pytest.raises(ValueError, match="compensate_normalization must be False"):
        TrainConfig("CartPole-v1", **{**default, **settings})


def config(sampling):
    estimation = dataclasses.replace(CARTPOLE.estimation, compensate_normalization=True)
    if sampling is VINE:
        estimation = dataclasses.replace(estimation, critic="none")
    return dataclasses.replace(CARTPOLE, sampling=sampling, estimation=estimation)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [SINGLE_PATH, VINE],
    ids=["single path", "vine"],
)
def test_a_run_in_shards_keeps_its_policy_and_resumes_exactly(sampling):
    trainer = Trainer(config(sampling))
    state, _ = trainer.iterate(trainer.start())
    saved = trainer.to_checkpoint(state)
    kls = []
    for _ in range(2):
        state, metrics = trainer.iterate(state)
        kls.append(metrics["normalization_kl"])
    assert max(kls) < 1e-5
    whole = bytes_of(trainer, state)
    again = trainer.from_checkpoint(*saved)
    for _ in range(2):
        again, _ = trainer.iterate(again)
    assert bytes_of(trainer, again) == whole
    trainer.close()
