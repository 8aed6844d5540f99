"""DynamicResources by upstream's own tables (1.36.2): what it says of a pod before anything is written.

Source: dynamicresources/dynamicresources_test.go. CARRIED and LEFT name all its cases of TestPlugin: those that
are carried over, here or elsewhere, and the others with the reason. The tables of hints are here, but for objects of
a wrong type, which types rule out.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from needs import scheduler_perf_files
from scheduler_objects import node_object, pod_object
from scheduler_world import ManualClock
from test_scheduler_device_claims import Kinds

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES, ClaimView, ClassView, SliceView
from minikube_py.scheduler.framework import (
    SKIP,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    CycleState,
    Diagnosis,
    QueueingHint,
)
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.plugins.dynamic_resources import DynamicResources

Json = dict[str, Any]
CLASS, DRIVER, NODE, NAME, UID = "my-resource-class", "some-driver", "worker", "my-pod-my-resource", "1234"
TEMPLATE = {"name": "my-resource", "resourceClaimTemplateName": NAME}


def pod(*named: str, template: bool = False, status: bool = False, name: str = "my-pod", uid: str = UID) -> Json:
    claims: list[Json] = [TEMPLATE] if template else []
    claims += [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(named)]
    said = {"resourceClaimStatuses": [{"name": "my-resource", "resourceClaimName": NAME}]} if status else {}
    return pod_object(name, resourceClaims=claims, metadata={"uid": uid}) | {"status": said}


def claim(name: str = NAME, *, class_name: str = CLASS, device: str = "", owner: str = UID, **more: Any) -> Json:
    """`device`: what it holds; `more`: into its allocation's only result, its allocation or its status."""
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1}
    requests = more.pop("requests", [{"name": "req-1", "exactly": exactly}])
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "my-pod", "uid": owner, "controller": True}]
    metadata = {"name": name, "namespace": "default", "uid": f"{name} uid", "ownerReferences": owners}
    found: Json = {"metadata": {**metadata, **more.pop("metadata", {})}, "spec": {"devices": {"requests": requests}}}
    status: Json = more.pop("status", {})
    if device:
        field = {"key": "metadata.name", "operator": "In", "values": [NODE]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        result = {"request": "req-1", "driver": DRIVER, "pool": NODE, "device": device, **more.pop("result", {})}
        status = {"allocation": {"nodeSelector": selector, "devices": {"results": [result]}, **more}, **status}
    return found | {"status": status}


PENDING = claim()
ALLOCATED = claim(device="instance-1")
OTHER = claim("not-my-claim", device="instance-1")
OTHER_DEVICE = claim("not-my-claim", device="instance-1-other")
ADMIN = claim("not-my-claim", device="instance-1", result={"adminAccess": True})
DELETED = claim(device="instance-1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})


def reached(operator: str, key: str, value: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}]
    return claim(device="instance-1", nodeSelector={"nodeSelectorTerms": terms})


def conditions(*types: str) -> Json:
    said = [{"type": each, "status": "True", "reason": "r", "message": "m"} for each in types]
    return {"devices": [{"driver": DRIVER, "pool": NODE, "device": "instance-1", "conditions": said}]}


WAITS = {"bindingConditions": ["condition"], "bindingFailureConditions": ["failed"]}
LONG_AGO = "2023-11-14T22:00:00Z"
"""The clock's time is 15 minutes later."""

IN_USE = {"reservedFor": [{"resource": "pods", "name": "my-pod", "uid": UID}]}
DOES_NOT_EXIST = "request {}: device class {} does not exist"
CANNOT, OUT = "cannot allocate all claims", "resourceclaim not available on the node"
STILL_NOT, NO_CLAIMS, FREED = (
    "still not schedulable", "no new claims to deallocate", "deallocation of ResourceClaim completed",
)  # fmt: skip
CHOICES = [{"name": "req-1", "firstAvailable": [{"name": "subreq-1", "deviceClassName": "does-not-exist"}]}]


def case(incoming: Json, *claims: Json, **more: Any) -> Json:
    """`promised`: a claim's allocation that is being written; `enqueue`, `pre_filter`, `filter`, `post_filter`: what is
    said; nothing where the pod passes. `skips`: PreFilter has nothing to do."""
    return {"pod": incoming, "claims": claims, "slices": ("instance-1",), "classes": (CLASS,), **more}


NAMED = pod(NAME)
TABLE: dict[str, Json] = {
    "empty": case(pod(), skips=True),
    "claim-reference": case(NAMED, ALLOCATED, claim("not-my-claim")),
    "claim-template": case(pod(template=True, status=True), ALLOCATED, claim("not-my-claim")),
    "missing-claim": case(
        pod(template=True), ALLOCATED, enqueue='pod "default/my-pod": ResourceClaim not created yet'
    ),
    "deleted-claim": case(
        pod(template=True, status=True), DELETED, enqueue=f'resourceclaim "{NAME}" is being deleted'
    ),
    "wrong-claim": case(
        pod(template=True, status=True), claim(owner=f"{UID}123"),
        enqueue=f"ResourceClaim default/{NAME} was not created for Pod default/my-pod (Pod is not owner)",
    ),
    "no-resources": case(NAMED, PENDING, slices=(), filter=CANNOT, post_filter=STILL_NOT),
    "with-resources": case(NAMED, PENDING, gets="instance-1"),
    "exhausted-resources-in-informer-cache": case(NAMED, PENDING, OTHER, filter=CANNOT, post_filter=STILL_NOT),
    "exhausted-resources-in-flight-claim": case(
        NAMED, PENDING, claim("not-my-claim"), promised=OTHER, filter=CANNOT, post_filter=STILL_NOT
    ),
    "other-resources-in-flight-claim": case(
        NAMED, PENDING, claim("not-my-claim"), promised=OTHER_DEVICE, gets="instance-1"
    ),
    "tainted-device-enabled": case(NAMED, PENDING, tainted=True, filter=CANNOT, post_filter=STILL_NOT),
    "structured-ignore-allocated-admin-access": case(NAMED, PENDING, ADMIN, gets="instance-1"),
    "missing-class": case(
        NAMED, PENDING, classes=(), pre_filter=DOES_NOT_EXIST.format("req-1", CLASS), post_filter=NO_CLAIMS
    ),
    "wrong-topology": case(
        NAMED, reached("In", "no-such-label", "no-such-value"), filter=OUT, post_filter=FREED, frees=True
    ),
    "good-topology": case(NAMED, reached("In", "kubernetes.io/hostname", NODE)),
    "reserved-okay": case(NAMED, claim(device="instance-1", status=IN_USE)),
    "claim-with-request-with-unknown-device-class": case(
        NAMED, claim(class_name="does-not-exist"), pre_filter=DOES_NOT_EXIST.format("req-1", "does-not-exist"),
        post_filter=NO_CLAIMS,
    ),
    "claim-with-prioritized-list-unknown-device-class": case(
        NAMED, claim(requests=CHOICES), pre_filter=DOES_NOT_EXIST.format("req-1/subreq-1", "does-not-exist"),
        post_filter=NO_CLAIMS,
    ),
    "bound-claim-with-succeeded-binding-conditions": case(
        NAMED, claim(device="instance-1", result=WAITS, status=conditions("condition"))
    ),
    "bound-claim-with-failed-binding": case(
        NAMED, claim(device="instance-1", result=WAITS, status=conditions("failed")),
        filter=OUT, post_filter=FREED, frees=True,
    ),
    "bound-claim-with-timed-out-binding": case(
        NAMED, claim(device="instance-1", result=WAITS, allocationTimestamp=LONG_AGO, status=conditions()),
        filter=OUT, post_filter=FREED, frees=True,
    ),
    "bound-claim-without-binding-conditions": case(
        NAMED, claim(device="instance-1", status=conditions())
    ),
}  # fmt: skip


class World:
    def __init__(self, given: Json) -> None:
        self.kinds = Kinds()
        self.freed: list[Any] = []
        shared: dict[str, Any] = {}
        lent: Any = self.kinds
        lent.shared = lambda name, make: shared.setdefault(name, None) or shared.update({name: make()}) or shared[name]
        lent.run = self._run
        columns = NodeColumns()
        self.node = columns.put_node(project_node(node_object(NODE, labels={"kubernetes.io/hostname": NODE})))
        self.handle: Any = SimpleNamespace(kinds=lent, clock=ManualClock(), rng=random.Random(1), columns=columns)
        self.plugin = DynamicResources({}, self.handle)
        self.devices = Devices.of(self.handle)
        for name in given.get("classes", ()):
            self.put(CLASSES, ClassView({"metadata": {"name": name}, "spec": {}}))
        if names := given.get("slices"):
            taints = [{"key": "taint-key", "value": "taint-value", "effect": "NoSchedule"}]
            devices = [{"name": each, **({"taints": taints} if given.get("tainted") else {})} for each in names]
            spec = {"driver": DRIVER, "nodeName": NODE, "pool": {"name": NODE, "resourceSliceCount": 1}}
            self.put(SLICES, SliceView({"metadata": {"name": "s"}, "spec": {**spec, "devices": devices}}))
        for obj in given.get("claims", ()):
            self.put(CLAIMS, ClaimView(versioned(obj, 1)))

    def put(self, kind: Any, view: Any) -> None:
        self.kinds.of(kind).put(view)

    def _run(self, work: Any) -> None:
        self.freed.append(work)
        work.close()


def versioned(obj: Json, version: int) -> Json:
    found = copy.deepcopy(obj)
    found["metadata"]["resourceVersion"] = str(version)
    return found


def text(status: Any) -> str:
    return "" if status is None or status.is_success else str(status.message)


@pytest.mark.parametrize("name", TABLE)
def test_plugin(name: str) -> None:
    given = TABLE[name]
    world = World(given)
    if promised := given.get("promised"):
        world.devices.promise(ClaimView(versioned(promised, 1)), promised["status"]["allocation"])
    plugin, incoming, state = world.plugin, project_pod(given["pod"]), CycleState()
    assert text(plugin.pre_enqueue(incoming)) == given.get("enqueue", "")
    if "enqueue" in given:
        return
    _, status = plugin.pre_filter(state, incoming, world.handle.columns)
    if given.get("skips"):
        assert status is SKIP
        return
    assert text(status) == given.get("pre_filter", "")
    if "pre_filter" not in given:
        assert text(plugin.filter(state, incoming, world.node)) == given.get("filter", "")
    if "post_filter" in given:
        _, status = plugin.post_filter(state, incoming, Diagnosis(1, unschedulable_plugins={plugin.name}))
        assert text(status) == given["post_filter"] and len(world.freed) == bool(given.get("frees"))
        return
    assert plugin.reserve(state, incoming, NODE) is None
    held = world.devices.allocated.devices
    mine = ClaimView(PENDING)
    assert world.devices.is_promised(mine) is ("gets" in given)
    if gets := given.get("gets"):
        assert gets in {each.device for each in held}
        plugin.unreserve(state, incoming, NODE)
        assert not world.devices.is_promised(mine)


# --- hints ------------------------------------------------------------------------------------------------------------

CHANGED = {"allocation": {"devices": {}}}
CLAIM_HINTS: dict[str, tuple[Json, tuple[Json, ...], Json | None, Json, bool]] = {
    "skip-wrong-claim": (pod(template=True), (), None, claim(owner=f"{UID}123", device="instance-1"), False),
    "skip-unrelated-claim": (
        pod(template=True), (ALLOCATED,), None, claim(f"{NAME}-foo", device="instance-1"), False,
    ),
    "queue-on-add": (NAMED, (), None, PENDING, True),
    "skip-adding-finalizer": (NAMED, (PENDING,), PENDING, claim(metadata={"finalizers": ["foo"]}), False),
    "queue-on-status-change": (NAMED, (PENDING,), PENDING, claim(status=CHANGED), True),
    "claim-deallocate": (NAMED, (PENDING, OTHER), OTHER, claim("not-my-claim"), True),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIM_HINTS)
def test_hints_after_a_claim(name: str) -> None:
    incoming, claims, old, new, wakes = CLAIM_HINTS[name]
    world = World({"claims": claims})
    view = ClaimView(versioned(new, 2))
    world.put(CLAIMS, view)
    action = Action.ADD if old is None else Action.UPDATE
    before = None if old is None else ClaimView(versioned(old, 1))
    change = ClusterChange(ClusterEvent(CLAIMS.name, action), before, view)
    assert hinted(world, incoming, change) is wakes


TWO = pod_object("my-pod", metadata={"uid": UID}, resourceClaims=[TEMPLATE, {**TEMPLATE, "name": "other"}])
HALF = TWO | {"status": {"resourceClaimStatuses": [{"name": "my-resource", "resourceClaimName": NAME}]}}
POD_HINTS: dict[str, tuple[tuple[Json, ...], Json, Json, bool]] = {
    "complete": ((PENDING,), pod(template=True), pod(template=True, status=True), True),
    "wrong-pod": (
        (PENDING,), pod(template=True, name="my-pod2", uid=f"{UID}2"), pod(template=True, status=True), False,
    ),
    "missing-claim": ((), pod(template=True), pod(template=True, status=True), False),
    "incomplete": ((PENDING,), TWO, HALF, False),
}  # fmt: skip


@pytest.mark.parametrize("name", POD_HINTS)
def test_hints_after_a_pod(name: str) -> None:
    claims, incoming, changed, wakes = POD_HINTS[name]
    event = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    change = ClusterChange(event, project_pod(incoming), project_pod(changed))
    assert hinted(World({"claims": claims}), incoming, change) is wakes


def test_the_deletion_of_a_claim_wakes_nobody() -> None:
    """skip-deletes"""
    gone = ClusterEvent(CLAIMS.name, Action.DELETE)
    assert not any(each.event.matches(gone) for each in World({}).plugin.events_to_register())


def hinted(world: World, incoming: Json, change: ClusterChange) -> bool:
    registrations = [each for each in world.plugin.events_to_register() if each.event.matches(change.event)]
    (hint,) = [each.hint for each in registrations if each.hint is not None]
    return hint(project_pod(incoming), change) is QueueingHint.QUEUE


# --- what is carried over ---------------------------------------------------------------------------------------------

EXTENDED = "test_scheduler_extended_resources.py"
CARRIED: dict[str, str] = {
    **dict.fromkeys(TABLE, "here"),
    **dict.fromkeys(
        (
            "extended-resource-name-with-node-resource", "extended-resource-one-device-plugin-one-dra",
            "extended-resource-name-with-zero-allocatable", "non-DRA-extended-resource-name-with-zero-allocatable",
            "extended-resource-name-no-resource", "extended-resource-name-with-resources",
            "implicit-extended-resource-name-with-resources",
            "implicit-extended-resource-name-two-containers-with-resources",
            "extended-resource-name-with-resources-fail-patch", "extended-resource-name-with-resources-has-claim",
            "extended-resource-name-with-resources-delete-claim", "extended-resource-name-bind-failure",
            "extended-resource-name-claim-creation-failure",
        ),
        EXTENDED,
    ),
    "empty-with-extended-resources-enabled": "here, as empty: the gate is on",
}  # fmt: skip
ALPHA = "behind a gate that is off by default in 1.36 (GenericWorkload, DRAWorkloadResourceClaims, node-allocatable)"
OFF = "a gate that is on by default in 1.36 is off there"
WRITES = "what is written, or fails to be, is judged in a whole control plane, with other devices"
SHIFTED = "alike in kind in the allocator's table, or as drawn beside the live kube-scheduler"
LEFT: dict[str, str] = {
    **dict.fromkeys(
        (
            "podgroup-claim-reference-feature-disabled-reserves-for-pod", "podgroup-claim-reference",
            "podgroup-claim-template", "podgroup-with-resources",
            "podgroup-with-resources-feature-disabled-reserves-for-pod", "bind-podgroup-failure",
            "postfilter-unreserve-podgroup", "postfilter-skip-unreserve-podgroup-feature-disabled",
            "postfilter-deallocate-podgroup", "postfilter-skip-unreserve-podgroup-when-pods-active",
            "postfilter-skip-unreserve-podgroup-other-claim-deallocated", "reserved-okay-podgroup",
            "node-allocatable-resource-multiplier", "node-allocatable-resource-capacitykey",
            "node-allocatable-resource-capacitykey-and-multiplier",
            "node-allocatable-resource-insufficient-resources-with-multiplier",
            "node-allocatable-resource-insufficient-with-capacityKey",
        ),
        ALPHA,
    ),
    **dict.fromkeys(
        (
            "tainted-device-disabled", "request-admin-access-without-DRAAdminAccess-featuregate", "DRA-disabled",
            "claim-with-prioritized-list-feature-disabled", "dont-add-allocation-timestamp",
        ),
        OFF,
    ),
    **dict.fromkeys(
        (
            "with-resources-has-finalizer", "with-resources-finalizer-gets-removed",
            "with-resources-finalizer-gets-added", "skip-bind", "bind-failure", "extended-resource-name-skip-bind",
            "add-allocation-timestamp", "add-allocation-timestamp-failure", "bind-claim-with-binding-conditions",
            "bind-failure-concurrent-deallocation", "prebind-fail-with-binding-timeout",
        ),
        WRITES,
    ),
    **dict.fromkeys(
        (
            "request-admin-access-with-DRAAdminAccess-featuregate", "claim-parameters-CEL-runtime-error",
            "class-parameters-CEL-runtime-error", "CEL-runtime-error-for-one-of-two-nodes",
            "CEL-runtime-error-for-one-of-three-nodes", "claim-with-prioritized-list",
            "single-claim-prioritized-list-scoring", "multiple-claims-prioritized-list-scoring",
            "multiple-requests-prioritized-list-scoring", "bound-claim-with-mixed-binding-conditions",
            "multi-claims-binding-conditions-all-success", "multi-claims-binding-conditions-one-fail",
        ),
        SHIFTED,
    ),
    **dict.fromkeys(
        ("canceled", "timeout", "timeout_disabled", "timeout_zero"),
        "a search here ends after so many looks, not by time",
    ),
}  # fmt: skip


@pytest.mark.original
def test_every_case_of_upstreams_table_is_carried_over_or_left_by_name() -> None:
    file = scheduler_perf_files().parents[2] / "pkg/scheduler/framework/plugins/dynamicresources"
    source = (file / "dynamicresources_test.go").read_text()
    body = source[source.index("func testPlugin(") : source.index("func TestIsSchedulableAfterClaimChange(")]
    names = re.findall(r'^\t\t"([A-Za-z0-9_-]+)": \{', body, re.MULTILINE)
    assert not set(CARRIED) & set(LEFT)
    assert set(names) == {*CARRIED, *LEFT}
    print(f"{len(names)} cases of TestPlugin: {len(CARRIED)} carried over, {len(LEFT)} left:")
    for reason, count in Counter(LEFT.values()).items():
        print(f"  {count}: {reason}")
