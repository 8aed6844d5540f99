"""GPUs shared by thousandths: a pod gets its share of one device, or whole devices, and which one is chosen.

The resource is a sum over the devices of a node: 500 free thousandths on each of two devices look like a whole GPU.
This plugin looks at the devices: a share has to fit on one of them, and goes where it leaves the least behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minikube_py.scheduler.framework import Code, CycleState, Handle, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo

WHOLE = 1000
NO_DEVICE = Status(Code.UNSCHEDULABLE, "node(s) had no GPU with enough left")


class GpuShare:
    """`resource` (args): thousandths of GPUs; 1,000 for each device of a node."""

    scope = "NODE"

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.resource = str(args.get("resource", "openb.io/gpu-milli"))
        self.handle = handle
        self.chosen: dict[str, tuple[int, ...]] = {}
        """By pod, its devices."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = pod.spec.request(self.resource)
        return None if not wanted or devices_for(wanted, self.left(node)) else NO_DEVICE

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Most where the device is used up."""
        wanted = pod.spec.request(self.resource)
        left = self.left(node)
        found = devices_for(wanted, left) if wanted else ()
        if not found:
            return 0
        return 100 - (sum(left[device] for device in found) - wanted) // 10

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        wanted = pod.spec.request(self.resource)
        node = self.handle.columns.by_name[node_name]
        if wanted:
            self.chosen[pod.uid] = devices_for(wanted, self.left(node, but=pod.uid))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.chosen.pop(pod.uid, None)

    def left(self, node: NodeInfo, but: str = "") -> list[int]:
        """What is left of each device. A pod that came before this scheduler has the devices that it would get now."""
        left = [WHOLE] * (node.allocatable.get(self.resource, 0) // WHOLE)
        for pod in node.pods.values():
            wanted = pod.spec.request(self.resource)
            if not wanted or pod.uid == but:
                continue
            devices = self.chosen.get(pod.uid) or devices_for(wanted, left)
            _take(left, devices, wanted)
        return left


def devices_for(wanted: int, left: Iterable[int]) -> tuple[int, ...]:
    """The device that is left with least, or as many whole ones as are wanted; () where there are none."""
    free = list(enumerate(left))
    if wanted <= WHOLE:
        fitting = [(have, device) for device, have in free if have >= wanted]
        return (min(fitting)[1],) if fitting else ()
    count = -(-wanted // WHOLE)
    whole = [device for device, have in free if have == WHOLE]
    return tuple(whole[:count]) if len(whole) >= count else ()


def _take(left: list[int], devices: Iterable[int], wanted: int) -> None:
    for device in devices:
        if device < len(left):
            share = min(wanted, WHOLE)
            left[device] -= share
            wanted -= share
