"""Every JAX suite that is installed keeps the environment contract."""

import functools

import numpy as np
import pytest

import trellis.envs
from tests.envs import contract
from trellis.envs.jax import batch as jax_batch
from trellis.envs.jax import suites

# Short episodes, so that environments that never terminate have ends too.
LIMIT = 15
IDS = (
    *("gymnax/CartPole-v1", "gymnax/Pendulum-v1", "gymnax/Breakout-MinAtar"),
    *("pgx/minatar-breakout", "pgx/2048", "jumanji/Snake-v1", "phys2d/CartPole-v1"),
    *("navix/Navix-Empty-5x5-v0", "xminigrid/MiniGrid-Empty-5x5"),
    *("brax/inverted_pendulum", "playground/CartpoleBalance"),
    "craftax/Craftax-Classic-Symbolic-v1",
)


def maker(env_id):
    suite = suites.suite_of(env_id)
    skip = pytest.mark.skipif(not suites.installed(suite.module), reason=suite.install)
    make = functools.partial(trellis.envs.make, env_id, max_episode_steps=LIMIT)
    return pytest.param(make, marks=skip, id=env_id)


every_suite = pytest.mark.parametrize("make", [maker(env_id) for env_id in IDS])
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@every_suite
def test_the_contract_holds(make):
    # One size for all, so that every program is compiled once.
    contract.check_replay(make, pairs=12, num_envs=6, horizon=4)
    contract.check_replay_of_ends(make, pairs=6, num_envs=6)
    contract.check_mask(make, num_envs=6)
    contract.check_seeds(make)
    contract.check_handed_out(make, num_envs=6, steps=2)


@every_suite
def test_truncation_comes_when_the_count_says(make):
    env, everyone, rng = make(6), np.arange(6), np.random.default_rng(0)
    env.reset(everyone, everyone)
    going, count = np.ones(6, bool), np.zeros(6, int)
    programs = jax_batch._step_rows, jax_batch._reset_rows
    sizes = None
    for _ in range(LIMIT):
        step = env.step(contract.random_actions(env, rng), going.copy())
        count += going
        assert (step.truncated == (going & (count == LIMIT))).all()
        sizes = sizes or [program._cache_size() for program in programs]
        going &= ~(step.terminated | step.truncated)
    assert not going.any()
    env.reset(everyone, everyone + 6)
    env.step(contract.random_actions(env, rng))
    # The first step and the first reset compile, and no later ones.
    assert [program._cache_size() for program in programs] == sizes


@pytest.mark.parametrize(
    ("env_id", "action", "limit"),
    [
        pytest.param("gymnax/Pendulum-v1", [0.0], 200, id="gymnax"),
        pytest.param("phys2d/Pendulum-v0", [0.0], 200, id="phys2d"),
        pytest.param("navix/Navix-Empty-5x5-v0", 0, 100, id="navix"),
        pytest.param("xminigrid/MiniGrid-Empty-5x5", 1, 100, id="xminigrid"),
        pytest.param("jumanji/Maze-v0", 0, 100, id="jumanji"),
    ],
)
def test_the_suites_own_time_limit_truncates(env_id, action, limit):
    suite = suites.suite_of(env_id)
    if not suites.installed(suite.module):
        pytest.skip(suite.install)
    env = trellis.envs.make(env_id, 2)
    env.reset(np.arange(2), np.arange(2))
    actions = np.array([action] * 2, env.action_space.dtype)
    for count in range(1, limit + 1):
        step = env.step(actions)
        assert not step.terminated.any()
        assert (step.truncated == (count == limit)).all(), count


@every_suite
def test_every_listed_name_exists(make):
    env_id = make.args[0]
    prefix, suite = env_id.partition("/")[0], suites.suite_of(env_id)
    batch = trellis.envs.make(env_id, 1)
    assert batch.env_id == env_id
    if prefix in ("brax", "playground", "craftax"):
        pytest.skip("these take long to make")
    for name in suite.names:
        assert trellis.envs.make(f"{prefix}/{name}", 1).num_envs == 1
