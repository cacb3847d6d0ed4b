"""The candidates of the recipe study: changes to the presets, most promising first."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Changes = Mapping[str, Mapping[str, Any]]


class Candidate(NamedTuple):
    """A change that applies to the preset of every task."""

    name: str
    """Name on the command line and in the results."""
    about: str
    """What changes, in a few words."""
    changes: Changes
    """Changed settings by group, as `trellis.config.changes.changed` takes them."""


def _estimation(name: str, about: str, **settings: Any) -> Candidate:
    return Candidate(name, about, {"estimation": settings})


def _step(name: str, about: str, **settings: Any) -> Candidate:
    return Candidate(name, about, {"step": settings})


def _sampling(name: str, about: str, **settings: Any) -> Candidate:
    return Candidate(name, about, {"sampling": settings})


def _policy(name: str, about: str, **settings: Any) -> Candidate:
    return Candidate(name, about, {"policy": settings})


BASELINE = Candidate("baseline", "the preset as it is", {})
CANDIDATES = {
    candidate.name: candidate
    for candidate in (
        BASELINE,
        _sampling("short-segments", "64 environments × 32 steps", num_envs=64, steps_per_env=32),
        _step("fisher-0.25", "Fisher matrix on a quarter, at least 1,000", fisher_fraction=0.25),
        _step("max-kl-decay", "δ decays to 0.002", final_max_kl=0.002),
        Candidate(
            "both-decay",
            "20 epochs; rate decays to 0, δ from 0.02 to 0.002",
            {
                "estimation": {"critic_epochs": 20, "final_critic_learning_rate": 0.0},
                "step": {"max_kl": 0.02, "final_max_kl": 0.002},
            },
        ),
        Candidate(
            "fast",
            "64 × 32 steps, Fisher matrix on a quarter, δ decays to 0.002",
            {
                "sampling": {"num_envs": 64, "steps_per_env": 32},
                "step": {"fisher_fraction": 0.25, "final_max_kl": 0.002},
            },
        ),
        Candidate(
            "both-decay-log-std--0.5",
            "both-decay with an initial log std of −0.5",
            {
                "policy": {"initial_log_std": -0.5},
                "estimation": {"critic_epochs": 20, "final_critic_learning_rate": 0.0},
                "step": {"max_kl": 0.02, "final_max_kl": 0.002},
            },
        ),
        _step("cg-25", "25 conjugate gradient iterations", cg_iterations=25),
        _policy("log-std--0.5", "initial log std −0.5", initial_log_std=-0.5),
        _estimation("epochs-20", "20 critic epochs", critic_epochs=20),
        _estimation("rate-decay", "critic's rate decays to 0", final_critic_learning_rate=0.0),
        _step("max-kl-0.02-decay", "δ from 0.02 to 0.002", max_kl=0.02, final_max_kl=0.002),
        _sampling("batch-1024", "16 environments × 64 steps", num_envs=16, steps_per_env=64),
        _sampling("long-segments", "16 environments × 128 steps", num_envs=16, steps_per_env=128),
        Candidate(
            "batch-1024-decay",
            "16 environments × 64 steps with the decays of both-decay",
            {
                "sampling": {"num_envs": 16, "steps_per_env": 64},
                "estimation": {"critic_epochs": 20, "final_critic_learning_rate": 0.0},
                "step": {"max_kl": 0.02, "final_max_kl": 0.002},
            },
        ),
        _estimation("horizon", "γ 0.995, λ 0.97", gamma=0.995, gae_lambda=0.97),
        _estimation("lambda-0.9", "λ 0.9", gae_lambda=0.9),
        _estimation("compensation", "first layers compensated", compensate_normalization=True),
        _estimation(
            "average", "average reward, reset cost 100", criterion="average", reset_cost=100.0
        ),
        _sampling("batch-4096", "64 environments × 64 steps", num_envs=64, steps_per_env=64),
        _policy("log-std--1", "initial log std −1", initial_log_std=-1.0),
        Candidate(
            "wide",
            "networks 128 × 128",
            {"policy": {"hidden": (128, 128)}, "estimation": {"critic_hidden": (128, 128)}},
        ),
        _estimation("wide-critic", "critic 256 × 256", critic_hidden=(256, 256)),
        _step("max-kl-0.02", "δ 0.02", max_kl=0.02),
        _step("entropy", "entropy bonus 0.001", entropy_bonus=0.001),
        _estimation("epochs-5", "5 critic epochs", critic_epochs=5),
        _step("damping-0.01", "damping 0.01", damping=0.01),
        _step("fisher-all", "Fisher matrix on all samples", fisher_fraction=1.0),
        _estimation("minibatch-64", "critic minibatches of 64", critic_minibatch=64),
        _estimation("raw-rewards", "rewards not normalized", normalize_rewards=False),
    )
}
"""All candidates by name, in the order in which they are run."""
