"""Every JAX suite that is installed keeps the environment contract."""

import collections
import functools
import sys
import types
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import trellis.envs
from tests.envs import contract
from trellis.envs.jax import batch as jax_batch
from trellis.envs.jax import suites
from trellis.envs.jax.jumanji_suite import make_jumanji

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
slow = pytest.mark.slow
pytestmark = pytest.mark.timeout(1800)


@slow
@every_suite
def test_the_contract_holds(make):
    # One size for all, so that every program is compiled once.
    contract.check_replay(make, pairs=12, num_envs=6, horizon=4)
    contract.check_replay_of_ends(make, pairs=6, num_envs=6)
    contract.check_mask(make, num_envs=6)
    contract.check_seeds(make)
    contract.check_handed_out(make, num_envs=6, steps=2)


@slow
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


@slow
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


class Answer(NamedTuple):
    """A time step of the kind that jumanji returns."""

    observation: Any
    reward: Any
    discount: Any

    def last(self):
        return self.discount == 0


class Clock:
    """An environment with the functions of jumanji's: its time limit terminates."""

    State = collections.namedtuple("State", "key time")
    action_spec = types.SimpleNamespace(num_values=2)

    def __init__(self, time_limit=5):
        self.time_limit = time_limit

    def reset(self, key):
        return self._answer(self.State(key, jnp.zeros((), int)))

    def step(self, state, action):
        return self._answer(state._replace(time=state.time + 1))

    def _answer(self, state):
        late = state.time >= self.time_limit
        return state, Answer(state.time, jnp.zeros(()), 1.0 - late)


@pytest.mark.parametrize(("options", "limit"), [({}, 5), ({"time_limit": 9}, 9)])
def test_a_limit_beyond_that_of_jumanji_is_refused(monkeypatch, options, limit):
    fake = types.SimpleNamespace(
        registered_environments=lambda: ["Clock-v0"], make=lambda name, **given: Clock(**given)
    )
    monkeypatch.setitem(sys.modules, "jumanji", fake)
    env = make_jumanji("Clock-v0", **options)
    for longer in (limit + 1, None, -1):
        with pytest.raises(ValueError, match=rf"must be at most {limit}, .* such as time_limit"):
            trellis.envs.make(env, 2, max_episode_steps=longer)
    for given, last in (({}, limit), ({"max_episode_steps": 3}, 3)):
        batch = trellis.envs.make(env, 2, **given)
        batch.reset(np.arange(2), np.arange(2))
        for count in range(1, last + 1):
            step = batch.step(np.zeros(2, int))
            assert (step.truncated == (count == last)).all()
            assert not step.terminated.any()


@slow
def test_a_limit_beyond_that_of_a_maze_of_jumanji_is_refused():
    pytest.importorskip("jumanji")
    with pytest.raises(ValueError, match=r"must be at most 100, .* got 500"):
        trellis.envs.make("jumanji/Maze-v0", 2, max_episode_steps=500)
    batch = trellis.envs.make("jumanji/Maze-v0", 2, max_episode_steps=500, time_limit=500)
    assert batch.max_episode_steps == 500


@slow
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
