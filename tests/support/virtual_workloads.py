"""Workloads in virtual time, each with the conditions at its end for any seed, and their digests.

python virtual_workloads.py SEED [NAME ...] [--plant FAULT]     one line of JSON: name to digest
    python virtual_workloads.py golden                              writes the committed digests again
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import orjson
from wide_workload import PARTS, part_digest, wide_digest

from minikube_py.client.leader_election import LeaderElector, Timing
from minikube_py.client.rest import RestClient
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.program import Programs, Remote
from minikube_py.cluster.surroundings import Surroundings
from minikube_py.cluster.timeline import Timeline
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.control_plane.leading import Leading
from minikube_py.kubelet.config import NodeSpec, numbered_nodes
from minikube_py.lab.replay import Replay
from minikube_py.lab.trace import load
from minikube_py.lab.workload import trace_nodes

GOLDEN = Path(__file__).resolve().parents[1] / "sim" / "golden_digests.json"
SEED = "1"
NAMESPACE = "/api/v1/namespaces/default"
LABELS = {"app": "web"}
CONTAINERS = [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]


def scale(cluster: VirtualCluster) -> None:
    """A ReplicationController goes up, down and up again; its pods spread over the nodes."""
    create(cluster, f"{NAMESPACE}/replicationcontrollers", controller("web", 12))
    cluster.advance(20)
    assert len(running(cluster)) == 12
    assert len({pod["spec"]["nodeName"] for pod in running(cluster)}) == 4
    for replicas in (3, 9):
        patch(cluster, f"{NAMESPACE}/replicationcontrollers/web", {"spec": {"replicas": replicas}})
        cluster.advance(40)
        assert len(running(cluster)) == replicas == len(pods(cluster))


def node_down(cluster: VirtualCluster) -> None:
    """A node goes silent; after the grace period and the pods' tolerations of 300 s its pods run elsewhere; it comes
    back."""
    create(cluster, f"{NAMESPACE}/replicationcontrollers", controller("web", 8))
    cluster.advance(15)
    lost = running(cluster)[0]["spec"]["nodeName"]
    cluster.node_down(lost)
    cluster.advance(200)
    assert {pod["spec"]["nodeName"] for pod in pods(cluster)} >= {lost}
    cluster.advance(200)
    elsewhere = [pod for pod in running(cluster) if pod["spec"]["nodeName"] != lost and alive(pod)]
    assert len(elsewhere) == 8
    cluster.node_up(lost)
    cluster.advance(60)
    assert len(pods(cluster)) == 8
    assert all(alive(pod) for pod in running(cluster))


def burst(cluster: VirtualCluster) -> None:
    """The first 150 pods of the openb trace on 40 of its nodes, as fast as they are accepted; each ends at its time."""
    replay = Replay(openb(), cluster.transport(), cluster.clock, in_flight=16)
    cluster.run(lambda: replay.run_with_departures(Unseen()))
    assert len(replay.recorder.pods) == 150
    assert all(times.deleted for times in replay.recorder.pods.values())
    cluster.advance(30)


def namespace(cluster: VirtualCluster) -> None:
    """A namespace full of objects, some owned by others, is deleted completely."""
    create(cluster, "/api/v1/namespaces", {"metadata": {"name": "work"}})
    cluster.advance(1)
    for number in range(4):
        create(cluster, "/api/v1/namespaces/work/replicationcontrollers", controller(f"rc-{number}", 4))
    for number in range(10):
        create(cluster, "/api/v1/namespaces/work/configmaps", {"metadata": {"name": f"cm-{number}"}})
    cluster.advance(15)
    assert len(pods(cluster, "work")) == 16
    answer = cluster.request("DELETE", "/api/v1/namespaces/work/replicationcontrollers/rc-0", FOREGROUND)
    assert answer.status == 200
    cluster.advance(60)
    assert len(pods(cluster, "work")) == 12
    cluster.request("DELETE", "/api/v1/namespaces/work")
    cluster.advance(120)
    assert cluster.request("GET", "/api/v1/namespaces/work").status == 404
    assert pods(cluster, "work") == []


def leases(cluster: VirtualCluster) -> None:
    """A service follows its pods; of three candidates one leads, goes silent, and another takes over."""
    port = {"port": 80, "protocol": "TCP"}
    service = {"metadata": {"name": "web"}, "spec": {"selector": LABELS, "ports": [port]}}
    create(cluster, f"{NAMESPACE}/services", service)
    create(cluster, f"{NAMESPACE}/replicationcontrollers", controller("web", 6))
    candidates = cluster.run(lambda: candidates_of(cluster))
    cluster.advance(30)
    (leader,) = [each for each in candidates if each.component is not None]
    assert len(addresses(cluster)) == 6
    leader._task.cancel()
    cluster.advance(40)
    (successor,) = [each for each in candidates if each is not leader and each.component is not None]
    assert successor.elector.may_act()
    patch(cluster, f"{NAMESPACE}/replicationcontrollers/web", {"spec": {"replicas": 2}})
    cluster.advance(40)
    assert len(addresses(cluster)) == 2
    for each in candidates:
        cluster.run(each.stop)


def rollover(cluster: VirtualCluster) -> None:
    """A Deployment rolls to a template, over to the next one before it is there, and back, within its bounds."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": CONTAINERS}}
    spec = {"replicas": 8, "minReadySeconds": 2, "selector": {"matchLabels": LABELS}, "template": template}
    create(cluster, path, {"metadata": {"name": "web"}, "spec": spec})
    cluster.advance(20)
    assert len(running(cluster)) == 8
    for image, seconds in (("two", 3), ("three", 60), ("i", 60)):
        change = {"spec": {"template": {"spec": {"containers": [{**CONTAINERS[0], "image": image}]}}}}
        patch(cluster, f"{path}/web", change)
        for _ in range(seconds):
            cluster.advance(1)
            ready = [pod for pod in running(cluster) if alive(pod)]
            assert len(ready) >= 6 and len([pod for pod in pods(cluster) if alive(pod)]) <= 10
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(cluster)] == ["i"] * 8
    (deployment,) = orjson.loads(cluster.request("GET", path).body)["items"]
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "4"
    assert deployment["status"]["updatedReplicas"] == deployment["status"]["availableReplicas"] == 8


def daemons_and_state(cluster: VirtualCluster) -> None:
    """A DaemonSet and a StatefulSet roll; a node fails and comes back; the set shrinks in order."""
    path = "/apis/apps/v1/namespaces/default"

    def workload(name: str, **spec: Any) -> dict[str, Any]:
        labels = {**LABELS, "set": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
        return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}

    def of(name: str) -> list[dict[str, Any]]:
        return [pod for pod in running(cluster) if pod["metadata"]["labels"]["set"] == name and alive(pod)]

    create(cluster, f"{path}/daemonsets", workload("agent"))
    create(cluster, f"{path}/statefulsets", workload("db", replicas=3, serviceName="db"))
    cluster.advance(30)
    assert {pod["spec"]["nodeName"] for pod in of("agent")} == {f"node-{number}" for number in range(4)}
    assert sorted(pod["metadata"]["name"] for pod in of("db")) == ["db-0", "db-1", "db-2"]
    change = {"spec": {"template": {"spec": {"containers": [{**CONTAINERS[0], "image": "two"}]}}}}
    for plural, name in (("daemonsets", "agent"), ("statefulsets", "db")):
        patch(cluster, f"{path}/{plural}/{name}", change)
    cluster.advance(200)
    assert {pod["spec"]["containers"][0]["image"] for pod in pods(cluster)} == {"two"}
    assert (len(of("agent")), len(of("db"))) == (4, 3)
    cluster.node_down("node-1")
    cluster.advance(60)
    cluster.node_up("node-1")
    patch(cluster, f"{path}/statefulsets/db", {"spec": {"replicas": 1}})
    cluster.advance(100)
    assert [pod["metadata"]["name"] for pod in of("db")] == ["db-0"]
    assert len(of("agent")) == 4


def volumes(cluster: VirtualCluster) -> None:
    """Claims wait for their pods: some get disks of single nodes, others dynamically provisioned volumes. A recreated
    pod returns to its disk."""
    path, storage = "/api/v1/namespaces/default", "/apis/storage.k8s.io/v1/storageclasses"
    for name, provisioner in (("disks", "kubernetes.io/no-provisioner"), ("made", "simulated.minikube-py")):
        kind = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        create(cluster, storage, {"metadata": {"name": name}, **kind})
    for number in range(3):
        where = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node-{number}"]}]
        disk = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks"}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": where}]}}
        spec = {**disk, "local": {"path": "/disk"}, "nodeAffinity": affinity}
        create(cluster, "/api/v1/persistentvolumes", {"metadata": {"name": f"disk-{number}"}, "spec": spec})

    def asks(name: str) -> dict[str, Any]:
        requests = {"requests": {"storage": "1Gi"}}
        return {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": requests}

    labels = {**LABELS, "set": "db"}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asks("made")}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS, "volumes": [scratch]}}
    claims = [{"metadata": {"name": "data"}, "spec": asks("disks")}]
    spec = {"replicas": 4, "serviceName": "db", "podManagementPolicy": "Parallel", "volumeClaimTemplates": claims}
    spec |= {"selector": {"matchLabels": labels}, "template": template}
    create(cluster, "/apis/apps/v1/namespaces/default/statefulsets", {"metadata": {"name": "db"}, "spec": spec})
    cluster.advance(60)
    found = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in running(cluster)}
    assert sorted(found.values()) == ["node-0", "node-1", "node-2"], found
    (waiting,) = [pod for pod in pods(cluster) if pod["metadata"]["name"] not in found]
    told = waiting["status"]["conditions"][0]["message"]
    assert "4 node(s) didn't find available persistent volumes to bind" in told, told
    gone = min(found)
    assert cluster.request("DELETE", f"{path}/pods/{gone}").status == 200
    cluster.advance(60)
    assert {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in running(cluster)} == found
    bound = orjson.loads(cluster.request("GET", "/api/v1/persistentvolumes").body)["items"]
    owners = [volume["spec"]["claimRef"]["name"] for volume in bound if volume["status"]["phase"] == "Bound"]
    assert len(owners) == len(set(owners)) >= 6, owners


def program(cluster: VirtualCluster) -> None:
    """A program whose tasks wait with timeouts, crash now and then, and draw what they write."""

    async def main(remote: Remote) -> None:
        async def work(number: int) -> None:
            for turn in range(8):
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Queue().get(), 1 + random.randrange(2))
                drawn = [
                    random.random(),
                    secrets.token_hex(4),
                    numpy.random.rand(),
                    numpy.random.default_rng().random(),
                ]
                made = {
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{number}-{turn}-{uuid.uuid4()}"},
                    "data": {"drawn": json.dumps(drawn)},
                }  # fmt: skip
                await remote.request("POST", f"{NAMESPACE}/configmaps", None, orjson.dumps(made))

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(work(number))

    around = Surroundings(cluster.seed)
    programs = Programs(cluster, Timeline(lambda: cluster.now_ns), around)
    try:
        programs.start(main, "operator")
        with around.in_force():
            cluster.advance(7)
            programs.running[0].crash()
            cluster.advance(60)
        assert programs.running[0].returned and programs.running[0].starts == 2
    finally:
        programs.stop()
        programs.release()
        around.release()
    found = orjson.loads(cluster.request("GET", f"{NAMESPACE}/configmaps").body)["items"]
    assert len({each["data"]["drawn"] for each in found if "data" in each and "drawn" in each["data"]}) > 32


WORKLOADS: dict[str, Callable[[VirtualCluster], None]] = {
    "scale": scale,
    "node-down": node_down,
    "burst": burst,
    "namespace": namespace,
    "leases": leases,
    "rollover": rollover,
    "daemons-and-state": daemons_and_state,
    "volumes": volumes,
    "program": program,
}
WIDE = "wide"
"""It has a cluster of its own, by the public class."""
NAMES = (*WORKLOADS, WIDE)
FOREGROUND = b'{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}'


def versions() -> dict[str, str]:
    """The versions of everything that could change the bytes of objects, or scores."""
    return {"numpy": numpy.__version__, "orjson": orjson.__version__}


def digest_of(name: str, seed: object) -> str:
    if name == WIDE:
        return wide_digest(f"{name} {seed}")
    if name in PARTS:
        return part_digest(name, f"{name} {seed}")
    with VirtualCluster(f"{name} {seed}", nodes_of(name)) as cluster:
        WORKLOADS[name](cluster)
        return cluster.digest


def nodes_of(name: str) -> list[NodeSpec]:
    return trace_nodes(openb().nodes) if name == "burst" else numbered_nodes(4)


def openb() -> Any:
    trace = load()
    return replace(trace, nodes=trace.nodes[:40], pods=trace.pods[:150])


class Unseen:
    def update(self, done: int, note: str = "") -> None:
        """No observer."""


class Idle:
    """A leader that does nothing."""

    async def start(self) -> None:
        """At once."""

    async def stop(self) -> None:
        """At once."""

    def metrics(self) -> dict[str, float]:
        return {}


async def candidates_of(cluster: VirtualCluster) -> list[Leading]:
    def candidate(number: int) -> Leading:
        transport: ApiTransport = cluster.transport()
        elector = LeaderElector(
            RestClient(transport), cluster.clock, cluster.new_rng(), "work", f"candidate-{number}", timing=Timing()
        )
        return Leading(elector, transport, lambda _: Idle())

    candidates = [candidate(number) for number in range(3)]
    await asyncio.gather(*(each.start() for each in candidates))
    return candidates


def controller(name: str, replicas: int) -> dict[str, Any]:
    labels = {**LABELS, "rc": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": labels, "template": template}}


def create(cluster: VirtualCluster, path: str, obj: dict[str, Any]) -> None:
    answer = cluster.request("POST", path, orjson.dumps(obj))
    assert answer.status == 201, answer.body


def patch(cluster: VirtualCluster, path: str, change: dict[str, Any]) -> None:
    answer = cluster.request("PATCH", path, orjson.dumps(change), content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body


def pods(cluster: VirtualCluster, within: str = "default") -> list[dict[str, Any]]:
    answer = cluster.request("GET", f"/api/v1/namespaces/{within}/pods")
    found: list[dict[str, Any]] = orjson.loads(answer.body)["items"]
    return found


def running(cluster: VirtualCluster) -> list[dict[str, Any]]:
    return [pod for pod in pods(cluster) if pod["status"].get("phase") == "Running"]


def alive(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def addresses(cluster: VirtualCluster) -> list[str]:
    endpoints = orjson.loads(cluster.request("GET", f"{NAMESPACE}/endpoints/web").body)
    return [address["ip"] for subset in endpoints.get("subsets", ()) for address in subset.get("addresses", ())]


def scatter_heap() -> list[object]:
    """Leaves holes of all small sizes in the heap, different in each process, so that the order of new objects in
    memory is undefined. Keep the returned value."""
    chance = random.SystemRandom()
    kept: list[object] = []
    for slots in range(24):
        kind = type("Filler", (), {"__slots__": tuple(f"s{number}" for number in range(slots))})
        fillers = [kind() for _ in range(4000)]
        chance.shuffle(fillers)
        kept += fillers[2000:]
    return kept


if __name__ == "__main__":
    scattered = scatter_heap()
    seed, *names = sys.argv[1:]
    if seed == "golden":
        digests = {name: digest_of(name, SEED) for name in NAMES}
        GOLDEN.write_text(json.dumps({"versions": versions(), "seed": SEED, "digests": digests}, indent=2) + "\n")
        sys.exit()
    if "--plant" in names:
        from virtual_plants import PLANTS

        *names, _, fault = names
        PLANTS[fault]()
    print(json.dumps({name: digest_of(name, seed) for name in names or NAMES}))
