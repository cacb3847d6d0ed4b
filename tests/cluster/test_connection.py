"""How many workers a cluster has room for."""

import socket
from types import SimpleNamespace

import pytest

from trellis.cluster import connection as cluster
from trellis.cluster.connection import ClusterError, choose_workers


@pytest.mark.parametrize("address", ["somewhere", ":6379", "host:", "ray://host:10001"])
def test_what_is_no_address_is_said_to_be_none(address):
    with pytest.raises(ClusterError, match="is not the address of a cluster: give HOST:PORT"):
        cluster._reach(address)


def test_a_port_where_nobody_listens():
    with socket.socket() as mine:  # Bound and not listening, so that nobody else can be there.
        mine.bind(("127.0.0.1", 0))
        with pytest.raises(ClusterError, match=r"no cluster can be reached at 127\.0\.0\.1"):
            cluster._reach(f"127.0.0.1:{mine.getsockname()[1]}")


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
