"""DuckDB in this process: columns, the extremes of each row group, scans in vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rivals.contract import LOGGED, Absent, Entry, Node, Question


class Duck:
    def __init__(self, database: Any) -> None:
        self._database = database

    def load(self, nodes: Sequence[Node]) -> None:
        rows = np.array(nodes, dtype=np.int64)
        columns = {"number": np.arange(len(rows)), "cpu": rows[:, 0], "memory": rows[:, 1], "gpus": rows[:, 2]}
        self._database.execute("create table nodes(number int primary key, cpu int, memory int, gpus int)")
        self._database.register("given", columns)
        self._database.execute("insert into nodes select * from given")
        self._database.unregister("given")

    def update(self, number: int, node: Node) -> None:
        self._database.execute("update nodes set cpu = ?, memory = ?, gpus = ? where number = ?", (*node, number))

    def first(self, question: Question, limit: int) -> Sequence[int]:
        text = "select number from nodes where cpu >= ? and memory >= ? and gpus >= ? limit ?"
        return [row[0] for row in self._database.execute(text, (*question, limit)).fetchall()]

    def every(self, question: Question) -> Sequence[int]:
        text = "select number from nodes where cpu >= ? and memory >= ? and gpus >= ?"
        return [row[0] for row in self._database.execute(text, tuple(question)).fetchall()]


@contextmanager
def start(synced: bool) -> Iterator[Duck]:
    try:
        import duckdb
    except ImportError:
        raise Absent("pip install duckdb") from None
    with tempfile.TemporaryDirectory(prefix="rival-duckdb-") as folder, ExitStack() as stack:
        place = str(Path(folder, "nodes.duckdb")) if synced else ":memory:"
        yield Duck(stack.enter_context(closing(duckdb.connect(place))))


def entries(synced: bool) -> list[Entry]:
    return [Entry("DuckDB, columns", LOGGED[True] if synced else "in memory", partial(start, synced))]
