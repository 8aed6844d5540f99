"""Plugin lookup: built-in, custom registry, entry points, or `MODULE:CLASS`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from minikube_py.api.feature_gates import GANG_SCHEDULING, NO_GATES, FeatureGates
from minikube_py.own_code import BadCode, load
from minikube_py.scheduler.config import ConfigError
from minikube_py.scheduler.framework import PluginFactory
from minikube_py.scheduler.own import find
from minikube_py.scheduler.plugins.default_binder import DefaultBinder
from minikube_py.scheduler.plugins.default_preemption import DefaultPreemption
from minikube_py.scheduler.plugins.dynamic_resources import DynamicResources
from minikube_py.scheduler.plugins.image_locality import ImageLocality
from minikube_py.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from minikube_py.scheduler.plugins.node_affinity import NodeAffinity, NodeName
from minikube_py.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from minikube_py.scheduler.plugins.node_ports import NodePorts
from minikube_py.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from minikube_py.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from minikube_py.scheduler.plugins.pod_topology_spread import PodTopologySpread
from minikube_py.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from minikube_py.scheduler.plugins.taint_toleration import NodeUnschedulable, TaintToleration
from minikube_py.scheduler.plugins.volume_binding import VolumeBinding
from minikube_py.scheduler.plugins.volume_restrictions import VolumeRestrictions
from minikube_py.scheduler.plugins.volume_zone import VolumeZone

ENTRY_POINT_GROUP = "minikube_py.scheduler_plugins"

_GPU = ("Random", "DotProduct", "Clustering", "Packing", "BestFit", "Fragmentation", "Prices")


def _later(place: str) -> PluginFactory:
    """A built-in plugin that no profile has by default: loaded when named."""
    module, _, name = place.partition(":")
    return lambda args, handle: getattr(import_module(f"minikube_py.scheduler.{module}"), name)(args, handle)


BUILT_IN: Mapping[str, PluginFactory] = {
    "SchedulingGates": SchedulingGates,
    "PrioritySort": PrioritySort,
    "NodeUnschedulable": NodeUnschedulable,
    "NodeName": NodeName,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinity,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit,
    "VolumeRestrictions": VolumeRestrictions,
    "NodeVolumeLimits": NodeVolumeLimits,
    "VolumeBinding": VolumeBinding,
    "VolumeZone": VolumeZone,
    "PodTopologySpread": PodTopologySpread,
    "InterPodAffinity": InterPodAffinity,
    "DynamicResources": DynamicResources,
    "DefaultPreemption": DefaultPreemption,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
    "NodeDeclaredFeatures": NodeDeclaredFeatures,
    **{
        name.rpartition(":")[2]: _later(name)
        for name in (
            *(f"packing.policies:Gpu{name}" for name in _GPU),
            "flow.placement:FlowPlacement",
            "plugins.gang_scheduling:GangScheduling",
            "prediction.overcommit:OvercommitByPrediction",
            "prediction.trimaran:TargetLoadPacking",
            "prediction.trimaran:LoadVariationRiskBalancing",
        )
    },
}

UPSTREAM_POINTS: Mapping[str, tuple[str, ...]] = {
    name: tuple(points.split())
    for name, points in {
        "SchedulingGates": "preEnqueue",
        "PrioritySort": "queueSort",
        "NodeUnschedulable": "filter",
        "NodeName": "filter",
        "TaintToleration": "filter preScore score",
        "NodeAffinity": "preFilter filter preScore score",
        "NodePorts": "preFilter filter",
        "NodeResourcesFit": "preFilter filter preScore score placementScore",
        "VolumeRestrictions": "preFilter filter",
        "NodeVolumeLimits": "preFilter filter",
        "VolumeBinding": "preFilter filter reserve preScore score preBind",
        "VolumeZone": "preFilter filter",
        "PodTopologySpread": "preFilter filter preScore score",
        "InterPodAffinity": "preFilter filter preScore score",
        "DynamicResources": "preFilter filter postFilter reserve score preBind preEnqueue",
        "DefaultPreemption": "postFilter preEnqueue",
        "NodeResourcesBalancedAllocation": "preScore score",
        "ImageLocality": "score",
        "DefaultBinder": "bind",
        "NodeDeclaredFeatures": "preFilter filter",
        "GangScheduling": "preEnqueue permit",
    }.items()
}
"""The points of upstream's own plugins, in 1.36 with its default feature gates."""


@cache
def _entry_points() -> Mapping[str, Any]:
    return {each.name: each for each in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP)}


def factory(name: str, own: Mapping[str, PluginFactory], gates: FeatureGates = NO_GATES) -> PluginFactory | None:
    """Looks in `own` first. None if there is no such plugin. Raises: ConfigError."""
    found = own.get(name) or BUILT_IN.get(name)
    if name == GANG_SCHEDULING and GANG_SCHEDULING not in gates:
        raise ConfigError(f'plugin "{name}" needs the feature gates GenericWorkload and GangScheduling')
    if found is not None:
        return found
    if ":" in name or name in _entry_points():
        return find(name, name).make
    return None


def entry_point(name: str) -> PluginFactory:
    """Raises: ConfigError."""
    found = _entry_points().get(name)
    if found is None:
        known = ", ".join(_entry_points()) or "none"
        text = f'there is no plugin "{name}"; write FILE.py:CLASS, MODULE:CLASS, or the name of an entry point'
        raise ConfigError(f"{text} of {ENTRY_POINT_GROUP} ({known})")
    try:
        loaded: PluginFactory = load(found)
    except BadCode as error:
        raise ConfigError(str(error)) from error
    return loaded
