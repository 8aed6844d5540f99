"""Minimum-cost flow by successive shortest paths with cost scaling, in numpy.

Costs are refined bit by bit, highest bit first (Röck). A flow that is optimal for the bits so far stays optimal for the
next bit except on arcs that this bit makes more expensive than a detour; these are emptied, and their flow is sent
again. Each phase computes the distances of all nodes from those with excess (Bellman-Ford over arcs, under reduced
costs), then sends as much as possible along shortest paths at once (a blocking flow by levels, Dinic). So the number of
phases depends on the bits of the costs, not on the number of prices or pods.
Source: Ahuja, Magnanti, Orlin, Network Flows, chapters 9.7, 9.8 and 10.
"""

from __future__ import annotations

import numpy as np

from minikube_py.scheduler.flow.problem import Infeasible, Problem
from minikube_py.scheduler.framework import BoolArray, IntArray

_FAR = np.int64(1 << 62)


def successive_shortest_paths(problem: Problem) -> IntArray:
    """The flow of each arc, for a problem without lower bounds and negative costs. Raises: Infeasible."""
    residual = _Residual(problem)
    residual.send_all()
    for bit in reversed(range(int(problem.cost.max()).bit_length())):
        residual.refine((problem.cost >> bit) & 1)
        residual.send_all()
    return residual.room[len(problem.start) :]


class _Residual:
    """Arc i is forward, arc i + count backward. `left`: a node's excess, negative for demand."""

    def __init__(self, problem: Problem) -> None:
        self.nodes = len(problem.supply)
        self.count = len(problem.start)
        self.start = np.concatenate((problem.start, problem.end))
        self.end = np.concatenate((problem.end, problem.start))
        self.room = np.concatenate((problem.capacity, np.zeros(self.count, np.int64)))
        self.left = problem.supply.copy()
        self._cost = np.zeros(2 * self.count, np.int64)
        self._potential = np.zeros(self.nodes, np.int64)
        # Grouped by end node, so that one reduceat finds the minimum of each group.
        self._by_end = np.argsort(self.end, kind="stable")
        ends = self.end[self._by_end]
        self._firsts = np.flatnonzero(np.concatenate(([True], ends[1:] != ends[:-1])))
        self._heads = ends[self._firsts]
        self._starts_by_end = self.start[self._by_end]

    def refine(self, bit: IntArray) -> None:
        """Adds one bit to each cost."""
        count = self.count
        self._cost *= 2
        self._cost[:count] += bit
        self._cost[count:] -= bit
        self._potential *= 2
        back = self.room[count:]
        # That an arc is more expensive than a detour is that its way back pays.
        costly = np.flatnonzero((back > 0) & (self._reduced(slice(0, count)) > 0))
        carried = back[costly]
        np.add.at(self.left, self.start[costly], carried)
        np.subtract.at(self.left, self.end[costly], carried)
        self.room[costly] += carried
        self.room[costly + count] = 0

    def _reduced(self, arcs: slice = slice(None)) -> IntArray:
        return self._cost[arcs] + self._potential[self.start[arcs]] - self._potential[self.end[arcs]]

    def send_all(self) -> None:
        """Raises: Infeasible."""
        if not (self.left > 0).any():
            return
        weight = self._reduced()
        while (self.left > 0).any():
            distance = self._distances(np.where(self.room > 0, weight, _FAR))
            nearest = distance[self.left < 0].min(initial=_FAR)
            if nearest >= _FAR:
                raise Infeasible("not all supply reaches its demand")
            # Nodes beyond the nearest demand keep their order: their reduced costs stay 0 or more.
            self._potential += np.minimum(distance, nearest)
            weight = self._reduced()
            self._send(weight == 0)

    def _distances(self, weight: IntArray) -> IntArray:
        distance = np.where(self.left > 0, np.int64(0), _FAR)
        sorted_weight = weight[self._by_end]
        spare = _FAR - sorted_weight
        while True:
            through = np.minimum(distance[self._starts_by_end], spare) + sorted_weight
            before = distance[self._heads]
            least = np.minimum(before, np.minimum.reduceat(through, self._firsts))
            if (least == before).all():
                return distance
            distance[self._heads] = least

    def _send(self, tight: BoolArray) -> None:
        """A blocking flow over the tight arcs, level by level."""
        arcs = np.flatnonzero(tight & (self.room > 0))
        start, end = self.start[arcs], self.end[arcs]
        level = self._levels(start, end)
        arcs = arcs[(level[start] >= 0) & (level[end] == level[start] + 1)]
        arcs = arcs[np.argsort(self.start[arcs], kind="stable")]
        _block(self, arcs)

    def _levels(self, start: IntArray, end: IntArray) -> IntArray:
        """The distance of each node in arcs; -1 beyond the nearest demand."""
        level = np.where(self.left > 0, 0, -1)
        wanting = self.left < 0
        depth = 0
        while True:
            reached = end[(level[start] == depth) & (level[end] < 0)]
            if not len(reached):
                return level
            depth += 1
            level[reached] = depth
            if wanting[reached].any():
                return level


def _block(residual: _Residual, arcs: IntArray) -> None:
    """Depth first; each arc is visited until it is full or leads to a node that is a dead end, whoever finds it."""
    ends, room = residual.end[arcs].tolist(), residual.room[arcs].tolist()
    first = np.searchsorted(residual.start[arcs], np.arange(residual.nodes + 1))
    at, stop = first[:-1].tolist(), first[1:].tolist()
    left, shut = residual.left.tolist(), [False] * residual.nodes
    for source in np.flatnonzero(residual.left > 0).tolist():
        path: list[int] = []
        nodes = [source]
        while left[source]:
            node = nodes[-1]
            if left[node] < 0:
                amount = min(left[source], -left[node], *[room[arc] for arc in path])
                left[source] -= amount
                left[node] += amount
                for arc in path:
                    room[arc] -= amount
                # Back up to the first full arc.
                kept = next((i for i, arc in enumerate(path) if not room[arc]), 0)
                del path[kept:], nodes[kept + 1 :]
                continue
            arc, end = at[node], stop[node]
            while arc < end and (not room[arc] or shut[ends[arc]]):
                arc += 1
            at[node] = arc
            if arc < end:
                path.append(arc)
                nodes.append(ends[arc])
            elif path:
                shut[nodes.pop()] = True
                path.pop()
            else:
                break
    residual.left = np.array(left, np.int64)
    sent = residual.room[arcs] - np.array(room, np.int64)
    residual.room[arcs] -= sent
    residual.room[np.where(arcs < residual.count, arcs + residual.count, arcs - residual.count)] += sent
