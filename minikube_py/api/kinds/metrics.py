"""The group `metrics.k8s.io`: current usage of nodes and pods.

Computed, never stored. It is served once a user creates the APIService `v1beta1.metrics.k8s.io` without a service.
Usage is simulated (`fields.usage`, `api.usage`).

Source: metrics-server `pkg/api`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import Json
from minikube_py.api.kind import NAMED, NAMESPACED, Kind
from minikube_py.api.meta import namespace_of, timestamp
from minikube_py.api.printing import NAME, Age, Column, Printer
from minikube_py.fields import quantity
from minikube_py.fields.usage import NOTHING, Usage, UsageSource, containers_of, cpu_text, memory_text

WINDOW_S: Final = 15
WINDOW: Final = f"{WINDOW_S}s"
_RUNNING: Final = "Running"


def usage_json(usage: Usage) -> Json:
    return {"cpu": cpu_text(usage), "memory": memory_text(usage)}


def _measured(metadata: Json, now_s: float, **told: Any) -> Json:
    kept = {"name": metadata["name"]}
    if "namespace" in metadata:
        kept["namespace"] = metadata["namespace"]
    now = timestamp(now_s)
    labels = {"labels": metadata["labels"]} if metadata.get("labels") else {}
    return {"metadata": {**kept, "creationTimestamp": now, **labels}, "timestamp": now, "window": WINDOW, **told}


def pod_metrics(pod: Json, source: UsageSource, now_s: float) -> Json | None:
    """None for a pod that is not running."""
    if (pod.get("status") or {}).get("phase") != _RUNNING:
        return None
    used = [
        {"name": each["name"], "usage": usage_json(source.usage(pod, now_s, each["name"]))}
        for each in containers_of(pod)
    ]
    metadata = {**pod["metadata"], "namespace": namespace_of(pod)}
    return _measured(metadata, now_s, containers=used)


def node_metrics(node: Json, usage: Usage, now_s: float) -> Json:
    return _measured(node["metadata"], now_s, usage=usage_json(usage))


def node_usage(pods: list[Json], source: UsageSource, now_s: float) -> Usage:
    """As in KWOK: the sum over its running pods."""
    total = NOTHING
    for pod in pods:
        if (pod.get("status") or {}).get("phase") == _RUNNING:
            total = total.plus(source.usage(pod, now_s))
    return total


def _print(metrics: Json, age: Age) -> list[Any]:
    told = [metrics["usage"]] if "usage" in metrics else [each["usage"] for each in metrics["containers"]]
    sums = []
    for resource in ("cpu", "memory"):
        total = quantity.ZERO
        for each in told:
            total = total.plus(quantity.parse(each[resource]))
        sums.append(str(total))
    return [metrics["metadata"]["name"], *sums, metrics["window"]]


_PRINTER: Final = Printer(
    (
        NAME,
        Column("cpu", "string", "quantity", "", 0),
        Column("memory", "string", "quantity", "", 0),
        Column("Window", "string", "duration", "", 0),
    ),
    _print,
)

NODE_METRICS: Final = Kind(
    "metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes", "", False,
    verbs=("get", "list"), stored=False, selectable=NAMED, printer=_PRINTER,
)  # fmt: skip

POD_METRICS: Final = Kind(
    "metrics.k8s.io", "v1beta1", "PodMetrics", "pods", "", True,
    verbs=("get", "list"), stored=False, selectable=NAMESPACED, printer=_PRINTER,
)  # fmt: skip

ON_REQUEST: Final[tuple[Kind, ...]] = (NODE_METRICS, POD_METRICS)
"""Served if an APIService enables it."""
