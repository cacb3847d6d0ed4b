"""The loop: it learns what can be known beforehand, repeats itself exactly, and can be put back."""

import copy
import dataclasses

import numpy as np
import pytest

from tests import probes
from trellis import envs
from trellis.actions import UnsupportedSpaceError
from trellis.config import (
    EstimationConfig,
    PolicyConfig,
    SamplingConfig,
    StepConfig,
    TrainConfig,
    VineConfig,
)
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.normalizer import make_normalizer
from trellis.policies.policy import Policy
from trellis.runs.trainers import make_trainer
from trellis.training.team import LocalTeam
from trellis.training.trainer import Trainer

SMALL = TrainConfig(
    "CartPole-v1",
    policy=PolicyConfig(hidden=(16,)),
    sampling=SamplingConfig(num_envs=8, steps_per_env=32),
    estimation=EstimationConfig(critic_hidden=(16,), critic_epochs=2, critic_minibatch=64),
    step=StepConfig(max_kl=0.05),
)


def run(trainer, state, iterations):
    history = []
    for _ in range(iterations):
        state, metrics = trainer.iterate(state)
        history.append({k: v for k, v in metrics.items() if not k.startswith("sec")})
        history[-1].pop("steps_per_second")
    return state, history


def train_probe(probe, iterations=40, **estimation):
    settings = dataclasses.replace(SMALL.estimation, gamma=0.95, **estimation)
    config = dataclasses.replace(SMALL, env="probe", estimation=settings)
    trainer = Trainer(config, lambda n: envs.make(probe, n))
    state, _ = run(trainer, trainer.start(), iterations)
    return trainer, state


def test_evaluations_draw_actions_where_that_is_asked_for():
    """An untrained policy is undecided: drawn actions are a coin's, 22 steps on average, though
    this one's most probable actions happen to be good ones."""
    trainer = Trainer(dataclasses.replace(SMALL, eval_drawn=True))
    drawn = [trainer.evaluate(trainer.start(), 20).lengths for _ in range(2)]
    chosen = Trainer(SMALL).evaluate(Trainer(SMALL).start(), 20).lengths
    np.testing.assert_array_equal(*drawn)
    assert 15 < drawn[0].mean() < 40
    assert chosen.mean() > 60
    continuous = Trainer(dataclasses.replace(SMALL, env="Pendulum-v1", eval_drawn=True))
    assert continuous.evaluate(continuous.start(), 3).episodes == 3


def bytes_of(trainer, state):
    arrays, values = trainer.to_checkpoint(state)
    return {name: value.tobytes() for name, value in arrays.items()} | values


class TestLearning:
    @pytest.mark.slow  # The next one includes it.
    def test_which_action_pays(self):
        trainer, state = train_probe(probes.ActionMatters)
        assert trainer.evaluate(state, 20).mean_return == 1.0

    def test_what_the_observation_says(self):
        trainer, state = train_probe(probes.ObservationMatters)
        assert trainer.evaluate(state, 20).mean_return == 1.0

    def test_what_pays_later(self):
        trainer, state = train_probe(probes.DelayedReward, 60)
        assert trainer.evaluate(state, 20).mean_return == 10.0

    def test_what_pays_later_without_a_critic(self):
        trainer, state = train_probe(
            probes.DelayedReward, 60, critic="none", advantages="center", normalize_rewards=False
        )
        assert trainer.evaluate(state, 20).mean_return == 10.0

    @pytest.mark.slow
    def test_where_a_continuous_action_belongs(self):
        trainer, state = train_probe(probes.ContinuousTarget, 60)
        assert trainer.evaluate(state, 20).mean_return > -0.02

    @pytest.mark.slow
    def test_both_factors_of_an_action(self):
        trainer, state = train_probe(probes.FactorsMatter)
        assert trainer.evaluate(state, 20).mean_return == 2.0

    @pytest.mark.slow
    def test_observations_of_several_parts(self):
        trainer, state = train_probe(probes.DictObservation)
        assert trainer.evaluate(state, 20).mean_return == 1.0

    def test_that_a_time_limit_is_not_an_end(self):
        """1 at every step for ever is worth 1/(1 − γ), though episodes are cut after five."""
        trainer, state = train_probe(
            probes.Endless,
            150,
            normalize_rewards=False,
            critic_learning_rate=3e-3,
            critic_epochs=10,
        )
        assert trainer.model.critic is not None
        value = trainer.model.critic.predict(state.critic, np.zeros((1, 1)), np.zeros(1))
        np.testing.assert_allclose(value, 1 / (1 - 0.95), rtol=0.1)

    @pytest.mark.slow
    def test_with_a_linear_critic(self):
        trainer, state = train_probe(probes.ObservationMatters, critic="linear")
        assert trainer.evaluate(state, 20).mean_return == 1.0


def test_cart_pole_gets_better():
    sampling = SamplingConfig(num_envs=8, steps_per_env=128)
    trainer = Trainer(dataclasses.replace(SMALL, sampling=sampling))
    _, history = run(trainer, trainer.start(), 20)
    returns = [row["episode_return_mean"] for row in history if "episode_return_mean" in row]
    assert returns[0] < 40
    assert np.mean(returns[-10:]) > 60
    assert all(row["kl"] <= 0.05 for row in history)


def test_the_same_seed_gives_the_same_history_and_another_another():
    def history(seed):
        trainer = Trainer(dataclasses.replace(SMALL, seed=seed))
        state, rows = run(trainer, trainer.start(), 4)
        return rows, bytes_of(trainer, state)

    assert history(3) == history(3)
    assert history(3)[1]["theta"] != history(4)[1]["theta"]


@pytest.mark.parametrize("env", ["CartPole-v1", "Hopper-v5"])
def test_a_frozen_run_goes_on_bit_for_bit(env):
    config = dataclasses.replace(SMALL, env=env)
    trainer = Trainer(config)
    state, _ = run(trainer, trainer.start(), 3)
    frozen = trainer.to_checkpoint(state)
    state, expected = run(trainer, state, 3)

    other = Trainer(config)
    resumed, history = run(other, other.from_checkpoint(*frozen), 3)
    assert history == expected
    assert bytes_of(other, resumed) == bytes_of(trainer, state)


def test_evaluation_does_not_influence_training():
    results = []
    for evaluate in (False, True):
        trainer = Trainer(SMALL)
        state = trainer.start()
        for _ in range(2):
            state, _ = trainer.iterate(state)
            if evaluate:
                trainer.evaluate(state, 3)
        results.append(bytes_of(trainer, state))
    assert results[0] == results[1]


def test_after_an_iteration_that_broke_off_episodes_begin_anew(monkeypatch):
    trainer, other = Trainer(SMALL), Trainer(SMALL)
    state, _ = run(trainer, trainer.start(), 2)
    step, calls = trainer.team.shards[0].env.step, iter(range(10))

    def interrupted(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(trainer.team.shards[0].env, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.iterate(state)
    monkeypatch.undo()
    zeros = np.zeros(SMALL.sampling.num_envs)
    anew = dataclasses.replace(state, path=None, discounted_return=zeros)
    assert bytes_of(trainer, state) == bytes_of(other, anew)
    state, history = run(trainer, state, 2)
    expected, expected_history = run(other, anew, 2)
    assert history == expected_history
    assert bytes_of(trainer, state) == bytes_of(other, expected)


def test_what_was_frozen_can_be_thawed_after_an_iteration_that_broke_off(monkeypatch):
    trainer = Trainer(SMALL)
    state, _ = run(trainer, trainer.start(), 2)
    frozen = trainer.to_checkpoint(state)
    expected, history = run(trainer, state, 2)
    expected = bytes_of(trainer, expected)

    def broken(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.team.shards[0].env, "step", broken)
    with pytest.raises(KeyboardInterrupt):
        trainer.iterate(state)
    monkeypatch.undo()
    state, again = run(trainer, trainer.from_checkpoint(*frozen), 2)
    assert again == history
    assert bytes_of(trainer, state) == expected


def test_a_state_that_is_past_is_frozen_without_the_environments(caplog):
    trainer = Trainer(SMALL)
    past, _ = trainer.iterate(trainer.start())
    trainer.iterate(past)
    arrays, _ = trainer.to_checkpoint(past)
    assert "save it with to_checkpoint" in caplog.text
    assert not any(name.startswith(("env/", "path/")) for name in arrays)
    assert arrays["theta"].tobytes() == past.theta.tobytes()


@pytest.mark.parametrize(
    ("env", "distribution", "inputs", "words"),
    [
        ("CartPole-v1", DiagGaussian(1), 4, r"actions .* Categoricals\(sizes=\(2,\)\), got"),
        ("CartPole-v1", Categoricals((3,)), 4, r"got Categoricals\(sizes=\(3,\)\)"),
        ("Pendulum-v1", Categoricals((5,)), 3, r"must be DiagGaussian\(size=1\)"),
        ("CartPole-v1", Categoricals((2,)), 3, "inputs must be 4, got 3"),
    ],
)
@pytest.mark.parametrize("method", ["trpo", "cem"])
def test_a_policy_that_does_not_fit_is_refused(env, distribution, inputs, words, method):
    policy = Policy(MLP(inputs, (), distribution.num_outputs), distribution)
    config = dataclasses.replace(SMALL, env=env, step=StepConfig(method))
    with pytest.raises(ValueError, match=words):
        make_trainer(config, policy=policy)


def test_a_trainer_that_cannot_be_made_closes_its_environments_and_its_team():
    closed = []

    class CountedTeam(LocalTeam):
        def close(self):
            closed.append("team")
            super().close()

    class CountedEnv(probes.ActionMatters):
        def close(self):
            closed.append("env")

    def make_env(num_envs):
        return envs.make(CountedEnv, num_envs)

    config = dataclasses.replace(SMALL, env="probe", step=StepConfig(min_log_std=-1.0))
    with pytest.raises(ValueError, match="min_log_std needs continuous actions"):
        Trainer(config, make_env, make_team=CountedTeam)
    assert closed == ["env", "team", *["env"] * config.sampling.num_envs]
    closed.clear()
    policy = Policy(MLP(4, (), 2), Categoricals((2,)))
    with pytest.raises(ValueError, match="inputs must be 1, got 4"):
        Trainer(config, make_env, policy, make_team=CountedTeam)
    assert closed == ["env"]
    closed.clear()
    team = LocalTeam(config, make_env)
    with pytest.raises(ValueError, match="min_log_std"):
        Trainer(config, make_env, team=team)
    assert not closed  # Whoever made the team closes it.
    team.close()


def test_natural_gradient_never_divides_by_the_standard_deviation():
    step = StepConfig("natural-gradient", multiplier=0.1)
    with pytest.raises(ValueError, match="advantages must be center or raw"):
        dataclasses.replace(SMALL, step=step)
    centered = dataclasses.replace(SMALL.estimation, advantages="center")
    assert dataclasses.replace(SMALL, step=step, estimation=centered).step == step


def test_a_checkpoint_of_another_environment_is_refused():
    trainer = Trainer(SMALL)
    frozen = trainer.to_checkpoint(trainer.start())
    other = Trainer(dataclasses.replace(SMALL, env="Acrobot-v1"))
    with pytest.raises(ValueError, match="its observation space is Box"):
        other.from_checkpoint(*frozen)


def test_an_environment_that_cannot_be_saved_starts_new_episodes_and_says_so(caplog):
    config = dataclasses.replace(SMALL, env="probe")
    trainer = Trainer(config, lambda n: envs.make(probes.DelayedReward, n))
    state, _ = run(trainer, trainer.start(), 1)
    thawed = trainer.from_checkpoint(*trainer.to_checkpoint(state))
    assert thawed.path is None
    assert "new episodes start" in caplog.text


def test_what_is_kept_of_the_statistics_is_what_was_seen():
    trainer = Trainer(SMALL)
    state, _ = run(trainer, trainer.start(), 2)
    assert state.observation_moments.count == state.return_moments.count == state.steps
    assert np.all(state.observation_moments.variance > 0)
    raw = np.concatenate([state.path.observation])
    seen = make_normalizer(state.observation_moments)(raw)
    expected = (raw - state.observation_moments.mean) / np.sqrt(state.observation_moments.variance)
    np.testing.assert_allclose(seen, np.clip(expected, -10, 10), rtol=1e-3, atol=1e-3)
    # Of the running discounted return, by which rewards are divided: 1 a step, up to 1/(1 − γ).
    assert 1 < state.return_moments.mean < 100


def test_the_best_policy_comes_with_its_own_statistics():
    trainer = Trainer(SMALL)
    first, _ = run(trainer, trainer.start(), 1)
    later, _ = run(trainer, first, 1)
    kept = dataclasses.replace(
        later, best_theta=first.theta, best_moments=first.observation_moments
    )
    assert kept.chosen(best=True) == (first.theta, first.observation_moments)
    assert kept.chosen(best=False) == (later.theta, later.observation_moments)
    assert first.chosen(best=True) == (first.theta, first.observation_moments)


class Waking(probes.ActionMatters):
    """Has a state from its first reset on, which it can hand out and take back."""

    def reset(self, *, seed=None, options=None):
        self.awake = np.ones(1)
        return super().reset(seed=seed, options=options)

    def get_state(self):
        return {"awake": self.awake}

    def set_state(self, state):
        self.awake = state["awake"]


def test_environments_are_not_asked_for_their_states_before_they_have_one():
    config = dataclasses.replace(SMALL, env="waking")
    trainer = Trainer(config, lambda n: envs.make(Waking, n))
    arrays, values = trainer.to_checkpoint(trainer.start())
    assert not any(name.startswith("env/") for name in arrays)
    state, _ = run(trainer, trainer.from_checkpoint(arrays, values), 1)
    assert any(name.startswith("env/") for name in trainer.to_checkpoint(state)[0])


class Screen(probes.ActionMatters):
    observation_space = probes.spaces.Box(0, 255, (3, 12, 12), np.uint8)

    def _seen(self):
        return np.full((3, 12, 12), [[[1]], [[2]], [[3]]], np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), *super().step(action)[1:]


@dataclasses.dataclass(frozen=True)
class Brightness(MLP):
    """A network of one's own, that takes what it is given for arrays."""

    def apply(self, weights, observation):
        colours = observation.reshape(*observation.shape[:-3], 3, -1).astype(np.float32) / 16
        return super().apply(weights, colours.mean(-1))


def test_a_network_of_ones_own_sees_pictures_as_arrays():
    vine = VineConfig(trunks=2, trunk_length=8, states=4, actions=2, rollout_length=3)
    sampling = dataclasses.replace(SMALL.sampling, sampler="vine", vine=vine)
    config = dataclasses.replace(SMALL, env="screen", sampling=sampling)
    policy = Policy(Brightness(3, (4,), 2), Categoricals((2,)))
    trainer = Trainer(config, lambda n: envs.make(Screen, n), policy)
    _, (metrics,) = run(trainer, trainer.start(), 1)
    assert metrics["status"] in ("accepted", "zero_gradient")
    assert np.isfinite(metrics["entropy"])


def test_spaces_that_no_policy_can_read_are_refused():
    class Text(probes.ActionMatters):
        observation_space = probes.spaces.Text(5)

    class WholeNumbers(probes.ActionMatters):
        action_space = probes.spaces.Box(0, 5, (2,), np.int64)

    config = dataclasses.replace(SMALL, env="x")
    with pytest.raises(ValueError, match="has no fixed shape and is not supported"):
        Trainer(config, lambda n: envs.make(Text, n))
    with pytest.raises(UnsupportedSpaceError, match="not supported; supported are Box of floats"):
        Trainer(config, lambda n: envs.make(WholeNumbers, n))


def test_from_an_earlier_state_episodes_begin_anew(caplog):
    """The environments are where the last state has them: what an earlier one saw is past."""
    trainer = Trainer(SMALL)
    kept, _ = trainer.iterate(trainer.start())
    trainer.iterate(kept)
    assert not caplog.records
    again, _ = trainer.iterate(kept)
    assert "moved on" in caplog.text
    once_more, _ = trainer.iterate(kept)
    assert again.theta.tobytes() == once_more.theta.tobytes()


def test_a_copy_of_the_last_state_is_as_good(caplog):
    trainers = [Trainer(SMALL) for _ in range(2)]
    states = [trainer.iterate(trainer.start())[0] for trainer in trainers]
    one, _ = trainers[0].iterate(states[0])
    two, _ = trainers[1].iterate(copy.deepcopy(states[1]))
    assert one.theta.tobytes() == two.theta.tobytes()
    assert not caplog.records


@pytest.mark.parametrize(("whole_paths", "counted"), [(True, 8), (False, 48)])
def test_where_paths_begin_anew_only_episodes_that_had_time_to_end_are_counted(
    whole_paths, counted
):
    # Five steps each, of 32: six for each of eight environments, of which the first must end.
    sampling = dataclasses.replace(SMALL.sampling, whole_paths=whole_paths)
    config = dataclasses.replace(SMALL, env="endless", sampling=sampling)
    trainer = Trainer(config, lambda n: envs.make(probes.Endless, n))
    trainer.team.shards[0].env.max_episode_steps = 32  # Its episodes end before that.
    _, (metrics,) = run(trainer, trainer.start(), 1)
    assert metrics["episodes"] == counted
    assert metrics["episode_length_mean"] == 5
