"""Watches as informers use them: where they start, what they see, how they end; and that they share bytes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from api_core import MAPS, MERGE, PARTIAL, PODS, TABLE, Core, Events, config_map, names, node, pod
from patience import patience

from minikube_py.apiserver import inprocess
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Request, Response


async def version(core: Core) -> str:
    return str((await core.done("GET", MAPS))["metadata"]["resourceVersion"])


async def test_a_watch_without_a_version_begins_with_the_state(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a"))
    for start in ("", "?resourceVersion=0"):
        events = await core.watch(MAPS + start)
        await core.done("POST", MAPS, config_map("b"))
        assert await events.named(2) == [("ADDED", "a"), ("ADDED", "b")]
        await core.done("DELETE", f"{MAPS}/b")
        assert await events.named(1) == [("DELETED", "b")]
        events.close()


async def test_a_watch_from_a_version_sees_what_came_strictly_after(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a"))
    then = await version(core)
    await core.done("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, MERGE)
    await core.done("POST", MAPS, config_map("b"))
    await core.done("DELETE", f"{MAPS}/a")
    events = await core.watch(f"{MAPS}?resourceVersion={then}")
    await core.done("POST", MAPS, config_map("c"))
    seen = await events.take(4)
    assert [(kind, obj["metadata"]["name"]) for kind, obj in seen] == [
        ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("ADDED", "c"),
    ]  # fmt: skip
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in seen]
    assert versions == sorted(versions) and versions[0] > int(then)
    assert seen[2][1]["data"] == {"x": "1"} and seen[0][1]["kind"] == "ConfigMap"


async def test_a_watch_from_a_version_to_come_waits_for_it(core: Core) -> None:
    events = await core.watch(f"{MAPS}?resourceVersion={int(await version(core)) + 1}")
    await core.done("POST", MAPS, config_map("a"))
    await core.done("POST", MAPS, config_map("b"))
    assert await events.named(1) == [("ADDED", "b")]


async def test_too_old_a_version_is_told_in_the_stream(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(history_events_max=3)).start()
    then = await version(core)
    for name in "abcde":
        await core.done("POST", MAPS, config_map(name))
    events = await core.watch(f"{MAPS}?resourceVersion={then}")
    ((kind, status),) = await events.rest()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {then} (")
    await core.stop()


async def test_a_version_that_may_be_of_a_lost_history_is_refused(core: Core) -> None:
    """After a restore: those to come, and once the store has passed them, all that it lost."""
    then = int(await version(core))
    core.api.cache.lost_revision = then + 2
    current = await core.watch(f"{MAPS}?resourceVersion={then}")
    lost = await core.watch(f"{MAPS}?resourceVersion={then + 2}")
    assert [(kind, obj["code"]) for kind, obj in await lost.rest()] == [("ERROR", 410)]
    for name in "abc":
        await core.done("POST", MAPS, config_map(name))
    assert await current.named(3) == [("ADDED", name) for name in "abc"]
    for known, first in ((then, "ERROR"), (then + 2, "ERROR"), (then + 3, "ADDED")):
        seen = await core.watch(f"{MAPS}?resourceVersion={known}")
        await core.done("POST", MAPS, config_map(f"new-{known}"))
        assert [kind for kind, _ in await seen.take(1)] == [first]
    whole = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    seen = await core.watch(f"{MAPS}?{whole}&resourceVersion={then + 2}")
    assert [kind for kind, _ in await seen.take(1)] == ["ADDED"]


async def test_selectors_turn_changes_into_arrivals_and_departures(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a", {"team": "red"}))
    events = await core.watch(f"{MAPS}?labelSelector=team%3Dred&resourceVersion={await version(core)}")
    blue = await core.done("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"team": "blue"}}}, MERGE)
    await core.done("PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, MERGE)
    await core.done("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"team": "red"}}}, MERGE)
    await core.done("PATCH", f"{MAPS}/a", {"data": {"x": "2"}}, MERGE)
    await core.done("DELETE", f"{MAPS}/a")
    seen = await events.take(4)
    assert [kind for kind, _ in seen] == ["DELETED", "ADDED", "MODIFIED", "DELETED"]
    left = seen[0][1]["metadata"]
    assert left["labels"] == {"team": "red"} and left["resourceVersion"] == blue["metadata"]["resourceVersion"]


async def test_fields_namespaces_and_names(core: Core) -> None:
    await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    bound = await core.watch("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")
    unbound = await core.watch("/api/v1/pods?fieldSelector=spec.nodeName%3D")
    everywhere = await core.watch("/api/v1/pods")
    other = await core.watch("/api/v1/namespaces/other/pods")
    named = await core.watch(f"{PODS}?fieldSelector=metadata.name%3Dp")
    older = await core.watch("/api/v1/watch/namespaces/default/pods/p")
    await core.done("POST", PODS, pod("p"))
    await core.done("POST", "/api/v1/namespaces/other/pods", pod("q"))
    await core.ask("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n1"}})
    assert await bound.named(1) == [("ADDED", "p")]
    assert await unbound.named(3) == [("ADDED", "p"), ("ADDED", "q"), ("DELETED", "p")]
    assert await everywhere.named(3) == [("ADDED", "p"), ("ADDED", "q"), ("MODIFIED", "p")]
    assert await other.named(1) == [("ADDED", "q")]
    assert await named.named(2) == await older.named(2) == [("ADDED", "p"), ("MODIFIED", "p")]


async def test_groups_are_forgotten_with_their_last_stream(core: Core) -> None:
    paths = [PODS, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", f"{PODS}?fieldSelector=metadata.name%3Dp"]
    for events in [await core.watch(path) for path in paths]:
        events.close()
    broadcaster = core.api.watching.broadcasters[next(r for r in core.api.cache.caches if r.plural == "pods")]
    held = (broadcaster._groups, broadcaster._anywhere, broadcaster._by_name, broadcaster._by_node, broadcaster._by_namespace)  # noqa: E501
    assert not any(held) and broadcaster.streams == 0


async def test_watch_list(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = await core.watch(f"{MAPS}?{query}")
    (added, bookmark) = await events.take(2)
    assert added[0] == "ADDED" and bookmark[0] == "BOOKMARK"
    assert bookmark[1]["metadata"] == {
        "resourceVersion": await version(core), "annotations": {"k8s.io/initial-events-end": "true"},
    }  # fmt: skip
    await core.done("POST", MAPS, config_map("b"))
    assert await events.named(1) == [("ADDED", "b")]


BAD_WATCHES = {
    "initial events without match": ("sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch"),  # noqa: E501
    "match without initial events": ("resourceVersionMatch=NotOlderThan", "is forbidden for watch unless sendInitialEvents"),  # noqa: E501
    "exact": ("resourceVersionMatch=Exact&sendInitialEvents=true&resourceVersion=1", 'supported values: "NotOlderThan"'),  # noqa: E501
    "continue": ("continue=x", "resourceVersionMatch is forbidden when continue is provided"),
    "version": ("resourceVersion=x", "invalid resource version"),
    "labels": ("labelSelector=a%20b", "unable to parse requirement"),
}


@pytest.mark.parametrize("case", BAD_WATCHES.values(), ids=BAD_WATCHES)
async def test_bad_watches(core: Core, case: tuple[str, str]) -> None:
    query, message = case
    status, answer = await core.ask("GET", f"{MAPS}?watch=true&{query}")
    assert status in (400, 422) and message in answer["message"]


async def test_a_watch_ends_at_its_timeout(core: Core) -> None:
    events = await core.watch(f"{MAPS}?timeoutSeconds=1")
    assert await events.rest() == []
    assert core.api.watching.streams() == 0


async def test_bookmarks_tell_how_far_the_server_is(core: Core) -> None:
    events = await core.watch(f"{MAPS}?allowWatchBookmarks=true&resourceVersion={await version(core)}")
    without = await core.watch(MAPS)
    await core.done("POST", PODS, pod("p"))
    core.api.watching.bookmark_all()
    ((kind, obj),) = await events.take(1)
    assert kind == "BOOKMARK" and obj["metadata"]["resourceVersion"] == await version(core)
    await core.done("POST", MAPS, config_map("a"))
    assert await without.named(1) == [("ADDED", "a")]


async def test_forms_of_events(core: Core) -> None:
    table = await core.watch(MAPS, accept=TABLE)
    partial = await core.watch(MAPS, accept=PARTIAL)
    await core.done("POST", MAPS, config_map("a", x="1"))
    await core.done("PATCH", f"{MAPS}/a", {"data": {"y": "1"}}, MERGE)
    (_, first), (_, second) = await table.take(2)
    assert [c["name"] for c in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None and second["rows"][0]["cells"][:2] == ["a", 2]
    (_, metadata), _ = await partial.take(2)
    assert metadata["kind"] == "PartialObjectMetadata" and "data" not in metadata


async def test_a_slow_watcher_is_cut_off_alone(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(watcher_queue_events=5)).start()
    slow, quick = await core.watch(MAPS), await core.watch(MAPS)
    cut: list[bool] = []
    slow.stream.on_cut = lambda: cut.append(True)
    for i in range(8):
        await core.done("POST", MAPS, config_map(f"m{i}"))
        assert await quick.named(1) == [("ADDED", f"m{i}")]
    assert cut == [True]
    ((kind, status),) = await slow.rest()
    assert (kind, status["code"]) == ("ERROR", 429) and "limits are 5 events" in status["message"]
    assert core.api.watching.streams() == 1
    await core.stop()


async def test_the_number_of_watchers_is_limited(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(watchers_max=2)).start()
    open_ones = [await core.watch(MAPS) for _ in range(2)]
    status, answer = await core.ask("GET", f"{MAPS}?watch=true")
    assert status == 429 and "the limit is 2" in answer["message"]
    open_ones[0].close()
    await core.watch(MAPS)
    await core.stop()


async def test_all_watchers_of_a_form_share_the_same_bytes(core: Core) -> None:
    transport = InProcessTransport(core.api)
    streams = [transport.watch(MAPS), transport.watch(MAPS), transport.watch(MAPS, {"x": "y"})]
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    while core.api.watching.streams() < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await core.done("POST", MAPS, config_map("a"))
    first, second, third = await asyncio.gather(*waiting)
    assert first is second and first[0].object is third[0].object
    await transport.close()
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]


async def test_nobody_changes_what_is_shared(core: Core) -> None:
    """Every kind of request, with every held value's hash taken before and looked at after."""
    for i in range(3):
        await core.done("POST", PODS, pod(f"p{i}", labels={"a": str(i)}))
        await core.done("POST", MAPS, config_map(f"m{i}", {"a": str(i)}, x="1"))
        await core.done("POST", "/api/v1/nodes", node(f"n{i}"))
    entries = [entry for cache in core.api.cache.caches.values() for entry in cache.entries.values()]
    labels = [(dict(entry.labels), dict(entry.fields), dict(entry.row)) for entry in entries]
    hashes = [hashlib.sha256(entry.value).digest() for entry in entries]
    watching = [await core.watch("/api/v1/pods", accept) for accept in (TABLE, PARTIAL, "application/json")]
    for accept in (TABLE, "application/json"):
        for path in ("/api/v1/pods?labelSelector=a", "/api/v1/nodes", f"{MAPS}?limit=1", f"{PODS}/p0"):
            await core.ask("GET", path, accept=accept)
    await core.done("PATCH", f"{PODS}/p0", {"metadata": {"labels": {"z": "y"}}}, MERGE)
    await core.done("PATCH", f"{PODS}/p0/status", {"status": {"phase": "Running"}}, MERGE)
    await core.ask("POST", f"{PODS}/p1/binding", {"metadata": {"name": "p1"}, "target": {"name": "n1"}})
    await core.ask("POST", f"{PODS}/p1/eviction", {"metadata": {"name": "p1"}})
    await core.done("PUT", f"{MAPS}/m0", config_map("m0", y="2"))
    await core.done("DELETE", f"{PODS}/p2")
    for events in watching:
        await events.take(4)
    assert hashes == [hashlib.sha256(entry.value).digest() for entry in entries]
    assert labels == [(dict(entry.labels), dict(entry.fields), dict(entry.row)) for entry in entries]
    stored = await core.member.storage.get(b"/registry/pods/default/p0")
    cached = core.api.cache.find(b"/registry/pods/default/p0").entries[b"/registry/pods/default/p0"]  # type: ignore[union-attr]
    assert stored[0] is not None and cached.value is stored[0].value


# --- watches on a sum -----------------------------------------------------------------------------------------------

FREE = f"/api/v1/nodes?allowWatchBookmarks=true&fieldSelector={quote('free.cpu>=4')}"


async def changed(events: Events) -> list[tuple[str, str]]:
    """The next events up to a bookmark, and that bookmark's version."""
    found = []
    while True:
        (kind, obj), = await events.take(1)
        found.append((kind, obj["metadata"].get("name", obj["metadata"]["resourceVersion"])))
        if kind == "BOOKMARK":
            return found


async def test_a_node_leaves_and_comes_back_by_what_is_bound_to_it(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1", cpu="8"))
    created = await core.done("POST", "/api/v1/nodes", node("n2", cpu="2"))
    events = await core.watch(FREE)
    assert [e[0] for e in await changed(events)] == ["ADDED", "BOOKMARK"]
    bound = await core.done("POST", PODS, pod("p", "n1", cpu="5"))
    (left, mark) = await events.take(2)
    assert left[0] == "DELETED" and left[1]["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    assert mark[1]["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    await core.done("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    (back, mark) = await events.take(2)
    assert back[0] == "ADDED" and int(back[1]["metadata"]["resourceVersion"]) < int(mark[1]["metadata"]["resourceVersion"])  # noqa: E501
    body: dict[str, Any] = back[1] | {"metadata": back[1]["metadata"] | {"labels": {"seen": "yes"}}}
    await core.done("PUT", "/api/v1/nodes/n1", body)
    assert await changed(events) == [("MODIFIED", "n1"), ("BOOKMARK", str(core.member.storage.revision))]
    assert created["metadata"]["name"] == "n2"


async def test_a_watch_on_a_sum_goes_on_across_a_reconnect(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1", cpu="8"))
    events = await core.watch(FREE)
    mark = (await changed(events))[-1][1]
    events.close()
    await core.done("POST", PODS, pod("p", "n1", cpu="5"))
    await core.done("POST", "/api/v1/nodes", node("n3", cpu="8"))
    again = await core.watch(f"{FREE}&resourceVersion={mark}")
    await core.done("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    seen = [e for e in await changed(again) + await changed(again) if e[0] != "BOOKMARK"]
    while ("ADDED", "n1") not in seen:
        seen += [e for e in await changed(again) if e[0] != "BOOKMARK"]
    assert seen == [("DELETED", "n1"), ("ADDED", "n3"), ("ADDED", "n1")]
    listed = await core.done("GET", FREE.replace("allowWatchBookmarks=true&", ""))
    assert names(listed) == ["n1", "n3"]


async def test_bookmarks_only_for_those_who_take_them(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1", cpu="8"))
    events = await core.watch(FREE.replace("allowWatchBookmarks=true&", ""))
    await core.done("POST", PODS, pod("p", "n1", cpu="5"))
    await core.done("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert await events.named(3) == [("ADDED", "n1"), ("DELETED", "n1"), ("ADDED", "n1")]


async def test_tables_of_nodes_show_what_is_free(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1", cpu="8"))
    events = await core.watch(FREE.replace("allowWatchBookmarks=true&", ""), accept=TABLE)
    ((_, first),) = await events.take(1)
    at = [c["name"] for c in first["columnDefinitions"]].index("free.cpu")
    assert first["rows"][0]["cells"][at] == "8"
    await core.done("POST", PODS, pod("p", "n1", cpu="5"))
    ((kind, left),) = await events.take(1)
    assert kind == "DELETED" and left["rows"][0]["cells"][at] == "3"


async def test_a_restarted_server_resumes_where_the_store_still_knows(core: Core) -> None:
    await core.done("POST", MAPS, config_map("a"))
    then = await version(core)
    await core.done("POST", MAPS, config_map("b"))
    await core.api.stop()
    core.api = core.server()
    await core.api.start()
    events = await core.watch(f"{MAPS}?resourceVersion={then}")
    ((kind, obj),) = await events.take(1)
    assert (kind, obj["metadata"]["name"]) == ("ADDED", "b"), orjson.dumps(obj)


async def test_a_watch_of_a_path_that_is_not_served_is_refused_with_a_status(core: Core) -> None:
    """As of a definition that has just gone; the body of an unknown path is plain text."""
    async for (event,) in InProcessTransport(core.api).watch("/apis/gone.example.com/v1/things"):
        status = orjson.loads(event.object)
        assert (event.type, status["kind"], status["code"]) == ("ERROR", "Status", 404)
        assert "404 page not found" in status["message"]


async def _endless(*parts: bytes) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part
    await asyncio.Event().wait()


def _answers(core: Core, monkeypatch: pytest.MonkeyPatch, status: int, *parts: bytes) -> None:
    """Every request: as another server, in parts, without an end."""

    async def handle(request: Request) -> Response:
        response = Response(status)
        response.text = _endless(*parts)
        return response

    monkeypatch.setattr(core.api, "handle", handle)


async def test_a_refusal_without_an_end_is_told_as_far_as_it_came(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(core, monkeypatch, 410, b'{"kind":"Status",', b'"message":"it is')
    monkeypatch.setattr(inprocess, "REFUSAL_S", 0.01)
    async with patience():
        ((event,),) = [events async for events in InProcessTransport(core.api).watch(MAPS)]
    status = orjson.loads(event.object)
    assert (event.type, status["code"], "it is" in status["message"]) == ("ERROR", 410, True)


async def test_a_transport_may_be_closed_twice(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(core, monkeypatch, 200, b'{"type":"ADDED","object":{}}\n')
    transport = InProcessTransport(core.api)
    watching = transport.watch(MAPS)
    async with patience():
        await anext(watching)
        waiting = asyncio.ensure_future(anext(watching, None))
        await asyncio.sleep(0)
        await transport.close()
        await transport.close()
        assert await waiting is None


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_rows_of_tables_have_the_version_that_was_asked_for(core: Core, version: str) -> None:
    await core.done("POST", MAPS, config_map("a"))
    events = await core.watch(MAPS, f"application/json;as=Table;v={version};g=meta.k8s.io")
    await core.done("DELETE", f"{MAPS}/a")
    for _, table in await events.take(2):
        wanted = f"meta.k8s.io/{version}"
        assert [table["apiVersion"], *(row["object"]["apiVersion"] for row in table["rows"])] == [wanted, wanted]
    events.close()
