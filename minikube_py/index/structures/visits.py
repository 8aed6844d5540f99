"""Trees that abort a query and scan instead, once their visits have cost as much as a scan.

A tree of greatest values finds the first points in a box in a few steps, but may visit most of its nodes to learn that
there is none. A query that gives up never costs much more than twice the better alternative.

Source: the rule of ski rental (Karlin et al. 1988): switching once the alternative would have been paid for costs at
most twice the optimum."""

from __future__ import annotations

from abc import ABC, abstractmethod

from minikube_py.index.structure import NOTHING, Box, Found
from minikube_py.index.structures.boxes import Asked, asked_of, found_of
from minikube_py.index.structures.columns import Columns

_SLOTS_PER_VISIT = 300
"""A scan compares this many slots in the time of one visit."""
_LEAST_VISITS = 40
"""The time of the numpy calls alone."""


def visits_of_a_scan(slots: int) -> int:
    """How many visits take as long as a scan of this many slots."""
    return _LEAST_VISITS + slots // _SLOTS_PER_VISIT


class WalkOrScan(ABC):
    """`columns`: the points of the tree, for scans. `_visit_limit`: the number of visited nodes after which a query
    gives up."""

    columns: Columns
    _visit_limit: int

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        visits_left = min(self._visit_limit, visits_of_a_scan(self.columns.end))
        if not asked or limit > visits_left:
            return self.columns.scan(asked, limit)
        slots, examined = self._walk(asked, limit, visits_left)
        if slots is None:
            scanned = self.columns.scan(asked, limit)
            return scanned._replace(examined=scanned.examined + examined)
        return found_of(slots, not limit or len(slots) < limit, examined)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    @abstractmethod
    def _walk(self, asked: Asked, limit: int, visits_left: int) -> tuple[list[int] | None, int]:
        """The slots, None if the visits did not suffice; and how many nodes were compared, including points."""
