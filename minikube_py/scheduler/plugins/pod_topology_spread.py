"""PodTopologySpread: spreads matching pods evenly over the domains of a label.

A hard constraint keeps a pod off domains that have too many already, a soft one prefers those with few. Both read
counts that `scheduler.topology` maintains. All formulas are upstream's, integers and rounding included.
Source: pkg/scheduler/framework/plugins/podtopologyspread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from minikube_py.api.label_selectors import NOTHING, InvalidSelector
from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    MAX_NODE_SCORE,
    NODE,
    POD,
    SKIP,
    Action,
    BoolArray,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    IntArray,
    PreFilterResult,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.plugins.spread_constraints import HARD, HOSTNAME, SOFT, Constraint, Constraints, counting
from minikube_py.scheduler.pod_terms import PodSelector
from minikube_py.scheduler.topology import NOBODY, Asked, DomainCounts, Domains, by_number

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes
    from minikube_py.scheduler.framework import Handle

NOT_MATCHED = Status(Code.UNSCHEDULABLE, "node(s) didn't match pod topology spread constraints")
NO_LABEL = Status(
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    "node(s) didn't match pod topology spread constraints (missing required label)",
)
_FITS, _NO_LABEL, _NOT_MATCHED = range(3)
_STATUSES: Final = (None, NO_LABEL, NOT_MATCHED)

PRE_FILTER = "PreFilterPodTopologySpread"
PRE_SCORE = "PreScorePodTopologySpread"
FOLLOWED_MAX: Final = 1024
IGNORED: Final = -1
FloatArray = np.ndarray[Any, np.dtype[np.float64]]
_NO_CHANGES: Final[Mapping[int, int]] = {}


class Followed(NamedTuple):
    """A constraint of pods of one namespace, and its counts."""

    constraint: Constraint
    asked: Asked
    view: DomainCounts


class Hard(NamedTuple):
    """A hard constraint of one pod. `most`: the highest count of a domain that still fits. `changes`: by domain, the
    difference assumed by preemption."""

    followed: Followed
    own: bool
    most: int
    changes: Mapping[int, int]

    def rejects(self, node: NodeInfo) -> int:
        """A code, _FITS if it passes."""
        view = self.followed.view
        domain = int(view.domains.of[node.slot])
        if domain < 0:
            return _NO_LABEL
        count = int(view.counts[domain]) if domain < len(view.counts) else 0
        return _FITS if count + self.changes.get(domain, 0) <= self.most else _NOT_MATCHED

    def by_domain(self) -> BoolArray:
        """Whether each domain fits, and False for nodes outside all domains, -1."""
        view = self.followed.view
        size, counts = view.domains.size, view.counts
        table = np.full(size + 1, self.most >= 0)
        known = min(size, len(counts))
        np.less_equal(counts[:known], self.most, out=table[:known])
        for domain, change in self.changes.items():
            table[domain] = counts[domain] + change <= self.most
        table[size] = False
        return table

    def fits(self, nodes: Nodes) -> BoolArray | None:
        """Whether `rejects` passes each of the nodes; None if it passes every node there is."""
        view = self.followed.view
        if not self.changes and view.domains.placed == nodes.columns.count and view.extremes()[1] <= self.most:
            return None
        return self.by_domain()[view.domains.of[nodes.index]]

    def codes(self, nodes: Nodes) -> IntArray:
        """`rejects` for many nodes."""
        of = self.followed.view.domains.of[nodes.index]
        return np.where(of < 0, _NO_LABEL, np.where(self.by_domain()[of], _FITS, _NOT_MATCHED))

    def changed(self, domain: int, by: int) -> Hard:
        changes = {**self.changes, domain: self.changes.get(domain, 0) + by}
        return judged(self.followed, self.own, changes)


def judged(followed: Followed, own: bool, changes: Mapping[int, int] = _NO_CHANGES) -> Hard:
    """`own`: whether the constraint counts the pod itself."""
    one, view = followed.constraint, followed.view
    if changes:
        counts = view.counts.copy()
        for domain, change in changes.items():
            counts[domain] += change
        least = int(counts[view.nodes > 0].min(initial=NOBODY))
    else:
        least = view.extremes()[0]
    if sum(view.tally.values()) < one.min_domains:
        least = 0
    return Hard(followed, own, one.max_skew + least - own, changes)


class PodTopologySpread:
    """Filter rejects a node without a constraint's label, or in a domain that would exceed the emptiest by more than
    `maxSkew` pods. Score: few matching pods in the node's domains; small domains weigh less."""

    name = "PodTopologySpread"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._columns = handle.columns
        self._constraints = Constraints(args or {}, handle)
        self._followed: OrderedDict[object, tuple[Followed, ...]] = OrderedDict()

    # --- counts -----------------------------------------------------------------------------------------------------

    def _follow(self, pod: PodInfo, constraints: tuple[Constraint, ...], requires_keys: bool) -> tuple[Followed, ...]:
        parts = tuple((c.key, c.honor_affinity, c.honor_taints, c.selector.requirements) for c in constraints)
        key = (pod.spec, pod.namespace, requires_keys, parts)
        topology = self._columns.topology
        found = self._followed.get(key)
        blank = not requires_keys
        if found is not None and all(
            # Once a node has the key, its domains are others.
            known.asked.is_kept and known.view.domains is topology.domains(known.constraint.key, blank)
            for known in found
        ):
            for known in found:
                topology.use(known.asked)
            return tuple(known._replace(constraint=c) for known, c in zip(found, constraints, strict=True))
        own = frozenset((pod.namespace,))
        # An empty selector covers every pod, but counts none.
        selectors = [PodSelector(own, None, one.selector or NOTHING) for one in constraints]
        asked = [topology.asked((selector,), living=True) for selector in selectors]
        keys = tuple(dict.fromkeys(one.key for one in constraints)) if requires_keys else ()
        made = []
        for one, about in zip(constraints, asked, strict=True):
            domains = topology.domains(one.key, blank)
            which = counting(pod, one, keys)
            eligible = None if which.holds is None else topology.eligible(which.key, which.holds)
            made.append(Followed(one, about, about.by_domain(domains, eligible)))
        self._followed[key] = found = tuple(made)
        while len(self._followed) > FOLLOWED_MAX:
            self._followed.popitem(last=False)
        return found

    # --- filter -----------------------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        try:
            constraints = self._constraints.of(pod, HARD)
        except InvalidSelector as error:
            why = f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
            return None, Status(Code.ERROR, why)
        if not constraints:
            return None, SKIP
        followed = self._follow(pod, constraints, requires_keys=True)
        matches = [one.constraint.selector.matches(pod.labels) for one in followed]
        state.write(PRE_FILTER, tuple(map(judged, followed, matches)))
        return None, None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        for hard in state.read(PRE_FILTER):
            code = hard.rejects(node)
            if code != _FITS:
                return _STATUSES[code]
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        mask: BoolArray | None = None
        for hard in state.read(PRE_FILTER):
            fits = hard.fits(nodes)
            if fits is not None:
                mask = fits if mask is None else mask & fits
        return mask

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        codes = np.zeros(len(nodes), np.int64)
        for hard in state.read(PRE_FILTER):
            codes = np.where(codes == _FITS, hard.codes(nodes), codes)
        return codes, lambda code: NO_LABEL if code == _NO_LABEL else NOT_MATCHED

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._suppose(state, pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._suppose(state, pod, removed, node, -1)
        return None

    def _suppose(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, by: int) -> None:
        hards: tuple[Hard, ...] = state.read(PRE_FILTER)
        if other.namespace != pod.namespace or any(h.followed.constraint.key not in node.labels for h in hards):
            return
        changed = []
        for hard in hards:
            domain = hard.followed.view.domain(node.slot)
            counts = domain >= 0 and hard.followed.constraint.selector.matches(other.labels)
            changed.append(hard.changed(domain, by) if counts else hard)
        state.write(PRE_FILTER, tuple(changed))

    # --- score ------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        try:
            constraints = self._constraints.of(pod, SOFT)
        except InvalidSelector as error:
            why = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}"
            return Status(Code.ERROR, why)
        if not constraints:
            return SKIP
        state.write(PRE_SCORE, self._follow(pod, constraints, self._constraints.requires_keys(pod)))
        return None

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        """`nodes` are all that passed the filters: the number of their domains matters."""
        topology, index = self._columns.topology, nodes.index
        soft: tuple[Followed, ...] = state.read(PRE_SCORE)
        labelled = [topology.domains(one.constraint.key) for one in soft]
        inside = [None if some.placed == self._columns.count else some.of[index] >= 0 for some in labelled]
        partly = [has for has in inside if has is not None]
        ignored = None
        if partly and self._constraints.requires_keys(pod):
            ignored = ~np.logical_and.reduce(partly)
        total: Any = 0
        for one, has in zip(soft, inside, strict=True):
            view = one.view
            if one.constraint.key == HOSTNAME:
                view = one.asked.by_domain(topology.nodes())
                size = len(nodes) if ignored is None else int(np.count_nonzero(~ignored))
            else:
                size = self._reached(view.domains, nodes, ignored)
            score: Any = by_number(view.domains, view.counts) * log(size + 2) + (one.constraint.max_skew - 1)
            if len(soft) == 1:
                score = _rounded(score)
            score = score[view.domains.of[index]]
            total = total + (score if has is None else np.where(has, score, 0))
        rounded: IntArray = total if len(soft) == 1 else _rounded(total)
        if ignored is not None:
            rounded[ignored] = IGNORED
        return rounded

    def _reached(self, domains: Domains, nodes: Nodes, ignored: BoolArray | None) -> int:
        """The number of domains that the nodes are in."""
        if ignored is None and len(nodes) == self._columns.count:
            return domains.in_use
        of = domains.of[nodes.index]
        of = of[of >= 0 if ignored is None else ~ignored]
        return int(np.count_nonzero(np.bincount(of))) if len(of) else 0

    def normalize_scores(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        ignored = scores == IGNORED if scores.min(initial=0) == IGNORED else None
        taken = scores if ignored is None else scores[~ignored]
        if not len(taken):
            return np.zeros_like(scores)
        low, high = int(taken.min()), int(taken.max())
        if high == 0:
            found = np.full_like(scores, MAX_NODE_SCORE)
        else:
            found = MAX_NODE_SCORE * (high + low - scores) // high
        if ignored is not None:
            found[ignored] = 0
        return found

    # --- queueing hints ---------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            EventRegistration(ClusterEvent(POD, pods), self._after_pod),
            EventRegistration(ClusterEvent(NODE, nodes), self._after_node),
        )

    def _after_pod(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        old, new = change.old, change.new
        if any(other is not None and not _concerns(other, pod, change) for other in (old, new)):
            return QueueingHint.SKIP
        constraints = self._constraints.of(pod, HARD)
        if old is not None and new is not None:
            tolerates_anew = pod.uid == new.uid and old.spec.tolerations != new.spec.tolerations
            helps = tolerates_anew and any(one.honor_taints for one in constraints)
            helps |= any(one.selector.matches(old.labels) != one.selector.matches(new.labels) for one in constraints)
        else:
            helps = any(one.selector.matches((old or new).labels) for one in constraints)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_node(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        old, new = change.old, change.new
        keys = [one.key for one in self._constraints.of(pod, HARD)]
        before = old is not None and all(key in old.labels for key in keys)
        after = new is not None and all(key in new.labels for key in keys)
        if old is None or new is None:
            helps = before or after
        elif before != after:
            helps = True
        else:
            moved = any(old.labels.get(key, "") != new.labels.get(key, "") for key in keys)
            helps = after and (moved or old.taints != new.taints)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _rounded(scores: FloatArray) -> IntArray:
    """Halves away from zero, as Go's math.Round; scores are not negative."""
    whole = np.trunc(scores)
    return (whole + (scores - whole >= 0.5)).astype(np.int64)


def _concerns(other: PodInfo, pod: PodInfo, change: ClusterChange) -> bool:
    """Whether it is the pod itself, or one of its namespace with a node."""
    if other.uid == pod.uid:
        return True
    placed = change.event.resource == ASSIGNED_POD or other.node_name or other.nominated_node
    return bool(placed) and other.namespace == pod.namespace
