"""SQLite: a table with an index on each column, with one index on all three, and its R*Tree."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from rivals.contract import LOGGED, Absent, Entry, Node, Question

INDEXES = {
    "B-tree on each": ["create index cpu on nodes(cpu)", "create index memory on nodes(memory)",
                       "create index gpus on nodes(gpus)"],
    "B-tree on all three": ["create index together on nodes(gpus, cpu, memory)"],
}  # fmt: skip


class Rows:
    """Nodes in a table `nodes`, with any indexes."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def first(self, question: Question, limit: int) -> Sequence[int]:
        text = "select number from nodes where cpu >= ? and memory >= ? and gpus >= ? limit ?"
        return [row[0] for row in self._database.execute(text, (*question, limit))]

    def every(self, question: Question) -> Sequence[int]:
        text = "select number from nodes where cpu >= ? and memory >= ? and gpus >= ?"
        return [row[0] for row in self._database.execute(text, question)]


class Table(Rows):
    def __init__(self, database: sqlite3.Connection, indexes: Sequence[str]) -> None:
        super().__init__(database)
        self._indexes = indexes

    def load(self, nodes: Sequence[Node]) -> None:
        run = self._database.execute
        run("create table nodes(number integer primary key, cpu int, memory int, gpus int)")
        run("begin")
        self._database.executemany(
            "insert into nodes values (?, ?, ?, ?)", ((i, *node) for i, node in enumerate(nodes))
        )
        run("commit")
        for index in self._indexes:
            run(index)
        run("analyze")

    def update(self, number: int, node: Node) -> None:
        self._database.execute("update nodes set cpu = ?, memory = ?, gpus = ? where number = ?", (*node, number))


class RStar(Rows):
    """Points as boxes without extent."""

    def load(self, nodes: Sequence[Node]) -> None:
        run = self._database.execute
        try:
            run("create virtual table nodes using rtree_i32(number, cpu, cpu_to, memory, memory_to, gpus, gpus_to)")
        except sqlite3.OperationalError as error:
            raise Absent(f"this SQLite has no R*Tree: {error}") from None
        rows = ((i, c, c, m, m, g, g) for i, (c, m, g) in enumerate(nodes))
        run("begin")
        self._database.executemany("insert into nodes values (?, ?, ?, ?, ?, ?, ?)", rows)
        run("commit")

    def update(self, number: int, node: Node) -> None:
        cpu, memory, gpus = node
        text = "update nodes set cpu=?, cpu_to=?, memory=?, memory_to=?, gpus=?, gpus_to=? where number=?"
        self._database.execute(text, (cpu, cpu, memory, memory, gpus, gpus, number))


@contextmanager
def start(make: Callable[[sqlite3.Connection], Table | RStar], synced: bool) -> Iterator[Table | RStar]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rival-sqlite-"))
        database = stack.enter_context(closing(sqlite3.connect(Path(folder, "nodes.db"), isolation_level=None)))
        database.execute("pragma journal_mode = wal")
        database.execute(f"pragma synchronous = {'full' if synced else 'off'}")
        yield make(database)


def entries(synced: bool) -> list[Entry]:
    makers = {name: partial(_table, indexes) for name, indexes in INDEXES.items()} | {"R*Tree": RStar}
    return [
        Entry(f"SQLite {sqlite3.sqlite_version}, {name}", LOGGED[synced], partial(start, make, synced))
        for name, make in makers.items()
    ]


def _table(indexes: Sequence[str], database: sqlite3.Connection) -> Table:
    return Table(database, indexes)
