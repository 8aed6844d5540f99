"""The free amount of each GPU of each node, updated from the columns' log.

Nodes have their GPUs as an extended resource by thousandths, 1,000 for each device. A pod requests up to 1,000, which
must be on one device, or a multiple of 1,000: that many whole devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from minikube_py.scheduler.columns import Emptied, NodeColumns, Nodes
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import CPU, NodeInfo, PodInfo
from minikube_py.scheduler.packing.fragmentation import WHOLE

WIDTH_MIN: Final = 8
DEVICES_MAX: Final = 64
"""Of one node. A node with more counts as having none; a pod that asks for more fits nowhere."""
SHARING: Final = 1
"""Bit 0 of `kinds`: pods that share a device; bit n: pods with n whole devices."""


def kind_of(wanted: int) -> int:
    """Its bit in `kinds`. All that take more than half of the devices have one: no two of them share a node."""
    return SHARING if wanted < WHOLE else 1 << min(wanted // WHOLE, DEVICES_MAX // 2 + 1)


def has_too_many(node: NodeInfo, resource: str) -> bool:
    return node.allocatable.get(resource, 0) // WHOLE > DEVICES_MAX


def asks_oddly(wanted: int) -> bool:
    """More than one device, but not a whole number of them."""
    return wanted > WHOLE and wanted % WHOLE != 0


def fits(wanted: int, left: Iterable[int]) -> bool:
    if wanted < WHOLE:
        return any(have >= wanted for have in left)
    return sum(have == WHOLE for have in left) >= wanted // WHOLE


def tightest(wanted: int, left: Sequence[int]) -> tuple[int, ...]:
    """The fitting device with the least left, or the first whole ones; () if none fit."""
    if wanted < WHOLE:
        fitting = [(have, device) for device, have in enumerate(left) if have >= wanted]
        return (min(fitting)[1],) if fitting else ()
    return first_whole(wanted, left)


def first_whole(wanted: int, left: Sequence[int]) -> tuple[int, ...]:
    whole = [device for device, have in enumerate(left) if have == WHOLE]
    count = wanted // WHOLE
    return tuple(whole[:count]) if len(whole) >= count else ()


class Seen:
    """Nodes as a policy sees them, one per row. `left`: per device, 0 beyond the node's devices; `count`: the number of
    devices; `kinds`: kinds of pods running there. `slots`: the rows' slots in the columns, None for ad hoc rows."""

    __slots__ = ("count", "cpu", "kinds", "left", "models", "slots")

    def __init__(
        self,
        cpu: IntArray,
        left: IntArray,
        count: IntArray,
        kinds: IntArray,
        models: Sequence[str] = (),
        slots: slice | IntArray | None = None,
    ) -> None:
        self.cpu, self.left, self.count, self.kinds = cpu, left, count, kinds
        self.models, self.slots = models, slots


class Devices:
    """`chosen`: by pod uid, its devices. Pods placed by others are assumed on the devices they would get now. `follow`:
    receives the slots whose rows changed."""

    def __init__(
        self, columns: NodeColumns, resource: str, model_label: str, follow: Callable[[IntArray], None]
    ) -> None:
        self._follow = follow
        self.resource = resource
        self.model_label = model_label
        self.chosen: dict[str, tuple[int, ...]] = {}
        self._columns = columns
        self._version = -1
        self._stale: set[int] = set()
        self._placed: dict[int, frozenset[str]] = {}
        self.left: IntArray = np.zeros((0, WIDTH_MIN), np.int64)
        self.count: IntArray = np.zeros(0, np.int64)
        self.kinds: IntArray = np.zeros(0, np.int64)
        self.lists: dict[int, list[int]] = {}

    # --- free amounts -----------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Updates all rows."""
        columns = self._columns
        if self._version == columns.version and not self._stale:
            return
        changed = columns.changed_since(self._version) if self._version >= 0 else None
        if changed is None or len(self.left) != columns.capacity:
            changed = list(range(columns.size))
            self._resize(columns.capacity, self.left.shape[1])
        slots = sorted(self._stale.union(changed))
        for slot in slots:
            self._work_out(slot)
        self._follow(np.array(slots, np.int64))
        # Only now: rows that could not be computed are not current.
        self._version = columns.version
        self._stale.clear()

    def _resize(self, capacity: int, width: int) -> None:
        left = np.zeros((capacity, width), np.int64)
        kept = min(capacity, len(self.left))
        left[:kept, : self.left.shape[1]] = self.left[:kept]
        self.left = left
        self.count, self.kinds = np.resize(self.count, capacity), np.resize(self.kinds, capacity)

    def _work_out(self, slot: int) -> None:
        node = self._columns.by_slot[slot]
        left = [] if node is None else self.left_of(node)
        if len(left) > self.left.shape[1]:
            self._resize(len(self.left), len(left))
        row = self.left[slot]
        row[: len(left)] = left
        row[len(left) :] = 0
        self.lists[slot] = left
        self.count[slot] = len(left)
        self.kinds[slot] = 0 if node is None else self._kinds_on(node)
        placed = frozenset(() if node is None else (uid for uid in node.pods if uid in self.chosen))
        for uid in sorted(self._placed.get(slot, placed) - placed):
            self.chosen.pop(uid, None)
        self._placed[slot] = placed

    def left_of(self, node: NodeInfo, but: str = "") -> list[int]:
        """What is left without the pod `but`."""
        count = 0 if has_too_many(node, self.resource) else node.allocatable.get(self.resource, 0) // WHOLE
        left = [WHOLE] * count
        others = []
        for wanted, pod in self._asking(node):
            if pod.uid == but:
                continue
            devices = self.chosen.get(pod.uid)
            if devices is None:
                others.append(wanted)
            else:
                _take(left, devices, wanted)
        for wanted in others:
            _take(left, tightest(wanted, left), wanted)
        return left

    def _asking(self, node: NodeInfo) -> Iterator[tuple[int, PodInfo]]:
        for pod in node.pods.values():
            wanted = pod.spec.request(self.resource)
            if wanted:
                yield wanted, pod

    def _kinds_on(self, node: NodeInfo) -> int:
        kinds = 0
        for wanted, _ in self._asking(node):
            kinds |= kind_of(wanted)
        return kinds

    def choose(self, pod: PodInfo, slot: int, devices: tuple[int, ...]) -> None:
        self.chosen[pod.uid] = devices
        self._placed[slot] = self._placed.get(slot, frozenset()) | {pod.uid}
        self._stale.add(slot)

    def release(self, pod: PodInfo, slot: int | None) -> None:
        if self.chosen.pop(pod.uid, None) is not None and slot is not None:
            self._stale.add(slot)

    # --- nodes as policies see them ---------------------------------------------------------------------------------

    def many(self, nodes: Nodes) -> Seen:
        """Call `catch_up` first."""
        cpu, index = nodes.free(CPU), nodes.index
        count = self.count[index]
        if isinstance(nodes, Emptied):
            left = WHOLE * (np.arange(self.left.shape[1]) < count[:, None]).astype(np.int64)
            models = [node.labels.get(self.model_label, "") if node else "" for node in nodes.infos()]
            return Seen(cpu, left, count, np.zeros(len(nodes), np.int64), models)
        return Seen(cpu, self.left[index], count, self.kinds[index], slots=index)

    def one(self, node: NodeInfo) -> Seen:
        cpu = node.allocatable.get(CPU, 0) - node.requested.get(CPU, 0)
        if self._columns.by_name.get(node.name) is not node:
            return self.made(node, self.left_of(node), cpu)
        self.catch_up()
        row = slice(node.slot, node.slot + 1)
        return Seen(np.array([cpu], np.int64), self.left[row], self.count[row], self.kinds[row], slots=row)

    def made(self, node: NodeInfo, left: Sequence[int], cpu: int) -> Seen:
        """A node with the given amounts left."""
        row = np.array([left], np.int64).reshape(1, -1)
        kinds = np.array([self._kinds_on(node)], np.int64)
        model = node.labels.get(self.model_label, "")
        return Seen(np.array([cpu], np.int64), row, np.array([len(left)], np.int64), kinds, (model,))

    def known(self, node: NodeInfo) -> list[int]:
        """What is left on a node; computed for a node not in the columns (a dry run's)."""
        if self._columns.by_name.get(node.name) is node:
            self.catch_up()
            return self.lists[node.slot]
        return self.left_of(node)


def _take(left: list[int], devices: Iterable[int], wanted: int) -> None:
    share = min(wanted, WHOLE)
    for device in devices:
        if device < len(left):
            left[device] = max(0, left[device] - share)
