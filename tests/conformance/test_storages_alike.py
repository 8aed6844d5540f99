"""The two stores behind the API server, ours and a real etcd: the same commands, the same answers, errors, revisions
and watches."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import judging
import orjson
import ours
import pytest
from asking import Server
from drawn_etcd import Draws
from etcd_behind import real_etcd, storage_at
from patience import patience, until

from minikube_py.api.kinds.core import NODES
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.errors import MinikubeError
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.kv import delete_of, put_of, range_of, tree_of, txn_of
from minikube_py.etcd.storage import EtcdStorage
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    Event,
    Op,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    WatchBatch,
    prefix_end,
)
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.storage import Storage

pytestmark = pytest.mark.original
T = TypeVar("T")
SEEDS = range(int(os.environ.get("MINIKUBE_PY_STORAGE_HISTORIES", "2")))
COMMANDS = 160
EXAMPLES = int(os.environ.get("MINIKUBE_PY_STORAGE_EXAMPLES", "40"))
PLACE = b"/registry/drawn/"
NODE, POD = b"/registry/nodes/", b"/registry/pods/default/"
FREE = Where((Comparison("free.cpu", ">=", ("4",)),))


def placed(op: Op) -> Op:
    """A drawn operation within the keys that both stores have."""
    if type(op) is Txn:
        compare = tuple(each._replace(key=_key(each.key), range_end=_end(each.range_end)) for each in op.compare)
        return Txn(compare, tuple(map(placed, op.success)), tuple(map(placed, op.failure)))
    if type(op) is Put:
        return op._replace(key=_key(op.key))
    moved = op._replace(key=_key(op.key), range_end=_end(op.range_end))
    # A revision below 0 is the present to etcd; nobody here asks for one.
    return moved if type(moved) is DeleteRange else moved._replace(revision=max(moved.revision, 0))


def _key(key: bytes) -> bytes:
    return PLACE + key


def _end(end: bytes) -> bytes:
    return prefix_end(PLACE) if end == b"\0" else PLACE + end if end else b""


class Told:
    """What a watch has told."""

    def __init__(self, storage: Storage, start: int, where: Where | None) -> None:
        self.events: list[Event] = []
        self.error = ""
        self.revision = 0
        key = NODE if where is not None else b"/registry/"
        self.handle = storage.watch(key, prefix_end(key), start, self.take, where)

    def take(self, batch: WatchBatch) -> None:
        self.events += batch.events
        self.revision = max(self.revision, batch.revision)
        self.error = type(batch.error).__name__ if batch.error is not None else self.error


class Pair:
    """Both stores, asked in turn."""

    def __init__(self, ours: Storage, other: EtcdStorage, seed: int) -> None:
        self.sides: tuple[Storage, Storage] = (ours, other)
        self.random = random.Random(seed)
        self.draws = Draws(seed)
        self.watches: list[tuple[Told, Told]] = []

    async def same(self, what: str, ask: Callable[[Storage], Awaitable[T]]) -> T | None:
        found = [await _outcome(ask(side)) for side in self.sides]
        assert found[0] == found[1], what
        kind, result = found[0]
        revision = getattr(result, "revision", 0) if kind == "ok" else 0
        self.draws.revision = max(self.draws.revision, revision)
        return result if kind == "ok" else None

    async def step(self) -> None:
        draws, roll = self.draws, self.random.random()
        try:
            if roll < 0.25:
                await self.write(self.node_or_pod())
            elif roll < 0.35:
                await self.write(placed(put_of(draws.put())))
            elif roll < 0.42:
                await self.write(placed(delete_of(draws.delete())))
            elif roll < 0.55:
                await self.write(placed(txn_of(tree_of(draws.txn()), 128)))
            elif roll < 0.75:
                request = placed(range_of(draws.range()))
                assert type(request) is RangeRequest
                await self.same(str(request), lambda side: side.range(request))
            elif roll < 0.87:
                await self.where()
            elif roll < 0.92:
                await self.lease()
            elif roll < 0.95:
                self.watch()
            elif roll < 0.97:
                revision = self.random.choice([max(draws.revision - 60, 1), draws.compacted or 1, draws.revision + 1])
                if await self.same(f"compact {revision}", lambda side: side.compact(revision)) is not None:
                    draws.compacted = revision
            else:
                await self.same("alarms", lambda side: side.alarms())
        except Refused:
            # What etcd's own door refuses before a store sees it.
            pass

    async def write(self, op: Op) -> None:
        if type(op) is Txn:
            await self.same(str(op), lambda side: side.txn(op.compare, op.success, op.failure))
        else:
            await self.same(str(op), lambda side: side.txn((), (op,)))

    def node_or_pod(self) -> Txn:
        name, n = f"o{self.random.randrange(6)}", self.random.randrange(9)
        key = self.random.choice((NODE, POD)) + name.encode()
        if self.random.random() < 0.25:
            return Txn((), (DeleteRange(key, prev_kv=True),))
        resources = {"cpu": str(n), "memory": "32Gi", "pods": "110"}
        containers = [{"name": "main", "resources": {"requests": {"cpu": str(n % 4)}}}]
        body: dict[str, Any] = {"metadata": {"name": name, "uid": f"uid-{n}"}}
        if key.startswith(NODE):
            body["status"] = {"allocatable": resources}
        else:
            body["spec"] = {"nodeName": f"o{self.random.randrange(6)}", "containers": containers}
        return Txn((Compare(key, "VERSION", "<", 9),), (Put(key, orjson.dumps(body)),), (RangeRequest(key),))

    async def where(self) -> None:
        fields = self.random.choice(((), ("free.cpu",), ("free.memory", "free.cpu")))
        where = self.random.choice((FREE, FREE, None)) if fields else FREE
        now = self.draws.revision
        revision = self.random.choice((0, 0, 0, now, now - 3, now // 2, self.draws.compacted, now + 1))
        request = RangeRequest(
            NODE, prefix_end(NODE), self.random.choice((0, 1, 3)), max(revision, 0), where=where, fields=fields
        )

        async def asked(side: Storage) -> RangeResult:
            return (await side.range(request))._replace(stats=None)

        await self.same(str(request), asked)

    async def lease(self) -> None:
        grant, roll = self.draws.grant(), self.random.random()
        if roll < 0.5:
            await self.same(str(grant), lambda side: side.lease_grant(grant.TTL, grant.ID))
        elif roll < 0.8:
            await self.same(f"keep {grant.ID}", lambda side: side.lease_keep_alive(grant.ID))
        else:
            await self.same(f"revoke {grant.ID}", lambda side: side.lease_revoke(grant.ID))

    def watch(self) -> None:
        now = self.draws.revision
        start = self.random.choice((0, now + 1, now, now // 2, 1, now + 5))
        if start:
            where = self.random.choice((None, FREE))
            self.watches.append((Told(self.sides[0], start, where), Told(self.sides[1], start, where)))

    async def end(self) -> None:
        """All watches have told the same, up to a last write that all see."""
        for key in (PLACE, NODE + b"last"):
            value = b'{"metadata":{"name":"last"},"status":{"allocatable":{"cpu":"64"}}}'
            await self.write(Txn((), (Put(key, value),)))
        for pair in self.watches:
            await until(partial(self._told_all, *pair), "watches have told all")
            assert pair[0].error == pair[1].error
            assert _with_revisions(pair[0].events) == _with_revisions(pair[1].events)
            for side in pair:
                side.handle.cancel()

    def _told_all(self, *watches: Told) -> bool:
        return all(each.error or each.revision >= self.draws.revision for each in watches)


def _with_revisions(events: Sequence[Event]) -> list[tuple[str, Any, Any]]:
    return [(each.type, each.kv, each.prev_kv) for each in events]


async def _outcome(answer: Awaitable[T]) -> tuple[str, Any]:
    try:
        return "ok", await answer
    except MinikubeError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("seed", SEEDS)
async def test_drawn_histories_end_alike_on_both_stores(tmp_path: Path, seed: int) -> None:
    config = MemberConfig(own_gc=False, retain_s=0, retain_bytes=0)
    member = StoreMember(SystemDisk(tmp_path), SystemClock(), random.Random(seed), config)
    with real_etcd(tmp_path / "etcd") as place:
        await member.start()
        try:
            async with storage_at(place) as other, patience():
                pair = Pair(member.storage, other, seed)
                assert NODES.field_set is not None
                field_set = NODES.field_set
                await pair.same("declare", lambda side: side.declare(field_set))
                spec = IndexSpec("of-nodes", "nodes", ("free.cpu", "free.memory"), "max-tree")
                revision = await pair.same("declare an index", lambda side: side.declare_index(spec))
                assert revision == 2
                pair.draws.revision = revision
                for _ in range(COMMANDS):
                    await pair.step()
                await pair.end()
                specs = [[each.spec for each in await side.indexes()] for side in pair.sides]
                assert specs[0] == specs[1] == [spec]
        finally:
            await member.stop()
        await asyncio.sleep(0)


@pytest.mark.timeout(120 + EXAMPLES)
def test_drawn_requests_answer_alike_on_both_stores() -> None:
    """kubectl's requests and worse, as `test_differential` asks them of upstream."""
    with (
        ours.serve() as embedded,
        ours.serve_on_etcd() as behind,
        Server(embedded["url"], embedded["token"]) as one,
        Server(behind["url"], behind["token"]) as other,
    ):
        report = judging.judge(one, other, EXAMPLES, 29)
    assert not report.findings, f"{report.text()}\n{report.counts()}"
