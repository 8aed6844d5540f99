"""Which fitting nodes are examined: all, or as many as upstream would find from where it last stopped.

Upstream filters nodes one by one until it has found one more than enough, and starts the next pod's search at that node
(percentageOfNodesToScore). Here nodes are filtered in windows, so that a short search is cheap; the nodes found and the
next start are the same as one by one (upstream with `parallelism: 1`; with more, its stop depends on its threads).
Source: pkg/scheduler/schedule_one.go, findNodesThatFitPod, findNodesThatPassFilters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import BoolArray, IntArray

MIN_FEASIBLE_TO_FIND = 100
MIN_PERCENTAGE_TO_FIND = 5
WINDOW_MIN = 1024

Fitting = Callable[[IntArray], BoolArray]
"""Which of these slots fit."""


class Search:
    """`percentage`: 100 examines all nodes; less, or 0 for upstream's default, stops once that share of them fits. The
    columns keep an `order` from the first such search on."""

    __slots__ = ("_columns", "percentage")

    def __init__(self, columns: NodeColumns, percentage: int) -> None:
        self.percentage = percentage
        self._columns = columns
        if percentage < 100:
            columns.ordered()

    def nodes_to_find(self, count: int) -> int:
        """How many fitting nodes suffice."""
        if self.percentage >= 100 or count < MIN_FEASIBLE_TO_FIND:
            return count
        percentage = self.percentage or max(50 - count // 125, MIN_PERCENTAGE_TO_FIND)
        return max(count * percentage // 100, MIN_FEASIBLE_TO_FIND)

    @property
    def samples(self) -> bool:
        """Whether fewer than all nodes may suffice."""
        count = self._columns.count
        return self.nodes_to_find(count) < count

    def among(self, fitting: IntArray) -> tuple[IntArray, int]:
        """The slots that a search would find, and how many nodes it examined; `fitting`: all that fit."""
        order = self._columns.ordered()
        count = len(order.slots)
        wanted = self.nodes_to_find(count)
        if len(fitting) <= wanted:
            return self._found(fitting, count)
        start = order.next_start % count
        places = np.sort((order.places[fitting] - start) % count)[: wanted + 1]
        return self._found(order.slots[(places[:wanted] + start) % count], int(places[wanted]))

    def through(
        self, fitting: Fitting, everywhere: Callable[[], IntArray | None] | None = None
    ) -> tuple[IntArray, int]:
        """As `among`, filtering window by window. `everywhere`, if given, is called once few nodes turn out to fit: it
        returns all that do, or None to continue with windows."""
        order = self._columns.ordered()
        slots, count = order.slots, len(order.slots)
        wanted = self.nodes_to_find(count)
        start = order.next_start % count
        found: list[IntArray] = []
        total = seen = 0
        window = 2 * wanted if everywhere is not None else max(2 * wanted, WINDOW_MIN)
        while seen < count:
            for low, high in _around(start + seen, min(window, count - seen), count):
                some = slots[low:high]
                places = np.flatnonzero(fitting(some))
                if total + len(places) > wanted:
                    enough = wanted - total
                    found.append(some[places[:enough]])
                    return self._found(np.concatenate(found), (low + int(places[enough]) - start) % count)
                found.append(some[places])
                total += len(places)
            seen += min(window, count - seen)
            if everywhere is not None and seen < count:
                known = everywhere()
                if known is not None:
                    return self.among(known)
                everywhere = None
            # As many slots as should suffice at the ratio so far, plus a quarter.
            window = max((wanted - total + 1) * seen * 5 // (4 * max(total, 1)), WINDOW_MIN)
        return self._found(np.sort(np.concatenate(found)), count)

    def _found(self, selected: IntArray, seen: int) -> tuple[IntArray, int]:
        self.looked_at(seen)
        return selected, seen

    def looked_at(self, number: int) -> None:
        """Advances the start of the next search, of any profile. Even a full search must call this: the start is kept
        modulo the node count, which may change."""
        if self._columns.order is not None:
            self._columns.order.move_on(number)


def _around(start: int, length: int, size: int) -> Iterator[tuple[int, int]]:
    """`length` slots from `start` on, wrapping at `size`, as one or two ranges."""
    start %= size
    end = start + length
    yield start, min(end, size)
    if end > size:
        yield 0, end - size
