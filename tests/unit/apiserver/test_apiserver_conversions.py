"""Custom resources that a webhook converts: slices, watches, failures, bounds; what is stored before and after."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_core import MERGE, Core, names
from patience import until
from webhook_server import CONVERSIONS

from minikube_py.apiserver.conversions import SLICE_OBJECTS
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.outgoing import Answer, NoAnswer
from minikube_py.apiserver.watch_cache import SharedKeys
from minikube_py.apiserver.work import INLINE_BYTES_MAX

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from conversion_cases import DEFINITIONS, GROUP, at, definition, plural, thing

OF = "c-moves"
CLIENT = {"url": "https://webhook.example/convert"}
Json = dict[str, Any]


class Webhook:
    """In place of the connections: what it was asked, how long it takes, and whether it is there."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.answer = OF
        self.down = False
        self.delay_s: Callable[[], float] = lambda: 0.0

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        assert url == f"{CLIENT['url']}?timeout=30s", url
        asked = json.loads(body)
        self.asked.append(asked)
        await asyncio.sleep(self.delay_s())
        if self.down:
            raise NoAnswer("dial tcp: it is down")
        status, media, text = CONVERSIONS[self.answer](asked)
        return Answer(status, {"Content-Type": media}, text)

    async def close(self) -> None:
        pass


async def _served(core: Core, *versions: str) -> None:
    async def answers() -> bool:
        return all([(await core.respond("GET", f"/apis/{GROUP}/{version}")).status == 200 for version in versions])

    await until(answers, f"{versions} are served")


async def _stored_as(core: Core, version: str) -> None:
    async def moved() -> bool:
        kinds = [kind for kind in core.api.registry.kinds if kind.plural == plural(OF)]
        return bool(kinds) and all(kind.storage_version == f"{GROUP}/{version}" for kind in kinds)

    await until(moved, f"{version} is stored")


@pytest.fixture
async def converted(core: Core) -> tuple[Core, Webhook]:
    webhook = Webhook()
    core.api.webhook_caller.outgoing = webhook
    await core.done("POST", DEFINITIONS, definition(OF, CLIENT))
    await _served(core, "v1", "v2")
    return core, webhook


def _widths(listed: Json) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"]["dimensions"]["width"] for each in listed["items"]}


async def test_many_objects_are_converted_in_slices_and_once(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    count = 2 * SLICE_OBJECTS + 7
    for i in range(count):
        await core.done("POST", at(OF, "v1"), thing(OF, "v1", f"t{i:04}", spec={"size": i % 100}))
    assert webhook.asked == []
    assert len(names(await core.done("GET", at(OF, "v1")))) == count
    assert webhook.asked == []
    listed = await core.done("GET", at(OF, "v2"))
    assert _widths(listed) == {f"t{i:04}": i % 100 for i in range(count)}
    sizes = [len(each["request"]["objects"]) for each in webhook.asked]
    assert sum(sizes) == count and max(sizes) == SLICE_OBJECTS
    assert _widths(await core.done("GET", at(OF, "v2"))) == _widths(listed)
    assert len(webhook.asked) == len(sizes)


async def test_a_watch_ends_where_its_webhook_fails_and_the_next_begins_again(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    watch = await core.watch(at(OF, "v2"))
    ((kind, obj),) = await watch.take(1)
    assert (kind, obj["apiVersion"], obj["spec"]) == ("ADDED", f"{GROUP}/v2", {"dimensions": {"width": 3}})
    await core.done("PATCH", f"{at(OF, 'v1')}/a", {"spec": {"size": 4}}, MERGE)
    assert (await watch.take(1))[0][1]["spec"] == {"dimensions": {"width": 4}}
    webhook.down = True
    await core.done("PATCH", f"{at(OF, 'v1')}/a", {"spec": {"size": 5}}, MERGE)
    assert await watch.rest() == []
    for path in (at(OF, "v2"), f"{at(OF, 'v2')}/a", f"{at(OF, 'v2')}?watch=true"):
        code, told = await core.ask("GET", path)
        assert code == 500 and "conversion webhook for" in told["message"] and "it is down" in told["message"], told
    webhook.down = False
    assert _widths(await core.done("GET", at(OF, "v2"))) == {"a": 5}
    watch = await core.watch(f"{at(OF, 'v2')}?resourceVersion=0")
    await core.done("DELETE", f"{at(OF, 'v1')}/a")
    assert await watch.named(2) == [("ADDED", "a"), ("DELETED", "a")]
    watch.close()


async def test_bookmarks_do_not_promise_what_is_still_being_converted(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    watch = await core.watch(f"{at(OF, 'v2')}?allowWatchBookmarks=true")
    await watch.take(1)
    webhook.delay_s = lambda: 3.0
    made = await core.done("POST", at(OF, "v1"), thing(OF, "v1", "b"))
    core.api.watching.bookmark_all()
    seen = await watch.take(1)
    while seen[-1][0] == "BOOKMARK":
        seen += await watch.take(1)
    *marks, (kind, obj) = seen
    assert marks and kind == "ADDED" and obj["metadata"]["name"] == "b"
    revision = int(made["metadata"]["resourceVersion"])
    assert all(int(mark["metadata"]["resourceVersion"]) < revision for _, mark in marks)
    watch.close()


async def test_a_webhook_that_does_not_keep_up_ends_its_watches_alone(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(history_events_max=20)).start()
    webhook = Webhook()
    core.api.webhook_caller.outgoing = webhook
    await core.done("POST", DEFINITIONS, definition(OF, CLIENT))
    await _served(core, "v1", "v2")
    slow, other = await core.watch(at(OF, "v2")), await core.watch(at(OF, "v1"))
    webhook.delay_s = lambda: 1000.0
    for i in range(30):
        await core.done("POST", at(OF, "v1"), thing(OF, "v1", f"t{i}"))
    assert await slow.rest() == []
    assert len(await other.take(30)) == 30
    other.close()
    await core.stop()


async def test_without_a_door_the_other_version_is_refused_by_name(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition(OF, CLIENT))
    await _served(core, "v1")
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    for method, path, body in (("GET", at(OF, "v2", "a"), None), ("POST", at(OF, "v2"), thing(OF, "v2", "b"))):
        code, told = await core.ask(method, path, body)
        assert code == 500 and "makes no connections" in told["message"], told


async def test_what_was_stored_before_the_webhook_is_read_and_moves_when_it_is_written(core: Core) -> None:
    webhook = Webhook()
    core.api.webhook_caller.outgoing = webhook
    first = definition(OF, CLIENT, versions=("v1",))
    del first["spec"]["conversion"]
    await core.done("POST", DEFINITIONS, first)
    await _served(core, "v1")
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "old", spec={"size": 9}))
    name = f"{DEFINITIONS}/{plural(OF)}.{GROUP}"
    await core.done("PATCH", name, {"spec": definition(OF, CLIENT, "v2")["spec"]}, MERGE)
    await _served(core, "v2")
    assert _widths(await core.done("GET", at(OF, "v2"))) == {"old": 9}
    before = await core.done("GET", at(OF, "v2", "old"))
    after = await core.done("PATCH", at(OF, "v2", "old"), {}, MERGE)
    assert after["spec"] == {"dimensions": {"width": 9, "unit": "cm"}}
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    webhook.down = True
    assert (await core.done("GET", at(OF, "v2", "old")))["spec"] == after["spec"]
    none = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    await core.done("PATCH", name, none, MERGE)

    async def plain() -> bool:
        return (await core.ask("GET", at(OF, "v1", "old")))[0] == 200

    await until(plain, "nothing is converted any more")
    found = await core.done("GET", at(OF, "v1", "old"))
    # Pruned from the stored version, whose defaults alone are filled in.
    assert found["apiVersion"] == f"{GROUP}/v1" and found["spec"] == {}


async def test_a_definition_goes_with_its_objects_though_its_webhook_is_gone(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    for version in ("v1", "v2"):
        await core.done("POST", at(OF, version), thing(OF, version, f"of-{version}"))
    webhook.down = True
    asked = len(webhook.asked)
    await core.done("DELETE", f"{DEFINITIONS}/{plural(OF)}.{GROUP}")

    async def gone() -> bool:
        return (await core.ask("GET", f"{DEFINITIONS}/{plural(OF)}.{GROUP}"))[0] == 404

    await until(gone, "the definition is gone")
    assert len(webhook.asked) == asked


async def test_a_large_object_is_converted_too(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    body = thing(OF, "v2", "large", spec={"dimensions": {"width": 1}, "name": "x" * 2 * INLINE_BYTES_MAX})
    made = await core.done("POST", at(OF, "v2"), body)
    assert made["spec"]["name"] == body["spec"]["name"]
    found = await core.done("PATCH", at(OF, "v1", "large"), {"spec": {"size": 7}}, MERGE)
    assert found["spec"]["size"] == 7 and found["spec"]["name"] == body["spec"]["name"]
    applied = {**thing(OF, "v1", "large", spec={"size": 8}), "metadata": {"name": "large"}}
    path = at(OF, "v1", "large") + "?fieldManager=a&force=true"
    owned = await core.done("PATCH", path, applied, "application/apply-patch+yaml")
    assert owned["spec"]["size"] == 8
    applied = {**thing(OF, "v2", "large", spec={"dimensions": {"width": 9}}), "metadata": {"name": "large"}}
    path = at(OF, "v2", "large") + "?fieldManager=b&force=true"
    owned = await core.done("PATCH", path, applied, "application/apply-patch+yaml")
    assert owned["spec"]["dimensions"]["width"] == 9
    assert {each["apiVersion"] for each in owned["metadata"]["managedFields"]} == {f"{GROUP}/v1", f"{GROUP}/v2"}
    assert all(len(each["request"]["objects"]) == 1 for each in webhook.asked)


async def test_two_servers_on_a_store_show_the_same(converted: tuple[Core, Webhook]) -> None:
    core, webhook = converted
    other = core.server()
    other.webhook_caller.outgoing = webhook
    await other.start()
    first = core.api
    await core.done("POST", at(OF, "v2"), thing(OF, "v2", "a"))
    expected = await core.done("GET", at(OF, "v2"))
    core.api = other
    await _served(core, "v1", "v2")
    found = await core.done("GET", at(OF, "v2"))
    assert found["items"] == expected["items"]
    await core.done("PATCH", at(OF, "v1", "a"), {"spec": {"size": 50}}, MERGE)
    core.api = first
    assert _widths(await core.done("GET", at(OF, "v2"))) == {"a": 50}
    await other.stop()


@pytest.mark.parametrize("seed", range(12))
async def test_watches_of_both_versions_end_with_what_lists_show(converted: tuple[Core, Webhook], seed: int) -> None:
    core, webhook = converted
    rng = random.Random(seed)
    webhook.delay_s = lambda: rng.choice((0.0, 0.0, 0.01, 0.3))
    seen: dict[str, dict[str, Any]] = {"v1": {}, "v2": {}}

    async def follow(version: str) -> None:
        while True:
            code, listed = await core.ask("GET", at(OF, version))
            if code != 200:
                await asyncio.sleep(0.2)
                continue
            seen[version] = {each["metadata"]["name"]: each["spec"] for each in listed["items"]}
            revision = listed["metadata"]["resourceVersion"]
            response = await core.respond("GET", f"{at(OF, version)}?watch=true&resourceVersion={revision}")
            if response.stream is None:
                continue
            while batches := await response.stream.next():
                for event in (event for batch in batches for event in batch.events):
                    obj = json.loads(event.object)
                    if event.type == "ERROR":
                        break
                    if event.type == "DELETED":
                        seen[version].pop(obj["metadata"]["name"], None)
                    else:
                        seen[version][obj["metadata"]["name"]] = obj["spec"]

    following = [asyncio.create_task(follow(version)) for version in seen]
    for _ in range(60):
        version, name = rng.choice(("v1", "v2")), rng.choice("abcde")
        width = rng.randrange(100)
        spec = {"size": width} if version == "v1" else {"dimensions": {"width": width}}
        action = rng.choice(("create", "merge", "delete", "down", "up", "wait"))
        if action == "create":
            await core.ask("POST", at(OF, version), thing(OF, version, name, spec=spec))
        elif action == "merge":
            await core.ask("PATCH", at(OF, version, name), {"spec": spec}, content_type=MERGE)
        elif action == "delete":
            await core.ask("DELETE", at(OF, version, name))
        elif action == "wait":
            await asyncio.sleep(rng.random())
        else:
            webhook.down = action == "down" and rng.random() < 0.5
    webhook.down = False

    async def settled() -> bool:
        for version in seen:
            listed = await core.done("GET", at(OF, version))
            if seen[version] != {each["metadata"]["name"]: each["spec"] for each in listed["items"]}:
                return False
        return True

    await until(settled, "watches show what lists show")
    sizes = {name: spec["size"] for name, spec in seen["v1"].items()}
    assert sizes == {name: spec["dimensions"]["width"] for name, spec in seen["v2"].items()}
    for task in following:
        task.cancel()
    shared = core.api.cache.find(f"/registry/{GROUP}/{plural(OF)}/default/a".encode())
    assert isinstance(shared, SharedKeys)
    assert all(kv.value.endswith(b',"apiVersion":"convert.example.com/v1"}') for kv in shared.all())
