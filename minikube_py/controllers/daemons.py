"""Plans which daemon pods run on each node. Pure.

Source: k8s.io/kubernetes/pkg/controller/daemon (daemon_controller.go, update.go, util/daemonset_util.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.api.selectors import LabelRequirement
from minikube_py.client.rest import Object
from minikube_py.controllers.node_taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    tolerates,
)
from minikube_py.controllers.ranking import is_available
from minikube_py.controllers.revisions import POD_LABEL
from minikube_py.controllers.rollout import scaled
from minikube_py.controllers.views import NodeView, PodView, WorkloadView

GENERATION_LABEL: Final = "pod-template-generation"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
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
    for key, effect in more:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        standing = next((i for i, each in enumerate(found) if _alike(each, toleration)), None)
        if standing is None:
            found.append(toleration)
        else:
            found[standing] = toleration
    return found


def _alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all((left.get(name) or "") == (right.get(name) or "") for name in ("key", "effect", "operator", "value"))


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
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    wanted = {**of_nodes, _REQUIRED: {"nodeSelectorTerms": [term]}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": wanted}}


# --- nodes ------------------------------------------------------------------------------------------------------------


def _fits(spec: Mapping[str, Any], node: NodeView) -> bool:
    labels = node.labels
    if spec.get("nodeName") not in (None, "", node.name):
        return False
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    return required is None or any(_fits_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def _fits_term(term: Mapping[str, Any], node: NodeView) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    named = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in expressions) and all(_holds(each, named) for each in fields)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    op = _OPERATORS.get(expression.get("operator") or "")
    values = tuple(expression.get("values") or ())
    if op is None or (op in (">", "<") and not (len(values) == 1 and values[0].lstrip("-").isdigit())):
        return False
    return LabelRequirement(expression.get("key") or "", op, values).matches(labels)


def should_run(owner: WorkloadView, node: NodeView) -> tuple[bool, bool]:
    """Whether a pod should be created on the node, and whether an existing one may stay."""
    spec = owner.template.get("spec") or {}
    if not _fits(spec, node):
        return False, False
    tolerations = tolerations_of(spec)
    against = [each for each in node.taints if not any(tolerates(toleration, each) for toleration in tolerations)]
    hard = any(taint.get("effect") == NO_EXECUTE for taint in against)
    soft = hard or any(taint.get("effect") == NO_SCHEDULE for taint in against)
    return not soft, not hard


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
        run, stay = should_run(owner, node)
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


def roll(owner: WorkloadView, nodes: Mapping[str, NodeView], pods: Pods, revision: str, now_s: float) -> Plan:
    """Replaces the next pods of earlier revisions."""
    wanted = [name for name, node in nodes.items() if should_run(owner, node)[0]]
    surge, unavailable = bounds(owner, len(wanted))
    everywhere = {**pods, **{name: () for name in wanted if name not in pods}}
    if surge:
        return _roll_by_surge(owner, nodes, everywhere, revision, now_s, surge, len(wanted))
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
        run = node is not None and should_run(owner, node)[0]
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
    owner: WorkloadView, nodes: Iterable[NodeView], pods: Pods, revision: str, now_s: float
) -> dict[str, int]:
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberReady",
             "updatedNumberScheduled", "numberAvailable")  # fmt: skip
    status = dict.fromkeys(names, 0)
    for node in nodes:
        there = in_order(pods.get(node.name) or ())
        if not should_run(owner, node)[0]:
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
