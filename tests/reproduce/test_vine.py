"""The experiments on vine at a size that takes seconds: what they write, and what it says."""

import dataclasses
import json

import numpy as np
import pytest

from tests.reproduce.pages import check_page, claims
from trellis.config import TrainConfig
from trellis.policies.distributions import Categoricals
from trellis.reproduce import files
from trellis.reproduce.vine import bias, branches, experiment, variance
from trellis.sampling.proposals import Proposal, propose


def small(config: TrainConfig, **vine: int) -> TrainConfig:
    sampling = config.sampling
    return dataclasses.replace(
        config,
        sampling=dataclasses.replace(sampling, vine=dataclasses.replace(sampling.vine, **vine)),
    )


@pytest.mark.slow
def test_variances_are_measured_and_plotted(tmp_path, monkeypatch):
    (name, (hopper, _)), _ = variance.tasks().items()
    config = small(hopper, trunks=4, trunk_length=100, states=60, rollout_length=30)
    sweep = variance.VarianceSweep(batches=6, paths=10, noises=12, states=40, walk=30)
    monkeypatch.setattr(variance, "tasks", lambda: {name: (config, (0,))})
    results = experiment.VineVariance(tmp_path).run(print, sweep)
    assert json.loads((tmp_path / "vine-variance.json").read_text()) == results
    assert (tmp_path / "vine-variance.png").stat().st_size > 10_000
    assert claims(check_page(tmp_path))[0][1] == "holds"
    (row,) = results["rows"]
    # The initial policy hardly looks at the state: noise that is shared cancels for the most part.
    assert row["factor"] > 1.5
    vine, path = row["gradients"]["vine"], row["gradients"]["single path"]
    assert vine["q_values"] == 240
    timed = row["gradients"]["single path, time baseline"]
    assert timed["steps"] == path["steps"]
    assert "time baseline / vine" in (tmp_path / "README.md").read_text()
    assert path["q_values"] == path["steps"] == 1000
    assert vine["per_step"] == pytest.approx(vine["per_q_value"] * vine["steps"] / vine["q_values"])


def test_the_bias_of_each_proposal_on_a_finite_mdp(tmp_path):
    sweep = bias.BiasSweep(actions=5, tried=3, best=(0.9,), mdps=1, states=3)
    rows = experiment.VineBias(tmp_path).run(print, sweep)["rows"]
    found = {row["proposal"]: row for row in rows}
    assert found["every"]["cosine"] == pytest.approx(1)
    assert found["every"]["length"] == pytest.approx(1)
    # With q = π and K actions, the expected gradient is (1 − 1/K)∇L.
    assert found["policy"]["cosine"] == pytest.approx(1)
    assert found["policy"]["length"] == pytest.approx(2 / 3)
    assert found["uniform"]["cosine"] < found["mixture"]["cosine"] < 1
    check_page(tmp_path)


@pytest.mark.parametrize("name", ["uniform", "mixture"])
def test_enumeration_agrees_with_sampling(name):
    rng = np.random.default_rng(0)
    policy, q = np.array([0.7, 0.1, 0.1, 0.1]), rng.normal(size=4)
    mean, variance_of = bias.state_gradient(name, policy, q, 3)
    log_pi = np.broadcast_to(np.log(policy).astype(np.float32), (20_000, 4))
    action, log_q = propose(Proposal(name), Categoricals((4,)), log_pi, (3, 20_000), rng)
    action = action[..., 0].T
    weights = policy[action] / np.exp(log_q.T)
    weights /= weights.sum(axis=1, keepdims=True)
    parts = weights * (q[action] - (weights * q[action]).sum(axis=1, keepdims=True))
    sampled = np.zeros((20_000, 4))
    np.add.at(sampled, (np.arange(20_000)[:, None], action), parts)
    error = sampled.std(axis=0) / np.sqrt(20_000)
    assert np.all(np.abs(sampled.mean(axis=0) - mean) < 4 * error)
    assert sampled.var(axis=0).sum() == pytest.approx(variance_of, rel=0.05)


def test_noise_over_signal_of_known_gradients():
    rng = np.random.default_rng(0)
    mean = np.array([3.0, 4.0])
    gradients = mean + rng.normal(size=(4000, 2)) * [1.0, 2.0]
    measured = variance.noise_over_signal(gradients, q_values=4000 * 10, steps=4000 * 30)
    assert measured["noise_over_signal"] == pytest.approx((1 + 4) / 25, rel=0.05)
    assert measured["per_q_value"] == pytest.approx(10 * measured["noise_over_signal"])
    assert measured["per_step"] == pytest.approx(30 * measured["noise_over_signal"])
    with pytest.raises(RuntimeError, match="raise --batches"):
        variance.noise_over_signal(np.array([[1.0], [-1.0]]), 2, 2)
    with pytest.raises(ValueError, match="batches must be at least 2, got 1"):
        variance.VarianceSweep(batches=1)


def test_the_picture_shows_rollouts_that_start_on_the_trunks(tmp_path):
    samples, rollouts = branches.collect(
        0, trunks=2, trunk_length=30, states=5, actions=3, rollout_length=12
    )
    start = samples.raw_observation[tuple(samples.branches.place.T)]
    for k in range(3):
        np.testing.assert_allclose(rollouts[0, k], start, rtol=1e-6)
    assert rollouts.shape[1:3] == (3, 5)
    assert len(rollouts) == samples.branches.length.max() + 1
    record = branches.picture_record(samples, rollouts)
    assert len(record["rollouts"]) == 3
    assert [len(x) for x, _ in record["rollouts"][0]] == list(samples.branches.length[:, 0] + 1)
    assert sum(len(x) for x, _ in record["trunks"]) == 60
    files.write_json(tmp_path / "vine-branches.json", record)
    experiment.VinePicture(tmp_path, report_only=True).write_pages()
    assert (tmp_path / "vine-branches.png").stat().st_size > 10_000
    check_page(tmp_path)
