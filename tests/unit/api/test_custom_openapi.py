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
    assert wanted["content"]["*/*"]["schema"] == {"$ref": f"#/components/schemas/com.example.{version}.Gauge"}
