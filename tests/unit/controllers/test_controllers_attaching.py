"""Volumes are attached to the nodes of their pods, and detached; claims that ask for larger ones get an event."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import controller_world
import orjson
import pytest
from step_clock import settle

from minikube_py import Cluster
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.attach_detach import OPERATION_TIMEOUT_S, UNMOUNT_WAIT_S, AttachDetach
from minikube_py.controllers.base import ControllerContext
from minikube_py.controllers.simulated_volumes import SIMULATED
from minikube_py.controllers.views import ATTACHES
from minikube_py.errors import Unavailable

DRIVER = "a.example.com"
OWN = "kubernetes.io/csi/a.example.com^h"


def named(driver: str, handle: str, node: str) -> str:
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


class World:
    """Nodes node-0 and node-1 have their volumes attached for them, plain does not."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.make("Node", "plain")
        for name in ("node-0", "node-1"):
            self.patch(f"/api/v1/nodes/{name}", metadata={"annotations": {ATTACHES: "true"}})

    def volume(self, name: str = "v", *modes: str, **source: Any) -> None:
        """With a claim of the same name, bound to it."""
        common = {"accessModes": list(modes or ("ReadWriteOnce",)), "storageClassName": ""}
        source = source or {"csi": {"driver": DRIVER, "volumeHandle": "h"}}
        self.make("PersistentVolume", name, spec={**common, "capacity": {"storage": "1Gi"}, **source})
        requests = {"requests": {"storage": "1Gi"}}
        self.make("PersistentVolumeClaim", name, spec={**common, "resources": requests, "volumeName": name})
        self.cluster.wait(f"pvc/{name}", phase="Bound")

    def make(self, kind: str, name: str, version: str = "v1", **parts: Any) -> None:
        self.cluster.apply({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts})

    def pod(self, name: str, node: str, *claims: str) -> None:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims or ("v",)]
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "volumes": volumes}
        self.make("Pod", name, spec={**spec, "terminationGracePeriodSeconds": 0})

    def patch(self, path: str, **parts: Any) -> None:
        answer = self.cluster.request("PATCH", path, orjson.dumps(parts), content_type=MERGE_PATCH)
        assert answer.status == 200, answer.body

    def status(self, path: str, **status: Any) -> None:
        self.patch(f"{path}/status", status=status)

    def attach(self, node: str = "node-0", driver: str = DRIVER, **status: Any) -> None:
        """What an external attacher does."""
        path = f"/apis/storage.k8s.io/v1/volumeattachments/{named(driver, 'h', node)}"
        self.status(path, **(status or {"attached": True}))

    def attachments(self) -> list[tuple[str, str]]:
        found = self.cluster.objects("volumeattachments")
        return sorted((each["spec"]["nodeName"], each["spec"]["source"]["persistentVolumeName"]) for each in found)

    def attached(self, node: str = "node-0") -> list[str]:
        status = self.cluster.get(f"node/{node}")["status"]
        return [each["name"] for each in status.get("volumesAttached") or ()]

    def told(self, pod: str) -> list[tuple[str, str, str]]:
        events = self.cluster.objects("events")
        return sorted(
            (each["type"], each["reason"], each["message"]) for each in events
            if each["involvedObject"]["name"] == pod and "AttachVolume" in each["reason"]
        )  # fmt: skip


@pytest.fixture
def world() -> Iterator[World]:
    with Cluster(nodes=2, clock="virtual", seed=1) as cluster:
        yield World(cluster)


def test_a_volume_is_attached_once_its_attacher_says_so_and_detached_after_its_pod(world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    (attachment,) = world.cluster.objects("volumeattachments")
    assert attachment["metadata"]["name"] == named(DRIVER, "h", "node-0")
    assert attachment["spec"] == {
        "attacher": DRIVER, "nodeName": "node-0", "source": {"persistentVolumeName": "v"}
    }  # fmt: skip
    assert world.attached() == [] and world.told("p") == []
    world.attach()
    world.cluster.advance(1)
    assert world.attached() == [OWN]
    assert world.told("p") == [("Normal", "SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "v" ')]
    world.cluster.delete("pod/p")
    world.cluster.advance(1)
    assert world.attached() == [] and world.attachments() == []


def test_nodes_without_the_annotation_attach_their_volumes_themselves(world: World) -> None:
    world.volume()
    world.pod("p", "plain")
    world.cluster.advance(1)
    assert world.attachments() == []
    world.patch("/api/v1/nodes/plain", metadata={"annotations": {ATTACHES: "true"}})
    world.cluster.advance(1)
    assert world.attachments() == [("plain", "v")]


def test_an_attacher_that_never_answers_fails_the_pod_again_and_again(world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(OPERATION_TIMEOUT_S - 1)
    assert world.told("p") == []
    world.cluster.advance(2)
    late = f"timed out waiting for external-attacher of {DRIVER} CSI driver to attach volume h"
    assert world.told("p") == [("Warning", "FailedAttachVolume", f'AttachVolume.Attach failed for volume "v" : {late}')]
    world.attach(attached=False, attachError={"message": "no room"})
    world.cluster.advance(OPERATION_TIMEOUT_S)
    assert ("Warning", "FailedAttachVolume", 'AttachVolume.Attach failed for volume "v" : no room') in world.told("p")
    world.attach()
    world.cluster.advance(200)
    assert world.attached() == [OWN]


def test_a_volume_for_one_node_waits_until_the_other_gives_it_back(world: World) -> None:
    world.volume()
    world.pod("first", "node-0")
    world.cluster.advance(1)
    world.attach("node-0")
    world.cluster.advance(1)
    world.pod("second", "node-1")
    world.cluster.advance(1)
    used = 'Multi-Attach error for volume "v" Volume is already used by pod(s) first'
    assert world.told("second") == [("Warning", "FailedAttachVolume", used)]
    assert world.attachments() == [("node-0", "v")]
    world.cluster.delete("pod/first")
    world.cluster.advance(1)
    assert world.attachments() == [("node-1", "v")]


def test_a_volume_for_many_nodes_is_attached_to_each(world: World) -> None:
    world.volume("v", "ReadWriteMany")
    world.pod("first", "node-0")
    world.pod("second", "node-1")
    world.cluster.advance(1)
    assert world.attachments() == [("node-0", "v"), ("node-1", "v")]


def test_what_a_healthy_node_mounts_stays_attached(world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.status("/api/v1/nodes/node-0", volumesInUse=[OWN])
    world.cluster.advance(1)
    world.cluster.delete("pod/p")
    world.cluster.advance(UNMOUNT_WAIT_S + 5)
    assert world.attached() == [OWN]
    world.status("/api/v1/nodes/node-0", volumesInUse=None)
    world.cluster.advance(1)
    assert world.attached() == [] and world.attachments() == []


@pytest.mark.parametrize("out", [False, True])
def test_what_a_lost_node_mounts_is_taken_from_it(world: World, out: bool) -> None:
    """After six minutes, or at once if it is out of service."""
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.status("/api/v1/nodes/node-0", volumesInUse=[OWN])
    world.cluster.node("node-0").down()
    world.cluster.delete("pod/p")
    if out:
        taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
        world.patch("/api/v1/nodes/node-0", spec={"taints": taints})
    world.cluster.advance(1 if out else UNMOUNT_WAIT_S - 5)
    assert world.attachments() == ([] if out else [("node-0", "v")])
    world.cluster.advance(10)
    assert world.attachments() == []


def test_an_attachment_that_goes_away_is_made_again(world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.cluster.advance(1)
    world.cluster.delete(f"volumeattachment/{named(DRIVER, 'h', 'node-0')}")
    world.cluster.advance(1)
    assert world.attachments() == [("node-0", "v")] and world.attached() == []


def test_a_driver_may_need_no_attaching(world: World) -> None:
    world.make("CSIDriver", DRIVER, "storage.k8s.io/v1", spec={"attachRequired": False})
    world.volume()
    world.volume("other", csi={"driver": "b.example.com", "volumeHandle": "h"})
    world.pod("p", "node-0", "v", "other")
    world.cluster.advance(1)
    assert world.attachments() == [("node-0", "other")] and world.attached() == []


@pytest.mark.parametrize(("source", "name"), [
    ({"fc": {"targetWWNs": ["a", "b"], "lun": 2}}, "kubernetes.io/fc/[a b]:2"),
    ({"fc": {"wwids": ["w"]}}, "kubernetes.io/fc/[w]"),
    ({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
     "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:x:0"),
])  # fmt: skip
def test_volumes_without_a_driver_are_attached_by_nobody(world: World, source: dict[str, Any], name: str) -> None:
    world.volume("v", **source)
    world.pod("p", "node-0")
    world.cluster.advance(1)
    assert world.attached() == [name] and world.attachments() == []
    world.cluster.delete("pod/p")
    world.cluster.advance(1)
    assert world.attached() == []


def test_volumes_of_former_plugins_are_attached_by_the_drivers_that_replaced_them(world: World) -> None:
    world.volume("v", gcePersistentDisk={"pdName": "disk"})
    world.pod("p", "node-0")
    world.cluster.advance(1)
    (attachment,) = world.cluster.objects("volumeattachments")
    driver, handle = "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
    assert attachment["metadata"]["name"] == named(driver, handle, "node-0")
    assert attachment["spec"]["attacher"] == driver


def test_simulated_volumes_are_attached_at_once(world: World) -> None:
    world.volume("v", csi={"driver": SIMULATED, "volumeHandle": "h"})
    world.pod("p", "node-0")
    world.cluster.advance(1)
    assert world.attached() == [f"kubernetes.io/csi/{SIMULATED}^h"]
    world.cluster.delete("pod/p")
    world.cluster.advance(1)
    assert world.attached() == [] and world.attachments() == []


def test_what_was_attached_before_a_restart_is_detached_after_it(world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.cluster.advance(1)
    before = world.cluster.snapshot()
    world.cluster.restore(before)
    assert world.attached() == [OWN]
    world.cluster.delete("pod/p")
    world.cluster.advance(1)
    assert world.attached() == [] and world.attachments() == []


def test_who_asks_for_more_storage_is_told_who_expands_it(world: World) -> None:
    world.make(
        "StorageClass", "grows", "storage.k8s.io/v1", provisioner="x.io/y", allowVolumeExpansion=True,
    )  # fmt: skip
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "grows"}
    capacity = {"capacity": {"storage": "1Gi"}}
    world.make("PersistentVolume", "v", spec={**common, **capacity, "gcePersistentDisk": {"pdName": "d"}})
    claim = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}
    world.make("PersistentVolumeClaim", "v", spec=claim)
    world.cluster.wait("pvc/v", phase="Bound")
    more = {"resources": {"requests": {"storage": "2Gi"}}}
    world.patch("/api/v1/namespaces/default/persistentvolumeclaims/v", spec=more)
    world.cluster.advance(1)
    told = [each["message"] for each in world.cluster.objects("events") if each["reason"] == "ExternalExpanding"]
    assert told == ["CSI migration enabled for kubernetes.io/gce-pd; waiting for external resizer to expand the pvc"]
    annotations = world.cluster.get("pvc/v")["metadata"]["annotations"]
    assert annotations["volume.kubernetes.io/storage-resizer"] == "pd.csi.storage.gke.io"


def test_a_volume_whose_name_nobody_can_read_withdraws_no_pod(world: World) -> None:
    """Its pod was taken for gone, and its owner made another one, without end."""
    world.volume(awsElasticBlockStore={"volumeID": "aws://[x"})
    spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "x"}]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**spec, "volumes": volumes}}
    owner = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    world.make("ReplicaSet", "r", "apps/v1", spec=owner)
    world.cluster.advance(5)
    assert len(world.cluster.objects("pods")) == 1 and world.attachments() == []


def test_an_attachment_that_was_lost_before_the_start_is_made_again() -> None:
    with Cluster(nodes=2, clock="virtual", seed=1) as cluster:
        world = World.__new__(World)
        world.cluster = cluster
        world.volume()
        world.status("/api/v1/nodes/node-0", volumesAttached=[{"name": OWN, "devicePath": ""}])
        world.pod("p", "node-0")
        cluster.advance(1)
        world.patch("/api/v1/nodes/node-0", metadata={"annotations": {ATTACHES: "true"}})
        cluster.advance(5)
        assert world.attachments() == [("node-0", "v")]


def test_a_node_that_may_not_be_written_holds_up_no_other(world: World) -> None:
    world.volume("v", "ReadWriteMany")
    world.pod("one", "node-1")
    world.cluster.advance(1)
    world.attach("node-1")
    world.cluster.advance(1)
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"]}]
    frozen = [{"expression": "object.metadata.name != 'node-1'", "message": "frozen"}]
    version = "admissionregistration.k8s.io/v1"
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": frozen}
    world.make("ValidatingAdmissionPolicy", "frozen", version, spec=policy)
    binding = {"policyName": "frozen", "validationActions": ["Deny"]}
    world.make("ValidatingAdmissionPolicyBinding", "frozen", version, spec=binding)
    world.cluster.advance(2)
    world.cluster.delete("pod/one")
    world.cluster.advance(1)
    world.pod("two", "node-0")
    world.cluster.advance(10)
    assert ("node-0", "v") in world.attachments()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[AttachDetach]:
    """The controllers."""
    found: list[AttachDetach] = []
    first = AttachDetach.__init__

    def init(self: AttachDetach, context: ControllerContext) -> None:
        found.append(self)
        first(self, context)

    monkeypatch.setattr(AttachDetach, "__init__", init)
    return found


def test_a_slow_answer_about_a_volume_holds_up_no_other(made: list[AttachDetach], world: World) -> None:
    for name in ("v0", "v1", "v2"):
        world.volume(name, csi={"driver": DRIVER, "volumeHandle": name})
    world.cluster.advance(1)
    client = made[-1]._client
    create = client.create

    async def slow(resource: Any, obj: Any, namespace: str = "") -> Any:
        if obj["spec"]["source"]["persistentVolumeName"] == "v0":
            await made[-1]._clock.sleep(10)
        return await create(resource, obj, namespace)

    client.create = slow  # type: ignore[method-assign]
    for name in ("v0", "v1", "v2"):
        world.pod(name, "node-0", name)
    world.cluster.advance(5)
    assert world.attachments() == [("node-0", "v1"), ("node-0", "v2")]
    world.cluster.advance(10)
    assert len(world.attachments()) == 3


def test_a_pod_that_comes_while_the_node_learns_of_the_last_ones_end_keeps_the_volume(
    made: list[AttachDetach], world: World
) -> None:
    """The list of the node is written once the volume leaves it, and again with it."""
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.cluster.advance(1)
    client = made[-1]._client
    patch, lists = client.patch, []

    async def slow(resource: Any, name: str, change: Any, *more: Any, **how: Any) -> Any:
        lists.append(change["status"]["volumesAttached"])
        await made[-1]._clock.sleep(10)
        return await patch(resource, name, change, *more, **how)

    client.patch = slow  # type: ignore[method-assign]
    world.cluster.delete("pod/p")
    world.cluster.advance(5)
    assert lists == [None]
    world.pod("q", "node-0")
    world.cluster.advance(60)
    assert lists == [None, [{"name": OWN, "devicePath": ""}]]
    assert world.attached() == [OWN] and world.attachments() == [("node-0", "v")]


@pytest.mark.parametrize("answered", [True, False])
def test_a_pod_that_goes_while_the_node_learns_of_its_volume_leaves_no_trace_of_it(
    made: list[AttachDetach], world: World, answered: bool
) -> None:
    """The list of the node is written without the volume before that is detached: also if the list with it has been
    written, and the answer is lost."""
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    client = made[-1]._client
    patch, delete = client.patch, client.delete
    done: list[object] = []

    async def slow(resource: Any, name: str, change: Any, *more: Any, **how: Any) -> Any:
        names = [each["name"] for each in change["status"]["volumesAttached"] or ()]
        if answered:
            await made[-1]._clock.sleep(10)
        answer = await patch(resource, name, change, *more, **how)
        done.append(names)
        if not answered and names:
            await made[-1]._clock.sleep(10)
            raise Unavailable("the answer is lost")
        return answer

    async def deleting(*what: Any, **how: Any) -> Any:
        done.append("detached")
        return await delete(*what, **how)

    client.patch, client.delete = slow, deleting  # type: ignore[method-assign]
    world.attach()
    world.cluster.advance(1)
    world.cluster.delete("pod/p")
    world.cluster.advance(60)
    assert done == [[OWN], [], "detached"]
    assert world.attached() == [] and world.attachments() == []


def test_nothing_stays_of_a_node_that_is_gone(made: list[AttachDetach], world: World) -> None:
    world.volume()
    world.pod("p", "node-0")
    world.cluster.advance(1)
    world.attach()
    world.status("/api/v1/nodes/node-0", volumesInUse=[OWN])
    world.cluster.advance(1)
    world.cluster.node("node-0").down()
    world.cluster.request("DELETE", "/api/v1/nodes/node-0", b"")
    world.cluster.delete("pod/p")
    world.cluster.advance(5)
    (known,) = made
    assert "node-0" in known._in_use and world.attachments() == [("node-0", "v")]
    world.cluster.advance(UNMOUNT_WAIT_S + 5)
    assert world.attachments() == []
    by_node = known._in_use, known._managed, known._wished_at, known._held_at, known._leaving, known._reported
    assert [each for each in by_node if "node-0" in each] == []


async def test_a_deferred_controller_that_cannot_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What had begun of it ends with the manager."""

    def broken(self: AttachDetach) -> None:
        self._workers.start()
        self._workers.queue.add("node/n")
        raise KeyError("boom")

    monkeypatch.setattr(AttachDetach, "start", broken)
    w = controller_world.World("persistentvolume-attach-detach-controller")
    w.api.make("nodes", "n", metadata={"annotations": {ATTACHES: "true"}})
    with pytest.raises(AssertionError):
        async with w:
            assert w.manager is not None
            assert [str(each) for each in w.manager.failures] == ["'boom'"]
            assert _workers()
    assert w.manager is not None
    await w.manager.stop()
    assert not _workers()


async def test_a_deferred_controller_that_is_asked_for_while_others_stop_is_not_made(
    made: list[AttachDetach],
) -> None:
    other = "replicationcontroller-controller"
    w = controller_world.World("persistentvolume-attach-detach-controller", other)
    async with w:
        assert w.manager is not None
        stop = w.manager.controllers[other].stop

        async def slow() -> None:
            w.api.make("nodes", "n", metadata={"annotations": {ATTACHES: "true"}})
            await settle()
            await stop()

        w.manager.controllers[other].stop = slow  # type: ignore[method-assign]
    assert made == []


def _workers() -> list[str]:
    return [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith(AttachDetach.name)]


async def test_a_volume_of_another_claim_is_reported_as_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async with controller_world.World("persistentvolume-expander-controller") as w:
        w.api.make("persistentvolumes", "v", spec={"claimRef": {"namespace": "b", "uid": "another"}})
        requests = {"requests": {"storage": "2Gi"}}
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        w.api.make("persistentvolumeclaims", "a/v", spec={"volumeName": "v", "resources": requests}, status=status)
        await settle()
        found = [each for each in caplog.records if "is not bound to PVC being updated" in each.getMessage()]
        assert found and {(each.levelname, each.exc_info) for each in found} == {("WARNING", None)}


async def test_a_claim_that_is_not_a_pods_is_reported_as_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    async with controller_world.World("ephemeral-volume-controller") as w:
        w.api.make("persistentvolumeclaims", "a/p-scratch", spec={})
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
        w.api.make("pods", "a/p", spec={"containers": [], "volumes": [volume]})
        await settle()
        found = [each for each in caplog.records if "was not created for pod" in each.getMessage()]
        assert found and {(each.levelname, each.exc_info) for each in found} == {("WARNING", None)}
