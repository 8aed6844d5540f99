"""Definitions that no present server would take, as an earlier release or a client of etcd may have stored them: they
keep nobody from discovery, OpenAPI, or other definitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MERGE, Core, names
from patience import until

from minikube_py.mvcc.types import Put

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

import custom_schema_cases
from custom_cases import DEFINITIONS, GROUP, OBJECTS, definition, of, thing

Json = dict[str, Any]
KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
STRING = {"type": "string"}
_DEEP: Any = 1
for _ in range(200):
    _DEEP = [_DEEP]
STRUCTURAL = {
    "enum": of(a={**STRING, "enum": [_DEEP, {}, None]}), "example": of(a={**STRING, "example": _DEEP}),
    "number": of(a={"type": "number", "minimum": -1.5, "maxLength": -(1 << 63)}),
    "text": of(a={**STRING, "title": "\0"}),
}  # fmt: skip
VIOLATING = {
    "untyped": of(a={}), "root": {"type": "array", "items": STRING}, "alternative": of(a={**STRING, "anyOf": [STRING]}),
    "type": of(a={"type": "blob"}), "null": of(a={"type": "null"}),
    "more": {"type": "object", "additionalProperties": {}},
}  # fmt: skip
UNBUILDABLE = {
    "items": of(a={"type": "array", "items": [STRING]}), "ref": of(a=of(b={"$ref": "#/x"})),
    "patterns": of(a={"type": "object", "patternProperties": {"a": STRING}}),
}  # fmt: skip
UNNAMED: dict[str, dict[str, Any]] = {
    "singular": {"plural": "", "kind": ""}, "list": {"plural": "x", "kind": "X", "singular": "x"},
}  # fmt: skip
NO_VERSIONS: tuple[Any, ...] = (None, [], [{"name": "v1"}])


def plural(number: int) -> str:
    return f"bad{number}s"


def stored(number: int, schema: Any, names: Any = ..., versions: Any = ...) -> tuple[bytes, bytes]:
    """A key, and an established definition."""
    made = definition(plural(number), schema)
    kind = made["spec"]["names"]["kind"]
    made["spec"]["names"] |= {"singular": kind.lower(), "listKind": f"{kind}List"}
    made["metadata"] |= {"uid": f"u{number}", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if versions is not ...:
        made["spec"]["versions"] = versions
    accepted = made["spec"]["names"] if names is ... else names
    conditions = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
    status = {"conditions": conditions, "acceptedNames": accepted, "storedVersions": ["v1"]}
    value = orjson.dumps({"metadata": made["metadata"], "spec": made["spec"], "status": status})
    return f"{KEY}{made['metadata']['name']}".encode(), value


async def told_of(core: Core, number: int, type_: str = "NonStructuralSchema") -> Json | None:
    found = await core.done("GET", f"{DEFINITIONS}/{plural(number)}.{GROUP}")
    return next((each for each in found["status"]["conditions"] if each["type"] == type_), None)


async def everyone_is_served(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition("gauges", of(a=STRING)))
    gauges = f"{OBJECTS}/gauges"

    async def answers() -> bool:
        return (await core.respond("GET", gauges)).status == 200

    await until(answers, "what is defined after them is served")
    await core.done("POST", gauges, thing("Gauge", "g", a="x"))
    assert names(await core.done("GET", gauges)) == ["g"]
    assert any(each["name"] == "gauges" for each in (await core.done("GET", f"/apis/{GROUP}/v1"))["resources"])
    assert any(each["name"] == GROUP for each in (await core.done("GET", "/apis"))["groups"])
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert (await core.respond("GET", "/apis", accept=aggregated)).status == 200
    v2 = await core.done("GET", "/openapi/v2")
    assert v2["definitions"]["com.example.cases.v1.Gauge"]["properties"]["a"] == STRING
    packed = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    assert (await core.respond("GET", "/openapi/v2", accept=packed)).status == 200
    for path in (await core.done("GET", "/openapi/v3"))["paths"]:
        assert (await core.respond("GET", f"/openapi/v3/{path}")).status == 200


@pytest.fixture
async def seen(core: Core) -> Any:
    """Stores definitions, and waits until the server has seen them all."""

    async def store(*pairs: tuple[bytes, bytes]) -> None:
        for pair in pairs:
            await core.member.storage.txn((), (Put(*pair),))
        await core.done("POST", DEFINITIONS, definition("lasts", of(a=STRING)))

        async def answers() -> bool:
            return (await core.respond("GET", f"{OBJECTS}/lasts")).status == 200

        await until(answers, "the last one is served")

    return store


async def test_no_schema_that_was_drawn_keeps_others_from_being_served(core: Core, seen: Any) -> None:
    """Most of them are refused by their types: those are stored as no present server reads them."""
    drawn = [case.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for case in custom_schema_cases.cases()]
    schemas = [*drawn, *STRUCTURAL.values(), *VIOLATING.values(), *UNBUILDABLE.values()]
    await seen(*(stored(number, schema) for number, schema in enumerate(schemas)))
    metrics = core.api.metrics()
    assert metrics["apiserver_unreadable_objects"] > 50
    assert metrics["apiserver_unserved_definitions"] >= len(UNBUILDABLE)
    await everyone_is_served(core)


@pytest.mark.parametrize("name", STRUCTURAL)
async def test_what_is_odd_and_legal_is_described(core: Core, seen: Any, name: str) -> None:
    await seen(stored(0, STRUCTURAL[name]))
    await everyone_is_served(core)
    assert await told_of(core, 0) is None
    v3 = await core.done("GET", f"/openapi/v3/apis/{GROUP}/v1")
    assert "a" in v3["components"]["schemas"]["com.example.cases.v1.Bad0"]["properties"]


@pytest.mark.parametrize("name", VIOLATING)
async def test_a_schema_that_is_not_structural_is_left_out_and_told_of(core: Core, seen: Any, name: str) -> None:
    await seen(stored(0, VIOLATING[name]))
    await everyone_is_served(core)
    kind = [{"group": GROUP, "kind": "Bad0", "version": "v1"}]
    bare = {"type": "object", "x-kubernetes-group-version-kind": kind}
    v2, v3 = await core.done("GET", "/openapi/v2"), await core.done("GET", f"/openapi/v3/apis/{GROUP}/v1")
    name_in_it = "com.example.cases.v1.Bad0"
    assert v2["definitions"][name_in_it] == v3["components"]["schemas"][name_in_it] == bare
    if name in ("type", "null"):
        # Structural for upstream, too.
        return
    condition = await told_of(core, 0)
    assert condition is not None and (condition["status"], condition["reason"]) == ("True", "Violations")
    assert condition["message"].startswith(("spec.versions[0].schema.openAPIV3Schema", "[spec.versions[0].schema"))
    mended = [{**definition("x", of(a=STRING))["spec"]["versions"][0]}]
    await core.done("PATCH", f"{DEFINITIONS}/{plural(0)}.{GROUP}", {"spec": {"versions": mended}}, MERGE)

    async def untold() -> bool:
        return await told_of(core, 0) is None

    await until(untold, "the condition is gone with its cause")
    v2 = await core.done("GET", "/openapi/v2")
    assert v2["definitions"][name_in_it]["properties"]["a"] == STRING


@pytest.mark.parametrize("name", UNBUILDABLE)
async def test_a_schema_that_upstream_cannot_build_is_not_served(
    core: Core, seen: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream answers 500 there; without the schema, what it describes would be pruned."""
    await seen(stored(0, UNBUILDABLE[name]))
    await everyone_is_served(core)
    assert (await core.respond("GET", f"{OBJECTS}/{plural(0)}")).status == 404
    assert core.api.metrics()["apiserver_unserved_definitions"] == 1
    assert f"definition {plural(0)}.{GROUP} cannot be served" in caplog.text
    condition = await told_of(core, 0)
    assert condition is not None and (condition["status"], condition["reason"]) == ("Unknown", "StructuralError")
    assert condition["message"].startswith("failed to check validation schema for version v1: OpenAPIV3Schema '")


@pytest.mark.parametrize("accepted", UNNAMED.values(), ids=list(UNNAMED))
async def test_accepted_names_that_lack_some_keep_nobody_from_being_served(
    core: Core, seen: Any, accepted: Json
) -> None:
    await seen(stored(0, of(a=STRING), names=accepted))
    await everyone_is_served(core)


@pytest.mark.parametrize("versions", NO_VERSIONS, ids=str)
async def test_versions_that_are_none_keep_nobody_from_being_served(core: Core, seen: Any, versions: Any) -> None:
    await seen(stored(0, None, versions=versions))
    await everyone_is_served(core)
