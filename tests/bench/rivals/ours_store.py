"""Our store in this process, queried by a range with a `where`: without a declared index, and with each named one."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rivals.contract import LOGGED, Entry, Node, Question, batches, number_of
from rivals.objects import GPU, PREFIX, key_of, stored

from minikube_py.env import SystemClock, SystemDisk, SystemFile
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end
from minikube_py.store.member import MemberConfig, StoreMember

T = TypeVar("T")
FIELDS = ("free.cpu", "free.memory", f"free.{GPU}")
COLUMNS = "columns"
READY_WITHIN_S = 60.0


class UnsyncedFile(SystemFile):
    def sync(self) -> None:
        """Like the rivals: written to the file, not synced to disk."""


class UnsyncedDisk(SystemDisk):
    def open(self, name: str, *, create: bool = False) -> UnsyncedFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return UnsyncedFile(os.open(self.folder / name, flags, 0o600))


def where_of(question: Question) -> Where:
    texts = (f"{question.cpu_milli}m", f"{question.memory_mib}Mi", str(question.gpus))
    return Where(tuple(Comparison(field, ">=", (text,)) for field, text in zip(FIELDS, texts)))


class Store:
    """`structure` "columns" is the store's default without declarations. `answered`: the structures used, since the
    planner may choose another than the declared one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, member: StoreMember, structure: str) -> None:
        self._run, self._storage, self._structure = loop.run_until_complete, member.storage, structure
        self.answered: Counter[str] = Counter()

    def load(self, nodes: Sequence[Node]) -> None:
        self._run(self._storage.declare(NODES))
        for batch in batches(nodes, 100):
            self._run(self._storage.txn((), [Put(key_of(i), stored(i, node)) for i, node in batch]))
        if self._structure != COLUMNS:
            self._run(self._declared())

    async def _declared(self) -> None:
        spec = IndexSpec("fits", NODES.name, FIELDS, self._structure, memory_limit_bytes=1 << 30)
        await self._storage.declare_index(spec)
        async with asyncio.timeout(READY_WITHIN_S):
            while True:
                (report,) = await self._storage.indexes()
                if report.state == "ready":
                    return
                if report.state == "degraded":
                    raise SystemExit(f"{self._structure} is degraded: {report.reason}")
                await asyncio.sleep(0.01)

    def update(self, number: int, node: Node) -> None:
        self._run(self._storage.txn((), (Put(key_of(number), stored(number, node)),)))

    def first(self, question: Question, limit: int) -> Sequence[int]:
        request = RangeRequest(PREFIX, prefix_end(PREFIX), limit, where=where_of(question), order="ANY")
        return self._numbers(request)

    def every(self, question: Question) -> Sequence[int]:
        return self._numbers(RangeRequest(PREFIX, prefix_end(PREFIX), where=where_of(question)))

    def _numbers(self, request: RangeRequest) -> Sequence[int]:
        result = at_once(self._storage.range(request))
        assert result.stats is not None and result.stats.objects_decoded == 0
        self.answered[result.stats.structure] += 1
        return [number_of(kv.key.decode()) for kv in result.kvs]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Completes without yielding to the loop: true for reads of a sole member."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("a read of a sole member had to wait")


@contextmanager
def start(structure: str, synced: bool) -> Iterator[Store]:
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix="rival-ours-") as folder:
        disk = (SystemDisk if synced else UnsyncedDisk)(Path(folder))
        member = StoreMember(disk, SystemClock(), random.Random(0), MemberConfig(own_gc=True))
        loop.run_until_complete(member.start())
        try:
            yield Store(loop, member, structure)
        finally:
            loop.run_until_complete(member.stop())
            loop.close()


def entries(structures: Sequence[str], synced: bool) -> list[Entry]:
    return [
        Entry(f"minikube_py, in the store, {name}", LOGGED[synced], partial(start, name, synced)) for name in structures
    ]
