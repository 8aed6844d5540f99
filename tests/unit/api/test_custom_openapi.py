"""What OpenAPI tells of custom kinds, beside what upstream told (tests/conformance/data/openapi_custom.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py.api.custom.kinds import kinds_of, served_form
from minikube_py.api.openapi import OpenApi
from minikube_py.api.registry import REGISTRY

FILE = Path(__file__).parents[2] / "conformance" / "data" / "openapi_custom.json"
UPSTREAM = orjson.loads(FILE.read_bytes())
OF_OBJECTS = ("apiVersion", "kind", "metadata", "items")


def told(schema: Any) -> Any:
    """Without the texts of the members of every object, which come from a package that need not be installed, and
    without the order of what is required."""
    if isinstance(schema, list):
        return [told(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: told(part) for name, part in schema.items()}
    for name in OF_OBJECTS if "properties" in found else ():
        found["properties"].get(name, {}).pop("description", None)
    if isinstance(found.get("required"), list):
        found["required"].sort()
    return found


def served() -> OpenApi:
    accepted = {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}
    names = UPSTREAM["definition"]["spec"]["names"]
    spec = {**UPSTREAM["definition"]["spec"], "names": {**names, "listKind": f"{names['kind']}List"}}
    status = {"conditions": list(accepted), "acceptedNames": spec["names"]}
    definition = {**UPSTREAM["definition"], "spec": spec, "status": status}
    registry = REGISTRY.extended(kinds_of(served_form(definition)))
    return OpenApi(registry)


def test_version_two_tells_what_upstream_tells() -> None:
    definitions = orjson.loads(served().make_swagger().json)["definitions"]
    found = {name: schema for name, schema in definitions.items() if name.startswith("com.example.")}
    assert told(found) == told(UPSTREAM["swagger"])


@pytest.mark.parametrize("version", UPSTREAM["schemas"])
def test_schemas_are_told_as_upstream_tells_them(version: str) -> None:
    document = orjson.loads(served().group_version("example.com", version))
    schemas = document["components"]["schemas"]
    for name, expected in UPSTREAM["schemas"][version].items():
        assert told(schemas[name]) == told(expected), name
    wanted = document["paths"]["/apis/example.com/" + version + "/namespaces/{namespace}/gauges"]["post"]["requestBody"]
    ref = f"#/components/schemas/com.example.{version}.Gauge"
    assert wanted["content"]["application/json"]["schema"] == {"$ref": ref}


def test_operations_are_as_upstream_publishes_them() -> None:
    """Compared by a script with kube-apiserver 1.36, for a namespaced and a cluster-wide resource."""
    version = {
        "name": "v1", "served": True, "storage": True, "selectableFields": [{"jsonPath": ".spec.a"}],
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
        }}},
    }  # fmt: skip
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    spec = {"group": "o.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    status = {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}
    definition = {"metadata": {"name": "foos.o.example.com"}, "spec": spec, "status": status}
    documents = OpenApi(REGISTRY.extended(kinds_of(served_form(definition))))
    found = orjson.loads(documents.group_version("o.example.com", "v1"))
    assert found["info"] == {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    for name in ("Foo", "FooList"):
        schema = found["components"]["schemas"][f"com.example.o.v1.{name}"]
        assert schema["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.a"}]
    root = "/apis/o.example.com/v1"
    collection, everywhere = found["paths"][f"{root}/namespaces/{{namespace}}/foos"], found["paths"][f"{root}/foos"]
    assert "requestBody" not in collection["delete"] and "parameters" not in everywhere["get"]
    shared = [each["name"] for each in everywhere["parameters"]]
    assert shared == sorted(shared) and {"watch", "pretty"} < set(shared)
    both = {"application/json", "application/yaml"}
    for path, item in found["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            kind = {"group": "o.example.com", "version": "v1", "kind": "Foo"}
            assert operation["x-kubernetes-group-version-kind"] == kind, path
            assert set(operation["responses"]["200"]["content"]) == both, path
            if "requestBody" in operation and method != "patch":
                assert set(operation["requestBody"]["content"]) == both, path
    swagger = orjson.loads(documents.make_swagger().json)["paths"][f"{root}/namespaces/{{namespace}}/foos"]
    for method in ("get", "delete"):
        assert set(swagger[method]["produces"]) == set(swagger[method]["consumes"]) == both
