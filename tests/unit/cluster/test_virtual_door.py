"""The door in virtual time: what happens outside between two advances, and what of it is part of the history."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from minikube_py import Cluster, ClusterError, WaitTimeout
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request
from minikube_py.cluster.gate import GatedServer
from minikube_py.control_plane.tokens import SCHEDULER
from minikube_py.control_plane.users import USERS

pytestmark = pytest.mark.real_time("real sockets and threads")
RC = """
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 3
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
"""
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on the PATH: any of 1.27 to 1.33"
)


def virtual(seed: int = 7, nodes: int = 3) -> Cluster:
    return Cluster(nodes, clock="virtual", seed=seed)


def test_one_seed_one_digest_and_waiting_passes_virtual_time() -> None:
    digests = []
    for seed in (7, 7, 8):
        with virtual(seed) as cluster:
            cluster.apply(RC)
            assert cluster.wait("rc/web", ready=3)["status"]["readyReplicas"] == 3
            cluster.advance(minutes=5)
            assert cluster.now_s >= 300
            digests.append(cluster.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_wait_in_vain_takes_as_long_as_it_says_and_tells_what_was_seen() -> None:
    with virtual(nodes=0) as cluster:
        cluster.apply(RC)
        begun_s = cluster.now_s
        with pytest.raises(WaitTimeout, match="no nodes available to schedule pods"):
            cluster.wait("rc/web", ready=3, timeout_s=100)
        assert cluster.now_s == pytest.approx(begun_s + 100)


def looked(*, looks: bool) -> tuple[str, list[str]]:
    with virtual() as cluster:
        cluster.apply(RC)
        for _ in range(3):
            cluster.advance(1)
            if looks:
                http = cluster.client.httpx()
                assert len(http.get("/api/v1/namespaces/default/pods").json()["items"]) == 3
                assert http.get("/api/v1/pods", params={"labelSelector": "app=none"}).json()["items"] == []
                import kubernetes

                core = kubernetes.client.CoreV1Api(cluster.client.kubernetes())
                assert len(core.list_node().items) == 3
                assert len(list(cluster.client.kr8s().get("pods"))) == 3
        return cluster.digest, [each.kind for each in cluster.inputs]


def test_lists_of_several_pages_are_read_whole() -> None:
    with virtual(nodes=0) as cluster:
        names = [f"of-{number:04}" for number in range(1201)]
        for name in names:
            cluster.request("POST", "/api/v1/namespaces/default/secrets", b'{"metadata":{"name":"%s"}}' % name.encode())
        assert [each["metadata"]["name"] for each in cluster.objects("secrets")] == names
        assert cluster.wait("secrets", until=lambda secret: True)


def test_a_look_right_after_a_write_leaves_the_digest_as_it_was() -> None:
    digests = []
    for looks in (False, True):
        with virtual() as cluster:
            look = cluster.objects if looks else lambda kind: []
            look("nodes")
            cluster.apply(RC)
            look("pods")
            cluster.node("node-0").down()
            look("pods")
            cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            look("cm")
            cluster.advance(5)
            digests.append(cluster.digest)
    assert digests[0] == digests[1]


@pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")
def test_clients_that_read_leave_the_digest_as_it_was() -> None:
    assert looked(looks=True) == looked(looks=False) == (looked(looks=False)[0], ["request"] + ["advance"] * 3)


@pytest.mark.kubectl
@needs_kubectl
def test_kubectl_looks_and_writes_between_two_advances() -> None:
    digests = []
    for look in (True, False):
        with virtual() as cluster:
            assert "created" in cluster.kubectl("apply", "-f", "-", "--validate=false", input=RC)
            cluster.advance(5)
            if look:
                assert cluster.kubectl("get", "pods", "-o", "name").count("pod/web-") == 3
                assert "Running" in cluster.kubectl("get", "pods", "-o", "wide")
                assert "SuccessfulCreate" in cluster.kubectl("describe", "rc", "web")
            cluster.kubectl("scale", "rc", "web", "--replicas=5")
            cluster.advance(5)
            digests.append(cluster.digest)
            writes = [each.arguments[:2] for each in cluster.inputs if each.kind == "request"]
            path = "/api/v1/namespaces/default/replicationcontrollers"
            assert writes[0] == ("POST", path) and len(writes) == 2
            assert len(cluster.objects("pods")) == 5
    assert digests[0] == digests[1]


@pytest.mark.kubectl
@needs_kubectl
def test_kubectl_deletes_without_waiting_for_time_that_does_not_pass() -> None:
    with virtual() as cluster:
        cluster.apply(RC)
        cluster.wait("rc/web", ready=3)
        name = cluster.objects("pods")[0]["metadata"]["name"]
        assert "deleted" in cluster.kubectl("delete", "pod", name)
        cluster.wait(f"pod/{name}", gone=True)


def test_a_watch_over_https_is_told_after_each_advance() -> None:
    seen: list[str] = []
    told = threading.Semaphore(0)
    with virtual(nodes=1) as cluster:
        http = cluster.client.kubernetes()
        import kubernetes

        def watch() -> None:
            core = kubernetes.client.CoreV1Api(http)
            # It ends with the cluster, in the middle of an answer.
            with contextlib.suppress(Exception):
                for event in kubernetes.watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=1000):
                    seen.append(event["type"])
                    told.release()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                       "spec": {"containers": [{"name": "c", "image": "i"}]}})  # fmt: skip
        assert told.acquire(timeout=100)
        cluster.wait("pod/a", phase="Running")
        assert told.acquire(timeout=100)
        assert seen[:2] == ["ADDED", "MODIFIED"]
    thread.join()


@pytest.mark.parametrize("stalled", [False, True])
def test_a_watch_in_the_thread_that_advances_times_out_and_no_time_passes(stalled: bool) -> None:
    import kubernetes

    with virtual(nodes=2) as cluster:
        core = kubernetes.client.CoreV1Api(cluster.client.kubernetes())
        before = (cluster.now_s, cluster.digest, cluster.inputs)
        if stalled:
            cluster.delay_events(10)
            before = (cluster.now_s, cluster.digest, cluster.inputs)
        # In another thread it would get what happens meanwhile; in this one nothing can happen.
        stream = kubernetes.watch.Watch().stream(core.list_node, timeout_seconds=1, allow_watch_bookmarks=True)
        found = [event["raw_object"]["kind"] for event in stream if event["type"] == "ADDED"]
        assert found == ([] if stalled else ["Node", "Node"])
        assert (cluster.now_s, cluster.digest, cluster.inputs) == before


def test_coroutines_run_on_its_loop_and_time_passes_as_they_wait() -> None:
    with virtual(nodes=1) as cluster:

        async def main() -> float:
            await asyncio.sleep(duration_s)
            return 1.5

        begun_s, duration_s = cluster.now_s, 30.0
        assert cluster.run(main) == 1.5
        assert cluster.now_s == pytest.approx(begun_s + duration_s)
        assert cluster.inputs[-1].kind == "code"


async def test_what_virtual_time_does_not_have_is_refused() -> None:
    with pytest.raises(ClusterError, match="keeps no folder"):
        Cluster(clock="virtual", data_dir="x")
    with pytest.raises(ClusterError, match='"real" or "virtual"'):
        Cluster(clock="wall")  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="a loop of its own"):
        async with Cluster(clock="virtual"):
            pass


def test_time_runs_forward_and_only_where_it_is_virtual() -> None:
    with virtual(nodes=0) as cluster, pytest.raises(ClusterError, match="seconds is a number from 0 to"):
        cluster.advance(-1)
    with Cluster(nodes=0) as real, pytest.raises(ClusterError, match="runs in real time"):
        real.advance(1)


def test_a_wait_ends_whatever_fraction_of_a_nanosecond_is_left() -> None:
    with Cluster(clock="virtual", seed=7) as cluster:
        for timeout_s in (0.1 + 0.2, 1 / 3, 1e-10, 0.7):
            cluster.advance(1 / 3)
            with pytest.raises(WaitTimeout):
                cluster.wait("pod/none", timeout_s=timeout_s)


def test_a_condition_may_depend_on_more_than_the_store() -> None:
    done: list[int] = []

    async def main(_: Any) -> None:
        await asyncio.sleep(100)
        done.append(1)

    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        cluster.program(main)
        cluster.wait("cm/a", until=lambda _: bool(done), timeout_s=200)
        assert 100 <= cluster.now_s < 110


PENDING: dict[str, Callable[[Cluster], None]] = {
    "one kind is stale": lambda c: c.stale_list(1, "configmaps"),
    "all are stale": lambda c: c.stale_list(1),
    "one kind fails": lambda c: c.fail_next("configmaps"),
    "all fail": lambda c: c.fail_next(),
    "one kind is slow": lambda c: c.slow(1, "configmaps"),
    "writes conflict": lambda c: c.conflict_next(),
    "watches have expired": lambda c: c.expire_watches(),
}
ASKED = {
    "list": ("/api/v1/configmaps", {}),
    "not older than": ("/api/v1/configmaps", {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"}),
    "another kind": ("/api/v1/nodes", {}),
    "get": ("/api/v1/namespaces/default/configmaps/kube-root-ca.crt", {}),
    "discovery": ("/api/v1", {}),
    "no such kind": ("/api/v1/nothing", {}),
}


@pytest.mark.parametrize("by", ["administrator", "system:kube-scheduler"])
@pytest.mark.parametrize("pending", list(PENDING))
def test_a_read_is_an_input_exactly_if_a_fault_takes_part_in_it(pending: str, by: str) -> None:
    with virtual(nodes=1) as cluster:
        core = cast(GatedServer, cluster._virtual().plane.core)
        gate = core.gate
        for path, query in ASKED.values():
            for params in (query, {**query, "limit": "500"}):
                cluster.all_well()
                PENDING[pending](cluster)
                before = list(gate.rules), dict(gate.stale), cluster.now_s
                inputs = len(cluster.inputs)
                user = ADMIN if by == "administrator" else USERS[SCHEDULER]
                cluster._virtual().answer(Request("GET", path, params, user=user))
                took_part = before != (gate.rules, gate.stale, cluster.now_s)
                assert len(cluster.inputs) - inputs == took_part, (path, params)


@pytest.mark.parametrize("since", ["²", "٣", "x", "-1"])
def test_a_watch_from_no_revision_is_refused_as_without_a_fault(since: str) -> None:
    asked = Request("GET", "/api/v1/pods", {"watch": "true", "resourceVersion": since}, user=ADMIN)
    with virtual(nodes=0) as cluster:
        before = cluster._virtual().answer(asked)
        cluster.expire_watches()
        after = cluster._virtual().answer(asked)
        assert (after.status, after.body) == (before.status, before.body) and after.status == 400
