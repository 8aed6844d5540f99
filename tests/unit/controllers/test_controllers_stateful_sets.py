"""StatefulSet: how many pods it asks for while one is refused."""

from typing import Any

import pytest
from controller_world import TEMPLATE, World
from hypothesis import given
from hypothesis import strategies as st
from step_clock import settle

from minikube_py.api.errors import StatusError
from minikube_py.controllers.stateful_set import Slots

INT32_MAX = 2**31 - 1
POD = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, "serviceName": "web"}


async def test_the_first_refused_pod_of_a_parallel_set_holds_up_the_others():
    """As upstream: batches of 1, 2, 4, ...; none follows one with a failure."""
    async with World("statefulset-controller") as w:
        w.api.refuse["POST", "/pods$"] = StatusError(403, "Forbidden", "exceeded quota")
        w.api.make("statefulsets", "a/web", spec={**POD, "replicas": 5, "podManagementPolicy": "Parallel"})
        await settle()
        assert {message.split()[2] for _, message in w.reasons()} == {"web-0"}
        w.api.refuse.clear()
        await w.clock.advance(60)
        assert len(w.pods()) == 5


async def test_a_pod_waits_until_the_claims_of_its_predecessor_are_gone():
    """As upstream (PodClaimIsStale): else the garbage collector takes the claim from under the new pod."""
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    retention = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    async with World("statefulset-controller") as w:
        left = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "earlier", "controller": True}
        w.api.make("persistentvolumeclaims", "a/data-web-0", metadata={"ownerReferences": [left]})
        w.api.make(
            "statefulsets", "a/web",
            spec={
                **POD, "replicas": 1, "volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": retention,
            },
        )  # fmt: skip
        await settle()
        assert w.pods() == {} and w.reasons() == []
        w.api.remove("persistentvolumeclaims", "a/data-web-0")
        await w.clock.advance(2)
        assert len(w.pods()) == 1


async def test_ordinals_that_wait_for_claims_keep_a_parallel_set_from_no_other():
    """Upstream tries all of them in each pass."""
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    retention = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    async with World("statefulset-controller", burst_replicas=2) as w:
        for name in ("web-0", "web-1", "web-2"):
            left = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "earlier", "controller": True}
            w.api.make("persistentvolumeclaims", f"a/data-{name}", metadata={"ownerReferences": [left]})
        w.api.make(
            "statefulsets", "a/web",
            spec={
                **POD, "replicas": 6, "podManagementPolicy": "Parallel", "volumeClaimTemplates": claims,
                "persistentVolumeClaimRetentionPolicy": retention,
            },
        )  # fmt: skip
        await settle()
        assert set(w.pods()) == {"a/web-3", "a/web-4", "a/web-5"}
        w.api.remove("persistentvolumeclaims", "a/data-web-1")
        await w.clock.advance(2)
        assert set(w.pods()) == {"a/web-1", "a/web-3", "a/web-4", "a/web-5"}


async def test_a_pod_that_lacks_the_volumes_of_its_claims_holds_up_its_set_and_is_told():
    """As upstream: the server is asked to give it the volumes, which it refuses."""
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    async with World("statefulset-controller") as w:
        w.api.make("statefulsets", "a/web", spec={**POD, "replicas": 1})
        await settle()
        w.run_pod("a/web-0")
        w.api.refuse["PATCH", "/pods/web-0$"] = StatusError(422, "Invalid", "pod updates may not change fields")
        w.api.change("statefulsets", "a/web", spec={**POD, "replicas": 2, "volumeClaimTemplates": claims})
        await settle()
        assert set(w.pods()) == {"a/web-0"} and set(w.api.kind("persistentvolumeclaims")) == {"a/data-web-0"}
        told = "Update Pod web-0 in StatefulSet web failed error: pod updates may not change fields"
        assert ("FailedUpdate", told) in w.reasons()
        w.api.refuse.clear()
        await w.clock.advance(60)
        (volume,) = w.api.kind("pods")["a/web-0"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"] == {"claimName": "data-web-0"}
        w.run_pod("a/web-0")
        await settle()
        assert len(w.pods()) == 2


@pytest.mark.parametrize("start", [0, INT32_MAX - 5])
async def test_replicas_without_end_are_created_one_at_a_time(start: int) -> None:
    """One list of all ordinals filled the memory, at each start again."""
    spec = {**POD, "replicas": INT32_MAX, "ordinals": {"start": start}}
    async with World("statefulset-controller") as w:
        w.api.make("statefulsets", "a/web", spec=spec)
        await settle()
        assert list(w.pods()) == [f"a/web-{start}"]
        w.run_pod(f"a/web-{start}")
        await settle()
        assert len(w.pods()) == 2
        w.api.change("statefulsets", "a/web", spec={**spec, "replicas": 1})
        await settle()
        assert list(w.pods()) == [f"a/web-{start}"]


def test_only_a_burst_of_missing_ordinals_is_listed() -> None:
    pod: Any = object()
    slots = Slots(range(7, INT32_MAX), {9: pod, 2_000_000: pod, 3: pod})
    assert slots.with_missing(3, lambda ordinal: True) == [(7, None), (8, None), (9, pod), (10, None), (2_000_000, pod)]
    assert next(iter(slots)) == (7, None) and next(slots.down_to(5)) == (INT32_MAX - 1, None)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 12), st.sets(st.integers(0, 20)))
def test_slots_are_the_list_of_all_ordinals(start: int, count: int, position: int, there: set[int]) -> None:
    pods: Any = dict.fromkeys(there, "pod")
    every = [(ordinal, pods.get(ordinal)) for ordinal in range(start, start + count)]
    slots = Slots(range(start, start + count), pods)
    assert list(slots) == every == slots.with_missing(count, lambda ordinal: True)
    assert list(slots.down_to(position)) == every[position:][::-1]
