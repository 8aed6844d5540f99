"""Pools of devices as a node sees them. Source: `structured/internal/incubating/pools_incubating.go`.

What a node sees is cached until one of its slices or the node's labels change. Upstream reads slices in any order;
here they are read by name, so that what is kept equals what is gathered afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from minikube_py.scheduler.devices.views import Amounts, Device, PoolId, SliceView
from minikube_py.scheduler.objects import NodeInfo


class Candidate(NamedTuple):
    device: Device
    slice: SliceView
    pool: Pool


class Pool:
    """The part of a pool that a node can use. `problem`: why its content is invalid. `consuming`: all devices of the
    whole pool that consume counters. `available`: remaining counters, by allocation."""

    __slots__ = ("available", "candidates", "consuming", "counter_sets", "has_conditions", "id", "is_whole", "problem")

    def __init__(self, id: PoolId, slices: Sequence[SliceView] = (), all_slices: Iterable[SliceView] = ()) -> None:
        self.id = id
        self.is_whole = True
        self.problem = ""
        self.counter_sets: Mapping[str, Amounts] = {}
        self.available: tuple[int, dict[str, Amounts]] | None = None
        keys = {each.key for each in slices}
        devices = [each for each in slices if not each.has_counters]
        self.candidates = [Candidate(device, each, self) for each in devices for device in each.devices]
        self.consuming = [
            device
            for each in (*devices, *(other for other in all_slices if other.key not in keys))
            for device in each.devices
            if device.consumes
        ]
        self.problem = self._problem(slices)
        if self.problem:
            self.candidates, self.consuming = [], []
        self.has_conditions = any(candidate.device.has_conditions for candidate in self.candidates)

    @classmethod
    def in_part(cls, id: PoolId) -> Pool:
        """A pool with missing slices."""
        pool = cls(id)
        pool.is_whole = False
        return pool

    @property
    def is_usable(self) -> bool:
        return self.is_whole and not self.problem

    def _problem(self, slices: Sequence[SliceView]) -> str:
        seen = set()
        for candidate in self.candidates:
            if candidate.device.name in seen:
                return f"duplicate device name {candidate.device.name}"
            seen.add(candidate.device.name)
        sets: dict[str, Amounts] = {}
        for each in slices:
            for name, counters in each.counter_sets:
                if name in sets:
                    return f"duplicate counter set name {name}"
                sets[name] = counters
        self.counter_sets = sets
        for device in self.consuming:
            for name, counters in device.consumes:
                if name not in sets:
                    return f"counter set {name} not found"
                for counter in counters:
                    if counter not in sets[name]:
                        return f"counter {counter} not found in counter set {name}"
        return ""


class _Seen(NamedTuple):
    labels: Mapping[str, str]
    pools: tuple[Pool, ...]


class Inventory:
    """All slices; `pools(node)` returns the same tuple until something behind it changes."""

    def __init__(self) -> None:
        self._of_node: dict[str, dict[str, SliceView]] = {}
        self._shared: dict[str, SliceView] = {}
        self._of_pool: dict[PoolId, dict[str, SliceView]] = {}
        self._seen: dict[str, _Seen] = {}
        self._seeing: dict[PoolId, set[str]] = {}

    @classmethod
    def of(cls, slices: Iterable[SliceView]) -> Inventory:
        found = cls()
        for each in slices:
            found.put(None, each)
        return found

    def put(self, old: SliceView | None, new: SliceView | None) -> None:
        """A slice was added (no `old`), changed or removed (no `new`)."""
        if old is not None:
            if new is None or self._home(old) is not self._home(new):
                self._home(old).pop(old.key, None)
            if new is None or old.pool != new.pool:
                self._of_pool.get(old.pool, {}).pop(old.key, None)
            self._forget(old)
        if new is not None:
            self._home(new)[new.key] = new
            self._of_pool.setdefault(new.pool, {})[new.key] = new
            self._forget(new)

    def pools(self, node: NodeInfo) -> tuple[Pool, ...]:
        seen = self._seen.get(node.name)
        if seen is not None and (seen.labels is node.labels or seen.labels == node.labels):
            return seen.pools
        pools = self._gather(node)
        self._seen[node.name] = _Seen(node.labels, pools)
        return pools

    def devices(self, node: NodeInfo) -> Iterator[Device]:
        """All devices the node can reach, of any generation, even in incomplete pools."""
        for each in (*self._of_node.get(node.name, {}).values(), *self._shared.values()):
            if each.is_per_device:
                yield from (device for device in each.devices if device.reach.holds(node))
            elif not each.reach.is_said or each.reach.holds(node):
                yield from each.devices

    def _home(self, view: SliceView) -> dict[str, SliceView]:
        if view.reach.node_name and not view.has_counters:
            return self._of_node.setdefault(view.reach.node_name, {})
        return self._shared

    def _forget(self, view: SliceView) -> None:
        for name in self._seeing.pop(view.pool, ()):
            self._seen.pop(name, None)
        if view.reach.node_name and not view.has_counters:
            self._seen.pop(view.reach.node_name, None)
        else:
            self._seen.clear()

    def _gather(self, node: NodeInfo) -> tuple[Pool, ...]:
        found: dict[PoolId, list[SliceView]] = {}
        for each in (*self._of_node.get(node.name, {}).values(), *self._shared.values()):
            if not each.is_for(node):
                continue
            known = found.get(each.pool)
            if known is None or each.generation > known[0].generation:
                found[each.pool] = [each]
            elif each.generation == known[0].generation:
                known.append(each)
        plain: list[Pool] = []
        conditional: list[Pool] = []
        for id, slices in found.items():
            self._seeing.setdefault(id, set()).add(node.name)
            pool = self._pool(id, sorted(slices, key=attrgetter("name")))
            if pool is not None:
                (conditional if pool.has_conditions else plain).append(pool)
        by_id = sorted(plain, key=lambda pool: pool.id)
        return (*by_id, *sorted(conditional, key=lambda pool: pool.id))

    def _pool(self, id: PoolId, slices: list[SliceView]) -> Pool | None:
        """None if slices invisible to the node have a newer generation."""
        first = slices[0]
        if len(slices) == first.slice_count:
            return Pool(id, slices)
        known = self._of_pool[id].values()
        if any(each.generation > first.generation for each in known):
            return None
        whole = sorted((each for each in known if each.generation == first.generation), key=attrgetter("name"))
        return Pool(id, slices, whole) if len(whole) == first.slice_count else Pool.in_part(id)
