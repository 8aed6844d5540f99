"""Ephemeral containers of a pod: told writes of the subresource, and containers with drawn values in every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import drawn_objects
from asking import Ask
from hypothesis import strategies as st

from minikube_py.api.schema import SCHEMA

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
NAMESPACE = "debugged"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD = f"{_PODS}/target"
_PATH = f"{POD}/ephemeralcontainers"
_MESSAGE = SCHEMA.message("core/v1.EphemeralContainer")
FIRST: dict[str, Any] = {"name": "first", "image": "busybox", "stdin": True, "targetContainerName": "c"}
_SPEC = {
    "containers": [{"name": "c", "image": "x"}], "initContainers": [{"name": "i", "image": "x"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}  # fmt: skip


def setup() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, mirrors in (("target", {}), ("target2", {}), ("static", {"kubernetes.io/config.mirror": "x"})):
        spec = {**_SPEC, "nodeName": "n"} if mirrors else _SPEC
        metadata = {"name": name, "labels": {"a": "b"}, "annotations": mirrors}
        yield Ask("setup", "POST", _PODS, {"metadata": metadata, "spec": spec})


def _patch(case: str, *containers: Any, kind: str = STRATEGIC, query: str = "", path: str = _PATH, **more: Any) -> Ask:
    return Ask(case, "PATCH", path + query, {"spec": {"ephemeralContainers": list(containers)}, **more}, kind)


def told() -> Iterator[Ask]:
    yield _patch("dry run", FIRST, query="?dryRun=All")
    yield _patch("add", FIRST)
    yield Ask("read", "GET", _PATH)
    yield _patch("add again", FIRST)
    yield _patch("add another", {"name": "second", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    yield _patch("change", {"name": "first", "image": "other"}, query="?dryRun=All")
    yield _patch("remove", {"$patch": "delete", "name": "first"})
    yield _patch("remove all", kind=MERGE)
    yield _patch("names that are accepted", {"name": "c", "image": "x"}, {"name": "i", "image": "x"})
    yield _patch("the same name twice", FIRST, {"name": "a", "image": "x"}, {"name": "a", "image": "x"}, kind=MERGE)
    yield _patch("no such target", {"name": "a", "image": "x", "targetContainerName": "first"})
    yield _patch("spaces", {"name": "a", "image": " x"})
    mounts = [{"name": "v", "mountPath": "/v", "subPath": "a"}, {"name": "v", "mountPath": "/w", "subPathExpr": "$(A)"}]
    yield _patch("parts of volumes", {"name": "a", "image": "x", "volumeMounts": mounts})
    for devices in ([{}, {}], [{"name": "v", "devicePath": ".."}] * 2, [{"devicePath": "/v"}] * 2):
        container = {"name": "a", "image": "x", "volumeDevices": devices, "volumeMounts": mounts[:1]}
        yield _patch("devices", container)
        spec = {**_SPEC, "containers": [container]}
        yield Ask("devices of others", "POST", f"{_PODS}?dryRun=All", {"metadata": {"name": "o"}, "spec": spec})
    beside = {"metadata": {"labels": {"new": "label"}, "annotations": {"x": "y"}, "finalizers": ["a.io/b"]}}
    yield _patch("what is beside", {"name": "third", "image": "x"}, status={"phase": "Failed"}, **beside)
    yield Ask("main path", "PATCH", POD, {"spec": {"ephemeralContainers": [{"name": "m", "image": "x"}]}}, STRATEGIC)
    yield _patch("static", FIRST, path=f"{_PODS}/static/ephemeralcontainers")
    yield _patch("absent", FIRST, path=f"{_PODS}/absent/ephemeralcontainers")
    for method in ("POST", "DELETE"):
        yield Ask("no such verb", method, _PATH, {})
    yield Ask("read", "GET", POD)


def _put(container: dict[str, Any]) -> Ask:
    obj = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "target"}, "spec": {**_SPEC}}
    obj["spec"]["ephemeralContainers"] = [container]
    return Ask("drawn", "PUT", f"{POD}2/ephemeralcontainers?dryRun=All", {**obj, "metadata": {"name": "target2"}})


def drawn() -> st.SearchStrategy[Ask]:
    """Of one that is added to a pod without any."""
    base: dict[str, Any] = {
        "name": "new", "image": "busybox", "env": [{"name": "A", "value": "b"}], "targetContainerName": "c",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "securityContext": {"runAsUser": 1},
    }  # fmt: skip
    return drawn_objects.changes(_MESSAGE, base).map(lambda change: _put(drawn_objects.put(base, change)))

