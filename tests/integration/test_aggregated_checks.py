"""What this server asks other API servers on its own: whether they are there, and what they serve."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest
from extension_server import GROUP, NAME, ROOT
from patience import until
from test_aggregated_apis import PLAIN, SERVICES, World, world

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.apiregistration import APISERVICES
from minikube_py.api.openapi_merging import FOREIGN_BYTES_MAX
from minikube_py.apiserver import remote_services, system
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.outgoing import FrontProxy
from minikube_py.apiserver.remote_services import (
    DOCUMENT_BYTES_MAX,
    RESOURCES_MAX,
    RemoteService,
    _converted,
    _kept,
)
from minikube_py.errors import Unavailable
from tests.support.hostile_answers import GROUPED

__all__ = ["world"]


@pytest.mark.parametrize("how", GROUPED)
async def test_what_is_kept_of_a_discovery_is_bounded(world: World, how: str) -> None:
    world.other.told["/apis"] = document = GROUPED[how](DOCUMENT_BYTES_MAX)
    assert len(document) <= DOCUMENT_BYTES_MAX
    await world.registered()
    services = world.core.api.services

    async def is_read() -> bool:
        asked = sum(each.target == "/apis" for each in world.other.seen)
        return services.remote[0].freshness == "Current" or asked > 1

    await until(is_read, "its discovery is read, or refused")
    assert len(services.remote[0].resources) <= DOCUMENT_BYTES_MAX
    (version,) = (await world.aggregated())[GROUP]
    names = [each["resource"] for each in version.get("resources", ())]
    assert names == (["a"] if how == "one name" else [])


async def test_a_long_discovery_is_read_in_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    rows = [{"name": f"r{at}"} for at in range(RESOURCES_MAX // 2)]
    below = [{"name": f"{each['name']}/status"} for each in rows]
    kept = json.loads(await _kept(_converted([*rows, *below])))
    task.cancel()
    assert [each["resource"] for each in kept] == [each["name"] for each in rows]
    assert all(each["subresources"][0]["subresource"] == "status" for each in kept)
    assert turns > 16


async def test_those_that_hang_hold_up_no_other_check(world: World) -> None:
    """Three times as many as are asked at a time: told are they after 5 s each."""
    await world.core.done("POST", PLAIN, world.other.service())
    names = [f"v1.slow{at}.example.com" for at in range(30)]
    for name in names:
        group = name.removeprefix("v1.")
        world.other.hangs.add(f"/apis/{group}/v1")
        made = {**world.other.api_service(group=group), "metadata": {"name": name}}
        await world.core.done("POST", SERVICES, made)
    await world.core.done("POST", SERVICES, world.other.api_service())
    await world.told("True")
    told = [(await world.core.done("GET", f"{SERVICES}/{name}")).get("status") or {} for name in names]
    assert sum(bool(each.get("conditions")) for each in told) < len(names) - 10


async def test_a_check_is_not_made_again_for_what_it_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight addresses that refuse, five are tried; of two servers, one sees what the other one does not."""
    monkeypatch.setattr(remote_services, "_RESYNC_S", 3600.0)
    await world.registered()
    services = world.core.api.services
    assert services.elsewhere is not None
    (service,) = services.elsewhere._remote.values()


    def checked() -> int:
        return sum(each.target == ROOT for each in world.other.seen)

    await until(lambda: bool(service.openapi), "its discovery is read")
    await turns_of(world, "beside.example.com")
    assert checked() == 1
    addresses = [f"127.0.0.1:{port}" for port in range(1, 9)]
    world.core.api.webhook_caller.addresses = lambda reference: addresses
    told = {(await service._reached())[2] for _ in range(20)}
    assert len(told) == 1
    del world.core.api.webhook_caller.addresses
    wrong = {"type": "Available", "status": "False", "reason": "Seen", "message": "by another server"}
    patch = {"status": {"conditions": [wrong]}}
    await world.core.done("PATCH", f"{SERVICES}/{NAME}/status", patch, "application/merge-patch+json")
    await world.told("False", "Seen")
    await turns_of(world, "further.example.com")
    assert (await world.condition())[1] == "Seen"
    assert checked() == 1
    # What is made again under its name is another one.
    await world.core.done("DELETE", f"{SERVICES}/{NAME}")
    await world.core.done("POST", SERVICES, world.other.api_service())
    await world.told("True")


async def turns_of(world: World, group: str) -> None:
    """Time enough for a check: two of another one are made, the second for its new priority."""
    name, path = f"v1.{group}", f"/apis/{group}/v1"
    world.other.told[path] = b"{}"
    made = {**world.other.api_service(group=group), "metadata": {"name": name}}
    await world.core.done("POST", SERVICES, made)

    def checked() -> int:
        return sum(each.target == path for each in world.other.seen)

    await until(checked, "the one beside is checked")
    change = {"spec": {"groupPriorityMinimum": 901}}
    await world.core.done("PATCH", f"{SERVICES}/{name}", change, "application/merge-patch+json")
    await until(lambda: checked() > 1, "the one beside is checked again")


async def test_a_spec_that_changes_while_it_is_read_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[int] = []

    async def refresh(self: RemoteService) -> bool:
        refreshed.append(self._spec["groupPriorityMinimum"])
        if len(refreshed) == 1:
            change = {"spec": {"groupPriorityMinimum": 901}}
            await world.core.done("PATCH", f"{SERVICES}/{NAME}", change, "application/merge-patch+json")

            async def is_known() -> bool:
                return self._spec["groupPriorityMinimum"] == 901

            await until(is_known, "the change is known")
        return True

    monkeypatch.setattr(RemoteService, "_refresh", refresh)
    await world.registered()

    async def again() -> bool:
        return len(refreshed) > 1

    await until(again, "what it serves is read again")
    assert refreshed[-1] == 901


async def test_whatever_a_check_raises_the_next_one_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    given = RemoteService._round

    async def check(self: RemoteService) -> bool:
        if not raised:
            raised.append(self.name)
            raise KeyError("a shape that nobody thought of")
        return await given(self)

    monkeypatch.setattr(RemoteService, "_round", check)
    await world.registered()
    assert raised == [NAME]


async def test_a_start_that_fails_leaves_nothing_that_asks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.registered()
    of = world.core.api
    other = ApiServer(of.storage, of.clock, random.Random(2), tokens=world.core.tokens)
    other.services.pass_on(FrontProxy(None, None))

    async def fails(*_: object) -> None:
        raise Unavailable("lost")

    monkeypatch.setattr(system, "create_namespaces", fails)
    before = len(asyncio.all_tasks())
    with pytest.raises(Unavailable, match="lost"):
        await other.start()
    await other.stop()
    assert other.services.elsewhere is None
    assert len(asyncio.all_tasks()) <= before


def test_without_connections_one_that_names_a_service_already_can_be_changed() -> None:
    spec = {"group": GROUP, "version": "v1", "service": {"namespace": "default", "name": "echo"}}
    old = {"metadata": {"name": NAME}, "spec": spec}
    check = APISERVICES.validate_admission
    assert check is not None
    here: Any = SimpleNamespace(passes_on=False)
    check({**old, "metadata": {"name": NAME, "labels": {"a": "b"}}}, old, here)
    moved = {**old, "spec": {**spec, "service": {"namespace": "default", "name": "other"}}}
    for new, before in ((old, None), (moved, old), (old, {**old, "spec": {"group": GROUP, "version": "v1"}})):
        with pytest.raises(StatusError, match=r"spec\.service"):
            check(new, before, here)


async def test_its_document_of_version_two_is_merged_as_it_was_last_told(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote_services, "_REFRESH_S", 0.0)
    monkeypatch.setattr(remote_services, "_RESYNC_S", 0.01)
    item = {"get": {"operationId": "x", "responses": {"200": {"description": "", "schema": {"type": "string"}}}}}

    def tells(path: str) -> None:
        text = json.dumps({"paths": {path: item, "/api/": item}}).encode()
        head = f'HTTP/1.1 200 OK\r\nEtag: "{path}"\r\nContent-Length: {len(text)}\r\n\r\n'
        world.other.says["/openapi/v2"] = head.encode() + text

    async def merged(path: str) -> bool:
        status, found, headers = await world.ask("GET", "/openapi/v2")
        assert status == 200 and "/api/v1/pods" in found["paths"]
        known = await world.ask("GET", "/openapi/v2", **{"If-None-Match": headers["ETag"]})
        return found["paths"].get(path) == item and known[0] == 304

    tells(f"{ROOT}/a")
    await world.registered()
    await until(lambda: merged(f"{ROOT}/a"), "it is merged")

    def asks_for_what_is_new() -> bool:
        return any(each.headers.get("if-none-match") == [f'"{ROOT}/a"'] for each in world.other.seen)

    await until(asks_for_what_is_new, "it is asked for what is new")
    asked = [each for each in world.other.seen if each.target == "/openapi/v2"]
    assert asked[0].headers["x-remote-user"] == ["system:aggregator"]
    tells(f"{ROOT}/b")
    await until(lambda: merged(f"{ROOT}/b"), "what is new is merged")
    number = b'{"definitions":{"T":{"maximum":"a"}}}'
    deep = b'{"definitions":{"T":%b{}%b}}' % (b'{"items":' * 240, b"}" * 240)
    for broken in (b"[]", b'{"paths":1}', number, deep, b" " * (FOREIGN_BYTES_MAX + 1)):
        before = len(world.other.seen)
        world.other.says["/openapi/v2"] = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(broken), broken)

        def asked_again(before: int = before) -> bool:
            return sum(each.target == "/openapi/v2" for each in world.other.seen[before:]) > 1

        await until(asked_again, "it is asked again")
        assert await merged(f"{ROOT}/b")
    await world.told("True")
    told = [each.getMessage() for each in caplog.records]
    for why in ("must be a JSON object", "are objects", "error: ", "100 levels", f"{FOREIGN_BYTES_MAX} bytes"):
        assert any(why in each and "the document of OpenAPI version 2 of the APIService" in each for each in told), why
    assert not [each.getMessage() for each in caplog.records if each.levelno > logging.WARNING]
    await world.core.done("DELETE", f"{SERVICES}/{NAME}")
    assert f"{ROOT}/b" not in (await world.ask("GET", "/openapi/v2"))[1]["paths"]
