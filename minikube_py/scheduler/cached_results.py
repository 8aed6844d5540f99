"""Cached results per pod signature (KEP-5598): all nodes, evaluated by the node-local plugins.

The next pod with that signature recomputes only the nodes in the columns' log: after a bind, one. The cache is exact
and never expires: every change of a node or its pods is in the log, and only plugins that promise to read nothing else
(`node_local`) are cached. In large clusters a result is cached only when its signature occurs again: a single pod's
evaluation covers only fitting nodes, not all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from minikube_py.scheduler.best import INFEASIBLE, BestScores
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.filtering import fitting, ok
from minikube_py.scheduler.framework import MAX_NODE_SCORE, BoolArray, CycleState, Diagnosis, IntArray, Status
from minikube_py.scheduler.nominations import Rivals
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.preparing import NO_PLUGINS, Plugins, Prepared, Scorer, prepare
from minikube_py.scheduler.scoring import NO_SCORES, normalized, raw_scores

FEW_NODES = 12
"""Up to this many changed nodes, the per-node forms are cheaper than a pass over small arrays."""
KEPT_BYTES_MAX = 128 << 20
KEPT_MIN, KEPT_MAX = 8, 1024
MANY_NODES = 4096
"""Above this, evaluating only fitting nodes is so much cheaper that a signature must occur twice."""


class Raw(NamedTuple):
    """Scores before normalisation."""

    scorer: Scorer
    scores: IntArray


class Barred(NamedTuple):
    """By slot, why the nominated pods `rivals` leave no room, as of `version` of the columns."""

    version: int
    rivals: Rivals
    statuses: Mapping[int, Status]


class CachedResult:
    """All nodes evaluated for one signature, as of `version` of the columns.

    `base`: weighted scores without normalisation, INFEASIBLE where the pod does not fit; `raws`: the others. `silent`:
    scorers that gave 0 everywhere: they add `constant`; once one scores a node, this result is invalid."""

    __slots__ = (
        "barred",
        "base",
        "best",
        "constant",
        "diagnosis",
        "plain",
        "prepared",
        "raws",
        "shared",
        "silent",
        "size",
        "tops",
        "version",
    )

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.version = 0
        self.size = 0
        self.base: IntArray = np.zeros(0, np.int64)
        self.best: BestScores = BestScores(self.base)
        self.plain: list[tuple[Callable[..., int], int]] = []
        self.silent: list[Callable[..., int]] = []
        self.raws: list[Raw] = []
        self.constant = 0
        self.tops: Mapping[str, int] = NO_SCORES
        self.diagnosis: tuple[int, Diagnosis] | None = None
        self.barred: Barred | None = None
        self.shared: CycleState | None = None
        """The state without that of plugins prepared for each pod."""

    def totals_of(self, slots: IntArray) -> tuple[IntArray, Mapping[str, int]]:
        """The totals of these fitting slots, normalised among themselves, and the maxima used."""
        totals = self.base[slots].astype(np.int64)
        if not self.raws:
            return totals, NO_SCORES
        tops: dict[str, int] = {}
        for scorer, scores in self.raws:
            assert scorer.normalize is not None
            raw = scores[slots]
            tops[scorer.plugin.name] = int(raw.max(initial=0))
            totals += scorer.normalize.apply(raw) * scorer.weight
        return totals, tops


class CachedResults:
    """By signature. `narrow`: whether all totals fit an int32; `eager`: whether to cache on first use. `for_each`: of
    the cached plugins, those that are prepared for every pod, since their state may hold the pod; `others`: the others.

    `reused` and `built` count cache hits and full evaluations."""

    def __init__(
        self,
        columns: NodeColumns,
        narrow: bool,
        eager: bool,
        for_each: Plugins = NO_PLUGINS,
        others: Plugins = NO_PLUGINS,
    ) -> None:
        self._columns = columns
        self._narrow = narrow
        self._eager = eager
        self._for_each = for_each if for_each.pre_filters or for_each.pre_scorers else None
        self._others = others
        self._kept: OrderedDict[object, CachedResult] = OrderedDict()
        self._seen_once: OrderedDict[object, None] = OrderedDict()
        self.reused = self.built = 0

    @property
    def _limit(self) -> int:
        return max(KEPT_MIN, min(KEPT_MAX, KEPT_BYTES_MAX // (4 * self._columns.capacity)))

    def get(self, signature: object, pod: PodInfo) -> CachedResult | None:
        """The cached result, updated to the current nodes."""
        kept = self._kept.get(signature)
        if kept is None:
            return None
        self._kept.move_to_end(signature)
        try:
            if self._for_each is not None:
                self._prepare_again(self._for_each, kept, pod)
            self._catch_up(kept, pod)
        except Exception:
            # The result may be half updated: drop it.
            del self._kept[signature]
            raise
        return kept

    def _prepare_again(self, plugins: Plugins, kept: CachedResult, pod: PodInfo) -> None:
        """Gives the result this pod's state. What the plugins return is what they returned for the earlier pod: it is
        equal in all that they read."""
        if kept.shared is None:
            kept.shared = prepare(self._others, self._columns, pod).state
        before, state = kept.prepared.state, kept.shared.clone()
        for plugin in plugins.pre_filters.values():
            plugin.pre_filter(state, pod, self._columns)
        for plugin in plugins.pre_scorers.values():
            plugin.pre_score(state, pod, self._columns)
        state.skip_filter, state.skip_score = before.skip_filter, before.skip_score
        # A third of the time of _replace.
        kept.prepared = Prepared(state, *kept.prepared[1:])

    def is_worth_keeping(self, signature: object) -> bool:
        """With few nodes always; otherwise from the second use on, if it follows soon enough."""
        if self._eager and self._columns.size <= MANY_NODES:
            return True
        if signature in self._seen_once:
            del self._seen_once[signature]
            return True
        self._seen_once[signature] = None
        while len(self._seen_once) > self._limit:
            self._seen_once.popitem(last=False)
        return False

    def keep(self, sign: Callable[[PodInfo], object], prepared: Prepared, pod: PodInfo) -> CachedResult:
        """The signature is taken afterwards: plugins may have read more of the pod than before."""
        kept = CachedResult(prepared)
        self._fill(kept, pod)
        signature = sign(pod)
        if signature is not None:
            self._kept[signature] = kept
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return kept

    # --- all nodes --------------------------------------------------------------------------------------------------

    def _fill(self, kept: CachedResult, pod: PodInfo) -> None:
        self.built += 1
        columns, prepared = self._columns, kept.prepared
        nodes = columns.all()
        size = kept.size = columns.size
        kept.version = columns.version
        kept.diagnosis = None
        kept.plain, kept.silent, kept.raws, kept.constant = [], [], [], 0
        mask = fitting(prepared, pod, nodes)
        base = np.zeros(size, np.int64)
        for scorer in prepared.scorers:
            raw = raw_scores(scorer, prepared.state, pod, nodes, mask)
            if scorer.normalize is None:
                _check_range(scorer, raw, mask)
                kept.plain.append((scorer.plugin.score, scorer.weight))
                if raw is not None:
                    base += raw * scorer.weight if scorer.weight != 1 else raw
            elif raw is None:
                kept.silent.append(scorer.plugin.score)
                kept.constant += scorer.weight * (MAX_NODE_SCORE if scorer.normalize.reverse else 0)
            else:
                kept.raws.append(Raw(scorer, raw.copy()))
        base += kept.constant
        base[~mask] = INFEASIBLE
        if self._narrow:
            # Halves the memory, and speeds up the search.
            base = base.astype(np.int32)  # type: ignore[assignment]
        kept.base = base
        kept.best = BestScores(_totals(kept) if kept.raws else base)

    # --- changed nodes ----------------------------------------------------------------------------------------------

    def _catch_up(self, kept: CachedResult, pod: PodInfo) -> None:
        columns = self._columns
        version = columns.version
        if kept.version == version:
            return
        changed = columns.changed_since(kept.version)
        if changed is None or kept.size != columns.size or not self._redo(kept, pod, changed):
            self._fill(kept, pod)
            return
        if kept.raws:
            kept.best = BestScores(_totals(kept))
        self.reused += 1
        kept.version = version

    def _redo(self, kept: CachedResult, pod: PodInfo, changed: list[int]) -> bool:
        """False if a full evaluation is necessary or cheaper."""
        if len(changed) > FEW_NODES:
            # For so few, a set costs a fifth of np.unique.
            changed = sorted(set(changed))
            if len(changed) > FEW_NODES:
                return len(changed) * 2 <= kept.size and self._redo_some(kept, pod, np.array(changed, np.int64))
        return all(self._redo_one(kept, pod, slot) for slot in set(changed))

    def _redo_one(self, kept: CachedResult, pod: PodInfo, slot: int) -> bool:
        """False if a full evaluation is necessary."""
        node = self._columns.by_slot[slot]
        state = kept.prepared.state
        score = INFEASIBLE
        if node is not None and node.present:
            for name, plugin in kept.prepared.filters:
                status = plugin.filter(state, pod, node)
                if status is not None and not ok(name, status):
                    break
            else:
                score = kept.constant
                for one, weight in kept.plain:
                    score += one(state, pod, node) * weight
                for one in kept.silent:
                    if one(state, pod, node):
                        return False
            for scorer, raw in kept.raws if score != INFEASIBLE else ():
                raw[slot] = scorer.plugin.score(state, pod, node)
        if kept.raws:
            kept.base[slot] = score
        else:
            kept.best.set(slot, score)
        return True

    def _redo_some(self, kept: CachedResult, pod: PodInfo, slots: IntArray) -> bool:
        nodes = self._columns.some(slots)
        prepared = kept.prepared
        mask = fitting(prepared, pod, nodes)
        scores = np.full(len(slots), kept.constant, np.int64)
        raws = {raw.scorer: raw.scores for raw in kept.raws}
        for scorer in prepared.scorers:
            raw = raw_scores(scorer, prepared.state, pod, nodes, mask)
            if scorer.normalize is None:
                _check_range(scorer, raw, mask)
            if scorer in raws:
                raws[scorer][slots] = 0 if raw is None else raw
            elif raw is not None:
                if scorer.normalize is not None and raw.any():
                    return False
                scores += raw * scorer.weight
        scores[~mask] = INFEASIBLE
        if kept.raws:
            kept.base[slots] = scores
        else:
            kept.best.set_many(slots, scores)
        return True


def _totals(kept: CachedResult) -> IntArray:
    """`base` plus the normalised others; sets `tops`."""
    fits = np.flatnonzero(kept.base >= 0)
    totals = kept.base.copy()
    totals[fits], kept.tops = kept.totals_of(fits)
    return totals


def _check_range(scorer: Scorer, raw: IntArray | None, mask: BoolArray) -> None:
    if raw is not None and not getattr(scorer.plugin, "bounded", False) and mask.any():
        normalized(scorer, raw[mask], CycleState(), _NO_POD, int(np.count_nonzero(mask)))


_NO_POD = PodInfo.__new__(PodInfo)
