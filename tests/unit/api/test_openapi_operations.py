"""What OpenAPI tells of every path, beside what upstream told (tests/conformance/data/openapi_operations.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openapi_told
import orjson

from minikube_py.api.custom.kinds import kinds_of, served_form
from minikube_py.api.openapi import OpenApi
from minikube_py.api.registry import REGISTRY

FILE = Path(__file__).parents[2] / "conformance" / "data" / "openapi_operations.json"
UPSTREAM = orjson.loads(FILE.read_bytes())
TOLD = openapi_told.unpacked(UPSTREAM)
OPENAPI = OpenApi()


def document(path: str, documents: OpenApi = OPENAPI) -> Any:
    found = documents.document(path, "application/json")
    assert found is not None, path
    return orjson.loads(found.body)


def test_version_two_tells_every_operation_as_upstream() -> None:
    found = openapi_told.version_2(document("/openapi/v2"))
    assert found.keys() == TOLD.keys()
    assert {name: each for name, each in found.items() if each != TOLD[name]} == {}


def test_version_three_tells_every_operation_in_the_document_that_upstream_tells_it_in() -> None:
    listed = document("/openapi/v3")["paths"]
    assert listed.keys() == UPSTREAM["documents"].keys()
    documents = {name: document(f"/openapi/v3/{name}") for name in listed}
    assert {name: sorted(told["paths"]) for name, told in documents.items()} == UPSTREAM["documents"]
    found = openapi_told.version_3(documents.values())
    assert found.keys() == TOLD.keys()
    for name, (operation_id, action, parameters, read, written) in found.items():
        wanted = TOLD[name]
        # Version 2 says of all what is read, version 3 of bodies.
        assert [operation_id, action, parameters, read or wanted[3], written or ["*/*"]] == wanted, name


def test_a_path_above_the_group_versions_has_a_document_with_what_it_needs() -> None:
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1."
    version = "io.k8s.apimachinery.pkg.version.Info"
    both = {f"{meta}GroupVersionForDiscovery", f"{meta}ServerAddressByClientCIDR"}
    needed = {
        "api": {f"{meta}APIVersions", f"{meta}ServerAddressByClientCIDR"},
        "apis": {f"{meta}APIGroupList", f"{meta}APIGroup", *both},
        "apis/apps": {f"{meta}APIGroup", *both},
        "version": {version},
        "openid/v1/jwks": set(),
    }
    for name, schemas in needed.items():
        assert document(f"/openapi/v3/{name}")["components"].get("schemas", {}).keys() == schemas, name
    for path in ("/openapi/v3/openid", "/openapi/v3/openid/v1", "/openapi/v3/apis/nope", "/openapi/v3/apis/apps/v9"):
        assert OPENAPI.document(path, "application/json") is None


def test_a_custom_group_adds_what_its_kinds_have_and_nothing_above_them() -> None:
    """As upstream: neither discovery nor watches of custom resources are described."""
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    status = {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]}
    spec = {"group": "o.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "foos.o.example.com"}, "spec": spec, "status": status}
    documents = OpenApi(REGISTRY.extended(kinds_of(served_form(definition))))
    listed = document("/openapi/v3", documents)["paths"]
    assert listed.keys() - UPSTREAM["documents"].keys() == {"apis/o.example.com/v1"}
    whole = document("/openapi/v2", documents)
    more = {name.split(" ")[1] for name in openapi_told.version_2(whole).keys() - TOLD.keys()}
    root, namespaced = "/apis/o.example.com/v1/foos", "/apis/o.example.com/v1/namespaces/{namespace}/foos"
    assert more == {root, namespaced, f"{namespaced}/{{name}}"}
    assert whole["info"] == document("/openapi/v2")["info"]


def test_parameters_of_lists_have_upstreams_texts_where_these_are_short() -> None:
    listed = document("/openapi/v2")["paths"]["/api/v1/namespaces/{namespace}/pods"]
    told = {each["name"]: each.get("description") for each in (*listed["parameters"], *listed["get"]["parameters"])}
    assert told["labelSelector"] == (
        "A selector to restrict the list of returned objects by their labels. Defaults to everything."
    )
    assert told["watch"].startswith("Watch for changes to the described resources")
    assert told["namespace"] == "object name and auth scope, such as for teams and projects"
    assert told["limit"] is None
