"""RocksDB by rocksdict: only ordered keys. Either all values are read, decoded and filtered, or each node has a
secondary key by its CPU, and the range of sufficient CPUs is read."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rivals.contract import LOGGED, Absent, Entry, Node, Question

ROW, NUMBER, BY_CPU = struct.Struct(">III"), struct.Struct(">I"), struct.Struct(">cII")
ROWS_END = b"s"


class Scan:
    """Keys `r<number>`."""

    def __init__(self, database: Any, module: Any, options: Any) -> None:
        self._database, self._module, self._options = database, module, options

    def load(self, nodes: Sequence[Node]) -> None:
        for number, node in enumerate(nodes):
            self._database[b"r" + NUMBER.pack(number)] = ROW.pack(*node)
        self._database.flush()

    def update(self, number: int, node: Node) -> None:
        self._database.put(b"r" + NUMBER.pack(number), ROW.pack(*node), self._options)

    def _found(self, question: Question) -> Iterator[int]:
        unpack = ROW.unpack
        cpu, memory, gpus = question
        for key, value in self._database.items(from_key=b"r"):
            if key >= ROWS_END:
                return
            row = unpack(value)
            if row[0] >= cpu and row[1] >= memory and row[2] >= gpus:
                yield NUMBER.unpack(key[1:])[0]

    def first(self, question: Question, limit: int) -> Sequence[int]:
        return [number for number, _ in zip(self._found(question), range(limit))]

    def every(self, question: Question) -> Sequence[int]:
        return list(self._found(question))


class ByCpu(Scan):
    """Also keys `c<cpu><number>`, holding the row; a change reads the old row, and writes all in one batch."""

    def load(self, nodes: Sequence[Node]) -> None:
        for number, node in enumerate(nodes):
            self._database[b"r" + NUMBER.pack(number)] = ROW.pack(*node)
            self._database[BY_CPU.pack(b"c", node.cpu_milli, number)] = ROW.pack(*node)
        self._database.flush()

    def update(self, number: int, node: Node) -> None:
        key = b"r" + NUMBER.pack(number)
        old_cpu = ROW.unpack(self._database[key])[0]
        batch = self._module.WriteBatch(raw_mode=True)
        batch.delete(BY_CPU.pack(b"c", old_cpu, number))
        batch.put(BY_CPU.pack(b"c", node.cpu_milli, number), ROW.pack(*node))
        batch.put(key, ROW.pack(*node))
        self._database.write(batch, self._options)

    def _found(self, question: Question) -> Iterator[int]:
        unpack = ROW.unpack
        _, memory, gpus = question
        for key, value in self._database.items(from_key=BY_CPU.pack(b"c", question.cpu_milli, 0)):
            if key >= b"d":
                return
            row = unpack(value)
            if row[1] >= memory and row[2] >= gpus:
                yield NUMBER.unpack(key[5:])[0]


@contextmanager
def start(make: Callable[[Any, Any, Any], Scan], synced: bool) -> Iterator[Scan]:
    try:
        import rocksdict
    except ImportError:
        raise Absent("pip install rocksdict") from None
    with tempfile.TemporaryDirectory(prefix="rival-rocksdb-") as folder:
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        database = rocksdict.Rdict(str(Path(folder, "db")), options)
        try:
            writes = rocksdict.WriteOptions()
            writes.sync = synced
            yield make(database, rocksdict, writes)
        finally:
            database.close()


def entries(synced: bool) -> list[Entry]:
    return [
        Entry("RocksDB, scan and decode", LOGGED[synced], partial(start, Scan, synced)),
        Entry("RocksDB, second key by CPU", LOGGED[synced], partial(start, ByCpu, synced)),
    ]
