"""A decision computed for one pod without cached results, over the nodes that fit.

A `Matcher` may find these without visiting the others; of many fitting nodes, those that cannot be the best are pruned
before scoring.
"""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from minikube_py.scheduler.best import INFEASIBLE
from minikube_py.scheduler.ceilings import Ceilings
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.filtering import diagnose, fitting, fitting_of
from minikube_py.scheduler.framework import FitError, IntArray
from minikube_py.scheduler.matcher import Matcher
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.preparing import Prepared, Scorer
from minikube_py.scheduler.scoring import Choice, is_plain, scored, weighed
from minikube_py.scheduler.search import Search

PRUNED_FROM = 2048
"""Above this many fitting nodes, those that cannot be the best are pruned before scoring."""
FEW_PROMISING = 4


def pick(totals: IntArray, rng: random.Random) -> int:
    """A random index of the highest total."""
    ties = np.flatnonzero(totals == totals.max())
    return int(ties[rng.randrange(len(ties))]) if len(ties) > 1 else int(ties[0])


class Uncached:
    """Evaluates without cached results. `local`: the plugins whose scores depend on one node alone."""

    def __init__(
        self,
        columns: NodeColumns,
        scorers: tuple[Scorer, ...],
        local: frozenset[str],
        search: Search,
        matcher: Matcher | None,
        rng: random.Random,
    ) -> None:
        self._columns = columns
        self._local = local
        self._search = search
        self.matcher = matcher
        self._rng = rng
        self._ceilings = Ceilings(columns, scorers)
        self.count = 0

    def choose(self, pod: PodInfo, prepared: Prepared) -> Choice:
        """Raises: FitError, PluginError."""
        self.count += 1
        selected, evaluated = self.find(pod, prepared)
        if not len(selected):
            raise FitError(diagnose(self._columns, pod, prepared))
        if len(selected) == 1:
            return self.only(pod, prepared, selected, evaluated)
        prepared.require_scores()
        nodes = self._columns.some(selected)
        others = [scorer for scorer in prepared.scorers if not self._is_late(scorer)]
        shared = scored(others, prepared.state, pod, nodes, len(selected), self._local)
        left, totals = self._plain_totals(prepared, pod, selected, shared.totals)
        position = pick(totals, self._rng)
        slot = int(left[position])
        node = self._columns.by_slot[slot]
        assert node is not None
        wide = shared.wide_of(int(np.flatnonzero(selected == slot)[0]))  # Sampled nodes are not in order.
        return Choice(node, prepared.state, int(totals[position]), evaluated, len(selected), shared.tops, wide)

    def _is_late(self, scorer: Scorer) -> bool:
        """Whether it scores only what is left after pruning: it depends on the node alone, and is not normalised."""
        return is_plain(scorer) and scorer.plugin.name in self._local

    def find(self, pod: PodInfo, prepared: Prepared) -> tuple[IntArray, int]:
        """The fitting slots, or as many as suffice, and the number of nodes examined."""
        columns = self._columns
        if prepared.node_names is not None:
            slots = np.array(sorted(columns.slots_of(prepared.node_names)), np.int64)
            self._search.looked_at(len(slots))
            return fitting_of(prepared, pod, columns, slots), len(slots)
        if self._search.samples:
            everywhere = None if self.matcher is None else partial(self.matched, prepared, pod)
            return self._search.through(lambda slots: fitting(prepared, pod, columns.some(slots)), everywhere)
        self._search.looked_at(columns.count)
        matched = self.matched(prepared, pod)
        if matched is None:
            matched = np.flatnonzero(fitting(prepared, pod, columns.all()))
        return matched, columns.count

    def matched(self, prepared: Prepared, pod: PodInfo) -> IntArray | None:
        """The fitting slots by the matcher, ascending; None without one, or if it cannot help."""
        candidates = None if self.matcher is None else self.matcher.candidates(pod, prepared.filters)
        return None if candidates is None else fitting_of(prepared, pod, self._columns, candidates)

    def only(self, pod: PodInfo, prepared: Prepared, slot: IntArray, evaluated: int) -> Choice:
        """A single fitting node is not scored, but its maxima are kept for explanations."""
        node = self._columns.by_slot[int(slot[0])]
        assert node is not None
        tops, wide = score_of_one(prepared, pod, self._columns, slot, self._local)
        return Choice(node, prepared.state, INFEASIBLE, evaluated, 1, tops, wide)

    def _plain_totals(
        self, prepared: Prepared, pod: PodInfo, slots: IntArray, shared: IntArray
    ) -> tuple[IntArray, IntArray]:
        """The slots that can be the best, in order, and their totals: `shared` plus the plain scores."""
        plain = [scorer for scorer in prepared.scorers if self._is_late(scorer)]
        if len(slots) > PRUNED_FROM and self._ceilings.tight:
            most = self._ceilings.of(slots) + shared
            promising = np.flatnonzero(most == most.max())[:FEW_PROMISING].tolist()
            best = max(int(shared[i]) + self._total_of(plain, prepared, pod, int(slots[i])) for i in promising)
            left = np.flatnonzero(most >= best)
            slots, shared = slots[left], shared[left]
        some = self._columns.some(slots)
        totals = shared.copy()
        for scorer, _, scores in weighed(plain, prepared.state, pod, some, len(slots)):
            totals += scores * scorer.weight
        return slots, totals

    def _total_of(self, plain: list[Scorer], prepared: Prepared, pod: PodInfo, slot: int) -> int:
        node = self._columns.by_slot[slot]
        return sum(scorer.plugin.score(prepared.state, pod, node) * scorer.weight for scorer in plain)


def score_of_one(
    prepared: Prepared, pod: PodInfo, columns: NodeColumns, slot: IntArray, local: frozenset[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """The values of `Choice.tops` and `Choice.wide` if a single node fits."""
    told = [scorer for scorer in prepared.scorers if scorer.normalize is not None or scorer.plugin.name not in local]
    found = scored(told, prepared.state, pod, columns.some(slot), 1, local)
    return found.tops, found.wide_of(0)
