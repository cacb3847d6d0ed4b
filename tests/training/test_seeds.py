"""Seeds that are trained at once are ordinary runs, each equal to its own run."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest

import trellis
from tests import forge
from tests.envs.jax.environments import Walk
from tests.training.test_compiled import CASES, CLOCKS, SAMPLING, compiled, leaves, maker
from trellis.checkpoint_format import CheckpointError, CheckpointWarning, MismatchError
from trellis.cli.main import main
from trellis.config import SamplingConfig
from trellis.policies.saved import SavedPolicy
from trellis.runs import seeds as runs
from trellis.runs.folder import RunFolderError
from trellis.runs.log import read_metrics
from trellis.training import seeds
from trellis.training.seeds import SeedsTrainer

ENV, CONFIG = CASES["discrete"]
CONFIG = dataclasses.replace(CONFIG, total_steps=4 * SAMPLING.batch_size, eval_episodes=2)
CONFIG = dataclasses.replace(CONFIG, checkpoint_every=SAMPLING.batch_size)


def trainer_of(count=3, **options):
    return SeedsTrainer(CONFIG, range(5, 5 + count), maker(ENV), **options)


def remade(config, seeds):
    return SeedsTrainer(config, seeds, maker(ENV))


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_each_seed_is_its_own_run(groups):
    """The same bits for a seed in a group of its own, and the same to rounding otherwise."""
    together = trainer_of(groups=groups)
    state, metrics = together.iterate(together.start())
    state, metrics = together.iterate(state)
    assert metrics["episodes"] == pytest.approx(np.mean([r["episodes"] for r in together.rows]), 1)
    steps = 3 * SAMPLING.batch_size
    assert metrics["steps_per_second"] == pytest.approx(steps / metrics["seconds_iteration"])
    alone_in_group = {1: (), 2: (7,), 3: (5, 6, 7)}[groups]
    for seed, mine, row in zip(together.seeds, state.states, together.rows, strict=True):
        alone = compiled(dataclasses.replace(CONFIG, seed=seed), ENV)
        own, _ = alone.iterate(alone.start())
        own, expected = alone.iterate(own)
        for a, b in zip(leaves(own), leaves(mine), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
            assert np.array_equal(a, b) or seed not in alone_in_group
        assert row["episodes"] == expected["episodes"]
        assert row["kl"] == pytest.approx(expected["kl"], rel=1e-3)
    thetas = [each.theta for each in state.states]
    assert not np.array_equal(thetas[0], thetas[1])
    together.close()


def test_large_iterations_have_a_group_per_seed_and_small_ones_a_group_per_core(monkeypatch):
    monkeypatch.setattr(seeds, "usable_cores", lambda: 4)
    model = compiled(CONFIG, ENV).model
    large = dataclasses.replace(CONFIG, sampling=SamplingConfig(num_envs=512, steps_per_env=512))
    assert [seeds.num_groups(CONFIG, model, count) for count in (3, 16)] == [3, 4]
    assert [seeds.num_groups(large, model, count) for count in (3, 16)] == [3, 16]
    monkeypatch.setattr(seeds.jax, "default_backend", lambda: "gpu")
    assert seeds.num_groups(large, model, 16) == 1


def test_an_error_in_one_thread_is_raised(monkeypatch):
    trainer = trainer_of(groups=3)
    begun = []

    def iterate(state, index):
        begun.append(index)
        if index == 1:
            raise RuntimeError("broken")
        return state, {}

    for index, each in enumerate(trainer.trainers):
        monkeypatch.setattr(each, "iterate", functools.partial(iterate, index=index))
    with pytest.raises(RuntimeError, match="broken"):
        trainer.iterate(trainer.start())
    assert sorted(begun) == [0, 1, 2]
    trainer.close()


@pytest.mark.slow
def test_the_folder_of_seeds_holds_runs_and_resumes_bit_for_bit(tmp_path, capsys):
    whole = runs.train_seeds(trainer_of(), tmp_path / "whole", quiet=True)
    assert whole.iteration == 4

    class StopError(Exception):
        pass

    def stop(state, _):
        if state.iteration == 3:
            raise StopError

    with pytest.raises(StopError):
        runs.train_seeds(trainer_of(), tmp_path / "cut", quiet=True, callbacks=[stop])
    # One seed was saved later than the others, as a kill between two checkpoints leaves it.
    (tmp_path / "cut/seed-5/checkpoints/000003").mkdir()
    resumed = runs.resume_seeds(
        tmp_path / "cut",
        quiet=True,
        make_trainer=lambda config, seeds: SeedsTrainer(config, seeds, maker(ENV)),
    )
    for a, b in zip(whole.states, resumed.states, strict=True):
        assert all(map(np.array_equal, leaves(a), leaves(b)))
        assert a.best_return == b.best_return
    for seed in (5, 6, 7):
        one, two = (read_metrics(tmp_path / name / f"seed-{seed}") for name in ("whole", "cut"))
        for rows in (one, two):
            for row in rows:
                for name in CLOCKS:
                    row.pop(name, None)
        assert one == two
        assert len(one) == 4
        assert "eval_return_mean" in one[-1]
        policy = SavedPolicy.load(tmp_path / f"whole/seed-{seed}", policy=None)
        assert np.array_equal(policy.theta, whole.states[seed - 5].theta)
    assert main(["compare", str(tmp_path / "whole"), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["runs"]) == 3


def test_a_damaged_checkpoint_of_one_seed_takes_all_seeds_to_the_one_before(tmp_path):
    config = dataclasses.replace(CONFIG, total_steps=2 * SAMPLING.batch_size)
    whole = runs.train_seeds(remade(config, (5, 6)), tmp_path / "whole", quiet=True)
    for name in ("cut", "forged"):
        shutil.copytree(tmp_path / "whole", tmp_path / name)

    newest = tmp_path / "cut/seed-6/checkpoints/000002"
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    resume = functools.partial(runs.resume_seeds, quiet=True, make_trainer=remade)
    words = f"{newest}.* is damaged: .*All seeds continue from iteration 1 instead"
    with pytest.warns(CheckpointWarning, match=words):
        resumed = resume(tmp_path / "cut")
    for a, b in zip(whole.states, resumed.states, strict=True):
        assert all(map(np.array_equal, leaves(a), leaves(b)))
    assert resume(tmp_path / "cut").iteration == 2  # It was written again.

    forge.forge_arrays(tmp_path / "forged/seed-6/checkpoints/000002", theta=np.zeros(3, "f4"))
    with pytest.raises(MismatchError, match="holds a policy of 3 parameters"):
        resume(tmp_path / "forged")

    for path in (tmp_path / "cut/seed-6/checkpoints").iterdir():
        (path / "arrays.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no whole checkpoint of one iteration in common"):
        resume(tmp_path / "cut")


@pytest.mark.slow
def test_learn_seeds_returns_policies_and_curves():
    found = trellis.learn_seeds(
        Walk(),
        [1, 2],
        total_timesteps=SAMPLING.batch_size,
        progress_bar=False,
        policy={"hidden": (8,)},
        **{name: getattr(CONFIG, name) for name in ("sampling", "estimation", "step")},
    )
    assert found.curve().shape == (2, 1)
    assert [policy.config.seed for policy in found.policies] == [1, 2]
    assert found.policies[0].act(np.zeros(2, np.float32)) in range(3)


def test_what_cannot_be_trained_at_once_says_why(tmp_path):
    with pytest.raises(ValueError, match="not written in JAX: train them one by one"):
        trellis.learn_seeds("CartPole-v1", 2)
    with pytest.raises(ValueError, match="seeds must be different"):
        trellis.learn_seeds(Walk(), [1, 1])
    (tmp_path / "seeds.json").write_text('{"seeds": "all"}')
    with pytest.raises(RunFolderError, match="damaged"):
        runs.seed_folders(tmp_path)


def test_the_command_line_refuses_seeds_of_other_environments(capsys):
    assert main(["train", "CartPole-v1", "--seeds", "2"]) == 2
    assert "not written in JAX" in capsys.readouterr().err
    assert main(["train", "CartPole-v1", "--seeds", "0"]) == 2
    assert "seeds must be from 1" in capsys.readouterr().err
