"""Node shapes and pod bodies of a run, from a trace or a seed.

The same seed gives the same objects in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from minikube_py.env import Rng
from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab.trace import TraceNode, TracePod

GPU_RESOURCE = "openb.io/gpu-milli"
GPU_MODEL_LABEL = "openb.io/gpu-model"
RUN_LABEL = "minikube-py.io/run"
MAX_PODS_PER_NODE = 110  # upstream's default, and its tested limit


class PodBody(NamedTuple):
    """A pod to create; `body` is the JSON to send."""

    namespace: str
    name: str
    body: bytes

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def cpu_text(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def memory_text(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def trace_nodes(nodes: Iterable[TraceNode]) -> list[NodeSpec]:
    return [_trace_node(node) for node in nodes]


def _trace_node(node: TraceNode) -> NodeSpec:
    capacity = {"cpu": cpu_text(node.cpu_milli), "memory": memory_text(node.memory_mib), "pods": str(MAX_PODS_PER_NODE)}
    if not node.gpus:
        return NodeSpec(node.name, capacity, {})
    return NodeSpec(node.name, {**capacity, GPU_RESOURCE: str(node.gpus * 1000)}, {GPU_MODEL_LABEL: node.model})


def trace_pods(pods: Iterable[TracePod], namespace: str, run: str) -> list[PodBody]:
    """GPUs become `openb.io/gpu-milli`, as request and limit (extended resources cannot be overcommitted); a pod's
    accepted models become its required node affinity."""
    return [_trace_pod(pod, namespace, run) for pod in pods]


def _trace_pod(pod: TracePod, namespace: str, run: str) -> PodBody:
    requests = {"cpu": cpu_text(pod.cpu_milli), "memory": memory_text(pod.memory_mib)}
    resources: dict[str, Any] = {"requests": requests}
    if pod.gpu_total_milli:
        requests[GPU_RESOURCE] = str(pod.gpu_total_milli)
        resources["limits"] = {GPU_RESOURCE: requests[GPU_RESOURCE]}
    spec: dict[str, Any] = {"containers": [_container(resources)]}
    if pod.models:
        term = {"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": "In", "values": list(pod.models)}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    return pod_body(namespace, pod.name, spec, {RUN_LABEL: run})


def _container(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}


def pod_body(namespace: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]) -> PodBody:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
    return PodBody(namespace, name, orjson.dumps(pod))


# ClusterLoader2's load pods request little, so that 30 of them fit any node.
NODE_CPUS, NODE_MEMORY_GIB = (8, 16, 32, 64, 96), (32, 64, 128, 256, 384)
POD_CPU_MILLI, POD_MEMORY_MIB = (5, 10, 20, 50, 100), (20, 32, 64, 128)


def seeded_nodes(rng: Rng, count: int) -> list[NodeSpec]:
    """Nodes of five sizes, drawn uniformly."""
    shapes = []
    for number in range(count):
        size = rng.randrange(len(NODE_CPUS))
        capacity = {"cpu": str(NODE_CPUS[size]), "memory": f"{NODE_MEMORY_GIB[size]}Gi", "pods": str(MAX_PODS_PER_NODE)}
        shapes.append(NodeSpec(f"node-{number:06d}", capacity, {}))
    return shapes


def seeded_pods(rng: Rng, count: int, namespaces: int, run: str, prefix: str = "load") -> list[PodBody]:
    """Small pods, distributed round-robin over `namespaces` namespaces."""
    pods = []
    for number in range(count):
        requests = {"cpu": cpu_text(rng.choice(POD_CPU_MILLI)), "memory": memory_text(rng.choice(POD_MEMORY_MIB))}
        namespace = f"{run}-{number % namespaces}"
        spec = {"containers": [_container({"requests": requests})]}
        pods.append(pod_body(namespace, f"{prefix}-{number:06d}", spec, {RUN_LABEL: run, "group": prefix}))
    return pods
