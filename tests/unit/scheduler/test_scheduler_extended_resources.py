"""Extended resources that DeviceClasses stand for: by upstream's own tables (1.36.2), and in a whole control plane.

Sources: dynamicresources/extendeddynamicresources_test.go, all 8 + 7 cases;
dynamicresources/dynamicresources_test.go, all 14 cases of extended resources in TestPlugin;
deviceclass/extendedresourcecache/extendedresourcecache_test.go, its cases of which class a name means.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from device_world import CLAIMS, GROUP, PODS, DeviceWorld, claim, device, device_class, device_slice
from scheduler_objects import pod_object

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import RestClient
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.scheduler.devices.extended import ClassesByResource, names_in, requests_and_mappings
from minikube_py.scheduler.devices.views import ClassView
from minikube_py.scheduler.objects import project_pod

GPU = "example.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/"

# --- what is asked for ------------------------------------------------------------------------------------------------

Container = tuple[str, dict[str, int]]
"""con, init or sidecar, and what it requests."""
POD_1: list[Container] = [("con", {GPU: 1, f"{GPU}1": 2})]
POD_2: list[Container] = [("con", {GPU: 1}), ("con", {f"{GPU}1": 2})]
INIT: list[Container] = [("init", {f"{GPU}init": 2}), ("con", {GPU: 1})]
INIT_2: list[Container] = [("init", {f"{GPU}init": 1}), ("init", {f"{GPU}init": 2}), ("con", {GPU: 1})]
INIT_3: list[Container] = [
    ("init", {f"{GPU}init": 1}), ("sidecar", {f"{GPU}init": 1}), ("init", {f"{GPU}init": 2}), ("con", {GPU: 1}),
]  # fmt: skip
INIT_IMPLICIT: list[Container] = [
    ("init", {f"{GPU}init": 1}), ("init", {f"{IMPLICIT}classInit": 2}), ("con", {GPU: 1}),
]  # fmt: skip
BOTH_NAMES: list[Container] = [("init", {f"{GPU}init": 1, f"{IMPLICIT}classInit": 2})]
ONE, TWO = {GPU: "class"}, {GPU: "class", f"{GPU}1": "class1"}
WITH_INIT = {GPU: "class", f"{GPU}init": "classInit"}
WITH_IMPLICIT = {**WITH_INIT, f"{IMPLICIT}classInit": "classInit"}
RESOURCES, RESOURCES_INIT = (GPU, f"{GPU}1"), (GPU, f"{GPU}init")

REQUESTS: dict[str, tuple[list[Container], tuple[str, ...], dict[str, str], list[tuple[str, str, int]]]] = {
    "nil": (POD_1, (), {}, []),
    "one resource match": (POD_1, (GPU,), ONE, [("0-0", "class", 1)]),
    "one resource match, one resource not match": (POD_1, RESOURCES, ONE, [("0-0", "class", 1)]),
    "two resources match": (POD_1, RESOURCES, TWO, [("0-0", "class", 1), ("0-1", "class1", 2)]),
    "two containers match": (POD_2, RESOURCES, TWO, [("0-0", "class", 1), ("1-0", "class1", 2)]),
    "one init container, one regular container": (
        INIT, RESOURCES_INIT, WITH_INIT, [("0-0", "classInit", 2), ("1-0", "class", 1)],
    ),
    "two init containers, one regular container": (
        INIT_2, RESOURCES_INIT, WITH_INIT, [("1-0", "classInit", 2), ("2-0", "class", 1)],
    ),
    "three init containers, one sidecar, one regular container": (
        INIT_3, RESOURCES_INIT, WITH_INIT, [("1-0", "classInit", 1), ("2-0", "classInit", 2), ("3-0", "class", 1)],
    ),
}  # fmt: skip

Mapped = list[tuple[str, str, str]]
MAPPINGS: dict[str, tuple[list[Container], tuple[str, ...], dict[str, str], Mapped]] = {
    "one container, two requests": (
        POD_1, RESOURCES, TWO, [("con0", GPU, "0-0"), ("con0", f"{GPU}1", "0-1")],
    ),
    "one container, one explicit and one implicit request": (
        BOTH_NAMES, (*RESOURCES_INIT, f"{IMPLICIT}classInit"), WITH_IMPLICIT,
        [("init-con0", f"{IMPLICIT}classInit", "0-0"), ("init-con0", f"{GPU}init", "0-1")],
    ),
    "two containers, two requests": (
        POD_2, RESOURCES, TWO, [("con0", GPU, "0-0"), ("con1", f"{GPU}1", "1-0")],
    ),
    "one init container, one regular container, one request": (
        INIT, RESOURCES_INIT, WITH_INIT, [("init-con0", f"{GPU}init", "0-0"), ("con0", GPU, "1-0")],
    ),
    "three containers (two are init container), two requests": (
        INIT_2, RESOURCES_INIT, WITH_INIT,
        [("init-con0", f"{GPU}init", "1-0"), ("init-con1", f"{GPU}init", "1-0"), ("con0", GPU, "2-0")],
    ),
    "three containers (two are init container), both explicit and implicit resources": (
        INIT_IMPLICIT, (*RESOURCES_INIT, f"{IMPLICIT}classInit"), WITH_IMPLICIT,
        [("init-con0", f"{GPU}init", "0-0"), ("init-con1", f"{IMPLICIT}classInit", "1-0"), ("con0", GPU, "2-0")],
    ),
    "four containers (two are init container, one sidecar), three requests": (
        INIT_3, RESOURCES_INIT, WITH_INIT,
        [
            ("init-con0", f"{GPU}init", "1-0"), ("sidecar-con1", f"{GPU}init", "1-0"),
            ("init-con2", f"{GPU}init", "2-0"), ("con0", GPU, "3-0"),
        ],
    ),
}  # fmt: skip


def spec_of(containers: list[Container]) -> dict[str, Any]:
    """Named as upstream's builders name them."""
    early: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for kind, requests in containers:
        if kind == "con":
            made, name = late, f"con{len(late)}"
        else:
            made, name = early, f"{kind}-con{len(early)}"
        amounts = {each: str(amount) for each, amount in requests.items()}
        own = {"restartPolicy": "Always"} if kind == "sidecar" else {}
        made.append({"name": name, "image": "x", "resources": {"requests": amounts, "limits": amounts}, **own})
    return {"initContainers": early, "containers": late}


def asked(containers: list[Container], resources: tuple[str, ...], classes: Mapping[str, str]) -> Any:
    def class_of(resource: str) -> ClassView | None:
        name = classes.get(resource)
        return None if name is None else ClassView({"metadata": {"name": name}})

    pod = project_pod(pod_object("p", **spec_of(containers)))
    return requests_and_mappings(pod.spec.asks, resources, class_of)


def full(short: str) -> str:
    container, _, place = short.partition("-")
    return f"container-{container}-request-{place}"


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    containers, resources, classes, wanted = REQUESTS[name]
    requests, _ = asked(containers, resources, classes)
    assert requests == [
        {"name": full(short), "exactly": {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}}
        for short, cls, count in wanted
    ]


@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings(name: str) -> None:
    containers, resources, classes, wanted = MAPPINGS[name]
    _, mappings = asked(containers, resources, classes)
    found = sorted((each["requestName"], each["containerName"], each["resourceName"]) for each in mappings)
    assert found == [(full(short), container, resource) for container, resource, short in wanted]


def test_only_what_is_asked_for_and_may_stand_for_a_class_counts() -> None:
    requests = {"cpu": 1, GPU: 1, f"{IMPLICIT}c": 2, "kubernetes.io/x": 1, "example.com/none": 0, "hugepages-2Mi": 1}
    pod = project_pod(pod_object("p", **spec_of([("con", requests)])))
    assert names_in(pod.spec) == (f"{IMPLICIT}c", GPU)
    assert project_pod(pod_object("q", cpu="1")).spec.asks == ()


# --- which class a name means -----------------------------------------------------------------------------------------


def view(name: str, resource: str = "", created: str = "2026-01-01T00:00:00Z") -> ClassView:
    spec = {"extendedResourceName": resource} if resource else {}
    return ClassView({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})


def known(*changes: tuple[ClassView | None, ClassView | None]) -> ClassesByResource:
    found = ClassesByResource()
    for old, new in changes:
        if new is not None:
            found.put(new, old)
        elif old is not None:
            found.remove(old)
    return found


A, B, A_OLD, A_PLAIN, A_OTHER = (
    view("a", GPU), view("b", GPU), view("a", GPU, "2025-01-01T00:00:00Z"), view("a"), view("a", "example.com/other"),
)  # fmt: skip
CLASSES: dict[str, tuple[list[tuple[ClassView | None, ClassView | None]], dict[str, str | None]]] = {
    "added": ([(None, A)], {GPU: "a", f"{IMPLICIT}a": "a"}),
    "without a name of its own": ([(None, A_PLAIN)], {GPU: None, f"{IMPLICIT}a": "a"}),
    "of equal age the first by name": ([(None, B), (None, A)], {GPU: "a", f"{IMPLICIT}b": "b"}),
    "the newer one": ([(None, B), (None, A_OLD)], {GPU: "b", f"{IMPLICIT}a": None}),
    "renamed": ([(None, A), (A, A_OTHER)], {GPU: None, "example.com/other": "a", f"{IMPLICIT}a": "a"}),
    "no longer named": ([(None, A), (A, A_PLAIN)], {GPU: None, f"{IMPLICIT}a": "a"}),
    "removed": ([(None, A), (A, None)], {GPU: None, f"{IMPLICIT}a": None}),
}


@pytest.mark.parametrize("name", CLASSES)
def test_which_class_a_name_means(name: str) -> None:
    changes, wanted = CLASSES[name]
    found = known(*changes)
    got = {resource: found.get(resource) for resource in wanted}
    assert {resource: each and each.name for resource, each in got.items()} == wanted


# --- in a whole control plane -----------------------------------------------------------------------------------------

CLASS = "my-resource-class"


@pytest.fixture
def world() -> Iterator[DeviceWorld]:
    with VirtualCluster(seed=5, nodes=2) as cluster:
        yield DeviceWorld(cluster)


def make_pod(world: DeviceWorld, *containers: Container, name: str = "my-pod", **spec: Any) -> dict[str, Any]:
    body = {"metadata": {"name": name}, "spec": {**spec_of(list(containers)), **spec}}
    made: dict[str, Any] = world.ask("POST", PODS, body)
    assert "uid" in made["metadata"], made
    return made


def offer(world: DeviceWorld, node: str, resource: str, amount: str) -> None:
    """As a device plugin does it."""
    patch = {"status": {"allocatable": {resource: amount}, "capacity": {resource: amount}}}
    answer = world.ask("PATCH", f"/api/v1/nodes/{node}/status", patch, content_type=MERGE_PATCH)
    assert answer["status"]["allocatable"][resource] == amount


def nodes_of(world: DeviceWorld) -> list[str]:
    return sorted(each["metadata"]["name"] for each in world.ask("GET", "/api/v1/nodes")["items"])


def claims_of(world: DeviceWorld) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.ask("GET", CLAIMS)["items"]
    return found


def results_of(made: dict[str, Any]) -> list[tuple[str, str]]:
    allocation = (made.get("status") or {}).get("allocation") or {"devices": {}}
    return [(each["request"], each["device"]) for each in allocation["devices"].get("results") or ()]


def equip(world: DeviceWorld, *classes: dict[str, Any], count: int = 1) -> str:
    """The classes, and so many devices on the first node."""
    node = nodes_of(world)[0]
    devices = [device(f"instance-{i + 1}") for i in range(count)]
    world.make(*classes, device_slice("s", *devices, nodeName=node))
    return node


def created(world: DeviceWorld, status: str = "success") -> int:
    name = f'scheduler_resourceclaim_creates_total{{status="{status}"}}'
    return int(world.cluster.plane.components["scheduler"].metrics().get(name, 0))


def test_with_resources(world: DeviceWorld) -> None:
    """extended-resource-name-with-resources"""
    node = equip(world, device_class(CLASS, extendedResourceName=GPU))
    pod = make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    assert world.pod("my-pod")[0] == node
    (made,) = claims_of(world)
    metadata = made["metadata"]
    assert metadata["name"].startswith("my-pod-extended-resources-")
    assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "my-pod", "uid": pod["metadata"]["uid"], "controller": True}
    assert metadata["ownerReferences"] == [owner]
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    assert made["spec"]["devices"]["requests"] == [{"name": "container-0-request-0", "exactly": exactly}]
    assert results_of(made) == [("container-0-request-0", "instance-1")]
    assert [each["uid"] for each in made["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    mapping = {"containerName": "con0", "resourceName": GPU, "requestName": "container-0-request-0"}
    told = world.ask("GET", f"{PODS}/my-pod")["status"]["extendedResourceClaimStatus"]
    assert told == {"requestMappings": [mapping], "resourceClaimName": metadata["name"]}
    assert created(world) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_by_the_name_of_the_class(world: DeviceWorld, apart: bool) -> None:
    """implicit-extended-resource-name-with-resources, implicit-extended-resource-name-two-containers-with-resources"""
    node = equip(world, device_class(CLASS, extendedResourceName=GPU), count=3)
    implicit: Container = ("con", {IMPLICIT + CLASS: 1})
    containers = (implicit, ("con", {GPU: 2})) if apart else (("con", {IMPLICIT + CLASS: 1, GPU: 2}),)
    make_pod(world, *containers)
    world.later(20)
    assert world.pod("my-pod")[0] == node
    (made,) = claims_of(world)
    second = "container-1-request-0" if apart else "container-0-request-1"
    assert results_of(made) == [
        ("container-0-request-0", "instance-1"), (second, "instance-2"), (second, "instance-3"),
    ]  # fmt: skip
    assert created(world) == 1


def test_what_the_node_has_by_itself_needs_no_claim(world: DeviceWorld) -> None:
    """extended-resource-name-with-node-resource"""
    equip(world, device_class(CLASS, extendedResourceName=GPU), count=0)
    other = nodes_of(world)[1]
    offer(world, other, GPU, "1")
    make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    assert world.pod("my-pod")[0] == other
    assert not claims_of(world) and not created(world)
    assert "extendedResourceClaimStatus" not in world.ask("GET", f"{PODS}/my-pod")["status"]


def test_one_by_the_node_and_one_by_devices(world: DeviceWorld) -> None:
    """extended-resource-one-device-plugin-one-dra"""
    one = device_class(CLASS, extendedResourceName=GPU)
    two = device_class(f"{CLASS}2", extendedResourceName=f"{GPU}2")
    node = equip(world, one, two)
    offer(world, node, GPU, "1")
    make_pod(world, ("con", {GPU: 1, f"{GPU}2": 1}))
    world.later(20)
    assert world.pod("my-pod")[0] == node
    (made,) = claims_of(world)
    assert results_of(made) == [("container-0-request-1", "instance-1")]
    assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == f"{CLASS}2"


def test_a_node_that_has_none_left_of_its_own_is_served_by_devices(world: DeviceWorld) -> None:
    """extended-resource-name-with-zero-allocatable"""
    node = equip(world, device_class(CLASS, extendedResourceName=GPU))
    offer(world, node, GPU, "0")
    make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    assert world.pod("my-pod")[0] == node
    assert results_of(claims_of(world)[0]) == [("container-0-request-0", "instance-1")]


def test_a_resource_that_no_class_stands_for_is_the_nodes_own_affair(world: DeviceWorld) -> None:
    """non-DRA-extended-resource-name-with-zero-allocatable"""
    node = equip(world, device_class(CLASS))
    offer(world, node, GPU, "0")
    make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    where, why = world.pod("my-pod")
    assert not where and why.startswith("0/2 nodes are available: 2 Insufficient example.com/gpu.")
    assert not claims_of(world)


def test_without_devices_the_pod_waits_and_a_later_class_wakes_it(world: DeviceWorld) -> None:
    """extended-resource-name-no-resource; NodeResourcesFit's hint for device classes"""
    node = equip(world)
    make_pod(world, ("con", {GPU: 1}))
    make_pod(world, ("con", {GPU: 1}), name="other-pod")
    world.later()
    assert "2 Insufficient example.com/gpu" in world.pod("my-pod")[1]
    world.make(device_class(CLASS, extendedResourceName=GPU))
    world.later(20)
    places = sorted(world.pod(name) for name in ("my-pod", "other-pod"))
    assert places[1][0] == node and not places[0][0]
    assert places[0][1].startswith("0/2 nodes are available: 2 cannot allocate all claims. still not schedulable")
    assert created(world) == 1


def failing(monkeypatch: pytest.MonkeyPatch, method: str, plural: str, times: int, message: str) -> None:
    real = getattr(RestClient, method)
    left = [times]

    async def fails(self: Any, resource: Any, *args: Any, **more: Any) -> Any:
        if resource.plural == plural and left[0] and more.get("subresource", "status") == "status":
            left[0] -= 1
            raise StatusError(400, "BadRequest", message)
        return await real(self, resource, *args, **more)

    monkeypatch.setattr(RestClient, method, fails)


def events_of(world: DeviceWorld, name: str) -> list[str]:
    items = world.ask("GET", "/api/v1/namespaces/default/events")["items"]
    return [each["message"] for each in items if each["involvedObject"]["name"] == name]


@pytest.mark.parametrize(
    ("method", "plural", "message", "told", "count"),
    [
        ("create", "resourceclaims", "claim creation errors", "create claim for extended resources default/", 1),
        ("patch", "pods", "patch error", "update pod default/my-pod ExtendedResourceClaimStatus: ", 2),
        ("bind", "", "binding error", "binding error", 2),
    ],
)
def test_what_fails_leaves_no_claim_behind(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch, method: str, plural: str, message: str, told: str, count: int
) -> None:
    """extended-resource-name-claim-creation-failure, -fail-patch, -bind-failure"""
    node = equip(world, device_class(CLASS, extendedResourceName=GPU))
    if plural:
        failing(monkeypatch, method, plural, 1, message)
    else:
        real, left = RestClient.raw, [1]

        async def fails(self: Any, verb: str, path: str, *args: Any, **more: Any) -> Any:
            if path.endswith("/binding") and left[0]:
                left[0] -= 1
                raise StatusError(400, "BadRequest", message)
            return await real(self, verb, path, *args, **more)

        monkeypatch.setattr(RestClient, "raw", fails)
    make_pod(world, ("con", {GPU: 1}))
    world.later(60)
    assert any(told in each and message in each for each in events_of(world, "my-pod"))
    assert world.pod("my-pod")[0] == node
    (made,) = claims_of(world)
    assert results_of(made) == [("container-0-request-0", "instance-1")]
    status = world.ask("GET", f"{PODS}/my-pod")["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == made["metadata"]["name"]
    assert (created(world), created(world, "failure")) == (count, 1 if method == "create" else 0)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_claim_of_an_earlier_try_is_deleted_first(world: DeviceWorld, where: str) -> None:
    """extended-resource-name-with-resources-has-claim, extended-resource-name-with-resources-delete-claim"""
    node = equip(world, device_class(CLASS, extendedResourceName=GPU))
    pod = make_pod(world, ("con", {GPU: 1}), schedulingGates=[{"name": "wait"}])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "my-pod", "uid": pod["metadata"]["uid"], "controller": True}
    old = claim("my-pod-extended-resources-0", {"name": "container-0-request-0", "exactly": {"deviceClassName": CLASS}})
    old["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    old["metadata"]["ownerReferences"] = [owner]
    old["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    world.make(old)
    obj = world.ask("GET", f"{CLAIMS}/my-pod-extended-resources-0")
    place = {"here": node, "elsewhere": nodes_of(world)[1]}[where]
    field = {"key": "metadata.name", "operator": "In", "values": [place]}
    held = {"request": "container-0-request-0", "driver": "gpu.example", "pool": "s", "device": "instance-1"}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    obj["status"] = {"allocation": {"devices": {"results": [held]}, "nodeSelector": selector}}
    assert "uid" in world.ask("PUT", f"{CLAIMS}/my-pod-extended-resources-0/status", obj)["metadata"]
    world.ask("PATCH", f"{PODS}/my-pod", {"spec": {"schedulingGates": None}}, content_type=MERGE_PATCH)
    world.later(30)
    told = "0/2 nodes are available: 2 cannot schedule extended resource claim. deletion of ResourceClaim completed"
    assert any(each.startswith(told) for each in events_of(world, "my-pod"))
    assert world.pod("my-pod")[0] == node
    (made,) = claims_of(world)
    assert made["metadata"]["uid"] != obj["metadata"]["uid"]


def test_devices_go_back_with_the_pod(world: DeviceWorld) -> None:
    node = equip(world, device_class(CLASS, extendedResourceName=GPU))
    make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    make_pod(world, ("con", {IMPLICIT + CLASS: 1}), name="next")
    world.later(20)
    assert not world.pod("next")[0]
    world.ask("DELETE", f"{PODS}/my-pod", {"gracePeriodSeconds": 0})
    world.later(30)
    assert world.pod("next")[0] == node
    (made,) = claims_of(world)
    assert made["metadata"]["name"].startswith("next-extended-resources-")


def test_no_device_goes_to_two_pods_however_they_ask(world: DeviceWorld) -> None:
    equip(world, device_class("gpu", extendedResourceName=GPU), count=6)
    rng = random.Random(4)
    for i in range(10):
        how = rng.choice(("claim", "name", "class"))
        if how == "claim":
            world.make(claim(f"a{i}"))
            named = [{"name": "c", "resourceClaimName": f"a{i}"}]
            make_pod(world, ("con", {"cpu": 0}), name=f"p{i}", resourceClaims=named)
        else:
            make_pod(world, ("con", {GPU if how == "name" else f"{IMPLICIT}gpu": 1}), name=f"p{i}")
    world.later(60)
    held = [device for made in claims_of(world) for _, device in results_of(made)]
    assert len(held) == len(set(held)) == 6
    assert sum(bool(world.pod(f"p{i}")[0]) for i in range(10)) == 6


def test_user_claims_and_extended_resources_together(world: DeviceWorld) -> None:
    node = equip(world, device_class("gpu", extendedResourceName=GPU), count=3)
    world.make(claim("a"))
    make_pod(world, ("con", {GPU: 2}), resourceClaims=[{"name": "c", "resourceClaimName": "a"}])
    world.later(20)
    assert world.pod("my-pod")[0] == node
    held = {made["metadata"]["name"].partition("-ext")[0]: results_of(made) for made in claims_of(world)}
    assert held == {
        "a": [("r", "instance-1")],
        "my-pod": [("container-0-request-0", "instance-2"), ("container-0-request-0", "instance-3")],
    }


def test_claims_beside_what_the_node_has_by_itself_need_no_special_claim(world: DeviceWorld) -> None:
    """Upstream 1.36.2 makes an empty one, and fails at it."""
    node = equip(world, device_class("gpu", extendedResourceName=GPU))
    offer(world, node, GPU, "1")
    world.make(claim("a"))
    make_pod(world, ("con", {GPU: 1}), resourceClaims=[{"name": "c", "resourceClaimName": "a"}])
    world.later(20)
    assert world.pod("my-pod")[0] == node
    assert [results_of(made) for made in claims_of(world)] == [[("r", "instance-1")]]


def test_the_first_pods_of_a_cluster_without_classes_start_nothing_for_others(world: DeviceWorld) -> None:
    offer(world, nodes_of(world)[0], GPU, "2")
    make_pod(world, ("con", {GPU: 1}))
    world.later(20)
    assert world.pod("my-pod")[0] == nodes_of(world)[0]
    assert world.ask("GET", f"{GROUP}/deviceclasses")["items"] == []
