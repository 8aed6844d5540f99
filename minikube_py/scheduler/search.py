"""Which of the nodes that fit are looked at: all, or as many as upstream would find from where it stopped last.

Upstream filters nodes one after another until it has found enough, and starts the next pod's search behind the last
one (percentageOfNodesToScore). Here the nodes are filtered in windows of slots, so that a search that ends soon costs
little; what is found, and where the next one starts, is the same as if all had been filtered first.
Source: pkg/scheduler/schedule_one.go, findNodesThatPassFilters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.framework import IntArray

MIN_FEASIBLE_TO_FIND = 100
MIN_PERCENTAGE_TO_FIND = 5
WINDOW_MIN = 1024

Fitting = Callable[[int, int], IntArray]
"""(start, stop) -> the slots from `start` to `stop` (not included) that fit, ascending."""


class Search:
    """`percentage`: 100 looks at all nodes; less, or 0 for upstream's own choice, stops at that share of them."""

    __slots__ = ("_columns", "next_start", "percentage")

    def __init__(self, columns: NodeColumns, percentage: int) -> None:
        self.percentage = percentage
        self._columns = columns
        self.next_start = 0

    def nodes_to_find(self, count: int) -> int:
        """How many fitting nodes are enough."""
        if self.percentage >= 100 or count < MIN_FEASIBLE_TO_FIND:
            return count
        percentage = self.percentage or max(50 - count // 125, MIN_PERCENTAGE_TO_FIND)
        return max(count * percentage // 100, MIN_FEASIBLE_TO_FIND)

    @property
    def samples(self) -> bool:
        """Whether fewer nodes than there are may be enough."""
        count = self._columns.count
        return self.nodes_to_find(count) < count

    def among(self, fitting: IntArray) -> tuple[IntArray, int]:
        """The slots that a search would find, and how many nodes it saw; `fitting`: all that fit, ascending."""
        count = self._columns.count
        wanted = self.nodes_to_find(count)
        if len(fitting) <= wanted:
            return fitting, count
        start = self.next_start % self._columns.size
        first = int(np.searchsorted(fitting, start))
        return self._found(np.concatenate((fitting[first : first + wanted], fitting[:first]))[:wanted], start)

    def through(
        self, fitting: Fitting, everywhere: Callable[[], IntArray | None] | None = None
    ) -> tuple[IntArray, int]:
        """As `among`, asking for one window after another. `everywhere`, if given, is asked once it shows that few
        nodes fit: all that do, ascending, or None where the windows had better go on."""
        columns = self._columns
        count, size = columns.count, columns.size
        wanted = self.nodes_to_find(count)
        start = self.next_start % size
        found: list[IntArray] = []
        total = seen = 0
        window = 2 * wanted if everywhere is not None else max(2 * wanted, WINDOW_MIN)
        while seen < size:
            for low, high in _around(start + seen, min(window, size - seen), size):
                part = fitting(low, high)
                found.append(part)
                total += len(part)
            seen += min(window, size - seen)
            if total > wanted:
                return self._found(np.concatenate(found)[:wanted], start)
            if everywhere is not None and seen < size:
                known = everywhere()
                if known is not None:
                    return self.among(known)
                everywhere = None
            # As many slots as the share so far promises to be enough, and a quarter more.
            window = max((wanted - total + 1) * seen * 5 // (4 * max(total, 1)), WINDOW_MIN)
        return np.sort(np.concatenate(found)), count

    def _found(self, selected: IntArray, start: int) -> tuple[IntArray, int]:
        end = self.next_start = int(selected[-1]) + 1
        seen = end - start if end > start else end - start + self._columns.size
        return selected, min(seen, self._columns.count)


def _around(start: int, length: int, size: int) -> Iterator[tuple[int, int]]:
    """`length` slots from `start` on, which may lie beyond `size`, as one or two ranges."""
    start %= size
    end = start + length
    yield start, min(end, size)
    if end > size:
        yield 0, end - size
