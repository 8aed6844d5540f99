"""Whatever happens between a snapshot and its restore: afterwards the components hold in memory what new ones hold that
read everything from the server. Only the connections of informers live on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minikube_py import Cluster
from minikube_py.api.errors import StatusError
from minikube_py.client.events import Correlator
from minikube_py.client.informer import Informer
from minikube_py.client.rest import LEASES
from minikube_py.client.timers import Timer, Timers
from minikube_py.client.workqueue import BucketRateLimiter, WorkQueue
from minikube_py.cluster import snapshots
from minikube_py.control_plane.plane import Plane
from minikube_py.sim.plane_insides import HOLDERS, _fields

Object = dict[str, Any]
NOT_COMPARED = (".obj.'kind'", ".obj.'apiVersion'", ".lease", ".renewed", "._starting._deadline", ".spec.cache")
"""Items of a list have no kind and version, events of a watch have; leases are not restored; a start that waits; what a
plugin worked out of a spec, kept there by plugin."""
DEPTH_MAX = 12
NOT_LOOKED_AT = type | asyncio.Future | asyncio.Event | random.Random | BucketRateLimiter | Correlator
"""Not about objects, or about the Events that a start itself reports."""


def memory(component: Any) -> dict[str, str]:
    """By path, what the component's objects hold. Of numbers, only that they are there: most are times, versions and
    counters."""
    found: dict[str, str] = {}
    seen: dict[int, Any] = {}

    def look(value: Any, path: str, depth: int) -> None:
        if path.endswith(NOT_COMPARED):
            return
        if path.endswith("._key"):
            # Numbered in the process.
            found[path] = repr(value).partition("/")[0]
        elif isinstance(value, str | bytes | bool | None):
            found[path] = repr(value)
        elif isinstance(value, int | float):
            found[path] = "a number"
        elif depth < DEPTH_MAX and not isinstance(value, NOT_LOOKED_AT) and id(value) not in seen:
            if not isinstance(value, Mapping | Set | list | tuple):
                # Equal ones of these are shared or not as they came.
                seen[id(value)] = value
            for name, part in parts(value):
                look(part, f"{path}.{name}", depth + 1)

    look(component, "", 0)
    return found


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Informer):
        yield "shown", dict(value.store.items()) if value.resource != LEASES else set(value.store.keys())
        yield "synced", value.has_synced()
        yield "indexes", {name: {k: set(v) for k, v in of.items()} for name, of in value.store._indexes.items()}
        yield "unreadable", value.unreadable.why
    elif isinstance(value, WorkQueue):
        yield from ((name, part) for name, part in _fields(value) if name not in ("_timers", "on_item", "_clock"))
    elif isinstance(value, Timers):
        yield "due", len([each for each in value._heap if not each.cancelled]) > 0
    elif isinstance(value, Timer):
        yield "armed", not value.cancelled
    elif isinstance(value, Mapping):
        yield from sorted(((repr(key), part) for key, part in value.items()), key=lambda pair: pair[0])
    elif isinstance(value, Set):
        yield from ((name, name) for name in sorted(map(repr, value)))
    elif isinstance(value, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif isinstance(value, numpy.ndarray):
        yield "rows", [str(each) for each in value.tolist()]
    elif type(value).__module__.startswith(HOLDERS):
        yield from _fields(value)


def pod(name: str, cpu: str, **more: Any) -> Object:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "drawn"}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **more},
    }  # fmt: skip


def controller(name: str, replicas: int) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"app": name}, "template": template}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": spec}


def job(run_s: str, code: str) -> Object:
    annotations = {"minikube-py.io/run-seconds": run_s, "minikube-py.io/exit-code": code}
    inside = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"template": {"metadata": {"annotations": annotations}, "spec": inside}, "backoffLimit": 3}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}


HIGH = {
    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
}  # fmt: skip
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}}
SERVICE = {
    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}  # fmt: skip
CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}  # fmt: skip
APPLIED: Mapping[str, Object] = {
    # Refused by a quota, if there is one: expectations and backoffs.
    "two replicas": controller("web", 2),
    "six replicas": controller("web", 6),
    "a quota": QUOTA,
    # Too large; with `high`, preempts: backoffs, nominations.
    "a pod that fits": pod("small", "20"),
    "a pod that does not fit": pod("huge", "1000"),
    "a pod that preempts": pod("high", "25", priorityClassName="high"),
    "a pod with a claim": pod("claims", "1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]),
    "its claim": CLAIM,
    "a job that fails": job("1", "1"),
    "a job that ends": job("20", "0"),
    "a service": SERVICE,
}
DELETED = ("rc/web", "pod/small", "pod/huge", "job/job", "service/s", "node/node-1", "resourcequota/q")
BATCHED_S = 2.0
"""Controllers that batch wait up to 1 s after their start, or not, as their first lists are ordered."""
STEPS = st.sampled_from((*APPLIED, *DELETED, "node-0 down", "all well"))
WAITS = st.sampled_from((0.0, 0.01, 1.0, 30.0, 300.0))


def forget(cluster: Cluster, name: str) -> None:
    try:
        cluster.delete(name)
    except StatusError as error:
        assert error.code == 404


def happen(cluster: Cluster, what: str) -> None:
    try:
        if what in APPLIED:
            cluster.apply(APPLIED[what])
        elif what in DELETED:
            cluster.delete(what)
        elif what == "all well":
            cluster.all_well()
        elif any(each["metadata"]["name"] == "node-0" for each in cluster.objects("nodes")):
            cluster.node("node-0").down()
    except StatusError as error:
        # Deleted already, or a pod that cannot be changed any more.
        assert error.code in (403, 404, 409, 422), error


def lasting(snapshot: snapshots.Snapshot) -> dict[bytes, bytes]:
    return {key: value for key, value in snapshot.objects.items() if not key.startswith(b"/registry/events/")}


async def started_anew(plane: Plane, snapshot: snapshots.Snapshot) -> None:
    nodes = [key.removeprefix(snapshots.NODES).decode() for key in snapshot.objects if key.startswith(snapshots.NODES)]
    await plane.stop_components()
    await plane.start_again(nodes, snapshot.down)
    await asyncio.sleep(BATCHED_S)


@settings(max_examples=6, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(before=st.lists(STEPS, max_size=5), since=st.lists(st.tuples(STEPS, WAITS), min_size=1, max_size=6))
def test_restored_components_hold_what_new_ones_hold(before: list[str], since: list[tuple[str, float]]) -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        cluster.apply([HIGH, pod("changes", "1")])
        cluster.advance(15)
        for what in before:
            happen(cluster, what)
        snapshot = cluster.snapshot()
        for what, wait_s in since:
            happen(cluster, what)
            cluster.advance(wait_s)
        # An object with a status returns to an earlier state: components are replaced.
        forget(cluster, "pod/changes")
        cluster.restore(snapshot)
        cluster.advance(BATCHED_S)
        plane = cluster._virtual().virtual.plane
        if lasting(cluster.snapshot()) != lasting(snapshot):
            # What became due meanwhile has happened: the components have a history again.
            return
        kept = {name: memory(component) for name, component in plane.components.items()}
        cluster.run(lambda: started_anew(plane, snapshot))
        new = {name: memory(component) for name, component in plane.components.items()}
        for name, held in new.items():
            other = kept[name]
            differ = [path for path in sorted(other.keys() | held.keys()) if other.get(path) != held.get(path)]
            assert not differ, {path: (other.get(path), held.get(path)) for path in differ[:20]}
