"""Other servers' documents in this server's document of OpenAPI version 2, as kube-openapi merges them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minikube_py.api import openapi_v2
from minikube_py.api.openapi import OpenApi
from minikube_py.api.openapi_merging import FOREIGN_BYTES_MAX, Foreign, foreign, joining
from minikube_py.api.openapi_v2 import GVK, Json

ROOT = "/apis/example.com/v1/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
FIELDS = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def ref(name: str, of: str = "definitions") -> Json:
    return {"$ref": f"#/{of}/{name}"}


def item(*names: str) -> Json:
    """A path that needs these definitions."""
    answers = {str(200 + at): {"description": "", "schema": ref(name)} for at, name in enumerate(names)}
    return {"get": {"operationId": "".join(names), "responses": answers}}


def told(paths: Json, definitions: Json | None = None, parameters: Json | None = None, root: str = ROOT) -> Foreign:
    body = orjson.dumps({"paths": paths, "definitions": definitions or {}, "parameters": parameters or {}})
    return foreign(None, body, root, root)


def joined(*others: Foreign) -> Json:
    steps = joining([], others)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            text, packed = done.value
            document: Json = orjson.loads(text)
            assert packed == openapi_v2.protobuf(document)
            return document


def kind(version: str) -> Json:
    return {"group": "example.com", "version": version, "kind": "Song"}


def test_what_its_paths_need_is_added_and_what_other_paths_need_is_not() -> None:
    definitions = {
        "Song": {"properties": {"by": ref("Singer")}}, "Singer": {"type": "object"}, "Other": {"items": ref("Deeper")},
        "Deeper": {}, "Alone": {"type": "string"},
    }  # fmt: skip
    paths = {f"{ROOT}songs": item("Song"), "/apis/example.com/v10/songs": item("Other"), "/api/": item("Song")}
    found = joined(told(paths, definitions))
    assert found["paths"] == {f"{ROOT}songs": paths[f"{ROOT}songs"]}
    # As upstream: what no path refers to is not what was filtered out.
    assert found["definitions"] == {name: definitions[name] for name in ("Song", "Singer", "Alone")}


def test_what_differs_gets_another_name_wherever_it_is_meant() -> None:
    known: Json = orjson.loads(OpenApi().make_swagger().json)
    assert known["definitions"][META]["properties"]["managedFields"]["items"] != {}
    song = {"properties": {"metadata": ref(META), "fields": ref(FIELDS)}, "example": "#/definitions/x"}
    mine = {"type": "object", "properties": {"mine": {"type": "string"}}}
    theirs = {META: mine, FIELDS: known["definitions"][FIELDS]}
    other = told({f"{ROOT}songs": item("Song", META)}, {"Song": song, **theirs})
    swagger = OpenApi().make_swagger((other,))
    found = orjson.loads(swagger.json)
    assert swagger.protobuf == openapi_v2.protobuf(found)
    assert found["definitions"] == {
        **known["definitions"], f"{META}_v2": theirs[META],
        "Song": {**song, "properties": {"metadata": ref(f"{META}_v2"), "fields": ref(FIELDS)}},
    }  # fmt: skip
    assert found["paths"] == {**known["paths"], f"{ROOT}songs": item("Song", f"{META}_v2") | {
        "get": {**item("Song", f"{META}_v2")["get"], "operationId": f"Song{META}"},
    }}  # fmt: skip
    assert "parameters" not in known and swagger.etag != OpenApi().make_swagger().etag


def test_names_are_shared_by_those_that_are_alike() -> None:
    words: list[Json] = [{"type": "string"}, {"type": "object"}, {"type": "object"}, {"type": "array"}]
    others = [
        told({f"/apis/g{at}/v1/x": item("T")}, {"T": word}, root=f"/apis/g{at}/v1/") for at, word in enumerate(words)
    ]
    found = joined(*others)
    assert found["definitions"] == {"T": words[0], "T_v2": words[1], "T_v3": words[3]}
    meant = [found["paths"][f"/apis/g{at}/v1/x"]["get"]["responses"]["200"]["schema"] for at in range(4)]
    assert meant == [ref("T"), ref("T_v2"), ref("T_v2"), ref("T_v3")]


def test_a_name_that_the_other_document_has_is_not_taken() -> None:
    first = told({"/apis/g/v1/x": item("T")}, {"T": {"type": "string"}}, root="/apis/g/v1/")
    both = {"T": {"items": ref("T_v2")}, "T_v2": {"type": "array"}}
    found = joined(first, told({f"{ROOT}x": item("T")}, both))
    assert found["definitions"] == {"T": {"type": "string"}, "T_v2": both["T_v2"], "T_v3": both["T"]}


def test_kinds_of_a_shared_definition_are_told_together() -> None:
    options = {"type": "object", GVK: [kind("v1"), kind("v3")]}
    first = told({f"{ROOT}x": item(OPTIONS)}, {OPTIONS: options})
    path = "/apis/example.com/v2/x"
    second = told({path: item(OPTIONS)}, {OPTIONS: {**options, GVK: [kind("v3"), kind("v2")]}}, root=path[:-1])
    found = joined(first, second)["definitions"]
    assert found == {OPTIONS: {"type": "object", GVK: [kind("v1"), kind("v2"), kind("v3")]}}


def test_parameters_are_shared_and_renamed_as_definitions_are() -> None:
    limit, other = ({"name": "limit", "in": "query", "type": each} for each in ("integer", "string"))
    path = {"get": {"operationId": "x", "parameters": [ref("limit", "parameters")], "responses": {}}}
    given = [told({f"/apis/g{at}/v1/x": path}, None, {"limit": each}, f"/apis/g{at}/v1/")
             for at, each in enumerate((limit, limit, other))]  # fmt: skip
    found = joined(*given)
    assert found["parameters"] == {"limit": limit, "limit_v2": other}
    meant = [found["paths"][f"/apis/g{at}/v1/x"]["get"]["parameters"][0]["$ref"][-3:] for at in range(3)]
    assert meant == ["mit", "mit", "_v2"]


def test_a_path_that_is_there_stays() -> None:
    first = told({f"{ROOT}x": item("T")}, {"T": {"type": "string"}})
    again = told({f"{ROOT}x": item("U"), f"{ROOT}y": item("V")}, {"U": {}, "V": {"type": "object"}})
    found = joined(first, again)
    assert found["paths"] == {f"{ROOT}x": item("T"), f"{ROOT}y": item("V")}
    assert found["definitions"] == {"T": {"type": "string"}, "V": {"type": "object"}}
    assert joined(first, told({f"{ROOT}x": item("U")}, {"U": {}})) == joined(first)


@pytest.mark.parametrize(
    "document",
    [
        [], {"paths": [1]}, {"paths": {f"{ROOT}x": 1}}, {"paths": {f"{ROOT}x": {"get": 1}}},
        {"paths": {}, "definitions": {"T": "x"}}, {"definitions": {"T": {GVK: 1}}},
        {"definitions": {"T": {GVK: [{"group": 1}]}}}, {"definitions": {"T": {"maxLength": "x"}}},
        {"definitions": {"T": {"required": [1]}}}, {"parameters": {"p": {"in": "nowhere"}}}, {"parameters": {"p": {}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_document_is_not_added(document: Any) -> None:
    with pytest.raises(ValueError, match="the document"):
        foreign(None, orjson.dumps(document), ROOT, "")


def test_what_is_deep_or_long_is_not_added() -> None:
    deep = b'{"definitions":{"T":%b{}%b}}' % (b'{"items":' * 900, b"}" * 900)
    with pytest.raises(ValueError, match="the document"):
        foreign(None, deep, ROOT, "")
    long = orjson.dumps({"definitions": {"T": {"enum": ["\u00e9" * 9] * (FOREIGN_BYTES_MAX // 22)}}})
    assert len(long) < FOREIGN_BYTES_MAX
    with pytest.raises(ValueError, match=f"longer than {FOREIGN_BYTES_MAX} bytes"):
        foreign(None, long, ROOT, "")
