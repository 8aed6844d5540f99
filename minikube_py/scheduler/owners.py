"""The pods that belong together by Services and controller, which default constraints spread.

Source: pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.selectors import LabelRequirement, LabelSelector
from minikube_py.client.informer import Handler
from minikube_py.client.rest import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, ResourceRef
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle

Labels = Mapping[str, str]
REMEMBERED_MAX: Final = 4096

_CONTROLLERS: Final[Mapping[tuple[str, str], ResourceRef]] = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): REPLICA_SETS,
    ("apps/v1", "StatefulSet"): STATEFUL_SETS,
}


class SelectorOf:
    """An object reduced to its selector: labels, or a selector's requirements."""

    __slots__ = ("key", "labels", "namespace", "requirements", "uid")

    def __init__(self, obj: Mapping[str, Any], labels: Labels, requirements: tuple[LabelRequirement, ...]) -> None:
        metadata = obj["metadata"]
        self.namespace: str = metadata["namespace"]
        self.key = f"{self.namespace}/{metadata['name']}"
        self.uid: str = metadata.get("uid", "")
        self.labels = labels
        self.requirements = requirements


def by_labels(obj: Mapping[str, Any]) -> SelectorOf:
    """Of a Service or a ReplicationController."""
    return SelectorOf(obj, (obj.get("spec") or {}).get("selector") or {}, ())


def by_selector(obj: Mapping[str, Any]) -> SelectorOf:
    """Of a ReplicaSet or a StatefulSet. An invalid selector adds nothing."""
    try:
        selector = (obj.get("spec") or {}).get("selector")
        return SelectorOf(obj, {}, selector_of(selector).requirements if selector else ())
    except InvalidSelector:
        return SelectorOf(obj, {}, ())


class DefaultSelectors:
    """Tracks the cluster's Services and controllers."""

    def __init__(self, handle: Handle) -> None:
        self._services: dict[str, dict[str, SelectorOf]] = {}
        self._remembered: OrderedDict[object, tuple[Labels, LabelSelector]] = OrderedDict()
        projections: Mapping[ResourceRef, Callable[[Any], SelectorOf]] = {
            SERVICES: by_labels,
            REPLICATION_CONTROLLERS: by_labels,
            REPLICA_SETS: by_selector,
            STATEFUL_SETS: by_selector,
        }
        self._stores = {}
        for resource, project in projections.items():
            informer = handle.informer(resource, project)
            self._stores[resource] = informer.store
            if resource is SERVICES:
                informer.add_handler(Handler(self._put, lambda _, new: self._put(new), self._remove))
            informer.add_handler(Handler(self._forget, self._changed, self._forget))

    def _put(self, service: SelectorOf) -> None:
        self._services.setdefault(service.namespace, {})[service.key] = service

    def _remove(self, service: SelectorOf) -> None:
        own = self._services[service.namespace]
        del own[service.key]
        if not own:
            del self._services[service.namespace]

    def _forget(self, _: SelectorOf) -> None:
        self._remembered.clear()

    def _changed(self, old: SelectorOf, new: SelectorOf) -> None:
        if old.labels != new.labels or old.requirements != new.requirements:
            self._remembered.clear()

    def of(self, pod: PodInfo) -> LabelSelector:
        """Without requirements if nothing selects the pod."""
        key = (pod.namespace, id(pod.labels), pod.controller)
        found = self._remembered.get(key)
        if found is None or found[0] is not pod.labels:
            # The cached labels are kept alive, so that their id is not reused.
            found = self._remembered[key] = (pod.labels, self._worked_out(pod))
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return found[1]

    def _worked_out(self, pod: PodInfo) -> LabelSelector:
        labels: dict[str, str] = {}
        for service in self._services.get(pod.namespace, {}).values():
            if service.labels and service.labels.items() <= pod.labels.items():
                labels.update(service.labels)
        requirements: tuple[LabelRequirement, ...] = ()
        if pod.controller is not None:
            api_version, kind, name = pod.controller
            resource = _CONTROLLERS.get((api_version, kind))
            owner = None if resource is None else self._stores[resource].get(f"{pod.namespace}/{name}")
            if owner is not None:
                labels.update(owner.labels)
                requirements = owner.requirements
        own = tuple(LabelRequirement(key, "=", (labels[key],)) for key in sorted(labels))
        return LabelSelector((*own, *requirements))
