"""No change is skipped where a watch is cut, ends or begins again: on the store's side and on the client's."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from api_core import JSON, MAPS, MERGE, PARTIAL_LIST, PODS, TABLE, Core, config_map, node, pod

from minikube_py.api.tables import TablePrinter
from minikube_py.apiserver import core as core_module
from minikube_py.apiserver import reading
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.options import UNREAD
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch import Group
from minikube_py.errors import Compacted, Unavailable
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.store.storage import WatchBatch

FREE = f"/api/v1/nodes?allowWatchBookmarks=true&fieldSelector={quote('free.cpu>=4')}"


class Storage:
    """A store that is asked through this: `gate` holds up reads."""

    def __init__(self, core: Core) -> None:
        self._inner: Any = core.api.storage
        self.gate = asyncio.Event()
        core.api.storage = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, key: bytes, revision: int = 0) -> Any:
        await self.gate.wait()
        return await self._inner.get(key, revision)


async def version(core: Core) -> str:
    return str((await core.done("GET", MAPS))["metadata"]["resourceVersion"])


def on_next_change(core: Core, then: Any) -> None:
    """Calls `then` when the watch cache has the next change, in the same turn of the loop."""
    done: list[None] = []

    def sink(batch: WatchBatch) -> None:
        if batch.events and not done:
            done.append(None)
            then()

    core.member.storage.watch(b"\0", b"\0", 0, sink)


async def settle(core: Core, ready: bool = True) -> None:
    async with asyncio.timeout(5):
        while core.api.ready is not ready:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_bookmark_at_the_end_comes_after_what_happened_in_the_same_turn(core: Core) -> None:
    query = f"allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion={await version(core)}"
    events = await core.watch(f"{MAPS}?{query}")
    timer = events.stream._timer
    assert timer is not None
    on_next_change(core, timer._run)
    await core.done("POST", MAPS, config_map("a"))
    now = await version(core)
    seen = [(kind, obj["metadata"]) for kind, obj in await events.rest()]
    assert [kind for kind, _ in seen] == ["ADDED", "BOOKMARK"]
    assert (seen[0][1]["name"], seen[1][1]["resourceVersion"]) == ("a", now)


async def test_the_bookmark_at_the_end_of_a_watch_on_a_sum_tells_its_own_revision(core: Core) -> None:
    """The store tells one watch after the other: the cache may know already what this one is still to see."""
    await core.done("POST", "/api/v1/nodes", node("n1", cpu="8"))
    before = core.member.storage.revision
    events = await core.watch(f"{FREE}&timeoutSeconds=60&resourceVersion={before}")
    timer = events.stream._timer
    assert timer is not None
    on_next_change(core, timer._run)
    await core.done("POST", PODS, pod("p", "n1", cpu="5"))
    seen = await events.rest()
    assert [(kind, obj["metadata"]["resourceVersion"]) for kind, obj in seen] == [("BOOKMARK", str(before))]


async def test_the_end_of_the_watch_on_the_store_brings_the_cache_no_further(core: Core) -> None:
    storage = Storage(core)
    known = core.api.cache.revision
    assert core.api._watch is not None
    core.api._watch.cancel()
    other = core.server()
    await other.start()
    core.api, api = other, core.api
    await core.done("POST", MAPS, config_map("missed"))
    core.api = api
    api._take(WatchBatch((), core.member.storage.revision, Unavailable("the connection broke")))
    assert api.cache.revision == known
    storage.gate.set()
    await settle(core)
    assert [item["metadata"]["name"] for item in (await core.done("GET", MAPS))["items"]] == ["missed"]
    await other.stop()


async def test_a_watch_opened_while_the_cache_begins_anew_is_sent_to_list_again(core: Core) -> None:
    storage = Storage(core)
    known = core.api.cache.revision
    api = core.api
    assert api._watch is not None
    api._watch.cancel()
    other = core.server()
    await other.start()
    core.api = other
    await core.done("POST", MAPS, config_map("missed"))
    core.api = api
    api._take(WatchBatch((), 0, Compacted(known + 1, core.member.storage.revision)))
    await settle(core, False)
    await asyncio.sleep(0)
    events = await core.watch(f"{MAPS}?resourceVersion={known}")
    storage.gate.set()
    await settle(core)
    for each in (events, await core.watch(f"{MAPS}?resourceVersion={known}")):
        assert [(kind, obj["code"]) for kind, obj in await each.rest()] == [("ERROR", 410)]
    await other.stop()


async def test_a_change_costs_nothing_to_those_who_do_not_see_it(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [await core.watch(f"{MAPS}?fieldSelector=metadata.name%3Dm{i}") for i in range(50)]
    await asyncio.sleep(0.01)
    flushed: list[Group] = []
    real = Group.flush
    monkeypatch.setattr(Group, "flush", lambda group: (flushed.append(group), real(group))[1])
    await core.done("POST", MAPS, config_map("m7"))
    assert await streams[7].named(1) == [("ADDED", "m7")]
    assert len(flushed) == 1


async def test_what_is_put_into_the_store_past_the_api_is_left_out(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    await core.done("POST", MAPS, config_map("x", {"a": "b"}))
    labelled, all_of_them = await core.watch(f"{MAPS}?labelSelector=a%3Db"), await core.watch(MAPS)
    for name in (b"x", b"y"):
        await core.member.storage.txn((), (Put(b"/registry/configmaps/default/" + name, b"\0nonsense"),))
    await core.done("POST", MAPS, config_map("z", {"a": "b"}))
    for events in (labelled, all_of_them):
        assert await events.named(3) == [("ADDED", "x"), ("DELETED", "x"), ("ADDED", "z")]
    assert [item["metadata"]["name"] for item in (await core.done("GET", MAPS))["items"]] == ["z"]
    for name in ("x", "y"):
        assert f"/registry/configmaps/default/{name} cannot be read, and is skipped" in caplog.text


BROKEN = {
    "cut off": b'{"metadata":{"name":"x"',
    "no text": b'{"metadata":{"name":"\xff"}}',
    "labels of another kind": b'{"metadata":{"name":"x","labels":5}}',
    "labels that are no text": b'{"metadata":{"name":"x","labels":{"a":[]}}}',
    "metadata twice": b'{"metadata":{"name":"x"},"metadata":5}',
    "a spec of another kind": b'{"metadata":{"name":"x"},"spec":5}',
}


@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN.keys())
async def test_what_only_begins_like_an_object_is_left_out(
    core: Core, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    await core.done("POST", PODS, pod("x", labels={"a": "b"}))
    queries = ("", "?labelSelector=a%3Db", "?fieldSelector=spec.nodeName%3D")
    watches = [await core.watch(PODS + query) for query in queries]
    for name in (b"x", b"y"):
        await core.member.storage.txn((), (Put(b"/registry/pods/default/" + name, value),))
    await core.done("POST", PODS, pod("z", labels={"a": "b"}))
    for events in watches:
        assert await events.named(3) == [("ADDED", "x"), ("DELETED", "x"), ("ADDED", "z")]
    assert not core.member.failed
    core.api, first = core.server(), core.api
    await core.api.start()
    for query in queries:
        assert [item["metadata"]["name"] for item in (await core.done("GET", PODS + query))["items"]] == ["z"]
    await first.stop()
    assert "/registry/pods/default/x cannot be read, and is skipped" in caplog.text


async def test_what_is_left_out_is_told_to_all_who_ask_for_it(core: Core) -> None:
    """And once it can be read it is there, as its kind reads it: with defaults, without what nobody knows."""
    value = b'{"metadata":{"name":"x","namespace":"default","uid":"u"},"status":{"phase":[]}}'
    await core.member.storage.txn((), (Put(b"/registry/pods/default/x", value),))
    await core.done("POST", PODS, pod("z"))
    for query in ("", "?resourceVersion=0", "?limit=1"):
        listed = await core.respond("GET", PODS + query)
        told = '299 - "1 stored objects cannot be read and are skipped: x"'
        assert (listed.status, listed.headers["Warning"]) == (200, told)
    for accept in (TABLE, PARTIAL_LIST):
        assert (await core.respond("GET", "/api/v1/pods", accept=accept)).status == 200
    why = "json: cannot unmarshal array into Go struct field PodStatus.status.phase of type v1.PodPhase"
    for method, body in (("GET", None), ("PUT", pod("x")), ("PATCH", {}), ("DELETE", None)):
        code, status = await core.ask(method, f"{PODS}/x", body, content_type=MERGE if method == "PATCH" else JSON)
        assert code == 500 and status["message"].endswith(f"can be deleted only with {UNREAD}: {why}")
    for path, method, body in ((f"{PODS}/x?resourceVersion=0", "GET", None), (PODS, "POST", pod("x"))):
        assert (await core.ask(method, path, body))[0] == 500
    assert core.api.metrics()["apiserver_unreadable_objects"] == 1
    value = b'{"metadata":{"name":"x","namespace":"default","uid":"u"},"spec":{"containers":[]},"unknown":1}'
    await core.member.storage.txn((), (Put(b"/registry/pods/default/x", value),))
    for query in ("", "?resourceVersion=0"):
        found = await core.done("GET", f"{PODS}/x{query}")
        assert found["spec"]["restartPolicy"] == "Always" and "status" in found and "unknown" not in found
    assert "Warning" not in (await core.respond("GET", PODS)).headers
    assert core.api.metrics()["apiserver_unreadable_objects"] == 0


async def test_what_cannot_be_read_is_deleted_by_who_says_so_and_may(core: Core) -> None:
    await core.member.storage.txn((), (Put(b"/registry/configmaps/default/x", b'{"metadata":{"nam'),))
    await core.done("POST", MAPS, {"metadata": {"name": "z", "finalizers": ["a.example/b"]}})
    path, unread = f"{MAPS}/x", {"kind": "DeleteOptions", "apiVersion": "v1", UNREAD: True}
    assert (await core.ask("DELETE", path))[0] == 500
    assert (await core.ask("DELETE", path, {**unread, UNREAD: False}))[0] == 500
    code, status = await core.ask("DELETE", path, {**unread, "dryRun": ["All"], "gracePeriodSeconds": 0})
    causes = [cause["message"] for cause in status["details"]["causes"]]
    assert code == 422 and [cause.rpartition(" ")[2] for cause in causes] == [".dryRun", ".gracePeriodSeconds"]
    role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}]}
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await core.done("POST", f"{rbac}/clusterroles", role)
    await core.done("POST", f"{rbac}/clusterrolebindings", binding)
    jane = User("jane", ("system:authenticated",))
    response = await core.api.handle(Request("DELETE", path, {}, orjson.dumps(unread), jane, JSON, JSON))
    assert response.status == 403 and b"cannot unsafe-delete-ignore-read-errors resource" in response.body
    role["rules"][0]["verbs"].append("unsafe-delete-ignore-read-errors")  # type: ignore[index]
    await core.done("PUT", f"{rbac}/clusterroles/r", role)
    response = await core.api.handle(Request("DELETE", path, {}, orjson.dumps(unread), jane, JSON, JSON))
    told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    assert orjson.loads(response.body) == {**told, "details": {"name": "x", "kind": "ConfigMap"}, "code": 200}
    assert (await core.ask("GET", path))[0] == 404
    assert "Warning" not in (await core.respond("GET", MAPS)).headers
    # What can be read is deleted as if it had not been said.
    assert (await core.ask("DELETE", f"{MAPS}/z?{UNREAD}=true"))[0] == 200
    assert (await core.done("GET", f"{MAPS}/z"))["metadata"]["deletionTimestamp"]


async def test_what_this_server_writes_is_not_read_again(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    real = reading.as_kind
    monkeypatch.setattr(reading, "as_kind", lambda kind, kv: (read.append(kv.key), real(kind, kv))[1])
    await core.done("POST", PODS, pod("x"))
    for at in range(3):
        await core.done("PATCH", f"{PODS}/x", {"metadata": {"labels": {"a": str(at)}}}, MERGE)
    await core.done("GET", PODS)
    await core.done("DELETE", f"{PODS}/x")
    assert not read
    await core.member.storage.txn((), (Put(b"/registry/configmaps/default/x", b'{"metadata":{}}'),))
    assert read == [b"/registry/configmaps/default/x"]


async def test_a_start_goes_on_where_compactions_overtake_its_reading(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "_LOAD_PAGE", 2)
    for name in ("a", "b", "c"):
        await core.done("POST", MAPS, config_map(name))
    storage = core.member.storage
    real, reads = storage.range, list[int]()

    async def range_once_compacted(request: RangeRequest) -> Any:
        if len(reads) < 3:
            await core.done("PATCH", f"{MAPS}/a", {"data": {"n": str(len(reads))}}, MERGE)
            await storage.compact(storage.revision)
        reads.append(request.revision)
        return await real(request)

    monkeypatch.setattr(storage, "range", range_once_compacted)
    api = core.server()
    await api.start()
    assert len(set(reads)) == 4
    found = api.cache.find(b"/registry/configmaps/default/a")
    assert found is not None and len(found.entries) == 3
    await api.stop()


@pytest.mark.parametrize("ending", ["timeout", "cancelled"])
async def test_those_who_waited_in_vain_are_forgotten(core: Core, ending: str) -> None:
    cache = core.api.cache
    waits = [asyncio.create_task(cache.wait_until(1 << 40, 0.01 if ending == "timeout" else 60)) for _ in range(5)]
    await asyncio.sleep(0)
    assert len(cache._waiting) == 5
    if ending == "cancelled":
        for wait in waits:
            wait.cancel()
    await asyncio.wait(waits)
    assert not cache._waiting


async def test_a_deletion_that_was_announced_is_done_though_its_client_goes(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await core.done("POST", PODS, pod("p"))
    reached, real = asyncio.Event(), core.api.store.delete

    async def delete(*given: Any) -> Any:
        reached.set()
        await asyncio.sleep(0.01)
        return await real(*given)

    monkeypatch.setattr(core.api.store, "delete", delete)
    events = await core.watch(PODS)
    asked = asyncio.create_task(core.ask("DELETE", f"{PODS}/p"))
    await reached.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await events.named(3) == [("ADDED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


def _unprintable(real: Any) -> Any:
    def row_bytes(printer: Any, value: bytes, *given: Any) -> bytes:
        if b'"name":"x"' in value:
            raise KeyError("a bug")
        return real(printer, value, *given)

    return row_bytes


async def test_a_value_that_a_form_cannot_show_ends_its_watches_and_no_others(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, all_of_them = await core.watch(PODS, TABLE), await core.watch(PODS)
    monkeypatch.setattr(TablePrinter, "row_bytes", _unprintable(TablePrinter.row_bytes))
    await core.done("POST", PODS, pod("x"))
    ((kind, status),) = await tables.rest()
    assert (kind, status["code"]) == ("ERROR", 500)
    assert await all_of_them.named(1) == [("ADDED", "x")]
    again = await core.watch(PODS, TABLE)
    await core.done("POST", PODS, pod("z"))
    assert await all_of_them.named(1) == [("ADDED", "z")]
    again.close()


async def test_a_value_that_a_form_cannot_show_ends_a_watch_on_a_sum(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, objects = await core.watch(FREE, TABLE), await core.watch(FREE)
    monkeypatch.setattr(TablePrinter, "row_bytes", _unprintable(TablePrinter.row_bytes))
    await core.done("POST", "/api/v1/nodes", node("x"))
    *_, (kind, status) = await tables.rest()
    assert (kind, status["code"]) == ("ERROR", 500)
    assert await objects.named(2) == [("BOOKMARK", ""), ("ADDED", "x")]
