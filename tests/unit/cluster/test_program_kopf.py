"""Operators made with kopf, in virtual time: as a program, explored, and two replicas of which one leads."""

from __future__ import annotations

import asyncio
import datetime
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.explore import explore

kopf = pytest.importorskip("kopf")
kubernetes = pytest.importorskip("kubernetes")
pytestmark = pytest.mark.real_time("plain handlers on threads of their own")
LABELLED = {"expose": "true"}
WEB = """
apiVersion: v1
kind: ReplicationController
metadata: {name: web, labels: {expose: "true"}}
spec:
  replicas: 2
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
"""


@pytest.fixture
def registry() -> Iterator[Any]:
    yield kopf.OperatorRegistry()


def exposes(registry: Any, careless: bool = False) -> Any:
    """A plain handler, and one that is a coroutine. `careless`: what is there is not made again."""

    @kopf.on.resume("replicationcontrollers", labels=LABELLED, registry=registry)
    @kopf.on.create("replicationcontrollers", labels=LABELLED, registry=registry)
    def expose(name: str, namespace: str, spec: Any, memo: Any, **_: Any) -> None:
        service = {"metadata": {"name": name}, "spec": {"selector": dict(spec["selector"]), "ports": [{"port": 80}]}}
        core = kubernetes.client.CoreV1Api(memo.clients.kubernetes())
        try:
            core.create_namespaced_service(namespace, service)
        except kubernetes.client.ApiException as error:
            if error.status != 409:
                raise
            if careless:
                return
        settings = {"metadata": {"name": name}, "data": {"service": name}}
        try:
            core.create_namespaced_config_map(namespace, settings)
        except kubernetes.client.ApiException as error:
            if error.status != 409:
                raise

    async def operate(clients: Any) -> None:
        await clients.kopf(registry)

    return operate


def exposed(operate: Any) -> Any:
    def test(cluster: Cluster) -> None:
        cluster.program(operate)
        cluster.apply(WEB)
        cluster.wait("service/web", timeout_s=600)
        cluster.wait("cm/web", timeout_s=600)

    return test


def test_an_operator_runs_in_virtual_time_and_repeats(registry: Any, caplog: pytest.LogCaptureFixture) -> None:
    dates: list[datetime.datetime] = []

    @kopf.on.create("replicationcontrollers", registry=registry)
    async def later(name: str, namespace: str, memo: Any, retry: int, started: datetime.datetime, **_: Any) -> None:
        dates.append(started)
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=500)
        async with memo.clients.httpx_asyncio() as http:
            made = await http.post(f"/api/v1/namespaces/{namespace}/configmaps", json={"metadata": {"name": "later"}})
            made.raise_for_status()

    operate = exposes(registry)
    found, threads = [], threading.active_count()
    for _ in range(2):
        with Cluster(nodes=1, clock="virtual", seed=7) as cluster:
            program = cluster.program(operate)
            cluster.apply(WEB)
            cluster.wait("cm/web", timeout_s=60)
            assert cluster.now_s < 60
            program.crash()
            cluster.wait("cm/later", timeout_s=1000)
            assert 500 < cluster.now_s < 600, "its delay was counted in virtual time, across the crash"
            assert program.starts == 2 and program.error is None
            found.append(cluster.digest)
    assert found[0] == found[1]
    assert {date.year for date in dates} == {2023}, "dates are the cluster's"
    assert threading.active_count() == threads
    assert "signals" not in caplog.text, "a program has none, which is nothing to warn of"


def test_a_careless_operator_is_found_and_a_careful_one_passes(registry: Any) -> None:
    careful = explore(exposed(exposes(registry)), range(8))
    assert careful.found is None and careful.kinds.total() > 3
    careless = explore(exposed(exposes(kopf.OperatorRegistry(), careless=True)), range(60))
    assert careless.found is not None and careless.found.repeats
    assert careless.found.least.faults


@pytest.mark.timeout(60)
@pytest.mark.parametrize("timeout_s", [1, None])
def test_a_plain_daemon_waits_for_its_end_in_virtual_time(registry: Any, timeout_s: float | None) -> None:
    looks: list[str] = []

    @kopf.daemon("configmaps", labels=LABELLED, registry=registry)
    def looks_after(stopped: Any, name: str, **_: Any) -> None:
        while not stopped:
            looks.append(name)
            stopped.wait(timeout_s)
        looks.append("stopped")

    async def operate(clients: Any) -> None:
        await clients.kopf(registry)

    with Cluster(nodes=0, clock="virtual", seed=3) as cluster:
        cluster.program(operate)
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "labels": LABELLED}})
        cluster.advance(20)
        assert 15 <= len(looks) <= 20 if timeout_s else len(looks) == 1
        cluster.delete("cm/web")
        cluster.advance(0.5)
        assert looks[-1] == "stopped"


def test_coroutines_in_a_set_begin_in_an_order_that_repeats() -> None:
    """Their order in a set is that of their addresses; kopf discovers with one."""
    begun: list[str] = []
    litter: list[object] = []

    async def ask(name: str) -> str:
        begun.append(name)
        return name

    async def operate(clients: Any) -> None:
        for each in asyncio.as_completed({ask(f"{number}") for number in range(64)}):
            await each
        for each in asyncio.as_completed([ask(f"{number}") for number in range(64)]):
            await each

    runs = []
    for size in (1, 3, 64):
        with Cluster(clock="virtual", seed=7) as cluster:
            litter += [bytearray(size) for _ in range(1000)]
            cluster.program(operate)
            cluster.advance(1)
        runs.append(begun[:])
        begun.clear()
    assert runs[0] == runs[1] == runs[2] and len(runs[0]) == 128


def test_where_kopf_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kopf", None)
    errors: list[ClusterError] = []

    async def operate(clients: Any) -> None:
        try:
            await clients.kopf()
        except ClusterError as error:
            errors.append(error)

    with Cluster(clock="virtual") as cluster:
        cluster.program(operate)
        cluster.advance(1)
    assert "pip install kopf" in str(errors[0])
