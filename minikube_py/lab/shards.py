"""Shards that really cost something to open: cold ones in files, and remote ones in another process.

`ColdShards` keeps a file for each shard, which `find` reads, decodes and drops. Changes wait in memory, as in any LSM
store, and are written into the file once there are FLUSH_CHANGES of them. Two encodings: "columns", int64 side by side
as a store made for it would keep them, and "objects", JSON of about OBJECT_BYTES for each row, as etcd has them.

`RemoteShards` asks a shard server (`lab.shard_server`) over TCP; `spawned` starts one as a process of its own.
Both are `ShardReader`s: `Sharded.over(ColdShards(folder, 3), 3, shards=64, filter="grafite")`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from minikube_py.errors import Corruption, InvalidRequest, Unavailable
from minikube_py.index.structure import MISSING, Box, IntArray, Point
from minikube_py.index.structures.shard_reader import Read, find_in
from minikube_py.lab.shard_server import arrays_of, bytes_of, receive, send

FLUSH_CHANGES: Final = 256
OBJECT_BYTES: Final = 320
ENCODINGS: Final = ("columns", "objects")
_MAGIC = b"mkshard1"
_HEADER_BYTES = len(_MAGIC) + 4


class ColdShards:
    """`ShardReader` over the files of `folder`, which holds none yet. `evict`: the system's cache forgets a file before
    it is read, so that the disk is really asked.

    Raises: InvalidRequest for an unknown encoding or a folder with shards in it; Corruption where a file is not what
    was written."""

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
            # What is not on the disk yet cannot be dropped from the cache.
            os.fdatasync(file.fileno())
        os.replace(new, self._path(shard))
        self._written.add(shard)

    def _path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:05d}"

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, shard: int) -> tuple[IntArray, IntArray]:
        """Slots, and points in columns, as the file has them."""
        if shard not in self._written:
            return np.empty(0, dtype=np.int64), np.empty((self._dimensions, 0), dtype=np.int64)
        path = self._path(shard)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self.evict:
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
            raise Corruption(f"{path}: not what was written; delete the folder and build the shards anew")
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
        return bytes_of(slots) + bytes_of(points.T)
    return b"\n".join(_object(slot, point) for slot, point in zip(slots.tolist(), points.tolist()))


def _object(slot: int, point: list[int]) -> bytes:
    """A row as JSON, with as much beside the values as a stored object has."""
    values = {f"field{dimension}": value for dimension, value in enumerate(point) if value != MISSING}
    plain = orjson.dumps({"slot": slot, "values": values, "about": ""})
    return plain[:-2] + b"x" * (OBJECT_BYTES - len(plain)) + plain[-2:]


def _decoded(encoding: str, body: bytes, dimensions: int) -> tuple[IntArray, IntArray]:
    if encoding == "columns":
        table = np.frombuffer(body, dtype="<i8").reshape(dimensions + 1, -1)
        return table[0], table[1:]
    rows: list[dict[str, Any]] = [orjson.loads(line) for line in body.split(b"\n") if line]
    names = [f"field{dimension}" for dimension in range(dimensions)]
    slots = np.array([row["slot"] for row in rows], dtype=np.int64)
    columns = np.array([[row["values"].get(name, MISSING) for row in rows] for name in names], dtype=np.int64)
    return slots, columns.reshape(dimensions, -1)


class RemoteShards:
    """`ShardReader` over one TCP connection to a shard server, whose shards are empty at first.

    Raises: Unavailable where the server cannot be reached or is gone; a change that was not answered may or may not
    have been made there: build the shards anew."""

    def __init__(self, address: tuple[str, int], dimensions: int, timeout_s: float = 10.0) -> None:
        self.address, self._dimensions = address, dimensions
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise Unavailable(f"no shard server at {address[0]}:{address[1]}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ask("begin", dimensions)

    def _ask(self, *request: Any) -> Any:
        try:
            send(self._socket, list(request))
            answer = receive(self._socket)
        except OSError as error:
            raise Unavailable(f"the shard server at {self.address[0]}:{self.address[1]} is gone: {error}") from error
        if answer is None:
            raise Unavailable(f"the shard server at {self.address[0]}:{self.address[1]} has closed the connection")
        return answer

    def fill(self, shard: int, slots: IntArray, points: IntArray) -> None:
        self._ask("fill", shard, bytes_of(slots), bytes_of(points))

    def put(self, shard: int, slot: int, point: Point) -> None:
        self._ask("put", shard, slot, point)

    def remove(self, shard: int, slot: int) -> None:
        self._ask("remove", shard, slot)

    def point(self, shard: int, slot: int) -> Point:
        return tuple(self._ask("point", shard, slot))

    def find(self, shard: int, box: Box, limit: int = 0) -> Read:
        slots, examined, complete = self._ask("find", shard, box.lows, box.highs, limit)
        return Read(np.frombuffer(slots, dtype="<i8"), examined, complete)

    def contents(self, shard: int) -> tuple[IntArray, IntArray]:
        slots, points = self._ask("contents", shard)
        return arrays_of(slots, points, self._dimensions)

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._socket.close()


@contextmanager
def spawned() -> Iterator[tuple[str, int]]:
    """A shard server in a process of its own on this machine: its address. It ends with the block, or with us.

    Raises: Unavailable where it does not start."""
    command = [sys.executable, "-m", "minikube_py.lab.shard_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline().split()
            if len(line) != 2:
                raise Unavailable(f"the shard server did not start: it ended with {process.wait(10)}")
            yield line[0], int(line[1])
        finally:
            # It ends when its input does.
            process.stdin.close()
            process.wait(10)
