"""Remote shards: every row is an object in a store member, a separate process with its own folder.

A row's key is /shards/<shard>/<slot>, and its values are fields declared by the client. Opening a shard means querying
the member over TLS for the keys in its range that match the box: through the product's client, protocol and index, so
that it costs as much as any query. The member's index covers all its rows; for a small key range it scans the range's
rows instead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.control_plane.private_files import make_private_folder
from minikube_py.control_plane.supervisor import Child
from minikube_py.control_plane.tokens import ensure_token
from minikube_py.env import SystemClock
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.structure import HIGH, LOW, MISSING, NO_SLOTS, Box, IntArray, Point
from minikube_py.index.structures.shard_reader import Read
from minikube_py.mvcc.txn import MAX_TXN_OPS
from minikube_py.mvcc.types import DeleteRange, Put, RangeRequest, RangeResult, Txn, prefix_end
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.studies.bloom.shard_objects import field_name, object_of, points_of

PREFIX: Final = b"/shards/"
HOST: Final = "127.0.0.1"
T = TypeVar("T")


def field_set(dimensions: int) -> FieldSet:
    names = [field_name(dimension) for dimension in range(dimensions)]
    specs = [FieldSpec(name, "int", "path@1", {"path": f"values.{name}"}) for name in names]
    return FieldSet("shards", PREFIX, tuple(specs))


class RemoteShards:
    """`ShardReader` over a store member, initially empty: one reader at a time. Its event loop runs only during calls,
    in the caller's thread, which must have no other running loop.

    Raises: Unavailable if the member is unreachable. OutcomeUnknown for a change without a response: rebuild the
    shards."""

    def __init__(self, member: Endpoint, dimensions: int, timeout_s: float = 10.0) -> None:
        self._dimensions = dimensions
        self._loop = asyncio.new_event_loop()
        self._client = StoreClient(member, SystemClock(), random.Random(), request_timeout_s=timeout_s, fail_fast=True)
        try:
            self._run(self._begin())
        except BaseException:
            self.close()
            raise

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _begin(self) -> None:
        await self._client.start()
        await self._client.command(DeleteRange(PREFIX, prefix_end(PREFIX)))
        await self._client.declare(field_set(self._dimensions))

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._client.close())
            # Lets the client finish work deferred to the next turn.
            self._run(asyncio.sleep(0))
            self._loop.close()

    # -- writing ---------------------------------------------------------------------------------------------------

    def fill(self, shard: int, slots: IntArray, points: IntArray) -> None:
        self._run(self._fill(shard, slots.tolist(), points.tolist()))

    async def _fill(self, shard: int, slots: list[int], points: list[list[int]]) -> None:
        key = _shard_key(shard)
        await self._client.command(DeleteRange(key, prefix_end(key)))
        puts = [Put(_key(shard, slot), object_of(slot, point)) for slot, point in zip(slots, points, strict=True)]
        parts = [tuple(puts[start : start + MAX_TXN_OPS]) for start in range(0, len(puts), MAX_TXN_OPS)]
        await asyncio.gather(*(self._client.command(Txn((), part)) for part in parts))

    def put(self, shard: int, slot: int, point: Point) -> None:
        self._run(self._client.command(Put(_key(shard, slot), object_of(slot, point))))

    def remove(self, shard: int, slot: int) -> None:
        self._run(self._client.command(DeleteRange(_key(shard, slot))))

    # -- reading ---------------------------------------------------------------------------------------------------

    def _range(self, request: RangeRequest) -> RangeResult:
        return self._run(self._client.range(request))

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        if box.empty:
            return Read(NO_SLOTS, 0, True)
        # Missing values sort below all others, but satisfy no `where`: conditions that accept them are tested here.
        here = [place for place, (low, high) in enumerate(zip(box.lows, box.highs)) if low == MISSING and high < HIGH]
        where = Where(tuple(_comparisons(box)))
        key = _shard_key(shard)
        result = self._range(
            RangeRequest(
                key,
                prefix_end(key),
                0 if here else limit,
                keys_only=True,
                where=where if where else None,
                order="ANY",
                fields=tuple([field_name(place) for place in here]),
            )
        )
        slots = np.array([int(kv.key[len(key) :]) for kv in result.kvs], dtype=np.int64)
        examined = result.stats.rows_examined if result.stats is not None else len(slots)
        if not here:
            return Read(slots, examined, not result.more)
        highs = [box.highs[place] for place in here]
        passing = np.array([_below(values, highs) for values in result.fields or ()], dtype=np.bool_)
        slots = slots[passing]
        return Read(slots[:limit] if limit else slots, max(examined, len(passing)), not 0 < limit < len(slots))

    def point(self, shard: int, slot: int) -> Point:
        _, points = points_of([kv.value for kv in self._range(RangeRequest(_key(shard, slot))).kvs], self._dimensions)
        return tuple(points[0].tolist())

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        key = _shard_key(shard)
        kvs = self._range(RangeRequest(key, prefix_end(key))).kvs
        return points_of([kv.value for kv in kvs], self._dimensions)

    def size_bytes(self) -> int:
        return 0


def _shard_key(shard: int) -> bytes:
    return PREFIX + b"%05d/" % shard


def _key(shard: int, slot: int) -> bytes:
    return _shard_key(shard) + b"%d" % slot


def _comparisons(box: Box) -> Iterator[Comparison]:
    """The part of `box` that a `where` can express: not that a missing value is below a bound."""
    for dimension, (low, high) in enumerate(zip(box.lows, box.highs)):
        if low == MISSING:
            continue
        name = field_name(dimension)
        if low == high:
            yield Comparison(name, "=", (str(low),))
            continue
        if low > LOW:
            yield Comparison(name, ">=", (str(low),))
        elif high == HIGH:
            yield Comparison(name, "exists")
        if high < HIGH:
            yield Comparison(name, "<=", (str(high),))


def _below(values: tuple[int | str | None, ...], highs: list[int]) -> bool:
    return all(value is None or int(value) <= high for value, high in zip(values, highs))


@contextmanager
def spawned(folder: Path) -> Iterator[Endpoint]:
    """A single-member store in a local process, as started by `minikube-py store`: its endpoint and token. Its data,
    certificate and token are in `folder`. It ends with the block or with this process.

    Raises: SetupError; RoleFailed if it does not start."""
    make_private_folder(folder)
    certificates = ensure_certificates(folder / "pki")
    token_file = folder / "token"
    token = ensure_token(token_file)
    flags = [
        *("--data-dir", str(folder / "member"), "--listen", f"{HOST}:0", "--token-file", str(token_file)),
        *("--tls-cert-file", str(certificates.server_file)),
        *("--tls-private-key-file", str(certificates.server_key_file)),
    ]
    child = Child("store", lambda: flags, folder / "store.log", SystemClock())
    loop = asyncio.new_event_loop()
    try:
        where = loop.run_until_complete(child.start())
        yield Endpoint(HOST, int(where.rpartition(":")[2]), token, certificates.client_context())
    finally:
        loop.run_until_complete(child.stop())
        loop.close()
