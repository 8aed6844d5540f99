"""DynamicResources in a whole control plane: where pods with claims go, and what is written into the claims."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from device_world import CLAIMS, GROUP, PODS, DeviceWorld, claim, device, device_class, device_slice, pod, request
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.errors import Unavailable
from minikube_py.scheduler.devices import known
from minikube_py.scheduler.plugins import dynamic_resources
from minikube_py.scheduler.scheduler import Scheduler


@pytest.fixture
def world() -> Iterator[DeviceWorld]:
    with VirtualCluster(seed=3, nodes=3) as cluster:
        found = DeviceWorld(cluster)
        found.make(device_class("gpu"))
        yield found


def node_names(world: DeviceWorld) -> list[str]:
    return sorted(each["metadata"]["name"] for each in world.ask("GET", "/api/v1/nodes")["items"])


def test_a_pod_goes_where_its_device_is_and_the_claim_says_so(world: DeviceWorld) -> None:
    node = node_names(world)[1]
    world.make(device_slice("s", device("d0"), device("d1"), nodeName=node), claim("a"), pod("p", "a"))
    world.later()
    assert world.pod("p")[0] == node
    status = world.status("a")
    (result,) = status["allocation"]["devices"]["results"]
    assert result == {"request": "r", "driver": "gpu.example", "pool": "s", "device": "d0"}
    assert status["allocation"]["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    }
    assert [each["name"] for each in status["reservedFor"]] == ["p"]
    assert world.ask("GET", f"{CLAIMS}/a")["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


def test_no_two_claims_get_one_device_however_many_pods_there_are(world: DeviceWorld) -> None:
    for place, node in enumerate(node_names(world)):
        world.make(device_slice(f"s{place}", *(device(f"d{i}") for i in range(4)), nodeName=node))
    for i in range(15):
        world.make(claim(f"a{i}"), pod(f"p{i}", f"a{i}"))
    world.later(20)
    held = [each for i in range(15) for each in world.devices(f"a{i}")]
    assert len(held) == len(set(held)) == 12
    waiting = [i for i in range(15) if not world.pod(f"p{i}")[0]]
    assert len(waiting) == 3
    assert world.pod(f"p{waiting[0]}")[1].startswith("0/3 nodes are available: 3 cannot allocate all claims.")


def test_a_device_that_is_given_back_goes_to_who_waits_for_it(world: DeviceWorld) -> None:
    world.make(device_slice("s", device("d0"), allNodes=True), claim("a"), claim("b"), pod("p", "a"))
    world.later()
    world.make(pod("q", "b"))
    world.later()
    assert not world.pod("q")[0]
    world.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    world.later(20)
    assert world.pod("q")[0]
    assert world.devices("b") == ["s/d0"]
    assert world.devices("a") == []


def test_pods_share_a_claim(world: DeviceWorld) -> None:
    node = node_names(world)[2]
    world.make(device_slice("s", device("d0"), nodeName=node), claim("a"), pod("p", "a"), pod("q", "a"))
    world.later(20)
    assert (world.pod("p")[0], world.pod("q")[0]) == (node, node)
    assert sorted(each["name"] for each in world.status("a")["reservedFor"]) == ["p", "q"]


def test_a_pod_waits_for_what_is_missing_and_goes_once_it_is_there(world: DeviceWorld) -> None:
    world.make(pod("p", "a"))
    world.later()
    assert world.pod("p") == ("", "")
    world.make(claim("a", {"name": "r", "exactly": {"deviceClassName": "other"}}))
    world.later()
    assert "request r: device class other does not exist" in world.pod("p")[1]
    world.make(device_class("other", "device.attributes['gpu.example'].rank > 3"))
    world.later()
    assert "cannot allocate all claims" in world.pod("p")[1]
    world.make(device_slice("s", device("d0", attributes={"rank": {"int": 4}}), allNodes=True))
    world.later(20)
    assert world.pod("p")[0]


def test_a_claim_made_from_a_template_is_waited_for(world: DeviceWorld) -> None:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim("x")["spec"]}}
    world.ask("POST", f"{GROUP}/namespaces/default/resourceclaimtemplates", template)
    world.make(device_slice("s", device("d0"), allNodes=True))
    world.make(pod("p", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}]))
    world.later(20)
    assert world.pod("p")[0]
    (made,) = world.ask("GET", CLAIMS)["items"]
    assert [each["name"] for each in made["status"]["reservedFor"]] == ["p"]


def test_a_selector_that_fails_is_told(world: DeviceWorld) -> None:
    world.make(device_slice("s", device("d0"), allNodes=True))
    expression = "device.attributes['gpu.example'].absent == 'x'"
    world.make(claim("a", request("r", selectors=[{"cel": {"expression": expression}}])), pod("p", "a"))
    world.later()
    assert world.pod("p")[1] == (
        'running "DynamicResources" filter plugin: claim default/a: selector #0: CEL runtime error: no such key: absent'
    )


def test_alternatives_that_come_first_make_a_node_better(world: DeviceWorld) -> None:
    names = node_names(world)
    for place, (node, kind) in enumerate(zip(names, ("small", "large", "small"), strict=True)):
        world.make(device_slice(f"s{place}", device("d0", attributes={"kind": {"string": kind}}), nodeName=node))
    choices = [
        {
            "name": kind,
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": f"device.attributes['gpu.example'].kind == '{kind}'"}}],
        }
        for kind in ("large", "small")
    ]
    for i in range(3):
        world.make(claim(f"a{i}", {"name": "r", "firstAvailable": choices}), pod(f"p{i}", f"a{i}"))
        world.later()
    assert world.devices("a0") == ["s1/d0"]
    assert sorted(each for i in range(3) for each in world.devices(f"a{i}")) == ["s0/d0", "s1/d0", "s2/d0"]


def test_shares_of_a_device_have_ids_and_add_up(world: DeviceWorld) -> None:
    many = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "10Gi"}})
    world.make(device_slice("s", many, allNodes=True))
    for i in range(4):
        world.make(claim(f"a{i}", request("r", capacity={"requests": {"memory": "3Gi"}})), pod(f"p{i}", f"a{i}"))
    world.later(20)
    shares = [
        result
        for i in range(4)
        for result in (world.status(f"a{i}").get("allocation") or {"devices": {}})["devices"].get("results") or ()
    ]
    assert [share["consumedCapacity"] for share in shares] == [{"memory": "3Gi"}] * 3
    assert len({share["shareID"] for share in shares}) == 3


def tell(world: DeviceWorld, name: str, pool: str, device: str, condition: str) -> None:
    """As a driver does it."""
    said = {"type": condition, "status": "True", "reason": "x", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    obj = world.ask("GET", f"{CLAIMS}/{name}")
    found = {"driver": "gpu.example", "pool": pool, "device": device, "conditions": [{**said, "message": ""}]}
    obj["status"]["devices"] = [found]
    assert "uid" in world.ask("PUT", f"{CLAIMS}/{name}/status", obj)["metadata"]


def test_a_pod_is_bound_once_its_devices_are_ready(world: DeviceWorld) -> None:
    slow = device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"], bindsToNode=True)
    world.make(device_slice("s", slow, allNodes=True), claim("a"), pod("p", "a"))
    world.later(20)
    assert world.devices("a") == ["s/d0"]
    assert world.pod("p")[0] == ""
    tell(world, "a", "s", "d0", "Attached")
    world.later(20)
    assert world.pod("p")[0] != ""


def test_devices_that_fail_to_get_ready_are_given_back(world: DeviceWorld) -> None:
    slow = device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    world.make(device_slice("s0", slow, allNodes=True), claim("a"), pod("p", "a"))
    world.later(20)
    assert world.devices("a") == ["s0/d0"]
    world.make(device_slice("s1", device("d1"), allNodes=True))
    tell(world, "a", "s0", "d0", "Broken")
    world.later(60)
    assert world.devices("a") == ["s1/d1"]
    assert world.pod("p")[0]


def strand(world: DeviceWorld, name: str) -> None:
    """Allocates the claim where no pod can go."""
    obj = world.ask("GET", f"{CLAIMS}/{name}")
    field = {"key": "metadata.name", "operator": "In", "values": ["nowhere"]}
    obj["status"] = {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "gpu.example", "pool": "s", "device": "d0"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }
    assert "uid" in world.ask("PUT", f"{CLAIMS}/{name}/status", obj)["metadata"]


def test_devices_that_no_node_reaches_are_given_back_and_found_anew(world: DeviceWorld) -> None:
    world.make(device_slice("s", device("d0"), allNodes=True), claim("a"))
    strand(world, "a")
    world.make(pod("p", "a"))
    world.later(20)
    assert world.pod("p")[0]
    assert world.devices("a") == ["s/d0"]
    assert "nodeSelector" not in world.status("a")["allocation"]


def test_a_pod_is_tried_again_where_giving_back_failed(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    real, tries = dynamic_resources.deallocate, []

    async def deallocate(handle: Any, given: Any) -> None:
        tries.append(given.key)
        if len(tries) == 1:
            raise Unavailable("the server is away")
        await real(handle, given)

    monkeypatch.setattr(dynamic_resources, "deallocate", deallocate)
    world.make(device_slice("s", device("d0"), allNodes=True), claim("a"))
    strand(world, "a")
    world.make(pod("p", "a"))
    world.later(20)
    assert tries == ["default/a"] * 2
    assert world.pod("p")[0]


async def test_the_kinds_are_listed_for_pods_with_claims_alone() -> None:
    api = FakeApi()
    api.node("n")
    scheduler = Scheduler(api, ManualClock(), random.Random(3))
    await scheduler.start()
    api.pod("p")
    await settle()
    assert api.bound == [("p", "n")]
    kinds = {"resourceclaims", "resourceslices", "deviceclasses"}
    assert not kinds & set(api.listed)
    api.pod("q", resourceClaims=[{"name": "c", "resourceClaimName": "absent"}])
    await settle()
    assert kinds <= set(api.listed)
    await scheduler.stop()
    assert api.bound == [("p", "n")]


def test_a_second_pod_asks_no_node_where_nothing_changed(world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []

    class Counted(known.Search):
        def run(self, claims: Any) -> Any:
            searches.append(self._node.name)
            return super().run(claims)

    monkeypatch.setattr(known, "Search", Counted)
    for place, node in enumerate(node_names(world)):
        world.make(device_slice(f"s{place}", *(device(f"d{i}") for i in range(4)), nodeName=node))
    for i in range(4):
        world.make(claim(f"a{i}"), pod(f"p{i}", f"a{i}"))
        world.later()
    assert all(world.pod(f"p{i}")[0] for i in range(4))
    # The node that the pod before got, and no other.
    assert len(searches) == 3 + 3
