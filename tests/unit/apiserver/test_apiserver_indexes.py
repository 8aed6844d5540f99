"""Declared indexes through the API: made, listed, explained, dropped; asked unasked by lists, tables and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from api_core import PODS, TABLE, Core, config_map, names, node, pod

from minikube_py.api.kinds import core
from minikube_py.api.registry import REGISTRY
from minikube_py.api.selectors import parse_field_selector
from minikube_py.apiserver.auth import SCHEDULER
from minikube_py.apiserver.declared import Declarations
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.fields.builtin import NODES as NODES_FIELDS
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.index.declared import IndexSpec, dump
from minikube_py.index.reports import IndexReport
from minikube_py.mvcc.types import Event, KeyValue, RangeRequest

INDEXES = "/minikube-py/v1/indexes"
NODES = "/api/v1/nodes"
POOL = 'metadata.labels["pool"]'
REQUESTED = "requested.*=pods:metadata.namespace:pod_requests@2"


def fits(**more: Any) -> dict[str, Any]:
    return {"name": "fits", "on": "nodes", "fields": ["free.cpu,free.memory"], "structure": "max-tree"} | more


def pools(**more: Any) -> dict[str, Any]:
    return {"name": "pools", "on": "nodes", "fields": [POOL, 'rank=metadata.labels["rank"]:int']} | more


def labelled(name: str, cpu: str = "8", **labels: str) -> dict[str, Any]:
    made = node(name, cpu)
    made["metadata"]["labels"] = labels
    return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Core]:
    core = await Core(tmp_path).start()
    for each in (
        labelled("n0", "2", pool="fast", rank="1"),
        labelled("n1", "4", pool="fast", rank="10"),
        labelled("n2", "8", pool="slow", rank="2"),
        labelled("n3", "16", rank="many"),
    ):
        await core.done("POST", NODES, each)
    yield core
    await core.stop()


async def listed(core: Core, path: str, selector: str, more: str = "") -> list[str]:
    return names(await core.done("GET", f"{path}?fieldSelector={quote(selector)}{more}"))


async def ready(core: Core, name: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (item := await core.done("GET", f"{INDEXES}/{name}"))["status"]["state"] == "building":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return item


# --- life of an index -----------------------------------------------------------------------------------------------


async def test_made_looked_at_made_again_and_dropped(world: Core) -> None:
    assert (await world.done("GET", INDEXES))["items"] == []
    status, made = await world.ask("POST", INDEXES, fits(options={}, memoryLimit="64Mi"))
    assert status == 201
    assert (made["name"], made["on"], made["fields"]) == ("fits", "nodes", ["free.cpu", "free.memory"])
    assert made["memoryLimitBytes"] == 64 << 20
    assert made["typed"] == {
        "fields": ["free.cpu", "free.memory"],
        "kinds": {"free.cpu": "quantity", "free.memory": "quantity"},
        "sums": [],
    }
    item = await ready(world, "fits")
    assert (item["status"]["state"], item["status"]["rows"]) == ("ready", 4)
    assert [each["name"] for each in (await world.done("GET", INDEXES))["items"]] == ["fits"]
    assert (await world.ask("POST", INDEXES, fits(memoryLimit=64 << 20)))[0] == 200
    status, refused = await world.ask("POST", INDEXES, fits(structure="columns"))
    assert (status, refused["reason"]) == (409, "AlreadyExists")
    assert "index fits exists, on nodes over free.cpu, free.memory in max-tree; drop it first" in refused["message"]
    gone = await world.done("DELETE", f"{INDEXES}/fits")
    assert (gone["status"], gone["details"]) == ("Success", {"name": "fits", "kind": "indexes"})
    for method in ("GET", "DELETE"):
        status, refused = await world.ask(method, f"{INDEXES}/fits")
        assert (status, refused["reason"]) == (404, "NotFound")
        assert refused["message"] == "there is no index 'fits'; the indexes are: none"
    assert await listed(world, NODES, "free.cpu>=8") == ["n2", "n3"]


async def test_it_answers_and_counts(world: Core) -> None:
    await world.done("POST", INDEXES, fits())
    before = (await ready(world, "fits"))["status"]
    assert await listed(world, NODES, "free.cpu>=4,free.memory>=16Gi") == ["n1", "n2", "n3"]
    after = (await ready(world, "fits"))["status"]
    assert after["queries"] == before["queries"] + 1
    await explain(world, "free.cpu>=4,free.memory>=16Gi")
    tried = (await ready(world, "fits"))["status"]
    assert (tried["queries"], tried["hits"]) == (after["queries"], after["hits"]), "explaining is not asking"


async def test_what_only_an_administrator_may(world: Core) -> None:
    asked = (("GET", INDEXES), ("POST", INDEXES), ("DELETE", f"{INDEXES}/x"), ("GET", "/minikube-py/v1/explain"))
    for method, path in asked:
        status, refused = await world.ask(method, path, user=SCHEDULER)
        assert (status, refused["reason"]) == (403, "Forbidden")


async def test_paths_and_methods_that_are_not_there(world: Core) -> None:
    for method, path, code in (
        ("PUT", INDEXES, 405), ("POST", f"{INDEXES}/fits", 405), ("POST", "/minikube-py/v1/explain", 405),
        ("GET", "/minikube-py/v1/nothing", 404), ("GET", f"{INDEXES}/a/b", 404), ("GET", "/minikube-py/v2/index", 404),
    ):  # fmt: skip
        assert (await world.ask(method, path))[0] == code, path
    assert INDEXES in (await world.done("GET", "/"))["paths"]


REFUSED: list[tuple[Any, str]] = [
    (b"{", "the declaration of an index is not JSON"),
    ([], "must be a JSON object"),
    (fits(where="x"), "has no 'where'; it has name, on, fields, sums, structure, options, memoryLimit"),
    (fits(on="nods"), "on: 'nods' is not a stored resource; the resources are apiservices, "),
    (fits(on=["nodes"]), "is not a stored resource"),
    (fits(name="Fits!"), "index name 'Fits!': use up to 63 lower-case letters"),
    (fits(name=1), "name: a text is needed"),
    (fits(fields="free.cpu"), "fields: a list of texts is needed"),
    (fits(fields=[]), "an index needs a field"),
    (fits(fields=["free.*"]), "that is a family of fields: name its members, as free.cpu"),
    (fits(fields=["spec.podCIRD"]), "no spec.podCIRD, did you mean spec.podCIDR?; declared on nodes: free.*"),
    (fits(fields=["status.allocatable"]), "status.allocatable is a map, which cannot be compared; name a part of it"),
    (fits(fields=["metadata.creationTimestamp:int"]), "its value (time) does not read as int, only as"),
    (fits(fields=["free.cpu:string"]), "field free.cpu is declared on nodes as quantity: leave :string away"),
    (fits(sums=["x=pods:spec.nodName:count@1"], fields=["x"]), "pods have no spec.nodName, did you mean"),
    (fits(on="services", sums=["x=pods:spec.nodeName:count@1"]), "sums: services are namespaced"),
    (fits(on="secrets", fields=['type=metadata.labels["t"]']), "secrets are selected by another field of that name"),
    (fits(structure="btree"), "no structure is named 'btree'; there are scan, columns"),
    (fits(options={"no": 1}), "structure max-tree has no option 'no'"),
    (fits(options=[1]), "options: an object of names and values is needed"),
    (fits(options={"visits": 1.5}), "options: visits must be a whole number or a text, not 1.5"),
    (fits(memoryLimit="64Mb"), "memoryLimit: '64Mb' is not an amount of bytes, such as 64Mi"),
    (fits(memoryLimit=True), "memoryLimit: True is not an amount of bytes"),
    (fits(memoryLimit=1), "a memory limit of 1 bytes; it must be from"),
    (b'{"name":"' + b"x" * (300 << 10) + b'"}', "has at most 262144 bytes, this one"),
]


async def test_bad_input_is_told_what_is_wrong_and_what_would_be_right(world: Core) -> None:
    for body, message in REFUSED:
        status, refused = await world.ask("POST", INDEXES, body)
        assert (status, refused["reason"]) == (400, "BadRequest"), (body, refused)
        assert message in refused["message"], (message, refused["message"])
    assert (await world.done("GET", INDEXES))["items"] == []


async def test_a_field_that_another_index_means_otherwise(world: Core) -> None:
    await world.done("POST", INDEXES, pools())
    status, refused = await world.ask("POST", INDEXES, pools(name="other", fields=['rank=metadata.labels["r"]']))
    assert status == 400
    there = 'rank is declared on nodes already, as rank=metadata.labels["rank"]:int: choose another name'
    assert there in refused["message"]
    # What is meant alike is shared, and outlives the one that was first.
    await world.done("POST", INDEXES, pools(name="both", fields=["rank", "free.cpu"], structure="columns"))
    await world.done("DELETE", f"{INDEXES}/pools")
    assert await listed(world, NODES, "rank>=2") == ["n1", "n2"]
    status, refused = await world.ask("GET", f"{NODES}?fieldSelector={quote(POOL + '=fast')}")
    assert (status, refused["message"]) == (400, f"field label not supported: {POOL}")


# --- asked unasked --------------------------------------------------------------------------------------------------

ASKED = [
    (f"{POOL}=fast", ["n0", "n1"]),
    (f"{POOL}!=fast", ["n2", "n3"]),
    (f"{POOL}>=g", ["n2"]),
    (f"{POOL} in (slow,none)", ["n2"]),
    (POOL, ["n0", "n1", "n2"]),
    ("metadata.labels.pool=slow", ["n2"]),
    ("rank>=2", ["n1", "n2"]),
    ("rank<2", ["n0"]),
    ("rank=010", ["n1"]),
    (f"{POOL}=fast,rank>1", ["n1"]),
    (f"{POOL}=fast,free.cpu>=4", ["n1"]),
    (f"{POOL}=fast,metadata.name!=n1", ["n0"]),
    (f"metadata.name=n1,{POOL}=fast", ["n1"]),
    (f"metadata.name=n2,{POOL}=fast", []),
    ("rank>5,rank<3", []),
    ("spec.unschedulable=false,rank=2", ["n2"]),
]


async def test_lists_by_what_an_index_declares_before_and_after_it_is_built(world: Core) -> None:
    for selector, _ in ASKED[:1]:
        assert (await world.ask("GET", f"{NODES}?fieldSelector={quote(selector)}"))[0] == 400
    await world.done("POST", INDEXES, pools())
    for selector, wanted in ASKED:
        assert await listed(world, NODES, selector) == wanted, selector
    await ready(world, "pools")
    for selector, wanted in ASKED:
        assert await listed(world, NODES, selector) == wanted, selector
        assert await listed(world, NODES, selector, "&resourceVersion=0") == wanted, selector
        pages = await world.done("GET", f"{NODES}?fieldSelector={quote(selector)}&limit=1")
        found = names(pages)
        while token := pages["metadata"].get("continue"):
            pages = await world.done("GET", f"{NODES}?fieldSelector={quote(selector)}&limit=1&continue={token}")
            found += names(pages)
        assert found == wanted, selector


async def test_the_past_is_asked_as_well(world: Core) -> None:
    then = (await world.done("GET", NODES))["metadata"]["resourceVersion"]
    await world.done("POST", INDEXES, pools())
    await ready(world, "pools")
    await world.done("DELETE", f"{NODES}/n0")
    for at, wanted in ((f"&resourceVersion={then}&resourceVersionMatch=Exact", ["n0", "n1"]), ("", ["n1"])):
        assert await listed(world, NODES, f"{POOL}=fast", at) == wanted


async def test_times_of_objects(world: Core) -> None:
    await world.done("POST", INDEXES, fits(name="ages", fields=["metadata.creationTimestamp"]))
    assert await listed(world, NODES, "metadata.creationTimestamp>2020-01-01T00:00:00Z") == ["n0", "n1", "n2", "n3"]
    assert await listed(world, NODES, "metadata.creationTimestamp<2020-01-01T00:00:00Z") == []
    made = (await world.done("GET", f"{NODES}/n0"))["metadata"]["creationTimestamp"]
    assert "n0" in await listed(world, NODES, f"metadata.creationTimestamp={made}")
    refused = (await world.ask("GET", f"{NODES}?fieldSelector=metadata.creationTimestamp<now"))[1]
    assert "must be a time, as 2026-01-31T12:00:00Z" in refused["message"]


async def test_a_table_shows_what_was_asked_for(world: Core) -> None:
    fields = [POOL, "rank=metadata.labels.rank:int", "metadata.creationTimestamp"]
    await world.done("POST", INDEXES, pools(fields=fields))
    made = (await world.done("GET", f"{NODES}/n1"))["metadata"]["creationTimestamp"]
    selector = quote(f"{POOL}=fast,rank>1,metadata.creationTimestamp>2020-01-01T00:00:00Z")
    for _ in range(2):
        for more in ("", "&limit=1"):
            _, table = await world.ask("GET", f"{NODES}?fieldSelector={selector}{more}", accept=TABLE)
            heads = [each["name"] for each in table["columnDefinitions"]]
            assert len(table["rows"]) == 1
            cells = dict(zip(heads, table["rows"][0]["cells"]))
            assert (cells["Name"], cells[POOL], cells["rank"], cells["free.cpu"]) == ("n1", "fast", "10", "4")
            assert cells["metadata.creationTimestamp"] == made
        _, one = await world.ask("GET", f"{NODES}?fieldSelector=rank=2", accept=TABLE)
        assert [row["cells"][0] for row in one["rows"]] == ["n2"]
        _, none = await world.ask("GET", f"{NODES}?fieldSelector=rank=3", accept=TABLE)
        assert none["rows"] == []
        # Now by the cache, then by the index.
        await ready(world, "pools")


async def test_a_resource_without_fields_of_its_own(world: Core) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    for name, size in (("a", "1"), ("b", "20"), ("c", "x")):
        await world.done("POST", maps, config_map(name, {"size": size}, limit=size))
    fields = ["data.limit:int", "size=metadata.labels.size"]
    await world.done("POST", INDEXES, fits(name="sizes", on="configmaps", fields=fields))
    for _ in range(2):
        assert await listed(world, maps, "data.limit>=2") == ["b"]
        assert await listed(world, "/api/v1/configmaps", "size>1") == ["b", "c"]
        assert await listed(world, maps, "data.limit") == ["a", "b"]
        await ready(world, "sizes")
    watch = await world.watch(f"{maps}?fieldSelector={quote('data.limit>=2')}")
    assert await watch.named(1) == [("ADDED", "b")]
    await world.done("PATCH", f"{maps}/a", {"data": {"limit": "7"}}, "application/merge-patch+json")
    await world.done("PATCH", f"{maps}/b", {"data": {"limit": "0"}}, "application/merge-patch+json")
    assert await watch.named(2) == [("ADDED", "a"), ("DELETED", "b")]
    watch.close()
    await world.done("DELETE", f"{maps}?fieldSelector={quote('data.limit>=2')}")
    assert await listed(world, maps, "data.limit") == ["b"]


async def test_sums_over_those_that_refer_to_an_object(world: Core) -> None:
    spaces = "/api/v1/namespaces"
    await world.done("POST", spaces, {"metadata": {"name": "busy"}})
    sums = [REQUESTED, "n=pods:metadata.namespace:count@1"]
    body = fits(name="quota", on="namespaces", fields=["requested.cpu,n"], sums=sums)
    made = await world.done("POST", INDEXES, body)
    assert made["typed"]["sums"] == sums
    assert await listed(world, spaces, "requested.cpu>=1") == []
    watch = await world.watch(f"{spaces}?fieldSelector={quote('requested.cpu>=1')}")
    for name in ("a", "b"):
        await world.done("POST", PODS.replace("default", "busy"), pod(name, cpu="600m"))
    assert await watch.named(1) == [("ADDED", "busy")]
    for _ in range(2):
        assert await listed(world, spaces, "requested.cpu>=1200m") == ["busy"]
        assert await listed(world, spaces, "requested.cpu>1200m") == []
        assert await listed(world, spaces, "n=2") == ["busy"]
        assert "default" in await listed(world, spaces, "n=0")
        await ready(world, "quota")
    await world.done("DELETE", f"{PODS.replace('default', 'busy')}/a?gracePeriodSeconds=0")
    assert await watch.named(1) == [("DELETED", "busy")]
    watch.close()
    assert await listed(world, spaces, "n=1") == ["busy"]


async def test_watches_on_what_an_object_says_itself(world: Core) -> None:
    await world.done("POST", INDEXES, pools())
    watch = await world.watch(f"{NODES}?fieldSelector={quote(f'{POOL}=fast,rank>=10')}")
    assert await watch.named(1) == [("ADDED", "n1")]
    patch = {"metadata": {"labels": {"rank": "11"}}}
    await world.done("PATCH", f"{NODES}/n0", patch, "application/merge-patch+json")
    await world.done("PATCH", f"{NODES}/n1", patch, "application/merge-patch+json")
    await world.done("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"pool": None}}}, "application/merge-patch+json")
    assert await watch.named(3) == [("ADDED", "n0"), ("MODIFIED", "n1"), ("DELETED", "n1")]
    # The index goes, and a watch that is open keeps its meaning.
    await world.done("DELETE", f"{INDEXES}/pools")
    await world.done("DELETE", f"{NODES}/n0")
    assert await watch.named(1) == [("DELETED", "n0")]
    watch.close()


async def redeclared(core: Core) -> tuple[int, int]:
    """`rank` and `n` come to mean something else; revisions before and after."""
    label, annotation = ([f'rank=metadata.{kind}["rank"]:int', "n"] for kind in ("labels", "annotations"))
    everything, of_owners = (["n=pods:spec.nodeName:count@1"], ["n=pods:metadata.namespace:count@1"])
    await core.done("POST", INDEXES, pools(fields=label, sums=everything))
    before = await revision_of(core)
    await core.done("DELETE", f"{INDEXES}/pools")
    await core.done("POST", INDEXES, pools(fields=annotation, sums=of_owners))
    return before, await revision_of(core)


async def revision_of(core: Core) -> int:
    return int((await core.done("GET", f"{NODES}?limit=1"))["metadata"]["resourceVersion"])


@pytest.mark.parametrize("selector", ["rank>=2", "n=0"], ids=["by the cache", "by the store"])
async def test_a_watch_is_not_resumed_where_its_fields_meant_something_else(world: Core, selector: str) -> None:
    """Who goes on from what it was shown would never hear of what left the set by the declaration."""
    before, after = await redeclared(world)
    watch = await world.watch(f"{NODES}?fieldSelector={quote(selector)}&resourceVersion={before}")
    [(kind, told)] = await watch.take(1)
    assert (kind, told["code"], told["reason"]) == ("ERROR", 410, "Expired")
    assert "declared again" in told["message"]
    watch = await world.watch(f"{NODES}?fieldSelector={quote(selector)}&resourceVersion={after}")
    moved = {"metadata": {"annotations": {"rank": "5"}}}
    await world.done("PATCH", f"{NODES}/n0", moved, "application/merge-patch+json")
    assert await watch.named(1) == [("ADDED" if "rank" in selector else "MODIFIED", "n0")]
    watch.close()


async def test_who_asks_in_the_same_words_for_something_else_is_not_shown_the_same(world: Core) -> None:
    await world.done("POST", INDEXES, pools())
    asked = f"{NODES}?fieldSelector={quote('rank>=2')}"
    old = await world.watch(asked)
    assert sorted(await old.named(2)) == [("ADDED", "n1"), ("ADDED", "n2")]
    await world.done("DELETE", f"{INDEXES}/pools")
    await world.done("POST", INDEXES, pools(fields=['rank=metadata.annotations["rank"]:int']))
    new = await world.watch(asked)
    await world.done("PATCH", f"{NODES}/n3", {"metadata": {"labels": {"rank": "3"}}}, "application/merge-patch+json")
    assert await old.named(1) == [("ADDED", "n3")]
    moved = {"metadata": {"annotations": {"rank": "7"}}}
    await world.done("PATCH", f"{NODES}/n0", moved, "application/merge-patch+json")
    assert await new.named(1) == [("ADDED", "n0")]
    for watch in (old, new):
        watch.close()


@pytest.mark.parametrize("selector", ["rank>=2", "n=0"], ids=["by the cache", "by the store"])
async def test_a_list_does_not_go_on_with_fields_that_mean_something_else(world: Core, selector: str) -> None:
    fields = ['rank=metadata.labels["rank"]:int', "n"]
    await world.done("POST", INDEXES, pools(fields=fields, sums=["n=pods:spec.nodeName:count@1"]))
    path = f"{NODES}?limit=1&fieldSelector={quote(selector)}"
    first = await world.done("GET", path)
    token = first["metadata"]["continue"]
    await world.done("DELETE", f"{INDEXES}/pools")
    other = ['rank=metadata.annotations["rank"]:int', "n"]
    await world.done("POST", INDEXES, pools(fields=other, sums=["n=pods:metadata.namespace:count@1"]))
    status, told = await world.ask("GET", f"{path}&continue={quote(token)}")
    assert (status, told["reason"]) == (410, "Expired")
    going_on = await world.done("GET", f"{path}&continue={quote(told['metadata']['continue'])}")
    assert names(going_on) == (["n1"] if selector == "n=0" else [])


async def test_too_many_comparisons_and_values_that_do_not_read(world: Core) -> None:
    await world.done("POST", INDEXES, pools())
    for selector, message in (
        (",".join(["rank>1"] * 65), "field selector compares 65 times, limit 64"),
        ("rank>ten", 'rank: "ten": must be a 64-bit integer'),
        ("rnak>=1", "field label not supported: rnak>"),
    ):
        status, refused = await world.ask("GET", f"{NODES}?fieldSelector={quote(selector)}")
        assert (status, message in refused["message"]) == (400, True), refused


def standing(spec: IndexSpec, state: Literal["building", "ready"]) -> list[IndexReport]:
    return [IndexReport(spec, state, 1.0, 4, 0, 0.0, 0, 0)]


def test_lists_ask_the_store_once_an_index_is_known_to_be_complete() -> None:
    """Until then it would have to decode every object for a field that the API server's cache has."""
    rank = FieldSpec("rank", "int", "path@1", {"path": 'metadata.labels["rank"]'})
    spec = IndexSpec("ranks", "nodes", ("rank",), "columns", declares=(rank,))
    declared = Declarations(REGISTRY.kinds)

    def told() -> tuple[str, bool, bool]:
        selector = parse_field_selector(core.NODES, "rank>1", declared.of(core.NODES))
        return str(selector.where), selector.has_index, declared.building

    declared.load([KeyValue(b"/minikube-py/indexes/ranks", dump(spec), 0, 1, 1, 0)])
    for state, wanted in (("building", (False, True)), ("ready", (True, False)), ("building", (True, False))):
        declared.told(standing(spec, state))
        assert told() == ("rank>1", *wanted)
    again = replace(spec, structure="max-tree")
    for kind, key_value, wanted in (
        ("PUT", KeyValue(b"/minikube-py/indexes/ranks", dump(spec), 0, 2, 1, 0), (True, False)),
        ("PUT", KeyValue(b"/minikube-py/indexes/ranks", dump(again), 0, 3, 2, 0), (False, True)),
    ):
        declared.apply([Event(kind, key_value, None)])
        declared.told(standing(spec, "building"))
        assert told() == ("rank>1", *wanted)
    declared.apply([Event("DELETE", KeyValue(b"/minikube-py/indexes/ranks", b"", 0, 4, 0, 0), None)])
    assert declared.of(core.NODES).field_set == NODES_FIELDS
    assert not declared.building


def test_a_kept_row_is_that_of_the_fields_asked_for() -> None:
    value = b'{"metadata":{"name":"n","labels":{"pool":"fast","rank":"3"}}}'
    entry = Entry(core.NODES, KeyValue(b"/registry/nodes/n", value, 1, 1, 1, 0))
    sets = [
        FieldSet("nodes", b"/registry/nodes/", (FieldSpec(name, "string", "path@1", {"path": path}),))
        for name, path in (("pool", "metadata.labels.pool"), ("rank", "metadata.labels.rank"))
    ]
    for _ in range(2):
        assert [dict(entry.row_by(each)) for each in sets] == [{"pool": "fast"}, {"rank": "3"}]
        assert entry.row_by(None) == {}
        entry.forget()


def test_a_declaration_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    declared = Declarations(REGISTRY.kinds)
    later = FieldSpec("rank", "int", "path@9", {"path": "spec.rank"})
    spec = IndexSpec("ranks", "nodes", ("rank",), "columns", declares=(later,))
    for value in (b"{", b'{"name":"ranks","of":"later"}', dump(spec)):
        declared.load([KeyValue(b"/minikube-py/indexes/ranks", value, 0, 1, 1, 0)])
        assert declared.of(core.NODES).field_set == NODES_FIELDS
    assert len([record for record in caplog.records if "skipped" in record.message]) == 3


# --- explain --------------------------------------------------------------------------------------------------------


async def explain(core: Core, where: str, resource: str = "nodes", limit: str = "10") -> tuple[int, Any]:
    """`limit` may have further options behind it."""
    return await core.ask("GET", f"/minikube-py/v1/explain?resource={resource}&where={quote(where)}&limit={limit}")


async def test_explained(world: Core) -> None:
    await world.done("POST", INDEXES, fits())
    await world.done("POST", INDEXES, fits(name="half", fields=["free.cpu"], structure="columns"))
    for name in ("fits", "half"):
        await ready(world, name)
    status, answer = await explain(world, "free.cpu>=4,free.memory>=16Gi")
    assert status == 200
    assert (answer["where"], answer["limit"], answer["rows"]) == ("free.cpu>=4,free.memory>=16Gi", 10, 4)
    assert answer["listsAsk"] == "store"
    assert answer["chosen"]["found"] == 3 and answer["chosen"]["takenUs"] >= 0
    ways = {each["name"]: each for each in (answer["chosen"], *answer["others"])}
    assert {"", "fits", "half"} <= set(ways)
    assert {each["found"] for each in ways.values() if each["takenUs"] >= 0} == {3}
    assert [each["field"] for each in answer["comparisons"]] == ["free.cpu", "free.memory"]
    for order, found in (("KEY", 1), ("ANY", 1)):
        status, answer = await explain(world, "free.cpu>=4", limit=f"1&order={order}")
        assert (status, answer["order"], answer["chosen"]["found"]) == (200, order, found)


async def test_explained_without_an_index(world: Core) -> None:
    status, answer = await explain(world, "free.cpu>=4,metadata.name!=n1", limit="0")
    assert (status, answer["chosen"]["name"], answer["chosen"]["found"]) == (200, "", 2)
    status, answer = await explain(world, "spec.unschedulable=false")
    assert (status, answer["listsAsk"]) == (200, "watch cache")


async def test_what_cannot_be_explained(world: Core) -> None:
    for resource, where, limit, message in (
        ("nods", "free.cpu>1", "1", "resource: 'nods' is not a stored resource"),
        ("nodes", "", "1", "where: '' compares no declared field of nodes; there are free.*, allocatable.*"),
        ("services", "spec.type=NodePort", "1", "none is: minikube-py index create declares some"),
        ("nodes", "free.cpu>=x", "1", "quantities must match"),
        ("nodes", "fre.cpu>=1", "1", "field label not supported: fre.cpu>"),
        ("nodes", "free.cpu>=1", "-1", "limit: -1 is below 0; 0 is for all"),
        ("nodes", "free.cpu>=1", "ten", "invalid syntax"),
        ("nodes", "free.cpu>=1", "1&order=best", "order: 'best' is neither KEY, the first by name, nor ANY"),
    ):
        status, refused = await explain(world, where, resource, limit)
        assert (status, refused["reason"]) == (400, "BadRequest"), refused
        assert message in refused["message"], refused


# --- several servers, and starts ------------------------------------------------------------------------------------


async def test_another_server_and_one_that_starts_later_know_of_it(world: Core) -> None:
    beside = world.server()
    await beside.start()
    first, world.api = world.api, beside
    await world.done("POST", INDEXES, pools())
    later = world.server()
    await later.start()
    for server in (first, beside, later):
        world.api = server
        assert await listed(world, NODES, f"{POOL}=fast") == ["n0", "n1"]
        assert (await world.done("GET", NODES + "/n0"))["metadata"]["name"] == "n0"
    world.api = first
    await world.done("DELETE", f"{INDEXES}/pools")
    for server in (beside, later):
        world.api = server
        assert (await world.ask("GET", f"{NODES}?fieldSelector={quote(POOL)}=fast"))[0] == 400
        await server.stop()
    world.api = first


async def test_the_declaration_stands_in_the_store_as_a_key(world: Core) -> None:
    await world.done("POST", INDEXES, pools())
    result = await world.member.storage.range(RangeRequest(b"/minikube-py/indexes/pools"))
    assert len(result.kvs) == 1
    assert world.api.declared.specs["pools"].fields == (POOL, "rank")


async def test_after_a_restart_it_is_there_and_answers(tmp_path: Path) -> None:
    core = await Core(tmp_path).start()
    await core.done("POST", NODES, labelled("n0", pool="fast", rank="3"))
    await core.done("POST", INDEXES, pools())
    await core.stop()
    again = await Core(tmp_path).start()
    assert await listed(again, NODES, f"{POOL}=fast,rank>2,free.cpu>=8") == ["n0"]
    assert (await ready(again, "pools"))["status"]["state"] == "ready"
    await again.done("POST", NODES, labelled("n1", pool="fast", rank="4"))
    assert await listed(again, NODES, f"{POOL}=fast,rank>2") == ["n0", "n1"]
    await again.stop()
