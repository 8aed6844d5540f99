"""What the scheduler believes of claims and devices after any events; and writes that are refused, or not answered."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace
from typing import Any

import pytest
from drawn_devices import Draw
from hypothesis import given
from hypothesis import strategies as st
from scheduler_objects import pod as pod_info
from scheduler_world import ManualClock

from minikube_py.api.errors import StatusError
from minikube_py.client.informer import Handler
from minikube_py.client.store import ObjectStore
from minikube_py.errors import OutcomeUnknown
from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.allocator import AllocationError, Search, TooLong
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.pools import Inventory
from minikube_py.scheduler.devices.results import allocations
from minikube_py.scheduler.devices.selecting import selects
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES, ClaimView
from minikube_py.scheduler.devices.writing import FINALIZER, BindingFailed, bind, with_share_ids
from minikube_py.scheduler.objects import project_node


class Informer:
    """What a test says is served."""

    def __init__(self) -> None:
        self.store: ObjectStore[Any] = ObjectStore()
        self._handlers: list[Handler[Any]] = []

    def add_handler(self, handler: Handler[Any]) -> None:
        self._handlers.append(handler)

    def put(self, view: Any) -> None:
        old = self.store.get(view.key)
        if old is not None and old.uid != view.uid:
            self.remove(view.key)
            old = None
        self.store.put(view.key, view)
        for handler in self._handlers:
            handler.on_add(view) if old is None else handler.on_update(old, view)

    def remove(self, key: str) -> None:
        old = self.store.remove(key)
        for handler in self._handlers:
            handler.on_delete(old)


class Kinds:
    def __init__(self) -> None:
        self.informers = {kind.name: Informer() for kind in (SLICES, CLASSES, CLAIMS)}

    def of(self, kind: Any) -> Any:
        return self.informers[kind.name]


class Believed:
    """Claims and devices of a drawn case, as events tell of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kinds = Kinds()
        self.devices = Devices(self.kinds)  # type: ignore[arg-type]
        case = Draw(seed).case()
        self.node = project_node(case["node"])
        for kind, name in ((SLICES, "slices"), (CLASSES, "classes")):
            for obj in case[name]:
                self.kinds.of(kind).put(kind.project(obj))
        self.objects = {f"ns/{each['metadata']['name']}": each for each in case["claims"]}
        self.version = 0
        for key in self.objects:
            self.serve(key)

    def view(self, key: str, allocation: Any = None, uid: str = "") -> ClaimView:
        self.version += 1
        obj = copy.deepcopy(self.objects[key])
        obj["metadata"] |= {"resourceVersion": str(self.version), "uid": uid or f"{key} 1"}
        if allocation is not None:
            obj["status"] = {"allocation": allocation}
        return ClaimView(obj)

    def serve(self, key: str, **more: Any) -> None:
        self.kinds.of(CLAIMS).put(self.view(key, **more))

    def found(self, key: str) -> Any:
        """An allocation that the claim might get now."""
        claim = self.devices.claim(key) or self.view(key)
        try:
            given = self.devices.finder([claim]).on(self.node).allocations
        except (AllocationError, TooLong):
            return None
        return None if given is None else with_share_ids(given[0], self.rng)

    def step(self) -> None:
        key = self.rng.choice(sorted(self.objects))
        claim, allocation = self.devices.claim(key), self.found(key)
        what = self.rng.choice(("serve", "serve", "assume", "promise", "break", "delete", "again", "free"))
        if what == "serve":
            self.serve(key, allocation=allocation)
        elif what == "free" or claim is None:
            self.serve(key)
        elif what == "assume":
            self.devices.assume(self.view(key, allocation, claim.uid))
        elif what == "promise" and allocation is not None:
            self.devices.promise(claim, allocation)
        elif what == "break":
            self.devices.break_promise(claim)
        elif what == "delete" and key in self.kinds.of(CLAIMS).store:
            self.kinds.of(CLAIMS).remove(key)
        elif what == "again":
            self.serve(key, uid=f"{key} {self.version}")

    def recounted(self) -> Allocated:
        found = Allocated()
        for key in self.objects:
            claim = self.devices.claim(key)
            if claim is not None and claim.allocation is not None:
                found.add(claim.results)
            elif claim is not None and self.devices.is_promised(claim):
                found.add(self.devices._pending[claim.uid][1]["devices"].get("results") or ())
        return found


@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_what_is_held_is_what_a_recount_finds(seed: int, steps: int) -> None:
    believed = Believed(seed)
    for _ in range(steps):
        believed.step()
        ours, afresh = believed.devices.allocated, believed.recounted()
        assert (ours.devices, ours.shared) == (afresh.devices, afresh.shared)
        assert {id: {n: str(q) for n, q in held.items()} for id, held in ours.capacity.items()} == {
            id: {n: str(q) for n, q in held.items()} for id, held in afresh.capacity.items()
        }


@given(st.integers(0, 1 << 32), st.integers(1, 8))
def test_what_is_kept_of_a_node_is_what_a_new_search_finds(seed: int, steps: int) -> None:
    believed = Believed(seed)
    slices = list(believed.kinds.of(SLICES).store.values())
    for _ in range(steps):
        believed.step()
        if slices and believed.rng.random() < 0.2:
            view = believed.rng.choice(slices)
            if view.key in believed.kinds.of(SLICES).store:
                believed.kinds.of(SLICES).remove(view.key)
            else:
                believed.kinds.of(SLICES).put(view)
        for key in believed.objects:
            claim = believed.view(key)
            assert kept(believed, claim) == afresh(believed, claim)


def kept(believed: Believed, claim: ClaimView) -> Any:
    try:
        outcome = believed.devices.finder([claim]).on(believed.node)
    except (AllocationError, TooLong) as error:
        return repr(error)
    return outcome.why_not or outcome.allocations


def afresh(believed: Believed, claim: ClaimView) -> Any:
    pools = Inventory.of(believed.kinds.of(SLICES).store.values()).pools(believed.node)
    search = Search(pools, believed.recounted(), believed.devices.classes.get, selects, believed.node)
    try:
        solution = search.run([claim])
    except (AllocationError, TooLong) as error:
        return str(error) if getattr(error, "is_of_node", False) else repr(error)
    return solution and allocations(solution, [claim], believed.node.name)


# --- writing --------------------------------------------------------------------------------------------------------


class Server:
    """One claim. `faults`: what befalls the next updates of its status: "conflict", "lost" (written, no answer) or
    "dropped" (neither)."""

    def __init__(self, *faults: str) -> None:
        self.obj: dict[str, Any] = {
            "metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"},
            "spec": {"devices": {"requests": []}},
        }
        self.faults = list(faults)
        self.writes = 0

    async def get(self, resource: Any, name: str, namespace: str) -> Any:
        return copy.deepcopy(self.obj)

    async def update(self, resource: Any, obj: Any) -> Any:
        if obj["metadata"]["resourceVersion"] != self.obj["metadata"]["resourceVersion"]:
            raise StatusError(409, "Conflict", "the object has been modified", None)
        self.writes += 1
        self.obj = copy.deepcopy(obj)
        self.obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
        return copy.deepcopy(self.obj)

    async def update_status(self, resource: Any, obj: Any) -> Any:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "conflict":
            self.obj["metadata"]["resourceVersion"] = str(int(self.obj["metadata"]["resourceVersion"]) + 1)
        if fault == "dropped":
            raise OutcomeUnknown("no answer")
        found = await self.update(resource, obj)
        if fault == "lost":
            raise OutcomeUnknown("no answer")
        return found


GIVEN = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}


async def bound(server: Server, allocation: Any = GIVEN) -> tuple[Devices, ClaimView]:
    kinds = Kinds()
    devices = Devices(kinds)  # type: ignore[arg-type]
    claim = ClaimView(copy.deepcopy(server.obj))
    kinds.of(CLAIMS).put(claim)
    if allocation is not None:
        devices.promise(claim, allocation)
    handle: Any = SimpleNamespace(client=server, clock=Swift())
    try:
        return devices, await bind(handle, devices, claim, allocation, pod_info("p"))
    finally:
        assert not devices.is_promised(claim)


class Swift(ManualClock):
    async def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.mark.parametrize(
    "faults",
    [(), ("conflict",), ("lost",), ("dropped",), ("dropped", "lost"), ("conflict", "dropped", "conflict", "lost")],
)
async def test_a_claim_is_written_once_whatever_befalls_the_writes(faults: tuple[str, ...]) -> None:
    server = Server(*faults)
    devices, written = await bound(server)
    status = server.obj["status"]
    assert status["allocation"]["devices"] == GIVEN["devices"]
    assert [each["name"] for each in status["reservedFor"]] == ["p"]
    assert server.obj["metadata"]["finalizers"] == [FINALIZER]
    assert written.allocation is not None
    assert devices.claim("default/a") is written
    assert len(devices.allocated.devices) == 1
    assert server.writes == 2


async def test_a_claim_that_another_scheduler_was_faster_to_allocate_is_left_alone() -> None:
    server = Server("conflict")
    real = server.get

    async def get(*args: Any) -> Any:
        server.obj["status"] = {"allocation": {"devices": {"results": []}}}
        return await real(*args)

    server.get = get  # type: ignore[method-assign]
    with pytest.raises(BindingFailed, match="claim default/a got allocated elsewhere in the meantime"):
        await bound(server)
    assert "reservedFor" not in server.obj["status"]


async def test_a_claim_that_lost_its_devices_is_not_reserved() -> None:
    with pytest.raises(BindingFailed, match="claim default/a got deallocated elsewhere in the meantime"):
        await bound(Server(), allocation=None)


async def test_writes_that_are_always_refused_end() -> None:
    with pytest.raises(BindingFailed, match="add allocation and reservation to claim default/a"):
        await bound(Server(*["conflict"] * 5))
