"""Other servers' documents in this server's document of OpenAPI version 2, as kube-openapi merges them."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Generator
from typing import Any

import orjson
import pytest
from hostile_swagger import Hostile

from minikube_py.api import openapi_merging, openapi_v2
from minikube_py.api.errors import StatusError
from minikube_py.api.openapi import OpenApi
from minikube_py.api.openapi_merging import (
    DEPTH_MAX,
    ENTRIES_MAX,
    FOREIGN_BYTES_MAX,
    KINDS_MAX,
    SHARED_KINDS_MAX,
    STEP_BYTES,
    VALUES_MAX,
    Foreign,
    foreign,
    joining,
)
from minikube_py.api.openapi_v2 import GVK, Entry, Json
from minikube_py.api.protobuf_writing import sized
from minikube_py.apiserver.worker import _done

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
    text, packed = ended(joining([], others))
    document: Json = orjson.loads(text)
    assert packed == openapi_v2.protobuf(document)
    return document


def ended(steps: Generator[None, None, tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: tuple[bytes, bytes] = done.value
            return found


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
        {"definitions": {"T": {"required": [1]}}}, {"definitions": {"T": {"maximum": "a"}}},
        {"parameters": {"p": {"in": "nowhere"}}}, {"parameters": {"p": {}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_document_is_not_added(document: Any) -> None:
    refused(document, "the document (is not one of OpenAPI version 2|must be a JSON object)")


def refused(document: Any, why: str) -> None:
    """The one refusal, also by a worker process: whatever else is raised there is reported as a fault of ours."""
    body = document if isinstance(document, bytes) else orjson.dumps(document)
    with pytest.raises(StatusError, match=why):
        foreign(None, body, ROOT, "")
    done, why_there = _done("late", (".api.openapi_merging", "foreign", body, ROOT, ""))
    assert not done and isinstance(why_there, StatusError) and why_there.code == 400


def nested(levels: int, within: str = "items") -> Json:
    value = ref(META)
    for _ in range(levels - 2):
        value = {within: value}
    return value


def test_what_is_deep_or_long_is_not_added() -> None:
    refused(b'{"definitions":{"T":%b{}%b}}' % (b'{"items":' * 900, b"}" * 900), f"more than {DEPTH_MAX} levels")
    refused(b"[" * 2000, "the document is not JSON")
    refused({"definitions": {"T": nested(DEPTH_MAX + 1)}}, f"more than {DEPTH_MAX} levels")
    refused({"definitions": {"T": {"enum": [0] * VALUES_MAX}}}, f"more than {VALUES_MAX} values")
    refused({"definitions": {f"T{at}": {} for at in range(ENTRIES_MAX + 1)}}, f"more than {ENTRIES_MAX} paths")
    refused({"definitions": {"T": {GVK: [kind("v1")] * (KINDS_MAX + 1)}}}, f"more than {KINDS_MAX} kinds")
    refused({"parameters": {"T": {"in": "x" * 100_000}}}, "x{20,40}\\.\\.\\.")
    part = {"enum": ["é" * 9] * (FOREIGN_BYTES_MAX // 16 // 22)}
    long = orjson.dumps({"definitions": {f"T{at}": part for at in range(16)}})
    assert len(long) < FOREIGN_BYTES_MAX
    refused(long, f"longer than {FOREIGN_BYTES_MAX} bytes")


@pytest.mark.parametrize("within", ["items", "additionalProperties", "x-a"])
def test_what_is_as_deep_as_may_be_is_renamed_in_a_deep_stack(within: str) -> None:
    known: Json = orjson.loads(OpenApi().make_swagger().json)
    other = told({f"{ROOT}x": item("T")}, {"T": nested(DEPTH_MAX, within), META: {"type": "object"}})

    def below(levels: int) -> Json:
        return below(levels - 1) if levels else orjson.loads(OpenApi().make_swagger((other,)).json)

    found = below(200)["definitions"]
    assert found == {**known["definitions"], "T": found["T"], f"{META}_v2": {"type": "object"}}
    assert str(found["T"]).count(f"{META}_v2") == 1


def test_one_kind_is_told_once_whatever_else_is_said_of_it() -> None:
    given = [[kind("v1")], [{**kind("v1"), "scope": "x"}, kind("v2")]]
    others = [
        told({f"/apis/g{at}/v1/x": item("T")}, {"T": {GVK: each}}, root=f"/apis/g{at}/v1/")
        for at, each in enumerate(given)
    ]
    assert joined(*others)["definitions"] == {"T": {GVK: [kind("v1"), kind("v2")]}}


def test_a_server_whose_document_cannot_be_merged_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    first = told({"/apis/g/v1/x": item("T")}, {"T": {"type": "string"}}, root="/apis/g/v1/")
    last = told({"/apis/z/v1/x": item("T")}, {"T": {"type": "array"}}, root="/apis/z/v1/")
    wanted = joined(first, last)
    assert not caplog.records
    # `foreign` lets none of these pass.
    good = told({f"{ROOT}x": item("A", "T")}, {"A": {"items": ref("T")}, "T": {"type": "object"}})
    deep = b'"T":%b{"$ref":"#/definitions/A"}%b' % (b'{"items":' * 900, b"}" * 900)
    for broken in (b'"T":', b'"T":{"maximum":"a"}', b'"T":1', deep):
        caplog.clear()
        other = good._replace(definitions={**good.definitions, "T": Entry(broken, b"")})
        assert joined(first, other, last) == wanted
        (record,) = caplog.records
        assert record.levelno == logging.WARNING and f"{ROOT}x" in record.getMessage()


def test_kinds_of_many_servers_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    count = SHARED_KINDS_MAX // KINDS_MAX + 2
    others = [
        told({f"/apis/g{at}/v1/x": item("T")}, {"T": {GVK: [kind(f"v{at}n{n}") for n in range(KINDS_MAX)]}},
             root=f"/apis/g{at}/v1/")
        for at in range(count)
    ]  # fmt: skip
    found = joined(*others)
    assert len(found["definitions"]["T"][GVK]) == SHARED_KINDS_MAX
    assert len(found["paths"]) == SHARED_KINDS_MAX // KINDS_MAX
    assert [f"{SHARED_KINDS_MAX} kinds" in each.getMessage() for each in caplog.records] == [True, True]


def test_parameters_in_headers_and_forms_are_told_too() -> None:
    """Also those that no path uses. gnostic's NonBodyParameter: 1 is in a header, 2 in a form."""
    places = {each: {"name": each, "in": each, "type": "string"} for each in ("header", "formData")}
    path = {f"{ROOT}x": {"parameters": list(places.values())}}
    other = told(path, None, places)
    found = joined(other)
    assert found["parameters"] == places and found["paths"] == path
    for at, (name, of_type) in enumerate((("header", 5), ("formData", 6)), 1):
        text = name.encode()
        told_there = sized(2, text) + sized(4, text) + sized(of_type, b"string")
        non_body = sized(2, sized(at, told_there))
        assert other.parameters[name].protobuf == sized(1, sized(1, text) + sized(2, non_body))


@pytest.mark.parametrize("seed", range(8))
def test_no_document_makes_the_document_of_all_fail(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng, accepted, refusals = random.Random(seed), 0, 0
    for _ in range(30):
        hostile, others = Hostile(rng, rng.choice((0, 0.0003, 0.003, 0.03))), []
        for at in range(4):
            root = f"/apis/g{at}/v1/"
            body = json.dumps(hostile.document(root)).encode()
            try:
                others.append(foreign(None, body, root, f"{at}"))
                accepted += 1
            except StatusError as error:
                refusals += 1
                assert error.code == 400 and len(str(error)) < 300
        joined(*others)
    assert accepted > 10 and refusals > 10
    assert not [each.getMessage() for each in caplog.records]


def test_long_values_are_not_kept_for_the_next_document() -> None:
    before = openapi_v2._yaml.cache_info().currsize
    part = {"default": "x" * 100_000, "example": ["y"] * 1000}
    told({f"{ROOT}x": item("T")}, {"T": part})
    assert openapi_v2._yaml.cache_info().currsize == before


def test_a_step_looks_at_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what collides, in chains of names and with kinds, and of what is renamed: all that is decoded is counted."""
    looked_at, most, decode, count = 0, 0, openapi_merging._value, 3000

    def counted(one: Entry) -> Any:
        nonlocal looked_at
        looked_at += len(one.json)
        return decode(one)

    monkeypatch.setattr(openapi_merging, "_value", counted)
    others = []
    for at in range(3):
        chain = {f"T_v{n}" if n > 1 else "T": {"title": f"{at} {n}", "items": ref("U")} for n in range(1, count)}
        same = {f"S{n}": {"title": "x", GVK: [kind(f"v{at}")]} for n in range(count)}
        names = {**chain, **same, "U": {"title": f"{at}"}}
        root = f"/apis/g{at}/v1/"
        others.append(told({f"{root}x": item("T")}, names, root=root))
    longest = max(len(each.json) for other in others for each in other.definitions.values())
    total = 0
    for _ in joining([], others):
        most, total, looked_at = max(most, looked_at), total + looked_at, 0
    assert total > 20 * STEP_BYTES
    # What is decoded to be compared may be decoded once more to be renamed or told together.
    assert max(most, looked_at) <= 2 * STEP_BYTES + 3 * longest
