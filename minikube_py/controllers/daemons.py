"""Plans which daemon pods run on each node. Pure.

Source: k8s.io/kubernetes/pkg/controller/daemon (daemon_controller.go, update.go, util/daemonset_util.go).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from minikube_py.api.selectors import LabelRequirement
from minikube_py.api.tolerations import Tolerations, fields_of
from minikube_py.client.rest import Object
from minikube_py.controllers.node_taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    place_of,
)
from minikube_py.controllers.ranking import is_available
from minikube_py.controllers.revisions import POD_LABEL
from minikube_py.controllers.rollout import scaled
from minikube_py.controllers.views import Labels, NodeView, PodView, WorkloadView

GENERATION_LABEL: Final = "pod-template-generation"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_NAME: Final = "metadata.name"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}
_TOLERATED: Final = (
    (NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE), ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE), ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
)  # fmt: skip
Pods = Mapping[str, Sequence[PodView]]
"""By the node that they are bound or pinned to."""


# --- the pod ----------------------------------------------------------------------------------------------------------


def tolerations_of(spec: Mapping[str, Any]) -> list[Object]:
    """Its own tolerations, and those for node conditions, which do not evict daemon pods."""
    found = list(spec.get("tolerations") or ())
    more = (
        (*_TOLERATED, ("node.kubernetes.io/network-unavailable", NO_SCHEDULE))
        if spec.get("hostNetwork")
        else _TOLERATED
    )
    places: dict[tuple[str, str, str, str], int] = {}
    for i, each in enumerate(found):
        places.setdefault(fields_of(each), i)
    for key, effect in more:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        standing = places.get((key, "Exists", "", effect))
        if standing is None:
            found.append(toleration)
        else:
            found[standing] = toleration
    return found


def daemon_template(owner: WorkloadView, revision: str) -> Object:
    """The template with the fields common to all pods of this revision."""
    template = owner.template
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels = {**(metadata.get("labels") or {}), POD_LABEL: revision}
    if (generation := owner.annotations.get(TEMPLATE_GENERATION)) is not None:
        labels[GENERATION_LABEL] = generation
    return {
        **template,
        "metadata": {**metadata, "labels": labels},
        "spec": {**spec, "tolerations": tolerations_of(spec)},
    }


def pinned(spec: Mapping[str, Any], node: str) -> Object:
    """The pod spec restricted to `node`."""
    affinity = spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    term = {"matchFields": [{"key": _NAME, "operator": "In", "values": [node]}]}
    wanted = {**of_nodes, _REQUIRED: {"nodeSelectorTerms": [term]}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": wanted}}


# --- nodes ------------------------------------------------------------------------------------------------------------


class _Term(NamedTuple):
    expressions: list[LabelRequirement]
    fields: list[LabelRequirement]

    def holds(self, labels: Labels, named: Labels) -> bool:
        return all(e.matches(labels) for e in self.expressions) and all(f.matches(named) for f in self.fields)


class Eligible:
    """Which nodes the pods of a template may run on. There may be thousands of node terms, tolerations and nodes: the
    template is parsed once, terms are found by a label that they require, and a node is judged again only if its
    labels or taints have changed. `tried`: how many terms and taints were looked at."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self.template = template
        self.tried = 0
        self._spec: Mapping[str, Any] = template.get("spec") or {}
        self._tolerations = Tolerations(map(fields_of, tolerations_of(self._spec)))
        self._by_label: dict[tuple[str, str | None], list[_Term]] = {}
        self._by_name: dict[str, list[_Term]] = {}
        self._others: list[_Term] = []
        self._judged: dict[str, tuple[NodeView, tuple[bool, bool]]] = {}
        self._required = ((self._spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        for document in (self._required or {}).get("nodeSelectorTerms") or ():
            expressions = [_requirement(each) for each in document.get("matchExpressions") or ()]
            fields = [_requirement(each) for each in document.get("matchFields") or ()]
            # An empty term and one with a requirement that never holds match nothing.
            if (expressions or fields) and None not in expressions and None not in fields:
                self._add(_Term([e for e in expressions if e is not None], [f for f in fields if f is not None]))

    def _add(self, term: _Term) -> None:
        needed = [each for each in term.expressions if each.op not in ("notin", "!")]
        name = next((each.values for each in term.fields if each.op == "in"), None)
        if needed:
            one = min(needed, key=lambda each: each.op != "in")
            for value in dict.fromkeys(one.values) if one.op == "in" else (None,):
                self._by_label.setdefault((one.key, value), []).append(term)
        elif name is not None:
            for value in dict.fromkeys(name):
                self._by_name.setdefault(value, []).append(term)
        else:
            self._others.append(term)

    def __call__(self, node: NodeView) -> tuple[bool, bool]:
        """Whether a pod should be created on the node, and whether an existing one may stay."""
        known = self._judged.get(node.name)
        if known is None or known[0].labels != node.labels or known[0].taints != node.taints:
            known = self._judged[node.name] = node, self._judge(node)
        return known[1]

    def forget_others(self, nodes: Collection[str]) -> None:
        if len(self._judged) > 2 * len(nodes):
            self._judged = {name: told for name, told in self._judged.items() if name in nodes}

    def _judge(self, node: NodeView) -> tuple[bool, bool]:
        if not self._fits(node):
            return False, False
        self.tried += len(node.taints)
        against = {each.get("effect") for each in node.taints if place_of(self._tolerations, each) is None}
        hard = NO_EXECUTE in against
        return not (hard or NO_SCHEDULE in against), not hard

    def _fits(self, node: NodeView) -> bool:
        if self._spec.get("nodeName") not in (None, "", node.name):
            return False
        if any(node.labels.get(key) != value for key, value in (self._spec.get("nodeSelector") or {}).items()):
            return False
        return self._required is None or any(term.holds(node.labels, {_NAME: node.name}) for term in self._terms(node))

    def _terms(self, node: NodeView) -> Iterator[_Term]:
        """Those that may match the node."""
        found = [self._by_label.get((key, each), ()) for key, value in node.labels.items() for each in (value, None)]
        for term in chain(self._by_name.get(node.name, ()), *found, self._others):
            self.tried += 1
            yield term


def _requirement(expression: Mapping[str, Any]) -> LabelRequirement | None:
    """None if it never holds."""
    op = _OPERATORS.get(expression.get("operator") or "")
    values = tuple(expression.get("values") or ())
    if op is None or (op in (">", "<") and not (len(values) == 1 and values[0].lstrip("-").isdigit())):
        return None
    return LabelRequirement(expression.get("key") or "", op, values)


def bounds(owner: WorkloadView, desired: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable of a rolling update, as counts; (0, 0) without one."""
    strategy = owner.spec.get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge"), desired, up=True)
    unavailable = scaled(rolling.get("maxUnavailable"), desired, up=True)
    return surge, 1 if desired and not surge and not unavailable else unavailable


# --- plans ------------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Nodes that get a pod, pods to delete, and events for failed ones: (type, reason, message)."""

    nodes: list[str]
    going: list[PodView]
    said: list[tuple[str, str, str]]


def in_order(pods: Iterable[PodView]) -> list[PodView]:
    """Bound pods first, then by age."""
    return sorted(pods, key=lambda pod: (not pod.node, pod.created, pod.name))


def is_updated(owner: WorkloadView, pod: PodView, revision: str) -> bool:
    generation = owner.annotations.get(TEMPLATE_GENERATION)
    same = generation is not None and pod.labels.get(GENERATION_LABEL) == generation
    return same or pod.labels.get(POD_LABEL) == revision


def manage(
    owner: WorkloadView,
    eligible: Eligible,
    nodes: Iterable[NodeView],
    pods: Pods,
    revision: str,
    now_s: float,
    held: Callable[[str], bool],
) -> Plan:
    """One pod on each node that should run it, and none elsewhere. `held`: a failed pod on the node is kept for now."""
    plan = Plan([], [], [])
    known = set()
    for node in nodes:
        known.add(node.name)
        run, stay = eligible(node)
        there = pods.get(node.name) or ()
        if run and not there:
            plan.nodes.append(node.name)
        elif stay:
            _keep_one(owner, node.name, there, revision, now_s, run, held, plan)
        else:
            plan.going.extend(pod for pod in there if not pod.deleting)
    lost = (pod for name, there in pods.items() if name not in known for pod in there)
    plan.going.extend(pod for pod in lost if not pod.node)
    return plan


def _keep_one(
    owner: WorkloadView,
    node: str,
    there: Sequence[PodView],
    revision: str,
    now_s: float,
    run: bool,
    held: Callable[[str], bool],
    plan: Plan,
) -> None:
    alive: list[PodView] = []
    for pod in there:
        if pod.deleting:
            continue
        if not pod.terminal:
            alive.append(pod)
            continue
        failed = pod.phase == "Failed"
        if failed and held(node):
            continue
        what = f"Found {pod.phase.lower()} daemon pod {pod.namespace}/{pod.name} on node {node}, will try to "
        kind, reason = ("Warning", "FailedDaemonPod") if failed else ("Normal", "SucceededDaemonPod")
        plan.said.append((kind, reason, what + ("kill it" if failed else "delete it")))
        plan.going.append(pod)
    alive = in_order(alive)
    if not bounds(owner, 1)[0]:
        plan.going.extend(alive[1:])
        return
    if len(alive) <= 1:
        if not alive and run:
            plan.nodes.append(node)
        return
    new = [pod for pod in alive if pod.labels.get(POD_LABEL) == revision]
    old = [pod for pod in alive if pod.labels.get(POD_LABEL) != revision]
    plan.going.extend(new[1:] + old[1:])
    if new and old and (not old[0].ready or is_available(new[0], owner.min_ready_s, now_s)):
        plan.going.append(old[0])


def roll(
    owner: WorkloadView, eligible: Eligible, nodes: Mapping[str, NodeView], pods: Pods, revision: str, now_s: float
) -> Plan:
    """Replaces the next pods of earlier revisions."""
    wanted = [name for name, node in nodes.items() if eligible(node)[0]]
    surge, unavailable = bounds(owner, len(wanted))
    everywhere = {**pods, **{name: () for name in wanted if name not in pods}}
    if surge:
        return _roll_by_surge(owner, eligible, nodes, everywhere, revision, now_s, surge, len(wanted))
    missing, broken, candidates = 0, [], []
    for there in everywhere.values():
        found = _new_and_old(owner, there, revision)
        if found is None or (found[0] is None) == (found[1] is None):
            missing += 1
            continue
        new, old = found
        if new is not None:
            missing += not is_available(new, owner.min_ready_s, now_s)
        elif old is not None and not is_available(old, owner.min_ready_s, now_s):
            broken.append(old)
            missing += 1
        elif old is not None and missing < unavailable:
            candidates.append(old)
    return Plan([], broken + candidates[: max(unavailable - missing, 0)], [])


def _roll_by_surge(
    owner: WorkloadView,
    eligible: Eligible,
    nodes: Mapping[str, NodeView],
    pods: Pods,
    revision: str,
    now_s: float,
    surge: int,
    desired: int,
) -> Plan:
    going: list[PodView] = []
    unwanted: list[PodView] = []
    allowed: list[str] = []
    candidates: list[str] = []
    surging = available = 0
    for name, there in pods.items():
        found = _new_and_old(owner, there, revision)
        if found is None:
            surging += 1
            continue
        new, old = found
        shown = old if old is not None else new
        available += shown is not None and is_available(shown, owner.min_ready_s, now_s)
        if old is None:
            continue
        if new is not None:
            if is_available(new, owner.min_ready_s, now_s):
                going.append(old)
            else:
                surging += 1
            continue
        node, well = nodes.get(name), is_available(old, owner.min_ready_s, now_s)
        run = node is not None and eligible(node)[0]
        if not run:
            (unwanted if well else going).append(old)
        elif not well:
            allowed.append(name)
        elif surging < surge:
            candidates.append(name)
    going += unwanted[: max(available - desired, 0)]
    return Plan(allowed + candidates[: max(surge - surging, 0)], going, [])


def _new_and_old(
    owner: WorkloadView, there: Sequence[PodView], revision: str
) -> tuple[PodView | None, PodView | None] | None:
    """The new and the old pod; None if there are several of either."""
    alive = [pod for pod in there if not pod.deleting]
    new = [pod for pod in alive if is_updated(owner, pod, revision)]
    old = [pod for pod in alive if not is_updated(owner, pod, revision)]
    if len(new) > 1 or len(old) > 1:
        return None
    return new[0] if new else None, old[0] if old else None


def status_of(
    owner: WorkloadView, eligible: Eligible, nodes: Iterable[NodeView], pods: Pods, revision: str, now_s: float
) -> dict[str, int]:
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberReady",
             "updatedNumberScheduled", "numberAvailable")  # fmt: skip
    status = dict.fromkeys(names, 0)
    for node in nodes:
        there = in_order(pods.get(node.name) or ())
        if not eligible(node)[0]:
            status["numberMisscheduled"] += bool(there)
            continue
        status["desiredNumberScheduled"] += 1
        if there:
            status["currentNumberScheduled"] += 1
            status["numberReady"] += there[0].ready
            status["numberAvailable"] += is_available(there[0], owner.min_ready_s, now_s)
            status["updatedNumberScheduled"] += is_updated(owner, there[0], revision)
    status["numberUnavailable"] = status["desiredNumberScheduled"] - status["numberAvailable"]
    return status
