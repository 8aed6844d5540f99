"""Which node is best for a pod: PreFilter, Filter, PreScore, Score and NormalizeScore over columns.

What was worked out for a pod is kept under its signature (KEP-5598). The next pod of that signature recomputes only the
nodes that the log of the columns names: after a bind, one. Unlike a cache that expires, this is exact: every change of
a node or of what runs on it is in the log, and only plugins that promise to look at nothing else (`node_local`) are
served so; one plugin without that promise, and each pod is evaluated afresh.

Of many nodes, a result is kept only when its signature comes a second time: what is worked out for one pod alone is
worked out for the nodes that fit, which a `Matcher` may find without a look at the others, and not for all.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from minikube_py.scheduler.best import INFEASIBLE, BestScores
from minikube_py.scheduler.ceilings import Ceilings, is_plain
from minikube_py.scheduler.columns import NodeColumns, Nodes
from minikube_py.scheduler.filtering import Prepared, Rejected, diagnose, ok, passed
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
from minikube_py.scheduler.kept import NO_TOPS, Kept, Raw
from minikube_py.scheduler.matcher import Matcher
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.profile import Profile, Scorer
from minikube_py.scheduler.search import Search

PRUNED_FROM = 2048
"""Of more nodes than this that fit, those that cannot be the best are left out before they are scored."""
FEW_PROMISING = 4
FEW_NODES = 12
"""Up to this many changed nodes, the per-node forms are cheaper than a pass over small arrays."""
KEPT_BYTES_MAX = 128 << 20
KEPT_MIN, KEPT_MAX = 8, 1024
INT32_MAX = (1 << 31) - 1
MANY_NODES = 4096
"""Above this, to evaluate the nodes that fit is so much cheaper than all, that a signature must come twice."""


class Choice(NamedTuple):
    """`evaluated` and `feasible` are numbers of nodes; `score` is INFEASIBLE where only one fitted: none was scored.

    `tops`: by plugin, the maximum by which its scores were normalised."""

    node: NodeInfo
    state: CycleState
    score: int
    evaluated: int
    feasible: int
    tops: Mapping[str, int]


class NodeScore(NamedTuple):
    """`scores`: (plugin, score after normalisation, weight)."""

    node: str
    total: int
    scores: tuple[tuple[str, int, int], ...]


class Evaluator:
    """`percentage_of_nodes_to_score`: 100 looks at all nodes; less, or 0 for the original's own choice, stops at that
    share of fitting nodes and starts the next pod's search where this one ended. Ties are broken by `rng`.

    With a `matcher` the decisions are the same as without."""

    def __init__(
        self,
        profile: Profile,
        columns: NodeColumns,
        rng: random.Random,
        percentage_of_nodes_to_score: int,
        matcher: Matcher | None = None,
    ) -> None:
        own = profile.percentage_of_nodes_to_score
        self.profile = profile
        self.columns = columns
        self.search = Search(columns, percentage_of_nodes_to_score if own is None else own)
        self.matcher = matcher
        self._rng = rng
        self._kept: OrderedDict[object, Kept] = OrderedDict()
        self._seen_once: OrderedDict[object, None] = OrderedDict()
        self._ceilings = Ceilings(columns, profile.scorers)
        self._asked_of_nodes: OrderedDict[object, Prepared] = OrderedDict()
        self._narrow = sum(scorer.weight for scorer in profile.scorers) * MAX_NODE_SCORE < INT32_MAX
        self.reused = self.built = 0

    # --- the decision -----------------------------------------------------------------------------------------------

    def choose(self, pod: PodInfo) -> Choice:
        """Raises: FitError, NoNodesAvailable, PluginError."""
        if not self.columns.count:
            raise NoNodesAvailable()
        try:
            signature = self.profile.sign(pod)
            if signature is None:
                return self._choose_afresh(pod, self._prepare(pod))
            kept = self._kept.get(signature)
            if kept is None:
                prepared = self._prepare(pod)
                if prepared.node_names is not None or not self._worth_keeping(signature):
                    return self._choose_afresh(pod, prepared)
                kept = self._keep(signature, prepared, pod)
            else:
                self._kept.move_to_end(signature)
                try:
                    self._catch_up(kept, pod)
                except Exception:
                    # Half of it may be new and half old: nobody may choose by it again.
                    del self._kept[signature]
                    raise
            return self._choose_kept(kept, pod)
        except Rejected as rejected:
            raise self._rejection(rejected) from None

    def _rejection(self, rejected: Rejected) -> FitError:
        diagnosis = Diagnosis(self.columns.count, pre_filter_message=rejected.status.message)
        diagnosis.unschedulable_plugins |= rejected.plugins
        diagnosis.add_plugin(rejected.status)
        if rejected.status.code is Code.UNSCHEDULABLE:
            diagnosis.unschedulable_nodes = self.columns.count
        return FitError(diagnosis)

    def _prepare(self, pod: PodInfo) -> Prepared:
        """Raises: Rejected, PluginError."""
        profile, columns = self.profile, self.columns
        state = CycleState()
        skipped: set[str] = set()
        pinning: set[str] = set()
        names: frozenset[str] | None = None
        rejection: Status | None = None
        for name, plugin in profile.pre_filters.items():
            result, status = plugin.pre_filter(state, pod, columns)
            if status is not None and not status.is_success:
                if status.code is Code.SKIP:
                    skipped.add(name)
                    continue
                status = Status(status.code, *status.reasons, plugin=name)
                if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                    raise Rejected(status, set())
                if not status.is_rejected:
                    raise PluginError(f'running PreFilter plugin "{name}": {status.message}')
                rejection = status
                continue
            if result is not None and result.node_names is not None:
                pinning.add(name)
                names = result.node_names if names is None else names & result.node_names
                if not names:
                    listed = " ".join(sorted(pinning))
                    text = f"node(s) didn't satisfy plugin {listed}"
                    if len(pinning) > 1:
                        text = f"node(s) didn't satisfy plugin(s) [{listed}] simultaneously"
                    raise Rejected(Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text), pinning)
        if rejection is not None:
            raise Rejected(rejection, pinning)
        state.skip_filter = frozenset(skipped)
        filters = tuple((name, plugin) for name, plugin in profile.filters.items() if name not in skipped)
        return Prepared(state, names, frozenset(pinning), filters, self._prepare_scores(pod, state))

    def _prepare_scores(self, pod: PodInfo, state: CycleState) -> tuple[Scorer, ...]:
        skipped: set[str] = set()
        for name, plugin in self.profile.pre_scorers.items():
            status = plugin.pre_score(state, pod, self.columns)
            if status is not None and not status.is_success:
                if status.code is not Code.SKIP:
                    raise PluginError(f'running PreScore plugin "{name}": {status.message}')
                skipped.add(plugin.name)
        state.skip_score = frozenset(skipped)
        return tuple(scorer for scorer in self.profile.scorers if scorer.plugin.name not in skipped)

    # --- evaluating many nodes --------------------------------------------------------------------------------------

    def _fitting(self, prepared: Prepared, pod: PodInfo, nodes: Nodes) -> BoolArray:
        mask: BoolArray = self.columns.present[nodes.index].copy()
        for name, plugin in prepared.filters:
            passing = passed(name, plugin, prepared.state, pod, nodes, mask)
            if passing is not None:
                mask &= passing
        return mask

    def _raw_scores(self, scorer: Scorer, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        many = getattr(scorer.plugin, "score_nodes", None)
        if many is not None:
            found: IntArray | None = many(state, pod, nodes)
            return found
        one = scorer.plugin.score
        return np.array([0 if node is None else one(state, pod, node) for node in nodes.infos()], np.int64)

    def _normalized(self, scorer: Scorer, raw: IntArray | None, state: CycleState, pod: PodInfo, size: int) -> IntArray:
        """As the plugin's NormalizeScore has it, checked to lie in 0..100."""
        scores = np.zeros(size, np.int64) if raw is None else raw
        own = getattr(scorer.plugin, "normalize_scores", None)
        if scorer.normalize is not None:
            scores = scorer.normalize.apply(scores)
        elif own is not None:
            scores = np.asarray(own(state, pod, scores), np.int64)
        if size and not (scores.min() >= 0 and scores.max() <= MAX_NODE_SCORE):
            wrong = int(scores.min()) if scores.min() < 0 else int(scores.max())
            text = f'plugin "{scorer.plugin.name}" returns an invalid score {wrong}'
            raise PluginError(f"{text}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing")
        return scores

    def _choose_afresh(self, pod: PodInfo, prepared: Prepared) -> Choice:
        columns = self.columns
        self.built += 1
        if prepared.node_names is not None:
            slots = np.array(sorted(columns.slots_of(prepared.node_names)), np.int64)
            selected, evaluated = self._fitting_of(prepared, pod, slots), len(slots)
        elif self.search.samples:
            everywhere = None if self.matcher is None else partial(self._matched, prepared, pod)
            selected, evaluated = self.search.through(partial(self._fitting_in, prepared, pod), everywhere)
        else:
            matched = self._matched(prepared, pod)
            selected = self._fitting_in(prepared, pod, 0, columns.size) if matched is None else matched
            evaluated = columns.count
        if not len(selected):
            raise FitError(diagnose(self.columns, pod, prepared))
        if len(selected) == 1:
            normalized = [scorer for scorer in prepared.scorers if scorer.normalize is not None]
            tops = {scorer.plugin.name: self._top_of_one(scorer, prepared, pod, selected) for scorer in normalized}
            return self._choice(int(selected[0]), prepared, INFEASIBLE, evaluated, 1, tops)
        shared = np.zeros(len(selected), np.int64)
        tops = {}
        for scorer in (scorer for scorer in prepared.scorers if not is_plain(scorer)):
            raw = self._raw_scores(scorer, prepared.state, pod, columns.some(selected))
            if raw is None and scorer.normalize is not None:
                shared += scorer.weight * (MAX_NODE_SCORE if scorer.normalize.reverse else 0)
                continue
            if raw is not None and scorer.normalize is not None:
                tops[scorer.plugin.name] = int(raw.max())
            shared += self._normalized(scorer, raw, prepared.state, pod, len(selected)) * scorer.weight
        left, totals = self._plain_totals(prepared, pod, selected, shared)
        position = self._pick(totals)
        return self._choice(int(left[position]), prepared, int(totals[position]), evaluated, len(selected), tops)

    def _plain_totals(
        self, prepared: Prepared, pod: PodInfo, slots: IntArray, shared: IntArray
    ) -> tuple[IntArray, IntArray]:
        """The slots that can be the best, in their order, and their totals: `shared` and the plain scores."""

        def totals_of(slots: IntArray, shared: IntArray) -> IntArray:
            some = self.columns.some(slots)
            totals = shared.copy()
            for scorer in filter(is_plain, prepared.scorers):
                raw = self._raw_scores(scorer, prepared.state, pod, some)
                totals += self._normalized(scorer, raw, prepared.state, pod, len(slots)) * scorer.weight
            return totals

        if len(slots) > PRUNED_FROM and self._ceilings.tight:
            most = self._ceilings.of(slots) + shared
            promising = np.flatnonzero(most == most.max())[:FEW_PROMISING].tolist()
            best = max(int(shared[i]) + self._plain_total_of(prepared, pod, int(slots[i])) for i in promising)
            left = np.flatnonzero(most >= best)
            slots, shared = slots[left], shared[left]
        return slots, totals_of(slots, shared)

    def _plain_total_of(self, prepared: Prepared, pod: PodInfo, slot: int) -> int:
        node = self.columns.by_slot[slot]
        plain = filter(is_plain, prepared.scorers)
        return sum(scorer.plugin.score(prepared.state, pod, node) * scorer.weight for scorer in plain)

    def _top_of_one(self, scorer: Scorer, prepared: Prepared, pod: PodInfo, slot: IntArray) -> int:
        """What the score of the only node that fits would be normalised by, for who asks why it was chosen."""
        raw = self._raw_scores(scorer, prepared.state, pod, self.columns.some(slot))
        return 0 if raw is None else int(raw[0])

    def _choice(
        self,
        slot: int,
        prepared: Prepared,
        score: int,
        evaluated: int,
        feasible: int,
        tops: Mapping[str, int] | None = None,
    ) -> Choice:
        node = self.columns.by_slot[slot]
        assert node is not None
        return Choice(node, prepared.state.clone(), score, evaluated, feasible, tops or NO_TOPS)

    def _pick(self, totals: IntArray) -> int:
        ties = np.flatnonzero(totals == totals.max())
        return int(ties[self._rng.randrange(len(ties))]) if len(ties) > 1 else int(ties[0])

    def _matched(self, prepared: Prepared, pod: PodInfo) -> IntArray | None:
        """The slots that fit, ascending, by the matcher; None where there is none, or it cannot help."""
        candidates = None if self.matcher is None else self.matcher.candidates(pod, prepared.filters)
        return None if candidates is None else self._fitting_of(prepared, pod, candidates)

    def _fitting_of(self, prepared: Prepared, pod: PodInfo, slots: IntArray) -> IntArray:
        return slots[self._fitting(prepared, pod, self.columns.some(slots))]

    def _fitting_in(self, prepared: Prepared, pod: PodInfo, start: int, stop: int) -> IntArray:
        found = np.flatnonzero(self._fitting(prepared, pod, self.columns.window(start, stop)))
        return found + start if start else found

    # --- what is kept -----------------------------------------------------------------------------------------------

    @property
    def _kept_max(self) -> int:
        return max(KEPT_MIN, min(KEPT_MAX, KEPT_BYTES_MAX // (4 * self.columns.capacity)))

    def _worth_keeping(self, signature: object) -> bool:
        """Among few nodes always, else from the second time on, if that comes soon enough to be kept until then. A
        matcher is there to be asked."""
        if self.matcher is None and self.columns.size <= MANY_NODES:
            return True
        if signature in self._seen_once:
            del self._seen_once[signature]
            return True
        self._seen_once[signature] = None
        while len(self._seen_once) > self._kept_max:
            self._seen_once.popitem(last=False)
        return False

    def _keep(self, signature: object, prepared: Prepared, pod: PodInfo) -> Kept:
        kept = Kept(prepared)
        self._fill(kept, pod)
        self._kept[signature] = kept
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return kept

    def _fill(self, kept: Kept, pod: PodInfo) -> None:
        """Evaluates all nodes."""
        self.built += 1
        columns, prepared = self.columns, kept.prepared
        nodes = columns.all()
        size = kept.size = columns.size
        kept.version = columns.version
        kept.diagnosis = None
        kept.plain, kept.silent, kept.raws, kept.constant = [], [], [], 0
        mask = self._fitting(prepared, pod, nodes)
        base = np.zeros(size, np.int64)
        for scorer in prepared.scorers:
            raw = self._raw_scores(scorer, prepared.state, pod, nodes)
            if scorer.normalize is None:
                self._check_range(scorer, raw, mask)
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
            # Half the memory of what is kept, and a faster search.
            base = base.astype(np.int32)  # type: ignore[assignment]
        kept.base = base
        kept.best = BestScores(self._totals(kept) if kept.raws else base)

    def _check_range(self, scorer: Scorer, raw: IntArray | None, mask: BoolArray) -> None:
        if raw is not None and not getattr(scorer.plugin, "bounded", False) and mask.any():
            self._normalized(scorer, raw[mask], CycleState(), _NO_POD, int(np.count_nonzero(mask)))

    def _totals(self, kept: Kept) -> IntArray:
        """`base` and the normalised others."""
        fits = kept.base >= 0
        totals = kept.base.copy()
        kept.tops = {scorer.plugin.name: int(raw[fits].max()) if fits.any() else 0 for scorer, raw in kept.raws}
        for scorer, raw in kept.raws:
            assert scorer.normalize is not None
            totals[fits] += scorer.normalize.apply(raw[fits]) * scorer.weight
        return totals

    def _catch_up(self, kept: Kept, pod: PodInfo) -> None:
        """Makes `kept` what evaluating all nodes would make it now."""
        columns = self.columns
        version = columns.version
        if kept.version == version:
            return
        changed = columns.changed_since(kept.version)
        if changed is None or kept.size != columns.size:
            self._fill(kept, pod)
            return
        if not self._redo(kept, pod, changed):
            self._fill(kept, pod)
            return
        if kept.raws:
            kept.best = BestScores(self._totals(kept))
        self.reused += 1
        kept.version = version

    def _redo(self, kept: Kept, pod: PodInfo, changed: list[int]) -> bool:
        """False where all must be done again, or had better be."""
        if len(changed) > FEW_NODES:
            # For so few, a set costs a fifth of what np.unique does.
            changed = sorted(set(changed))
            if len(changed) > FEW_NODES:
                return len(changed) * 2 <= kept.size and self._redo_some(kept, pod, np.array(changed, np.int64))
        return all(self._redo_one(kept, pod, slot) for slot in set(changed))

    def _redo_one(self, kept: Kept, pod: PodInfo, slot: int) -> bool:
        """False where all must be done again."""
        node = self.columns.by_slot[slot]
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
            for scorer, raw in kept.raws:
                raw[slot] = scorer.plugin.score(state, pod, node)
        if kept.raws:
            kept.base[slot] = score
        else:
            kept.best.set(slot, score)
        return True

    def _redo_some(self, kept: Kept, pod: PodInfo, slots: IntArray) -> bool:
        nodes = self.columns.some(slots)
        prepared = kept.prepared
        mask = self._fitting(prepared, pod, nodes)
        scores = np.full(len(slots), kept.constant, np.int64)
        raws = {raw.scorer: raw.scores for raw in kept.raws}
        for scorer in prepared.scorers:
            raw = self._raw_scores(scorer, prepared.state, pod, nodes)
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

    def _choose_kept(self, kept: Kept, pod: PodInfo) -> Choice:
        best = kept.best
        count = self.columns.count
        if self.search.samples:
            return self._choose_searched(kept, pod)
        slot = best.pick(self._rng)
        if slot < 0:
            raise FitError(self._kept_diagnosis(kept, pod))
        return self._choice(slot, kept.prepared, int(best.totals[slot]), count, best.feasible, kept.tops)

    def _choose_searched(self, kept: Kept, pod: PodInfo) -> Choice:
        base = kept.base
        selected, seen = self.search.through(lambda start, stop: np.flatnonzero(base[start:stop] >= 0) + start)
        if not len(selected):
            raise FitError(self._kept_diagnosis(kept, pod))
        totals = kept.base[selected].astype(np.int64)
        tops: dict[str, int] = {}
        for scorer, raw in kept.raws:
            assert scorer.normalize is not None
            tops[scorer.plugin.name] = int(raw[selected].max())
            totals += scorer.normalize.apply(raw[selected]) * scorer.weight
        position = self._pick(totals)
        return self._choice(int(selected[position]), kept.prepared, int(totals[position]), seen, len(selected), tops)

    def _kept_diagnosis(self, kept: Kept, pod: PodInfo) -> Diagnosis:
        if kept.diagnosis is None or kept.diagnosis[0] != kept.version:
            kept.diagnosis = kept.version, diagnose(self.columns, pod, kept.prepared)
        known = kept.diagnosis[1]
        return Diagnosis(
            known.node_count,
            dict(known.reasons),
            known.unschedulable_nodes,
            set(known.unschedulable_plugins),
            set(known.pending_plugins),
        )

    # --- one node ---------------------------------------------------------------------------------------------------

    def fits(self, pod: PodInfo, node_name: str) -> bool:
        """Whether the pod passes every node-local filter on that node as it is now."""
        node = self.columns.by_name.get(node_name)
        if node is None or not node.present:
            return False
        try:
            prepared = self._prepared_to_ask(pod)
        except Rejected:
            return False
        if prepared.node_names is not None and node_name not in prepared.node_names:
            return False
        for name, plugin in prepared.filters:
            if name in self.profile.local_plugins and callable(getattr(plugin, "filter", None)):
                status = plugin.filter(prepared.state, pod, node)
                if status is not None and not status.is_success:
                    return False
        return True

    def _prepared_to_ask(self, pod: PodInfo) -> Prepared:
        """For `fits`, which many waiting pods are put to whenever a node changes: what turns pods down most comes
        first, and what PreFilter said is kept where it depends on nothing but the pod. Raises: Rejected."""
        signature = self.profile.sign(pod)
        found = None if signature is None else self._asked_of_nodes.get(signature)
        if found is None:
            found = self._prepare(pod)
            first = sorted(found.filters, key=lambda each: not hasattr(each[1], "bounds"))
            found = found._replace(filters=tuple(first))
            if signature is not None:
                self._asked_of_nodes[signature] = found
                while len(self._asked_of_nodes) > KEPT_MAX:
                    self._asked_of_nodes.popitem(last=False)
        return found

    def score_one(self, pod: PodInfo, node: NodeInfo, tops: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """(plugin, score, weight) of a node that fits, given the maxima to normalise by."""
        prepared = self._prepare(pod)
        found = []
        for scorer in prepared.scorers:
            name = scorer.plugin.name
            one = getattr(scorer.plugin, "score", None)
            if one is None:
                continue
            score = one(prepared.state, pod, node)
            if scorer.normalize is not None:
                score = scorer.normalize.apply_one(score, tops.get(name, 0))
            found.append((name, score, scorer.weight))
        return tuple(found)

    def explain(self, pod: PodInfo, limit: int, chosen: NodeInfo | None = None) -> list[NodeScore]:
        """The best `limit` nodes, best first, with the score each plugin gives; `chosen` first if given.

        Works everything out again, on the nodes as they are now. Raises: FitError, PluginError."""
        try:
            prepared = self._prepare(pod)
        except Rejected as rejected:
            raise self._rejection(rejected) from None
        columns = self.columns
        nodes = columns.all()
        mask = self._fitting(prepared, pod, nodes)
        if prepared.node_names is not None:
            mask &= nodes.name_mask(prepared.node_names)
        fitting = np.flatnonzero(mask)
        if not len(fitting):
            raise FitError(diagnose(self.columns, pod, prepared))
        some = columns.some(fitting)
        parts = [
            (s, self._normalized(s, self._raw_scores(s, prepared.state, pod, some), prepared.state, pod, len(fitting)))
            for s in prepared.scorers
        ]
        totals = sum((scores * s.weight for s, scores in parts), np.zeros(len(fitting), np.int64))
        order = np.argsort(-totals, kind="stable").tolist()
        if chosen is not None:
            order.sort(key=lambda i: int(fitting[i]) != chosen.slot)
        found = []
        for i in order[:limit]:
            node = columns.by_slot[int(fitting[i])]
            assert node is not None
            scores = tuple((s.plugin.name, int(values[i]), s.weight) for s, values in parts)
            found.append(NodeScore(node.name, int(totals[i]), scores))
        return found


_NO_POD = PodInfo.__new__(PodInfo)
