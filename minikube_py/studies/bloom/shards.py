"""Cold shards, which are costly to open: `Sharded.over(ColdShards(folder, 3), 3, shards=64, filter="grafite")`.

`ColdShards` keeps a file for each shard, which `find` reads, decodes and drops. Changes are buffered in memory, as in
any LSM store, and flushed to the file at FLUSH_CHANGES. Two encodings: "columns", int64 columns as in a column store,
and "objects", JSON of about OBJECT_BYTES per row, as in etcd.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

import numpy as np

from minikube_py.env import sync_data
from minikube_py.errors import Corruption, InvalidRequest
from minikube_py.index.structure import Box, IntArray, Point
from minikube_py.index.structures.shard_reader import Read, find_in
from minikube_py.studies.bloom.shard_objects import object_of, points_of

FLUSH_CHANGES: Final = 256
ENCODINGS: Final = ("columns", "objects")
_MAGIC = b"mkshard1"
_HEADER_BYTES = len(_MAGIC) + 4


class ColdShards:
    """`ShardReader` over the files of `folder`, initially without shards. `evict`: drops a file from the system's cache
    before reading it, so that the disk is actually read.

    Raises: InvalidRequest for an unknown encoding or a folder with shards in it; Corruption if a file is not as
    written."""

    def __init__(self, folder: Path, dimensions: int, encoding: str = "columns", evict: bool = False) -> None:
        if encoding not in ENCODINGS:
            raise InvalidRequest(f'encoding is "{encoding}": it must be one of {", ".join(ENCODINGS)}')
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob("shard-*")):
            raise InvalidRequest(f"{folder} holds shards already: name an empty folder")
        self.folder, self.evict = folder, evict
        self.bytes_read = 0
        self._dimensions, self._encoding = dimensions, encoding
        self._changes: dict[int, dict[int, Point | None]] = {}
        self._written: set[int] = set()

    # -- writing ---------------------------------------------------------------------------------------------------

    def fill(self, shard: int, slots: IntArray, points: IntArray) -> None:
        self._changes.pop(shard, None)
        self._write(shard, slots, points)

    def put(self, shard: int, slot: int, point: Point) -> None:
        self._change(shard, slot, point)

    def remove(self, shard: int, slot: int) -> None:
        self._change(shard, slot, None)

    def _change(self, shard: int, slot: int, point: Point | None) -> None:
        changes = self._changes.setdefault(shard, {})
        changes[slot] = point
        if len(changes) >= FLUSH_CHANGES:
            slots, points = self.contents(shard)
            self.fill(shard, slots, points)

    def _write(self, shard: int, slots: IntArray, points: IntArray) -> None:
        body = _encoded(self._encoding, slots, points)
        new = self._path(shard).with_suffix(".new")
        with open(new, "wb") as file:
            file.write(_MAGIC + zlib.crc32(body).to_bytes(4, "little"))
            file.write(body)
            file.flush()
            # Dirty pages cannot be dropped from the cache.
            sync_data(file.fileno())
        os.replace(new, self._path(shard))
        self._written.add(shard)

    def _path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:05d}"

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, shard: int) -> tuple[IntArray, IntArray]:
        """Slots, and points in columns, from the file."""
        if shard not in self._written:
            return np.empty(0, dtype=np.int64), np.empty((self._dimensions, 0), dtype=np.int64)
        path = self._path(shard)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self.evict and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            chunks = []
            while chunk := os.read(fd, 1 << 20):
                chunks.append(chunk)
        finally:
            os.close(fd)
        content = b"".join(chunks)
        self.bytes_read += len(content)
        body = content[_HEADER_BYTES:]
        if content[:_HEADER_BYTES] != _MAGIC + zlib.crc32(body).to_bytes(4, "little"):
            raise Corruption(f"{path}: not what was written; delete the folder and build the shards again")
        return _decoded(self._encoding, body, self._dimensions)

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        slots, columns = self._read(shard)
        changes = self._changes.get(shard)
        if not changes:
            return find_in(slots, columns, len(slots), box, limit)
        slots, columns = self._merged(slots, columns, changes)
        return find_in(slots, columns, len(slots), box, limit)

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        slots, columns = self._merged(*self._read(shard), self._changes.get(shard, {}))
        return slots, np.ascontiguousarray(columns.T)

    def _merged(
        self, slots: IntArray, columns: IntArray, changes: dict[int, Point | None]
    ) -> tuple[IntArray, IntArray]:
        if not changes:
            return slots, columns
        stays = ~np.isin(slots, np.fromiter(changes, dtype=np.int64, count=len(changes)))
        new = [(slot, point) for slot, point in changes.items() if point is not None]
        new_slots = np.array([slot for slot, _ in new], dtype=np.int64)
        new_points = np.array([point for _, point in new], dtype=np.int64).reshape(-1, self._dimensions)
        return (
            np.concatenate((slots[stays], new_slots)),
            np.concatenate((columns[:, stays], new_points.T), axis=1),
        )

    def point(self, shard: int, slot: int) -> Point:
        changed = self._changes.get(shard, {}).get(slot)
        if changed is not None:
            return changed
        slots, columns = self._read(shard)
        return tuple(columns[:, np.flatnonzero(slots == slot)[0]].tolist())

    def size_bytes(self) -> int:
        changes = sum(map(len, self._changes.values()))
        return changes * (100 + 36 * self._dimensions)

    def disk_bytes(self) -> int:
        return sum(self._path(shard).stat().st_size for shard in self._written)


def _encoded(encoding: str, slots: IntArray, points: IntArray) -> bytes:
    if encoding == "columns":
        return np.vstack((slots, points.T)).astype("<i8").tobytes()
    return b"\n".join(object_of(slot, point) for slot, point in zip(slots.tolist(), points.tolist()))


def _decoded(encoding: str, body: bytes, dimensions: int) -> tuple[IntArray, IntArray]:
    if encoding == "columns":
        table = np.frombuffer(body, dtype="<i8").reshape(dimensions + 1, -1)
        return table[0], table[1:]
    slots, points = points_of(filter(None, body.split(b"\n")), dimensions)
    return slots, points.T
