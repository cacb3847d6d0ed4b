"""Runs of CEM and CMA: they solve the cart-pole, and go on bit for bit where they were stopped."""

import dataclasses
import json

import numpy as np
import pytest

from tests.forge import forge_arrays, newest
from tests.probes import ContinuousTarget
from trellis import TRPO, checkpoint_format, presets
from trellis.cli.main import main
from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, SearchConfig, StepConfig
from trellis.policies.distributions import DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.runs import run
from trellis.runs.log import read_metrics
from trellis.runs.trainers import make_trainer
from trellis.search.trainer import SearchTrainer
from trellis.training.build import env_maker
from trellis.training.trainer import Trainer

CARTPOLE, HOPPER = "trellis/PaperCartPole-v0", "trellis/PaperHopper-v0"
METHODS = ["cem", "cma"]


def config(env, method, **settings):
    search = SearchConfig(population=8, episodes=2, path_length=30)
    defaults = {"step": StepConfig(method=method), "search": search, "eval_episodes": 2}
    return dataclasses.replace(presets.resolve(env), **{**defaults, **settings})


def advance(trainer, state, generations):
    history = []
    for _ in range(generations):
        state, metrics = trainer.iterate(state)
        history.append(metrics)
    return state, history


def timeless(history):
    clocks = ("seconds_sampling", "seconds_update", "steps_per_second")
    return [{k: v for k, v in row.items() if k not in clocks} for row in history]


@pytest.mark.parametrize(("method", "generations"), [("cem", 40), ("cma", 40)])
def test_the_cartpole_is_solved(method, generations):
    trainer = make_trainer(config(CARTPOLE, method, search=SearchConfig(), seed=3))
    state = trainer.start()
    for _ in range(generations):
        state, metrics = trainer.iterate(state)
        if metrics["best_member_return"] >= 950 and trainer.evaluate(state, 10).mean_return >= 950:
            break
    assert trainer.evaluate(state, 20).mean_return >= 950
    assert state.steps < 150_000
    assert state.theta[-1] == 0.0, "the log std is not searched for, and stays"
    trainer.close()


def test_a_generation_fills_the_steps_of_an_iteration_but_is_never_too_small():
    def population(env, method, **settings):
        trainer = SearchTrainer(config(env, method, **{"search": SearchConfig(), **settings}))
        return trainer._search.population

    assert population("trellis/PaperSwimmer-v0", "cem") == 50
    assert population(HOPPER, "cma") == 1000
    assert population(CARTPOLE, "cma") == 100
    assert population("Hopper-v5", "cma") == 29
    assert population("Hopper-v5", "cem") == 40
    four_times = SearchConfig(episodes=4)
    assert population(HOPPER, "cma", search=four_times) == 250


def test_noise_for_the_whole_run_follows_the_steps():
    def variance(share, extra_variance):
        search = SearchConfig(
            population=8, path_length=10, extra_variance=extra_variance, noise_generations=0
        )
        trainer = SearchTrainer(config(CARTPOLE, "cem", search=search, total_steps=1000))
        state = dataclasses.replace(trainer.start(), steps=int(share * 1000))
        state, _ = trainer.iterate(state)
        trainer.close()
        return state.search["std"] ** 2

    for share in (0.0, 0.25, 1.0):
        added = variance(share, 0.05) - variance(share, 0.0)
        np.testing.assert_allclose(added, 0.05 * (1 - share), atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_stopped_ends_with_the_same_bytes(method, tmp_path):
    searched = SearchConfig(population=8, episodes=2, path_length=30, noisy_actions=True)
    settings = config(
        HOPPER,
        method,
        search=searched,
        policy=PolicyConfig(hidden=(6,)),
        estimation=EstimationConfig(normalize_observations=True),
        total_steps=2000,
        eval_every=400,
        checkpoint_every=400,
    )
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run.train(make_trainer(settings), whole, quiet=True, tensorboard=False)

    def crash(state, _):
        if state.steps > 1000:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        run.train(make_trainer(settings), broken, quiet=True, callbacks=[crash], tensorboard=False)
    reached = checkpoint_format.load_latest(broken / "checkpoints").iteration
    end = run.resume(broken, quiet=True, tensorboard=False)
    assert 0 < reached < end.iteration
    one, other = (checkpoint_format.load_latest(f / "checkpoints") for f in (whole, broken))
    assert {"search/fitness" if method == "cma" else "search/mean", "best_member"} <= set(
        one.arrays
    )
    assert {k: v.tobytes() for k, v in one.arrays.items()} == {
        k: v.tobytes() for k, v in other.arrays.items()
    }
    assert one.values == other.values
    assert timeless(read_metrics(whole)) == timeless(read_metrics(broken))
    assert "eval_return_mean" in read_metrics(whole)[-1]


@pytest.mark.parametrize("method", METHODS)
def test_iterate_is_a_function_of_the_state(method):
    trainer = make_trainer(config(CARTPOLE, method))
    start = trainer.start()
    middle, _ = advance(trainer, start, 2)
    end, first = advance(trainer, middle, 2)
    again, second = advance(trainer, middle, 2)  # The search has moved on: it has to go back.
    assert timeless(first) == timeless(second)
    assert end.theta.tobytes() == again.theta.tobytes()
    other = make_trainer(config(CARTPOLE, method, seed=1))
    assert timeless(advance(other, other.start(), 1)[1]) != timeless(advance(trainer, start, 1)[1])


@pytest.mark.parametrize("method", METHODS)
def test_a_state_is_the_same_after_freezing_and_thawing(method):
    estimation = EstimationConfig(normalize_observations=True)
    trainer = make_trainer(config(CARTPOLE, method, estimation=estimation))
    state, history = advance(trainer, trainer.start(), 3)
    assert state.observation_moments.count == state.steps
    assert state.best_member_return == max(row["best_member_return"] for row in history)
    arrays, values = trainer.to_checkpoint(state)
    again, same_values = trainer.to_checkpoint(trainer.from_checkpoint(arrays, values))
    assert {"best_member", "best_member_moments/mean", "theta"} < set(arrays)
    assert values == same_values
    assert {k: v.tobytes() for k, v in arrays.items()} == {k: v.tobytes() for k, v in again.items()}


def test_a_record_that_leads_elsewhere_is_not_believed():
    trainer = make_trainer(config(CARTPOLE, "cma"))
    state, _ = advance(trainer, trainer.start(), 2)
    changed = {"fitness": -state.search["fitness"]}
    with pytest.raises(ValueError, match="does not lead to the policy"):
        trainer.iterate(dataclasses.replace(state, search=changed))
    arrays, values = trainer.to_checkpoint(dataclasses.replace(state, search=changed))
    with pytest.raises(ValueError, match="does not lead to the policy"):
        trainer.from_checkpoint(arrays, values)


def test_a_run_whose_search_was_changed_is_refused_with_one_line(tmp_path, capsys):
    out = tmp_path / "run"
    quick = ["--search.population", "6", "--search.path-length", "20", "--steps", "200"]
    assert main(["train", CARTPOLE, "--method", "cma", "--out", str(out), *quick]) == 0
    fitness = checkpoint_format.load_latest(out / "checkpoints").arrays["search/fitness"]
    forge_arrays(newest(out), search__fitness=-fitness)
    capsys.readouterr()
    assert main(["resume", str(out), "--steps", "400"]) == 2
    assert "does not lead to the policy" in capsys.readouterr().err


def test_steps_are_those_that_were_simulated():
    settings, made = config(CARTPOLE, "cem"), []
    original = env_maker(settings)

    def make(num_envs):
        env = original(num_envs)
        step, env.stepped = env.step, 0

        def counted(actions, active=None):
            env.stepped += num_envs if active is None else int(active.sum())
            return step(actions, active)

        env.step = counted
        made.append(env)
        return env

    trainer = make_trainer(settings, make)
    state, history = advance(trainer, trainer.start(), 3)
    assert state.steps == sum(env.stepped for env in made) == history[-1]["steps"]
    assert history[0]["episodes"] == 16
    assert history[0]["episode_length_mean"] * 16 == history[0]["steps"]


def test_the_python_door_and_the_command_line(tmp_path, capsys):
    policy = Policy(MLP(1, (), 1), DiagGaussian(1))
    agent = TRPO(
        ContinuousTarget,
        policy=policy,
        step=StepConfig(method="cem"),
        sampling=SamplingConfig(8, 64),
        search=SearchConfig(population=40, episodes=4, path_length=1),
        estimation=EstimationConfig(normalize_observations=False),
    )
    agent.learn(total_timesteps=5000)
    action = agent.predict(np.array([1.0], np.float32), deterministic=True)
    assert action[0] == pytest.approx(0.5, abs=0.1)
    agent.save(tmp_path / "agent")
    loaded = TRPO.load(tmp_path / "agent", env=ContinuousTarget, policy=policy)
    assert loaded.theta.tobytes() == agent.theta.tobytes()
    loaded.learn(total_timesteps=1)
    agent.learn(total_timesteps=1)
    assert loaded.theta.tobytes() == agent.theta.tobytes()

    out = str(tmp_path / "run")
    quick = ["--search.population", "6", "--search.path-length", "20", "--steps", "200"]
    assert main(["train", CARTPOLE, "--method", "cma", "--out", out, *quick]) == 0
    assert main(["resume", out, "--steps", "400"]) == 0
    capsys.readouterr()
    assert main(["eval", out, "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3


def test_what_cannot_be_is_refused_with_the_reason(capsys, tmp_path):
    with pytest.raises(ValueError, match="sampler must be single-path for cem"):
        config(CARTPOLE, "cem", sampling=SamplingConfig(sampler="vine"))
    with pytest.raises(ValueError, match="population of 8 cannot be divided into 32 shards"):
        make_trainer(config(CARTPOLE, "cem", sampling=SamplingConfig(shards=32)))
    with pytest.raises(ValueError, match="multiplier must be None for cma"):
        StepConfig(method="cma", multiplier=0.1)
    with pytest.raises(ValueError, match=r"trellis\.runs\.trainers\.make_trainer"):
        Trainer(config(CARTPOLE, "cem"))
    with pytest.raises(ValueError, match="population must be at least 4, got 1"):
        SearchConfig(population=1)
    with pytest.raises(ValueError, match="no time limit"):
        TRPO(ContinuousTarget, step=StepConfig(method="cem"))
    line = ["train", CARTPOLE, "--method", "cem", "--sampler", "vine", "--out", str(tmp_path / "x")]
    assert main(line) == 2
    assert "sampler must be single-path" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
