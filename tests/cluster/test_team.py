"""The same training on Ray: the same bits with any number of workers, and with workers that die."""

import dataclasses
import sys

import cloudpickle
import numpy as np
import pytest
import ray

from tests.cluster.rays import FAULTS, kill_workers, ray_folder, start_ray, team_on
from tests.training.cases import CASES, ITERATIONS, bytes_of, num_bytes, train
from trellis.cluster import workers as workers_module
from trellis.cluster.connection import ClusterError
from trellis.cluster.team import RayTeam
from trellis.cluster.worker import ShardError
from trellis.cluster.workers import WorkerGroup
from trellis.config import EstimationConfig, PolicyConfig, SearchConfig, StepConfig
from trellis.runs.trainers import make_trainer
from trellis.training.trainer import Trainer

HOPPER, CARTPOLE = CASES["Hopper-v5", "single-path"], CASES["CartPole-v1", "single-path"]


@pytest.fixture(scope="module", autouse=True)
def one_ray():
    with ray_folder() as folder:
        start_ray(folder)
        yield


def check(config, workers):
    assert train(config, team_on("auto", workers)) == train(config)


@pytest.mark.slow
def test_vine_on_one_worker():
    check(CASES["Hopper-v5", "vine"], 1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_any_number_of_workers(case, workers):
    check(CASES[case], workers)


@pytest.mark.slow
@pytest.mark.parametrize("case", [("CartPole-v1", "single-path"), ("CartPole-v1", "vine")])
def test_policies_with_memory(case):
    policy = PolicyConfig(hidden=(4,), memory="gru", memory_units=3)
    check(dataclasses.replace(CASES[case], policy=policy), 2)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["trellis/KnightsTour-v0", "trellis/Carry-v0"])
@pytest.mark.parametrize("sampler", ["single-path", "vine"])
def test_masks_and_mixed_actions(env, sampler):
    check(dataclasses.replace(CASES["CartPole-v1", sampler], env=env), 2)


@pytest.mark.slow
def test_masks_with_memory():
    policy = PolicyConfig(hidden=(4,), memory="gru", memory_units=3)
    check(dataclasses.replace(CARTPOLE, env="trellis/KnightsTour-v0", policy=policy), 2)


@pytest.mark.slow
def test_a_baseline_over_the_paths_of_all_workers():
    estimation = EstimationConfig(critic="none", baseline="time", advantages="center")
    check(dataclasses.replace(CARTPOLE, estimation=estimation), 2)


@pytest.mark.slow
def test_from_one_machine_to_a_cluster_and_back():
    """Checkpoints are the same wherever they are written; what travelled on the way is bounded."""
    expected, _ = train(HOPPER)
    here = Trainer(HOPPER)
    state, _ = here.iterate(here.start())
    there = Trainer(HOPPER, make_team=team_on("auto", 4))
    team = there.team
    assert isinstance(team, RayTeam)
    measured = _measure(team.group)
    try:
        state = there.from_checkpoint(*here.to_checkpoint(state))
        for _ in range(3):
            state, metrics = there.iterate(state)
        frozen = there.to_checkpoint(state)
        assert metrics["status"] == "accepted"
        _check_traffic(measured, state, metrics["backtracks"])
    finally:
        there.close()
    state, _ = here.iterate(here.from_checkpoint(*frozen))
    assert state.iteration == ITERATIONS
    assert bytes_of(here, state) == expected
    here.close()


def _measure(group):
    """Array bytes that one worker is sent, and that it answers, in the last iteration."""
    ask, sent, received = group.ask, [], []

    def measured(what, call, **options):
        if what == "collect":
            sent.clear()
            received.clear()
        answer = ask(what, call, **options)
        sent.append(_closure_bytes(call))
        # Snapshots are not counted.
        received.append(num_bytes(answer._replace(states=[]) if what == "finish" else answer))
        assert len(cloudpickle.dumps(call)) < sent[-1] + 3000
        return answer

    group.ask = measured
    return sent, received


def _closure_bytes(call):
    """What travels with a function: the arrays that it has captured, and those of functions."""
    found = [cell.cell_contents for cell in call.__closure__ or ()]
    return sum(_closure_bytes(v) if callable(v) else num_bytes(v) for v in found)


def _check_traffic(measured, state, backtracks):
    """At most 16 vectors each way in an iteration, and another one per backtrack."""
    for sizes in measured:
        assert 11 < sum(sizes) / state.theta.nbytes <= 16 + backtracks


def test_two_workers_give_the_bits_of_one_process():
    """With networks that compile quickly; `test_any_number_of_workers` has larger ones."""
    estimation = dataclasses.replace(CARTPOLE.estimation, critic="linear")
    policy = PolicyConfig(hidden=())
    check(dataclasses.replace(CARTPOLE, policy=policy, estimation=estimation), 2)


@pytest.mark.slow
def test_workers_that_are_killed_at_the_start_and_in_every_phase(monkeypatch):
    teams, start = [], WorkerGroup._start

    def start_and_kill(group, span, **options):
        built = start(group, span, **options)
        monkeypatch.setattr(WorkerGroup, "_start", start)  # the first one alone
        ray.kill(group._actors[span])
        return built

    monkeypatch.setattr(WorkerGroup, "_start", start_and_kill)

    def on_team(team):
        kill_workers(team.group)
        teams.append(team)

    result = train(CARTPOLE, team_on("auto", 2), on_team=on_team)
    assert teams[0].group.losses == 1 + len(FAULTS)
    assert result == train(CARTPOLE)


@pytest.mark.slow
def test_a_population_whose_player_is_killed():
    search = SearchConfig(population=10, episodes=2, path_length=20, noisy_actions=True)
    config = dataclasses.replace(
        CARTPOLE, step=StepConfig(method="cma"), search=search, policy=PolicyConfig(hidden=())
    )
    results = []
    for cluster in (None, "auto"):
        trainer = make_trainer(config, cluster=cluster, workers=cluster and 2)
        if cluster:
            kill_workers(trainer._population.group, ["play"])
        state = trainer.start()
        try:
            for _ in range(3):
                state, _ = trainer.iterate(state)
            results.append(bytes_of(trainer, state))
        finally:
            trainer.close()
    assert trainer._population.group.losses == 1
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*FAULTS, "estimate", "start", "finish"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_workers_that_are_killed_ten_times(case, fault):
    teams, struck = [], []

    def on_team(team):
        teams.append(team)
        struck.append(kill_workers(team.group, [fault], range(2, 12)))

    # One iteration more: a worker may answer before it dies, and is missed at the next question.
    result, history = train(CASES[case], team_on("auto", 2), 12, on_team)
    # Where no action made a difference there is no direction to search along.
    searched = sum(row["status"] != "zero_gradient" for row in history[1:11])
    expected = searched if fault in ("fisher_product", "evaluate") else 10
    assert teams[0].group.losses == len(struck[0]) == expected >= 4
    assert (result, history) == train(CASES[case], iterations=12)


class TestRefusals:
    def test_a_run_of_one_shard(self):
        sampling = dataclasses.replace(CARTPOLE.sampling, shards=1)
        with pytest.raises(ClusterError, match="start it with --shards"):
            make_trainer(dataclasses.replace(CARTPOLE, sampling=sampling), cluster="auto")

    def test_more_workers_than_the_cluster_has_cpus_for(self):
        config = dataclasses.replace(CARTPOLE, threads=2)
        with pytest.raises(
            ClusterError, match=r"4 workers need 2 CPUs each, .* machines have 4: use"
        ):
            make_trainer(config, cluster="auto", workers=4)

    def test_more_workers_than_shards(self):
        with pytest.raises(ClusterError, match="use --workers 4 or fewer"):
            make_trainer(CARTPOLE, cluster="auto", workers=5)

    def test_cpus_that_others_use(self, monkeypatch):
        monkeypatch.setattr(workers_module, "PLACEMENT_SECONDS", 0.5)
        others = ray.util.placement_group([{"CPU": 3}])
        assert others.wait(10)
        try:
            with pytest.raises(ClusterError, match=r"found no place .* 1 CPUs of the cluster are"):
                make_trainer(CARTPOLE, cluster="auto", workers=2)
        finally:
            ray.util.remove_placement_group(others)

    def test_an_environment_that_fails_says_so_in_its_own_words(self):
        trainer = make_trainer(CARTPOLE, cluster="auto", workers=1)
        try:
            state = dataclasses.replace(trainer.start(), theta=np.zeros(3, np.float32))
            with pytest.raises(ShardError, match=r"shards 0 to 3 on .*Error"):
                trainer.iterate(state)
        finally:
            trainer.close()

    def test_ray_that_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(ClusterError, match=r"pip install 'trellis-rl\[ray\]'"):
            make_trainer(CARTPOLE, cluster="local")
