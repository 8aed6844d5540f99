"""Objects that operations create without a file, and upstream's additions to those from files.

Source: test/integration/scheduler_perf/util.go, dra.go; test/utils/runners.go.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Message, Type
from minikube_py.client.rest import ResourceRef
from minikube_py.errors import InvalidRequest
from minikube_py.lab.scheduler_perf.ops import CreatePods, NodeAllocatable
from minikube_py.lab.scheduler_perf.templates import template

Object = dict[str, Any]

SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names, as upstream's."""
SAME_AS: Final = {("resource.k8s.io", "v1beta2"): "v1"}
"""Versions whose fields equal those of a served version."""
INERT: Final = {("resource.k8s.io", "DeviceTaintRule"): "DRADeviceTaintRules"}
"""Kinds that upstream's scheduler ignores unless this gate is on."""
IMAGE: Final = "registry.k8s.io/pause:3.10.1"
_AMOUNTS: Final = {"pods": "110", "cpu": "4", "memory": "32Gi"}
_ASKED: Final = {"cpu": "100m", "memory": "500Mi"}


def base_pod() -> Object:
    container = {
        "name": "pause",
        "image": IMAGE,
        "ports": [{"containerPort": 80}],
        "resources": {"limits": dict(_ASKED), "requests": dict(_ASKED)},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-"},
        "spec": {"containers": [container]},
    }


def base_node(prefix: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": dict(_AMOUNTS),
            "allocatable": dict(_AMOUNTS),
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def named_node(node: Object, rng: random.Random) -> Object:
    """With its name, which the hostname label needs in advance."""
    metadata = node["metadata"]
    if not metadata.get("name"):
        metadata["name"] = metadata["generateName"] + "".join(rng.choice(SUFFIX) for _ in range(5))
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/hostname": metadata["name"]}
    return node


def csi_node(name: str, strategy: NodeAllocatable) -> Object:
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(strategy.migrated_plugins)}
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": allocatable}
        for driver, allocatable in strategy.csi_node_allocatable.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": migrated},
        "spec": {"drivers": drivers},
    }


def device_slice(driver: str, node: str, devices: int) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"instance-{number}",
                    "attributes": {
                        "model": {"string": "A100"},
                        "family": {"string": "GPU"},
                        "driverVersion": {"version": "1.2.3"},
                        "dra.example.com/numa": {"int": number},
                    },
                    "capacity": {"memory": {"value": "1Gi"}},
                }
                for number in range(devices)
            ],
        },
    }


def volume_and_claim(volume: Object, claim: Object, namespace: str, index: int) -> tuple[Object, Object]:
    """Copies that are bound to each other; their statuses must be written separately."""
    name, claim_name = f"{namespace}-vol-{index}", f"pvc-{index}"
    spec = dict(volume.get("spec") or {})
    if "csi" in spec:
        spec["csi"] = {**spec["csi"], "volumeHandle": name}
    elif "awsElasticBlockStore" in spec:
        spec["awsElasticBlockStore"] = {**spec["awsElasticBlockStore"], "volumeID": f"vol-{index}"}
    spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name}
    metadata = {**(volume.get("metadata") or {}), "name": name}
    made = {**volume, "metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}
    bound = {
        **claim,
        "metadata": {**(claim.get("metadata") or {}), "name": claim_name},
        "spec": {**claim["spec"], "volumeName": name},
        "status": {"phase": "Bound"},
    }
    return made, bound


def pod_maker(op: CreatePods, path: Path | None) -> Callable[[int], bytes]:
    """The pod for an index, as JSON."""
    claims = op.persistent_volume_claim_template_path
    source = template(path) if path is not None else None
    if source is None or (source.is_fixed and not claims):
        pod = base_pod() if source is None else typed(source.render())
        if not claims:
            fixed = orjson.dumps(with_class(pod))
            return lambda index: fixed

    def made(index: int) -> bytes:
        pod = base_pod() if source is None else typed(source.render(index, op.count))
        if claims:
            volume = {"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{index}"}}
            pod["spec"]["volumes"] = [volume]
        return orjson.dumps(with_class(pod))

    return made


def class_name(priority: int) -> str:
    return f"scheduler-perf-{priority}".replace("--", "-minus-")


def with_class(obj: Object) -> Object:
    """Upstream's benchmark disables the admission plugin Priority, so its pods give only a number. Here each number has
    a class."""
    spec = obj.get("spec") or {}
    if obj.get("kind") == "Pod" and spec.get("priority") is not None and not spec.get("priorityClassName"):
        spec["priorityClassName"] = class_name(spec["priority"])
    return obj


def priority_class(priority: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": class_name(priority)},
        "value": priority,
    }


def priority_of(obj: Mapping[str, Any]) -> int | None:
    """The priority number of a pod."""
    priority = (obj.get("spec") or {}).get("priority") if obj.get("kind") == "Pod" else None
    return int(priority) if priority is not None else None


def typed(obj: Object) -> Object:
    """With the API's field names. Upstream decodes pods, nodes, namespaces and volumes into Go types, which accept
    names in any case, and one of its files relies on it."""
    message = SCHEMA.kind(*group_and_version(obj), str(obj.get("kind")))
    return obj if message is None else _as_message(obj, message)


def _as_message(value: Object, message: Message) -> Object:
    fields = {each.name.lower(): each for each in message.fields.values()}
    found = {}
    for key, inner in value.items():
        field = fields.get(key.lower())
        found[field.name if field else key] = _as_type(inner, field.type) if field else inner
    return found


def _as_type(value: Any, type_: Type) -> Any:
    if type_.kind == "message" and isinstance(value, dict):
        return _as_message(value, SCHEMA.message(type_.message))
    if type_.kind == "list" and type_.element is not None and isinstance(value, list):
        return [_as_type(each, type_.element) for each in value]
    return value


def group_and_version(obj: Mapping[str, Any]) -> tuple[str, str]:
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    return group, version


def is_inert(obj: Mapping[str, Any]) -> bool:
    return (group_and_version(obj)[0], obj.get("kind")) in INERT


def served(obj: Object, place: str) -> tuple[Kind, ResourceRef]:
    """The kind and path of an object, after changing its apiVersion to the served one. Raises: InvalidRequest."""
    group, version = group_and_version(obj)
    version = SAME_AS.get((group, version), version)
    kind = REGISTRY.kind(group, version, str(obj.get("kind")))
    if kind is None:
        raise InvalidRequest(f"{place}: the API has no kind {obj.get('kind')} of {obj.get('apiVersion')}")
    obj["apiVersion"] = f"{group}/{version}" if group else version
    return kind, ResourceRef(group, version, kind.plural)
