"""What is answered and not stored: the health of components, and requests that are passed on to nodes."""

from __future__ import annotations

from collections.abc import Iterator

from asking import Ask

_FORMS = ("application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
_AT = "/api/v1/componentstatuses"
_NODES = "/api/v1/nodes"


def cases() -> Iterator[Ask]:
    for accept in _FORMS:
        yield Ask("one component", "GET", f"{_AT}/etcd-0", accept=accept)
        yield Ask("components", "GET", f"{_AT}?fieldSelector=metadata.name%3Detcd-0", accept=accept)
    for query in ("labelSelector=a%3Db", "fieldSelector=metadata.name%3Dabsent", "fieldSelector=spec.a%3Db", "labelSelector=%21%21", "limit=1&fieldSelector=metadata.name%3Detcd-0"):
        yield Ask("selected components", "GET", f"{_AT}?{query}")
    yield Ask("absent component", "GET", f"{_AT}/absent")
    for method, path in (("POST", _AT), ("DELETE", _AT), ("PUT", f"{_AT}/etcd-0"), ("DELETE", f"{_AT}/etcd-0"), ("PATCH", f"{_AT}/etcd-0")):
        body = {"metadata": {"name": "etcd-0"}} if method != "DELETE" else None
        yield Ask("no such verb", method, path, body, "application/merge-patch+json" if method == "PATCH" else "")
    addressed = {"metadata": {"name": "addressed"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
    yield Ask("node", "POST", _NODES, {"metadata": {"name": "bare"}})
    yield Ask("node", "POST", _NODES, addressed)
    for name in ("absent", "bare", "addressed", "addressed:10250", "http:addressed:10251", "a:b:c:d", "ftp:addressed:1", ":1"):
        for rest in ("", "/", "/healthz", "/pods"):
            yield Ask("passed on", "GET", f"{_NODES}/{name}/proxy{rest}")
