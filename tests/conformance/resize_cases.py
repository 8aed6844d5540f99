"""Resizes of pods: told writes of the subresource, and resources with drawn values in every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import drawn_objects
from asking import Ask
from hypothesis import strategies as st

from minikube_py.api.schema import SCHEMA

MERGE, STRATEGIC, APPLY = "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"
NAMESPACE, LIMITED = "resized", "resized-within"
_FEATURES = ["InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"]
_SOME = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
_SPEC: dict[str, Any] = {
    "containers": [
        {"name": "c", "image": "x", "resources": _SOME, "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]},
        {"name": "d", "image": "x"},
    ],
    "initContainers": [
        {"name": "i", "image": "x", "resources": {"requests": {"cpu": "1"}}},
        {"name": "s", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
    ],
}  # fmt: skip
_NODES: dict[str, dict[str, Any]] = {
    "resized-big": {"declaredFeatures": _FEATURES}, "resized-plain": {}, "resized-windows": {}, "resized-empty": {},
}  # fmt: skip
_ONE = {"cpu": "1", "memory": "1Gi"}
_PODS: dict[str, dict[str, Any]] = {
    "free": _SPEC, "big": {**_SPEC, "nodeName": "resized-big"}, "plain": {**_SPEC, "nodeName": "resized-plain"},
    "onwindows": {**_SPEC, "nodeName": "resized-windows"}, "empty": {**_SPEC, "nodeName": "resized-empty"},
    "lost": {**_SPEC, "nodeName": "resized-nowhere"}, "windows": {**_SPEC, "os": {"name": "windows"}},
    "static": {**_SPEC, "nodeName": "resized-big"}, "none": {"containers": [{"name": "c", "image": "x"}]},
    "guaranteed": {"containers": [{"name": "c", "image": "x", "resources": {"requests": _ONE, "limits": _ONE}}]},
    "level": {"containers": [{"name": "c", "image": "x"}], "resources": {"requests": _ONE}, "nodeName": "resized-big"},
    "level-plain": {"containers": [{"name": "c", "image": "x"}], "resources": {"requests": _ONE}, "nodeName": "resized-plain"},
}  # fmt: skip


def _path(name: str, namespace: str = NAMESPACE) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def setup() -> Iterator[Ask]:
    for name in (NAMESPACE, LIMITED):
        yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for name, status in _NODES.items():
        labels = {"kubernetes.io/os": "windows"} if name.endswith("windows") else {}
        if not name.endswith("empty"):
            status = {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "10"}, **status}
        yield Ask("setup", "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    pods = [(NAMESPACE, name, spec) for name, spec in _PODS.items()]
    pods += [(LIMITED, name, _PODS[name]) for name in ("free", "none")]
    for namespace, name, spec in pods:
        metadata = {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"} if name == "static" else {}}
        yield Ask("setup", "POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
    limits = [{"type": "Container", "max": {"cpu": "3"}, "default": {"cpu": "2"}, "defaultRequest": {"memory": "1Mi"}}]
    yield Ask("setup", "POST", f"/api/v1/namespaces/{LIMITED}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})


def known() -> Iterator[tuple[Ask, bytes]]:
    """What is asked until the answer says so, for admission to have heard of the nodes and the range."""
    yield _patch("known", "big", _wanted({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}}), query="?dryRun=All"), b"allocatable"
    yield _patch("known", "onwindows", _wanted({"requests": {"cpu": "2"}}), query="?dryRun=All"), b"only supported"
    yield _patch("known", "empty", _wanted({"requests": {"cpu": "2"}}), query="?dryRun=All"), b"allocatable"
    yield _patch("known", "level-plain", {"resources": {"requests": {"cpu": "2"}}}, query="?dryRun=All"), b"not available"
    yield _patch("known", "free", _wanted({"limits": {"cpu": "4"}}), query="?dryRun=All", namespace=LIMITED), b"maximum cpu"


def _wanted(resources: Any, name: str = "c", kind: str = "containers", **more: Any) -> dict[str, Any]:
    return {kind: [{"name": name, "resources": resources, **more}]}


def _patch(case: str, name: str, spec: Any, kind: str = STRATEGIC, query: str = "", namespace: str = NAMESPACE, **more: Any) -> Ask:
    return Ask(case, "PATCH", f"{_path(name, namespace)}/resize{query}", {"spec": spec, **more}, f"application/{kind}")


def _running(name: str, resources: Any, restart: str = "running") -> Ask:
    states = [{"name": each, "state": {restart: {}}, "image": "x", "imageID": "", "ready": True, "restartCount": 0} for each in ("c", "d")]
    for state in states:
        if resources is not None:
            state["resources"] = resources
    return _status(name, {"containerStatuses": states})


def _status(name: str, status: Any) -> Ask:
    return Ask("status", "PATCH", f"{_path(name)}/status", {"status": status}, f"application/{STRATEGIC}")


def told() -> Iterator[Ask]:
    cpu = {"requests": {"cpu": "1500m"}}
    for name in (*_PODS, "absent"):
        for spec in (_wanted(cpu), _wanted({"requests": {"cpu": "90", "memory": "90Gi"}, "limits": {"cpu": "90"}}), _wanted({"limits": {"cpu": "1"}})):
            yield _patch("pods", name, spec, query="?dryRun=All")
        yield _patch("levels", name, {"resources": {"requests": {"cpu": "3"}}}, query="?dryRun=All")
        yield _patch("levels", name, {"resources": {"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}}, query="?dryRun=All")
        yield _patch("levels", name, {"resources": None}, query="?dryRun=All")
        yield _patch("inits", name, _wanted({"requests": {"cpu": "2"}}, "i", "initContainers"), query="?dryRun=All")
        yield _patch("sidecars", name, _wanted({"requests": {"cpu": "2"}}, "s", "initContainers"), query="?dryRun=All")
    for name in ("free", "big", "guaranteed", "none"):
        yield _patch("others", name, _wanted({"requests": {"ephemeral-storage": "1Gi"}}), query="?dryRun=All")
        yield _patch("removed", name, _wanted(None), query="?dryRun=All")
        yield _patch("policies", name, _wanted({}, resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]), query="?dryRun=All")
        yield _patch("images", name, {"containers": [{"name": "c", "image": "other"}]}, query="?dryRun=All")
        yield _patch("added", name, {"containers": [{"name": "new", "image": "x"}]}, query="?dryRun=All")
        renamed = [{"name": "e", "image": "x"}, {"name": "d", "image": "x"}][: len(_PODS[name]["containers"])]
        yield _patch("renamed", name, {"containers": renamed}, MERGE, query="?dryRun=All")
        yield _patch("gone", name, {"initContainers": None}, MERGE, query="?dryRun=All")
        yield _patch("within", name, _wanted({"limits": {"cpu": "4"}}), query="?dryRun=All", namespace=LIMITED)
        yield _patch("within", name, _wanted({"requests": {"cpu": "1100m"}}), query="?dryRun=All", namespace=LIMITED)
    beside = {"metadata": {"labels": {"new": "label"}, "annotations": {"x": "y"}, "finalizers": ["a.io/b"]}}
    yield _patch("beside", "big", _wanted(cpu), status={"phase": "Failed"}, **beside)
    yield Ask("read", "GET", f"{_path('big')}/resize")
    for applied in (cpu, {"requests": {"cpu": "1600m"}}):
        config = {"kind": "Pod", "apiVersion": "v1", "spec": _wanted(applied), **beside}
        yield Ask("applied", "PATCH", f"{_path('free')}/resize?fieldManager=one&force=true", config, f"application/{APPLY}")
    yield _running("big", None)
    yield _patch("no support", "big", _wanted({"requests": {"cpu": "1700m"}}))
    yield _running("big", {})
    yield _patch("support", "big", _wanted({"requests": {"cpu": "1800m"}}))
    yield _status("big", {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no"}]})
    yield Ask("main path", "PATCH", _path("big"), {"spec": _wanted({"requests": {"cpu": "2"}})}, f"application/{STRATEGIC}")
    for method in ("POST", "DELETE"):
        yield Ask("no such verb", method, f"{_path('big')}/resize", {})


_RESOURCES = SCHEMA.message("core/v1.ResourceRequirements")
_CONTAINER = SCHEMA.message("core/v1.Container")


@st.composite
def drawn(draw: st.DrawFn) -> Ask:
    """One change of what a container or the pod asks for, or of anything of a container."""
    name = draw(st.sampled_from(("free", "big", "guaranteed", "none", "level")))
    spec = drawn_objects.put(_PODS[name], drawn_objects.Change(("terminationGracePeriodSeconds",), 30))
    places = [(kind, i) for kind in ("containers", "initContainers") for i in range(len(spec.get(kind, ())))]
    kind, at = draw(st.sampled_from([*places, ("", 0)]))
    holder = spec[kind][at] if kind else spec
    if kind and draw(st.integers(0, 3)) == 0:
        spec[kind][at] = drawn_objects.put(holder, draw(drawn_objects.changes(_CONTAINER, holder)))
    else:
        resources = holder.get("resources") or {}
        holder["resources"] = drawn_objects.put(resources, draw(drawn_objects.changes(_RESOURCES, resources)))
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
    return Ask("drawn", "PUT", f"{_path(name)}/resize?dryRun=All", obj)
