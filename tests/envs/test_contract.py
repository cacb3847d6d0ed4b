"""Runs the contract suite on every batched environment of Trellis."""

from functools import partial

import pytest

import trellis.envs
from tests.envs import contract
from trellis.envs.batch import Restorability
from trellis.envs.mujoco import paper, v5

# Short episodes, so that environments that never terminate have ends too.
LIMIT = 25
SMALL = (
    *("Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    *("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"),
    *("Taxi-v4", "Blackjack-v1"),
)
MEMORY = ("trellis/TMaze-v0", "trellis/Repeat-v0", "trellis/PendulumNoVelocity-v0")
OURS = ("CartPole-v1", "trellis/PaperCartPole-v0", *MEMORY)
IDS = (*SMALL, *v5.TASKS, *paper.TASKS, *OURS)
MAKERS = {env_id: partial(trellis.envs.make, env_id, max_episode_steps=LIMIT) for env_id in IDS}
MAKERS["Ant-v5"] = partial(MAKERS["Ant-v5"], frame_skip=1)  # a fifth of the physics
SLOW = ("Humanoid-v5", "HumanoidStandup-v5")
every_environment = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=env_id, marks=pytest.mark.slow if env_id in SLOW else ())
        for env_id, make in MAKERS.items()
    ],
)


@every_environment
def test_snapshots_replay(make):
    assert make(1).restorability is Restorability.SERIALIZABLE
    contract.check_replay(make, pairs=192)


@every_environment
def test_the_last_step_replays(make):
    contract.check_replay_of_ends(make, pairs=64)


@pytest.mark.slow
@every_environment
def test_ten_thousand_snapshots_replay(make):
    contract.check_replay(make, pairs=10_000, num_envs=128)
    contract.check_replay_of_ends(make, pairs=10_000, num_envs=128)


@every_environment
def test_inactive_environments_do_not_change(make):
    contract.check_mask(make)


@every_environment
def test_episodes_are_functions_of_their_seed(make):
    contract.check_seeds(make)


@every_environment
def test_returned_arrays_are_never_written_to_again(make):
    contract.check_handed_out(make)
