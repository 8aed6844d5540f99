"""NodeAffinity and NodeName: the nodes that a pod requests.

Terms are ORed, the expressions of a term ANDed; an empty term matches nothing. `NotIn` and `DoesNotExist` match a node
without the label. `Gt` and `Lt` take one value and compare int64s; if either side is not an int64, nothing matches. An
invalid term matches nothing. Source: "Assigning Pods to Nodes"; component-helpers nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minikube_py.api.errors import aggregate
from minikube_py.scheduler.framework import (
    NODE,
    OF_NO_PODS,
    SKIP,
    Action,
    BoolArray,
    Bound,
    ClusterEvent,
    Code,
    CycleState,
    Dimension,
    DimensionKind,
    EventRegistration,
    IntArray,
    Normalize,
    PreFilterResult,
    Status,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.pod_terms import label_as_int
from minikube_py.scheduler.selector_terms import term_errors

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes

NOT_MATCHED = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")
CONFLICT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "pod affinity terms conflict")
WRONG_NAME = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match the requested node name")

_LABEL_OPERATORS = frozenset(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))


class Requirement(NamedTuple):
    """One expression on a label. `number` is the value of Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str]
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        operator = self.operator
        if operator == "In":
            return value in self.values
        if operator == "NotIn":
            return value is None or value not in self.values
        if operator == "Exists":
            return value is not None
        if operator == "DoesNotExist":
            return value is None
        number = label_as_int(value)
        if number is None:
            return False
        return number > self.number if operator == "Gt" else number < self.number

    def bound(self) -> Bound | None:
        """None if it has no bound: a missing label matches too, or any value does."""
        if self.operator == "In":
            return Bound(Dimension(DimensionKind.TEXT, self.key), values=self.values)
        if self.operator == "Gt":
            return Bound(Dimension(DimensionKind.NUMBER, self.key), low=self.number + 1)
        if self.operator == "Lt":
            return Bound(Dimension(DimensionKind.NUMBER, self.key), high=self.number - 1)
        return None

    def mask(self, nodes: Nodes) -> BoolArray:
        if self.operator in ("Gt", "Lt"):
            valid, numbers = nodes.label_ints(self.key)
            found: BoolArray = valid & (numbers > self.number if self.operator == "Gt" else numbers < self.number)
            return found
        if self.operator in ("Exists", "DoesNotExist"):
            exists = nodes.label_exists(self.key)
            return exists if self.operator == "Exists" else ~exists
        mask = np.zeros(len(nodes), np.bool_)
        for value in self.values:
            mask |= nodes.label_mask(self.key, value)
        return mask if self.operator == "In" else ~mask


class NameRequirement(NamedTuple):
    """One expression on a node field; the only field is metadata.name, others count as ""."""

    key: str
    value: str
    equal: bool

    def matches(self, name: str) -> bool:
        actual = name if self.key == "metadata.name" else ""
        return (actual == self.value) is self.equal

    def mask(self, nodes: Nodes) -> BoolArray:
        if self.key != "metadata.name":
            return np.full(len(nodes), self.matches(""), np.bool_)
        mask = nodes.name_mask((self.value,))
        return mask if self.equal else ~mask


class Term(NamedTuple):
    """All its requirements hold. `readable` is False for an invalid term, which the API should have rejected."""

    labels: tuple[Requirement, ...]
    names: tuple[NameRequirement, ...]
    readable: bool = True

    def matches(self, node: NodeInfo) -> bool:
        return (
            self.readable
            and all(requirement.matches(node.labels) for requirement in self.labels)
            and all(requirement.matches(node.name) for requirement in self.names)
        )

    def mask(self, nodes: Nodes) -> BoolArray:
        if not self.readable:
            return np.zeros(len(nodes), np.bool_)
        mask = np.ones(len(nodes), np.bool_)
        for requirement in self.labels:
            mask &= requirement.mask(nodes)
        for name in self.names:
            mask &= name.mask(nodes)
        return mask


class WeightedTerm(NamedTuple):
    weight: int
    term: Term


def _requirement(expression: Mapping[str, Any]) -> Requirement | None:
    """None if the expression violates its operator's rules."""
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in _LABEL_OPERATORS or (operator in ("In", "NotIn") and not values):
        return None
    if operator in ("Exists", "DoesNotExist") and values:
        return None
    bound = 0
    if operator in ("Gt", "Lt"):
        number = label_as_int(values[0]) if len(values) == 1 else None
        if number is None:
            return None
        bound = number
    return Requirement(expression.get("key", ""), operator, frozenset(values), bound)


def parse_term(term: Mapping[str, Any]) -> Term | None:
    """A nodeSelectorTerm; None if it is empty, and so matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return None
    labels = [_requirement(expression) for expression in expressions]
    names = []
    readable = not term_errors(term, "")
    for field in fields:
        values = field.get("values") or []
        if field.get("operator") not in ("In", "NotIn") or len(values) != 1:
            readable = False
            continue
        names.append(NameRequirement(field.get("key", ""), values[0], field["operator"] == "In"))
    return Term(tuple(r for r in labels if r is not None), tuple(names), readable)


def parse_selector(selector: Mapping[str, Any]) -> tuple[Term, ...]:
    """The terms of a nodeSelector that can match."""
    terms = (parse_term(term) for term in selector.get("nodeSelectorTerms") or ())
    return tuple(term for term in terms if term is not None)


def parse_preferred(terms: Sequence[Mapping[str, Any]]) -> tuple[WeightedTerm, ...]:
    found = []
    for item in terms:
        term = parse_term(item.get("preference") or {})
        if item.get("weight") and term is not None:
            found.append(WeightedTerm(item["weight"], term))
    return tuple(found)


def preferred_problem(terms: Sequence[Mapping[str, Any]]) -> str:
    """Upstream's PreScore error: the API accepts invalid preferences. "" if all are valid."""
    weighed = [(i, item.get("preference") or {}) for i, item in enumerate(terms) if item.get("weight")]
    found = [str(error) for i, preference in weighed for error in term_errors(preference, f"[{i}]")]
    return aggregate(found) if found else ""


def node_names_asked_for(required: Mapping[str, Any]) -> frozenset[str] | None:
    """The only nodes that a required selector can match by `metadata.name In`; None if a term does not name any."""
    terms = required.get("nodeSelectorTerms") or ()
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        pinned: frozenset[str] | None = None
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("operator") == "In":
                values = frozenset(field.get("values") or ())
                pinned = values if pinned is None else pinned & values
        if pinned is None:
            return None
        names |= pinned
    return frozenset(names)


def hull(terms: Sequence[Term]) -> Iterable[Bound]:
    """The bounds common to all terms, each as wide as the widest of them."""
    found: list[dict[Dimension, Bound]] = []
    for term in terms:
        own: dict[Dimension, Bound] = {}
        for bound in filter(None, (requirement.bound() for requirement in term.labels)):
            own[bound.dimension] = _both(own.get(bound.dimension, bound), bound)
        found.append(own)
    common = [each for each in found[0] if all(each in own for own in found)] if found else ()
    return [_widest([own[each] for own in found]) for each in common]


def _both(a: Bound, b: Bound) -> Bound:
    if a.values is not None and b.values is not None:
        return a._replace(values=a.values & b.values)
    return a._replace(low=max(a.low, b.low), high=min(a.high, b.high))


def _widest(bounds: Sequence[Bound]) -> Bound:
    """Of one dimension."""
    first = bounds[0]
    if first.values is not None:
        return first._replace(values=frozenset().union(*(each.values or () for each in bounds)))
    return first._replace(low=min(each.low for each in bounds), high=max(each.high for each in bounds))


class _Compiled(NamedTuple):
    """The parts of a pod's spec that concern this plugin. `required` None: no required affinity."""

    selector: tuple[tuple[str, str], ...]
    required: tuple[Term, ...] | None
    names: frozenset[str] | None
    preferred: tuple[WeightedTerm, ...] | None
    problem: str = ""


def compile_affinity(pod: PodInfo) -> _Compiled:
    found: _Compiled | None = pod.spec.cache.get("affinity")
    if found is None:
        affinity = pod.spec.affinity or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
        found = pod.spec.cache["affinity"] = _Compiled(
            pod.spec.node_selector,
            None if required is None else parse_selector(required),
            None if required is None else node_names_asked_for(required),
            None if preferred is None else parse_preferred(preferred),
            preferred_problem(preferred or ()),
        )
    return found


class NodeAffinity:
    """Filter: `nodeSelector` and required node affinity, plus the profile's `addedAffinity`. Score: the weights of the
    preferred terms that match."""

    name = "NodeAffinity"
    node_local = True
    of_pods = OF_NO_PODS
    normalize = Normalize()

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        added = (args or {}).get("addedAffinity") or {}
        required = added.get("requiredDuringSchedulingIgnoredDuringExecution")
        preferred = added.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        self.added_required = None if required is None else parse_selector(required)
        self.added_preferred = parse_preferred(preferred)

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.spec.affinity and not pod.spec.node_selector and self.added_required is None:
            return None, SKIP
        wanted = compile_affinity(pod)
        if wanted.required is None and not wanted.selector and self.added_required is None:
            return None, SKIP
        if wanted.names is None:
            return None, None
        return (PreFilterResult(wanted.names), None) if wanted.names else (None, CONFLICT)

    def bounds(self, pod: PodInfo) -> Iterator[Bound]:
        wanted = compile_affinity(pod)
        for key, value in wanted.selector:
            yield Bound(Dimension(DimensionKind.TEXT, key), values=frozenset((value,)))
        for terms in (wanted.required, self.added_required):
            if terms is not None:
                yield from hull(terms)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if self.added_required is not None and not any(term.matches(node) for term in self.added_required):
            return NOT_ENFORCED
        wanted = compile_affinity(pod)
        labels = node.labels
        for key, value in wanted.selector:
            if labels.get(key) != value:
                return NOT_MATCHED
        if wanted.required is not None and not any(term.matches(node) for term in wanted.required):
            return NOT_MATCHED
        return None

    def _enforced(self, nodes: Nodes) -> BoolArray | None:
        return None if self.added_required is None else _any(self.added_required, nodes)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        wanted = compile_affinity(pod)
        mask = self._enforced(nodes)
        if mask is None:
            mask = np.ones(len(nodes), np.bool_)
        for key, value in wanted.selector:
            mask &= nodes.label_mask(key, value)
        if wanted.required is not None:
            mask &= _any(wanted.required, nodes)
        return mask

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        enforced = self._enforced(nodes)
        codes = np.zeros(len(nodes), np.int64) if enforced is None else (~enforced).astype(np.int64)
        return codes, lambda code: NOT_ENFORCED if code else NOT_MATCHED

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        wanted = compile_affinity(pod) if pod.spec.affinity else None
        if wanted is not None and wanted.problem:
            return Status(Code.ERROR, wanted.problem)
        return None if self.added_preferred or (wanted is not None and wanted.preferred is not None) else SKIP

    def _preferred(self, pod: PodInfo) -> tuple[WeightedTerm, ...]:
        return (*self.added_preferred, *(compile_affinity(pod).preferred or ()))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return sum(weight for weight, term in self._preferred(pod) if term.matches(node))

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        scores = np.zeros(len(nodes), np.int64)
        for weight, term in self._preferred(pod):
            scores += term.mask(nodes) * weight
        return scores


def _any(terms: Sequence[Term], nodes: Nodes) -> BoolArray:
    mask = np.zeros(len(nodes), np.bool_)
    for term in terms:
        mask |= term.mask(nodes)
    return mask


class NodeName:
    """Filter: a pod that names its node fits only there. (Bound pods never reach the scheduler.)"""

    name = "NodeName"
    node_local = True
    of_pods = OF_NO_PODS

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        pass

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (EventRegistration(ClusterEvent(NODE, Action.ADD)),)

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.node_name

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        return None, None if pod.node_name else SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if not pod.node_name or pod.node_name == node.name else WRONG_NAME

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        return nodes.name_mask((pod.node_name,)) if pod.node_name else None

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        return np.ones(len(nodes), np.int64), lambda code: WRONG_NAME
