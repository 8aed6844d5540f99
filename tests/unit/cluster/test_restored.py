"""A restore brings back the life of the state, too: run times go on, and nodes are down that were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from minikube_py import Cluster
from minikube_py.client.informer import Informer
from minikube_py.cluster import snapshots
from minikube_py.cluster.waiting import condition_of
from minikube_py.controllers.manager import ControllerManager
from minikube_py.errors import Unavailable
from minikube_py.sim.plane_insides import reached


def job(run_s: str, **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"annotations": {"minikube-py.io/run-seconds": run_s}}, "spec": pod}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template, **spec},
    }  # fmt: skip


def lasting(objects: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Without what components report as they start."""
    return {key: value for key, value in objects.items() if not key.startswith(b"/registry/events/")}


def ready(cluster: Cluster, name: str) -> str:
    return condition_of(cluster.get(f"node/{name}"), "Ready")



@pytest.mark.parametrize("meanwhile", ["it ends", "nothing", "it is deleted", "its node is deleted"])
def test_a_pod_that_ran_plays_the_rest_of_its_life(meanwhile: str) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(job("20"))
        cluster.wait("pods", ready=1, selector="job-name=job")
        snapshot = cluster.snapshot()
        if meanwhile == "it ends":
            cluster.wait("job/job", condition="Complete")
        elif meanwhile == "it is deleted":
            cluster.delete("job/job")
            cluster.advance(5)
        elif meanwhile == "its node is deleted":
            cluster.delete("node/node-0")
            cluster.advance(60)
        cluster.restore(snapshot)
        assert cluster.wait("job/job", condition="Complete", timeout_s=60)["status"]["succeeded"] == 1
        (pod,) = cluster.objects("pods")
        assert pod["status"]["phase"] == "Succeeded"


def test_deadlines_of_the_restored_objects_count() -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(job("1000000", activeDeadlineSeconds=30, ttlSecondsAfterFinished=60))
        cluster.wait("pods", ready=1, selector="job-name=job")
        snapshot = cluster.snapshot()
        for _ in range(2):
            cluster.wait("job/job", condition="Failed", timeout_s=90)
            cluster.wait("job/job", gone=True, timeout_s=90)
            cluster.restore(snapshot)
        cluster.wait("job/job", condition="Failed", timeout_s=90)


@pytest.mark.parametrize("since_s", [0, 120])
def test_nodes_that_were_down_are_down_again(since_s: float) -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        cluster.node("node-1").down()
        cluster.advance(since_s)
        snapshot = cluster.snapshot()
        before = [ready(cluster, name) for name in ("node-0", "node-1")]
        cluster.all_well()
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}})
        cluster.advance(5)
        begun_s, writes = cluster.now_s, len(snapshot.objects)
        cluster.restore(snapshot)
        assert cluster.now_s - begun_s < 1
        again = cluster.snapshot()
        assert lasting(again.objects) == lasting(snapshot.objects) and again.revision - snapshot.revision < writes
        assert [ready(cluster, name) for name in ("node-0", "node-1")] == before
        cluster.advance(120)
        assert [ready(cluster, name) for name in ("node-0", "node-1")] == ["True", "Unknown"]
        cluster.node("node-1").up()
        cluster.wait("node/node-1", ready=1)
        cluster.advance(300)
        assert ready(cluster, "node-1") == "True"


def test_a_node_that_was_deleted_before_is_not_registered_again() -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        cluster.delete("node/node-1")
        cluster.apply(job("5"))
        snapshot = cluster.snapshot()
        cluster.wait("job/job", condition="Complete")
        cluster.restore(snapshot)
        cluster.advance(60)
        assert [each["metadata"]["name"] for each in cluster.objects("nodes")] == ["node-0"]


CLOCKS: tuple[Literal["virtual", "real"], ...] = ("virtual", "real")


@pytest.mark.real_time("one of the two clocks")
@pytest.mark.parametrize("clock", CLOCKS)
def test_components_go_on_under_both_clocks_as_often_as_asked(clock: Literal["virtual", "real"]) -> None:
    with Cluster(nodes=1, clock=clock) as cluster:
        cluster.apply(job("0.2"))
        snapshot = cluster.snapshot()
        for _ in range(3):
            cluster.wait("job/job", condition="Complete")
            cluster.restore(snapshot)
        cluster.wait("job/job", condition="Complete")
        generators = cluster._reached().plane.generators
        assert len(generators) < 10


@pytest.mark.parametrize(
    ("made", "restarts"),
    [
        ({"kind": "ConfigMap", "metadata": {"name": "a"}}, False),
        ({"kind": "Secret", "metadata": {"name": "a"}}, False),
        ({"kind": "ServiceAccount", "metadata": {"name": "a"}}, False),
        ({"kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}, True),
        ({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, True),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("deleted", [False, True])
def test_components_are_started_again_for_what_they_remember(
    made: dict[str, Any], restarts: bool, deleted: bool
) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply({"apiVersion": "v1", **made})
        cluster.advance(5)
        snapshot = cluster.snapshot()
        components = dict(cluster._require_engine().plane.components)
        name = f"{made['kind']}/a"
        if deleted:
            cluster.delete(name)
            cluster.wait(name, gone=True)
        else:
            cluster.apply({"apiVersion": "v1", **made, "metadata": {"name": "a", "labels": {"a": "b"}}})
        cluster.restore(snapshot)
        cluster.advance(5)
        now = cluster._require_engine().plane.components
        assert (now["kubelet"] is not components["kubelet"]) is restarts
        assert cluster.get(name)["metadata"].get("labels") is None
        assert lasting(cluster.snapshot().objects) == lasting(snapshot.objects)


POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip


def informers(cluster: Cluster) -> list[Informer[Any]]:
    return reached(dict(cluster._require_engine().plane.components), Informer)


def lists(cluster: Cluster) -> int:
    return sum(each.stats.lists for each in informers(cluster))


@pytest.mark.parametrize("bookmarked", [True, False])
def test_informers_live_on_and_one_that_does_not_get_the_bookmark_is_replaced(bookmarked: bool) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(POD)
        cluster.wait("pod/a", ready=1)
        snapshot, before, listed = cluster.snapshot(), informers(cluster), lists(cluster)
        core = cluster._require_engine().plane.core
        for _ in range(2):
            if not bookmarked:
                core.watching.bookmark_all = lambda: None  # type: ignore[method-assign]
            cluster.apply({**POD, "metadata": {"name": "a", "labels": {"a": "b"}}})
            cluster.restore(snapshot)
            assert lasting(cluster.snapshot().objects) == lasting(snapshot.objects)
        same = {id(each) for each in before} & {id(each) for each in informers(cluster)}
        if bookmarked:
            assert len(same) == len(before) and lists(cluster) == listed
        else:
            # Those of the kinds that were written last know the revision by its events.
            assert len(same) < len(before) / 4
        assert sum(each._task is not None and each._task.done() for each in before) == len(before) - len(same)


def test_a_failed_start_leaves_no_informer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(POD)
        snapshot, before = cluster.snapshot(), informers(cluster)
        cluster.apply({**POD, "metadata": {"name": "a", "labels": {"a": "b"}}})
        monkeypatch.setattr(ControllerManager, "start", raises)
        with pytest.raises(Unavailable):
            cluster.restore(snapshot)
    assert all(each._task is None or each._task.done() for each in before)


async def raises(self: ControllerManager) -> None:
    raise Unavailable("planted")


def test_writes_and_deletions_are_noticed_and_leases_are_not() -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        storage = cluster._virtual().plane.storage

        def noticed(mark: tuple[int, int]) -> bool:
            found: bool = cluster.run(lambda: snapshots.changed_since(storage, *mark))
            return found

        def mark() -> tuple[int, int]:
            found: tuple[int, int] = cluster._virtual().within(snapshots.mark, "code", "mark")
            return found

        # The nodes have been reported as registered by then.
        cluster.advance(60)
        before = mark()
        cluster.advance(25)
        assert storage.revision > before[0] and not noticed(before)
        cluster.delete("cm/a")
        assert noticed(before) and not noticed(mark())
        before = mark()
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        assert noticed(before)
