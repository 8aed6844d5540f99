"""Objects as the API serves them, made in one line."""

from __future__ import annotations

from typing import Any

from minikube_py.scheduler.objects import NodeInfo, PodInfo, project_node, project_pod


def node_object(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **more: Any) -> dict[str, Any]:
    """`more`: labels, taints (as `key=value:Effect`), unschedulable, extended (resource -> quantity)."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **more.get("extended", {})}
    taints = []
    for text in more.get("taints", ()):
        pair, effect = text.split(":")
        key, _, value = pair.partition("=")
        taints.append({"key": key, "value": value, "effect": effect})
    spec: dict[str, Any] = {"taints": taints} if taints else {}
    if more.get("unschedulable"):
        spec["unschedulable"] = True
    metadata = {"name": name, "uid": f"uid-{name}", "labels": more.get("labels", {})}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}


def pod_object(
    name: str, *, cpu: str = "", memory: str = "", namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    """`spec` goes into the pod's spec; `extended` into its requests, `metadata` into its metadata."""
    requests: dict[str, str] = dict(spec.pop("extended", {}))
    if cpu:
        requests["cpu"] = cpu
    if memory:
        requests["memory"] = memory
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", **spec.pop("metadata", {})}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}, **spec.pop("container", {})}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": spec.pop("status", {})}


def node(name: str, **more: Any) -> NodeInfo:
    return project_node(node_object(name, **more))


def pod(name: str = "pod", **more: Any) -> PodInfo:
    return project_pod(pod_object(name, **more))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key, "operator": operator}
    if values:
        found["values"] = list(values)
    return found


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def preferred(*weighted: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": term} for weight, term in weighted]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
