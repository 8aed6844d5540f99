"""Upper bounds of node scores for any pod, so that only a few of many fitting nodes need scoring.

Scores fall as a node fills, so the score without the pod is a bound for every pod. For scorers with `score_ceilings`,
the bounds of all nodes are kept and updated from the columns' log. Once a few nodes are scored, all nodes whose bound
is below the best score are pruned; the best of the rest, ties included, is the best of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minikube_py.scheduler.columns import NodeColumns, Nodes
from minikube_py.scheduler.framework import MAX_NODE_SCORE, IntArray
from minikube_py.scheduler.objects import NodeInfo
from minikube_py.scheduler.preparing import Scorer
from minikube_py.scheduler.scoring import is_plain

FEW_NODES = 12
"""Up to this many changed nodes, the per-node form is cheaper than a pass over small arrays."""
RENEW_SHARE = 8
"""If more than one in this many nodes changed, all bounds are recomputed."""


def _is_known(scorer: Scorer) -> bool:
    """Whether its scores are 0 to 100 and available per node."""
    return getattr(scorer.plugin, "bounded", False) and callable(getattr(scorer.plugin, "score", None))


class Ceilings:
    """Bounds over the plain scorers. `tight`: whether the bounds hold and differ between nodes."""

    def __init__(self, columns: NodeColumns, scorers: Sequence[Scorer]) -> None:
        plain = [scorer for scorer in scorers if is_plain(scorer)]
        self._columns = columns
        self._scorers = [scorer for scorer in plain if callable(getattr(scorer.plugin, "score_ceilings", None))]
        self.tight = bool(self._scorers) and all(_is_known(scorer) for scorer in plain)
        self._others = sum(scorer.weight for scorer in plain if scorer not in self._scorers) * MAX_NODE_SCORE
        self._bounds: IntArray = np.zeros(0, np.int64)
        self._version = -1

    def of(self, slots: IntArray) -> IntArray:
        self._catch_up()
        return self._bounds[slots]

    def _catch_up(self) -> None:
        columns = self._columns
        if self._version == columns.version:
            return
        changed = columns.changed_since(self._version) if self._version >= 0 else None
        if changed is None or len(self._bounds) != columns.size or len(changed) * RENEW_SHARE > columns.size:
            self._bounds = self._worked_out(columns.all())
        elif len(changed) > FEW_NODES:
            slots = np.array(sorted(set(changed)), np.int64)
            self._bounds[slots] = self._worked_out(columns.some(slots))
        else:
            for slot in dict.fromkeys(changed):
                self._bounds[slot] = self._worked_out_of(columns.by_slot[slot])
        self._version = columns.version

    def _worked_out_of(self, node: NodeInfo | None) -> int:
        if node is None:
            return self._others
        total = self._others
        for scorer in self._scorers:
            total += scorer.plugin.score_ceiling(node) * scorer.weight
        return total

    def _worked_out(self, nodes: Nodes) -> IntArray:
        total = np.full(len(nodes), self._others, np.int64)
        for scorer in self._scorers:
            total += scorer.plugin.score_ceilings(nodes) * scorer.weight
        return total
