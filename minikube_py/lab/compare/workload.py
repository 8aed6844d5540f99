"""The pods of one seed: the trace's in a seeded order, some with a higher priority."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab.trace import TraceNode, TracePod
from minikube_py.lab.workload import RUN_LABEL, PodBody, trace_nodes, trace_pods

RUN: Final = "compare"
NAMESPACE: Final = "compare"
IMPORTANT: Final = "compare-important"
PRIORITY: Final = 1000


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes and pods by number. `bodies`: the pods to create."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]
    shapes: tuple[NodeSpec, ...]
    bodies: tuple[PodBody, ...]


def drawn(
    nodes: Sequence[TraceNode], pods: Sequence[TracePod], count: int | None, important: float, seed: int
) -> Workload:
    """`count` of the pods (None: all), drawn and ordered by the seed; a share of them with a higher priority. Identical
    for all compared schedulers."""
    rng = random.Random(f"compare {seed}")
    chosen = rng.sample(list(pods), len(pods) if count is None else min(count, len(pods)))
    bodies = trace_pods(chosen, NAMESPACE, RUN)
    bodies = [_with_priority(body) if rng.random() < important else body for body in bodies]
    return Workload(tuple(nodes), tuple(chosen), tuple(trace_nodes(nodes)), tuple(bodies))


def _with_priority(body: PodBody) -> PodBody:
    pod: dict[str, Any] = orjson.loads(body.body)
    pod["spec"]["priorityClassName"] = IMPORTANT
    return body._replace(body=orjson.dumps(pod))


def priority_class() -> bytes:
    metadata = {"name": IMPORTANT, "labels": {RUN_LABEL: RUN}}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return orjson.dumps({**kind, "metadata": metadata, "value": PRIORITY})
