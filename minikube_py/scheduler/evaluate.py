"""Finds the best node for a pod, combining cached per-node results with plugins that look further.

A plugin that reads only the node and the pod declares so (`node_local`); results of these plugins are cached by
signature (`cached_results`). The others run for every pod, and for most pods their PreFilter and PreScore return Skip,
so the cache decides. Otherwise their filters and scores run over the nodes that pass the cached filters. A signature
not worth caching is `uncached`.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from minikube_py.scheduler.best import INFEASIBLE
from minikube_py.scheduler.cached_results import KEPT_MAX, Barred, CachedResult, CachedResults
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.dry_run import DryRuns, charge, copied
from minikube_py.scheduler.filtering import diagnose, fitting, fitting_of, fitting_slots, narrowed
from minikube_py.scheduler.framework import (
    MAX_NODE_SCORE,
    BoolArray,
    Code,
    CycleState,
    Diagnosis,
    FitError,
    IntArray,
    NoNodesAvailable,
    PluginError,
    Status,
)
from minikube_py.scheduler.lockstep import can_go_together
from minikube_py.scheduler.matcher import Matcher
from minikube_py.scheduler.nominations import Nominations, Rivals
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.preparing import Prepared, Rejected, both, prepare
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.scoring import Choice, scored
from minikube_py.scheduler.search import Search
from minikube_py.scheduler.uncached import Uncached, pick, score_of_one
from minikube_py.scheduler.waiting import needs

INT32_MAX = (1 << 31) - 1
_NO_RIVALS: Rivals = {}


class Evaluator:
    """`percentage_of_nodes_to_score`: 100 examines all nodes; less, or 0 for upstream's default, stops at that share of
    fitting nodes and starts the next pod's search there. Ties are broken by `rng`.

    A `matcher` does not change decisions."""

    def __init__(
        self,
        profile: Profile,
        columns: NodeColumns,
        rng: random.Random,
        percentage_of_nodes_to_score: int,
        matcher: Matcher | None = None,
        nominations: Nominations | None = None,
    ) -> None:
        own = profile.percentage_of_nodes_to_score
        self.profile = profile
        self.columns = columns
        columns.pods_are_read |= profile.reads_pods_of_nodes
        self._nominations = nominations if nominations is not None else Nominations()
        self.search = Search(columns, percentage_of_nodes_to_score if own is None else own)
        self.uncached = Uncached(columns, profile.kept.scorers, profile.kept_plugins, self.search, matcher, rng)
        self._rng = rng
        narrow = sum(scorer.weight for scorer in profile.kept.scorers) * MAX_NODE_SCORE < INT32_MAX
        apart = profile.kept_for_each, profile.kept_others
        self._results = CachedResults(columns, narrow, matcher is None, *apart)
        self._asked_of_nodes: OrderedDict[object, Prepared] = OrderedDict()
        self._has_beyond = bool(profile.beyond.by_name())
        self._has_wide = bool(profile.wide.by_name())
        self._shares_answers = profile.kept_plugins == profile.local_plugins and not profile.kept_for_each.by_name()

    @property
    def reused(self) -> int:
        """Number of decisions made from cached results."""
        return self._results.reused

    @property
    def built(self) -> int:
        """Number of times all nodes, or all that might fit, were evaluated for one pod."""
        return self._results.built + self.uncached.count

    def prepare(self, pod: PodInfo) -> Prepared:
        """Prepares all plugins of the profile. Raises: Rejected, PluginError."""
        return prepare(self.profile.looking, self.columns, pod)

    def begin(self) -> None:
        """A scheduling cycle begins. Raises: NoNodesAvailable."""
        if not self.columns.count:
            raise NoNodesAvailable()
        if self.columns.order is not None:
            self.columns.order.bring_up_to_date()

    # --- the decision -----------------------------------------------------------------------------------------------

    def choose(self, pod: PodInfo) -> Choice:
        """Raises: FitError, NoNodesAvailable, PluginError."""
        self.begin()
        try:
            rivals = self._nominations.rivals(pod) if self._nominations else _NO_RIVALS
            if self.tried_first(pod):
                return self._choose_nominated(pod, rivals)
            signature = self.profile.sign(pod)
            kept = None if signature is None else self._results.get(signature, pod)
            if kept is None:
                # In the profile's order, since the first plugin to reject the pod is reported.
                prepared = self.prepare(pod)
                alone = prepared.node_names is not None or signature is None or prepared.broken is not None
                if alone or not self._results.is_worth_keeping(signature):
                    return self.uncached.choose(pod, self._beside(prepared, pod, rivals))
                kept = self._results.keep(self.profile.sign, prepare(self.profile.kept, self.columns, pod), pod)
            state = kept.prepared.state.clone()
            if self._has_beyond or rivals:
                wide = prepare(self.profile.beyond, self.columns, pod, state)
                if rivals:
                    wide = wide._replace(barred=self._barred(kept, wide, pod, rivals))
                if not wide.is_idle:
                    return self._choose_beyond(kept, wide, pod)
            return self._choose_kept(kept, pod, state)
        except Rejected as rejected:
            raise self.rejection(rejected) from None

    def _choose_nominated(self, pod: PodInfo, rivals: Rivals) -> Choice:
        """The pod's own nominated node first, then those where its rivals leave room."""
        prepared = self.prepare(pod)
        own = self._beside(prepared, pod, {pod.nominated_node: rivals.get(pod.nominated_node, ())})
        slots = np.array(self.columns.slots_of((pod.nominated_node,)), np.int64)
        fits = fitting_of(own, pod, self.columns, slots)
        if len(fits):
            return self.uncached.only(pod, own, fits, 1)
        return self.uncached.choose(pod, self._beside(prepared, pod, rivals))

    def beside(self, pod: PodInfo) -> Prepared:
        """As `prepare`, minus nodes that nominated pods need. Raises: Rejected, PluginError."""
        return self._beside(self.prepare(pod), pod, self._nominations.rivals(pod))

    def _barred(self, kept: CachedResult, wide: Prepared, pod: PodInfo, rivals: Rivals) -> Mapping[int, Status]:
        """The nodes whose nominated pods leave no room, by slot: those of the last pod with this signature, unless one
        of the nodes changed, or a filter reads more than a node and its requests."""
        columns, known = self.columns, kept.barred
        if known is not None and not wide.filters and known.rivals == rivals:
            changed = columns.changed_since(known.version)
            if changed is not None and set(changed).isdisjoint((*columns.slots_of(rivals), *known.statuses)):
                kept.barred = known._replace(version=columns.version)
                return known.statuses
        joint = both(self.profile.looking, kept.prepared, wide)
        found = self._beside(joint, pod, rivals).barred
        kept.barred = Barred(columns.version, rivals, found) if can_go_together(joint) else None
        return found

    def _beside(self, prepared: Prepared, pod: PodInfo, rivals: Rivals) -> Prepared:
        """Bars those of the nodes whose nominated pods leave no room."""
        if not rivals:
            return prepared
        nodes = [node for name in rivals if (node := self.columns.by_name.get(name)) is not None and node.present]
        runs = DryRuns(prepared, self.profile.extensions, self.columns, pod, lambda node: rivals[node.name])
        return prepared._replace(barred=runs.with_rivals(nodes))

    def pick(self, totals: IntArray) -> int:
        """A random index of the highest total."""
        return pick(totals, self._rng)

    def _dry_runs(self, prepared: Prepared, pod: PodInfo) -> DryRuns:
        return DryRuns(prepared, self.profile.extensions, self.columns, pod, partial(self.rivals_on, pod))

    def dry_run(self, pod: PodInfo) -> DryRuns | None:
        """Trials of nodes without some of their pods; None if PreFilter rejects the pod.

        Raises: PluginError."""
        try:
            return self._dry_runs(self.prepare(pod), pod)
        except Rejected:
            return None

    def rejection(self, rejected: Rejected) -> FitError:
        diagnosis = Diagnosis(self.columns.count, pre_filter_message=rejected.status.message)
        diagnosis.unschedulable_plugins |= rejected.plugins
        diagnosis.add_plugin(rejected.status)
        if rejected.status.code is Code.UNSCHEDULABLE:
            diagnosis.unschedulable_slots = np.flatnonzero(self.columns.present[: self.columns.size]).tolist()
        return FitError(diagnosis)

    def _choose_kept(self, kept: CachedResult, pod: PodInfo, state: CycleState) -> Choice:
        best, count = kept.best, self.columns.count
        if self.search.samples:
            base = kept.base
            selected, seen = self.search.through(lambda slots: base[slots] >= 0)
            if not len(selected):
                raise FitError(self._kept_diagnosis(kept, pod))
            totals, tops = kept.totals_of(selected)
            place = pick(totals, self._rng)
            return Choice(self._node(selected[place]), state, int(totals[place]), seen, len(selected), tops)
        self.search.looked_at(count)
        slot = best.pick(self._rng)
        if slot < 0:
            raise FitError(self._kept_diagnosis(kept, pod))
        return Choice(self._node(slot), state, int(best.totals[slot]), count, best.feasible, kept.tops)

    def _choose_beyond(self, kept: CachedResult, wide: Prepared, pod: PodInfo) -> Choice:
        """Chooses among the nodes that pass the cached filters, by the remaining plugins."""
        columns, state = self.columns, wide.state
        if not (wide.scorers or wide.broken or kept.raws or wide.node_names is not None or self.search.samples):
            choice = self._choose_masked(kept, wide, pod)
            if choice is not None:
                return choice
        selected, evaluated = self._find_beyond(kept, wide, pod)
        if not len(selected):
            raise FitError(diagnose(columns, pod, both(self.profile.looking, kept.prepared, wide)))
        if len(selected) == 1:
            prepared = both(self.profile.looking, kept.prepared, wide)
            told = score_of_one(prepared, pod, columns, selected, self.profile.kept_plugins)
            return Choice(self._node(selected[0]), state, INFEASIBLE, evaluated, 1, *told)
        wide.require_scores()
        totals, tops = kept.totals_of(selected)
        nodes = columns.all() if len(selected) == columns.size else columns.some(selected)
        found = scored(wide.scorers, state, pod, nodes, len(selected), self.profile.kept_plugins)
        totals += found.totals
        place = pick(totals, self._rng)
        node, given = self._node(selected[place]), found.wide_of(place)
        return Choice(node, state, int(totals[place]), evaluated, len(selected), tops, given)

    def _choose_masked(self, kept: CachedResult, wide: Prepared, pod: PodInfo) -> Choice | None:
        """As `_choose_beyond`, where the remaining plugins only filter; None unless several nodes fit."""
        mask = self._fitting_beyond(kept, wide, pod)
        feasible = int(np.count_nonzero(mask))
        if feasible < 2:
            return None
        self.search.looked_at(self.columns.count)
        # -1, INFEASIBLE, where the mask is False: half the time of np.where.
        totals = kept.base | (mask.view(np.int8) - 1)
        slot = pick(totals, self._rng)
        return Choice(self._node(slot), wide.state, int(totals[slot]), self.columns.count, feasible)

    def _fitting_beyond(self, kept: CachedResult, wide: Prepared, pod: PodInfo) -> BoolArray:
        """Which slots pass the cached filters and the remaining ones."""
        columns, mask = self.columns, kept.base >= 0
        if 2 * kept.best.feasible >= columns.size:
            # A range of columns is read in place.
            return narrowed(mask, wide, pod, columns.all())
        slots = np.flatnonzero(mask)
        mask[slots] = fitting(wide, pod, columns.some(slots))
        return mask

    def _find_beyond(self, kept: CachedResult, wide: Prepared, pod: PodInfo) -> tuple[IntArray, int]:
        """The fitting slots, or as many as suffice, and the number of nodes examined."""
        columns, base = self.columns, kept.base
        if wide.node_names is not None:
            slots = np.array(sorted(columns.slots_of(wide.node_names)), np.int64)
            self.search.looked_at(len(slots))
            return fitting_of(wide, pod, columns, slots[base[slots] >= 0]), len(slots)

        def fits(slots: IntArray) -> BoolArray:
            mask: BoolArray = base[slots] >= 0
            mask[mask] = fitting(wide, pod, columns.some(slots[mask]))
            return mask

        if self.search.samples:
            return self.search.through(fits)
        self.search.looked_at(columns.count)
        return np.flatnonzero(self._fitting_beyond(kept, wide, pod)), columns.count

    def _node(self, slot: int | np.int64) -> NodeInfo:
        node = self.columns.by_slot[int(slot)]
        assert node is not None
        return node

    def _kept_diagnosis(self, kept: CachedResult, pod: PodInfo) -> Diagnosis:
        if kept.diagnosis is None or kept.diagnosis[0] != kept.version:
            kept.diagnosis = kept.version, diagnose(self.columns, pod, kept.prepared)
        known = kept.diagnosis[1]
        return Diagnosis(
            known.node_count,
            dict(known.reasons),
            list(known.unschedulable_slots),
            set(known.unschedulable_plugins),
            set(known.pending_plugins),
        )

    # --- one node ---------------------------------------------------------------------------------------------------

    def fits(self, pod: PodInfo, node_name: str) -> bool:
        """Whether the pod passes every node-local filter on the current node."""
        asked = self._asked(pod, node_name)
        return asked is not None and _passes(asked[0], pod, asked[1])

    def helps(self, pod: PodInfo, node_name: str) -> bool:
        """As `fits`, or without the pods it may preempt there: whether an attempt is worthwhile. Without a name:
        whether the pod passes all filters on any node."""
        if not node_name:
            return self._fits_any(pod)
        asked = self._asked(pod, node_name)
        return asked is not None and (_passes(asked[0], pod, asked[1]) or self._may_preempt(asked[0], pod, asked[1]))

    def _fits_any(self, pod: PodInfo) -> bool:
        try:
            return bool(len(fitting_slots(self.beside(pod), pod, self.columns)))
        except Rejected:
            return False

    def may_preempt_elsewhere(self, pod: PodInfo, node_name: str) -> bool:
        """Whether a change of this node, or without a name of any and at any time, may let the pod preempt on another:
        a filter that reads several nodes, such as that of spreading, takes part."""
        if pod.preemption_policy == "Never" or not self.profile.post_filters or not self._has_wide:
            return False
        if node_name and self.columns.lowest_priority() >= pod.priority:
            return False
        try:
            return bool(prepare(self.profile.wide, self.columns, pod).filters)
        except (Rejected, PluginError):
            return True

    def _asked(self, pod: PodInfo, node_name: str) -> tuple[Prepared, NodeInfo] | None:
        """None if the filters need not run on the node."""
        node = self.columns.by_name.get(node_name)
        if node is None or not node.present:
            return None
        try:
            prepared = self._prepared_to_ask(pod)
        except Rejected:
            return None
        if prepared.node_names is not None and node_name not in prepared.node_names:
            return None
        return prepared, node

    def needs(self, pod: PodInfo) -> dict[str, int]:
        """The free amounts that `helps` requires, regardless of device classes; empty if unknown."""
        if pod.spec.asks:
            return {}
        filters = self.profile.local.filters.values()
        return needs(bound for plugin in filters if hasattr(plugin, "bounds") for bound in plugin.bounds(pod))

    def _may_preempt(self, prepared: Prepared, pod: PodInfo, node: NodeInfo) -> bool:
        """Whether the pod fits without the pods of lower priority, so that an attempt may evict some, or nominate the
        pod to a node being vacated."""
        if pod.preemption_policy == "Never" or not self.profile.post_filters:
            return False
        promised = self._nominations.node_of(pod.uid)
        if promised and self._is_being_freed(prepared, pod, promised):
            return False
        below = _below(pod, node)
        if promised == node.name and all(other.deleting for other in below):
            return False
        emptied = _without(node, below)
        for rival in self.rivals_on(pod, node):
            if rival.uid not in emptied.pods:
                charge(emptied, rival, 1)
        return _passes(prepared, pod, emptied)

    def _is_being_freed(self, prepared: Prepared, pod: PodInfo, node_name: str) -> bool:
        """Whether the pod must wait because lower pods are being evicted from its nominated node. A node where it
        cannot fit anyway does not hold it back."""
        node = self.columns.by_name.get(node_name)
        if node is None or not node.present:
            return False
        below = _below(pod, node)
        return any(other.preempted for other in below) and _passes(prepared, pod, _without(node, below))

    def rivals_on(self, pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
        """The pods nominated to the node whose room `pod` must not take."""
        return [o for o in self._nominations.on(node.name) if o.priority >= pod.priority and o.uid != pod.uid]

    def tried_first(self, pod: PodInfo) -> str:
        """The nominated node, which is taken before a better one; "" if none."""
        return pod.nominated_node if self._nominations else ""

    def promised(self, pod: PodInfo) -> str:
        """The node that the pod is nominated to, or ""."""
        return self._nominations.node_of(pod.uid)

    def _prepared_to_ask(self, pod: PodInfo) -> Prepared:
        """The node-local filters, prepared once per signature; those with bounds, which reject most often, go first.
        Raises: Rejected, PluginError."""
        signature = self.profile.sign(pod) if self._shares_answers else None
        found = None if signature is None else self._asked_of_nodes.get(signature)
        if found is None:
            found = prepare(self.profile.local, self.columns, pod)
            first = sorted(found.filters, key=lambda each: not hasattr(each[1], "bounds"))
            found = found._replace(filters=tuple(first))
            if signature is not None:
                self._asked_of_nodes[signature] = found
                while len(self._asked_of_nodes) > KEPT_MAX:
                    self._asked_of_nodes.popitem(last=False)
        return found

    def score_one(
        self, pod: PodInfo, node: NodeInfo, tops: Mapping[str, int], wide: Mapping[str, int]
    ) -> tuple[tuple[str, int, int], ...]:
        """(plugin, score, weight) for a fitting node, given the normalisation maxima and the scores that depend on more
        than the node."""
        prepared = prepare(self.profile.kept, self.columns, pod)
        local = {scorer.plugin.name for scorer in prepared.scorers}
        found = []
        for scorer in self.profile.looking.scorers:
            name = scorer.plugin.name
            if name in wide:
                found.append((name, wide[name], scorer.weight))
            if name not in local or getattr(scorer.plugin, "score", None) is None:
                continue
            score = scorer.plugin.score(prepared.state, pod, node)
            if scorer.normalize is not None:
                score = scorer.normalize.apply_one(score, tops.get(name, 0))
            found.append((name, score, scorer.weight))
        return tuple(found)


def _below(pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
    return [other for other in node.pods.values() if other.priority < pod.priority]


def _without(node: NodeInfo, pods: Sequence[PodInfo]) -> NodeInfo:
    found = copied(node)
    for other in pods:
        charge(found, other, -1)
    return found


def _passes(prepared: Prepared, pod: PodInfo, node: NodeInfo) -> bool:
    for _, plugin in prepared.filters:
        if callable(getattr(plugin, "filter", None)):
            status = plugin.filter(prepared.state, pod, node)
            if status is not None and not status.is_success:
                return False
    return True
