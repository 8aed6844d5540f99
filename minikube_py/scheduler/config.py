"""The scheduler's configuration: profiles, plugins and arguments, optionally from a KubeSchedulerConfiguration.

Source: kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.scheduler.configuration.merging import ConfigError, PluginSet
from minikube_py.scheduler.configuration.reading import MEANT_FOR_PROCESSES, plugin_sets, read
from minikube_py.scheduler.extenders.config import ExtenderConfig, read_extenders
from minikube_py.scheduler.framework import PluginFactory
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME

__all__ = ["ConfigError", "PluginSet", "ProfileConfig", "SchedulerConfig", "load", "parse"]

SCORE_ALL_NODES: Final = 100


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """`plugins`: by point or "multiPoint", the differences from the defaults. `plugin_args`: by plugin name."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    plugin_args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    percentage_of_nodes_to_score: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`percentage_of_nodes_to_score`: by default all nodes are scored, which over columns is cheaper than a partial
    search; 0 is upstream's own default (50 % less 1 % for each 125 nodes, at least 5 % and 100 nodes).

    `matcher`: `columns` filters all nodes as columns; the name of a structure of `minikube_py.index.catalogue` uses it
    to find nodes that may fit; `matcher_options` are the structure's.

    `registry`: custom plugins, by name -> factory(args, handle). Plugins may also be named `package.module:Class` or
    come from the entry points `minikube_py.scheduler_plugins`.

    `explained_decisions`: how many recent decisions `explain` remembers.

    `extenders`: in call order.

    `unused`: fields of the file about upstream's process, which flags replace here.

    `gates`: upstream feature gates turned on that are off by default (`api.feature_gates`)."""

    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = SCORE_ALL_NODES
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    pod_max_in_unschedulable_s: float = 300.0
    binds_in_flight_max: int = 1024
    registry: Mapping[str, PluginFactory] = field(default_factory=dict)
    explained_decisions: int = 1000
    host: str = ""
    matcher: str = "columns"
    matcher_options: Mapping[str, int | str] = field(default_factory=dict)
    extenders: tuple[ExtenderConfig, ...] = ()
    unused: tuple[str, ...] = ()
    gates: FeatureGates = NO_GATES


def parse(document: Any) -> SchedulerConfig:
    """`load` for a decoded document. Raises: ConfigError."""
    return load(orjson.dumps(document))


def load(body: bytes, gates: FeatureGates = NO_GATES) -> SchedulerConfig:
    """A KubeSchedulerConfiguration, YAML or JSON. Fields about upstream's process (`unused`) are validated and ignored.
    Raises: ConfigError, with upstream's message."""
    given, full, names = read(body, gates)
    return SchedulerConfig(
        gates=gates,
        profiles=tuple(_profile(profile, own) for profile, own in _pairs(full, given)),
        extenders=read_extenders(full.get("extenders") or ()),
        percentage_of_nodes_to_score=given.get("percentageOfNodesToScore", SCORE_ALL_NODES),
        pod_initial_backoff_s=float(full["podInitialBackoffSeconds"]),
        pod_max_backoff_s=float(full["podMaxBackoffSeconds"]),
        unused=tuple(name for name in MEANT_FOR_PROCESSES if name in names),
    )


def _pairs(full: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    return zip(full["profiles"], given.get("profiles") or [{}], strict=True)


def _profile(full: Mapping[str, Any], given: Mapping[str, Any]) -> ProfileConfig:
    return ProfileConfig(
        full["schedulerName"],
        plugin_sets(given.get("plugins") or {}),
        {config["name"]: config["args"] for config in full["pluginConfig"] if config["args"] is not None},
        full.get("percentageOfNodesToScore"),
    )
