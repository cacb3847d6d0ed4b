"""Habits of users of other libraries: names, forms of environments, folders, parameters."""

import dataclasses

import gymnasium
import numpy as np
import pytest

import trellis
from tests import probes
from tests.test_agent import TINY, make_agent
from trellis import TRPO, envs
from trellis.policies.saved import SavedPolicy
from trellis.runs.folder import RunFolderError, read_config
from trellis.runs.log import read_metrics
from trellis.runs.run import resume, watching

HABITS = {
    "gamma": 'estimation={"gamma": 0.99}',
    "gae_lambda": 'estimation={"gae_lambda": 0.95}',
    "target_kl": 'step={"max_kl": 0.01}',
    "max_kl": 'step={"max_kl": 0.01}',
    "n_steps": 'sampling={"steps_per_env"',
    "n_envs": 'sampling={"num_envs"',
    "num_envs": 'sampling={"num_envs": 16}',
    "batch_size": 'estimation={"critic_minibatch"',
    "policy_kwargs": r'policy=\{"hidden": \(64, 64\)\}',
    "learning_rate": 'estimation={"critic_learning_rate"',
    "n_critic_updates": 'estimation={"critic_epochs"',
    "cg_max_steps": 'step={"cg_iterations"',
    "cg_damping": 'step={"damping"',
    "line_search_shrinking_factor": 'step={"backtrack_ratio"',
    "line_search_max_iter": 'step={"max_backtracks"',
    "sub_sampling_factor": 'step={"fisher_fraction"',
    "normalize_advantage": 'estimation={"advantages"',
    "verbose": r"learn\(…, progress_bar=False\)",
    "tensorboard_log": r"learn\(…, log_dir=",
    "device": "JAX_PLATFORMS",
    "ent_coef": 'step={"entropy_bonus": 0.01}',
    "clip_range": "TRPO does not have it",
    "max_iteration": "did you mean max_iterations",
    "zzz": "it has env, env_options, total_steps",
}


@pytest.mark.parametrize("name", HABITS)
def test_a_habitual_setting_is_an_error_that_names_the_setting_here(name):
    with pytest.raises(TypeError, match=f"TrainConfig has no setting {name}; .*{HABITS[name]}"):
        TRPO("CartPole-v1", **{name: 1})


FORMS = [
    (lambda: gymnasium.make("CartPole-v1"), r'many copies .* Write TRPO\("CartPole-v1"\)'),
    (probes.ActionMatters, r"many copies .* Write TRPO\(ActionMatters\)"),
    (
        lambda: gymnasium.wrappers.ClipAction(gymnasium.make("Pendulum-v1")),
        r"Write TRPO\(make_env, where make_env is a function",
    ),
    (
        lambda: gymnasium.make_vec("CartPole-v1", num_envs=2),
        r'its own batches.* Write TRPO\("CartPole-v1", sampling=\{"num_envs": 2\}\)',
    ),
    (lambda: envs.make("CartPole-v1", 3), r'TRPO\("CartPole-v1", sampling=\{"num_envs": 3\}\)'),
    (
        lambda: [probes.ActionMatters] * 4,
        r'list of 4.* Write TRPO\(ActionMatters, sampling=\{"num_envs": 4\}\)',
    ),
    (list, "list of 0"),
    (lambda: 3, "env must be an id such as .* got int"),
    (lambda: None, "env must be an id such as .* got NoneType"),
]


@pytest.mark.parametrize(("form", "works"), FORMS)
def test_an_environment_in_another_form_is_an_error_with_the_line_that_works(form, works):
    env = form()
    with pytest.raises(TypeError, match=works):
        TRPO(env)
    if hasattr(env, "close"):
        env.close()


def test_a_policy_by_name_is_an_error_with_the_line_that_works():
    for habit in (
        lambda: TRPO("MlpPolicy", "CartPole-v1"),
        lambda: TRPO("CartPole-v1", policy="MlpPolicy"),
    ):
        with pytest.raises(TypeError, match=r"no policy 'MlpPolicy' here: .* Write TRPO\(env\)"):
            habit()
    with pytest.raises(TypeError, match="one positional argument, the environment, got 2"):
        TRPO("CartPole-v1", 3)
    with pytest.raises(TypeError, match="step must be a dictionary of settings or a StepConfig"):
        TRPO("CartPole-v1", step=0.01)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_wrong_number_of_steps_is_refused(wrong):
    with make_agent() as agent:
        with pytest.raises(ValueError, match="total_timesteps must be a whole number of at least"):
            agent.learn(wrong)
        with pytest.raises(ValueError, match="log_interval must be at least 1, got 0"):
            agent.learn(256, log_interval=0)
        with pytest.raises(ValueError, match="eval_every must be >= 0"):
            agent.learn(256, eval_every=-1)
        with pytest.raises(TypeError, match=r"callback must be a function of \(state, metrics\)"):
            agent.learn(256, callback=wrong)


def test_an_agent_says_what_it_is():
    with make_agent(seed=3) as agent:
        agent.learn(512)
        assert repr(agent) == (
            "TRPO('CartPole-v1', method='trpo', seed=3, steps=512, parameters=114)"
        )
        assert agent.num_timesteps == agent.steps == 512
        assert agent.observation_space.shape == (4,)
        assert agent.action_space.n == 2


def test_schedules_follow_the_length_of_learn_and_resume_exactly(tmp_path):
    def decaying():
        step = {"max_kl": 0.05, "final_max_kl": 0.0005}
        return make_agent(policy={"hidden": (16,)}, step=step)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    agent = decaying()
    total = agent.config.total_steps
    agent.learn(1024, log_dir=whole, progress_bar=False)
    assert agent.config.total_steps == total
    kls = [row["kl"] for row in read_metrics(whole)]
    assert all(kl <= 0.05 - 0.0495 * i / len(kls) for i, kl in enumerate(kls))
    other = decaying()
    other.learn(
        1024, log_dir=stopped, progress_bar=False, callback=lambda state, _: state.steps < 512
    )
    resume(stopped, quiet=True)
    assert [row["kl"] for row in read_metrics(stopped)] == kls


def test_a_display_that_is_closed_gets_no_more_steps():
    seen: list[int] = []
    agent = make_agent()
    with watching(agent._open_trainer(), lambda what, steps: seen.append(steps)):
        agent._open_trainer().team.shards[0].env.on_step(3)
    agent._open_trainer().team.shards[0].env.on_step(4)
    assert seen == [3]


def test_learning_in_a_folder_is_a_run_that_learns_the_same(tmp_path, capsys):
    folder, plain, logged = tmp_path / "run", make_agent(), make_agent()
    plain.learn(768, progress_bar=False)
    assert capsys.readouterr().err == ""
    logged.learn(512, log_dir=folder, eval_every=256, log_interval=1)
    shown = capsys.readouterr().err
    assert shown.count("iteration 1 ") == shown.count("iteration 2 ") == 1
    assert "512/512 steps" in shown
    logged.learn(256, log_dir=folder, progress_bar=False)
    rows = read_metrics(folder)
    assert [row["steps"] for row in rows] == [256, 512, 768]
    assert ["eval_return_mean" in row for row in rows] == [True, True, True]
    assert logged.theta.tobytes() == plain.theta.tobytes()
    assert read_config(folder).total_steps == 768
    # The command line would continue it, and so does Python.
    plain.learn(256)
    loaded = TRPO.load(folder, policy=TINY)
    loaded.learn(256, log_dir=folder)
    assert loaded.theta.tobytes() == plain.theta.tobytes()
    assert read_metrics(folder)[-1]["steps"] == 1024
    # The folder is ahead of the first agent now, and holds nothing of another one.
    for other in (logged, make_agent()):
        with pytest.raises(RunFolderError, match="another run, or another state"):
            other.learn(256, log_dir=folder)
    with pytest.raises(RunFolderError, match=r"other settings: seed is 0 there, 1 here"):
        make_agent(seed=1).learn(256, log_dir=folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="not empty"):
        logged.learn(256, log_dir=tmp_path / "full")
    assert len(read_metrics(folder)) == 4


def test_the_best_policy_can_be_loaded(tmp_path):
    agent = make_agent()
    agent.save(tmp_path / "new")
    with pytest.warns(UserWarning, match="no evaluation yet"):
        assert TRPO.load(tmp_path / "new", policy=TINY, best=True).theta.size == 114
    agent.learn(256, log_dir=tmp_path / "run", eval_every=256, progress_bar=False)
    first = agent.theta.copy()
    # No later evaluation is better than one that is infinitely good.
    agent._state = dataclasses.replace(agent._state, best_return=np.inf)
    agent.learn(256, eval_every=256, progress_bar=False).save(tmp_path / "agent")
    last = TRPO.load(tmp_path / "agent", policy=TINY)
    best = TRPO.load(tmp_path / "agent", policy=TINY, best=True)
    assert best.theta.tobytes() == first.tobytes() != last.theta.tobytes()
    saved = SavedPolicy.load(tmp_path / "agent", policy=TINY, best=True)
    for name in ("mean", "squares"):
        ours, theirs = best.saved_policy.observation_moments, saved.observation_moments
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert best.learn(256).steps == 768


def test_parameters_move_between_agents():
    one, other = make_agent(seed=1).learn(256), make_agent(seed=2)
    parameters = one.get_parameters()
    assert {"theta", "observation_moments/mean"} <= parameters.keys()
    other.set_parameters(parameters)
    observation = np.full((8, 4), 0.1, np.float32)
    np.testing.assert_array_equal(one.predict(observation, True), other.predict(observation, True))
    assert other.theta.tobytes() == one.theta.tobytes()
    parameters["theta"][:] = 0  # Copies: neither agent changes.
    assert other.theta.any()
    assert one.theta.any()
    for wrong, words in (
        ({"thetas": np.zeros(114)}, "there is no parameter 'thetas'; there are theta"),
        ({"theta": np.zeros(3)}, r"theta must be finite numbers of shape \(114,\)"),
        ({"theta": np.full(114, np.nan)}, "theta must be finite numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            other.set_parameters(wrong)
    assert other.theta.tobytes() == one.theta.tobytes()
    with pytest.raises(ValueError, match="set_parameters does not support cem"):
        make_agent(step={"method": "cem"}).set_parameters({})


def test_any_policy_can_be_evaluated():
    """CartPole falls over after 8 to 10 steps if it is always pushed to one side."""
    pushed = trellis.evaluate_policy(lambda _: 1, "CartPole-v1", 5)
    assert pushed.lengths.tolist() == pushed.returns.tolist()
    assert 8 <= pushed.lengths.min() <= pushed.lengths.max() <= 10

    class Model:
        def predict(self, observation, state=None, deterministic=False):
            assert deterministic
            return np.int64(1), state

    env = gymnasium.make("CartPole-v1")
    again = trellis.evaluate_policy(Model(), env, 5)
    np.testing.assert_array_equal(again.returns, pushed.returns)

    agent = make_agent()
    ours = trellis.evaluate_policy(agent, "CartPole-v1", 5)
    np.testing.assert_array_equal(
        ours.returns, trellis.evaluate_policy(agent.saved_policy, env, 5).returns
    )
    seeded = [
        trellis.evaluate_policy(policy, env, 5, deterministic=False, seed=3).returns
        for policy in (agent, agent, agent.saved_policy)
    ]
    np.testing.assert_array_equal(seeded[0], seeded[1])
    np.testing.assert_array_equal(seeded[0], seeded[2])
    env.close()


def test_the_callback_of_an_evaluation_sees_every_step_and_can_stop():
    agent, steps = make_agent(), []
    for policy in (agent, agent.predict):
        steps.clear()
        result = trellis.evaluate_policy(policy, "CartPole-v1", 3, callback=steps.append)
        assert len(steps) == result.lengths.sum()
        assert sum(step.terminated for step in steps) == 3
        stopped = trellis.evaluate_policy(
            policy, "CartPole-v1", 3, callback=lambda step: not step.terminated
        )
        assert stopped.lengths.sum() < result.lengths.sum()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((lambda _: 0, "CartPole-v1", 0), "episodes must be a whole number of at least 1, got 0"),
        ((lambda _: 0, "CartPole-v1", 2.5), "episodes must be a whole number"),
        ((lambda _: 0, [], 1), "env is a list"),
        (("runs/x", "CartPole-v1", 1), r"got str; open a folder with SavedPolicy.load\(path\)"),
    ],
)
def test_a_wrong_evaluation_is_refused(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        trellis.evaluate_policy(*arguments)


def test_lists_are_accepted_where_settings_are_tuples():
    from trellis import presets
    from trellis.config.changes import changed

    config = changed(presets.resolve("CartPole-v1"), {"policy": {"hidden": [8, 4]}})
    assert config.policy.hidden == (8, 4)
    hash(config.policy)
