"""Large messages in pieces, each made once the one before was sent: a client that reads slowly holds one piece, and
references to the store's values.

The repeated fields of a protobuf message may be split over its bytes, so each piece is a separate message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from minikube_py.api.protobuf_writing import varint
from minikube_py.etcd.answers import kv_bytes, kvs_bytes
from minikube_py.etcd.messages import BY_NAME
from minikube_py.mvcc.types import Event, KeyValue
from minikube_py.store.protocol import split

PIECE_BYTES: Final = 256 << 10
ITEM_COST_BYTES: Final = 320
"""Counted with each key or event of a piece: making it takes as long as copying that many bytes or more."""
MEASURED: Final = 1_000
"""Keys or events whose sizes are computed in one step."""
KEPT_BYTES: Final = 32 << 20
"""Limit of pieces kept for watches that ask alike; a watch further behind makes its own again."""


class Pieces(NamedTuple):
    """A message: its size, and its bytes."""

    size_bytes: int
    pieces: Iterable[bytes]


async def message_of(name: str, answer: Any) -> Any:
    """Of an answer that may be a message, its bytes, or those in pieces, made between the loop's other work."""
    data = answer
    if type(answer) is Pieces:
        parts = list[bytes]()
        for piece in answer.pieces:
            parts.append(piece)
            await asyncio.sleep(0)
        data = b"".join(parts)
    return BY_NAME[name].FromString(data) if type(data) is bytes else data


def is_small(kvs: Sequence[KeyValue], count_max: int) -> bool:
    """Whether one step can write them."""
    count = len(kvs)
    return count < 2 or (count <= count_max and sum([len(kv.value) for kv in kvs]) <= PIECE_BYTES)


def _varint_bytes(number: int) -> int:
    return (number.bit_length() + 6) // 7 or 1 if number >= 0 else 10


def kv_size(kv: KeyValue) -> int:
    """Of `kv_bytes`."""
    key, value, create_revision, mod_revision, version, lease = kv
    size = 1 + _varint_bytes(len(key)) + len(key)
    for whole in (create_revision, mod_revision, version, lease):
        if whole:
            size += 1 + _varint_bytes(whole)
    return size + 1 + _varint_bytes(len(value)) + len(value) if value else size


def field_size(size: int) -> int:
    """Of a field below 16 with so many bytes."""
    return 1 + _varint_bytes(size) + size


async def measured(items: Sequence[Any], size_of: Callable[[Any], int], sizes: list[int]) -> list[int]:
    """Completes `sizes`, in steps that several may share."""
    while len(sizes) < len(items):
        sizes += map(size_of, items[len(sizes) : len(sizes) + MEASURED])
        await asyncio.sleep(0)
    return sizes


async def kvs_pieces(number: int, head: Any, kvs: Sequence[KeyValue]) -> Pieces:
    """`head` with `kvs` in the field of that number."""
    first = head.SerializeToString()
    sizes = await measured(kvs, lambda kv: field_size(kv_size(kv)), [])

    def made() -> Iterator[bytes]:
        yield first
        for start, stop in split(kvs, (size + ITEM_COST_BYTES for size in sizes), PIECE_BYTES):
            yield kvs_bytes(number, kvs[start:stop])

    return Pieces(len(first) + sum(sizes), made())


class Kept:
    """The latest pieces of all batches, by batch and events."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int, int], bytes] = {}
        self._batches = 0
        self.bytes = self.made = 0

    def number(self) -> int:
        self._batches += 1
        return self._batches

    def piece(self, key: tuple[int, int, int], make: Callable[[], bytes]) -> bytes:
        found = self._pieces.pop(key, None)
        if found is None:
            found = make()
            self.made += 1
            self.bytes += len(found)
        self._pieces[key] = found
        while self.bytes > KEPT_BYTES:
            self.bytes -= len(self._pieces.pop(next(iter(self._pieces))))
        return found


class Batch:
    """The events of one answer, for all watches that ask alike. `compacted`: previous values are sent since then."""

    __slots__ = ("_compacted", "_kept", "_number", "_prev_kv", "_sizes", "cost_bytes", "events", "revision")

    def __init__(
        self, kept: Kept, events: Sequence[Event], revision: int, cost_bytes: int, *, prev_kv: bool, compacted: int
    ) -> None:
        self.events = events
        self.revision = revision
        self.cost_bytes = cost_bytes
        self._kept = kept
        self._number = kept.number()
        self._prev_kv = prev_kv
        self._compacted = compacted
        self._sizes: list[int] = []

    def _previous(self, event: Event) -> KeyValue | None:
        return event.prev_kv if self._prev_kv and event.kv.mod_revision - 1 >= self._compacted else None

    def _size(self, event: Event) -> int:
        previous = self._previous(event)
        size = field_size(kv_size(event.kv)) + (0 if previous is None else field_size(kv_size(previous)))
        return field_size(size + (2 if event.type == "DELETE" else 0))

    def _bytes(self, events: Sequence[Event]) -> bytes:
        parts = list[bytes]()
        for event in events:
            made, previous = kv_bytes(event.kv), self._previous(event)
            fields = [b"\x08\x01\x12" if event.type == "DELETE" else b"\x12", varint(len(made)), made]
            if previous is not None:
                made = kv_bytes(previous)
                fields += (b"\x1a", varint(len(made)), made)
            whole = b"".join(fields)
            parts += (b"\x5a", varint(len(whole)), whole)
        return b"".join(parts)

    async def answers(self, head: Any, fragment_bytes: int) -> list[Pieces]:
        """`head` with the events. If they reach `fragment_bytes`, 0 for no limit, several as etcd cuts them: at least
        one event in each, and all but the last announce more."""
        sizes, bare_bytes, cuts = await measured(self.events, self._size, self._sizes), head.ByteSize(), [(0, 0)]
        if fragment_bytes and bare_bytes + sum(sizes) >= fragment_bytes:
            # Two bytes announce more.
            cuts = list(split(sizes, iter(sizes), fragment_bytes - bare_bytes - 3))
        cuts[-1] = (cuts[-1][0], len(sizes))
        found = []
        for start, stop in cuts:
            head.fragment = stop < len(sizes)
            first = head.SerializeToString()
            found.append(Pieces(len(first) + sum(sizes[start:stop]), self._pieces(first, start, stop)))
        return found

    def _pieces(self, first: bytes, start: int, stop: int) -> Iterator[bytes]:
        yield first
        sizes = [size + ITEM_COST_BYTES for size in self._sizes[start:stop]]
        for low, high in split(sizes, iter(sizes), PIECE_BYTES):
            events = self.events[start + low : start + high]
            yield self._kept.piece((self._number, start + low, start + high), partial(self._bytes, events))
