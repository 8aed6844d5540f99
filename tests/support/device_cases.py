"""Upstream's answers to allocator requests (from `conformance/record_devices.py`), and ours to the same."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.allocator import AllocationError, Search, SelectorError, Selects
from minikube_py.scheduler.devices.pools import Inventory
from minikube_py.scheduler.devices.results import allocations
from minikube_py.scheduler.devices.views import ClaimView, ClassView, Device, DeviceId, SliceView, amounts
from minikube_py.scheduler.objects import NodeInfo, project_node

FILE = Path(__file__).parent.parent / "conformance" / "data" / "device_allocations.json"


@cache
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())
    return found


def slices_of(case: dict[str, Any]) -> list[SliceView]:
    found = [SliceView(each) for each in case["slices"] or ()]
    for place, each in enumerate(found):
        # Upstream's table uses some names twice.
        each.key = str(place)
    return found


def node_of(case: dict[str, Any]) -> NodeInfo:
    return project_node(case["node"])


def allocated_of(case: dict[str, Any]) -> Allocated:
    found = Allocated()
    given = case["allocated"]
    for text in given.get("devices") or ():
        found.devices[_id(text)] = 1
    for text in given.get("shared") or ():
        found.shared[_id(text)] = 1
    for text, held in (given.get("capacity") or {}).items():
        found.capacity[_id(text)] = amounts(held)
    return found


def _id(text: str) -> DeviceId:
    driver, pool, device = text.split("/")[:3]
    return DeviceId(driver, pool, device)


class Told:
    """Selects as upstream did, so that only the search is tested."""

    def __init__(self, case: dict[str, Any], slices: list[SliceView]) -> None:
        self._answers = case["answer"]["selected"]
        self._names = {
            id(device): f"{place}/{device.name}" for place, each in enumerate(slices) for device in each.devices
        }

    def __call__(self, expression: str, device: Device) -> bool:
        answers = self._answers[expression]
        answer = answers[""] if "" in answers else answers[self._names[id(device)]]
        if isinstance(answer, str):
            raise SelectorError(answer)
        return bool(answer)


def asked(case: dict[str, Any], selects: Selects | None = None) -> dict[str, Any]:
    """Our answer, in upstream's form; `selects` None: upstream's result for each expression."""
    slices = slices_of(case)
    classes = {each["metadata"]["name"]: ClassView(each) for each in case["classes"] or ()}
    node = node_of(case)
    pools = Inventory.of(slices).pools(node)
    search = Search(pools, allocated_of(case), classes.get, selects or Told(case, slices), node)
    claims = [ClaimView(each) for each in case["claims"] or ()]
    try:
        solution = search.run(claims)
    except AllocationError as error:
        return {"results": None, "error": str(error), "ofNode": error.is_of_node, "calls": search.calls}
    found = None if solution is None else allocations(solution, claims, node.name)
    return {"results": found, "calls": search.calls}


def told(case: dict[str, Any]) -> dict[str, Any]:
    """Upstream's answer; the ids of shares are random."""
    answer = {name: each for name, each in case["answer"].items() if name != "selected"}
    for result in answer["results"] or ():
        for each in result["devices"].get("results") or ():
            if "shareID" in each:
                each["shareID"] = ""
    return answer
