"""Finds nodes that may take a pod by an index over free amounts, instead of filtering all nodes.

Filters that can express their needs as intervals do so (`bounds`): a free amount of a resource, a label above a number,
a label of some value. The intervals of all filters form a box; a structure of `minikube_py.index` holds the nodes as
points and finds those in the box. The filters then check the result, so it is the same as without an index, whatever a
box cannot express. A dimension is added when a pod first needs it. The structure is updated from the columns' log, and
only on queries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Structure, load
from minikube_py.own_code import raised, told
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import Bound, Dimension, DimensionKind, IntArray
from minikube_py.scheduler.objects import CPU, MEMORY, PODS, NodeInfo, PodInfo

logger = logging.getLogger(__name__)

COLUMNS = "columns"
"""No matcher: the filters check all nodes."""
DIMENSIONS_MAX = 12
REBUILD_SHARE = 4
"""If more than one in this many nodes changed, the structure is rebuilt."""
FIRST = tuple(Dimension(DimensionKind.FREE, resource) for resource in (CPU, MEMORY, PODS))


class Matcher:
    """`structure`: a name of `index.catalogue`, or a factory dimensions -> Structure.

    `asked`, `found` and `examined` count queries, nodes found and points compared; `puts` and `builds` the updates and
    rebuilds of the structure. `let_go`: its failure, after which it is no longer used.
    Raises from the constructor: InvalidRequest."""

    def __init__(self, columns: NodeColumns, structure: Any, options: Mapping[str, int | str] | None = None) -> None:
        self._columns = columns
        self._name, self._options = structure, options or {}
        self._dimensions: tuple[Dimension, ...] = FIRST
        self._codes: dict[str, dict[str, int]] = {}
        self._structure = self._build(len(FIRST))
        self._version = -1
        self.let_go = ""
        self.asked = self.found = self.examined = self.puts = self.builds = 0

    def _build(self, dimensions: int) -> Structure:
        if callable(self._name):
            made: Structure = self._name(dimensions)
            return made
        from minikube_py.index.catalogue import build

        return build(self._name, dimensions, self._options)

    def candidates(self, pod: PodInfo, filters: Iterable[tuple[str, Any]]) -> IntArray | None:
        """The slots, ascending, of all nodes that may pass `filters`, and perhaps of others; None if the filters have
        no bounds."""
        bounds = [bound for _, plugin in filters if hasattr(plugin, "bounds") for bound in plugin.bounds(pod)]
        if not bounds:
            return None
        if self.let_go:
            return None
        try:
            self._admit(bounds)
            self._catch_up()
            found = self._structure.find(self._box(bounds))
            slots: IntArray = np.sort(found.slots)
            self.examined += found.examined
        except raised() as error:
            # A custom structure may fail in any way; the filters suffice without it.
            self.let_go = told(error)
            logger.error("the matcher %s is let go, and filters look at all nodes: %s", self._name, self.let_go)
            return None
        self.asked += 1
        self.found += len(slots)
        return slots

    def counts(self) -> dict[str, int]:
        """The counters, `dimensions`, and the structure's `size_bytes`."""
        names = ("asked", "found", "examined", "puts", "builds")
        counted: dict[str, int] = {name: getattr(self, name) for name in names}
        return {**counted, "dimensions": len(self._dimensions), "size_bytes": self._structure.size_bytes()}

    # --- building the query -----------------------------------------------------------------------------------------

    def _admit(self, bounds: Iterable[Bound]) -> None:
        """Adds dimensions for new bounds while there is room; the filters handle the rest."""
        fresh = dict.fromkeys(bound.dimension for bound in bounds if bound.dimension not in self._dimensions)
        room = DIMENSIONS_MAX - len(self._dimensions)
        if fresh and room > 0:
            self._dimensions += tuple(fresh)[:room]
            self._version = -1

    def _box(self, bounds: Iterable[Bound]) -> Box:
        lows = [MISSING] * len(self._dimensions)
        highs = [HIGH] * len(self._dimensions)
        places = {dimension: i for i, dimension in enumerate(self._dimensions)}
        for bound in bounds:
            place = places.get(bound.dimension)
            if place is None:
                continue
            low, high = bound.low, bound.high
            if bound.values is not None:
                codes = self._codes.get(bound.dimension.name, {})
                known = {codes[value] for value in bound.values if value in codes}
                # No node has any of these values: an empty interval.
                low, high = (min(known), max(known)) if known else (HIGH, LOW)
            lows[place] = max(lows[place], min(max(low, LOW), HIGH))
            highs[place] = min(highs[place], max(min(high, HIGH), LOW))
        return Box(tuple(lows), tuple(highs))

    # --- keeping the points -----------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        columns = self._columns
        if self._version == columns.version:
            return
        changed = columns.changed_since(self._version) if self._version >= 0 else None
        slots = None if changed is None else sorted(set(changed))
        if slots is None or len(slots) * REBUILD_SHARE > columns.size:
            self._refill()
        else:
            for slot in slots:
                node = columns.by_slot[slot]
                if node is None or not node.present:
                    self._structure.remove(slot)
                else:
                    self._structure.put(slot, tuple(self._value(each, node) for each in self._dimensions))
            self.puts += len(slots)
        self._version = columns.version

    def _refill(self) -> None:
        columns = self._columns
        self._structure = self._build(len(self._dimensions))
        slots = np.flatnonzero(columns.present[: columns.size])
        points = np.empty((len(slots), len(self._dimensions)), np.int64)
        for place, dimension in enumerate(self._dimensions):
            points[:, place] = self._values(dimension)[slots]
        load(self._structure, slots, points)
        self.builds += 1

    def _value(self, dimension: Dimension, node: NodeInfo) -> int:
        kind, name = dimension
        if kind is DimensionKind.FREE:
            return int(self._columns.free_row(name)[node.slot])
        if kind is DimensionKind.NUMBER:
            valid, numbers = self._columns.label_ints(name)
            return max(int(numbers[node.slot]), LOW) if valid[node.slot] else MISSING
        value = node.labels.get(name)
        return MISSING if value is None else self._code(name, value)

    def _values(self, dimension: Dimension) -> IntArray:
        """`_value` for all slots."""
        columns = self._columns
        kind, name = dimension
        if kind is DimensionKind.FREE:
            return columns.free_row(name)
        if kind is DimensionKind.NUMBER:
            valid, numbers = columns.label_ints(name)
            return np.where(valid, np.maximum(numbers, LOW), MISSING)
        values = np.full(columns.capacity, MISSING, np.int64)
        for text, slots in columns.label_values(name).items():
            values[list(slots)] = self._code(name, text)
        return values

    def _code(self, label: str, value: str) -> int:
        codes = self._codes.setdefault(label, {})
        return codes.setdefault(value, len(codes))
