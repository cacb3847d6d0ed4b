"""Gains of consecutive policies against exact values on finite MDPs, and `trellis improvement`."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from scipy.special import stdtrit

from trellis import presets
from trellis.analysis.improvement import (
    Gain,
    choose,
    measure,
    play_episodes,
    promises,
    summarize,
)
from trellis.analysis.statistics import Estimate
from trellis.cli.main import main
from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, TrainConfig
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.saved import SavedPolicy
from trellis.runs.folder import write_config
from trellis.runs.kept_policies import kept_iterations, load_kept
from trellis.runs.run import resume, train
from trellis.theory import garnet
from trellis.theory.as_batch import to_batch
from trellis.training.trainer import Trainer

GAMMA, HORIZON, EPISODES = 0.7, 40, 400  # 0.7⁴⁰ = 6e-7: what is cut off does not matter.
MDP = garnet(num_states=6, num_actions=3, branching=3, rng=np.random.default_rng(4), gamma=GAMMA)
ESTIMATION = EstimationConfig(gamma=GAMMA, critic="none", normalize_observations=False)


def make_env(num_envs):
    return to_batch(MDP, num_envs, max_episode_steps=HORIZON)


def tabular_policies(count):
    """Policies of a random walk in θ, and the exact η of each."""
    env = make_env(1)
    spaces = env.observation_space, env.action_space
    policy = build_policy(PolicyConfig(hidden=()), *spaces)
    config = TrainConfig(env="FiniteMDP", estimation=ESTIMATION)
    rng, theta = np.random.default_rng(7), np.zeros(policy.num_params)
    for _ in range(count):
        theta = theta + rng.normal(size=theta.shape) / 3
        yield SavedPolicy(policy, theta, Moments.zeros((6,)), spaces, config)


def exact(saved):
    """η of a policy, by a linear solve."""
    logits, _ = saved.policy.distribution_params(saved.theta, np.eye(6))
    odds = np.exp(np.asarray(logits, np.float64))
    return MDP.performance(odds / odds.sum(axis=1, keepdims=True))


def test_measured_gains_agree_with_exact_ones():
    saved = list(tabular_policies(13))
    env = make_env(EPISODES)
    gains = measure(env, saved.__getitem__, range(1, 13), {}, seed=1)["discounted"]
    width = stdtrit(EPISODES - 1, 0.975)
    measured = np.array([gain.measured.value for gain in gains])
    standard = (np.array([gain.measured.high for gain in gains]) - measured) / width
    z = (measured - np.diff([exact(policy) for policy in saved])) / standard
    assert np.abs(z).max() < 3.5
    assert 0.3 < np.mean(z**2) < 2.5  # The intervals are neither too wide nor too narrow.
    assert np.abs(measured).max() > 3 * standard.max()  # There is something to find.


def test_common_random_numbers():
    one, other = tabular_policies(2)
    env = make_env(EPISODES)
    first, again, second = (play_episodes(env, saved, 0) for saved in (one, one, other))
    assert np.array_equal(first.discounted, again.discounted)
    assert np.array_equal(first.length, np.full(EPISODES, HORIZON))
    assert np.allclose(first.discounted_length, (1 - GAMMA**HORIZON) / (1 - GAMMA))
    paired = (second.discounted - first.discounted).std()
    assert paired < 0.8 * np.hypot(first.discounted.std(), second.discounted.std())
    same = measure(env, lambda _: one, [1, 2], {}, seed=0)["total"]
    assert [gain.measured for gain in same] == [Estimate(0.0, 0.0, 0.0)] * 2
    assert not any(gain.improves or gain.falls for gain in same)


def gain(iteration, value, half, predicted=None):
    return Gain(iteration, 10.0 * iteration, Estimate(value, value - half, value + half), predicted)


def test_the_summary_counts_what_is_certain():
    gains = [
        gain(1, 4, 1, 8),
        gain(2, 2, 3, 2),
        gain(3, -1, 2, 4),
        gain(4, -5, 1, 2),
        gain(5, 9, 2),
    ]
    found = summarize(gains)
    assert (found["improved"], found["fell"], found["undecided"]) == (2, 1, 2)
    assert found["improved_by_estimate_share"] == 0.6
    assert found["largest_fall"] == {
        "iteration": 4,
        "from": 40.0,
        "gain": -5,
        "interval_95": [-6, -4],
        "is_certain": True,
    }
    assert found["prediction"]["iterations"] == 4
    assert found["prediction"]["measured_over_predicted"] == 0.0
    assert summarize([gain(1, 4, 1)])["largest_fall"] is None
    assert summarize([gain(1, 4, 1)])["prediction"] is None


def test_iterations_are_spread_over_the_run():
    assert choose(range(1, 11), 20) == list(range(1, 11))
    assert choose(range(1, 101), 4) == [1, 34, 67, 100]


def test_a_promise_is_in_units_of_the_reward():
    rows = [
        {"iteration": 1, "surrogate_gain": 0.5, "surrogate_scale": 4.0},
        {"iteration": 2, "surrogate_gain": 0.5},
    ]
    assert promises(rows) == {1: 2.0}


def config(**changes):
    preset = presets.resolve("CartPole-v1")
    return dataclasses.replace(
        preset,
        total_steps=4 * 64,
        sampling=SamplingConfig(num_envs=4, steps_per_env=16),
        policy=dataclasses.replace(preset.policy, hidden=(8,)),
        estimation=dataclasses.replace(preset.estimation, critic_epochs=1),
        env_options={"max_episode_steps": 20},
        eval_every=0,
        eval_episodes=2,
        checkpoint_every=2 * 64,
        **changes,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of four iterations that kept its policies."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    trainer = Trainer(config(keep_policies=True))
    train(trainer, folder, quiet=True, tensorboard=False)
    trainer.close()
    return folder


def test_a_run_keeps_every_policy_also_if_it_is_resumed(run, tmp_path):
    assert kept_iterations(run) == [0, 1, 2, 3, 4]
    again = tmp_path / "again"
    shutil.copytree(run, again)
    shutil.rmtree(again / "checkpoints/000004")  # As after a kill in the fourth iteration.
    (again / "policies/000003/arrays.safetensors").write_bytes(b"a future that was left")
    resume(again, quiet=True, tensorboard=False)
    for iteration in kept_iterations(run):
        one, other = (load_kept(folder, iteration, config()) for folder in (run, again))
        assert np.array_equal(one.theta, other.theta)
        assert np.array_equal(one.observation_moments.squares, other.observation_moments.squares)
    assert kept_iterations(again) == [0, 1, 2, 3, 4]


def test_the_last_kept_policy_is_that_of_the_checkpoint(run):
    last, kept = SavedPolicy.load(run), load_kept(run, 4, config())
    assert np.array_equal(last.theta, kept.theta)
    assert (kept.iteration, kept.steps) == (4, 256)


def test_the_command(run, capsys):
    assert main(["improvement", str(run), "--episodes", "3", "--pairs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["iteration"] for row in found["total"]["gains"]] == [1, 4]
    assert all(row["predicted"] is not None for row in found["discounted"]["gains"])
    assert found["total"]["prediction"]["mean_predicted"] > 0
    assert main(["improvement", str(run), "--episodes", "2", "--pairs", "1"]) == 0
    assert "measured / predicted" in capsys.readouterr().out


def test_a_run_without_policies_names_the_command(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "old", ignore=shutil.ignore_patterns("policies"))
    write_config(tmp_path / "old", config())
    assert main(["improvement", str(tmp_path / "old")]) == 2
    assert "--keep-policies --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--episodes", "1"], ["--pairs", "0"], ["--seed", "-1"]], ids=lambda o: o[0]
)
def test_bad_options(run, options, capsys):
    assert main(["improvement", str(run), *options]) == 2
    assert "must be at least" in capsys.readouterr().err


@pytest.mark.slow
def test_predicted_gains_agree_with_the_surrogate_on_an_mdp(tmp_path):
    """With states weighted by γᵗ and many samples, the promise is L_π(π̃) − η(π) of Eq. 3."""
    preset = presets.resolve("CartPole-v1")
    settings = dataclasses.replace(
        preset,
        env="FiniteMDP",
        total_steps=6 * 2000 * HORIZON,
        sampling=SamplingConfig(num_envs=2000, steps_per_env=HORIZON, whole_paths=True),
        policy=PolicyConfig(hidden=()),
        estimation=dataclasses.replace(ESTIMATION, discount_states=True, baseline="time"),
        eval_episodes=2,
        keep_policies=True,
    )
    trainer = Trainer(settings, make_env)
    rows = []
    train(trainer, tmp_path / "run", quiet=True, callbacks=[lambda _, row: rows.append(dict(row))])
    trainer.close()
    promised = promises(rows)
    length = (1 - GAMMA**HORIZON) / (1 - GAMMA)

    def table(iteration):
        saved = load_kept(tmp_path / "run", iteration, settings)
        logits, _ = saved.policy.distribution_params(saved.theta, np.eye(6, dtype=np.float32))
        odds = np.exp(np.asarray(logits, np.float64))
        return odds / odds.sum(axis=1, keepdims=True)

    for iteration, promise in promised.items():
        gain = MDP.evaluate(table(iteration - 1)).surrogate_gain(table(iteration))
        assert promise * length == pytest.approx(gain, rel=0.15)
