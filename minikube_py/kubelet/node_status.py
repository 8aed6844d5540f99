"""The node objects that a fake kubelet writes: whole at registration, their status when adopted, heartbeats. Pure.

Source: kubernetes.io/docs/reference/node/node-status.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from minikube_py.client.rest import Object
from minikube_py.kubelet.config import DEFAULT_CAPACITY, NodeSpec

FEATURES: Final = ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers")
LEASE_NAMESPACE: Final = "kube-node-lease"
KUBELET_PORT: Final = 10250

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def conditions(now: str) -> list[Object]:
    """Healthy, since `now`."""
    return [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, status, reason, message in _CONDITIONS
    ]


def _node_info(name: str, version: str) -> Object:
    """Ids are derived from the name, so that a node keeps them."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    uuid = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return {
        "machineID": digest[:32],
        "systemUUID": uuid,
        "bootID": uuid,
        "kernelVersion": "6.1.0-fake",
        "osImage": "minikube-py fake node",
        "containerRuntimeVersion": "minikube-py://0.1.0",
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def status(name: str, address: str, version: str, now: str) -> Object:
    """A healthy status without capacity and allocatable."""
    return {
        "conditions": conditions(now),
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": _node_info(name, version),
    }


def new_node(spec: NodeSpec, cidr: str, address: str, version: str, now: str) -> bytes:
    """The node as it registers: Ready at once, or, where `now` is "", without conditions."""
    name = spec.name
    metadata: Object = {"name": name, "labels": {**_labels(name), **spec.labels}}
    if spec.annotations:
        metadata["annotations"] = dict(spec.annotations)
    node_spec: Object = {"podCIDR": cidr, "podCIDRs": [cidr]}
    if spec.taints:
        node_spec["taints"] = [dict(taint) for taint in spec.taints]
    capacity = dict(spec.capacity)
    allocatable = dict(spec.allocatable) if spec.allocatable is not None else capacity
    node_status = {**status(name, address, version, now), "capacity": capacity, "allocatable": allocatable}
    if not now:
        del node_status["conditions"]
    node_status["declaredFeatures"] = list(FEATURES)
    return orjson.dumps(
        {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": node_spec, "status": node_status}
    )


def _labels(name: str) -> Mapping[str, str]:
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
    }


def adopted_status(name: str, uid: str, address: str, version: str, now: str, has_capacity: bool) -> bytes:
    """A strategic merge patch of /status for a node created by others or marked as lost."""
    patch: dict[str, Any] = status(name, address, version, now)
    if not has_capacity:
        patch["capacity"] = patch["allocatable"] = dict(DEFAULT_CAPACITY)
    return orjson.dumps({"metadata": {"uid": uid}, "status": patch})


def heartbeat(now: str) -> bytes:
    """A strategic merge patch of /status that reports the node as healthy; the same for all nodes."""
    beats = [{"type": kind, "lastHeartbeatTime": now} for kind, *_ in _CONDITIONS]
    return orjson.dumps({"status": {"conditions": beats}})


def lease(name: str, node_uid: str, resource_version: str, duration_s: int, renew_time: str) -> bytes:
    """The node's lease. Names are DNS names and versions digits: nothing needs escaping, and orjson is not needed for
    what is written hundreds of times a second. `node_uid` "": no owner yet; `resource_version` "": to be created."""
    version = f',"resourceVersion":"{resource_version}"' if resource_version else ""
    reference = f'{{"apiVersion":"v1","kind":"Node","name":"{name}","uid":"{node_uid}"}}'
    owner = f',"ownerReferences":[{reference}]' if node_uid else ""
    return (
        f'{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"{name}",'
        f'"namespace":"{LEASE_NAMESPACE}"{version}{owner}}},"spec":{{"holderIdentity":"{name}",'
        f'"leaseDurationSeconds":{duration_s},"renewTime":"{renew_time}"}}}}'
    ).encode()
