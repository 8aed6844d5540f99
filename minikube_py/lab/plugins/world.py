"""A scheduler profile over a drawn cluster, without a scheduler: a plugin's results for a pod there."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.lab.plugins.drawn import Case, Object
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import PluginSet, ProfileConfig, SchedulerConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.files import with_own
from minikube_py.scheduler.configuration.messages import MULTI_POINT
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.filtering import fitting
from minikube_py.scheduler.framework import SUCCESS, Status
from minikube_py.scheduler.objects import NodeInfo, PodInfo, project_node, project_pod
from minikube_py.scheduler.own import Guarded, OwnPlugin
from minikube_py.scheduler.plugins.queueing import PrioritySort
from minikube_py.scheduler.preparing import Prepared, Rejected, prepare
from minikube_py.scheduler.profile import Profile

FEW: Final = (
    "PrioritySort",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "DefaultBinder",
)
"""The built-in plugins that drawn pods involve: a profile of all plugins takes longer to construct."""
ALL: Final = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """The plugin under test, and its pluginConfig's args. `beside`: the built-in plugins that run with it. `sorts`: it
    orders the queue, which one plugin does."""

    own: OwnPlugin
    args: Mapping[str, Any]
    beside: tuple[str, ...] = FEW
    sorts: bool = False

    @property
    def config(self) -> ProfileConfig:
        few = PluginSet(tuple((name, 0) for name in self.beside), ("*",) if self.beside else ())
        order = PluginSet((), (PrioritySort.name,) if self.sorts else ())
        alone = SchedulerConfig((ProfileConfig(plugins={MULTI_POINT: few, "queueSort": order}),))
        profile = with_own(alone, {self.own.name: self.own}).profiles[0]
        return replace(profile, plugin_args={self.own.name: self.args} if self.args else {})


class Said(NamedTuple):
    """For one node: the plugin's status, and its score if all plugins pass the pod; otherwise, or without a score,
    None."""

    status: Status
    score: int | None

    def __str__(self) -> str:
        scored = "" if self.score is None else f", score {self.score}"
        return f"{self.status.code.name}{f' ({self.status.message})' if self.status.message else ''}{scored}"


class World:
    """Raises from the constructor: ConfigError."""

    def __init__(self, subject: Subject, nodes: Iterable[Object], bound: Iterable[Object] = ()) -> None:
        self.cache = cache_of(nodes, bound)
        self.columns = self.cache.columns
        lent = NoCluster(self.columns)
        registry = {subject.own.name: subject.own.make}
        self.profile = Profile(subject.config, lent, registry)
        found = self.profile.plugin(subject.own.name)
        assert isinstance(found, Guarded)
        self.plugin: Any = found
        self.evaluator = Evaluator(self.profile, self.columns, random.Random(0), 100)

    @classmethod
    def of(cls, subject: Subject, case: Case) -> World:
        return cls(subject, case.nodes, case.bound)

    def nodes(self) -> list[NodeInfo]:
        return [node for node in self.columns.by_slot if node is not None and node.present]

    def prepared(self, pod: PodInfo) -> Prepared | None:
        """None if a PreFilter rejects the pod. Raises: PluginError."""
        try:
            return prepare(self.profile.looking, self.columns, pod)
        except Rejected:
            return None

    def says(self, pod: PodInfo) -> dict[str, Said]:
        """By node; nodes excluded by PreFilter are absent. Raises: PluginError."""
        prepared = self.prepared(pod)
        if prepared is None:
            return {}
        name, state = self.plugin.name, prepared.state
        filters = name in dict(prepared.filters)
        scores = any(scorer.plugin.name == name for scorer in prepared.scorers)
        fits = fitting(prepared, pod, self.columns.all())
        found = {}
        for node in self.nodes():
            if prepared.node_names is not None and node.name not in prepared.node_names:
                continue
            status = (self.plugin.filter(state, pod, node) if filters else None) or SUCCESS
            score = self.plugin.score(state, pod, node) if scores and fits[node.slot] else None
            found[node.name] = Said(status, score)
        return found

    def passes(self, pod: PodInfo) -> None:
        """Through the points before and after a node is chosen, on each that fits. Raises: what the plugin raises."""
        plugin, own = self.plugin, self.plugin.plugin
        self.profile.events()
        for method, asked in (("kinds_needed", own), ("pre_enqueue", plugin)):
            if hasattr(own, method):
                getattr(asked, method)(pod)
        prepared = self.prepared(pod)
        if prepared is None:
            return
        fits = fitting(prepared, pod, self.columns.all())
        for name in (node.name for node in self.nodes() if fits[node.slot]):
            state = prepared.state.clone()
            for method in ("reserve", "permit", "has_pre_bind", "unreserve"):
                if hasattr(own, method):
                    # An error of unreserve would only be logged.
                    getattr(own if method == "unreserve" else plugin, method)(state, pod, name)

    def feasible(self, prepared: Prepared, pod: PodInfo) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.flatnonzero(fitting(prepared, pod, self.columns.all()))


def cache_of(nodes: Iterable[Object], bound: Iterable[Object]) -> Cache:
    cache = Cache()
    for node in nodes:
        cache.put_node(project_node(node))
    for pod in bound:
        cache.put_pod(project_pod(pod))
    return cache


def pods_of(objects: Iterable[Object]) -> list[PodInfo]:
    return [project_pod(obj) for obj in objects]
