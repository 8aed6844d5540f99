"""The OpenAPI schema of a custom kind: its definition's schema with the members of every object.

Source: apiextensions-apiserver pkg/controller/openapi/builder, pkg/apiserver/schema (ToKubeOpenAPI).
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]
_REF: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_INTEGER_OR_TEXT: Final = [{"type": "integer"}, {"type": "string"}]


def published(schema: Json, embedded_texts: Json) -> Json:
    """A part of a structural schema in OpenAPI. `embedded_texts`: descriptions of the members of objects."""
    found = {name: value for name, value in schema.items() if name not in ("properties", "items", "example", "title")}
    if schema.get("x-kubernetes-int-or-string") and "anyOf" not in schema:
        found["anyOf"] = _INTEGER_OR_TEXT
        found.pop("type", None)
    if "properties" in schema:
        found["properties"] = {name: published(part, embedded_texts) for name, part in schema["properties"].items()}
    if isinstance(items := schema.get("items"), dict):
        found["items"] = published(items, embedded_texts)
    if isinstance(more := schema.get("additionalProperties"), dict):
        found["additionalProperties"] = published(more, embedded_texts)
    if schema.get("x-kubernetes-embedded-resource"):
        found["properties"] = {**found.get("properties", {}), **members("ObjectMeta", embedded_texts)}
        required = found.get("required", ())
        found["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return found


def members(meta: str, texts: Json) -> Json:
    """apiVersion, kind and metadata; `texts`: their descriptions, if any."""

    def told(name: str, content: Json) -> Json:
        return {**({"description": texts[name]} if name in texts else {}), **content}

    return {
        "apiVersion": told("apiVersion", {"type": "string"}),
        "kind": told("kind", {"type": "string"}),
        "metadata": told("metadata", {"allOf": [{"$ref": f"{_REF}{_META}{meta}"}]}),
    }


def name_of(group: str, version: str, kind: str) -> str:
    """Its name among the schemas: `com.example.v1.Gauge`."""
    return ".".join((*reversed(group.split(".")), version, kind))
