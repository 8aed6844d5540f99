"""Endpoints: the addresses of a service.

Source: k8s.io/kubernetes/pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import WARNING
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import ENDPOINTS, Object, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.base import ControllerContext, has_cause, involved
from minikube_py.controllers.service_pods import ServicePods
from minikube_py.controllers.subsets import build_subsets, repack, truncate
from minikube_py.controllers.views import EndpointsView, Labels, ServiceView

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
CONTROLLER_NAME: Final = "endpoint-controller"
HEADLESS: Final = "service.kubernetes.io/headless"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"


class EndpointsController(ServicePods):
    name = "endpoints-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "endpoint")
        self._recorder = context.recorder(CONTROLLER_NAME)
        self._endpoints: Informer[EndpointsView] = context.informers.of(ENDPOINTS)
        self._endpoints.add_handler(Handler(on_delete=lambda endpoints: self._queue.add(endpoints.key)))

    def start(self) -> None:
        for endpoints in self._endpoints.store:
            # Their service may have been deleted while the controller was down; old leader election records have none.
            if LEADER not in endpoints.annotations:
                self._queue.add(endpoints.key)
        self._workers.start()

    # --- one service ------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        service = self._services.store.get(key)
        if service is None:
            await self._delete(key)
            return
        if service.external_name or service.selector is None:
            return
        started_s = self._clock.monotonic_s()
        pods = self.selected(service)
        trigger = self.trigger_time(key, service, pods)
        subsets = build_subsets(service, pods)
        current = self._endpoints.store.get(key)
        if current is None or not _up_to_date(current, service, subsets):
            await self._write(service, current, subsets, trigger)
        self.took(key, started_s)

    async def _delete(self, key: str) -> None:
        self.forget(key)
        namespace, name = key.split("/", 1)
        try:
            await self._client.delete(ENDPOINTS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise

    async def _write(
        self, service: ServiceView, current: EndpointsView | None, subsets: list[Object], trigger: str
    ) -> None:
        kept, truncated = truncate(subsets)
        labels = _labels(service)
        annotations = dict(current.annotations) if current is not None else {}
        for name, value in ((TRIGGER_TIME, trigger), (OVER_CAPACITY, "truncated" if truncated else "")):
            if value:
                annotations[name] = value
            else:
                annotations.pop(name, None)
        try:
            if current is None:
                await self._create(service, labels, annotations, kept)
            else:
                await self._update(current, labels, annotations, kept)
        except StatusError as error:
            if current is None and has_cause(error, "NamespaceTerminating"):
                return
            if error.code != 409:
                self._report(service, current, error)
            raise

    async def _create(self, service: ServiceView, labels: Labels, annotations: Labels, subsets: list[Object]) -> None:
        metadata: Object = {"name": service.name, "namespace": service.namespace, "labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        body: Object = {"kind": "Endpoints", "apiVersion": "v1", "metadata": metadata}
        if subsets:
            body["subsets"] = subsets
        await self._client.raw("POST", path_of(ENDPOINTS, service.namespace), None, orjson.dumps(body))

    async def _update(
        self, current: EndpointsView, labels: Labels, annotations: Labels, subsets: list[Object]
    ) -> None:
        patch: Object = {
            "metadata": {
                # A write from a stale copy must conflict (409) and be retried.
                "resourceVersion": current.resource_version,
                "labels": {**dict.fromkeys(current.labels), **labels},
                "annotations": {**dict.fromkeys(current.annotations), **annotations},
            },
            "subsets": subsets or None,
        }
        path = path_of(ENDPOINTS, current.namespace, current.name)
        await self._client.raw("PATCH", path, None, orjson.dumps(patch), MERGE_PATCH)

    def _report(self, service: ServiceView, current: EndpointsView | None, error: StatusError) -> None:
        name = f"{service.namespace}/{service.name}"
        if current is None:
            reason, message = "FailedToCreateEndpoint", f"Failed to create endpoint for service {name}: {error}"
        else:
            reason, message = "FailedToUpdateEndpoint", f"Failed to update endpoint {name}: {error}"
        self._recorder.event(involved("Endpoints", current or service), WARNING, reason, message)


def _labels(service: ServiceView) -> Labels:
    labels = {**service.labels, MANAGED_BY: CONTROLLER_NAME}
    labels.pop(HEADLESS, None)
    if service.headless:
        labels[HEADLESS] = ""
    return labels


def _up_to_date(current: EndpointsView, service: ServiceView, subsets: list[Object]) -> bool:
    own = {name: value for name, value in current.labels.items() if name not in (HEADLESS, MANAGED_BY)}
    if current.labels.get(MANAGED_BY) != CONTROLLER_NAME or own != {
        name: value for name, value in service.labels.items() if name not in (HEADLESS, MANAGED_BY)
    }:
        return False
    if OVER_CAPACITY in current.annotations:
        return False
    return list(current.subsets) == subsets or repack(current.subsets) == subsets
