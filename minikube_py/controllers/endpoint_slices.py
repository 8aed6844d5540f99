"""EndpointSlices of services and their pods; Endpoints written by others are mirrored into slices.

Source: k8s.io/kubernetes/pkg/controller/{endpointslice,endpointslicemirroring}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import WARNING
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import ENDPOINT_SLICES, ENDPOINTS, NODES, SERVICES, Object, RestClient
from minikube_py.controllers import slices
from minikube_py.controllers.base import (
    BY_SERVICE,
    ControllerContext,
    QueueController,
    QueueWorkers,
    has_cause,
    involved,
)
from minikube_py.controllers.service_pods import ServicePods
from minikube_py.controllers.slices import Piece, Plan
from minikube_py.controllers.views import EndpointSliceView, EndpointsView, Labels, MetaView, NodeView, ServiceView

if TYPE_CHECKING:
    from minikube_py.controllers.topology_hints import Topology

ZONE: Final = "topology.kubernetes.io/zone"
SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
_GONE: Final = -1
_NODES: Final = ""
"""Beside the keys of services in the queue: the zones' shares of CPU have changed."""


class Slices:
    """The slices that one controller writes. A service waits until the informer shows the controller's writes."""

    def __init__(self, context: ControllerContext, manager: str, workers: QueueWorkers) -> None:
        self._client: RestClient = context.client
        self._manager = manager
        self._queue = workers.queue
        self._written: dict[str, dict[str, int]] = {}
        """By service key and slice uid: the generation that was written."""
        self._waiting: set[str] = set()
        self._informer: Informer[EndpointSliceView] = context.informers.of(ENDPOINT_SLICES)
        self._informer.add_handler(Handler(on_add=self._seen, on_update=self._updated, on_delete=self._deleted))

    # --- informer handlers ------------------------------------------------------------------------------------------

    def _changed(self, view: EndpointSliceView, unexpected: bool) -> None:
        key = view.service_key
        if key and (unexpected or key in self._waiting):
            self._queue.add(key)

    def _seen(self, view: EndpointSliceView) -> None:
        written = self._written.get(view.service_key, {}).get(view.uid)
        mine = view.managed_by == self._manager
        self._changed(view, mine and (written is None or view.generation > written))

    def _updated(self, old: EndpointSliceView, new: EndpointSliceView) -> None:
        if old.service_key != new.service_key or (old.managed_by == self._manager) != (new.managed_by == self._manager):
            self._changed(old, True)
            self._changed(new, True)
        else:
            self._seen(new)

    def _deleted(self, view: EndpointSliceView) -> None:
        written = self._written.get(view.service_key, {}).pop(view.uid, None)
        self._changed(view, view.managed_by == self._manager and written not in (None, _GONE))

    def of(self, key: str) -> list[EndpointSliceView] | None:
        """The slices of a service; None while the informer lacks this controller's writes: the service is requeued
        then."""
        found = [view for view in self._informer.store.by_index(BY_SERVICE, key) if view.managed_by == self._manager]
        found = [view for view in found if not view.deleting]
        shown = {view.uid: view.generation for view in found}
        for uid, generation in self._written.get(key, {}).items():
            known = shown.get(uid)
            if (known is not None) if generation == _GONE else (known is None or known < generation):
                self._waiting.add(key)
                return None
        self._waiting.discard(key)
        return found

    # --- writes -----------------------------------------------------------------------------------------------------

    def forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._waiting.discard(key)

    async def delete(self, view: EndpointSliceView) -> None:
        try:
            await self._client.delete(ENDPOINT_SLICES, view.name, view.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
        self._written.setdefault(view.service_key, {})[view.uid] = _GONE

    async def carry_out(self, plan: Plan, owner: MetaView, kind: str, trigger: str | None) -> None:
        """`trigger`: the last-change trigger time to annotate; "" removes the annotation, None leaves it."""
        for piece in plan.create if not owner.deleting else ():
            try:
                made = await self._client.create(ENDPOINT_SLICES, _new(piece, owner, kind, trigger), owner.namespace)
            except StatusError as error:
                if has_cause(error, "NamespaceTerminating"):
                    return
                raise
            self._wrote(owner.key, made)
        for piece in plan.update:
            assert piece.of is not None
            patch = _changed(piece, piece.of, owner, kind, trigger)
            self._wrote(owner.key, await self._client.patch(ENDPOINT_SLICES, piece.of.name, patch, owner.namespace))
        for view in plan.delete:
            await self.delete(view)

    def _wrote(self, key: str, made: Object) -> None:
        self._written.setdefault(key, {})[made["metadata"]["uid"]] = made["metadata"].get("generation") or 0


def _annotations(piece: Piece, trigger: str | None) -> Labels:
    if trigger is None:
        return piece.annotations
    kept = {name: text for name, text in piece.annotations.items() if name != slices.TRIGGER_TIME}
    return kept | ({slices.TRIGGER_TIME: trigger} if trigger else {})


def _new(piece: Piece, owner: MetaView, kind: str, trigger: str | None) -> Object:
    # Omit the dash if the name leaves no room for it.
    prefix = f"{owner.name}-" if len(owner.name) < 253 else owner.name
    return {
        "metadata": {
            "generateName": prefix,
            "namespace": owner.namespace,
            "labels": piece.labels,
            "annotations": _annotations(piece, trigger),
            "ownerReferences": [slices.owner_reference(kind, owner)],
        },
        "addressType": piece.address_type,
        "endpoints": piece.endpoints,
        "ports": piece.ports,
    }


def _changed(piece: Piece, old: EndpointSliceView, owner: MetaView, kind: str, trigger: str | None) -> Object:
    metadata: Object = {
        # A write from a stale copy must conflict (409) and be retried.
        "resourceVersion": old.resource_version,
        "labels": {**dict.fromkeys(old.labels), **piece.labels},
        "annotations": {**dict.fromkeys(old.annotations), **_annotations(piece, trigger)},
    }
    if piece.loses_prefix:
        metadata["generateName"] = None
    if piece.fresh:
        metadata["ownerReferences"] = [slices.owner_reference(kind, owner)]
    return {"metadata": metadata, "endpoints": piece.endpoints, "ports": piece.ports}


class EndpointSliceController(ServicePods):
    name = "endpointslice-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "endpoint_slice")
        self._recorder = context.recorder("endpoint-slice-controller")
        self._slices = Slices(context, slices.CONTROLLER, self._workers)
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._waiting: dict[str, set[str]] = {}
        """By missing node: keys of the services whose pods name it."""
        self._topology: Topology | None = None
        self._nodes_changed = True
        self._nodes.add_handler(
            Handler(on_add=self._node_came, on_update=self._node_updated, on_delete=lambda node: self._node_moved())
        )

    def start(self) -> None:
        self._workers.start()

    def _node_came(self, node: NodeView) -> None:
        for key in sorted(self._waiting.pop(node.name, ())):
            self._queue.add(key)
        self._node_moved()

    def _node_updated(self, old: NodeView, new: NodeView) -> None:
        if (old.ready, old.labels.get(ZONE)) != (new.ready, new.labels.get(ZONE)):
            self._node_moved()

    def _node_moved(self) -> None:
        self._nodes_changed = True
        if self._topology is not None and self._topology.hinted:
            self._queue.add(_NODES)

    def _follow_nodes(self) -> Topology:
        if self._topology is None:
            from minikube_py.controllers.topology_hints import Topology

            self._topology = Topology()
        if self._nodes_changed:
            self._nodes_changed = False
            self._topology.set_nodes(self._nodes.store)
        return self._topology

    def _zone_of(self, name: str) -> str | None:
        node = self._nodes.store.get(name)
        return None if node is None else node.labels.get(ZONE, "")

    async def sync(self, key: str) -> None:
        if key == _NODES:
            for other in self._follow_nodes().overloaded():
                self._queue.add(other)
            return
        service = self._services.store.get(key)
        if service is None:
            # The garbage collector deletes its slices.
            if (topology := self._topology) is not None:
                for kind in tuple(topology.hinted.get(key, ())):
                    topology.disable(key, kind)
            self.forget(key)
            self._slices.forget(key)
            return
        if service.external_name or service.selector is None:
            return
        started_s = self._clock.monotonic_s()
        existing = self._slices.of(key)
        if existing is None:
            return
        if slices.wants_topology(service):
            self._follow_nodes()
        pods = self.selected(service)
        trigger = self.trigger_time(key, service, pods)
        for plan in slices.plan(service, pods, self._zone_of, existing, self._topology):
            try:
                await self._slices.carry_out(plan, service, "Service", trigger)
            except StatusError as error:
                if error.code != 409:
                    self._report(service, str(error))
                raise
            for pod, node in plan.missing_nodes:
                self._waiting.setdefault(node, set()).add(key)
                told = f"skipping Pod {pod} for Service {service.namespace}/{service.name}: Node {node} Not Found"
                self._report(service, told)
            for kind, reason, told in plan.told:
                self._recorder.event(involved("Service", service), kind, reason, told)
        self.took(key, started_s)

    def _report(self, service: ServiceView, why: str) -> None:
        told = f"Error updating Endpoint Slices for Service {service.namespace}/{service.name}: {why}"
        self._recorder.event(involved("Service", service), WARNING, "FailedToUpdateEndpointSlices", told)


class EndpointSliceMirroring(QueueController):
    name = "endpointslice-mirroring-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._recorder = context.recorder("endpoint-slice-mirroring-controller")
        self._workers = QueueWorkers(context, "endpoint_slice_mirroring", self.sync)
        queue = self._workers.queue
        self._slices = Slices(context, slices.MIRRORING, self._workers)
        self._endpoints: Informer[EndpointsView] = context.informers.of(ENDPOINTS)
        self._services: Informer[ServiceView] = context.informers.of(SERVICES)
        self._endpoints.add_handler(
            Handler(
                on_add=lambda each: queue.add(each.key),
                on_update=lambda old, new: queue.add(new.key),
                on_delete=lambda each: queue.add(each.key),
            )
        )
        self._services.add_handler(
            Handler(
                on_add=lambda each: queue.add(each.key),
                on_update=lambda old, new: (
                    queue.add(new.key) if (old.selector is None) != (new.selector is None) else None
                ),
                on_delete=lambda each: queue.add(each.key),
            )
        )

    async def sync(self, key: str) -> None:
        endpoints, service = self._endpoints.store.get(key), self._services.store.get(key)
        existing = self._slices.of(key)
        if existing is None:
            return
        if endpoints is None or service is None or service.selector is not None or not _is_mirrored(endpoints):
            for view in existing:
                await self._slices.delete(view)
            if not existing:
                self._slices.forget(key)
            return
        plan = slices.plan_mirror(endpoints, existing)
        if plan.skipped:
            told = (
                f"A max of {slices.MIRRORED_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. "
                f"{plan.skipped} addresses were skipped"
            )
            self._recorder.event(involved("Endpoints", endpoints), WARNING, "TooManyAddressesToMirror", told)
        await self._slices.carry_out(plan, endpoints, "Endpoints", None)


def _is_mirrored(endpoints: EndpointsView) -> bool:
    return endpoints.labels.get(SKIP_MIRROR) != "true" and LEADER not in endpoints.annotations
