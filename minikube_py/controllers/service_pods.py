"""Services and their pods: which services a change affects, which pods they select, and since when.

Source: k8s.io/endpointslice/util (controller_utils.go, trigger_time_tracker.go).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, SERVICES
from minikube_py.controllers.base import BY_LABEL, BY_SELECTOR, ControllerContext, QueueWorkers
from minikube_py.controllers.views import PodView, ServiceView, matches

BUSY_SHARE: Final = 0.1
"""Syncs of a service whose pods keep changing are throttled to about this share of the time."""
COALESCE_MAX_S: Final = 1.0


@dataclass(slots=True)
class _Triggers:
    """The changes behind new endpoints, as times from the objects (RFC 3339, so they compare as text)."""

    service: str = ""
    pods: dict[str, str] = field(default_factory=dict)


class ServicePods:
    """A controller with one queue of services, notified of changes to them and to their pods."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        self._client = context.client
        self._clock = context.clock
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._services: Informer[ServiceView] = context.informers.of(SERVICES)
        self._workers = QueueWorkers(context, name, self.sync)
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

    async def sync(self, key: str) -> None:
        """One service."""
        raise NotImplementedError

    async def stop(self) -> None:
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()

    def forget(self, key: str) -> None:
        """The service is gone."""
        self._triggers.pop(key, None)
        self._cost_s.pop(key, None)

    def took(self, key: str, started_s: float) -> None:
        self._cost_s[key] = self._clock.monotonic_s() - started_s

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

    def selected(self, service: ServiceView) -> list[PodView]:
        selector, store = service.selector, self._pods.store
        if not selector:
            return []
        rarest = min(selector, key=lambda k: store.count_by_index(BY_LABEL, (service.namespace, k, selector[k])))
        alike = store.by_index(BY_LABEL, (service.namespace, rarest, selector[rarest]))
        return [pod for pod in alike if matches(selector, pod.labels)]

    def trigger_time(self, key: str, service: ServiceView, pods: Iterable[PodView]) -> str:
        """The earliest change since the last sync; for a new service, its creation."""
        known = self._triggers.get(key)
        before = known if known is not None else _Triggers()
        now = {pod.name: pod.ready_since for pod in pods if pod.ready_since}
        changed = [at for name, at in now.items() if at > before.pods.get(name, "")]
        if service.created > before.service:
            changed.append(service.created)
        self._triggers[key] = _Triggers(service.created, now)
        return service.created if known is None else min(changed, default="")
