"""Why this node and not another: each node's verdict and scores, computed on demand.

Nothing is stored for it. It uses the current nodes without the pod in question: a running pod is evaluated as if it
were new.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minikube_py.api.errors import service_unavailable
from minikube_py.client.sharing import DROP, PUT
from minikube_py.errors import ASK_AGAIN
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.views import ClaimView as ResourceClaim
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.filtering import rejection
from minikube_py.scheduler.framework import (
    CODE_NAMES,
    SUCCESS,
    Code,
    Diagnosis,
    FitError,
    NoNodesAvailable,
    PluginError,
    Status,
)
from minikube_py.scheduler.objects import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, NodeInfo, PodInfo
from minikube_py.scheduler.plugins.default_preemption import Candidate, DefaultPreemption
from minikube_py.scheduler.preparing import Prepared, Rejected
from minikube_py.scheduler.scoring import weighed
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import ClaimView as VolumeClaim

if TYPE_CHECKING:
    from minikube_py.scheduler.decisions import Explanation
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

Json = dict[str, Any]
FIT = "NodeResourcesFit"


class Weighed(NamedTuple):
    """A plugin's raw score, normalised score and weight for a node."""

    plugin: str
    raw: int
    score: int
    weight: int


class Verdict(NamedTuple):
    """One node's result. `rejected`: the status of the first filter that rejected the pod; None if it fits. `total` is
    None if it does not fit. `kept_for`: the pods nominated to the node, if it is rejected because of them."""

    node: NodeInfo
    rejected: Status | None
    total: int | None
    scores: tuple[Weighed, ...] = ()
    kept_for: tuple[str, ...] = ()


def verdicts(evaluator: Evaluator, pod: PodInfo) -> list[Verdict]:
    """For all nodes: fitting ones first, by rank; the pod's own nominated node, if it fits, before the others.
    Raises: PluginError."""
    nodes = [node for node in evaluator.columns.by_slot if node is not None and node.present]
    try:
        prepared = evaluator.beside(pod)
    except Rejected as rejected:
        return [Verdict(node, rejected.status, None) for node in nodes]
    turned_down = {node.slot: _rejection(evaluator, prepared, pod, node) for node in nodes}
    fitting = [node for node in nodes if turned_down[node.slot] is None]
    scored = _scored(evaluator, prepared, pod, fitting)
    first = evaluator.tried_first(pod)
    scored.sort(key=lambda verdict: (verdict.node.name != first, -(verdict.total or 0)))
    others = [(node, turned_down[node.slot]) for node in nodes]
    kept_for = {node.slot: evaluator.rivals_on(pod, node) for node in nodes if node.slot in prepared.barred}
    return scored + [
        Verdict(node, status, None, kept_for=tuple(rival.key for rival in kept_for.get(node.slot, ())))
        for node, status in others
        if status is not None
    ]


def _rejection(evaluator: Evaluator, prepared: Prepared, pod: PodInfo, node: NodeInfo) -> Status | None:
    if prepared.node_names is not None and node.name not in prepared.node_names:
        listed = " ".join(sorted(prepared.pinned_by))
        text = f"node(s) didn't satisfy plugin(s) [{listed}]"
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text, plugin=listed)
    if node.slot in prepared.barred:
        return prepared.barred[node.slot]
    return rejection(prepared, prepared.state, pod, node, evaluator.columns)


def _scored(evaluator: Evaluator, prepared: Prepared, pod: PodInfo, fitting: Sequence[NodeInfo]) -> list[Verdict]:
    size, state = len(fitting), prepared.state
    if size > 1:
        prepared.require_scores()
    some = evaluator.columns.some(np.array([node.slot for node in fitting], np.int64))
    found: list[list[Weighed]] = [[] for _ in fitting]
    for scorer, raw, scores in weighed(prepared.scorers if size else (), state, pod, some, size):
        given = np.zeros(size, np.int64) if raw is None else raw
        for of_node, one, score in zip(found, given.tolist(), scores.tolist(), strict=True):
            of_node.append(Weighed(scorer.plugin.name, one, score, scorer.weight))
    totals = [sum(each.score * each.weight for each in of_node) for of_node in found]
    return [Verdict(node, None, total, tuple(given)) for node, total, given in zip(fitting, totals, found, strict=True)]


@contextmanager
def without(evaluator: Evaluator, pod: PodInfo, node_name: str) -> Iterator[None]:
    """Temporarily removes the pod from `node_name` ("": nowhere). No awaiting inside."""
    columns = evaluator.columns
    node = columns.by_name.get(node_name)
    if node is None or pod.uid not in node.pods:
        yield
        return
    counted, order = node.pods[pod.uid], list(node.pods)
    columns.remove_pod(counted, node_name)
    try:
        yield
    finally:
        columns.add_pod(counted, node_name)
        node = columns.by_name[node_name]  # Another one, if it is gone and this is its last pod.
        # Order decides which of equal pods preemption evicts.
        for uid in order:
            moved = node.pods[uid]
            DROP(node.pods, uid)
            PUT(node.pods, uid, moved)


# --- changes that would help ----------------------------------------------------------------------------------------


def changes(pod: PodInfo, found: Iterable[Verdict]) -> list[Json]:
    """By reason, what would make the pod pass; the most frequent reason first."""
    by_reason: dict[str, list[Verdict]] = {}
    for verdict in found:
        for reason in verdict.rejected.reasons if verdict.rejected is not None else ():
            by_reason.setdefault(reason, []).append(verdict)
    told = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return [{"nodes": len(of), "reason": reason, "change": _change(pod, reason, of)} for reason, of in told]


def _change(pod: PodInfo, reason: str, found: Sequence[Verdict]) -> str:
    kept = found[0]
    found = [verdict for verdict in found if not verdict.kept_for]
    if not found:
        return f"wait until {', '.join(kept.kept_for)}, nominated to {kept.node.name}, runs there or goes elsewhere"
    status = found[0].rejected
    plugin = status.plugin if status is not None else ""
    if plugin == FIT:
        resource = PODS if reason == "Too many pods" else reason.removeprefix("Insufficient ")
        wanted = 1 if resource == PODS else pod.spec.request(resource)
        nodes = [verdict.node for verdict in found]
        most = max(node.allocatable.get(resource, 0) for node in nodes)
        if most < wanted:
            return f"none of these nodes has more than {_amount(resource, most)}; request at most that"
        large = [node for node in nodes if node.allocatable.get(resource, 0) >= wanted]
        least, name = min((wanted - _free(node, resource), node.name) for node in large)
        return f"free {_amount(resource, least)} on {name}, which lacks the least, or request that much less"
    if plugin == "TaintToleration":
        return f"tolerate it, or take the taint off {found[0].node.name}"
    if plugin == "NodeUnschedulable":
        return f"uncordon {found[0].node.name}"
    if plugin in ("NodeAffinity", "NodeName"):
        return f"change the pod's node selector or affinity, or the labels of {found[0].node.name}"
    return f"{plugin} has to let it pass" if plugin else "the pod's constraints have to allow it"


def _free(node: NodeInfo, resource: str) -> int:
    return node.allocatable.get(resource, 0) - node.requested.get(resource, 0)


def _amount(resource: str, amount: int) -> str:
    """An amount with its resource: `32 CPUs`, `1500m CPU`, `16Gi of memory`, `3 nvidia.com/gpu`."""
    if resource == CPU:
        whole, rest = divmod(amount, 1000)
        return f"{amount}m CPU" if rest else f"{whole} CPU" + ("" if whole == 1 else "s")
    if resource not in (MEMORY, EPHEMERAL_STORAGE):
        return f"{amount} {resource}"
    unit = next((power for power in (4, 3, 2, 1) if amount and amount % 1024**power == 0), 0)
    text = f"{amount // 1024**unit}{('', 'Ki', 'Mi', 'Gi', 'Ti')[unit]}" if unit else f"{amount} bytes"
    return f"{text} of {resource}"


# --- preemption victims ---------------------------------------------------------------------------------------------


def victims_of(run: ProfileRun, pod: PodInfo, diagnosis: Diagnosis) -> Candidate | None:
    """The victims preemption would choose now, without evicting them or consuming random numbers."""
    plugin = run.profile.post_filters.get(DefaultPreemption.name)
    return plugin.candidate(pod, diagnosis) if isinstance(plugin, DefaultPreemption) else None


# --- as documents ---------------------------------------------------------------------------------------------------


def judged(run: ProfileRun, pod: PodInfo, limit: int, first: str = "") -> Json:
    """Where the pod would go now. `limit`: maximum nodes listed, and of the `tied` best ones, 0 for all.
    `first`: the node listed before higher-ranked ones. Raises: PluginError."""
    evaluator = run.evaluator
    found = verdicts(evaluator, pod)
    fitting = [verdict for verdict in found if verdict.total is not None]
    listed = sorted(found, key=lambda verdict: verdict.node.name != first) if first else found
    top = [verdict.node.name for verdict in fitting if verdict.total == fitting[0].total]
    if top and top[0] == evaluator.tried_first(pod):
        top = top[:1]
    document: Json = {
        "pod": pod.key,
        "best": top[: limit or None],
        "tied": len(top),
        "runnerUp": fitting[len(top)].node.name if len(fitting) > len(top) else "",
        "fits": len(fitting),
        "of": len(found),
        "nodes": [_node_json(verdict) for verdict in listed[: limit or None]],
    }
    if not fitting:
        document |= {"message": "", "changes": changes(pod, found), "preemption": None}
        try:
            evaluator.choose(pod)
        except NoNodesAvailable as error:
            document["message"] = error.message
        except FitError as error:
            document["message"] = error.message
            candidate = victims_of(run, pod, error.diagnosis)
            if candidate is not None:
                document["preemption"] = {
                    "node": candidate.node.name,
                    "victims": [{"pod": each.key, "priority": each.priority} for each in candidate.victims],
                    "budgetsViolated": candidate.violations,
                }
    return document


def _node_json(verdict: Verdict) -> Json:
    document: Json = {"node": verdict.node.name, "fits": verdict.rejected is None}
    if verdict.rejected is not None:
        status = verdict.rejected
        document |= {"plugin": status.plugin, "code": CODE_NAMES[status.code], "reasons": list(status.reasons)}
        return {**document, "keptFor": list(verdict.kept_for)} if verdict.kept_for else document
    return {
        **document,
        "total": verdict.total,
        "scores": [{**each._asdict(), "weighted": each.score * each.weight} for each in verdict.scores],
    }


def decision_json(number: int, explanation: Explanation) -> Json:
    """The recorded decision; scores are those of the chosen node at that time."""
    document: Json = {"decision": number, "atS": round(explanation.at_s, 6), "node": explanation.node}
    if not explanation.node:
        return {**document, "message": explanation.message}
    named = [{"plugin": name, "score": score, "weight": weight} for name, score, weight in explanation.scores]
    for name, at_s in (("queuedS", explanation.queued_s), ("startedS", explanation.started_s)):
        document[name] = None if at_s is None else round(at_s, 6)
    return {**document, "fits": explanation.feasible, "of": explanation.evaluated, "scores": named}


@contextmanager
def _supposed(scheduler: Scheduler, pod: PodInfo, claims: Sequence[Json]) -> Iterator[None]:
    """As if the pod was in its group, and controllers had made these claims from its templates. No awaiting inside."""
    places: list[tuple[dict[str, Any], Any]] = []
    for obj in claims:
        if obj["kind"] == "ResourceClaim":
            places.append((Devices.of(scheduler).supposed, ResourceClaim(obj)))
        else:
            places.append((Storage.of(scheduler).claims.supposed, VolumeClaim(obj)))
    for supposed, view in places:
        supposed[view.key] = view
    group = scheduler.groups.get(pod.group)
    joins = bool(pod.group) and (group is None or pod.uid not in group.pods)
    if joins:
        scheduler.groups.put(pod)
    try:
        yield
    finally:
        if joins:
            scheduler.groups.remove(pod)
        for supposed, view in places:
            supposed.pop(view.key, None)


def answer(
    scheduler: Scheduler,
    run: ProfileRun,
    pod: PodInfo,
    question: str,
    params: Mapping[str, str],
    claims: Sequence[Json] = (),
) -> Json:
    """`claims`: which controllers would make for the pod.

    Raises: PluginError; ValueError if a parameter is no integer, the decision is not recorded, or no scheduler would
    be asked; StatusError 503 if the pod is the first to need a kind, which is then read."""
    if question == "what-if" and pod.node_name:
        raise ValueError(f"its spec.nodeName is {pod.node_name}: it goes there without a scheduler; drop it to ask")
    limit = int(params.get("limit") or 0)
    needed = run.profile.kinds_needed(pod)
    if not scheduler.kinds.known(needed):
        unread = {kind.resource.plural: one for kind in needed if not (one := scheduler.kinds.of(kind)).has_synced()}
        told = [f"{plural} ({why})" if (why := unread[plural].problem) else plural for plural in sorted(unread)]
        raise service_unavailable(f"the scheduler has not read {', '.join(told)} yet: {ASK_AGAIN}")
    with _undisturbed(scheduler, run, pod), _supposed(scheduler, pod, claims):
        held = run.profile.run_pre_enqueue(pod) if question == "what-if" else SUCCESS
        try:
            document = judged(run, _unplaced(pod), limit, pod.node_name)
            if caveats := _caveats(scheduler, run, _unplaced(pod), document["fits"]):
                document["caveats"] = caveats
        except PluginError as error:
            nothing = {"best": [], "tied": 0, "runnerUp": "", "fits": 0, "of": scheduler.columns.count, "nodes": []}
            document = {"pod": pod.key, **nothing, "message": str(error), "changes": [], "preemption": None}
    if scheduler.extenders:
        # Extenders may count a query as granted. Which of them a pod concerns, its object says.
        concerned = scheduler.extenders.of(pod) if pod.body else scheduler.extenders.configs
        document["extendersNotAsked"] = [each.url_prefix for each in concerned]
        if run.rounds is not None and concerned:
            document["withoutFlow"] = "an extender is asked about it, so it is placed alone, by filters and scores"
    if question == "what-if":
        return document | ({} if held.is_success else {"heldBack": {"plugin": held.plugin, "reason": held.message}})
    document |= {"node": pod.node_name, "nowS": round(scheduler.clock.monotonic_s(), 6)}
    if pod.node_name and scheduler.node(pod.node_name) is None:
        document["nodeGone"] = f"node {pod.node_name} does not exist"
    numbers = scheduler.decisions.numbers_of(pod.uid)
    wanted = int(params["at"]) if params.get("at") else (numbers[-1] if numbers else None)
    if wanted is not None and wanted not in numbers:
        remembered = ", ".join(map(str, numbers)) or "none"
        raise ValueError(f"decision {wanted} on pod {pod.key} is not recorded; those recorded are: {remembered}")
    explanation = scheduler.decisions.explain(pod.uid, run.evaluator, wanted) if wanted is not None else None
    if run.rounds is not None and (placed := run.rounds.decision(pod.uid)) is not None:
        document["flow"] = {**placed._asdict(), "path": [step._asdict() for step in placed.path], "price": placed.price}
    document |= {**waits(scheduler, run, pod), "decisions": numbers}
    document["decision"] = None if explanation is None or wanted is None else decision_json(wanted, explanation)
    return document


def _caveats(scheduler: Scheduler, run: ProfileRun, pod: PodInfo, fits: int) -> list[str]:
    """Why the scheduler may choose another node than the best of all that fit. It sees all nodes that the pod names."""
    # Pods that concern extenders do not reach the rounds.
    if run.rounds is not None and not scheduler.extended.concerns(pod):
        return ["FlowPlacement chooses by the costs of a flow for all waiting pods, not by these scores"]
    wanted = run.evaluator.search.nodes_to_find(run.evaluator.columns.count)
    if fits > wanted and run.evaluator.beside(pod).node_names is None:
        return [f"an attempt ends once {wanted} nodes fit (percentageOfNodesToScore): the best may not be among them"]
    return []


def waits(scheduler: Scheduler, run: ProfileRun, pod: PodInfo) -> Json:
    """What keeps a pod from being tried or bound although nodes may fit: a plugin before the queue, at Permit or in
    PreBind; and the state of its group."""
    found: Json = {}
    queued, waiting = scheduler.queue.get(pod.key), scheduler.waiting_pods.get(pod.uid)
    running = scheduler.pre_bindings.get(pod.uid)
    if queued is not None and queued.gating_plugin:
        status = run.profile.run_pre_enqueue(pod)
        found["heldBack"] = {"plugin": status.plugin or queued.gating_plugin, "reason": status.message}
    elif waiting is not None:
        plugins = ", ".join(waiting.pending)
        found["heldBack"] = {"plugin": plugins, "reason": f"it has a place on {waiting.node_name} and waits at Permit"}
    elif running is not None:
        reason = f"it has a place on {running.node_name}, and is bound once PreBind has ended"
        found["heldBack"] = {"plugin": ", ".join(running.plugins), "reason": reason}
    if pod.group:
        group = scheduler.groups.get(pod.group)
        counts = (len(group.pods), group.scheduled_count) if group is not None else (0, 0)
        found["group"] = {"name": pod.group.partition("/")[2], "pods": counts[0], "scheduled": counts[1]}
    return found


def _unplaced(pod: PodInfo) -> PodInfo:
    """The pod without its node, which would exclude all others, and as if it had not waited for it."""
    found = copy.copy(pod)
    if pod.node_name:
        found.node_name = found.nominated_node = ""
    return found


@contextmanager
def _undisturbed(scheduler: Scheduler, run: ProfileRun, pod: PodInfo) -> Iterator[None]:
    """Without the pod, and restoring the random state: queries must not influence later decisions."""
    before = scheduler.rng.getstate()
    order = scheduler.columns.order
    start = 0 if order is None else order.next_start
    try:
        with without(run.evaluator, pod, pod.node_name or scheduler.cache.assumed_node(pod.uid)):
            yield
    finally:
        scheduler.rng.setstate(before)
        if order is not None:
            order.next_start = start
