"""All nodes as numpy columns, updated in O(changed), and a log of changes.

A node has a slot; a removed node's slot is reused. A NodeInfo per node holds the same figures as Python ints for
per-node plugins. What is shared by many nodes is interned: nodes with the same taints have the same taint class, so
that a pod's tolerations are checked once per class, not per node; label masks are built on first use and then
maintained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from minikube_py.client.sharing import DROP, PUT, ReadOnly, locked, owned
from minikube_py.scheduler.framework import BoolArray, IntArray
from minikube_py.scheduler.images import Images
from minikube_py.scheduler.node_order import NodeOrder
from minikube_py.scheduler.objects import CPU, MEMORY, PERSISTENT_CLAIM, PODS, HostPort, NodeInfo, PodInfo, Taint
from minikube_py.scheduler.pod_terms import label_as_int
from minikube_py.scheduler.topology import Topology

T = TypeVar("T", BoolArray, IntArray)
INITIAL_CAPACITY = 64
LABEL_MASKS_MAX = 4096
COLUMN_MAX = 1 << 62
"""Larger sums are stored as this: it exceeds any node's capacity, and leaves room to add a pod."""
FREE_ONE_BY_ONE_MAX = 64
ALWAYS = (CPU, MEMORY, PODS)  # These resources have rows whatever the nodes have.
INT32_MAX = (1 << 31) - 1


class Nodes:
    """Some nodes, as vectorised plugins see them: every method returns one value per node, in order.

    Arrays are read-only: they may be the columns, which all profiles share."""

    __slots__ = ("columns", "index", "size")

    def __init__(self, columns: NodeColumns, index: slice | IntArray, size: int) -> None:
        self.columns = columns
        self.index = index
        self.size = size

    def __len__(self) -> int:
        return self.size

    def _of(self, row: T) -> T:
        found = row[self.index]
        found.flags.writeable = False
        return found

    def allocatable(self, resource: str) -> IntArray:
        return self._of(self.columns.allocatable_row(resource))

    def requested(self, resource: str) -> IntArray:
        """`pods` is the number of pods."""
        return self._of(self.columns.requested_row(resource))

    def free(self, resource: str) -> IntArray:
        """Allocatable minus requested; negative if overcommitted."""
        return self._of(self.columns.free_row(resource))

    def nonzero_requested(self, resource: str) -> IntArray:
        """As `requested`, with defaults for containers without cpu or memory requests."""
        if resource == CPU:
            return self._of(self.columns.nonzero_cpu_milli)
        if resource == MEMORY:
            return self._of(self.columns.nonzero_memory_bytes)
        return self.requested(resource)

    def unschedulable(self) -> BoolArray:
        return self._of(self.columns.unschedulable)

    def taint_classes(self) -> IntArray:
        """Index into `columns.taint_sets`."""
        return self._of(self.columns.taint_class)

    def label_mask(self, key: str, value: str) -> BoolArray:
        return self._of(self.columns.label_mask(key, value))

    def label_exists(self, key: str) -> BoolArray:
        return self._of(self.columns.label_exists(key))

    def label_ints(self, key: str) -> tuple[BoolArray, IntArray]:
        """Whether the label parses as an int64, and its value."""
        valid, values = self.columns.label_ints(key)
        return self._of(valid), self._of(values)

    def name_mask(self, names: Iterable[str]) -> BoolArray:
        return self.columns.slot_mask(self.columns.slots_of(names))[self.index]

    def slot_mask(self, slots: Iterable[int]) -> BoolArray:
        return self.columns.slot_mask(slots)[self.index]

    def slots(self) -> Iterator[int]:
        if isinstance(self.index, slice):
            return iter(range(*self.index.indices(self.columns.size)))
        return iter(self.index.tolist())

    def infos(self) -> Iterator[NodeInfo | None]:
        """None at slots without a node."""
        by_slot = self.columns.by_slot
        return (by_slot[slot] for slot in self.slots())


class Emptied(Nodes):
    """The same nodes without their pods."""

    __slots__ = ()

    def requested(self, resource: str) -> IntArray:
        return np.zeros(self.size, np.int64)

    def free(self, resource: str) -> IntArray:
        return self.allocatable(resource)

    def nonzero_requested(self, resource: str) -> IntArray:
        return self.requested(resource)

    def infos(self) -> Iterator[NodeInfo | None]:
        return (None if node is None else _emptied(node) for node in super().infos())


def _emptied(node: NodeInfo) -> NodeInfo:
    found = NodeInfo(node.name, node.uid)
    for name in ("slot", "present", "labels", "taints", "unschedulable", "allocatable", "conditions"):
        setattr(found, name, getattr(node, name))
    found.declared_features = node.declared_features
    return found


class NodeColumns:
    """`size`: slots in use or freed; `count`: nodes present; `version` changes with any change."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeInfo] = {}
        self.by_slot: list[NodeInfo | None] = []
        self.count = 0
        self.capacity = INITIAL_CAPACITY
        self.generation = 0
        self.present = locked(np.zeros(self.capacity, np.bool_))
        self.unschedulable = locked(np.zeros(self.capacity, np.bool_))
        self.taint_class = locked(np.zeros(self.capacity, np.int64))
        self.nonzero_cpu_milli = locked(np.zeros(self.capacity, np.int64))
        self.nonzero_memory_bytes = locked(np.zeros(self.capacity, np.int64))
        self._allocatable: dict[str, IntArray] = {}
        self._requested: dict[str, IntArray] = {}
        self._free: dict[str, tuple[IntArray, int]] = {}
        self._nodes_with: dict[str, int] = dict.fromkeys(ALWAYS, 1)  # One more of those that stay.
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self.label_keys: dict[str, int] = {}
        """How many nodes have each. Pods may name any other: nothing is kept of those."""
        self._label_values: dict[str, dict[str, dict[int, None]]] = {}
        self._label_masks: dict[tuple[str, str], BoolArray] = {}
        self._label_exists: dict[str, BoolArray] = {}
        self._label_ints: dict[str, tuple[BoolArray, IntArray]] = {}
        self._free_slots: list[int] = []
        self._log: list[int] = []
        self._log_start = 0
        self._zeros = locked(np.zeros(self.capacity, np.int64))
        self._nowhere = locked(np.zeros(self.capacity, np.bool_))
        self._port_slots: dict[tuple[str, int], dict[int, None]] = {}
        self._priorities: dict[int, int] = {}
        self._claim_slots: dict[str, dict[int, int]] = {}
        """By `namespace/name` of a claim, the number of pods on nodes that name it."""
        self.pods_are_read = False  # Whether a cached result may depend on more of a node's pods than is counted here.
        self.images = Images()
        self.order: NodeOrder | None = None
        self.topology = Topology(self)
        for resource in ALWAYS:
            self._row(self._allocatable, resource)
            self._row(self._requested, resource)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self.by_slot)

    @property
    def version(self) -> int:
        """Increases with every change of a node or its pods."""
        return self._log_start + len(self._log)

    def changed_since(self, version: int) -> list[int] | None:
        """The slots changed after `version`, possibly repeated; None if the log no longer reaches back that far."""
        start = version - self._log_start
        return None if start < 0 else self._log[start:]

    def all(self) -> Nodes:
        return Nodes(self, slice(0, self.size), self.size)

    def some(self, slots: IntArray) -> Nodes:
        return Nodes(self, locked(slots), len(slots))

    def ordered(self) -> NodeOrder:
        """The order of the nodes, maintained from the first call on."""
        if self.order is None:
            self.order = NodeOrder()
            for node in self.by_slot:
                if node is not None and node.present:
                    self.order.put(node.name, node.slot, node.labels)
        return self.order

    def slots_of(self, names: Iterable[str]) -> list[int]:
        """The slots of the present nodes in `names`, in their order."""
        found = (self.by_name.get(name) for name in names)
        return [node.slot for node in found if node is not None and node.present]

    def slot_mask(self, slots: Iterable[int]) -> BoolArray:
        mask = np.zeros(self.capacity, np.bool_)
        mask[list(slots)] = True
        return mask

    def allocatable_row(self, resource: str) -> IntArray:
        return self._allocatable.get(resource, self._zeros)

    def requested_row(self, resource: str) -> IntArray:
        return self._requested.get(resource, self._zeros)

    def free_row(self, resource: str) -> IntArray:
        """Updated on access, since most changes are never read."""
        if resource not in self._allocatable and resource not in self._requested:
            self._free.pop(resource, None)
            return self._zeros
        row, version = self._free.get(resource, (self._zeros, -1))
        if version == self.version:
            return row
        allocatable, requested = self.allocatable_row(resource), self.requested_row(resource)
        changed = self.changed_since(version) if version >= 0 and len(row) == self.capacity else None
        if changed is None or len(changed) > FREE_ONE_BY_ONE_MAX:
            row = locked(allocatable - requested)
        else:
            for slot in changed:
                owned(row)[slot] = allocatable[slot] - requested[slot]
        self._free[resource] = row, self.version
        return row

    def label_values(self, key: str) -> dict[str, dict[int, None]]:
        """Label value -> slots that have it. Built on first use, then maintained."""
        found = self._label_values.get(key)
        if found is None:
            if key not in self.label_keys:
                return {}
            found = self._label_values[key] = {}
            for node in self.by_slot:
                if node is not None and (value := node.labels.get(key)) is not None:
                    found.setdefault(value, {})[node.slot] = None
        return found

    def label_mask(self, key: str, value: str) -> BoolArray:
        mask = self._label_masks.get((key, value))
        if mask is None:
            slots = self.label_values(key).get(value)
            if slots is None:
                return self._nowhere
            if len(self._label_masks) >= LABEL_MASKS_MAX:
                self._label_masks.clear()
            mask = self._label_masks[key, value] = locked(self.slot_mask(slots))
        return mask

    def label_exists(self, key: str) -> BoolArray:
        mask = self._label_exists.get(key)
        if mask is None:
            if key not in self.label_keys:
                return self._nowhere
            mask = np.zeros(self.capacity, np.bool_)
            for slots in self.label_values(key).values():
                mask[list(slots)] = True
            mask = self._label_exists[key] = locked(mask)
        return mask

    def label_ints(self, key: str) -> tuple[BoolArray, IntArray]:
        found = self._label_ints.get(key)
        if found is None:
            if key not in self.label_keys:
                return self._nowhere, self._zeros
            found = np.zeros(self.capacity, np.bool_), np.zeros(self.capacity, np.int64)
            for text, slots in self.label_values(key).items():
                value = label_as_int(text)
                if value is not None:
                    found[0][list(slots)] = True
                    found[1][list(slots)] = value
            found = self._label_ints[key] = locked(found[0]), locked(found[1])
        return found

    def port_users(self, protocol: str, port: int) -> Iterable[int]:
        """Slots of nodes where a pod uses that host port, on any address."""
        return self._port_slots.get((protocol, port), ())

    def lowest_priority(self) -> int:
        """The lowest priority of the pods on nodes; the highest int32 if there are none."""
        return min(self._priorities, default=INT32_MAX)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def put_node(self, new: NodeInfo) -> NodeInfo:
        """Adds or replaces a node; its pods stay. Returns the NodeInfo that is kept."""
        node = self.by_name.get(new.name)
        if node is None:
            node = self._admit(new.name)
        known = node.present
        if not known:
            node.present = owned(self.present)[node.slot] = True
            self.count += 1
        old_labels = node.labels
        moves = not known or self.topology.would_move(node, new)
        if moves:
            self.topology.leave(node)
        node.labels, node.taints, node.unschedulable = new.labels, new.taints, new.unschedulable
        node.conditions, node.annotations_hash = new.conditions, new.annotations_hash
        node.uid, node.declared_features = new.uid, new.declared_features
        slot = node.slot
        if self.order is not None:
            self.order.put(node.name, slot, node.labels)
        if node.images != new.images:
            self.images.change(slot, node.images, new.images)
            node.images = new.images
        owned(self.unschedulable)[slot] = new.unschedulable
        owned(self.taint_class)[slot] = self._taint_id(new.taints)
        if node.allocatable is not new.allocatable:
            self._allocate(node, new.allocatable)
        if old_labels != new.labels:
            self._relabel(slot, old_labels, new.labels)
        if moves:
            self.topology.enter(node)
        self._touch(slot)
        return node

    def remove_node(self, name: str) -> None:
        """Removes a node; while pods are still bound to it, its slot stays, but nothing fits it."""
        node = self.by_name.get(name)
        if node is None or not node.present:
            return
        self.topology.leave(node)
        slot = node.slot
        node.present = owned(self.present)[slot] = False
        self.count -= 1
        if self.order is not None:
            self.order.remove(name)
        self._allocate(node, ReadOnly())
        self.images.change(slot, node.images, ())
        node.images = ()
        self._relabel(slot, node.labels, {})
        node.labels, node.taints, node.unschedulable = {}, (), False
        owned(self.unschedulable)[slot] = False
        owned(self.taint_class)[slot] = 0
        self._touch(slot)
        if not node.pods:
            self._dismiss(node)

    def _allocate(self, node: NodeInfo, wanted: dict[str, int]) -> None:
        """Only what differs: a node may have thousands of resources."""
        slot, had, rows, nodes_with = node.slot, node.allocatable, self._allocatable, self._nodes_with
        node.allocatable = wanted
        for resource in [each for each in had if each not in wanted]:
            if (others := nodes_with[resource] - 1) > 0:
                nodes_with[resource] = others
                owned(rows[resource])[slot] = 0
                continue
            del nodes_with[resource], rows[resource]
            self._forget(resource)
        for resource, amount in [item for item in wanted.items() if had.get(item[0]) != item[1]]:
            if resource not in had:
                nodes_with[resource] = nodes_with.get(resource, 0) + 1
            self._row(rows, resource)[slot] = amount if amount < COLUMN_MAX else COLUMN_MAX

    def _forget(self, resource: str) -> None:
        """The rows of a resource that neither nodes nor pods have any more."""
        if resource in self._allocatable or ((row := self._requested.get(resource)) is not None and row.any()):
            return
        self._requested.pop(resource, None)
        self._free.pop(resource, None)

    def _admit(self, name: str) -> NodeInfo:
        node = NodeInfo(name)
        if self._free_slots:
            node.slot = self._free_slots.pop()
            self.by_slot[node.slot] = node
        else:
            node.slot = len(self.by_slot)
            self.by_slot.append(node)
            if node.slot >= self.capacity:
                self._grow()
        self.by_name[name] = node
        return node

    def _dismiss(self, node: NodeInfo) -> None:
        del self.by_name[node.name]
        self.by_slot[node.slot] = None
        self._free_slots.append(node.slot)

    # --- pods -------------------------------------------------------------------------------------------------------

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """Counts a pod on a node, known or not. The pod must not be counted yet."""
        node = self.by_name.get(node_name)
        if node is None:
            node = self._admit(node_name)
        PUT(node.pods, pod.uid, pod)
        self._count_priority(pod.priority, 1)
        slot, requested = node.slot, node.requested
        spec = pod.spec
        for resource, amount in spec.requests:
            total = requested.get(resource, 0) + amount
            PUT(requested, resource, total)
            self._row(self._requested, resource)[slot] = total if total < COLUMN_MAX else COLUMN_MAX
        self._count(node, spec.nonzero_cpu_milli, spec.nonzero_memory_bytes)
        if pod.volumes:
            self._count_claims(pod, slot, 1)
        if spec.host_ports:
            for port in spec.host_ports:
                PUT(node.ports, port, node.ports.get(port, 0) + 1)
                self._port_slots.setdefault((port.protocol, port.port), {})[slot] = None
        self.topology.add_pod(pod, slot)

    def remove_pod(self, pod: PodInfo, node_name: str) -> None:
        """The inverse of `add_pod`; `pod` must be what was added."""
        node = self.by_name[node_name]
        DROP(node.pods, pod.uid)
        self._count_priority(pod.priority, -1)
        slot, requested = node.slot, node.requested
        spec = pod.spec
        for resource, amount in spec.requests:
            total = requested.get(resource, 0) - amount
            PUT(requested, resource, total)
            row = self._row(self._requested, resource)
            row[slot] = total if total < COLUMN_MAX else COLUMN_MAX
            if not total and resource not in ALWAYS:  # Pods may request any name, and 0 of it.
                DROP(requested, resource)
                self._forget(resource)
        self._count(node, -spec.nonzero_cpu_milli, -spec.nonzero_memory_bytes)
        if pod.volumes:
            self._count_claims(pod, slot, -1)
        for port in spec.host_ports:
            self._release_port(node, port)
        self.topology.remove_pod(pod, slot)
        if not node.pods and not node.present:
            self._dismiss(node)

    def replace_pod(self, old: PodInfo, new: PodInfo) -> None:
        """Updates a pod with unchanged node and spec: only its priority, and by its labels the topology counts, can
        change."""
        node = self.by_name[new.node_name]
        PUT(node.pods, new.uid, new)
        self.topology.replace_pod(old, new, node.slot)
        if old.priority != new.priority:
            self._count_priority(old.priority, -1)
            self._count_priority(new.priority, 1)
        if self.pods_are_read:
            self._touch(node.slot)

    def _count_priority(self, priority: int, by: int) -> None:
        number = self._priorities.get(priority, 0) + by
        if number:
            self._priorities[priority] = number
        else:
            del self._priorities[priority]

    def _count_claims(self, pod: PodInfo, slot: int, by: int) -> None:
        for volume in pod.volumes:
            if volume.source == PERSISTENT_CLAIM:
                key = f"{pod.namespace}/{volume.claim}"
                slots = self._claim_slots.setdefault(key, {})
                slots[slot] = slots.get(slot, 0) + by
                if not slots[slot]:
                    del slots[slot]
                if not slots:
                    del self._claim_slots[key]

    def is_claim_in_use(self, key: str) -> bool:
        """Whether a pod on an existing node uses it: upstream ignores others."""
        return any(self.present[slot] for slot in self._claim_slots.get(key, ()))

    def _count(self, node: NodeInfo, cpu_milli: int, memory_bytes: int) -> None:
        slot = node.slot
        pods = len(node.pods)
        PUT(node.requested, PODS, pods)
        owned(self._requested[PODS])[slot] = pods
        node.nonzero_cpu_milli += cpu_milli
        node.nonzero_memory_bytes += memory_bytes
        owned(self.nonzero_cpu_milli)[slot] = min(node.nonzero_cpu_milli, COLUMN_MAX)
        owned(self.nonzero_memory_bytes)[slot] = min(node.nonzero_memory_bytes, COLUMN_MAX)
        self._touch(slot)

    def _release_port(self, node: NodeInfo, port: HostPort) -> None:
        left = node.ports[port] - 1
        if left:
            PUT(node.ports, port, left)
            return
        DROP(node.ports, port)
        _, protocol, number = port
        if not any(p.protocol == protocol and p.port == number for p in node.ports):
            users = self._port_slots[protocol, number]
            del users[node.slot]
            if not users:
                del self._port_slots[protocol, number]

    # --- storage ----------------------------------------------------------------------------------------------------

    def _touch(self, slot: int) -> None:
        log = self._log
        log.append(slot)
        if len(log) > 2 * self.capacity + 4096:
            drop = len(log) // 2
            del log[:drop]
            self._log_start += drop

    def _row(self, rows: dict[str, IntArray], resource: str) -> IntArray:
        """To write to."""
        row = rows.get(resource)
        if row is None:
            row = rows[resource] = locked(np.zeros(self.capacity, np.int64))
        return row.base  # type: ignore[return-value]

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        found = self._taint_ids.get(taints)
        if found is None:
            if len(self.taint_sets) >= 2 * len(self.by_slot) + INITIAL_CAPACITY:
                self._renumber_taints()
                return self._taint_id(taints)
            found = self._taint_ids[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return found

    def _renumber_taints(self) -> None:
        """Drops the sets that no node has. A new list: what was computed by the old one's numbers no longer holds."""
        self.taint_sets, self._taint_ids = [()], {(): 0}
        for node in self.by_slot:
            if node is not None and node.present:
                owned(self.taint_class)[node.slot] = self._taint_id(node.taints)

    def _relabel(self, slot: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Updates label indexes; those never requested do not exist and cost nothing."""
        for key in {**old, **new}:
            before, after = old.get(key), new.get(key)
            if before == after:
                continue
            if before is None or after is None:
                self._count_key(key, 1 if before is None else -1)
            if key not in self._label_values:
                continue
            values = self._label_values[key]
            if before is not None:
                del values[before][slot]
                if not values[before]:
                    del values[before]
            if after is not None:
                values.setdefault(after, {})[slot] = None
            for value, holds in ((before, False), (after, True)):
                mask = self._label_masks.get((key, value)) if value is not None else None
                if mask is not None:
                    owned(mask)[slot] = holds
            if key in self._label_exists:
                owned(self._label_exists[key])[slot] = after is not None
            if key in self._label_ints:
                _set_int(self._label_ints[key], slot, after)

    def _count_key(self, key: str, by: int) -> None:
        number = self.label_keys.get(key, 0) + by
        if number:
            self.label_keys[key] = number
            return
        del self.label_keys[key]
        if self._label_values.pop(key, None) is not None:
            self._forget_masks()

    def _grow(self) -> None:
        """Doubles the capacity. Arrays handed out earlier keep their old length; compare `generation`."""
        extra = self.capacity
        self.capacity += extra
        self.generation += 1

        def longer(array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
            return locked(np.concatenate((array, np.zeros(extra, array.dtype))))

        for name in ("present", "unschedulable", "taint_class", "nonzero_cpu_milli", "nonzero_memory_bytes"):
            setattr(self, name, longer(getattr(self, name)))
        self._zeros, self._nowhere = longer(self._zeros), longer(self._nowhere)
        for rows in (self._allocatable, self._requested):
            for resource in rows:
                rows[resource] = longer(rows[resource])
        self._forget_masks()
        self.topology.grow(self.capacity)

    def _forget_masks(self) -> None:
        self._label_masks.clear()
        self._label_exists.clear()
        self._label_ints.clear()


def _set_int(found: tuple[BoolArray, IntArray], slot: int, text: str | None) -> None:
    value = label_as_int(text)
    owned(found[0])[slot] = value is not None
    owned(found[1])[slot] = value or 0
