"""The laws of a scheduler plugin, each tested on a drawn cluster. A function raises Broken if its law does not hold."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.plugins.drawn import Case, Object, Words, drawn_case
from minikube_py.lab.plugins.world import Said, Subject, World, pods_of
from minikube_py.scheduler.best import INFEASIBLE
from minikube_py.scheduler.columns import ALWAYS, NodeColumns, Nodes
from minikube_py.scheduler.explaining import verdicts
from minikube_py.scheduler.framework import SUCCESS, FitError, NoNodesAvailable, PluginError, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo, PodSpec
from minikube_py.scheduler.own import Scope
from minikube_py.scheduler.preparing import Prepared
from minikube_py.scheduler.scoring import normalized, raw_scores

Law = Callable[[Subject, Case], None]


def raises_nothing(subject: Subject, case: Case) -> None:
    """It has a result for every pod and node, at every point that neither waits nor writes."""
    world = World.of(subject, case)
    for pod in pods_of(case.pods):
        try:
            world.says(pod)
            world.passes(pod)
        except PluginError as error:
            raise Broken("it raises nothing", f"pod {pod.name}: {error}") from error


def forms_agree(subject: Subject, case: Case) -> None:
    """The vectorised form agrees with the per-node form."""
    world = World.of(subject, case)
    plugin: Any = world.plugin
    for pod in pods_of(case.pods):
        prepared = world.prepared(pod)
        if prepared is None:
            continue
        slots = np.array([node.slot for node in world.nodes()], np.int64)
        if plugin.name in dict(prepared.filters) and hasattr(plugin, "filter_nodes"):
            _filters_agree(world, prepared, pod, world.columns.some(slots))
        if any(scorer.plugin is plugin for scorer in prepared.scorers) and hasattr(plugin, "score_nodes"):
            nodes = world.columns.some(world.feasible(prepared, pod))
            many = plugin.score_nodes(prepared.state, pod, nodes)
            told = np.zeros(len(nodes), np.int64) if many is None else many
            for node, score in zip(_infos(nodes), told.tolist(), strict=True):
                one = plugin.score(prepared.state, pod, node)
                _same("score and score_nodes agree", f"pod {pod.name}, node {node.name}", one, score)


def _filters_agree(world: World, prepared: Prepared, pod: PodInfo, nodes: Nodes) -> None:
    plugin: Any = world.plugin
    many = plugin.filter_nodes(prepared.state, pod, nodes)
    passes = np.ones(len(nodes), np.bool_) if many is None else many
    statuses = [plugin.filter(prepared.state, pod, node) or SUCCESS for node in _infos(nodes)]
    for node, status, passed in zip(_infos(nodes), statuses, passes.tolist(), strict=True):
        _same("filter and filter_nodes agree", f"pod {pod.name}, node {node.name}: passes", status.is_success, passed)
    if not hasattr(plugin, "reject_codes") or passes.all():
        return
    rejected = world.columns.some(np.array(list(nodes.slots()), np.int64)[~passes])
    codes, meaning = plugin.reject_codes(prepared.state, pod, rejected)
    by_name = {node.name: status for node, status in zip(_infos(nodes), statuses, strict=True)}
    for node, code in zip(_infos(rejected), codes.tolist(), strict=True):
        where = f"pod {pod.name}, node {node.name}"
        _same("filter and reject_codes agree", where, by_name[node.name], meaning(code))


def scores_are_in_range(subject: Subject, case: Case) -> None:
    """After normalisation the scores of fitting nodes are 0 to 100."""
    world = World.of(subject, case)
    for pod in pods_of(case.pods):
        prepared = world.prepared(pod)
        if prepared is None:
            continue
        slots = world.feasible(prepared, pod)
        for scorer in prepared.scorers:
            if scorer.plugin is world.plugin and len(slots):
                try:
                    raw = raw_scores(scorer, prepared.state, pod, world.columns.some(slots))
                    normalized(scorer, raw, prepared.state, pod, len(slots))
                except PluginError as error:
                    raise Broken("scores are 0 to 100", f"pod {pod.name}: {error}") from error


def what_is_local_is_local(subject: Subject, case: Case) -> None:
    """Results for a node do not depend on anything outside the declared scope."""
    world = World.of(subject, case)
    scope = world.plugin.scope
    if scope is Scope.CLUSTER:
        return
    keys = tuple(getattr(world.plugin.plugin, "topology_keys", ())) if scope is Scope.TOPOLOGY else ()
    pods = pods_of(case.pods)
    said = [world.says(pod) for pod in pods]
    for node in case.nodes:
        name = node["metadata"]["name"]
        other = World(subject, *_elsewhere(case, node, keys if scope is Scope.TOPOLOGY else None))
        for pod, before in zip(pods, said, strict=True):
            again = other.says(pod)
            if name in before and name in again:
                where = f"pod {pod.name}, node {name}, with another cluster around it"
                _same_said(f"what is {scope.value} depends on nothing beyond", where, before[name], again[name])


def _elsewhere(case: Case, node: Object, keys: tuple[str, ...] | None) -> tuple[list[Object], list[Object]]:
    """`node` and, by `keys`, its domain, among other nodes; and the pods running there."""

    def together(other: Object) -> bool:
        if keys is None:
            return False
        labels, own = other["metadata"]["labels"], node["metadata"]["labels"]
        return any(key in own and labels.get(key) == own[key] for key in keys)

    kept = [each for each in case.nodes if each is node or together(each)]
    kept += [each for each in case.others if not together(each)]
    names = {each["metadata"]["name"] for each in kept}
    return kept, [pod for pod in (*case.bound, *case.others_bound) if pod["spec"]["nodeName"] in names]


def equal_signatures_fare_alike(subject: Subject, case: Case) -> None:
    """Cached results of one pod hold for another with the same signature, after both were evaluated."""
    world = World.of(subject, case)
    sign = getattr(world.plugin, "sign_pod", None)
    if world.plugin.scope is not Scope.NODE or sign is None:
        return
    for one, other in combinations(pods_of(case.pods), 2):
        if one.spec is not other.spec:
            continue
        first, second = world.says(one), world.says(other)
        signed = sign(one)
        if signed is None or signed != sign(other):
            continue
        for name in sorted(first.keys() & second.keys()):
            told = f"pods {one.name} and {other.name}, node {name}"
            _same_said("pods with equal signatures get equal results", told, first[name], second[name])


def what_is_kept_is_right(subject: Subject, case: Case) -> None:
    """Consecutive decisions, each pod assumed on its node, against full recomputation."""
    world = World.of(subject, case)
    evaluator = world.evaluator
    for number, obj in enumerate((*case.pods, *case.pods)):
        (pod,) = pods_of([{**obj, "metadata": {**obj["metadata"], "uid": f"uid-{number}"}}])
        best = next((verdict.total for verdict in verdicts(evaluator, pod)), None)
        try:
            choice = evaluator.choose(pod)
        except (FitError, NoNodesAvailable):
            _same("cached results of nodes are right", f"pod {pod.name} fits", best is not None, False)
            continue
        if choice.score != INFEASIBLE:
            _same("cached results of nodes are right", f"pod {pod.name}, best total", best, choice.score)
        world.cache.assume(pod, choice.node.name)


def nothing_is_changed(subject: Subject, case: Case) -> None:
    """Plugins must not modify nodes and pods; a repeated call returns the same."""
    world = World.of(subject, case)
    for pod in pods_of(case.pods):
        before = state_of(world.columns, [pod])
        first = world.says(pod)
        after = state_of(world.columns, [pod])
        for what in before:
            _same("it changes no node and no pod", what, before[what], after[what])
        second = world.says(pod)
        for name in sorted(first.keys() & second.keys()):
            _same_said("a second call gives the same answer", f"pod {pod.name}, node {name}", first[name], second[name])


def state_of(columns: NodeColumns, pods: Iterable[PodInfo]) -> dict[str, object]:
    """What plugins and models must not change, copied: most of it refuses changes, and not all can."""
    found: dict[str, object] = {f"pod {pod.name}": (_parts(pod), _parts(pod.spec)) for pod in pods}
    found.update((f"node {node.name}", _parts(node)) for node in columns.by_slot if node is not None)
    for resource in ALWAYS:
        rows = columns.allocatable_row(resource), columns.requested_row(resource), columns.free_row(resource)
        found[f"the columns of {resource}"] = [row.tobytes() for row in rows]
    return found


def _parts(thing: PodInfo | PodSpec | NodeInfo) -> dict[str, object]:
    names = [name for each in type(thing).__mro__ for name in vars(each).get("__slots__", ())]
    parts = {name: getattr(thing, name) for name in names if name not in ("cache", "spec")}
    # Pods are compared by their uids, as another world has others.
    return {name: [*part] if name == "pods" else copy(part) for name, part in parts.items()}


BOOM: Final = "planted by the check"
_RAISING: Final = ("pre_filter", "filter", "filter_nodes", "pre_score", "score", "score_nodes", "normalize_scores")


def errors_are_the_pods(subject: Subject, case: Case) -> None:
    """An exception in a method becomes the Error of that pod, and later pods are still placed."""
    made = World.of(subject, case).plugin.plugin
    for method in _RAISING:
        if not callable(getattr(made, method, None)):
            continue
        world = World.of(replace(subject, own=subject.own._replace(make=_breaking(subject, method))), case)
        for pod in pods_of(case.pods):
            try:
                world.evaluator.choose(pod)
            except (FitError, NoNodesAvailable):
                continue
            except PluginError as error:
                if BOOM not in str(error) or subject.own.name not in str(error):
                    raise Broken("an exception is the pod's Error", f"{method}: {error}") from error
            except Exception as error:
                raise Broken("an exception is the pod's Error", f"{method}: {type(error).__name__}: {error}") from error


def _breaking(subject: Subject, method: str) -> Callable[..., Any]:
    def make(args: Mapping[str, Any], handle: Any) -> Any:
        plugin: Any = subject.own.make(args, handle)

        def broken(*_: Any) -> Any:
            raise RuntimeError(BOOM)

        setattr(plugin, method, plugin.guarded(method, broken))
        return plugin

    return make


def digest(subject: Subject, words: Words, seed: int, cases: int) -> str:
    """Digest of the plugin's results on drawn clusters: equal in every process."""
    found = hashlib.sha256()
    rng = random.Random(seed)
    for _ in range(cases):
        case = drawn_case(rng, words)
        world = World.of(subject, case)
        for pod in pods_of(case.pods):
            try:
                said = world.says(pod)
            except PluginError as error:
                found.update(str(error).encode())
                continue
            found.update("".join(f"{name} {each}\n" for name, each in said.items()).encode())
    return found.hexdigest()


def _infos(nodes: Nodes) -> list[NodeInfo]:
    return [node for node in nodes.infos() if node is not None]


def _same(law: str, where: str, one: object, other: object) -> None:
    if one != other:
        raise Broken(law, f"{where}: {_text(one)} and {_text(other)}")


def _same_said(law: str, where: str, one: Said, other: Said) -> None:
    _same(law, where, one.status, other.status)
    if one.score is not None and other.score is not None:
        _same(law, f"{where}: score", one.score, other.score)


def _text(value: object) -> str:
    return f"{value.code.name} {value.message!r}" if isinstance(value, Status) else repr(value)
