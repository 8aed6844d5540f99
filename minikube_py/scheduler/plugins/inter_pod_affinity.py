"""InterPodAffinity: required and preferred co-location with other pods, and separation from them.

The terms of the pod and of running pods are evaluated by counts that `scheduler.topology` maintains. All formulas are
upstream's, rounding included. Source: pkg/scheduler/framework/plugins/interpodaffinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from minikube_py.client.informer import Handler
from minikube_py.client.rest import NAMESPACES
from minikube_py.client.sharing import shared_labels
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
from minikube_py.scheduler.pod_terms import AffinityTerm, Labels, PodSelector, affinity_terms
from minikube_py.scheduler.topology import (
    REQUIRED_AFFINITY,
    REQUIRED_ANTI_AFFINITY,
    DomainCounts,
    Domains,
    Topology,
    by_number,
)

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes
    from minikube_py.scheduler.framework import Handle

NOT_NEAR = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match pod affinity rules")
NOT_APART = Status(Code.UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules")
NOT_WELCOME = Status(Code.UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules")
_FITS, _NOT_NEAR, _NOT_APART, _NOT_WELCOME = range(4)
_STATUSES: Final[tuple[Status | None, ...]] = (None, NOT_NEAR, NOT_APART, NOT_WELCOME)

PRE_FILTER = "PreFilterInterPodAffinity"
PRE_SCORE = "PreScoreInterPodAffinity"

Changes = Mapping[int, int]
_NO_CHANGES: Final[Changes] = {}


class Counted(NamedTuple):
    """Matching pods by domain. `changes`: by domain, the difference assumed by preemption."""

    domains: Domains
    counts: IntArray
    changes: Changes = _NO_CHANGES

    def any_at(self, slot: int) -> bool:
        """False for a node outside all domains."""
        domain = int(self.domains.of[slot])
        if domain < 0:
            return False
        count = int(self.counts[domain]) if domain < len(self.counts) else 0
        return count + self.changes.get(domain, 0) > 0

    def any_in(self, nodes: Nodes) -> BoolArray:
        """`any_at` for many nodes."""
        table = by_number(self.domains, self.counts) > 0
        for domain, change in self.changes.items():
            table[domain] = self.counts[domain] + change > 0
        return table[self.domains.of[nodes.index]]

    @property
    def total(self) -> int:
        return int(self.counts.sum()) + sum(self.changes.values())

    def changed(self, slot: int, by: int) -> Counted:
        domain = int(self.domains.of[slot])
        if domain < 0:
            return self
        return self._replace(changes={**self.changes, domain: self.changes.get(domain, 0) + by})


def summed(domains: Domains, parts: Sequence[IntArray]) -> IntArray:
    if len(parts) == 1:
        return parts[0]
    total = by_number(domains, parts[0])
    for part in parts[1:]:
        total += by_number(domains, part)
    return total[:-1]


class Wanted(NamedTuple):
    """The filter's state. `near`: the pods matched by all of the pod's own terms, by topology key; `apart`: those of
    each term; `against`: the pods whose anti-affinity matches it, by the terms' topology key."""

    near: tuple[Counted, ...]
    means_itself: bool
    apart: tuple[Counted, ...]
    against: Mapping[str, Counted]

    @property
    def begins(self) -> bool:
        """The first of its group: no pod it must be near exists, and it matches its own terms."""
        return self.means_itself and not any(counted.total for counted in self.near)

    def rejects(self, node: NodeInfo) -> int:
        """A code, _FITS if it passes."""
        slot = node.slot
        if any(counted.domains.of[slot] < 0 for counted in self.near):
            return _NOT_NEAR
        if not all(counted.any_at(slot) for counted in self.near) and not self.begins:
            return _NOT_NEAR
        if any(counted.any_at(slot) for counted in self.apart):
            return _NOT_APART
        return _NOT_WELCOME if any(counted.any_at(slot) for counted in self.against.values()) else _FITS

    def are_near(self, nodes: Nodes) -> BoolArray:
        mask = np.ones(len(nodes), np.bool_)
        begins = bool(self.near) and self.begins
        for counted in self.near:
            mask &= counted.domains.of[nodes.index] >= 0 if begins else counted.any_in(nodes)
        return mask


def none_in(some: Iterable[Counted], nodes: Nodes) -> BoolArray:
    mask = np.ones(len(nodes), np.bool_)
    for counted in some:
        mask &= ~counted.any_in(nodes)
    return mask


class NamespaceLabels:
    __slots__ = ("labels", "name", "uid")

    def __init__(self, name: str, uid: str, labels: Labels) -> None:
        self.name = name
        self.uid = uid
        self.labels = labels


def project_namespace(obj: Mapping[str, Any]) -> NamespaceLabels:
    metadata = obj["metadata"]
    return NamespaceLabels(metadata["name"], metadata.get("uid", ""), shared_labels(metadata.get("labels")))


class InterPodAffinity:
    """Filter: near pods matched by required affinity, away from those of anti-affinity, its own and others'. Score: the
    weights of preferred terms, the pod's own and those of running pods that match it."""

    name = "InterPodAffinity"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        args = args or {}
        self._hard_weight: int = args.get("hardPodAffinityWeight", 1)
        self._ignores_others = bool(args.get("ignorePreferredTermsOfExistingPods"))
        self._columns = handle.columns
        topology = self._columns.topology
        handle.informer(NAMESPACES, project_namespace).add_handler(
            Handler(
                lambda new: topology.put_namespace(new.name, new.labels),
                lambda _, new: topology.put_namespace(new.name, new.labels),
                lambda old: topology.remove_namespace(old.name),
            )
        )

    # --- filter -----------------------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        terms, topology = affinity_terms(pod), self._columns.topology
        if terms.problem:
            return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, f"parsing pod: {terms.problem}")
        carried: dict[str, list[IntArray]] = {}
        for one in topology.carried_against(pod):
            if one.kind == REQUIRED_ANTI_AFFINITY:
                counts = one.by_domain(topology.domains(one.term.topology_key)).counts
                if counts.any():
                    carried.setdefault(one.term.topology_key, []).append(counts)
        if not carried and not terms.affinity and not terms.anti_affinity:
            return None, SKIP
        # Only pods matched by all terms count as near.
        selectors = tuple(term.pods for term in terms.affinity)
        keys = dict.fromkeys(term.topology_key for term in terms.affinity)
        near = counted(topology, selectors, keys) if keys else ()
        apart = tuple(counted(topology, (term.pods,), (term.topology_key,))[0] for term in terms.anti_affinity)
        against = {}
        for key, parts in carried.items():
            domains = topology.domains(key)
            against[key] = Counted(domains, summed(domains, parts))
        state.write(PRE_FILTER, Wanted(near, self._all_mean(terms.affinity, pod), apart, against))
        return None, None

    def _means(self, selector: PodSelector, other: PodInfo) -> bool:
        known = self._columns.topology.namespaces
        return selector.covers(other.namespace, known) and selector.selector.matches(other.labels)

    def _all_mean(self, terms: Sequence[AffinityTerm], other: PodInfo) -> bool:
        return bool(terms) and all(self._means(term.pods, other) for term in terms)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted: Wanted = state.read(PRE_FILTER)
        return _STATUSES[wanted.rejects(node)]

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        wanted: Wanted = state.read(PRE_FILTER)
        return wanted.are_near(nodes) & none_in((*wanted.apart, *wanted.against.values()), nodes)

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        wanted: Wanted = state.read(PRE_FILTER)
        codes = np.full(len(nodes), _NOT_WELCOME, np.int64)
        codes[~none_in(wanted.apart, nodes)] = _NOT_APART
        codes[~wanted.are_near(nodes)] = _NOT_NEAR
        return codes, lambda code: (NOT_NEAR, NOT_APART, NOT_WELCOME)[code - 1]

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._suppose(state, pod, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._suppose(state, pod, removed, node, -1)
        return None

    def _suppose(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, by: int) -> None:
        wanted: Wanted = state.read(PRE_FILTER)
        terms, topology, slot = affinity_terms(pod), self._columns.topology, node.slot
        near = wanted.near
        if self._all_mean(terms.affinity, other):
            near = tuple(one.changed(slot, by) for one in near)
        apart = tuple(
            one.changed(slot, by) if self._means(term.pods, other) else one
            for term, one in zip(terms.anti_affinity, wanted.apart, strict=True)
        )
        against = dict(wanted.against)
        for term in affinity_terms(other).anti_affinity:
            covers = term.pods.covers_newcomer(pod.namespace, topology.namespaces)
            if covers and term.pods.selector.matches(pod.labels):
                key = term.topology_key
                if key not in against:
                    domains = topology.domains(key)
                    against[key] = Counted(domains, np.zeros(domains.size, np.int64))
                against[key] = against[key].changed(slot, by)
        state.write(PRE_FILTER, wanted._replace(near=near, apart=apart, against=against))

    # --- score ------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        own, topology = affinity_terms(pod).preferred, self._columns.topology
        if self._ignores_others and not own:
            return SKIP
        parts: dict[Domains, list[IntArray]] = {}

        def add(counts: DomainCounts, weight: int) -> None:
            if weight and counts.counts.any():
                parts.setdefault(counts.domains, []).append(counts.counts * weight)

        for term in own:
            asked = topology.asked((term.pods,))
            add(asked.by_domain(topology.domains(term.topology_key)), term.weight)
        for carried in topology.carried_against(pod):
            if carried.kind != REQUIRED_ANTI_AFFINITY:
                weight = self._hard_weight if carried.kind == REQUIRED_AFFINITY else carried.term.weight
                add(carried.by_domain(topology.domains(carried.term.topology_key)), weight)
        if not parts:
            return SKIP
        state.write(PRE_SCORE, [(domains, summed(domains, some)) for domains, some in parts.items()])
        return None

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        total = np.zeros(len(nodes), np.int64)
        for domains, scores in state.read(PRE_SCORE):
            total += by_number(domains, scores)[domains.of[nodes.index]]
        return total

    def normalize_scores(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        if not len(scores):
            return scores
        low, high = int(scores.min()), int(scores.max())
        if low == high:
            return np.zeros_like(scores)
        return (float(MAX_NODE_SCORE) * ((scores - low) / float(high - low))).astype(np.int64)

    # --- queueing hints ---------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            EventRegistration(ClusterEvent(POD, pods), _after_pod),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL), _after_node),
        )


def counted(topology: Topology, selectors: tuple[PodSelector, ...], keys: Iterable[str]) -> tuple[Counted, ...]:
    """The pods matched by all `selectors`, by each topology key; by those that no node has, once."""
    asked = topology.asked(selectors)
    found = dict.fromkeys(map(topology.domains, keys))
    return tuple(Counted(domains, asked.by_domain(domains).counts) for domains in found)


def _after_pod(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    old, new = change.old, change.new
    if old is not None and new is not None and new.uid == pod.uid:
        return QueueingHint.QUEUE
    if any(other is not None and not _has_node(other, change) for other in (old, new)):
        return QueueingHint.SKIP
    terms = affinity_terms(pod)
    if new is None:
        helps = _means_all(terms.anti_affinity, old) or _means_all(affinity_terms(old).anti_affinity, pod)
    elif old is None:
        helps = _means_all(terms.affinity, new)
    else:
        helps = not _means_all(terms.affinity, old) and _means_all(terms.affinity, new)
        helps |= _means_all(terms.anti_affinity, old) and not _means_all(terms.anti_affinity, new)
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _means_all(terms: Sequence[AffinityTerm], other: PodInfo) -> bool:
    return bool(terms) and all(term.pods.means(other) for term in terms)


def _has_node(other: PodInfo, change: ClusterChange) -> bool:
    return bool(change.event.resource == ASSIGNED_POD or other.node_name or other.nominated_node)


def _after_node(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    old, new, terms = change.old, change.new, affinity_terms(pod)
    if old is None:
        helps = bool(terms.anti_affinity) or any(term.topology_key in new.labels for term in terms.affinity)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP
    for some, comes in ((terms.affinity, True), (terms.anti_affinity, False)):
        for term in some:
            before, after = old.labels.get(term.topology_key), new.labels.get(term.topology_key)
            if before != after and (after if comes else before) is not None:
                return QueueingHint.QUEUE
    return QueueingHint.SKIP
