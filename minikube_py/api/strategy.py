"""What the server itself does to an object on its way in: who owns which part, generation, grace, binding, scale.

The rules are those of `pkg/registry/*/strategy.go` and `apiserver/pkg/registry/rest`. Objects have their defaults;
they are changed in place, and parts of the old object are shared with the new one, never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from minikube_py.api import registry, services
from minikube_py.api.admission import admit_pod
from minikube_py.api.defaults import NAMESPACE_NAME_LABEL
from minikube_py.api.errors import GroupResource, Json, conflict
from minikube_py.api.meta import timestamp
from minikube_py.api.registry import Resource
from minikube_py.api.selectors import selector_from_map
from minikube_py.fields import quantity

KUBERNETES_FINALIZER: Final = "kubernetes"


def semantic_equal(left: Any, right: Any) -> bool:
    """Equal, where empty text, lists and maps, false and null are the same as missing."""
    if left == right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return all(semantic_equal(left.get(key), right.get(key)) for key in left.keys() | right.keys())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(semantic_equal, left, right))
    return _is_nothing(left) and _is_nothing(right)


def _is_nothing(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_nothing, value.values()))
    return value is None or value is False or value in ("", [])


# --- create ---------------------------------------------------------------------------------------------------------


def prepare_for_create(resource: Resource, obj: Json) -> None:
    """Admits, clears what senders may not set, and sets what the server does. Name, uid and creationTimestamp are
    the caller's.

    Raises: StatusError 403 of admission."""
    # Who manages which field is not kept.
    obj["metadata"].pop("managedFields", None)
    prepare = _CREATE.get(resource)
    if prepare is not None:
        prepare(obj)


def _create_pod(pod: Json) -> None:
    admit_pod(pod)
    pod["metadata"]["generation"] = 1
    spec = pod["spec"]
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"].get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _create_namespace(namespace: Json) -> None:
    namespace["status"] = {"phase": "Active"}
    spec = namespace["spec"]
    finalizers = spec.get("finalizers") or []
    if KUBERNETES_FINALIZER not in finalizers:
        spec["finalizers"] = [*finalizers, KUBERNETES_FINALIZER]


def _create_replication_controller(controller: Json) -> None:
    controller["status"] = {"replicas": 0}
    controller["metadata"]["generation"] = 1


def _create_service(service: Json) -> None:
    service["status"] = {"loadBalancer": {}}
    services.complete_families(service)


def _create_node(node: Json) -> None:
    node["spec"].pop("configSource", None)
    node["status"].pop("config", None)


def _clean_secret_references(account: Json) -> None:
    if secrets := account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in secrets]


_CREATE: Final[dict[Resource, Callable[[Json], None]]] = {
    registry.PODS: _create_pod,
    registry.NAMESPACES: _create_namespace,
    registry.REPLICATIONCONTROLLERS: _create_replication_controller,
    registry.SERVICES: _create_service,
    registry.NODES: _create_node,
    registry.SERVICEACCOUNTS: _clean_secret_references,
}


def canonicalize(resource: Resource, obj: Json) -> None:
    """After validation, when the name is known: a namespace carries its name as a label."""
    if resource is registry.NAMESPACES:
        metadata = obj["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), NAMESPACE_NAME_LABEL: metadata["name"]}


_QOS_RESOURCES: Final = ("cpu", "memory")


def qos_class(spec: Json) -> str:
    """`Guaranteed` where all containers limit cpu and memory and ask for as much, `BestEffort` where none asks for
    any, `Burstable` otherwise. Pod-level resources, where given, decide alone."""
    holders = [spec] if spec.get("resources") else (spec.get("containers") or []) + (spec.get("initContainers") or [])
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    limited = True
    for holder in holders:
        resources = holder.get("resources")
        if not resources:
            limited = False
            continue
        if given := resources.get("requests"):
            for name in _QOS_RESOURCES:
                if name in given and (amount := quantity.parse(given[name]).milli_value()) > 0:
                    requests[name] = requests.get(name, 0) + amount
        found = 0
        if given := resources.get("limits"):
            for name in _QOS_RESOURCES:
                if name in given and (amount := quantity.parse(given[name]).milli_value()) > 0:
                    limits[name] = limits.get(name, 0) + amount
                    found += 1
        if found < len(_QOS_RESOURCES):
            limited = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if limited and requests == limits else "Burstable"


# --- update ---------------------------------------------------------------------------------------------------------


def prepare_for_update(resource: Resource, new: Json, old: Json, subresource: str = "") -> None:
    """Keeps what this path may not write: status on the main one, spec on `status`; and what nobody may.

    Raises: StatusError 403 of admission."""
    metadata, before = new["metadata"], old["metadata"]
    metadata.pop("managedFields", None)
    if before.get("generation") is not None:
        metadata["generation"] = before["generation"]
    else:
        metadata.pop("generation", None)
    if resource is registry.PODS and not subresource:
        admit_pod(new, old)
    if subresource == "status":
        _update_status(resource, new, old)
    elif subresource == "finalize":
        _keep(new, old, "status")
    else:
        _update_main(resource, new, old)
    if not metadata.get("uid"):
        metadata["uid"] = before["uid"]
    if before.get("creationTimestamp"):
        metadata["creationTimestamp"] = before["creationTimestamp"]
    if before.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    if before.get("deletionGracePeriodSeconds") is not None and metadata.get("deletionGracePeriodSeconds") is None:
        metadata["deletionGracePeriodSeconds"] = before["deletionGracePeriodSeconds"]


def _keep(new: Json, old: Json, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _update_main(resource: Resource, new: Json, old: Json) -> None:
    if resource.has_status:
        _keep(new, old, "status")
    if resource is registry.NAMESPACES:
        _keep(new["spec"], old["spec"], "finalizers")
    elif resource is registry.SERVICES:
        services.keep_allocated(new, old)
        services.drop_type_dependent(new, old)
        services.complete_families(new)
    elif resource is registry.SECRETS:
        new["type"] = new.get("type") or old.get("type")
    elif resource is registry.SERVICEACCOUNTS:
        _clean_secret_references(new)
    elif resource is registry.NODES and not old["spec"].get("configSource"):
        new["spec"].pop("configSource", None)
    if resource.generation and not semantic_equal(new.get("spec"), old.get("spec")):
        new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1


def _update_status(resource: Resource, new: Json, old: Json) -> None:
    _keep(new, old, "spec")
    if resource is registry.PODS:
        metadata, status = new["metadata"], new["status"]
        metadata.pop("deletionTimestamp", None)
        _keep(metadata, old["metadata"], "ownerReferences")
        before = old.get("status") or {}
        if not status.get("qosClass") and before.get("qosClass"):
            status["qosClass"] = before["qosClass"]
        _keep_observed_generation(status, before)


def _keep_observed_generation(status: Json, before: Json) -> None:
    """Writers that do not know the field must not clear it."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration") or 0)
    for condition in status.get("conditions") or ():
        generations = known.get(condition.get("type", ""))
        generation = generations.pop(0) if generations else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


# --- delete ---------------------------------------------------------------------------------------------------------


def deletion_grace_s(resource: Resource, obj: Json, asked_s: int | None) -> int:
    """Seconds between the request and the end; 0 where it ends at once."""
    if not resource.graceful:
        return 0
    spec = obj["spec"]
    period_s = asked_s if asked_s is not None else (spec.get("terminationGracePeriodSeconds") or 0)
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if period_s < 0 else int(period_s)


# --- binding --------------------------------------------------------------------------------------------------------

_PODS_BINDING: Final = GroupResource("", "pods/binding", "Binding")


def bind_pod(pod: Json, binding: Json, wall_s: float) -> None:
    """Sets the node and the PodScheduled condition. Raises: StatusError 409 where it cannot be bound any more."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    wanted = binding.get("metadata") or {}
    check_preconditions(registry.PODS, pod, wanted.get("uid"), wanted.get("resourceVersion"))
    if metadata.get("deletionTimestamp"):
        raise conflict(_PODS_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict(_PODS_BINDING, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(_PODS_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = binding["target"]["name"]
    if annotations := wanted.get("annotations"):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    if labels := wanted.get("labels"):
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    conditions = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(wall_s),
    }
    status["conditions"] = [*conditions, scheduled]


def check_preconditions(resource: Resource, obj: Json, uid: str | None, resource_version: str | None) -> None:
    """Raises: StatusError 409 where a uid or resourceVersion was named and the object has another."""
    metadata = obj["metadata"]
    for key, what, wanted in (("uid", "UID", uid), ("resourceVersion", "ResourceVersion", resource_version)):
        found = metadata.get(key) or ""
        if wanted and wanted != found:
            name, namespace = metadata["name"], metadata.get("namespace") or ""
            why = (
                f"StorageError: invalid object, Code: 4, Key: {resource.key(namespace, name).decode()}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, "
                f"{what} in object meta: {found}"
            )
            raise conflict(resource, name, why)


# --- scale ----------------------------------------------------------------------------------------------------------


def scale_of(controller: Json) -> Json:
    """The autoscaling/v1 Scale of a replication controller."""
    metadata = controller["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec, status = controller["spec"], controller.get("status") or {}
    scale: Json = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if metadata.get(key)},
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": {"replicas": status.get("replicas") or 0},
    }
    if selector := str(selector_from_map(spec.get("selector"))):
        scale["status"]["selector"] = selector
    return scale


def with_scale(controller: Json, scale: Json) -> Json:
    """A new replication controller with the scale's replicas; the given one stays as it is."""
    spec = {**controller["spec"], "replicas": (scale.get("spec") or {}).get("replicas") or 0}
    metadata = dict(controller["metadata"])
    given = scale.get("metadata") or {}
    for key in ("resourceVersion", "uid"):
        if given.get(key):
            metadata[key] = given[key]
    return {**controller, "metadata": metadata, "spec": spec}
