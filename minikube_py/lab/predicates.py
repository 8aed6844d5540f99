"""Pods with many requirements, and nearly full nodes: the load of `bench schedule`, from a seed.

A mix defines the pods' requirements; amounts are drawn per pod, so few are equal unless `repetition` is set:

- **cpu-memory**: cpu 50m to 4 cores, uniform on a logarithmic scale, and 1 to 8 GiB of memory per core.
- **gpu**: 50 to 500 thousandths of a GPU (8 of 10 pods), or one GPU, two or four; half of them accept only one or two
  of the models; cpu from 100m to one core and memory beside it. As in the traces of `replay`, a node's GPUs are one
  amount of milli-GPUs.
- **labels**: cpu from 50m to one core, memory as above, and required node affinity: a clock rate above (Gt), a
  generation below (Lt), not in a zone (NotIn); every third has a second, alternative term: two zones (In) with a
  disk above (Gt).
- **all**: one of the three, at random.

A node's free share of each resource follows an exponential distribution, so that most nodes are full and a few have
room, and half of the draw is common to cpu and memory. A GPU is idle, partly free or full. One bound pod per node
requests all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.env import Rng
from minikube_py.lab.workload import (
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    MAX_PODS_PER_NODE,
    NODE_CPUS,
    NODE_MEMORY_GIB,
    RUN_LABEL,
    PodBody,
    cpu_text,
    memory_text,
    pod_body,
)

RUN: Final = "schedule"
NAMESPACE: Final = "schedule"
MIXES: Final = ("cpu-memory", "gpu", "labels", "all")
CPU, MEMORY, PODS = "cpu", "memory", "pods"
MIB: Final = 1 << 20
ZONE: Final = "topology.kubernetes.io/zone"
CLOCK_MHZ, DISK_GB, GENERATION = "lab.minikube-py.io/mhz", "lab.minikube-py.io/disk-gb", "lab.minikube-py.io/generation"
ZONES: Final = tuple(f"zone-{letter}" for letter in "abcdefgh")
GPU_MODELS: Final = (("T4", 4), ("A10", 2), ("P100", 2), ("V100M16", 8), ("G2", 8))
"""Model and number on a node, as in the traces of openb."""
GPU_NODE_SHARE: Final = 1 / 3
SHARE_MILLI: Final = (50, 501)
GPU_SHARES_OF_TEN: Final = 8
WHOLE_GPUS: Final = (1,) * 15 + (2,) * 4 + (4,)
SHAPES_REPEATED: Final = 64
"""Repeated shapes are drawn from this many."""
FREE_SHARE_USED: Final = 0.25
LIFETIME_MIN, LIFETIME_MAX = 8, 250

Amounts = dict[str, int]
"""Resource to amount: milli-cpus, bytes, pods, milli-GPUs."""


class Expression(NamedTuple):
    key: str
    operator: str
    values: tuple[str, ...]


class Shape(NamedTuple):
    """A pod's requirements: amounts, and terms of which one must hold completely; without terms, any node."""

    amounts: Amounts
    terms: tuple[tuple[Expression, ...], ...] = ()


class LabNode(NamedTuple):
    """`used`: the requests of the node's bound pod."""

    name: str
    labels: Mapping[str, str]
    allocatable: Amounts
    used: Amounts


class LabPod(NamedTuple):
    body: PodBody
    shape: Shape


# --- nodes -----------------------------------------------------------------------------------------------------------


def lab_nodes(rng: Rng, count: int, utilisation: float) -> list[LabNode]:
    """`utilisation`: of each resource, the mean over the nodes that have it, 0 to 1."""
    return [_node(rng, number, 1 - utilisation) for number in range(count)]


def _node(rng: Rng, number: int, free: float) -> LabNode:
    size = rng.randrange(len(NODE_CPUS))
    allocatable = {CPU: NODE_CPUS[size] * 1000, MEMORY: (NODE_MEMORY_GIB[size] << 10) * MIB, PODS: MAX_PODS_PER_NODE}
    name = f"node-{number:06d}"
    labels = {
        "kubernetes.io/hostname": name,
        ZONE: rng.choice(ZONES),
        CLOCK_MHZ: str(rng.randrange(2000, 4000)),
        DISK_GB: str(rng.randrange(100, 4000)),
        GENERATION: str(rng.randrange(1, 10)),
    }
    common = rng.expovariate(1)
    shares = {resource: min(1.0, free * (common + rng.expovariate(1)) / 2) for resource in (CPU, MEMORY)}
    used = {
        CPU: round(allocatable[CPU] * (1 - shares[CPU])),
        MEMORY: round(allocatable[MEMORY] * (1 - shares[MEMORY]) / MIB) * MIB,
    }
    if rng.random() < GPU_NODE_SHARE:
        model, gpus = rng.choice(GPU_MODELS)
        labels[GPU_MODEL_LABEL] = model
        allocatable[GPU_RESOURCE] = gpus * 1000
        used[GPU_RESOURCE] = gpus * 1000 - sum(_free_of_gpu(rng, free) for _ in range(gpus))
    return LabNode(name, labels, allocatable, used)


def _free_of_gpu(rng: Rng, free: float) -> int:
    """Thousandths: half of the free share is whole idle GPUs, half is parts of others."""
    if rng.random() < free / 2:
        return 1000
    return rng.randrange(0, 1001) if rng.random() < free else 0


def node_object(node: LabNode, uid: str) -> bytes:
    """In stored form."""
    amounts = {resource: _text(resource, amount) for resource, amount in node.allocatable.items()}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    metadata = {"name": node.name, "uid": uid, "creationTimestamp": "2025-01-01T00:00:00Z", "labels": node.labels}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return orjson.dumps({"metadata": metadata, "spec": {}, "status": status})


def filler_object(node: LabNode, name: str, uid: str) -> bytes:
    """The pod that fills the node, in stored form."""
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": "2025-01-01T00:00:00Z"}
    spec = {"nodeName": node.name, "containers": [_container(node.used)]}
    return orjson.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


# --- pods ------------------------------------------------------------------------------------------------------------


def lab_pods(rng: Rng, count: int, mix: str, repetition: float) -> list[LabPod]:
    """`repetition`: the share of pods that repeat an earlier shape, 0 to 1."""
    drawn: list[Shape] = []
    pods = []
    for number in range(count):
        if drawn and rng.random() < repetition:
            shape = drawn[rng.randrange(min(len(drawn), SHAPES_REPEATED))]
        else:
            shape = _shape(rng, mix)
            drawn.append(shape)
        body = pod_body(NAMESPACE, f"pod-{number:06d}", _spec(shape), {RUN_LABEL: RUN})
        pods.append(LabPod(body, shape))
    return pods


def _shape(rng: Rng, mix: str) -> Shape:
    kind = rng.choice(MIXES[:-1]) if mix == "all" else mix
    if kind == "gpu":
        return _gpu_shape(rng)
    if kind == "labels":
        return Shape(_cpu_and_memory(rng, 50, 1000), _terms(rng))
    return Shape(_cpu_and_memory(rng, 50, 4000))


def _cpu_and_memory(rng: Rng, low_milli: int, high_milli: int) -> Amounts:
    cpu_milli = round(math.exp(rng.uniform(math.log(low_milli), math.log(high_milli))))
    return {CPU: cpu_milli, MEMORY: max(1, round(cpu_milli * rng.uniform(1, 8) * 1024 / 1000)) * MIB}


def _gpu_shape(rng: Rng) -> Shape:
    amounts = _cpu_and_memory(rng, 100, 1000)
    shared = rng.randrange(10) < GPU_SHARES_OF_TEN
    amounts[GPU_RESOURCE] = rng.randrange(*SHARE_MILLI) if shared else rng.choice(WHOLE_GPUS) * 1000
    if rng.random() < 0.5:
        return Shape(amounts)
    models = sorted({rng.choice(GPU_MODELS)[0] for _ in range(2)})
    return Shape(amounts, ((Expression(GPU_MODEL_LABEL, "In", tuple(models)),),))


def _terms(rng: Rng) -> tuple[tuple[Expression, ...], ...]:
    first = (
        Expression(CLOCK_MHZ, "Gt", (str(rng.randrange(2000, 3800)),)),
        Expression(GENERATION, "Lt", (str(rng.randrange(3, 11)),)),
        Expression(ZONE, "NotIn", (rng.choice(ZONES),)),
    )
    if rng.randrange(3):
        return (first,)
    zones = tuple(sorted({rng.choice(ZONES), rng.choice(ZONES)}))
    return (first, (Expression(ZONE, "In", zones), Expression(DISK_GB, "Gt", (str(rng.randrange(1000, 3800)),))))


def _text(resource: str, amount: int) -> str:
    if resource == CPU:
        return cpu_text(amount)
    return memory_text(amount // MIB) if resource == MEMORY else str(amount)


def _container(amounts: Amounts) -> dict[str, Any]:
    requests = {resource: _text(resource, amount) for resource, amount in amounts.items()}
    resources: dict[str, Any] = {"requests": requests}
    if GPU_RESOURCE in requests:
        resources["limits"] = {GPU_RESOURCE: requests[GPU_RESOURCE]}
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}


def _spec(shape: Shape) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [_container(shape.amounts)]}
    if shape.terms:
        terms = [
            {"matchExpressions": [{"key": e.key, "operator": e.operator, "values": list(e.values)} for e in term]}
            for term in shape.terms
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return spec


def lifetime_pods(nodes: Sequence[LabNode], pods: Sequence[LabPod]) -> int:
    """The number of later pods after which a pod leaves, such that the live ones never take more than a quarter of what
    is free: the nodes stay as full as they were."""
    found = float(LIFETIME_MAX)
    for resource in (CPU, MEMORY, GPU_RESOURCE):
        free = sum(node.allocatable.get(resource, 0) - node.used.get(resource, 0) for node in nodes)
        wanted = sum(pod.shape.amounts.get(resource, 0) for pod in pods) / max(1, len(pods))
        if wanted:
            found = min(found, FREE_SHARE_USED * free / wanted)
    return max(LIFETIME_MIN, int(found))
