"""kill -9 of `minikube-py up` under load over HTTPS: what was acknowledged is there, what was never sent is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from up_process import ROLES, Up, again

from minikube_py.client.connector import Connector
from minikube_py.client.kubeconfig import ClusterAccess

CONNECTIONS = 6
ROUNDS = 10
MAPS = "/api/v1/namespaces/default/configmaps"
OURS = "labelSelector=load%3Dyes"
BUSY_CODES = {429, 503, 504}
"""While the store or the API server comes back."""

State = str | None
"""The value an object holds; None where there is none."""


def present(states: dict[str, State]) -> dict[str, State]:
    return {name: state for name, state in states.items() if state is not None}


class Book:
    """What each object may hold: one state once its last write was answered, several while that is unknown."""

    def __init__(self) -> None:
        self.states: dict[str, set[State]] = {}
        self.acknowledged = 0
        self.version = 0
        self._one_more = asyncio.Event()

    def acknowledge(self) -> None:
        self.acknowledged += 1
        self._one_more.set()

    async def until(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged:
            self._one_more.clear()
            await self._one_more.wait()

    def may_be(self, name: str) -> set[State]:
        return self.states.setdefault(name, {None})

    def known(self) -> dict[str, State]:
        """What there is, once it was settled."""
        return present({name: state for name, (state,) in self.states.items()})

    def settle(self, found: dict[str, str]) -> None:
        """Compares with what a list found, and goes on from there."""
        for name, states in self.states.items():
            assert found.get(name) in states, f"{name}: {found.get(name)!r}, of what was written {states}"
            self.states[name] = {found.get(name)}
        unknown = found.keys() - self.states.keys()
        assert not unknown, f"nobody wrote {unknown}"


class Writer:
    """One connection with objects of its own, which nobody else writes."""

    def __init__(self, book: Book, number: int, access: ClusterAccess, rng: random.Random) -> None:
        self.book, self.number, self.access, self.rng = book, number, access, rng
        self.written = 0

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Until the server dies."""
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            while True:
                await self._write(session)

    async def _write(self, session: aiohttp.ClientSession) -> None:
        name = f"w{self.number}-{self.rng.randrange(12)}"
        book, before = self.book, self.book.may_be(name)
        self.written += 1
        value: State = f"{self.number}.{self.written}.{self.rng.getrandbits(32)}"
        method = self.rng.choice(["POST", "PUT", "PATCH", "DELETE"] if before != {None} else ["POST"])
        path, body, content_type = f"{MAPS}/{name}", None, "application/json"
        if method == "POST":
            path = MAPS
        if method == "DELETE":
            value = None
        else:
            body = {"metadata": {"name": name, "labels": {"load": "yes"}}, "data": {"value": value}}
        if method == "PATCH":
            content_type = "application/merge-patch+json"
        book.states[name] = before | {value}
        async with session.request(
            method, self.access.server + path, data=json.dumps(body) if body else None,
            headers={"Content-Type": content_type, "Authorization": f"Bearer {self.access.token}"},
        ) as answer:  # fmt: skip
            text = await answer.read()
        if answer.status in (200, 201):
            book.states[name] = {value}
            book.acknowledge()
            meta = json.loads(text)["metadata"]
            book.version = max(book.version, int(meta.get("resourceVersion", 0)))
        elif answer.status in (404, 409):
            # Refused: nothing changed; and what was unknown is known now.
            book.states[name] = {None} if answer.status == 404 else before - {None}
            if answer.status == 409 and method != "POST":
                book.states[name] = before
        else:
            assert answer.status in BUSY_CODES, (answer.status, text)
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def session(access: ClusterAccess, timeout_s: float = 20) -> AsyncIterator[aiohttp.ClientSession]:
    connector = Connector(ssl=access.ssl_context() or False, limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(timeout_s)) as opened:
        yield opened


async def get(opened: aiohttp.ClientSession, access: ClusterAccess, path: str) -> Any:
    """Until the server is there again."""
    ends_s = time.monotonic() + 30
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            headers = {"Authorization": f"Bearer {access.token}"}
            async with opened.get(access.server + path, headers=headers) as answer:
                text = await answer.read()
                if answer.status not in BUSY_CODES:
                    assert answer.status == 200, text
                    return json.loads(text)
        assert time.monotonic() < ends_s, path
        await asyncio.sleep(0.02)


async def check(access: ClusterAccess, book: Book) -> int:
    """The list's version."""
    async with session(access) as opened:
        found = await get(opened, access, f"{MAPS}?{OURS}")
    book.settle({item["metadata"]["name"]: item["data"]["value"] for item in found["items"]})
    version = int(found["metadata"]["resourceVersion"])
    assert version >= book.version, "versions go on upwards"
    book.version = version
    return version


async def watched(access: ClusterAccess, since: int, until: int) -> dict[str, State] | None:
    """What became of the objects after `since` by the watch's word; None where the server says 410."""
    states: dict[str, State] = {}
    async with session(access) as opened:
        headers = {"Authorization": f"Bearer {access.token}"}
        query = f"{OURS}&watch=true&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=1"
        url = f"{access.server}{MAPS}?{query}"
        async with opened.get(url, headers=headers) as answer:
            last = since
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    assert event["object"]["code"] == 410
                    return None
                obj = event["object"]
                version = int(obj["metadata"]["resourceVersion"])
                assert version >= last, "events come in order"
                last = version
                if event["type"] != "BOOKMARK":
                    name = obj["metadata"]["name"]
                    states[name] = None if event["type"] == "DELETED" else obj["data"]["value"]
                if last >= until:
                    break
    return states


async def load(running: Up, book: Book, rng: random.Random, kill_after: int, victim: int) -> None:
    """Writes from several connections; `victim` is killed once so many were acknowledged."""
    access = running.access
    writers = [Writer(book, number, access, random.Random(rng.random())) for number in range(CONNECTIONS)]
    enough = asyncio.create_task(book.until(book.acknowledged + kill_after))
    async with session(access) as opened, asyncio.timeout(30):
        tasks = [asyncio.create_task(writer.run(opened)) for writer in writers]
        try:
            done, _ = await asyncio.wait([enough, *tasks], return_when=asyncio.FIRST_COMPLETED)
            assert done == {enough}, [task.exception() for task in done]
            os.kill(victim, signal.SIGKILL)
            if victim != running.process.pid:
                await asyncio.sleep(rng.random() * 0.2)
                for task in tasks:
                    task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
        finally:
            for task in (enough, *tasks):
                task.cancel()


@contextlib.contextmanager
def always_ended() -> Iterator[list[Up]]:
    started: list[Up] = []
    try:
        yield started
    finally:
        for each in started:
            each.end()


@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_in_ten_rounds(tmp_path: Path) -> None:
    flags = ("--nodes", "1", "--data-dir", str(tmp_path / "data"))
    rng, book = random.Random(9), Book()
    with always_ended() as started:
        started.append(again(*flags))
        first = book.version = await check(started[-1].access, book)
        for number in range(ROUNDS):
            before, known = book.version, book.known()
            await load(started[-1], book, rng, rng.randrange(20, 200), started[-1].process.pid)
            started.append(again(*flags))
            access = started[-1].access
            now = await check(access, book)
            assert now > before
            changed = await watched(access, before, now)
            assert changed is not None, f"round {number}: {before} is not old enough for a 410"
            assert present(known | changed) == book.known()
        everything = await watched(started[-1].access, first, book.version)
        assert everything is None or present(everything) == book.known()
        assert started[-1].end() == 0


@pytest.mark.parametrize("role", ROLES)
async def test_split_loses_nothing_when_a_role_is_killed(tmp_path: Path, role: str) -> None:
    rng, book = random.Random(role), Book()
    with always_ended() as started:
        running = again("--split", "--nodes", "1", "--data-dir", str(tmp_path / "data"))
        started.append(running)
        before = await check(running.access, book)
        said = len(running.lines)
        await load(running, book, rng, 100, running.children()[role])
        assert running.until_said(f"{role} was ended by signal 9", said), running.lines
        assert running.until_said(f"{role} is back", said), running.lines
        now = await check(running.access, book)
        changed = await watched(running.access, before, now)
        assert changed is None or present(changed) == book.known()
        await load(running, book, rng, 20, running.children()["kubelet"])
        await check(running.access, book)
        assert running.end() == 0 and not running.errors, running.errors
