"""Discovery and OpenAPI documents: what they say of the rows, and how they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from minikube_py.api import discovery, openapi, openapi_schemas, openapi_v2
from minikube_py.api.document import parse_accept
from minikube_py.api.errors import StatusError
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v=v2", "v=v2beta1")
PLAIN = "application/json"

OPENAPI = openapi.OpenApi()


def get(path: str, accept: str = PLAIN) -> Any:
    found = discovery.document(path, accept, "host:1")
    assert found is not None
    return orjson.loads(found.body)


def spec(group: str = "", version: str = "v1") -> Any:
    return orjson.loads(OPENAPI.group_version(group, version))


def test_the_core_group_tells_its_versions_and_the_servers_address() -> None:
    assert get("/api") == get("/api/") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "host:1"}],
    }


def test_groups_are_listed_in_the_originals_order() -> None:
    names = [group["name"] for group in get("/apis")["groups"]]
    order = ["authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io"]
    assert [name for name in names if name in order] == order
    group = get("/apis/coordination.k8s.io")
    version = {"groupVersion": "coordination.k8s.io/v1", "version": "v1"}
    assert group == {
        "kind": "APIGroup", "apiVersion": "v1", "name": "coordination.k8s.io", "versions": [version],
        "preferredVersion": version,
    }  # fmt: skip


ENTRIES = [
    ("pods", {"singularName": "pod", "namespaced": True, "kind": "Pod", "shortNames": ["po"], "categories": ["all"]}),
    ("pods/binding", {"singularName": "", "namespaced": True, "kind": "Binding", "verbs": ["create"]}),
    ("pods/eviction", {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}),
    ("pods/status", {"kind": "Pod", "verbs": ["get", "patch", "update"]}),
    ("replicationcontrollers/scale", {"group": "autoscaling", "version": "v1", "kind": "Scale"}),
    ("namespaces", {"namespaced": False, "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}),
    ("namespaces/finalize", {"verbs": ["update"], "kind": "Namespace"}),
]


@pytest.mark.parametrize(("name", "expected"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_a_resource_is_described(name: str, expected: dict[str, Any]) -> None:
    entry = next(entry for entry in get("/api/v1")["resources"] if entry["name"] == name)
    assert {key: entry.get(key) for key in expected} == expected


RECORDED = orjson.loads(
    (Path(__file__).parents[2] / "conformance" / "data" / "api_discovery.json").read_bytes()
)


@pytest.mark.parametrize("path", sorted(RECORDED))
def test_served_kinds_are_told_as_the_original_tells_them(path: str) -> None:
    theirs, ours = RECORDED[path], get(path)
    assert {key: value for key, value in ours.items() if key != "resources"} == {
        key: value for key, value in theirs.items() if key != "resources"
    }
    expected = {entry["name"]: entry for entry in theirs["resources"]}
    assert {entry["name"]: entry for entry in ours["resources"]} == expected


def test_resources_are_sorted_and_only_named_groups_say_an_api_version() -> None:
    core, leases = get("/api/v1"), get("/apis/coordination.k8s.io/v1")
    names = [entry["name"] for entry in core["resources"]]
    assert names == sorted(names)
    assert "apiVersion" not in core and leases["apiVersion"] == "v1"
    assert leases["groupVersion"] == "coordination.k8s.io/v1"


@pytest.mark.parametrize(("accept", "version"), [(V2, "v2"), (V2BETA1, "v2beta1"), (f"{V2},{V2BETA1},{PLAIN}", "v2")])
def test_the_aggregated_form_echoes_what_was_asked_for(accept: str, version: str) -> None:
    found = discovery.document("/api", accept)
    assert found is not None
    assert found.content_type == f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    content = orjson.loads(found.body)
    assert content["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    entries = {entry["resource"]: entry for entry in content["items"][0]["versions"][0]["resources"]}
    subs = {sub["subresource"]: sub["responseKind"] for sub in entries["pods"]["subresources"]}
    assert subs["eviction"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert entries["nodes"]["scope"] == "Cluster"


def test_both_forms_tell_the_same_resources() -> None:
    aggregated = {
        (group["metadata"].get("name", ""), version["version"], entry["resource"], tuple(entry["verbs"]))
        for root in ("/api", "/apis")
        for group in get(root, V2)["items"]
        for version in group["versions"]
        for entry in version["resources"]
    }
    plain = set()
    for group, version in REGISTRY.group_versions:
        for entry in get(f"/apis/{group}/{version}" if group else f"/api/{version}")["resources"]:
            if "/" not in entry["name"]:
                plain.add((group, version, entry["name"], tuple(entry["verbs"])))
    assert aggregated == plain and plain


def test_an_unchanged_document_is_not_sent_again() -> None:
    first = discovery.document("/apis", V2)
    assert first is not None
    again = discovery.document("/apis", V2, if_none_match=f'"x", {first.headers["ETag"]}')
    assert again is not None and again.status == 304 and again.body == b""
    api = openapi.document("/openapi/v3/api/v1", PLAIN)
    assert api is not None
    unchanged = openapi.document("/openapi/v3/api/v1", PLAIN, if_none_match=api.headers["ETag"])
    assert unchanged is not None and unchanged.status == 304


def test_only_what_is_asked_for_by_its_hash_is_kept_forever() -> None:
    index = openapi.document("/openapi/v3", PLAIN)
    assert index is not None
    url = orjson.loads(index.body)["paths"]["api/v1"]["serverRelativeURL"]
    path, _, known = url.partition("?hash=")
    plain, named, stale = (openapi.document(path, PLAIN, asked) for asked in ("", known, "ABC"))
    assert plain is not None and named is not None and stale is not None
    assert (plain.status, plain.headers.get("Cache-Control")) == (200, None)
    assert (named.status, named.headers["Cache-Control"]) == (200, "public, immutable")
    assert (stale.status, stale.headers["Location"], stale.body) == (301, url, b"")


NOTHING = ["/apis/nowhere", "/apis/nowhere/v1", "/", "/version", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases"]


@pytest.mark.parametrize("path", NOTHING)
def test_other_paths_are_left_to_others(path: str) -> None:
    assert discovery.document(path, PLAIN) is None


@pytest.mark.parametrize("path", ["/api/v2", "/apis/coordination.k8s.io/v9"])
def test_unknown_versions_are_not_found(path: str) -> None:
    with pytest.raises(StatusError) as caught:
        discovery.document(path, PLAIN)
    assert (caught.value.code, caught.value.message) == (404, "the server could not find the requested resource")


def test_forms_that_are_not_served_are_told() -> None:
    with pytest.raises(StatusError) as caught:
        discovery.document("/api", "text/html")
    assert caught.value.code == 406
    found = discovery.document("/api", "application/yaml")
    assert found is not None and found.body.startswith(b"kind: APIVersions\n")


def test_accept_headers_are_read_by_weight() -> None:
    clauses = parse_accept("a/b;q=0.5, c/d;v=1, e/f;q=0, */*;q=x")
    found = [(clause.media, clause.parameters) for clause in clauses]
    assert found == [("c/d", {"v": "1"}), ("a/b", {}), ("e/f", {}), ("*/*", {})]
    assert [clause.media for clause in parse_accept(None)] == ["*/*"]


# --- OpenAPI --------------------------------------------------------------------------------------------------------


def test_the_index_names_every_group_version_and_what_is_above_them() -> None:
    found = openapi.document("/openapi/v3", PLAIN)
    assert found is not None
    paths = orjson.loads(found.body)["paths"]
    versions = {f"apis/{g}/{v}" if g else f"api/{v}" for g, v in REGISTRY.group_versions}
    assert versions < set(paths) and {"api", "apis", "apis/apps", "version"} <= set(paths)
    for path, entry in paths.items():
        url = entry["serverRelativeURL"]
        assert url.startswith(f"/openapi/v3/{path}?hash=")
        assert openapi.document(url.partition("?")[0], PLAIN) is not None


def test_every_row_has_its_paths_and_they_say_what_kubectl_looks_for() -> None:
    paths = spec()["paths"]
    patch = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    names = {parameter["name"] for parameter in patch["parameters"]}
    assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= names
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    scale = paths["/api/v1/namespaces/{namespace}/replicationcontrollers/{name}/scale"]["get"]
    assert scale["x-kubernetes-group-version-kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert set(paths["/api/v1/nodes/{name}"]) == {"get", "put", "patch", "delete", "parameters"}
    assert set(paths["/api/v1/pods"]) == {"get", "parameters"}
    assert "delete" not in paths["/api/v1/namespaces"]


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(item) for item in value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(("group", "version"), REGISTRY.group_versions)
def test_no_reference_dangles_and_all_schemas_are_used(group: str, version: str) -> None:
    document = spec(group, version)
    schemas = document["components"]["schemas"]
    named = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert named == set(schemas)


def test_a_message_is_described() -> None:
    schemas = spec()["components"]["schemas"]
    container = schemas["io.k8s.api.core.v1.Container"]
    ports = container["properties"]["ports"]
    assert container["required"] == ["name"]
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert (ports["x-kubernetes-patch-merge-key"], ports["x-kubernetes-patch-strategy"]) == ("containerPort", "merge")
    assert container["properties"]["imagePullPolicy"]["enum"] == ["Always", "IfNotPresent", "Never"]
    assert schemas["io.k8s.api.core.v1.Secret"]["properties"]["data"]["additionalProperties"]["format"] == "byte"
    assert schemas["io.k8s.api.core.v1.NodeSelector"]["x-kubernetes-map-type"] == "atomic"
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"


def test_without_the_texts_package_the_shapes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_texts(v) for k, v in value.items() if not (k == "description" and isinstance(v, str))}
        return [without_texts(item) for item in value] if isinstance(value, list) else value

    for module in (openapi, openapi_schemas):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    openapi_schemas.definitions.cache_clear()
    bare = orjson.loads(openapi.OpenApi().group_version("", "v1"))
    assert "description" not in bare["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    openapi_schemas.definitions.cache_clear()
    assert without_texts(bare) == without_texts(spec())


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_references, value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


def test_version_two_tells_all_groups_in_json_and_protobuf() -> None:
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    packed, told = openapi.document("/openapi/v2", accept), openapi.document("/openapi/v2", PLAIN)
    assert packed is not None and told is not None
    assert packed.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    content = orjson.loads(told.body)
    assert content["swagger"] == "2.0" and packed.body == openapi_v2.protobuf(content)
    assert packed.body.startswith(b"\n\x032.0") and packed.headers == told.headers
    parts = [spec(*each) for each in REGISTRY.group_versions]
    parts += [orjson.loads(OPENAPI.group_version("", ""))]
    assert content["paths"].keys() == set().union(*(part["paths"] for part in parts))
    assert content["definitions"].keys() == set().union(*(part["components"]["schemas"] for part in parts))
    assert {each.removeprefix("#/definitions/") for each in _references(content)} <= content["definitions"].keys()
    known = openapi.document("/openapi/v2", accept, if_none_match=told.headers["ETag"])
    assert known is not None and (known.status, known.body) == (304, b"")
    refused = openapi.document("/openapi/v2", "text/html")
    assert refused is not None and refused.status == 406


@pytest.mark.parametrize("path", ["/openapi/v3/api/v9", "/openapi/v3/apis/nowhere/v1", "/openapi/v3/", "/openapi/v1"])
def test_no_such_document(path: str) -> None:
    assert openapi.document(path, PLAIN) is None


def test_names_of_schemas() -> None:
    assert openapi_schemas.schema_name("core/v1.Pod") == "io.k8s.api.core.v1.Pod"
    assert openapi_schemas.schema_name("meta/v1.ObjectMeta") == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert openapi_schemas.schema_name("resource.Quantity") == "io.k8s.apimachinery.pkg.api.resource.Quantity"
    assert SCHEMA.message("k8s.io.api.core.v1.Pod") is SCHEMA.message("core/v1.Pod")
