"""The scheduler's configuration: profiles, their plugins and arguments; also read from a KubeSchedulerConfiguration.

Source: kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1. Extenders are not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minikube_py.errors import RequestError
from minikube_py.scheduler.framework import PluginFactory
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)

DEFAULT_PLUGINS: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("DefaultBinder", 0),
)
"""(name, weight), in upstream's order. Two only hold the pods that need them (`plugins.not_built`)."""

NOT_YET: Final = frozenset(
    (
        "ImageLocality",
        "NodeDeclaredFeatures",
        "GangScheduling",
    )
)
"""Defaults of upstream that do nothing here yet; they may be named as disabled."""

SCORE_ALL_NODES: Final = 100


class ConfigError(RequestError):
    """The configuration is wrong; the message says where, what, and what would be right."""


@dataclass(frozen=True, slots=True)
class PluginSet:
    """`enabled`: (name, weight), weight 0 for the default of 1. `disabled`: names, "*" for all defaults."""

    enabled: tuple[tuple[str, int], ...] = ()
    disabled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """`plugins`: by point, or "multiPoint", what differs from the defaults. `plugin_args`: by plugin name."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    plugin_args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    percentage_of_nodes_to_score: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """`percentage_of_nodes_to_score`: by default all nodes are scored, since over columns that is cheaper than to look
    for fewer; 0 is the original's own default (50 % less 1 % for each 125 nodes, at least 5 % and 100 nodes).

    `matcher`: `columns`, where filters look at all nodes as columns, or the name of a structure of
    `minikube_py.index.catalogue`, which then finds the nodes that may fit; `matcher_options` are the structure's.

    `registry`: plugins of one's own, by name -> factory(args, handle). A plugin may also be named as
    `package.module:Class` wherever a plugin is enabled, or come from the entry points `minikube_py.scheduler_plugins`.

    `explained_decisions`: how many of the last decisions `explain` remembers; `explained_nodes`: for how many of the
    best nodes of each it keeps the scores (more than the chosen one costs time on every pod)."""

    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = SCORE_ALL_NODES
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    pod_max_in_unschedulable_s: float = 300.0
    binds_in_flight_max: int = 1024
    registry: Mapping[str, PluginFactory] = field(default_factory=dict)
    explained_decisions: int = 1000
    explained_nodes: int = 1
    host: str = ""
    matcher: str = "columns"
    matcher_options: Mapping[str, int | str] = field(default_factory=dict)


def parse(document: Any) -> SchedulerConfig:
    """A KubeSchedulerConfiguration, decoded from YAML or JSON. What concerns only a process of its own (leader
    election, client connection, profiling) is accepted and left to that process. Raises: ConfigError."""
    if not isinstance(document, dict):
        raise ConfigError(f"the scheduler configuration must be an object of kind {KIND}")
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        found = f"{document.get('apiVersion')}, {document.get('kind')}"
        raise ConfigError(f"the scheduler configuration must be {API_VERSION}, {KIND}; found {found}")
    known = {"apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling"}
    known |= {"enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds"}
    known |= {"podMaxBackoffSeconds", "profiles", "extenders", "healthzBindAddress", "metricsBindAddress"}
    _refuse_unknown(document, known, "")
    if document.get("extenders"):
        raise ConfigError("extenders: not supported yet; remove them")
    initial = _number(document, "podInitialBackoffSeconds", 1, 1, None)
    longest = _number(document, "podMaxBackoffSeconds", 10, 1, None)
    if longest < initial:
        raise ConfigError(
            f"podMaxBackoffSeconds: Invalid value: {longest}: must be greater than or equal to PodInitialBackoffSeconds"
        )
    profiles = document.get("profiles") or [{}]
    if len(profiles) == 1 and "schedulerName" not in profiles[0]:
        profiles = [{**profiles[0], "schedulerName": DEFAULT_SCHEDULER_NAME}]
    parsed = tuple(_profile(profile, f"profiles[{i}]") for i, profile in enumerate(profiles))
    names = [profile.scheduler_name for profile in parsed]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f'profiles[{i}].schedulerName: Duplicate value: "{name}"')
    return SchedulerConfig(
        profiles=parsed,
        percentage_of_nodes_to_score=_number(document, "percentageOfNodesToScore", SCORE_ALL_NODES, 0, 100),
        pod_initial_backoff_s=float(initial),
        pod_max_backoff_s=float(longest),
    )


def _refuse_unknown(mapping: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in mapping:
        if key not in known:
            path = f"{where}.{key}" if where else key
            raise ConfigError(f"{path}: unknown field; known ones: {', '.join(sorted(known))}")


def _number(mapping: Mapping[str, Any], key: str, default: int, low: int, high: int | None, where: str = "") -> int:
    value = mapping.get(key)
    if value is None:
        return default
    path = f"{where}.{key}" if where else key
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{path}: Invalid value: {value!r}: must be an integer")
    if value < low or (high is not None and value > high):
        limits = f"not in valid range [{low}-{high}]" if high is not None else f"must be greater than or equal to {low}"
        raise ConfigError(f"{path}: Invalid value: {value}: {limits}")
    return value


def _profile(profile: Any, where: str) -> ProfileConfig:
    if not isinstance(profile, dict):
        raise ConfigError(f"{where}: must be an object")
    _refuse_unknown(profile, {"schedulerName", "plugins", "pluginConfig", "percentageOfNodesToScore"}, where)
    name = profile.get("schedulerName") or ""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}.schedulerName: Required value")
    plugins: dict[str, PluginSet] = {}
    for point, value in (profile.get("plugins") or {}).items():
        if point != "multiPoint" and point not in POINTS:
            raise ConfigError(f"{where}.plugins.{point}: unknown point; known ones: multiPoint, {', '.join(POINTS)}")
        plugins[point] = _plugin_set(value or {}, f"{where}.plugins.{point}")
    args: dict[str, Mapping[str, Any]] = {}
    for i, item in enumerate(profile.get("pluginConfig") or ()):
        plugin = item.get("name") if isinstance(item, dict) else None
        if not plugin:
            raise ConfigError(f"{where}.pluginConfig[{i}].name: Required value")
        if plugin in args:
            raise ConfigError(f'{where}.pluginConfig[{i}]: Duplicate value: "{plugin}"')
        args[plugin] = {k: v for k, v in (item.get("args") or {}).items() if k not in ("apiVersion", "kind")}
    percentage: int | None = None
    if profile.get("percentageOfNodesToScore") is not None:
        percentage = _number(profile, "percentageOfNodesToScore", 0, 0, 100, where)
    return ProfileConfig(name, plugins, args, percentage)


def _plugin_set(value: Any, where: str) -> PluginSet:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be an object with enabled and disabled")
    _refuse_unknown(value, {"enabled", "disabled"}, where)
    enabled = []
    for i, item in enumerate(value.get("enabled") or ()):
        if not isinstance(item, dict) or not item.get("name"):
            raise ConfigError(f"{where}.enabled[{i}].name: Required value")
        enabled.append((item["name"], _number(item, "weight", 0, 0, None, f"{where}.enabled[{i}]")))
    disabled = frozenset(item.get("name", "") for item in value.get("disabled") or ())
    return PluginSet(tuple(enabled), disabled)
