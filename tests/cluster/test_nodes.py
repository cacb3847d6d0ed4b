"""Two machines, simulated: the same bits, also when one of them is gone all at once."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from tests.cluster.rays import ray_folder, team_on
from tests.training.cases import CASES, train
from trellis.cluster import workers as workers_module

# Every worker starts and compiles on its own: too long for the fast suite on two cores.
pytestmark = pytest.mark.slow

HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture
def two_nodes(request):
    """A head with as many CPUs as the test says, and a machine with one."""
    with ray_folder() as folder:
        # Cluster writes the head's address there, but does not create the folder.
        Path("/tmp/ray").mkdir(exist_ok=True)
        options = {"object_store_memory": 100 << 20, "include_dashboard": False}
        head = {"num_cpus": request.param, "_system_config": HEALTH, "temp_dir": str(folder)}
        cluster = Cluster(initialize_head=True, head_node_args={**head, **options})
        try:
            node = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            cluster.connect()
            yield cluster, node
        finally:
            ray.shutdown()
            cluster.shutdown()


def train_and_lose(case, cluster, node, iteration=2):
    """The result of a run on both nodes, one of which is lost in the middle of an iteration."""

    def on_team(team):
        places = ray.util.placement_group_table(team.group._placement)["bundles_to_node_id"]
        (there,) = (team.group.spans[i] for i, place in places.items() if place == node.node_id)
        pid = ray.get(team.group._actors[there].pid.remote())
        send, begun = team.group._send, 0

        def sent(span, what, call):
            nonlocal begun
            begun += what == "collect" and span == there
            ref = send(span, what, call)
            if begun == iteration and what == "prepare_step" and span == there:
                begun += 1  # Once is enough.
                # A machine without power has no process left; here its workers would linger.
                cluster.remove_node(node, allow_graceful=False)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return ref

        team.group._send = sent
        teams.append(team)

    teams = []
    result = train(case, team_on("auto", 2), on_team=on_team)
    assert teams[0].group.losses >= 1
    return result


@pytest.mark.parametrize("two_nodes", [2], indirect=True)
def test_a_node_that_is_lost_changes_nothing(two_nodes):
    case = CASES["CartPole-v1", "vine"]
    assert train_and_lose(case, *two_nodes) == train(case)


@pytest.mark.slow
@pytest.mark.parametrize("two_nodes", [1], indirect=True)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_nor_does_one_that_leaves_too_few_cpus(case, two_nodes, monkeypatch):
    monkeypatch.setattr(workers_module, "REPLACEMENT_SECONDS", 3.0)
    assert train_and_lose(CASES[case], *two_nodes) == train(CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("two_nodes", [1], indirect=True)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_two_nodes(case, two_nodes):
    assert train(CASES[case], team_on("auto", 2)) == train(CASES[case])
