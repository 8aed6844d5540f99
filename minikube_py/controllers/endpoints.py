"""Endpoints: which addresses stand behind a service.

Source: k8s.io/kubernetes/pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import WARNING
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import ENDPOINTS, PODS, SERVICES, Object, path_of
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.base import BY_LABEL, BY_SELECTOR, ControllerContext, QueueWorkers, has_cause, involved
from minikube_py.controllers.subsets import build_subsets, repack, truncate
from minikube_py.controllers.views import EndpointsView, Labels, PodView, ServiceView, matches

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
CONTROLLER_NAME: Final = "endpoint-controller"
HEADLESS: Final = "service.kubernetes.io/headless"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"
LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
BUSY_SHARE: Final = 0.1
"""A service whose pods keep changing is synced so seldom that its syncs take about this share of the time."""
COALESCE_MAX_S: Final = 1.0


@dataclass(slots=True)
class _Triggers:
    """What made the endpoints change, as times in the objects (RFC 3339, so they compare as text)."""

    service: str = ""
    pods: dict[str, str] = field(default_factory=dict)


class EndpointsController:
    name = "endpoints-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder(CONTROLLER_NAME)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._services: Informer[ServiceView] = context.informers.of(SERVICES)
        self._endpoints: Informer[EndpointsView] = context.informers.of(ENDPOINTS)
        self._workers = QueueWorkers(context, "endpoint", self.sync)
        self._queue = self._workers.queue
        self._triggers: dict[str, _Triggers] = {}
        self._cost_s: dict[str, float] = {}
        self._services.add_handler(
            Handler(
                on_add=lambda service: self._queue.add(service.key),
                on_update=lambda old, new: self._queue.add(new.key),
                on_delete=lambda service: self._queue.add(service.key),
            )
        )
        self._pods.add_handler(
            Handler(on_add=self._pod_changed, on_update=self._pod_updated, on_delete=self._pod_changed)
        )
        self._endpoints.add_handler(Handler(on_delete=lambda endpoints: self._queue.add(endpoints.key)))

    def start(self) -> None:
        for endpoints in self._endpoints.store:
            # Their service may have gone while nobody watched; records of old leader elections have none.
            if LEADER not in endpoints.annotations:
                self._queue.add(endpoints.key)
        self._workers.start()

    async def stop(self) -> None:
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()

    # --- what happened, and whom it concerns ------------------------------------------------------------------------

    def _pod_changed(self, pod: PodView) -> None:
        if pod.ips:
            self._enqueue_services(pod)

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        moved = old.labels != new.labels or old.hostname != new.hostname or old.subdomain != new.subdomain
        changed = (
            bool(old.deleting) != bool(new.deleting)
            or old.ready != new.ready
            or old.ips != new.ips
            or old.terminal != new.terminal
        )
        if moved:
            self._enqueue_services(old)
        if (moved or changed) and (new.ips or old.ips):
            self._enqueue_services(new)

    def _enqueue_services(self, pod: PodView) -> None:
        store = self._services.store
        if not len(store):
            return
        for key, value in pod.labels.items():
            for service in store.by_index(BY_SELECTOR, (pod.namespace, key, value)):
                if matches(service.selector or {}, pod.labels):
                    cost_s = self._cost_s.get(service.key, 0.0)
                    self._queue.add_after(service.key, min(COALESCE_MAX_S, cost_s / BUSY_SHARE))

    # --- one service ------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        service = self._services.store.get(key)
        if service is None:
            await self._delete(key)
            return
        if service.external_name or service.selector is None:
            return
        started_s = self._clock.monotonic_s()
        pods = self._selected(service)
        trigger = self._trigger_time(key, service, pods)
        subsets = build_subsets(service, pods)
        current = self._endpoints.store.get(key)
        if current is None or not _up_to_date(current, service, subsets):
            await self._write(service, current, subsets, trigger)
        self._cost_s[key] = self._clock.monotonic_s() - started_s

    async def _delete(self, key: str) -> None:
        self._triggers.pop(key, None)
        self._cost_s.pop(key, None)
        namespace, name = key.split("/", 1)
        try:
            await self._client.delete(ENDPOINTS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise

    def _selected(self, service: ServiceView) -> list[PodView]:
        selector, store = service.selector, self._pods.store
        if not selector:
            return []
        rarest = min(selector, key=lambda k: store.count_by_index(BY_LABEL, (service.namespace, k, selector[k])))
        alike = store.by_index(BY_LABEL, (service.namespace, rarest, selector[rarest]))
        return [pod for pod in alike if matches(selector, pod.labels)]

    def _trigger_time(self, key: str, service: ServiceView, pods: Iterable[PodView]) -> str:
        """The earliest of the changes since the last sync; of a service seen first, its creation."""
        known = self._triggers.get(key)
        before = known if known is not None else _Triggers()
        now = {pod.name: pod.ready_since for pod in pods if pod.ready_since}
        changed = [at for name, at in now.items() if at > before.pods.get(name, "")]
        if service.created > before.service:
            changed.append(service.created)
        self._triggers[key] = _Triggers(service.created, now)
        return service.created if known is None else min(changed, default="")

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
                # A stale copy must not undo what it has not seen: then 409, and once more.
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
