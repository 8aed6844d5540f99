"""Writes to a custom resource that its definition does not allow: other versions and kinds, replicas, addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from asking import Ask

Json = dict[str, Any]
GROUP = "writes.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ORBS = f"/apis/{GROUP}/v1/namespaces/default/orbs"
_TYPES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_STRATEGIC = "application/strategic-merge-patch+json"
_URIS = (
    "http://x:99999", "http://x:99", "http://x:-1", "http://x:a", "http://x:", "//x", "x", "/a", "http://[::1]:80",
    "http://[::1]:999999", "http://[::1]80", "http://a b", "http://u:p@x:70000/y",
)  # fmt: skip
_SAID: dict[str, Json] = {
    "beta": {"apiVersion": f"{GROUP}/v1beta1"}, "group": {"apiVersion": "other.example.com/v1"}, "bare": {"apiVersion": "x"},
    "absent": {"apiVersion": None}, "empty": {"apiVersion": ""}, "kind": {"kind": "Foo"}, "other": {"kind": "Foo", "apiVersion": "x"},
}  # fmt: skip


def orb(name: str, **spec: Any) -> Json:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Orb", "metadata": {"name": name}, "spec": {"n": 1, **spec}}


def setup() -> Iterator[Ask]:
    fields = {"n": {"type": "integer", "minimum": 0}, "s": {"type": "string"}, "u": {"type": "string", "format": "uri"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    scale = {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": scale}
    old = {**one, "name": "v1beta1", "storage": False, "schema": {"openAPIV3Schema": {**schema, "description": "old"}}}
    versions = [{**one, "selectableFields": [{"jsonPath": ".spec.s"}]}, old]
    spec = {"group": GROUP, "scope": "Namespaced", "names": {"plural": "orbs", "kind": "Orb"}, "versions": versions}
    yield Ask("definition", "POST", DEFINITIONS, {"metadata": {"name": f"orbs.{GROUP}"}, "spec": spec})


def _patches(change: Json) -> Iterator[tuple[str, str, Any]]:
    """A name, a media type and a body for each form of the change."""
    yield "merge", _TYPES["merge"], change
    yield "json", _TYPES["json"], [{"op": "add", "path": f"/{name}", "value": value} for name, value in change.items()]


def cases() -> Iterator[Ask]:
    """For an `orb("o")`, which none of them changes."""
    for name in ("o", "absent"):
        said = "scale strategic" if name == "o" else "scale strategic absent"
        yield Ask(said, "PATCH", f"{ORBS}/{name}/scale", {"spec": {"replicas": 4}}, _STRATEGIC)
    yield Ask("scale -1 merge", "PATCH", f"{ORBS}/o/scale", {"spec": {"replicas": -1}}, _TYPES["merge"])
    operations = [{"op": "replace", "path": "/spec/replicas", "value": -1}]
    yield Ask("scale -1 json", "PATCH", f"{ORBS}/o/scale", operations, _TYPES["json"])
    whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "o", "namespace": "default"}}
    yield Ask("scale -1 put", "PUT", f"{ORBS}/o/scale", {**whole, "spec": {"replicas": -1}})
    for name, change in _SAID.items():
        for form, media, body in _patches(change):
            yield Ask(f"version {name} {form}", "PATCH", f"{ORBS}/o", body, media)
        if name == "absent":
            continue
        if "kind" not in change:
            yield Ask(f"version {name} put", "PUT", f"{ORBS}/o", {**orb("o"), **change})
        yield Ask(f"version {name} post", "POST", f"{ORBS}?dryRun=All", {**orb("new"), **change})
    for uri in _URIS:
        yield Ask(f"uri {uri}", "POST", f"{ORBS}?dryRun=All", orb("u", u=uri))
    for selector in ("spec.s=a", "spec.s=a,metadata.name=x", "spec.t!=a"):
        where = f"/apis/{GROUP}/v1beta1/namespaces/default/orbs?fieldSelector={quote(selector)}"
        yield Ask("selector" if selector == "spec.s=a" else f"selector {selector}", "GET", where)
        yield Ask(f"selector {selector} delete", "DELETE", where)
