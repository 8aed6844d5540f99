"""Extended resources backed by DeviceClasses: the class of a name, and the claim for a pod's requests.

Source: `k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache`,
`dynamicresources/extendeddynamicresources.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from minikube_py.api.validation.resources import is_extended
from minikube_py.scheduler.asks import ContainerAsks
from minikube_py.scheduler.devices.views import EXACT_COUNT, ClaimView, ClassView
from minikube_py.scheduler.objects import PodInfo, PodSpec

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Each class also backs the resource with this prefix and its name."""
ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
IN_MEMORY: Final = "<extended-resources>"
"""The name of a pod's special claim before it is created: no real claim can have it."""
Object = dict[str, Any]


def names_in(spec: PodSpec) -> tuple[str, ...]:
    """The requested resources that a class may back."""
    if not spec.asks:
        return ()
    found: tuple[str, ...] | None = spec.cache.get("devices/names")
    if found is None:
        names = (name for name, _ in spec.requests if is_extended(name) or name.startswith(CLASS_PREFIX))
        found = spec.cache["devices/names"] = tuple(sorted(names))
    return found


class ClassesByResource:
    """If two classes back one resource, the newer one wins, then the first by name."""

    def __init__(self) -> None:
        self._classes: dict[str, ClassView] = {}

    def get(self, resource: str) -> ClassView | None:
        return self._classes.get(resource)

    def put(self, new: ClassView, old: ClassView | None = None) -> None:
        other = self._classes.get(new.extended_resource) if new.extended_resource else None
        if other is not None and (
            new.created < other.created or (new.created == other.created and new.name >= other.name)
        ):
            return
        if old is not None:
            self.remove(old)
        if new.extended_resource:
            self._classes[new.extended_resource] = new
        self._classes[CLASS_PREFIX + new.name] = new

    def remove(self, gone: ClassView) -> None:
        self._classes.pop(CLASS_PREFIX + gone.name, None)
        self._classes.pop(gone.extended_resource, None)


def special_claim(pod: PodInfo, requests: Sequence[Object] = ()) -> ClaimView:
    """The claim for all extended resources of a pod, while it exists only in memory."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata = {
        "name": IN_MEMORY,
        "namespace": pod.namespace,
        "uid": f"{IN_MEMORY}/{pod.uid}",
        "generateName": f"{pod.name}-extended-resources-",
        "ownerReferences": [owner],
        "annotations": {ANNOTATION: "true"},
    }
    return ClaimView({"metadata": metadata, "spec": {"devices": {"requests": list(requests)}} if requests else {}})


def pod_of_special(claim: ClaimView) -> str:
    """The uid of the pod of this special claim, or ""."""
    metadata = claim.obj["metadata"]
    if (metadata.get("annotations") or {}).get(ANNOTATION) != "true":
        return ""
    owners = metadata.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def requests_and_mappings(
    containers: Sequence[ContainerAsks], resources: Iterable[str], class_of: Callable[[str], ClassView | None]
) -> tuple[list[Object], list[Object]]:
    """The requests of the special claim, and which of them serves which resource of which container.

    Terminating containers reuse the devices of later ones; one request covers the rest."""
    requests: list[Object] = []
    mappings: list[Object] = []
    for resource in sorted(resources):
        view = class_of(resource)
        if view is None:
            continue
        lasting: list[Object | None] = [None] * len(containers)
        for i, container in enumerate(containers):
            if not container.ends:
                lasting[i], mapped = _request(i, container, resource, view.name, ())
                mappings += mapped
        most: Object | None = None
        names: set[str] = set()
        passing: list[Object] = []
        for i, container in enumerate(containers):
            if container.ends:
                request, mapped = _request(i, container, resource, view.name, lasting[i:])
                passing += mapped
                if request is not None:
                    names.add(request["name"])
                    if most is None or most["exactly"]["count"] < request["exactly"]["count"]:
                        most = request
        if most is not None:
            requests.append(most)
            for mapping in passing:
                if mapping["requestName"] in names:
                    mapping["requestName"] = most["name"]
        requests += filter(None, lasting)
        mappings += passing
    return sorted(requests, key=lambda each: str(each["name"])), mappings


def _request(
    place: int, container: ContainerAsks, resource: str, class_name: str, reusable: Sequence[Object | None]
) -> tuple[Object | None, list[Object]]:
    amounts = dict(container.requests)
    left, mappings = amounts.get(resource, 0), []
    if not left:
        return None, []

    def mapped(request: str) -> Object:
        return {"containerName": container.name, "resourceName": resource, "requestName": request}

    for each in filter(None, reusable):
        mappings.append(mapped(each["name"]))
        left -= each["exactly"]["count"]
        if left <= 0:
            return None, mappings
    name = f"container-{place}-request-{sorted(amounts).index(resource)}"
    exactly = {"deviceClassName": class_name, "allocationMode": EXACT_COUNT, "count": left}
    return {"name": name, "exactly": exactly}, [*mappings, mapped(name)]
