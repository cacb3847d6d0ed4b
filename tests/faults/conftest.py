"""Counts of the fault suite: how many faults of each class were tried, and how many held.

A test counts its trials with the fixture `trial`. Every process writes its counts to
`build/faults/`; `python -m tests.faults.table` makes the table in docs/reference/faults.md of them.
"""

import dataclasses

import pytest

from tests.faults.counts import TRIED, count_trial, write_counts
from trellis import TRPO, presets
from trellis.runs.run import train
from trellis.training.trainer import Trainer


@pytest.fixture(scope="session")
def trial():
    return count_trial


@pytest.fixture(scope="session")
def good_run(tmp_path_factory):
    """A finished run of two iterations, with the programs of the command line's tests."""
    preset = presets.resolve("CartPole-v1")
    config = dataclasses.replace(
        preset,
        total_steps=2 * 64,
        sampling=dataclasses.replace(preset.sampling, num_envs=4, steps_per_env=16),
        policy=dataclasses.replace(preset.policy, hidden=(8,)),
        estimation=dataclasses.replace(preset.estimation, critic_epochs=1),
        checkpoint_every=64,
        eval_every=64,
        eval_episodes=2,
        keep_policies=True,
        env_options={"max_episode_steps": 20},
    )
    folder = tmp_path_factory.mktemp("good") / "run"
    trainer = Trainer(config)
    train(trainer, folder, quiet=True, tensorboard=False)
    trainer.close()
    return folder


@pytest.fixture(scope="session")
def good_agent(good_run):
    """The agent of that run, saved."""
    agent = TRPO.load(good_run)
    agent.save(good_run.with_name("agent"))
    agent.close()
    return good_run.with_name("agent")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts of a run of the whole suite, which selects the marker `fault`."""
    if TRIED and "fault" in str(session.config.option.markexpr):
        write_counts()
