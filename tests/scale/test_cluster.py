"""How many workers a cluster has room for."""

from types import SimpleNamespace

import pytest

from trellis.scale import cluster
from trellis.scale.cluster import ClusterError, choose_workers


def test_a_worker_fits_on_one_machine(monkeypatch):
    def nodes():
        machine = {"Alive": True, "Resources": {"CPU": 3.0}}
        return [machine, machine, {**machine, "Alive": False}]

    monkeypatch.setattr(cluster, "load_ray", lambda: SimpleNamespace(nodes=nodes))
    assert choose_workers(8, None, 2) == 2
    assert choose_workers(8, None, 1) == 6
    assert choose_workers(4, None, 1) == 4
    with pytest.raises(ClusterError, match="need 2 CPUs each, the cluster's machines have 3, 3"):
        choose_workers(8, 3, 2)
    with pytest.raises(ClusterError, match="at least 1"):
        choose_workers(8, 0, 1)
