"""Which devices claims hold, and the used capacity of shared ones. Source: `dynamicresources/allocateddevices.go`.

Updated on every claim event; `version` changes whenever a pool's allocations do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minikube_py.scheduler.devices.views import Amounts, DeviceId, PoolId, amounts


class Allocated:
    """`devices`: number of claims holding each whole; `shared`: in part; `capacity`: the used capacity."""

    def __init__(self) -> None:
        self.devices: dict[DeviceId, int] = {}
        self.shared: dict[DeviceId, int] = {}
        self.capacity: dict[DeviceId, Amounts] = {}
        self._versions: dict[PoolId, int] = {}

    def version(self, pool: PoolId) -> int:
        return self._versions.get(pool, 0)

    def is_held(self, device: DeviceId) -> bool:
        return device in self.devices or device in self.shared or device in self.capacity

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Adds what an allocation gave to a claim."""
        for id, is_shared, taken in _held(results):
            self._changed(id)
            counts = self.shared if is_shared else self.devices
            counts[id] = counts.get(id, 0) + 1
            if taken is not None:
                put_capacity(self.capacity, id, taken)

    def remove(self, results: Iterable[Mapping[str, Any]]) -> None:
        for id, is_shared, taken in _held(results):
            self._changed(id)
            counts = self.shared if is_shared else self.devices
            counts[id] -= 1
            if not counts[id]:
                del counts[id]
            if taken is not None:
                take_capacity(self.capacity, id, taken)

    def _changed(self, id: DeviceId) -> None:
        pool = PoolId(id.driver, id.pool)
        self._versions[pool] = self._versions.get(pool, 0) + 1


def _held(results: Iterable[Mapping[str, Any]]) -> Sequence[tuple[DeviceId, bool, Amounts | None]]:
    """Each device, whether it is shared, and the used capacity. Admin access holds nothing."""
    found = []
    for each in results:
        if each.get("adminAccess"):
            continue
        id = DeviceId(each["driver"], each["pool"], each["device"])
        is_shared = each.get("shareID") is not None
        taken = each.get("consumedCapacity")
        found.append((id, is_shared, amounts(taken) if is_shared and taken is not None else None))
    return found


def put_capacity(capacity: dict[DeviceId, Amounts], id: DeviceId, taken: Amounts) -> None:
    held = capacity.setdefault(id, {})
    for name, amount in taken.items():
        held[name] = held[name].plus(amount) if name in held else amount


def take_capacity(capacity: dict[DeviceId, Amounts], id: DeviceId, taken: Amounts) -> None:
    """The inverse; a device without used capacity is removed."""
    held = capacity.get(id)
    if held is None:
        return
    for name, amount in taken.items():
        if name in held:
            held[name] = held[name].minus(amount)
    if all(amount.is_zero() for amount in held.values()):
        del capacity[id]
