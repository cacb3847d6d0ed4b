"""`JaxBatch` keeps the environment contract, for environments that the tests define."""

import functools
import subprocess
import sys

import jax
import numpy as np
import pytest

import trellis.envs
from tests.envs import contract
from tests.envs.jax.environments import Drift, Walk
from trellis import TRPO
from trellis.envs import MissingExtraError, UnknownEnvironmentError
from trellis.envs.batch import Restorability
from trellis.envs.jax import batch as jax_batch
from trellis.envs.jax import suites
from trellis.envs.jax.rows import keys_of

# Environments have no state, so that all tests share them and what is compiled for them.
ENVS = {"Walk": Walk(), "Drift": Drift()}
MAKERS = {name: functools.partial(trellis.envs.make, env) for name, env in ENVS.items()}
every_environment = pytest.mark.parametrize(
    "make",
    [MAKERS["Walk"], pytest.param(MAKERS["Drift"], marks=pytest.mark.slow)],
    ids=MAKERS.keys(),
)


@every_environment
def test_snapshots_replay_in_every_row(make):
    assert make(1).restorability is Restorability.SERIALIZABLE
    contract.check_replay(make, pairs=24, num_envs=6)


@every_environment
def test_the_last_step_replays(make):
    contract.check_replay_of_ends(make, pairs=6, num_envs=6)


@every_environment
def test_inactive_environments_do_not_change(make):
    contract.check_mask(make, num_envs=6)


@every_environment
def test_episodes_are_functions_of_their_seed(make):
    contract.check_seeds(make)


@every_environment
def test_returned_arrays_are_never_written_to_again(make):
    contract.check_handed_out(make, num_envs=6)


@every_environment
def test_nothing_is_compiled_again(make):
    env, everyone = make(6), np.arange(6)
    rng = np.random.default_rng(0)
    env.reset(everyone, everyone)
    env.step(contract.random_actions(env, rng))
    sizes = jax_batch._step_rows._cache_size(), jax_batch._reset_rows._cache_size()
    env.reset(everyone[:2], everyone[:2])
    env.step(contract.random_actions(env, rng))
    env.restore(everyone[3:4], env.snapshot(everyone[:1]))
    env.reseed(everyone[:1], everyone[:1])
    env.step(contract.random_actions(env, rng))
    assert sizes == (jax_batch._step_rows._cache_size(), jax_batch._reset_rows._cache_size())


def test_an_episode_is_that_of_the_plain_functions():
    walk, seed = ENVS["Walk"], 12
    batch = trellis.envs.make(walk, 6)
    first = batch.reset(np.arange(6), np.arange(10, 16))
    key = jax.random.PRNGKey(seed)
    assert keys_of(np.array([seed]))[0].tolist() == np.asarray(key).tolist()
    state, observation = walk.reset(jax.random.fold_in(key, np.uint32(0xFFFFFFFF)))
    np.testing.assert_allclose(first[2], observation, rtol=1e-6)
    for t in range(3):
        step = batch.step(np.full(6, 2))
        state, observation, reward, *_ = walk.step(jax.random.fold_in(key, t), state, 2)
        np.testing.assert_allclose(step.observation[2], observation, rtol=1e-5)
        np.testing.assert_allclose(step.reward[2], reward, rtol=1e-5)


def test_the_time_limit_truncates_and_is_not_a_termination():
    batch = trellis.envs.make(ENVS["Drift"], 6, max_episode_steps=3)
    batch.reset(np.arange(6), np.arange(6))
    ends = [batch.step(np.zeros((6, 2), np.float32)) for _ in range(3)]
    assert [step.truncated.tolist() for step in ends] == [[False] * 6, [False] * 6, [True] * 6]
    assert not any(step.terminated.any() for step in ends)


def test_reseeded_rows_share_their_chance():
    batch, everyone = trellis.envs.make(ENVS["Walk"], 6), np.arange(6)
    batch.reset(everyone, everyone)
    snapshot = contract.take_rows(batch.snapshot(everyone[:1]), np.zeros(6, int))
    batch.restore(everyone, snapshot)
    batch.reseed(everyone, np.array([7, 7, 7, 8, 8, 8]))
    position = batch.step(np.ones(6, int)).observation[:, 0]
    assert len(set(position[:3].tolist())) == len(set(position[3:].tolist())) == 1
    assert position[0] != position[3]


def test_an_agent_takes_an_environment_or_its_class():
    for env in (ENVS["Walk"], Walk):
        agent = TRPO(env, policy={"hidden": (4,)})
        assert agent.config.env == "callable:Walk"
        assert agent.observation_space.shape == (2,)
        agent.close()


def test_a_missing_suite_names_the_install_command(monkeypatch):
    monkeypatch.setattr(suites, "installed", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'trellis-rl\[jax-envs\]'"):
        trellis.envs.make("gymnax/CartPole-v1", 2)
    with pytest.raises(MissingExtraError, match=r"pip install 'trellis-rl\[brax\]'"):
        trellis.envs.make("brax/ant", 2)
    assert all(command for _, command in suites.listed())


def test_an_unknown_name_suggests_similar_ones(monkeypatch):
    monkeypatch.setattr(suites, "installed", lambda module: True)

    def make(name):
        raise KeyError(name, ["CartPole-v1", "Pendulum-v1"])

    monkeypatch.setattr(suites, "_maker", lambda suite: make)
    with pytest.raises(UnknownEnvironmentError, match="Did you mean gymnax/CartPole-v1"):
        trellis.envs.make("gymnax/Cartpole", 2)


def test_listing_environments_imports_no_suite():
    code = (
        "import sys, trellis.envs; entries = trellis.envs.list_environments();"
        "ids = [entry.env_id for entry in entries]; assert len(set(ids)) == len(ids);"
        "assert {'gymnax/CartPole-v1', 'brax/ant', 'jumanji/Snake-v1'} <= set(ids);"
        "bad = {'jax', 'flax', 'gymnax', 'brax', 'pgx'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
