"""The Python door: learn, predict, save, load."""

import dataclasses
import functools
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests import forge, probes
from trellis import TRPO, EstimationConfig, SamplingConfig, envs, presets
from trellis.config import StepConfig
from trellis.envs import consent
from trellis.envs.consent import ConsentError
from trellis.policies.distributions import Categoricals
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.policies.saved import SavedPolicy
from trellis.runs import run
from trellis.runs.folder import RunFolderError
from trellis.spaces import is_single
from trellis.training.evaluation import evaluate_saved

# The sizes of the trainer's tests, so that the programs are compiled once for both.
SMALL = {
    "policy": None,
    "sampling": SamplingConfig(num_envs=8, steps_per_env=32),
    "estimation": EstimationConfig(critic_hidden=(16,), critic_epochs=2, critic_minibatch=64),
    "step": StepConfig(max_kl=0.05),
}
TINY = Policy(MLP(4, (16,), 2), Categoricals((2,)))


def make_agent(env="CartPole-v1", policy=TINY, **settings):
    return TRPO(env, **{**SMALL, "policy": policy, **settings})


def test_learning_counts_steps_in_whole_iterations():
    agent = make_agent().learn(300)
    assert agent.steps == 512
    assert agent.learn(1).steps == 768


def test_a_callback_sees_every_iteration_and_can_stop():
    seen = []

    def callback(state, metrics):
        seen.append((state.iteration, metrics["steps"]))
        return np.bool_(state.iteration < 2)

    agent = make_agent()
    agent.learn(10_000, callback)
    assert seen == [(1, 256), (2, 512)]


def test_predicted_actions_are_the_environments():
    agent = make_agent()
    observation = agent._acting.spaces[0].sample()
    action = agent.predict(observation, deterministic=True)
    assert agent._acting.spaces[1].contains(action)
    assert agent.predict(np.stack([observation] * 5)).shape == (5,)
    drawn = {int(agent.predict(observation)) for _ in range(50)}
    assert drawn == {0, 1}


def test_the_settings_say_how_long_to_learn():
    agent = make_agent(total_steps=2000, max_iterations=2)
    assert agent.learn().steps == 2 * 256
    assert agent.learn().steps == 4 * 256
    assert agent.learn(3 * 256).steps == 7 * 256


def test_a_player_and_predict_choose_the_same():
    """One in the policy's terms for a batch, one in the environment's (here twice as large)."""
    agent = TRPO("Pendulum-v1", seed=0)
    env = envs.make("Pendulum-v1", 3)
    observation = env.reset(np.arange(3), np.arange(3))
    chosen = agent.actor()(observation)
    predicted = agent.predict(observation, deterministic=True)
    np.testing.assert_array_equal(env.map_actions(chosen), predicted)
    assert not np.array_equal(chosen, predicted)
    env.close()


def test_predicted_continuous_actions_are_within_their_bounds():
    agent = TRPO("Pendulum-v1", sampling=SamplingConfig(num_envs=1, steps_per_env=8))
    observation = agent._acting.spaces[0].sample()
    actions = [agent.predict(observation) for _ in range(50)]
    space = agent._acting.spaces[1]
    assert all(space.contains(np.asarray(a, np.float32)) for a in actions)
    assert np.max(np.abs(actions)) > 1.0  # the bounds are ±2 and the policy's unit covers them


def test_a_saved_agent_is_the_same_agent(tmp_path):
    agent = make_agent(seed=5).learn(512)
    agent.save(tmp_path / "agent")
    loaded = TRPO.load(tmp_path / "agent", policy=TINY)
    assert loaded.theta.tobytes() == agent.theta.tobytes()
    assert loaded.config == agent.config
    observation = np.ones(4, np.float32)
    assert loaded.predict(observation, True) == agent.predict(observation, True)
    assert loaded.learn(256).theta.tobytes() == agent.learn(256).theta.tobytes()


def test_an_agent_is_not_saved_over_a_training_run(tmp_path):
    agent = make_agent()
    for _ in range(2):  # What an agent has saved is replaced.
        agent.save(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(RunFolderError, match="holds a training run"):
        agent.save(tmp_path)


def test_another_environment_made_by_a_callable_is_remembered(tmp_path):
    make_agent().save(tmp_path / "one")
    other = TRPO.load(tmp_path / "one", env=lambda: gymnasium.make("CartPole-v1"), policy=TINY)
    other.save(tmp_path / "two")
    with pytest.raises(ValueError, match="pass it as load"):
        TRPO.load(tmp_path / "two", policy=TINY)


def test_a_loaded_agent_imports_no_module_without_consent(tmp_path, monkeypatch):
    """Its policy acts and can be saved; `learn` and `evaluate` need the environment."""
    folder = tmp_path / "agent"
    make_agent().save(folder)
    trap = tmp_path / "trap"
    for module in ("evil", "package.evil"):
        path = (folder / module.replace(".", "/")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(trap)!r}, 'w').close()")
    (folder / "package" / "__init__.py").write_text(f"open({str(trap)!r}, 'w').close()")
    monkeypatch.setattr("sys.path", [*sys.path, str(folder)])
    for env in ("evil:CartPole-v1", "package.evil:CartPole-v1"):
        forge.forge_config(folder, env=env)
        agent = TRPO.load(folder, policy=TINY)
        agent.predict(np.zeros(4, np.float32))
        agent.save(tmp_path / "copy")
        uses = (functools.partial(agent.learn, 1), agent.evaluate, lambda: run.resume(folder))
        for use in uses:
            with pytest.raises(ConsentError, match=rf"{folder}.*evil\.py.*trust_env=True"):
                use()
        with pytest.raises(ConsentError):
            evaluate_saved(SavedPolicy.load(folder, policy=TINY), 1)
        assert not trap.exists()
        assert TRPO.load(folder, "CartPole-v1", policy=TINY).evaluate(1).episodes == 1
    agent = TRPO.load(folder, policy=TINY, trust_env=True)
    assert not trap.exists()
    agent.evaluate(1)
    assert trap.exists()
    for name in ("package.evil", "package"):
        sys.modules.pop(name)


def test_options_of_a_folder_need_consent_though_the_user_names_the_environment(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(consent, "_given", set())
    policy, made = {"hidden": (4,)}, []
    make_agent("Hopper-v5", policy).save(tmp_path / "hopper")
    make_agent().save(tmp_path / "pole")

    def pole(**options):
        made.append(options)
        return gymnasium.make("CartPole-v1")

    for folder in (tmp_path / "hopper", tmp_path / "pole"):
        forge.forge_config(folder, env_options={"xml_file": "/tmp/secret.xml"})
    agents = [
        TRPO.load(tmp_path / "hopper", "Hopper-v5"),
        TRPO.load(tmp_path / "pole", "CartPole-v1", TINY),
    ]
    for use in (*[agent.evaluate for agent in agents], functools.partial(agents[1].learn, 1)):
        with pytest.raises(ConsentError, match=rf"{tmp_path}.*secret\.xml.*trust_env=True"):
            use()
    for env in (pole, "CartPole-v0"):  # Another environment than the folder's is made by `load`.
        with pytest.raises(ConsentError, match=r"secret\.xml"):
            TRPO.load(tmp_path / "pole", env, TINY)
    assert not made
    with TRPO.load(tmp_path / "pole", pole, TINY, trust_env=True) as agent:
        assert agent.evaluate(1).episodes == 1
    assert made[0] == {"xml_file": "/tmp/secret.xml"}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 1025}, "must be a number from 0 to 1,024"),
        ({"env": "evil:X-v0"}, "has an invalid option of <lambda>: 'env'"),
    ],
)
def test_invalid_options_of_a_folder_are_refused_with_consent_too(
    options, words, trusted, tmp_path
):
    make_agent().save(tmp_path)
    forge.forge_config(tmp_path, env_options=options)
    with pytest.raises(ValueError, match=words):
        TRPO.load(tmp_path, lambda: gymnasium.make("CartPole-v1"), TINY, trust_env=trusted)


def test_an_environment_made_by_a_callable_has_to_be_given_again(tmp_path):
    policy = Policy(MLP(1, (16,), 2), Categoricals((2,)))
    agent = make_agent(probes.ActionMatters, policy=policy).learn(256)
    agent.save(tmp_path)
    with pytest.raises(ValueError, match="pass it as load"):
        TRPO.load(tmp_path)
    loaded = TRPO.load(tmp_path, env=probes.ActionMatters, policy=policy)
    assert loaded.theta.tobytes() == agent.theta.tobytes()


def test_a_policy_of_another_size_is_refused(tmp_path):
    make_agent().save(tmp_path)
    with pytest.raises(ValueError, match=r"114 parameters \(.*\), the policy here has 4610"):
        TRPO.load(tmp_path)


@dataclasses.dataclass(frozen=True)
class ReLU(MLP):
    """As many weights as an MLP, for another function."""


@pytest.mark.parametrize("method", ["trpo", "cem"])
def test_a_policy_of_the_same_size_but_of_another_kind_is_refused(method, tmp_path):
    step = StepConfig(method=method)
    relu = Policy(ReLU(4, (64, 64), 2), Categoricals((2,)))
    make_agent(policy=relu, step=step).save(tmp_path)
    assert TRPO.load(tmp_path, policy=relu).policy == relu
    with pytest.raises(ValueError, match=r"4610 parameters \(ReLU .*, the policy here .* \(MLP "):
        TRPO.load(tmp_path)
    with pytest.raises(ValueError, match="holds a policy of 4610 parameters"):
        run.resume(tmp_path)


def test_an_agent_can_be_loaded_for_another_environment_of_the_same_spaces(tmp_path):
    agent = make_agent().learn(256)
    agent.save(tmp_path)
    for other in ("CartPole-v0", lambda: gymnasium.make("CartPole-v1")):
        again = TRPO.load(tmp_path, env=other, policy=TINY)
        np.testing.assert_array_equal(again.theta, agent.theta)
        assert again.learn(256).steps == 512
    assert TRPO.load(tmp_path, env="CartPole-v0", policy=TINY).config.env == "CartPole-v0"
    with pytest.raises(ValueError, match="does not fit the actions of Acrobot-v1"):
        TRPO.load(tmp_path, env="Acrobot-v1", policy=TINY)


def test_options_of_the_environment(tmp_path):
    policy = Policy(MLP(1, (16,), 2), Categoricals((2,)))
    options = {"max_episode_steps": 5}
    agent = make_agent(probes.ActionMatters, policy=policy, env_options=options)
    assert agent._trainer.team.shards[0].env.max_episode_steps == 5
    agent.save(tmp_path)
    again = TRPO.load(tmp_path, env=probes.ActionMatters, policy=policy)
    assert again._open_trainer().team.shards[0].env.max_episode_steps == 5
    # Those of the preset stay.
    preset = dataclasses.replace(presets.resolve("CartPole-v1", None), env_options={"a": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets, "resolve", lambda *_: preset)
        patch.setattr("trellis.agent.make_trainer", lambda config, *_: pytest.fail(str(config)))
        with pytest.raises(pytest.fail.Exception, match="'a': 1, 'b': 2"):
            TRPO("CartPole-v1", env_options={"b": 2})
    with pytest.raises(RunFolderError, match="not plain values belong into a callable"):
        TRPO("CartPole-v1", env_options={"max_episode_steps": np.int64(5)})


def test_a_dictionary_changes_what_it_names_and_leaves_the_rest_to_the_preset():
    preset = presets.resolve("Swimmer-v5", None)
    agent = TRPO(
        "Swimmer-v5",
        estimation={"gamma": 0.5},
        step=StepConfig(cg_iterations=3),
        sampling={"vine": {"states": 7}},
        policy={"hidden": (9,)},
    )
    config = agent.config
    assert preset.estimation.gae_lambda == config.estimation.gae_lambda == 0.99
    assert config.estimation.gamma == 0.5
    assert config.step == StepConfig(cg_iterations=3) != preset.step
    vine = dataclasses.replace(preset.sampling.vine, states=7)
    assert config.sampling == dataclasses.replace(preset.sampling, vine=vine)
    assert config.policy.hidden == agent.policy.network.hidden == (9,)
    with pytest.raises(TypeError, match="StepConfig has no setting max_kil; it has method"):
        TRPO("Swimmer-v5", step={"max_kil": 0.1})


def test_one_observation_is_told_from_many_whatever_the_order_of_its_parts():
    space = spaces.Dict(goal=spaces.Discrete(4), pos=spaces.Box(-1, 1, (2,)))
    assert is_single({"pos": np.zeros(2), "goal": 1}, space)
    assert not is_single({"pos": np.zeros((3, 2)), "goal": np.array([1, 2, 3])}, space)
    assert is_single((np.zeros(2), 1), spaces.Tuple([space["pos"], space["goal"]]))


def test_bad_input_is_told_apart():
    with pytest.raises(TypeError, match="no setting max_kl"):
        TRPO("CartPole-v1", max_kl=0.1)
    with pytest.raises(ValueError, match="no preset 'modern/clasic'; did you mean modern/classic"):
        TRPO("CartPole-v1", preset="modern/clasic")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        make_agent().learn(0)
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        TRPO.load("nowhere")


def test_it_plays_with_gymnasium():
    agent = make_agent()
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation, *_ = env.step(agent.predict(observation))
