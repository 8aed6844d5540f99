"""Allocates devices to claims without pods (`allocResourceClaims`), by the scheduler's own search.

Source: test/integration/scheduler_perf/dra.go.
"""

from __future__ import annotations

from random import Random
from typing import Final

from minikube_py.client.rest import NODES, ResourceRef, RestClient
from minikube_py.lab.load import LoadError
from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.allocator import Search
from minikube_py.scheduler.devices.pools import Inventory
from minikube_py.scheduler.devices.results import allocations
from minikube_py.scheduler.devices.selecting import selects
from minikube_py.scheduler.devices.views import ClaimView, ClassView, SliceView
from minikube_py.scheduler.devices.writing import with_share_ids
from minikube_py.scheduler.objects import project_node

SLICES: Final = ResourceRef("resource.k8s.io", "v1", "resourceslices")
CLAIMS: Final = ResourceRef("resource.k8s.io", "v1", "resourceclaims")
CLASSES: Final = ResourceRef("resource.k8s.io", "v1", "deviceclasses")


async def allocate(client: RestClient, namespace: str, rng: Random) -> None:
    """Gives each claim devices on a random node. Raises: LoadError if a claim gets none."""
    inventory = Inventory.of(SliceView(obj) for obj in await client.list(SLICES))
    classes = {obj["metadata"]["name"]: ClassView(obj) for obj in await client.list(CLASSES)}
    nodes = [project_node(obj) for obj in await client.list(NODES)]
    found = await client.list(CLAIMS, namespace)
    allocated = Allocated()
    for obj in await client.list(CLAIMS):
        allocated.add(ClaimView(obj).results)
    for number, obj in enumerate(found):
        claim = ClaimView(obj)
        if claim.allocation is not None:
            continue
        rng.shuffle(nodes)
        for node in nodes:
            search = Search(inventory.pools(node), allocated, classes.get, selects, node)
            solution = search.run([claim])
            if solution is None:
                continue
            given = with_share_ids(allocations(solution, [claim], node.name)[0], rng)
            status = {**(obj.get("status") or {}), "allocation": given}
            written = await client.update_status(CLAIMS, {**obj, "status": status})
            allocated.add(ClaimView(written).results)
            break
        else:
            raise LoadError(f"could not allocate claim {number + 1} of {len(found)}")
