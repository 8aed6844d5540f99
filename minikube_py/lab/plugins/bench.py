"""Compares a plugin's cost with the built-in ones, over the same nodes in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.lab.plugins.drawn import Object, Words, drawn_case
from minikube_py.lab.plugins.world import ALL, Subject, World, pods_of
from minikube_py.scheduler.filtering import passed
from minikube_py.scheduler.framework import CycleState
from minikube_py.scheduler.objects import PodInfo
from minikube_py.scheduler.own import Scope
from minikube_py.scheduler.preparing import Prepared
from minikube_py.scheduler.scoring import normalized, raw_scores

NODES: Final = 1000
PODS: Final = 5
ROUNDS: Final = 5
CASES: Final = 30


class Cost(NamedTuple):
    """CPU time in microseconds, the minimum of several rounds, averaged over some pods. `filter_us`, `score_us`: over
    all nodes; None if the plugin skips all of the pods. `vectorised`: whether it processes them all at once."""

    plugin: str
    nodes: int
    filter_us: float | None
    score_us: float | None
    vectorised: bool


def beside_the_others(subject: Subject, words: Words, seed: int) -> list[Cost]:
    rng = random.Random(seed)
    world = World(replace(subject, beside=ALL), _roomy(rng, words))
    asked: list[Object] = []
    while len(asked) < PODS:
        asked += drawn_case(rng, words).pods
    prepared = [(pod, found) for pod in pods_of(asked[:PODS]) if (found := world.prepared(pod)) is not None]
    names = list(world.profile.looking.by_name())
    costs = []
    for name in sorted(names, key=lambda each: each != subject.own.name):
        plugin: Any = world.profile.plugin(name)
        filtering = [(pod, p) for pod, p in prepared if name in dict(p.filters)]
        scoring = [(pod, p) for pod, p in prepared if any(s.plugin.name == name for s in p.scorers)]
        filter_us = _mean_us(filtering, partial(_filter, world, name, plugin))
        score_us = _mean_us(scoring, partial(_score, world, name))
        many = any(callable(getattr(plugin, form, None)) for form in ("filter_nodes", "score_nodes"))
        if filter_us is not None or score_us is not None:
            costs.append(Cost(name, NODES, filter_us, score_us, many))
    return costs


def _roomy(rng: random.Random, words: Words) -> list[Object]:
    """Drawn nodes that all have room: rejections are cheaper."""
    found: list[Object] = []
    while len(found) < NODES:
        for node in drawn_case(rng, words).nodes[: NODES - len(found)]:
            name = f"node-{len(found)}"
            allocatable = {**node["status"]["allocatable"], "cpu": "64", "memory": "256Gi", "pods": "110"}
            allocatable |= dict.fromkeys(words.resources, "8000")
            metadata = {**node["metadata"], "name": name, "uid": f"uid-{name}"}
            found.append({"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}})
    return found


def _filter(world: World, name: str, plugin: Any, pod: PodInfo, prepared: Prepared) -> None:
    passed(name, plugin, prepared.state, pod, world.columns.all(), np.ones(world.columns.size, np.bool_))


def _score(world: World, name: str, pod: PodInfo, prepared: Prepared) -> None:
    nodes = world.columns.all()
    for scorer in prepared.scorers:
        if scorer.plugin.name == name:
            state: CycleState = prepared.state
            normalized(scorer, raw_scores(scorer, state, pod, nodes), state, pod, len(nodes))


def _mean_us(asked: Sequence[tuple[PodInfo, Prepared]], ask: Callable[[PodInfo, Prepared], None]) -> float | None:
    if not asked:
        return None
    best_s = float("inf")
    for _ in range(ROUNDS):
        begun_s = time.process_time()
        for pod, prepared in asked:
            ask(pod, prepared)
        best_s = min(best_s, time.process_time() - begun_s)
    return best_s / len(asked) * 1e6


def notes(costs: Sequence[Cost], subject: Subject, words: Words, seed: int) -> list[str]:
    plugin = subject.own.name
    own = next((cost for cost in costs if cost.plugin == plugin), None)
    if own is None:
        return ["it returns nothing for any generated pod; its cost is that of the call"]
    total_us = _total(own)
    others_us = sum(_total(cost) for cost in costs if cost.plugin != plugin)
    found = [
        f"{plugin} takes {total_us / others_us:.1f} times the time of all built-in plugins together"
        if others_us
        else ""
    ]
    if not own.vectorised:
        found.append(f"a vectorised form (filter_nodes, score_nodes) would save most of {total_us:,.0f} us a pod")
    found.append(_reuse(subject, words, seed))
    return [note for note in found if note]


def _reuse(subject: Subject, words: Words, seed: int) -> str:
    """What pods must have in common to share results, as found with drawn pods."""
    plugin = World(subject, ()).plugin
    if plugin.scope is not Scope.NODE:
        return f"scope {plugin.scope.value}: it runs on every node for every pod; NODE would cache its results"
    if callable(getattr(plugin, "normalize_scores", None)):
        return "scope NODE with normalize_scores: it runs on every node for every pod; `normalize` would be cached"
    read: dict[str, None] = {} if plugin.reads is not None else {"sign_pod": None}
    rng = random.Random(seed)
    for _ in range(CASES if plugin.reads is not None else 0):
        case = drawn_case(rng, words)
        world = World.of(subject, case)
        for pod in pods_of(case.pods):
            world.says(pod)
        read |= world.plugin.reads.told
    specs = ", ".join(("specs", *(f"equal {each}" for each in read)))
    return f"scope NODE: results are cached; for pods with equal {specs}, only changed nodes are evaluated again"


def _total(cost: Cost) -> float:
    return (cost.filter_us or 0.0) + (cost.score_us or 0.0)
