"""Pods with claims: what holds them, what is written for them, what they wait for, and what wakes them.

The words are upstream's: `tests/conformance/test_volumes_vs_original.py` compares them with a live one.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scheduler_world import FakeApi, ManualClock, failure, settle

from minikube_py.client.transport import ApiResponse
from minikube_py.scheduler.config import ConfigError, PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.scheduler.volumes.storage import Storage

SELECTED, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"
ZONE = "topology.kubernetes.io/zone"


class World:
    def __init__(self) -> None:
        self.api, self.clock = FakeApi(), ManualClock()
        self.scheduler: Any = None

    def volume(self, name: str, size: str = "1Gi", zone: str = "", **spec: Any) -> None:
        full = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static", **spec}
        if zone:
            expressions = [{"key": ZONE, "operator": "In", "values": [zone]}]
            full["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        metadata = {"name": name, "uid": f"uid-{name}"}
        self.api.put("persistentvolumes", {"metadata": metadata, "spec": full, "status": {"phase": "Available"}})

    def claim(self, name: str, size: str = "1Gi", class_name: str = "static", volume: str = "", **more: Any) -> None:
        requests = {"requests": {"storage": size}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": requests, "storageClassName": class_name}
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {}, **more}
        if volume:
            spec["volumeName"] = volume
            metadata["annotations"] = {COMPLETED: "yes", **metadata["annotations"]}
        self.api.put("persistentvolumeclaims", {"metadata": metadata, "spec": spec})

    def storage_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
        metadata = {"name": name, "uid": f"uid-{name}"}
        mode = {"volumeBindingMode": "WaitForFirstConsumer"}
        self.api.put("storageclasses", {"metadata": metadata, "provisioner": provisioner, **mode, **more})

    def pod(self, name: str, *claims: str, **spec: Any) -> None:
        volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        self.api.pod(name, volumes=volumes, **spec)

    def complete(self, claim: str, volume: str) -> None:
        """As the binder does once the volume names the claim."""
        self.claim(claim, volume=volume, annotations=self.annotations(claim))

    def annotations(self, claim: str) -> dict[str, str]:
        metadata = self.api.objects["persistentvolumeclaims"][f"default/{claim}"]["metadata"]
        found: dict[str, str] = metadata["annotations"]
        return found

    def claimed_by(self, volume: str) -> str:
        return str((self.api.objects["persistentvolumes"][volume]["spec"].get("claimRef") or {}).get("name", ""))

    def message(self, pod: str) -> str:
        return str(self.api.condition(pod).get("message", ""))

    @property
    def assumed(self) -> int:
        storage = Storage.of(self.scheduler)
        return len(storage.volumes) + len(storage.claims)


@asynccontextmanager
async def world(config: SchedulerConfig | None = None) -> AsyncIterator[World]:
    """Node `a` is in zone a, node `b` in zone b; the class `static` waits for its pods."""
    w = World()
    for name in ("a", "b"):
        w.api.node(name, labels={ZONE: name})
    w.storage_class("static")
    w.scheduler = Scheduler(w.api, w.clock, random.Random(3), config)
    await w.scheduler.start()
    try:
        yield w
    finally:
        await w.scheduler.stop()


async def test_a_missing_claim_is_named_and_its_arrival_wakes_the_pod() -> None:
    async with world() as w:
        w.pod("p", "c")
        await settle()
        assert w.message("p").startswith('0/2 nodes are available: persistentvolumeclaim "c" not found.')
        w.volume("v", claimRef={"name": "c", "namespace": "default", "uid": "uid-c"})
        w.claim("c", volume="v")
        await w.clock.advance(2.0)
        assert [pod for pod, _ in w.api.bound] == ["p"]


@pytest.mark.parametrize("there", [True, False])
async def test_a_pod_goes_where_its_volume_is(there: bool) -> None:
    async with world() as w:
        w.volume("v", zone="b" if there else "c")
        w.claim("c", volume="v")
        w.pod("p", "c")
        await settle()
        assert w.api.bound == ([("p", "b")] if there else [])
        conflict = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
        assert there or w.message("p").startswith(conflict)


async def test_a_claim_that_should_be_bound_already_is_waited_for() -> None:
    async with world() as w:
        w.storage_class("now", volumeBindingMode="Immediate")
        w.claim("c", class_name="now")
        w.pod("p", "c")
        await settle()
        assert "pod has unbound immediate PersistentVolumeClaims" in w.message("p")


async def test_the_smallest_volume_that_suits_is_claimed_and_then_waited_for() -> None:
    async with world() as w:
        w.volume("large", "5Gi", zone="a")
        w.volume("fits", "2Gi", zone="a")
        w.volume("small", "512Mi")
        w.claim("c", "1Gi")
        w.pod("p", "c")
        await settle()
        assert w.claimed_by("fits") == "c" and not w.api.bound
        w.complete("c", "fits")
        await settle()
        assert w.api.bound == [("p", "a")] and w.assumed == 0


async def test_two_claims_never_get_one_volume() -> None:
    async with world() as w:
        w.volume("v1")
        for i in range(3):
            w.claim(f"c{i}")
            w.pod(f"p{i}", f"c{i}")
        await settle()
        assert w.claimed_by("v1") == "c0"
        assert "2 node(s) didn't find available persistent volumes to bind" in w.message("p1")
        w.volume("v2")
        await w.clock.advance(2.0)
        assert {w.claimed_by("v2")} <= {"c1", "c2"}


async def test_a_volume_is_made_for_the_chosen_node() -> None:
    async with world() as w:
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
        w.storage_class("made", "example.com/made", allowedTopologies=topologies)
        w.claim("c", class_name="made")
        w.pod("p", "c")
        await settle()
        assert w.annotations("c")[SELECTED] == "b" and not w.api.bound
        w.volume("new", zone="b", claimRef={"name": "c", "namespace": "default", "uid": "uid-c"})
        w.complete("c", "new")
        await settle()
        assert w.api.bound == [("p", "b")]


async def test_a_provisioner_that_gives_up_sends_the_pod_back() -> None:
    async with world() as w:
        w.storage_class("made", "example.com/made")
        w.claim("c", class_name="made")
        w.pod("p", "c")
        await settle()
        assert w.annotations("c")[SELECTED]
        w.claim("c", class_name="made", annotations={"other": "stays"})
        await settle()
        failed = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"'
        assert (w.api.condition("p")["reason"], w.message("p")) == ("SchedulerError", failed)


@pytest.mark.parametrize("gone", ["pod", "node", "volume", "time"])
async def test_what_ends_the_wait_for_a_volume(gone: str) -> None:
    args = {"VolumeBinding": {"bindTimeoutSeconds": 30}}
    async with world(SchedulerConfig(profiles=(ProfileConfig(plugin_args=args),))) as w:
        w.volume("v", zone="a")
        w.claim("c")
        w.pod("p", "c")
        await settle()
        assert w.claimed_by("v") == "c" and w.scheduler.cache.assumed == 1
        if gone == "pod":
            w.api.delete("pods", "default/p")
        elif gone == "node":
            w.api.delete("nodes", "a")
        elif gone == "volume":
            w.api.delete("persistentvolumes", "v")
        await w.clock.advance(29.0 if gone == "time" else 1.0)
        assert w.scheduler.cache.assumed == (1 if gone == "time" else 0)
        await w.clock.advance(1.0)
        assert not w.api.bound and w.assumed == 0
        why = {
            "node": 'failed to get node "a": node "a" not found',
            "volume": 'failed to check binding: persistentvolume "v" not found',
            "time": "context deadline exceeded",
        }
        told = [event["message"] for event in w.api.events]
        assert gone == "pod" or f'running PreBind plugin "VolumeBinding": binding volumes: {why[gone]}' in told


async def test_a_volume_that_another_took_first_is_chosen_again() -> None:
    async with world() as w:
        w.volume("v1")
        w.volume("v2", "2Gi")
        w.claim("c")
        answers: list[ApiResponse] = []
        update = w.api._update

        def lose(parts: list[str], document: dict[str, Any]) -> ApiResponse:
            if not answers and parts[-1] == "v1":
                # Somebody else was first, and the informer has not seen it.
                w.volume("v1", claimRef={"name": "other", "namespace": "default", "uid": "uid-other"})
                answers.append(failure(409, "Conflict", "the object has been modified"))
                return answers[0]
            return update(parts, document)

        w.api._update = lose  # type: ignore[method-assign]
        w.pod("p", "c")
        await settle()
        await w.clock.advance(5.0)
        assert answers and w.claimed_by("v1") == "other" and w.claimed_by("v2") == "c"


async def test_waits_for_volumes_hold_up_no_other_pod() -> None:
    async with world(SchedulerConfig(binds_in_flight_max=1)) as w:
        for i in range(4):
            w.volume(f"v{i}")
            w.claim(f"c{i}")
            w.pod(f"p{i}", f"c{i}")
        w.pod("plain")
        await settle()
        assert [pod for pod, _ in w.api.bound] == ["plain"]
        assert sorted(w.claimed_by(f"v{i}") for i in range(4)) == ["c0", "c1", "c2", "c3"]


async def test_an_ephemeral_volume_takes_the_claim_that_was_made_for_its_pod_alone() -> None:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    async with world() as w:
        w.api.pod("p", volumes=volumes)
        await settle()
        waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
        assert waiting in w.message("p")
        w.volume("v")
        w.claim("p-scratch", volume="v")
        await w.clock.advance(2.0)
        assert "PVC default/p-scratch was not created for pod default/p (pod is not owner)" in w.message("p")
        owner = {"kind": "Pod", "name": "p", "uid": "uid-default-p", "controller": True}
        w.claim("p-scratch", volume="v", ownerReferences=[owner])
        await w.clock.advance(5.0)
        assert [pod for pod, _ in w.api.bound] == ["p"]


async def test_a_claim_for_one_pod_is_free_again_when_that_pod_is_gone() -> None:
    async with world() as w:
        w.volume("v")
        w.claim("c", volume="v")
        w.api.objects["persistentvolumeclaims"]["default/c"]["spec"]["accessModes"] = ["ReadWriteOncePod"]
        w.pod("first", "c")
        await settle()
        w.pod("second", "c")
        await settle()
        assert "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod" in w.message("second")
        w.api.delete("pods", "default/first")
        await w.clock.advance(2.0)
        assert [pod for pod, _ in w.api.bound] == ["first", "second"]
        assert w.scheduler.columns.is_claim_in_use("default/c")


DISK = {"name": "d", "gcePersistentDisk": {"pdName": "d"}}


async def test_a_disk_of_one_node_serves_one_pod_and_needs_no_claim() -> None:
    async with world() as w:
        for name in ("one", "two", "three"):
            w.api.pod(name, volumes=[DISK])
        await settle()
        assert {node for _, node in w.api.bound} == {"a", "b"}
        assert "2 node(s) had no available disk" in w.message("three")


async def test_no_node_attaches_more_than_its_driver_can() -> None:
    async with world() as w:
        for name, count in (("a", 1), ("b", 0)):
            drivers = [{"name": "d.example.com", "nodeID": name, "allocatable": {"count": count}}]
            w.api.put("csinodes", {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"drivers": drivers}})
        for i in range(2):
            w.volume(f"v{i}", csi={"driver": "d.example.com", "volumeHandle": f"h{i}"})
            w.claim(f"c{i}", volume=f"v{i}")
        for name, claim in (("p", "c0"), ("shares", "c0"), ("q", "c1")):
            w.pod(name, claim)
            await settle()
        # A volume counts once, however many pods of the node use it.
        assert w.api.bound == [("p", "a"), ("shares", "a")]
        assert "0/2 nodes are available: 2 node(s) exceed max volume count." in w.message("q")


async def test_plugins_that_are_disabled_let_their_constraints_pass() -> None:
    names = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
    off = {"multiPoint": PluginSet(disabled=frozenset(names))}
    async with world(SchedulerConfig(profiles=(ProfileConfig(plugins=off),))) as w:
        w.pod("p", "missing")
        await settle()
        assert [pod for pod, _ in w.api.bound] == ["p"] and "persistentvolumes" not in w.api.listed


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"bindTimeoutSeconds": -1}, "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds"),
        ({"shape": [{"utilization": 0, "score": 0}]}, "unexpected field `shape`, remove it or turn on the"),
        ({"unknown": 1}, 'unknown field "unknown"'),
    ],
)
async def test_arguments_that_are_wrong_are_refused(args: dict[str, Any], text: str) -> None:
    config = SchedulerConfig(profiles=(ProfileConfig(plugin_args={"VolumeBinding": args}),))
    with pytest.raises(ConfigError, match=text):
        Scheduler(FakeApi(), ManualClock(), random.Random(3), config)


async def test_a_claim_for_one_pod_is_preempted_from_a_pod_of_lower_priority() -> None:
    async with world() as w:
        w.volume("v")
        w.claim("c", volume="v")
        w.api.objects["persistentvolumeclaims"]["default/c"]["spec"]["accessModes"] = ["ReadWriteOncePod"]
        w.pod("low", "c")
        await settle()
        w.pod("high", "c", priority=100)
        await settle()
        assert "deletionTimestamp" in w.api.objects["pods"]["default/low"]["metadata"]
        w.api.delete("pods", "default/low")
        await w.clock.advance(3.0)
        assert w.api.bound[-1][0] == "high" and w.scheduler.columns.is_claim_in_use("default/c")


async def test_a_pod_whose_volume_is_bound_first_says_where_and_loses_only_that_to_a_preemptor() -> None:
    async with world() as w:
        w.volume("v", zone="a")
        w.claim("c")
        w.pod("low", "c", cpu="3")
        await settle()
        low = w.api.objects["pods"]["default/low"]
        assert w.claimed_by("v") == "c" and low["status"]["nominatedNodeName"] == "a"
        w.pod("high", cpu="3", priority=10, nodeSelector={ZONE: "a"})
        await settle()
        low = w.api.objects["pods"]["default/low"]
        assert "deletionTimestamp" not in low["metadata"] and not low["status"]["nominatedNodeName"]
        told = [event["message"] for event in w.api.events]
        assert 'running PreBind plugin "VolumeBinding": preempted by DefaultPreemption' in told
        await w.clock.advance(5.0)
        # The volume stays its claim's, as upstream leaves it.
        assert w.api.bound == [("high", "a")] and w.claimed_by("v") == "c" and w.assumed == 0
