"""A saved policy acts without an environment, in the same way as the agent it comes from."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trellis import TRPO, envs
from trellis.checkpoint_format import CHECKPOINTS, CheckpointError, load_latest
from trellis.policies.saved import SavedPolicy
from trellis.runs import checkpoint
from trellis.training.evaluation import evaluate_saved

OLD_RUNS = Path(__file__).parents[1] / "data" / "runs"


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    agent = TRPO(
        "CartPole-v1", policy={"hidden": (8,)}, sampling={"num_envs": 4, "steps_per_env": 32}
    )
    agent.learn(total_timesteps=256)
    folder = tmp_path_factory.mktemp("agent")
    agent.save(folder)
    yield agent, folder
    agent.close()


def observations(count=5):
    return np.random.default_rng(0).normal(scale=0.1, size=(count, 4)).astype(np.float32)


def test_it_acts_as_the_agent_does(agent):
    agent, folder = agent
    saved = SavedPolicy.load(folder)
    batch = observations()
    expected = agent.predict(batch, deterministic=True)
    np.testing.assert_array_equal(saved.act(batch), expected)
    singles = [saved.act(one, deterministic=True) for one in batch]
    np.testing.assert_array_equal(singles, expected)
    assert (saved.steps, saved.iteration) == (agent.steps, 2)


class Unsorted(gymnasium.Env):
    """Spaces whose keys are not in alphabetical order."""

    observation_space = spaces.Dict(z=spaces.Box(-1, 1, (2,)), a=spaces.Box(-1, 1, (1,)))
    action_space = spaces.Dict(y=spaces.Discrete(3), b=spaces.Box(-1, 1, (1,)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        values = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"z": values[:2], "a": values[2:]}, {}

    def step(self, action):
        return self.reset()[0], float(action["y"]), True, False, {}


def test_the_keys_of_a_dict_keep_their_order(tmp_path):
    sizes = {"num_envs": 2, "steps_per_env": 8}
    with TRPO(Unsorted, policy={"hidden": (4,), "output_scale": 1.0}, sampling=sizes) as agent:
        agent.learn(16, progress_bar=False)
        agent.save(tmp_path)
        saved = SavedPolicy.load(tmp_path)
        assert saved.spaces == (Unsorted.observation_space, Unsorted.action_space)
        batch = {"z": np.linspace([-1, 0], [1, 0], 5), "a": np.linspace([1], [-1], 5)}
        expected, actions = (each(batch, deterministic=True) for each in (agent.predict, saved.act))
        np.testing.assert_array_equal(actions["y"], expected["y"])
        np.testing.assert_array_equal(actions["b"], expected["b"])


def test_sampled_actions_come_from_the_generator_that_is_given(agent):
    _, folder = agent
    saved = SavedPolicy.load(folder)
    batch = np.zeros((200, 4), np.float32)
    first, again, other = (
        saved.act(batch, deterministic=False, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert 0.2 < first.mean() < 0.8


def test_evaluations_are_those_of_the_agent(agent):
    agent, folder = agent
    seen = []
    saved = SavedPolicy.load(folder)
    result = evaluate_saved(saved, 3, on_step=lambda env, step, active: seen.append(active.sum()))
    np.testing.assert_array_equal(result.returns, agent.evaluate(3).returns)
    assert sum(seen) == result.lengths.sum()


def test_the_best_policy_comes_with_its_statistics(agent, tmp_path):
    _, folder = agent
    saved = load_latest(folder / CHECKPOINTS)
    arrays = dict(saved.arrays)
    arrays["best_theta"] = arrays["theta"] + 1
    for name in ("count", "mean", "squares"):
        arrays[f"best_moments/{name}"] = arrays[f"observation_moments/{name}"] * 2
    checkpoint.save(tmp_path / CHECKPOINTS, 2, arrays, saved.values, keep=1)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    best = SavedPolicy.load(tmp_path, best=True)
    assert best.is_best
    np.testing.assert_array_equal(best.theta, arrays["best_theta"])
    assert best.observation_moments.count == arrays["best_moments/count"]
    assert not SavedPolicy.load(folder, best=True).is_best  # There was no evaluation.


def test_opening_one_makes_no_environment_and_starts_no_process(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("an environment, or a process, was started")

    monkeypatch.setattr(envs, "make", refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for kind, shape in (("paper-hopper-vine", (12,)), ("atari", (4, 52, 40))):
        agent = TRPO.load(OLD_RUNS / kind)
        action = agent.predict(np.zeros(shape, np.uint8 if kind == "atari" else np.float64))
        assert agent._acting.spaces[1].contains(action)


def test_no_simulator_is_imported():
    """In a process of its own, where nothing else has imported one."""
    code = (
        "import sys, numpy as np\n"
        "from trellis.policies.saved import SavedPolicy\n"
        f"SavedPolicy.load({str(OLD_RUNS / 'paper-hopper-vine')!r}).act(np.zeros(12))\n"
        "print(sorted({'mujoco', 'ale_py', 'ray', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_that_holds_no_policy_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run or a saved agent"):
        SavedPolicy.load(tmp_path)


def test_a_policy_of_another_size_is_refused(agent):
    agent, folder = agent
    wider = dataclasses.replace(
        agent.policy, network=dataclasses.replace(agent.policy.network, hidden=(9,))
    )
    with pytest.raises(ValueError, match="pass the one that it was trained with"):
        SavedPolicy.load(folder, policy=wider)


def test_spaces_can_be_given_where_the_checkpoint_does_not_describe_them(agent, tmp_path):
    _, folder = agent
    saved = load_latest(folder / CHECKPOINTS)
    values = {k: v for k, v in saved.values.items() if k not in ("observation_space", "spaces")}
    checkpoint.save(tmp_path / CHECKPOINTS, 2, saved.arrays, values, keep=1)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(CheckpointError, match="pass them as"):
        SavedPolicy.load(tmp_path)
    given = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
    expected = SavedPolicy.load(folder).act(observations())
    np.testing.assert_array_equal(
        SavedPolicy.load(tmp_path, spaces=given).act(observations()), expected
    )
