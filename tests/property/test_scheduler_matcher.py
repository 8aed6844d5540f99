"""A scheduler whose nodes are found by an index decides as one that filters them all; with upstream's sampling too.

Both see the same changes; each places the same pods. Node for node they must agree, and where the plain
reference (`scheduler_reference`) says what is right, with that.
"""

from __future__ import annotations

import random
from copy import copy
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_reference import STEPS, Lent, Run, nodes, pod_of, specs

from minikube_py.index.catalogue import STRUCTURES, built_in
from minikube_py.index.structure import Box, Found
from minikube_py.index.structures.scan import Scan
from minikube_py.scheduler import cached_results, search, uncached
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.cached_results import CachedResults
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.filtering import fitting
from minikube_py.scheduler.framework import CycleState, FitError, NoNodesAvailable
from minikube_py.scheduler.matcher import Matcher
from minikube_py.scheduler.objects import NodeInfo, PodInfo, PodSpec, project_node, project_pod
from minikube_py.scheduler.profile import Profile
from minikube_py.scheduler.search import Search


def evaluator_over(cache: Cache, structure: Any, percentage: int, seed: int = 0) -> Evaluator:
    lent: Any = Lent(cache)
    matcher = Matcher(cache.columns, structure) if structure else None
    return Evaluator(Profile(ProfileConfig(), lent), cache.columns, random.Random(seed), percentage, matcher)


@pytest.mark.parametrize("structure", built_in())
@settings(max_examples=12)
@given(st.lists(nodes(), min_size=1, max_size=6), st.lists(specs(), min_size=4, max_size=4), STEPS, st.integers(0, 9))
def test_decisions_by_an_index_are_the_references(
    structure: str, first: list[dict[str, Any]], shapes: list[dict[str, Any]], steps: list[tuple[str, Any]], seed: int
) -> None:
    run = Run(seed)
    run.evaluator = evaluator_over(run.cache, structure, 100, seed)
    # Nothing is kept: every pod asks the index.
    with patch.object(CachedResults, "is_worth_keeping", lambda *_: False), patch.object(uncached, "PRUNED_FROM", 1):
        run.play(first, shapes, steps)


class Faulty(Scan):
    """Answers once, and fails then."""

    answered = False

    def find(self, box: Box, limit: int = 0) -> Found:
        if self.answered:
            raise KeyError("no such slot")
        self.answered = True
        return super().find(box, limit)


@settings(max_examples=12)
@given(st.lists(nodes(), min_size=1, max_size=6), st.lists(specs(), min_size=4, max_size=4), STEPS, st.integers(0, 9))
def test_a_structure_that_fails_is_let_go_and_decides_nothing(
    first: list[dict[str, Any]], shapes: list[dict[str, Any]], steps: list[tuple[str, Any]], seed: int
) -> None:
    run = Run(seed)
    run.evaluator = evaluator_over(run.cache, Faulty, 100, seed)
    with patch.object(CachedResults, "is_worth_keeping", lambda *_: False), patch.object(uncached, "PRUNED_FROM", 1):
        run.play(first, shapes, steps)
    matcher = run.evaluator.uncached.matcher
    assert matcher is not None
    assert not matcher.let_go or "no such slot" in matcher.let_go


AMOUNTS = (0, 1, 2, 999, 1000, 1001, (1 << 62) + 1, (1 << 63) - 1)
NUMBERS = ("0", "1", "7", "8", "9223372036854775807", "-9223372036854775808", "+7", "x", "")


@st.composite
def edges(draw: st.DrawFn) -> tuple[list[NodeInfo], list[PodInfo]]:
    """Nodes, and pods whose thresholds are what a node has, or next to it."""
    found, pods = [], []
    for i in range(draw(st.integers(1, 6))):
        node = NodeInfo(f"n{i}", f"n{i}")
        node.present = True
        node.allocatable = {"cpu": draw(st.sampled_from(AMOUNTS)), "pods": draw(st.sampled_from((0, 1, 3)))}
        if draw(st.booleans()):
            node.allocatable["gpu"] = draw(st.sampled_from(AMOUNTS))
        node.labels = draw(st.dictionaries(st.sampled_from(("size", "zone")), st.sampled_from(NUMBERS)))
        found.append(node)
    for i in range(draw(st.integers(1, 8))):
        requests = draw(st.dictionaries(st.sampled_from(("cpu", "gpu", "memory")), st.sampled_from(AMOUNTS[1:])))
        key, operator = draw(st.sampled_from(("size", "zone"))), draw(st.sampled_from(("Gt", "Lt", "In", "NotIn")))
        several = 4 if operator in ("In", "NotIn") else 1
        values = st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=several)
        terms = [
            {"matchExpressions": [{"key": key, "operator": operator, "values": draw(values)}]}
            for _ in range(draw(st.integers(1, 2)))
        ]
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec = PodSpec(tuple(requests.items()), 0, 0, affinity=affinity if draw(st.booleans()) else None)
        pods.append(PodInfo("d", f"p{i}", f"p{i}", spec))
    return found, pods


@settings(max_examples=60)
@given(edges(), st.sampled_from(sorted(built_in())))
def test_what_an_index_finds_is_what_the_filters_pass(
    drawn: tuple[list[NodeInfo], list[PodInfo]], structure: str
) -> None:
    cache = Cache()
    for node in drawn[0]:
        cache.put_node(node)
    evaluator = evaluator_over(cache, structure, 100)
    for i, pod in enumerate(drawn[1]):
        prepared = evaluator.prepare(pod)
        passing = np.flatnonzero(fitting(prepared, pod, cache.columns.all())).tolist()
        found = evaluator.uncached.matched(prepared, pod)
        assert found is not None and found.tolist() == passing
        # Whether it fits or not: more may be requested than there is.
        cache.assume(pod, drawn[0][i % len(drawn[0])].name)


def many_nodes(rng: random.Random, count: int) -> list[dict[str, Any]]:
    found = []
    for i in range(count):
        allocatable = {"cpu": str(rng.choice((1, 2, 8))), "memory": f"{rng.choice((1, 4))}Gi", "pods": "10"}
        if rng.random() < 0.3:
            allocatable["example.com/gpu"] = "2"
        labels = {"zone": rng.choice("ab"), "size": str(rng.randrange(20))}
        labels["topology.kubernetes.io/zone"] = labels["zone"]
        metadata = {"name": f"n{i}", "uid": f"n{i}", "labels": labels}
        found.append({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}})
    return found


@pytest.mark.parametrize("structure", built_in())
@pytest.mark.parametrize(
    ("expressions", "names"),
    (
        ([[("zone", "In", "a", "c")]], "n0 n2"),
        ([[("zone", "In", "a")], [("zone", "In", "c")]], "n0 n2"),
        ([[("zone", "In", "a", "b")], [("size", "Gt", "2")]], "n0 n1 n3"),
        ([[("zone", "In", "a", "b", "c"), ("size", "Lt", "2"), ("size", "Gt", "0")]], "n1"),
        ([[("size", "Gt", "0")], [("size", "Lt", "0")]], "n1 n2 n3"),
        ([[("zone", "NotIn", "a", "b")]], "n2 n3"),
        ([[("zone", "In", "elsewhere")]], ""),
    ),
)
def test_node_affinity_by_an_index(structure: str, expressions: list[list[tuple[str, ...]]], names: str) -> None:
    cache = Cache()
    for i, labels in enumerate(({"zone": "a", "size": "0"}, {"zone": "b", "size": "1"}, {"zone": "c", "size": "2"})):
        allocatable = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        metadata = {"name": f"n{i}", "uid": f"n{i}", "labels": labels}
        cache.put_node(project_node({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}))
    metadata = {"name": "n3", "uid": "n3", "labels": {"size": "3"}}
    cache.put_node(project_node({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}))
    terms = [
        {"matchExpressions": [{"key": key, "operator": op, "values": list(values)} for key, op, *values in term]}
        for term in expressions
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = project_pod(pod_of(1, {"containers": [], "affinity": affinity}))
    evaluator = evaluator_over(cache, structure, 100)
    found = evaluator.uncached.matched(evaluator.prepare(pod), pod)
    assert found is not None and [f"n{slot}" for slot in found] == names.split()


def half_of(node: dict[str, Any]) -> dict[str, Any]:
    """The spec of a pod that leaves both halves of a node alike: its score then reaches what bounds it."""
    allocatable = node["status"]["allocatable"]
    requests = {"cpu": f"{int(allocatable['cpu']) * 500}m", "memory": f"{int(allocatable['memory'][:-2]) * 512}Mi"}
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def wanted(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.4:
        tiny = {"cpu": "1m", "memory": f"{rng.randrange(1, 5000)}Ki"}
        return {"containers": [{"name": "c", "resources": {"requests": tiny}}]}
    requests = {"cpu": f"{rng.randrange(1, 3000)}m", "memory": f"{rng.randrange(1, 2000)}Mi"}
    if rng.random() < 0.3:
        requests["example.com/gpu"] = "1"
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if rng.random() < 0.5:
        number = {"key": "size", "operator": rng.choice(("Gt", "Lt")), "values": [str(rng.randrange(20))]}
        zone = {"key": "zone", "operator": rng.choice(("In", "NotIn")), "values": ["a"]}
        choices = [number], [number, zone], [zone]
        terms = [{"matchExpressions": rng.choice(choices)} for _ in range(rng.choice((1, 2)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


@pytest.mark.parametrize("percentage", (100, 0, 20))
@pytest.mark.parametrize("structure", ("scan", "columns", ""))
def test_every_way_to_search_leads_to_the_same_node(structure: str, percentage: int) -> None:
    """One keeps all and never asks an index; the other keeps nothing, and looks through windows or asks the index."""
    rng = random.Random(percentage)
    caches = Cache(), Cache()
    one, other = evaluator_over(caches[0], "", percentage), evaluator_over(caches[1], structure, percentage)
    placed: list[str] = []
    for obj in many_nodes(rng, 300):
        name = obj["metadata"]["name"]
        filler = copy(project_pod(pod_of(0, half_of(obj))))
        filler.uid = f"filler-{name}"
        for cache in caches:
            cache.put_node(project_node(obj))
            cache.assume(filler, name)
        placed.append(filler.uid)
    unplaced = 0
    with patch.object(search, "WINDOW_MIN", 8):
        for i in range(250):
            if placed and rng.random() < 0.25:
                uid = placed.pop(rng.randrange(len(placed)))
                for cache in caches:
                    cache.remove_pod(uid)
            if rng.random() < 0.02:
                name = f"n{rng.randrange(300)}"
                for cache in caches:
                    cache.remove_node(name)
            pod = project_pod(pod_of(i, wanted(rng)))
            with patch.object(cached_results, "MANY_NODES", 1000):
                node = chosen(one, pod)
            pruned = patch.multiple(uncached, PRUNED_FROM=1, FEW_PROMISING=2)
            with patch.object(cached_results, "MANY_NODES", 0), pruned:
                assert chosen(other, pod) == node
            if node is None:
                unplaced += 1
                continue
            for cache in caches:
                cache.assume(pod, node)
            placed.append(pod.uid)
    assert len(placed) > 200 and other.built > 200
    if structure:
        assert other.uncached.matcher is not None and other.uncached.matcher.asked > 20


def chosen(evaluator: Evaluator, pod: Any) -> str | None:
    try:
        return evaluator.choose(pod).node.name
    except (FitError, NoNodesAvailable):
        return None


@settings(max_examples=100)
@given(st.data(), st.integers(100, 300), st.integers(1, 60), st.integers(0, 400))
def test_a_search_through_windows_finds_what_one_among_all_finds(
    data: st.DataObject, size: int, percentage: int, start: int
) -> None:
    rng = random.Random(data.draw(st.integers(0, 999)))
    share, zones = rng.choice((0.02, 0.3, 0.9)), rng.choice((1, 3))
    fits = np.array([rng.random() < share for _ in range(size)])
    places = [f"z{rng.randrange(zones)}" for _ in range(size)]
    found = []
    for windows in (False, True):
        columns = NodeColumns()
        searching = Search(columns, percentage)
        for slot in range(size):
            node = NodeInfo(f"n{slot}")
            node.labels = {"topology.kubernetes.io/zone": places[slot]}
            columns.put_node(node)
        columns.ordered().bring_up_to_date()
        columns.ordered().next_start = start
        with patch.object(search, "WINDOW_MIN", rng.choice((1, 16))):
            for _ in range(3):
                if windows:
                    selected, seen = searching.through(lambda slots: fits[slots])
                else:
                    selected, seen = searching.among(np.flatnonzero(fits))
                found.append((windows, sorted(selected.tolist()), seen, columns.ordered().next_start))
    assert [each[1:] for each in found[:3]] == [each[1:] for each in found[3:]]


@settings(max_examples=50)
@given(st.lists(nodes(), min_size=1, max_size=6), st.lists(specs(), min_size=1, max_size=8))
def test_no_score_is_above_its_ceiling(objs: list[dict[str, Any]], shapes: list[dict[str, Any]]) -> None:
    """With pods on the node and without, in both forms."""
    cache = Cache()
    for obj in objs:
        cache.put_node(project_node(obj))
    lent: Any = Lent(cache)
    scorers = [s.plugin for s in Profile(ProfileConfig(), lent).looking.scorers if hasattr(s.plugin, "score_ceilings")]
    assert len(scorers) == 2
    state = CycleState()
    for i, shape in enumerate(shapes):
        pod = project_pod(pod_of(i, shape))
        found = list(cache.columns.by_name.values())
        some = cache.columns.some(np.array([node.slot for node in found]))
        for plugin in scorers:
            ceilings = [plugin.score_ceiling(node) for node in found]
            assert plugin.score_ceilings(some).tolist() == ceilings
            assert all(0 <= plugin.score(state, pod, node) <= c <= 100 for node, c in zip(found, ceilings))
        cache.assume(pod, found[i % len(found)].name)


def test_every_structure_of_the_family_is_a_matcher() -> None:
    for name in built_in():
        assert STRUCTURES[name].structure == name
        Matcher(Cache().columns, name)
