import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from trellis.envs import register as registration

registration.register_envs()
every_id = pytest.mark.parametrize("env_id", registration.IDS)


@every_id
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*")  # the state is unbounded
@pytest.mark.filterwarnings("ignore:.*For Box action spaces.*")  # Pendulum has ±2
@pytest.mark.filterwarnings("error")
def test_passes_the_check_of_gymnasium(env_id):
    check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


@every_id
def test_the_vector_environment_equals_single_environments(env_id):
    vector = gymnasium.make_vec(env_id, num_envs=3)
    singles = [gymnasium.make(env_id) for _ in range(3)]
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, _ = vector.reset(seed=5)
    for row, env in enumerate(singles):
        np.testing.assert_array_equal(first[row], env.reset(seed=5 + row)[0])
    vector.action_space.seed(0)
    going = np.ones(3, bool)
    for _ in range(40):
        actions = vector.action_space.sample()
        observation, reward, terminated, truncated, _ = vector.step(actions)
        for row in np.flatnonzero(going):
            single = singles[row].step(actions[row])
            np.testing.assert_array_equal(observation[row], single[0])
            assert (reward[row], terminated[row], truncated[row]) == single[1:4]
        going &= ~(terminated | truncated)


def test_an_end_is_followed_by_a_reset_in_the_next_step():
    vector = gymnasium.make_vec("trellis/PaperCartPole-v0", num_envs=4)
    vector.reset(seed=0)
    push = np.array([[1.0], [0.0], [-1.0], [0.0]], np.float32)
    ended = np.zeros(4, bool)
    resets = 0
    for _ in range(60):
        observation, reward, terminated, truncated, _ = vector.step(push)
        assert (np.abs(observation[ended]) <= 0.05).all()  # a new episode, whatever the action was
        assert not reward[ended].any()
        assert not (terminated | truncated)[ended].any()
        assert (reward[~ended] == ~terminated[~ended]).all()
        resets += ended.sum()
        ended = terminated | truncated
    assert resets > 4


def test_time_limits():
    vector = gymnasium.make_vec("trellis/PaperSwimmer-v0", num_envs=2)
    vector.reset(seed=0)
    single = gymnasium.make("trellis/PaperSwimmer-v0")
    single.reset(seed=0)
    still = np.zeros((2, 2), np.float32)
    for step in range(1, 1001):
        ends = vector.step(still)[3], single.step(still[0])[3]
        assert (ends[0] == (step == 1000)).all()
        assert ends[1] == (step == 1000)
    assert gymnasium.make_vec(
        "trellis/PaperSwimmer-v0", num_envs=1, max_episode_steps=7
    ).unwrapped.batch.max_episode_steps == 7  # fmt: skip


def test_seeds_per_environment_and_no_seed():
    vector = gymnasium.make_vec("trellis/PaperHopper-v0", num_envs=2)
    one, _ = vector.reset(seed=[3, 9])
    two, _ = vector.reset(seed=[9, 3])
    np.testing.assert_array_equal(one, two[::-1])
    three, _ = vector.reset()
    assert not np.array_equal(two, three)


def test_options_reach_the_environment():
    env = gymnasium.make("trellis/PaperHopper-v0", exclude_current_positions_from_observation=True)
    assert env.observation_space.shape == (11,)


def test_gymnasium_make_imports_and_registers_in_one_line():
    code = "import gymnasium; gymnasium.make('trellis.envs:trellis/PaperCartPole-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_does_not_import_mujoco():
    code = (
        "import sys, gymnasium, trellis.envs;"
        "assert 'trellis/PaperHopper-v0' in gymnasium.registry;"
        "assert 'mujoco' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
