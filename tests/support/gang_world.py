"""A cluster in virtual time with the feature gates of gangs, and the invariants of its groups."""

from __future__ import annotations

from typing import Any

import orjson

from minikube_py.api.feature_gates import parse
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import NodeSpec
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler

Json = dict[str, Any]
GATES = parse("GenericWorkload=true,GangScheduling=true")
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"


def group(name: str, min_count: int | None) -> Json:
    policy: Json = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}


def pod(name: str, group: str = "", cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


class World:
    """One node for each number of cpus."""

    def __init__(self, *cpus: int, gates: frozenset[str] = GATES, **scheduler: Any) -> None:
        shapes = [{"cpu": str(cpu), "memory": "16Gi", "pods": "99"} for cpu in cpus]
        nodes = tuple(NodeSpec(f"n{i}", shape) for i, shape in enumerate(shapes))
        config = VirtualConfig(nodes=nodes, scheduler=SchedulerConfig(gates=gates, **scheduler))
        self.cluster = VirtualCluster(5, config=config).start()
        self.cluster.advance(5)

    def ask(self, method: str, path: str, body: Json | None = None, expected: int | None = None) -> Json:
        answer = self.cluster.request(method, path, None if body is None else orjson.dumps(body))
        found: Json = orjson.loads(answer.body)
        assert expected is None or answer.status == expected, found
        return found

    def make(self, *objects: Json) -> None:
        for obj in objects:
            self.ask("POST", PODS if "containers" in obj["spec"] else GROUPS, obj, 201)

    def pods(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.ask("GET", PODS)["items"]}

    def bound(self) -> set[str]:
        return {name for name, each in self.pods().items() if each["spec"].get("nodeName")}

    def message(self, name: str) -> str:
        """Of PodScheduled."""
        for each in self.pods()[name].get("status", {}).get("conditions", ()):
            if each["type"] == "PodScheduled":
                return str(each.get("message", ""))
        return ""

    def condition(self, name: str) -> tuple[str, str, str] | None:
        for each in self.ask("GET", f"{GROUPS}/{name}").get("status", {}).get("conditions", ()):
            return each["status"], each["reason"], each["message"]
        return None

    @property
    def scheduler(self) -> Scheduler:
        found = self.cluster.plane.components["scheduler"]
        assert isinstance(found, Scheduler)
        return found

    def close(self) -> None:
        self.cluster.stop()

    def delete(self, *names: str) -> None:
        for name in names:
            self.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def partial(self, min_counts: dict[str, int]) -> list[str]:
        """The gangs with some bound pods, but fewer than their minimum."""
        by_group: dict[str, int] = {}
        for each in self.pods().values():
            named = (each["spec"].get("schedulingGroup") or {}).get("podGroupName")
            if each["spec"].get("nodeName"):
                by_group[named] = by_group.get(named, 0) + 1
        return [name for name, minimum in min_counts.items() if 0 < by_group.get(name, 0) < minimum]

    def require_law(self, min_counts: dict[str, int]) -> None:
        """Each gang is bound up to its minimum or not at all, and nothing is reserved."""
        assert not self.partial(min_counts)
        assert self.scheduler.cache.assumed == 0
        assert len(self.scheduler.waiting_pods) == 0

    def require_books(self) -> None:
        """The counts of each group equal a recount."""
        scheduler = self.scheduler
        for key in {pod.group for pod in scheduler._pods.store.values() if pod.group}:
            members = {pod.uid: pod for pod in scheduler._pods.store.values() if pod.group == key}
            found = scheduler.groups.get(key)
            assert found is not None
            assigned = {uid for uid, pod in members.items() if pod.node_name}
            assumed = {uid for uid in members if scheduler.cache.is_assumed(uid)} - assigned
            assert set(found.pods) == set(members), key
            assert set(found.assigned) == assigned, key
            assert set(found.assumed) == assumed, key
            assert set(found.unscheduled) == set(members) - assigned - assumed, key
