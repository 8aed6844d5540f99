"""Large definitions: making one, its first object and what OpenAPI tells of it hold nobody up. Counted, not timed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import orjson
import pytest
from api_core import Core
from turns import LINES_MAX, Elsewhere, Turns

from minikube_py.api import openapi
from minikube_py.api.custom.paths import follow, steps_of
from minikube_py.api.errors import timeout
from minikube_py.apiserver import custom_resources
from minikube_py.apiserver.work import WorkHere

Json = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BODY_BYTES = 256 << 10
JSON_BYTES_MAX = 2 << 20
"""Read and written by C in one callback: some 10 ms."""


def fields(size: int, part: Json) -> Json:
    count = size // (len(orjson.dumps(part)) + 12)
    return {"type": "object", "properties": {f"f{at:05d}": part for at in range(count)}}


TEXT = {"type": "string", "maxLength": 10}
SHAPES: dict[str, Json] = {
    "many fields": fields(BODY_BYTES * 9 // 10, {"type": "string"}),
    "fields of fields": fields(BODY_BYTES * 9 // 10, fields(400, TEXT)),
    "defaults": fields(BODY_BYTES * 9 // 10, {"type": "object", "default": {}, "properties": {"a": TEXT}}),
    "rules": fields(40_000, {**TEXT, "x-kubernetes-validations": [{"rule": "self != 'a' && self.size() < 9"}]}),
    "long texts": fields(BODY_BYTES * 9 // 10, {"type": "string", "description": "x" * 2000}),
}


def definition(spec: Json, plural: str) -> Json:
    kind = plural.capitalize()
    names = {"plural": plural, "kind": kind, "singular": plural, "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.long.io"},
        "spec": {"group": "long.io", "scope": "Cluster", "names": names, "versions": [version]},
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_large_definition_holds_up_nobody(core: Core, shape: str) -> None:
    body = definition(SHAPES[shape], "things")
    assert len(orjson.dumps(body)) <= BODY_BYTES
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    paths = ["/apis/long.io/v1/things", "/openapi/v3", "/openapi/v3/apis/long.io/v1", "/openapi/v2"]

    async def served() -> bool:
        return (await core.respond("GET", paths[0])).status == 200

    async def made() -> None:
        await core.done("POST", DEFINITIONS, body)
        for _ in range(1000):
            if await served():
                return
            await core.clock.sleep(0.1)

    async def first() -> tuple[int, Any]:
        thing = {"apiVersion": "long.io/v1", "kind": "Things", "metadata": {"name": "a"}, "spec": {}}
        return await core.ask("POST", paths[0], thing)

    for work in (made, first):
        await turns.of(work())
        assert turns.most < LINES_MAX and turns.most_bytes < JSON_BYTES_MAX, (work, turns.most, turns.most_bytes)
    answers = {}
    for path in paths:
        answers[path] = (await turns.of(core.respond("GET", path))).body
        assert turns.most < LINES_MAX and turns.most_bytes < JSON_BYTES_MAX, (path, turns.most, turns.most_bytes)
    assert elsewhere.jobs >= 3
    core.api.hand_work_to(WorkHere())
    core.api.registry = core.api.registry.extended(tuple(kind for kind in core.api.registry.kinds if kind.definition))
    assert {path: (await core.respond("GET", path)).body for path in paths[1:]} == {p: answers[p] for p in paths[1:]}


async def served(core: Core, body: Json, **more: Any) -> str:
    """The path of a definition that has been made, once it is served."""
    path = f"/apis/{body['spec']['group']}/v1/{body['spec']['names']['plural']}"
    await core.done("POST", DEFINITIONS, body)
    for _ in range(1000):
        if (await core.respond("GET", path)).status == 200:
            return path
        await core.clock.sleep(0.1)
    raise AssertionError(f"{path} is not served")


async def test_the_first_objects_need_no_worker(core: Core) -> None:
    """A worker starts slowly on a busy machine, and would compile the rules for itself alone."""
    rule = " || ".join(f"self != '{at:07d}'" for at in range(5))
    part = {**TEXT, "x-kubernetes-validations": [{"rule": rule}]}
    spec = {"type": "object", "properties": {f"f{at:02d}": part for at in range(60)}}
    turns = Turns()
    core.api.hand_work_to(elsewhere := Elsewhere(turns))
    path = await served(core, definition(spec, "ruled"))
    before = elsewhere.jobs

    async def written() -> None:
        for name in "abc":
            thing = {"apiVersion": "long.io/v1", "kind": "Ruled", "metadata": {"name": name}}
            await core.done("POST", path, {**thing, "spec": dict.fromkeys(spec["properties"], "x")})

    await turns.of(written())
    assert elsewhere.jobs == before and turns.most < LINES_MAX, (elsewhere.jobs, before, turns.most)


async def test_a_change_concerns_the_definitions_of_its_group(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    plain = custom_resources._next_status

    def counted(of: Json, *given: Any) -> Json | None:
        looked.append(of["spec"]["group"])
        return plain(of, *given)

    monkeypatch.setattr(custom_resources, "_next_status", counted)
    for at in range(12):
        body = definition({"type": "object"}, "things")
        body["spec"]["group"], body["metadata"]["name"] = f"g{at}.io", f"things.g{at}.io"
        await served(core, body)
    assert len(set(looked)) == 12 and max(map(looked.count, looked)) <= 4, looked


async def test_a_name_that_is_free_again_is_accepted(core: Core) -> None:
    first, second = definition({"type": "object"}, "things"), definition({"type": "object"}, "others")
    second["spec"]["names"]["shortNames"] = first["spec"]["names"]["shortNames"] = ["same"]
    await served(core, first)
    await core.done("POST", DEFINITIONS, second)
    path = f"{DEFINITIONS}/{second['metadata']['name']}"

    async def accepted() -> bool:
        conditions = ((await core.done("GET", path)).get("status") or {}).get("conditions") or ()
        return any(each["type"] == "NamesAccepted" and each["status"] == "True" for each in conditions)

    await core.clock.sleep(1)
    assert not await accepted()
    await core.done("DELETE", f"{DEFINITIONS}/{first['metadata']['name']}")
    for _ in range(100):
        if await accepted():
            break
        await core.clock.sleep(0.1)
    assert await accepted()


PATHS = {
    "many": lambda at: f".spec.f{at}",
    "every item": lambda at: f".spec.list[*].f{at}",
    "items that match": lambda at: f'.spec.list[?(@.a=="f{at}")].a',
}


@pytest.mark.parametrize("shape", PATHS)
async def test_a_table_of_many_columns_holds_up_nobody(core: Core, shape: str) -> None:
    body = definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "tables")
    columns: list[Json] = []
    body["spec"]["versions"][0]["additionalPrinterColumns"] = columns
    while len(orjson.dumps(columns)) < BODY_BYTES * 9 // 10:
        for _ in range(100):
            at = len(columns)
            columns.append({"name": f"c{at}", "type": "string", "jsonPath": PATHS[shape](at)})
    turns = Turns()
    core.api.hand_work_to(Elsewhere(turns))
    path = "/apis/long.io/v1/tables"

    async def made() -> None:
        await core.done("POST", DEFINITIONS, body)
        for _ in range(1000):
            if (await core.respond("GET", path)).status == 200:
                return
            await core.clock.sleep(0.1)

    await turns.of(made())
    assert turns.most < LINES_MAX, turns.most
    items = [{"a": "x"}] * 2000
    for number in range(20):
        spec = {"list": items if shape != "many" else []}
        table = {"apiVersion": "long.io/v1", "kind": "Tables", "metadata": {"name": f"a{number}"}, "spec": spec}
        await core.done("POST", path, table)

    async def shown() -> int:
        answer = await core.respond("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        if answer.pieces is not None:
            for _ in answer.pieces:
                await core.clock.sleep(0)
        return answer.status

    assert await turns.of(shown()) == 200
    assert turns.most < LINES_MAX, turns.most


class Unwritten(list[int]):
    def __repr__(self) -> str:
        raise AssertionError("each column would write it again")


def test_a_filter_costs_its_items_and_its_own_path() -> None:
    items = [{"big": Unwritten([1]), "n": {"a": {"b": True}}, "at": 1}, {"big": "x", "n": {}, "at": 2}]
    found = [
        follow({"l": items}, steps_of(f".l[?(@{wanted})].at")) for wanted in ('.big=="x"', ".n.a.b==true", '.n=="{}"')
    ]
    assert found == [[2], [1], []]
    left = [1000]
    assert follow(items * 10, steps_of(f'[?(@{".n" * 50}=="x")]'), left) == []
    assert left[0] == 0
    assert follow(items * 10, steps_of('[?(@.=="x")]'), left) == [] and left[0] < 0


class _Recording(WorkHere):
    """Of what OpenAPI is made of. Ends the first request for the custom kinds."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.api.registry)
        self.made: list[tuple[str, ...]] = []
        self.late = True

    async def run(self, job: str, *given: Any) -> Any:
        if job == "open_api":
            self.made.append(given[1])
            if given[1][0] == "long.io" and self.late:
                self.late = False
                raise timeout("request did not complete")
        return self.now(job, *given)


async def test_what_was_made_of_a_document_is_kept(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "_kept", OrderedDict())
    core.api.hand_work_to(work := _Recording(core))

    async def serve(plural: str) -> None:
        await core.done("POST", DEFINITIONS, definition({"type": "object", "properties": {"a": TEXT}}, plural))
        await eventually(served, plural)

    async def served(plural: str) -> bool:
        return (await core.respond("GET", f"/apis/long.io/v1/{plural}")).status == 200

    async def eventually(done: Any, *given: Any) -> None:
        while not await done(*given):
            await core.clock.sleep(0.01)

    await serve("things")
    assert (await core.respond("GET", "/openapi/v2")).status == 504
    assert len(work.made) > 20
    before = list(work.made)
    whole = await core.done("GET", "/openapi/v2")
    assert work.made[len(before)] == before[-1] == ("long.io", "v1", "v2"), "what was made is not made again"
    assert len({*work.made}) == len(work.made) - 1 and "/apis/long.io/v1/things" in whole["paths"]
    work.made.clear()
    await serve("others")
    more = await core.done("GET", "/openapi/v2")
    assert work.made == [("long.io", "v1", "v2")] and "/apis/long.io/v1/others" in more["paths"]
    await core.done("GET", "/openapi/v2")
    assert len(work.made) == 1
