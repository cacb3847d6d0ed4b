"""Tests of lanes: results do not depend on threads, joins are exact, failures are raised."""

import threading

import jax
import numpy as np
import pytest

from trellis import Trainer, envs, presets
from trellis.config.changes import changed
from trellis.envs.errors import BadValueError
from trellis.envs.mujoco.batch import MujocoBatch
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.normalizer import make_normalizer
from trellis.rng import Purpose, stream
from trellis.sampling.lanes import CancelledError, Lookout, run_lanes
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder


def mujoco(env_id, num_envs, threads=0):
    env = envs.make(env_id, num_envs, nthread=threads)
    assert isinstance(env, MujocoBatch)
    return env


def collect(env_id, num_envs, steps, *, threads=2, iterations=1, memory="none"):
    """Return the samples of the last iteration, the path state and the environment."""
    env = mujoco(env_id, num_envs, threads)
    config = presets.resolve(env_id)
    config = changed(config, {"policy": {"memory": memory, "initial_log_std": 0.5}})
    config = changed(config, {"sampling": {"num_envs": num_envs, "steps_per_env": steps}})
    features, encode = observation_encoder(env.observation_space)
    policy = build_policy(config.policy, env.observation_space, env.action_space)
    moments = Moments.of(np.random.default_rng(0).normal(size=(100, features)), (features,))
    sampler = SinglePath(env, policy, encode, config.sampling, seed=3)
    theta = policy.init(np.random.default_rng(1))
    theta = theta + np.float32(0.1) * np.random.default_rng(2).normal(size=theta.size)
    theta, normalize = theta.astype(np.float32), make_normalizer(moments)
    samples, state = sampler.collect(theta, normalize, None, 0)
    for iteration in range(1, iterations):
        samples, state = sampler.collect(theta, normalize, state, iteration)
    return samples, state, env


def assert_same(one, other):
    ours, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_samples_do_not_depend_on_the_number_of_threads(memory):
    runs = [
        collect("Hopper-v5", 17, 30, threads=threads, iterations=2, memory=memory)
        for threads in (1, 2, 4)
    ]
    assert len(runs[0][0].episode_return) > 5
    for samples, state, env in runs[1:]:
        assert_same(samples, runs[0][0])
        assert_same(state, runs[0][1])
        assert_same(env.snapshot(np.arange(17)), runs[0][2].snapshot(np.arange(17)))


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5"])
def test_lanes_are_the_same_environments_as_the_whole_batch(env_id):
    """The whole batch, with the same seeds and actions, has the same episodes bit for bit."""
    samples, state, env = collect(env_id, 16, 25)
    whole = envs.make(env_id, 16, nthread=1)
    rng = stream(3, Purpose.RESETS)
    observation = whole.reset(np.arange(16), rng.integers(2**31, size=16))
    lanes = [stream(3, Purpose.RESETS, lane=lane) for lane in range(2)]
    for t in range(25):
        raw = samples.raw_observation[t]
        np.testing.assert_array_equal(raw, observation.astype(np.float32))
        step = whole.step(samples.action[t])
        np.testing.assert_array_equal(samples.reward[t], step.reward)
        np.testing.assert_array_equal(samples.terminated[t], step.terminated)
        observation = step.observation.copy()
        for lane, rows in enumerate((slice(0, 8), slice(8, 16))):
            ended = rows.start + np.flatnonzero(step.terminated[rows])
            if len(ended):
                seeds = lanes[lane].integers(2**31, size=len(ended))
                observation[ended] = whole.reset(ended, seeds)
    np.testing.assert_array_equal(state.observation, observation.astype(np.float32))
    assert_same(env.snapshot(np.arange(16)), whole.snapshot(np.arange(16)))


def test_episodes_that_ended_are_in_order_of_time_and_environment():
    samples, state, _ = collect("Hopper-v5", 16, 80)
    assert len(np.unique(samples.final_at[:, 1])) > 12
    np.testing.assert_array_equal(samples.final_at, np.argwhere(samples.ended))
    np.testing.assert_array_equal(samples.episode_length, samples.age[samples.ended] + 1)
    for (time, env), length, total in zip(
        samples.final_at, samples.episode_length, samples.episode_return, strict=True
    ):
        rewards = samples.reward[time + 1 - length : time + 1, env]
        np.testing.assert_allclose(rewards.sum(), total, rtol=1e-12)
    assert state.observation.shape == (16, 11)


def test_a_run_with_lanes_resumes_bit_for_bit():
    config = changed(
        presets.resolve("Hopper-v5"),
        {"sampling": {"num_envs": 16, "steps_per_env": 16}, "policy": {"hidden": (8,)}},
    )
    first = Trainer(config)
    state, _ = first.iterate(first.start())
    arrays, values = first.to_checkpoint(state)
    second = Trainer(config)
    resumed = second.from_checkpoint(arrays, values)
    state, _ = first.iterate(state)
    resumed, _ = second.iterate(resumed)
    assert_same(first.to_checkpoint(state)[0], second.to_checkpoint(resumed)[0])
    first.close()
    second.close()


def test_small_batches_are_one_lane():
    assert len(mujoco("Hopper-v5", 15).divided) == 1
    parts = mujoco("Hopper-v5", 17).divided
    assert [(rows.start, rows.stop, lane.num_envs) for rows, lane in parts] == [
        (0, 8, 8),
        (8, 17, 9),
    ]


def test_errors_name_the_environment_of_the_whole_batch():
    (_, _), (_, lane) = mujoco("Hopper-v5", 16).divided
    lane.reset(np.arange(8), np.arange(100, 108))
    with pytest.raises(BadValueError, match="environment 11 of its batch") as caught:
        lane.check_finite("reward", np.array([0, 0, 0, np.nan, 0, 0, 0, 0]))
    assert (caught.value.index, caught.value.seed) == (11, 103)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_stops_the_other_lane_and_is_raised(failing):
    lookout, started, stopped = Lookout(), threading.Barrier(2), []

    def lane(index):
        started.wait(5)
        if index == failing:
            raise KeyboardInterrupt if index == 0 else ValueError("lane 1 failed")
        try:
            while True:
                lookout.check()
        except CancelledError:
            stopped.append(index)
            raise

    calls = [lambda index=index: lane(index) for index in range(2)]
    with pytest.raises((KeyboardInterrupt, ValueError)) as caught:
        run_lanes(calls, lookout, threads=2)
    assert isinstance(caught.value, KeyboardInterrupt if failing == 0 else ValueError)
    assert stopped == [1 - failing]


def test_lanes_keep_how_numpy_treats_overflow():
    def lane():
        return np.geterr()["over"]

    with np.errstate(over="raise"):
        assert run_lanes([lane, lane], Lookout(), threads=2) == ["raise", "raise"]
    assert run_lanes([lane, lane], Lookout(), threads=1) == [np.geterr()["over"]] * 2


def test_every_lane_has_its_own_stream():
    keys = [None, 0, 1]
    values = [stream(0, Purpose.RESETS, iteration=2, lane=lane).integers(2**31) for lane in keys]
    assert len(set(values)) == 3
