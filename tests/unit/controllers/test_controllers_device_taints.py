"""Device taint eviction: which pods go, when, and what cancels it."""

import pytest
from controller_world import World
from step_clock import settle

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import timestamp
from minikube_py.client.store import ObjectStore
from minikube_py.controllers.device_taints import tolerated_s

ALL = {"operator": "Exists", "effect": "NoExecute"}
CONTROLLER = "device-taint-eviction-controller"
POOL = {"driver": "x.io", "pool": "p"}
BAD = {"key": "bad", "effect": "NoExecute"}


def tainted(w, *taints, name="s", device="d", generation=1):
    """A slice of pool p with one device, made or changed."""
    given = [{"timeAdded": timestamp(w.clock.wall_s()), **taint} for taint in taints]
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "x.io", "nodeName": "n1", "pool": pool, "devices": [{"name": device, "taints": given}]}
    make = w.api.change if name in w.api.kind("resourceslices") else w.api.make
    make("resourceslices", name, spec=spec)


def claimed(w, *tolerations, device="d", pods=("p",), name="c", **metadata):
    """Pods on n1 that use a claim with this device."""
    used = [{"name": "gpu", "resourceClaimName": name}]
    made = [w.api.make("pods", f"a/{pod}", spec={"nodeName": "n1", "resourceClaims": used}) for pod in pods]
    users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in made]
    results = [{"request": "r", **POOL, "device": device, "tolerations": list(tolerations)}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    w.api.make("resourceclaims", f"a/{name}", metadata=metadata, spec={}, status=status)


def condition(w, key):
    conditions = (w.api.kind("pods")[key].get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "DisruptionTarget"), None)


async def test_a_taint_evicts_the_pods_of_the_device_and_no_others():
    async with World(CONTROLLER) as w:
        tainted(w)
        claimed(w, pods=("p", "q"))
        claimed(w, device="other", pods=("r",), name="e")
        await settle()
        assert set(w.pods()) == {"a/p", "a/q", "a/r"}
        tainted(w, BAD)
        await settle()
        assert set(w.pods()) == {"a/r"}
        assert w.reasons() == [("DeviceTaintManagerEviction", "Marking for deletion")] * 2
        assert w.manager.metrics()["device_taint_eviction_controller_pod_deletions_total"] == 2


async def test_the_reason_is_in_the_pod_that_goes():
    async with World(CONTROLLER) as w:
        claimed(w)
        w.api.change("pods", "a/p", metadata={**w.api.kind("pods")["a/p"]["metadata"], "finalizers": ["x.io/held"]})
        tainted(w, BAD)
        await settle()
        assert "deletionTimestamp" in w.api.kind("pods")["a/p"]["metadata"]
        assert condition(w, "a/p") == {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": timestamp(w.clock.wall_s()),
        }  # fmt: skip


@pytest.mark.parametrize("order", ["taint first", "claim first"])
async def test_a_pod_stays_for_its_toleration_seconds_after_the_taint_was_added(order):
    async with World(CONTROLLER) as w:
        steps = [lambda: tainted(w, BAD), lambda: claimed(w, {**ALL, "tolerationSeconds": 30})]
        for step in steps if order == "taint first" else reversed(steps):
            step()
            await settle()
        await w.clock.advance(28)
        assert set(w.pods()) == {"a/p"}
        await w.clock.advance(4)
        assert not w.pods()


async def test_the_end_of_a_taint_cancels_what_waits():
    async with World(CONTROLLER) as w:
        claimed(w, {**ALL, "tolerationSeconds": 30})
        tainted(w, BAD)
        await w.clock.advance(10)
        tainted(w)
        await w.clock.advance(60)
        assert set(w.pods()) == {"a/p"}
        assert w.reasons() == [("DeviceTaintManagerEviction", "Cancelling deletion")]


async def test_a_newer_generation_replaces_the_taints_of_a_pool():
    async with World(CONTROLLER) as w:
        tainted(w, name="newer", generation=2)
        tainted(w, BAD, generation=1)
        claimed(w)
        await settle()
        assert set(w.pods()) == {"a/p"}
        await w.api.request("DELETE", "/apis/resource.k8s.io/v1/resourceslices/newer")
        await settle()
        assert not w.pods()


async def test_a_device_of_two_slices_is_tainted_as_long_as_one_says_so():
    async with World(CONTROLLER) as w:
        claimed(w, {**ALL, "tolerationSeconds": 30})
        for name in ("s", "t"):
            tainted(w, BAD, name=name)
        await settle()
        tainted(w, name="t")
        await w.clock.advance(28)
        assert set(w.pods()) == {"a/p"} and not w.reasons()
        await w.clock.advance(4)
        assert not w.pods()


@pytest.mark.parametrize("rises", [False, True])
async def test_a_slice_costs_its_own_devices(rises, monkeypatch):
    """A node may publish as many slices of one pool, of as many generations, as it likes."""
    read = []
    by_index = ObjectStore.by_index

    def counted(*args):
        read.extend(found := by_index(*args))
        return found

    monkeypatch.setattr(ObjectStore, "by_index", counted)
    async with World(CONTROLLER) as w:
        for number in range(100):
            tainted(w, BAD, name=f"s{number}", device=f"d{number}", generation=number if rises else 1)
        claimed(w, device="d99")
        await settle()
        assert not w.pods()
    assert len(read) < 400


async def test_only_pods_that_have_reserved_the_claim_go():
    """Another pod may name the claim, or have the name of a pod that had it."""
    async with World(CONTROLLER) as w:
        claimed(w)
        used = [{"name": "gpu", "resourceClaimName": "c"}]
        w.api.make("pods", "a/waits", spec={"resourceClaims": used})
        w.api.make("pods", "a/placed", spec={"nodeName": "n1", "resourceClaims": used})
        tainted(w, BAD)
        await settle()
        assert set(w.pods()) == {"a/waits", "a/placed"}


async def test_a_claim_from_a_template_counts_for_its_own_pod():
    async with World(CONTROLLER) as w:
        for name, owner in (("own", "own"), ("stolen", "")):
            pod = w.api.make("pods", f"a/{name}", spec={
                "nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            }, status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-x"}]})  # fmt: skip
            uid = pod["metadata"]["uid"]
            controller = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": True}
            owners = [controller] if owner else []
            status = {
                "allocation": {"devices": {"results": [{"request": "r", **POOL, "device": "d"}]}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
            }
            w.api.make("resourceclaims", f"a/{name}-x", metadata={"ownerReferences": owners}, spec={}, status=status)
        tainted(w, BAD)
        await settle()
        assert set(w.pods()) == {"a/stolen"}


async def test_a_failed_deletion_is_tried_again():
    async with World(CONTROLLER) as w:
        w.api.refuse["DELETE", "/api/v1/namespaces/a/pods/p"] = StatusError(500, "InternalError", "no")
        claimed(w)
        tainted(w, BAD)
        await w.clock.advance(1)
        assert set(w.pods()) == {"a/p"}
        w.api.refuse.clear()
        await w.clock.advance(60)
        assert not w.pods()


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([ALL], None),
        ([{"operator": "Exists"}], 0.0),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 0.0),
        ([{"key": "bad", "value": "v", "effect": "NoExecute"}], None),
        ([{"key": "bad", "operator": "Equal", "value": "w", "effect": "NoExecute"}], 0.0),
        ([{"key": "other", "operator": "Exists", "effect": "NoExecute"}], 0.0),
        ([{**ALL, "tolerationSeconds": -3}], 0.0),
        ([{**ALL, "tolerationSeconds": n} for n in (9, 5, 7)], 5.0),
        ([{**ALL, "tolerationSeconds": 5}, ALL], None),
    ],
)
def test_how_long_a_claim_tolerates_a_taint(tolerations, expected):
    """As upstream's claimEvictionTime: a toleration must name the effect NoExecute."""
    assert tolerated_s({"key": "bad", "value": "v", "effect": "NoExecute"}, tolerations) == expected
