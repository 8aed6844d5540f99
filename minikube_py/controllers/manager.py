"""The controllers in one process, over shared informers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from minikube_py.client.rest import RestClient
from minikube_py.client.timers import Timers
from minikube_py.client.transport import ApiTransport
from minikube_py.controllers.base import Controller, ControllerConfig, ControllerContext, Informers
from minikube_py.controllers.deployment import DeploymentController
from minikube_py.controllers.endpoints import EndpointsController
from minikube_py.controllers.garbage_collector import GarbageCollector
from minikube_py.controllers.namespace import NamespaceController
from minikube_py.controllers.node_lifecycle import NodeLifecycleController
from minikube_py.controllers.pod_gc import PodGarbageCollector
from minikube_py.controllers.replication import ReplicaSetController, ReplicationManager
from minikube_py.controllers.service_account import RootCaPublisher, ServiceAccountController
from minikube_py.controllers.taint_eviction import TaintEvictionController
from minikube_py.env import Clock, Rng
from minikube_py.errors import RequestError

CONTROLLERS: Final[Mapping[str, Callable[[ControllerContext], Controller]]] = {
    controller.name: controller
    for controller in (
        ReplicationManager,
        ReplicaSetController,
        DeploymentController,
        EndpointsController,
        NamespaceController,
        GarbageCollector,
        NodeLifecycleController,
        TaintEvictionController,
        PodGarbageCollector,
        ServiceAccountController,
        RootCaPublisher,
    )
}


class ControllerManager:
    """`names` are those of the original's `--controllers` (None: all)."""

    def __init__(
        self,
        transport: ApiTransport,
        clock: Clock,
        rng: Rng,
        *,
        names: Collection[str] | None = None,
        config: ControllerConfig | None = None,
    ) -> None:
        chosen = list(CONTROLLERS) if names is None else list(names)
        unknown = sorted(set(chosen) - set(CONTROLLERS))
        if unknown:
            raise RequestError(f"no such controllers: {', '.join(unknown)}; there are: {', '.join(CONTROLLERS)}")
        client = RestClient(transport)
        self._context = ControllerContext(
            client,
            clock,
            rng,
            config if config is not None else ControllerConfig(),
            Informers(client, clock, rng),
            Timers(clock),
        )
        self.controllers: dict[str, Controller] = {name: CONTROLLERS[name](self._context) for name in chosen}

    async def start(self) -> None:
        """Returns when all informers are synced and all controllers run. Raises: StatusError, Unavailable."""
        collector = self.controllers.get(GarbageCollector.name)
        if isinstance(collector, GarbageCollector):
            await collector.discover()
        await self._context.informers.start()
        for recorder in self._context.recorders.values():
            recorder.start()
        for controller in self.controllers.values():
            controller.start()

    async def stop(self) -> None:
        await asyncio.gather(*(controller.stop() for controller in self.controllers.values()))
        await asyncio.gather(*(recorder.stop() for recorder in self._context.recorders.values()))
        await self._context.informers.stop()
        await self._context.timers.close()

    @property
    def failures(self) -> list[BaseException]:
        """What ended informers by themselves; a manager with any must be restarted."""
        found = (informer.failure for informer in self._context.informers.all())
        return [failure for failure in found if failure is not None]

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for controller in self.controllers.values():
            metrics |= controller.metrics()
        for component, recorder in self._context.recorders.items():
            metrics |= {f'{name}{{component="{component}"}}': value for name, value in recorder.metrics().items()}
        for informer in self._context.informers.all():
            resource = informer.resource
            plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            metrics[f'informer_objects{{resource="{plural}"}}'] = len(informer.store)
            metrics[f'informer_events_total{{resource="{plural}"}}'] = informer.stats.events
            metrics[f'informer_lists_total{{resource="{plural}"}}'] = informer.stats.lists
        return metrics
