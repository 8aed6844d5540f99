"""docs/reference/metrics.md names the metrics of both directions of etcd, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from fake_etcd import fake_etcd
from virtual_time import LoopClock

from minikube_py.etcd.client import Endpoints
from minikube_py.etcd.metrics import KNOWN, under_etcds_names
from minikube_py.etcd.mirror import Mirror
from minikube_py.etcd.server import EtcdServer
from minikube_py.etcd.storage import EtcdStorage
from minikube_py.mvcc.watch import WatchHub
from minikube_py.ports.metric_lines import lines_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
SELDOM = {"minikube_py_etcd_grpc_connections_ended_total", "minikube_py_etcd_grpc_connections_broken_total"}


def named(title: str, prefix: str) -> set[str]:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    rows = re.findall(r"^\| `(\w+)` \| ([CG]) \|", section.partition("\n## ")[0], re.M)
    assert all(name.endswith("_total") == (kind == "C") for name, kind in rows)
    return {prefix + name for name, _ in rows}


async def test_of_an_api_server_on_an_etcd() -> None:
    storage = EtcdStorage(Endpoints(("127.0.0.1:1",)), LoopClock(), compaction_interval_s=0)
    storage.feed.mirror = Mirror()
    storage.feed.hub = WatchHub(storage.feed.mirror.state)
    assert set(storage.metrics()) == named("etcd behind the API server", "minikube_py_etcd_client_")


async def test_of_etcds_api() -> None:
    async with fake_etcd() as etcd:
        server = EtcdServer(etcd.node, [("127.0.0.1", 0)], None)
        assert set(server.metrics()) == named("etcd's API", "minikube_py_etcd_") - SELDOM
        told = {name.partition("{")[0] for name in under_etcds_names(server)}
        assert told == set(KNOWN) and all(f"`{name}`" in PAGE.read_text(encoding="utf-8") for name in told)


def test_lines_of_a_metric_stand_together_under_its_type_and_help() -> None:
    gauges = {"a": 1, "a_b_total": 2.5, 'a{l="1"}': True, "t_total": 3}
    assert list(lines_of(gauges, {"t_total": ("gauge", "What it is.")})) == [
        *("# TYPE a gauge", "a 1", 'a{l="1"} 1'),
        *("# TYPE a_b_total counter", "a_b_total 2.5"),
        *("# HELP t_total What it is.", "# TYPE t_total gauge", "t_total 3"),
    ]
