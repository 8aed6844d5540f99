"""Where plugins come from: the built-in ones, a registry of one's own, entry points, or `package.module:Class`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from minikube_py.scheduler.config import NOT_YET, ConfigError
from minikube_py.scheduler.framework import PluginFactory
from minikube_py.scheduler.plugins.default_binder import DefaultBinder
from minikube_py.scheduler.plugins.default_preemption import DefaultPreemption
from minikube_py.scheduler.plugins.node_affinity import NodeAffinity, NodeName
from minikube_py.scheduler.plugins.node_ports import NodePorts
from minikube_py.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from minikube_py.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from minikube_py.scheduler.plugins.not_built import FACTORIES as NOT_BUILT
from minikube_py.scheduler.plugins.pod_topology_spread import PodTopologySpread
from minikube_py.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from minikube_py.scheduler.plugins.taint_toleration import NodeUnschedulable, TaintToleration
from minikube_py.scheduler.plugins.volume_binding import VolumeBinding
from minikube_py.scheduler.plugins.volume_restrictions import VolumeRestrictions
from minikube_py.scheduler.plugins.volume_zone import VolumeZone

ENTRY_POINT_GROUP = "minikube_py.scheduler_plugins"

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
    "DefaultPreemption": DefaultPreemption,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "DefaultBinder": DefaultBinder,
    **NOT_BUILT,
}


@cache
def _entry_points() -> Mapping[str, PluginFactory]:
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINT_GROUP)}


def factory(name: str, own: Mapping[str, PluginFactory]) -> PluginFactory:
    """Looks in `own` first. Raises: ConfigError."""
    found = own.get(name) or BUILT_IN.get(name)
    if found is not None:
        return found
    if name in NOT_YET:
        raise ConfigError(f'plugin "{name}" is not supported yet; leave it out')
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            return cast(PluginFactory, getattr(import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            raise ConfigError(f'plugin "{name}": {error}; write package.module:Class') from error
    found = _entry_points().get(name)
    if found is None:
        known = ", ".join(sorted({*BUILT_IN, *own, *_entry_points()}))
        raise ConfigError(f'plugin "{name}" does not exist; known ones: {known}; or write package.module:Class')
    return found
