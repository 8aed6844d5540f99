"""The controllers in one process, over shared informers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.feature_gates import GENERIC_WORKLOAD, FeatureGates
from minikube_py.client.informer import Handler, InformerFactory
from minikube_py.client.rest import NODES, ResourceRef, RestClient
from minikube_py.client.timers import Timers
from minikube_py.client.transport import ApiTransport
from minikube_py.client.unreadable import unreadable_metrics
from minikube_py.controllers.base import Controller, ControllerConfig, ControllerContext, shared_informers
from minikube_py.controllers.certificate_requests import RequestApprover, RequestCleaner, RequestSigner
from minikube_py.controllers.cluster_roles import ClusterRoleAggregation
from minikube_py.controllers.cron_jobs import CronJobController
from minikube_py.controllers.daemon_set import DaemonSetController
from minikube_py.controllers.deployment import DeploymentController
from minikube_py.controllers.device_taint_eviction import DeviceTaintEviction
from minikube_py.controllers.disruption import DisruptionController
from minikube_py.controllers.endpoint_slices import EndpointSliceController, EndpointSliceMirroring
from minikube_py.controllers.endpoints import EndpointsController
from minikube_py.controllers.ephemeral_volumes import EphemeralVolumes
from minikube_py.controllers.garbage_collector import GarbageCollector
from minikube_py.controllers.horizontal_autoscaler import HorizontalPodAutoscalerController
from minikube_py.controllers.informers import Needs, Starting
from minikube_py.controllers.job import JobController
from minikube_py.controllers.namespace import NamespaceController
from minikube_py.controllers.node_lifecycle import NodeLifecycleController
from minikube_py.controllers.pod_gc import PodGarbageCollector
from minikube_py.controllers.replication import ReplicaSetController, ReplicationManager
from minikube_py.controllers.resource_claims import ResourceClaims
from minikube_py.controllers.resource_quotas import ResourceQuotas
from minikube_py.controllers.service_account import RootCaPublisher, ServiceAccountController
from minikube_py.controllers.service_cidrs import ServiceCidrs
from minikube_py.controllers.simulated_volumes import SimulatedAttacher, SimulatedProvisioner
from minikube_py.controllers.stateful_set import StatefulSetController
from minikube_py.controllers.taint_eviction import TaintEvictionController
from minikube_py.controllers.token_secrets import TokenSecrets
from minikube_py.controllers.ttl_after_finished import TtlAfterFinished
from minikube_py.controllers.volume_binder import VolumeBinder
from minikube_py.controllers.volume_protection import AttributesClassProtection, ClaimProtection, VolumeProtection
from minikube_py.controllers.volume_views import CLAIMS, POLICIES, wants_more
from minikube_py.env import Clock, Rng
from minikube_py.errors import RequestError

if TYPE_CHECKING:
    from minikube_py.controllers.views import NodeView

Making = Callable[[ControllerContext], Controller]


class Deferred:
    """A controller that few clusters need: it is made by `make`, with its informers, once an object of `resource`
    `asks` for it."""

    def __init__(
        self, context: ControllerContext, name: str, resource: ResourceRef, asks: Callable[[Any], bool], make: Making
    ) -> None:
        self.name = name
        self._context, self._resource, self._asks, self._make = context, resource, asks, make
        self._controller: Controller | None = None
        self._asked = False

    def start(self) -> None:
        # Only now: the garbage collector has begun to follow all kinds, in its order.
        informer, seen = self._context.informers.of(self._resource, needed=False), self._seen
        informer.add_handler(Handler(on_add=seen, on_update=lambda old, new: seen(new)))

    def _seen(self, view: Any) -> None:
        if not self._asked and self._asks(view):
            self._asked = True
            self._context.starting.add(self.name, self._context.informers, self._made)

    def _made(self) -> Callable[[], None]:
        context = self._context
        known = set(context.recorders)
        controller = self._controller = self._make(context)
        for component, recorder in context.recorders.items():
            if component not in known:
                recorder.start()
        return controller.start

    async def stop(self) -> None:
        if self._controller is not None:
            await self._controller.stop()

    def metrics(self) -> dict[str, float]:
        return {} if self._controller is None else self._controller.metrics()


def _late(module: str, name: str) -> Making:
    """Imports it when it is made."""

    def make(context: ControllerContext) -> Controller:
        made: Controller = getattr(import_module(f"minikube_py.controllers.{module}"), name)(context)
        return made

    return make


def _attaches(node: NodeView) -> bool:
    return node.attaches


_DEFERRED: Final[Mapping[str, tuple[ResourceRef, Callable[[Any], bool], Making]]] = {
    "persistentvolume-attach-detach-controller": (NODES, _attaches, _late("attach_detach", "AttachDetach")),
    "persistentvolume-expander-controller": (CLAIMS, wants_more, _late("volume_expander", "VolumeExpander")),
    "validatingadmissionpolicy-status-controller": (
        POLICIES, lambda policy: True, _late("policy_types", "PolicyTypes"),
    ),
    SimulatedAttacher.name: (NODES, _attaches, SimulatedAttacher),
}
OFF: Final[Mapping[str, Making]] = {"ttl-controller": _late("node_ttl", "NodeTtl")}
"""Those that run only if asked for."""
CONTROLLERS: Final[Mapping[str, Making]] = {
    controller.name: controller
    for controller in (
        ReplicationManager,
        ReplicaSetController,
        DeploymentController,
        StatefulSetController,
        DaemonSetController,
        EndpointsController,
        EndpointSliceController,
        EndpointSliceMirroring,
        NamespaceController,
        GarbageCollector,
        NodeLifecycleController,
        TaintEvictionController,
        PodGarbageCollector,
        ServiceAccountController,
        RootCaPublisher,
        TokenSecrets,
        VolumeBinder,
        SimulatedProvisioner,
        ClaimProtection,
        VolumeProtection,
        AttributesClassProtection,
        EphemeralVolumes,
        ResourceClaims,
        DeviceTaintEviction,
        ResourceQuotas,
        DisruptionController,
        HorizontalPodAutoscalerController,
        JobController,
        CronJobController,
        TtlAfterFinished,
        ClusterRoleAggregation,
        RequestApprover,
        RequestSigner,
        RequestCleaner,
        ServiceCidrs,
    )
} | {
    name: partial(Deferred, name=name, resource=resource, asks=asks, make=make)
    for name, (resource, asks, make) in _DEFERRED.items()
}


def _gated(gates: FeatureGates) -> Mapping[str, Making]:
    """The controllers that these gates enable."""
    if GENERIC_WORKLOAD not in gates:
        return {}
    return {"podgroup-protection-controller": _late("group_protection", "GroupProtection")}


class ControllerManager:
    """`names` are those of upstream's `--controllers` (None: all)."""

    def __init__(
        self,
        transport: ApiTransport,
        clock: Clock,
        rng: Rng,
        *,
        names: Collection[str] | None = None,
        config: ControllerConfig | None = None,
        informers: InformerFactory | None = None,
    ) -> None:
        config = config if config is not None else ControllerConfig()
        default = {**CONTROLLERS, **_gated(config.gates)}
        there = {**default, **OFF}
        chosen = list(dict.fromkeys([*default, *config.enabled] if names is None else names))
        unknown = sorted(set(chosen) - set(there))
        if unknown:
            raise RequestError(f"no such controllers: {', '.join(unknown)}; the controllers are: {', '.join(there)}")
        client = RestClient(transport)
        self._informers = shared_informers(informers or InformerFactory(client, clock, rng))
        self._starting = Starting(self._informers, clock)
        self._needs: dict[str, Needs] = {name: Needs(self._informers) for name in chosen}
        self._context = ControllerContext(
            client,
            clock,
            rng,
            config,
            Needs(self._informers),
            Timers(clock),
            self._starting,
        )
        self.controllers: dict[str, Controller] = {
            name: there[name](replace(self._context, informers=self._needs[name])) for name in chosen
        }

    async def start(self) -> None:
        """Returns when all controllers run, or at a deadline; controllers whose kinds are forbidden or not served start
        later. Raises: StatusError, Unavailable."""
        collector = self.controllers.get(GarbageCollector.name)
        if isinstance(collector, GarbageCollector):
            await collector.try_to_discover()
        owners = {}
        for name, controller in self.controllers.items():
            if isinstance(controller, Deferred):
                # It waits for nothing: its informer's handler is all that there is of it.
                controller.start()
            else:
                owners[name] = self._needs[name], controller.start
        self._informers.start()
        for recorder in self._context.recorders.values():
            recorder.start()
        await self._starting.start(owners)

    async def stop(self) -> None:
        await self._starting.stop()
        await asyncio.gather(*(controller.stop() for controller in self.controllers.values()))
        await asyncio.gather(*(recorder.stop() for recorder in self._context.recorders.values()))
        await self._informers.stop()
        await self._context.timers.close()

    @property
    def missing(self) -> dict[str, dict[ResourceRef, str]]:
        """Controller to the kinds it still lacks, with reasons."""
        return self._starting.missing()

    @property
    def failures(self) -> list[BaseException]:
        """The errors that ended informers, or starts of controllers; a manager with any must be restarted."""
        found = [informer.failure for informer in self._informers.all()]
        return [*(failure for failure in found if failure is not None), *self._starting.failures]

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for controller in self.controllers.values():
            metrics |= controller.metrics()
        for component, recorder in self._context.recorders.items():
            metrics |= {f'{name}{{component="{component}"}}': value for name, value in recorder.metrics().items()}
        metrics |= unreadable_metrics(informer.unreadable for informer in self._informers.all())
        for informer in self._informers.all():
            resource = informer.resource
            plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            metrics[f'informer_objects{{resource="{plural}"}}'] = len(informer.store)
            metrics[f'informer_events_total{{resource="{plural}"}}'] = informer.stats.events
            metrics[f'informer_lists_total{{resource="{plural}"}}'] = informer.stats.lists
            metrics[f'informer_synced{{resource="{plural}"}}'] = int(informer.has_synced())
        for name, kinds in self.missing.items():
            for kind in kinds:
                metrics[f'controller_missing_kind{{name="{name}",resource="{kind.plural}"}}'] = 1
        return metrics
