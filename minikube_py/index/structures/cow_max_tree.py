"""An immutable max-tree: every change copies the path from the root, and every root is a state that can be kept.

A node is a tuple, first the greatest values of the dimensions below it, then its eight children, None if empty. A point
is a node without children. Eight children make paths of six nodes for 100,000 slots, and of all powers of two the
fewest bytes copied per change.

A query on the current state gives up and scans in time (see `visits`). One on a frozen state has no columns to scan: a
query without matches that each dimension alone could satisfy may visit most of the tree.

Source: path copying (Driscoll, Sarnak, Sleator and Tarjan, "Making data structures persistent", 1989, section 2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minikube_py.index.structure import MISSING, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of, found_of, lies_in
from minikube_py.index.structures.columns import Columns
from minikube_py.index.structures.options import check_dimensions, within
from minikube_py.index.structures.visits import WalkOrScan, visits_of_a_scan

_BITS = 3
_CHILDREN = 1 << _BITS
_NODE_BYTES = 16 + 40 + 8 * _CHILDREN

Node = tuple[Any, ...]


class Root(NamedTuple):
    """A state. `height`: how many levels of nodes are above the points."""

    node: Node | None
    height: int


class CowMaxTree(WalkOrScan):
    """`visit_limit`: the number of visited nodes after which a query on the current state gives up and scans."""

    structure = "cow-max-tree"

    def __init__(self, dimensions: int, visit_limit: int = 300) -> None:
        self._visit_limit = within(self.structure, "visit_limit", visit_limit, 1, 1 << 20)
        self._dimensions = check_dimensions(self.structure, dimensions)
        self.columns = Columns(dimensions)
        self._vacant = (MISSING,) * dimensions
        self._empty: Node = (*self._vacant, *[None] * _CHILDREN)
        self._root = Root(None, 1)

    def put(self, slot: int, point: Point) -> None:
        self.columns.put(slot, point)
        while slot >> _BITS * self._root.height:
            top = self._root.node
            raised = None if top is None else self._with_child(self._empty, 0, top)
            self._root = Root(raised, self._root.height + 1)
        self._replace(slot, point)

    def remove(self, slot: int) -> None:
        if self.columns.has(slot):
            self.columns.remove(slot)
            self._replace(slot, None)

    def load(self, slots: IntArray, points: IntArray) -> None:
        """Builds the levels from the points up."""
        self.columns.load(slots, points)
        end = self.columns.end
        children: list[Node | None] = [None] * end
        for slot, point in zip(slots.tolist(), points.tolist()):
            children[slot] = tuple(point)
        maxima = np.stack([column[:end] for column in self.columns.values], axis=1)
        height = 0
        while height == 0 or len(children) > 1:
            children += [None] * (-len(children) % _CHILDREN)
            padded = np.full((len(children), self._dimensions), MISSING, dtype=np.int64)
            padded[: len(maxima)] = maxima
            maxima = padded.reshape(-1, _CHILDREN, self._dimensions).max(axis=1)
            groups = [children[first : first + _CHILDREN] for first in range(0, len(children), _CHILDREN)]
            children = [
                None if group.count(None) == _CHILDREN else (*greatest, *group)
                for greatest, group in zip(maxima.tolist(), groups)
            ]
            height += 1
        self._root = Root(children[0] if children else None, height)

    def freeze(self) -> Root:
        return self._root

    def find_frozen(self, frozen: Root, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        slots, examined = self._walk(asked, limit, 1 << 62, frozen)
        return found_of(slots or (), not limit or len(slots or ()) < limit, examined)

    def size_bytes(self) -> int:
        """Counts nodes as full, and points with separate ints."""
        nodes = sum(self.columns.end >> _BITS * level for level in range(1, self._root.height + 1))
        points = self.columns.end * (56 + 40 * self._dimensions)
        return self.columns.size_bytes() + nodes * (_NODE_BYTES + 8 * self._dimensions) + points

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 0.15 us per child examined, four per level for each point found. If
        nothing is found, the number depends on the data: a third of the limit is assumed."""
        visits = min(self._visit_limit, visits_of_a_scan(rows))
        found = min(limit or rows, rows * share)
        needed = 4 * self._root.height * (1 + found) if found >= 1 else visits / 3
        if needed <= visits:
            return 2.0 + 0.15 * needed
        return (0.15 * visits if limit <= visits else 0) + self.columns.cost_us(rows, share, limit)

    def _walk(
        self, asked: Asked, limit: int, visits_left: int, root: Root | None = None
    ) -> tuple[list[int] | None, int]:
        """In the current state if no `root` is given."""
        root = self._root if root is None else root
        dimensions = self._dimensions
        lows = [(dimension, low) for dimension, low, _ in asked]
        slots: list[int] = []
        pending = [(root.node, 0, root.height)] if root.node is not None else []
        visits = 0
        while pending and visits <= visits_left:
            node, first, level = pending.pop()
            first <<= _BITS
            level -= 1
            for child in node[dimensions:]:
                if child is not None:
                    visits += 1
                    for dimension, low in lows:
                        if child[dimension] < low:
                            break
                    else:
                        if level:
                            pending.append((child, first, level))
                        elif lies_in(child, asked):
                            slots.append(first)
                first += 1
            if limit and len(slots) >= limit:
                return slots[:limit], visits
        return (None if pending else slots), visits

    def _replace(self, slot: int, child: Node | None) -> None:
        """Puts `child` in the place of `slot`, and copies the nodes above."""
        node, height = self._root
        path = []
        for level in range(height - 1, -1, -1):
            node = self._empty if node is None else node
            place = slot >> _BITS * level & _CHILDREN - 1
            path.append((node, place))
            node = node[self._dimensions + place]
        for node, place in reversed(path):
            child = self._with_child(node, place, child)
        self._root = Root(child, height)

    def _with_child(self, node: Node, place: int, child: Node | None) -> Node | None:
        """The node with another child; None if no child remains."""
        dimensions = self._dimensions
        copy = list(node)
        old = copy[dimensions + place]
        copy[dimensions + place] = child
        if child is None and all(one is None for one in copy[dimensions:]):
            return None
        new = self._vacant if child is None else child
        for dimension, before in enumerate(self._vacant if old is None else old[:dimensions]):
            greatest = copy[dimension]
            if new[dimension] >= greatest:
                copy[dimension] = new[dimension]
            elif before == greatest:
                copy[dimension] = max([one[dimension] for one in copy[dimensions:] if one is not None])
        return tuple(copy)
