"""tantivy, similar to Lucene: immutable segments, fast fields for ranges, background merges. A write is visible after a
commit and a reload of the reader; a change is a delete and an addition."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rivals.contract import LOGGED, Absent, Entry, Node, Question

HEAP_BYTES = 64 << 20
TOP = 2**62


class Tantivy:
    def __init__(self, module: Any, folder: str | None) -> None:
        self._module = module
        builder = module.SchemaBuilder()
        builder.add_integer_field("number", stored=False, indexed=True, fast=True)
        for name in ("cpu", "memory", "gpus"):
            builder.add_integer_field(name, stored=False, indexed=True, fast=True)
        self._schema = builder.build()
        self._index = module.Index(self._schema, path=folder)
        self._writer = self._index.writer(HEAP_BYTES, 1)
        self._kinds = module.FieldType.Integer
        self.size = 0

    def load(self, nodes: Sequence[Node]) -> None:
        self.size = len(nodes)
        for number, node in enumerate(nodes):
            self._add(number, node)
        self._seen()

    def _add(self, number: int, node: Node) -> None:
        document = self._module.Document()
        for name, value in zip(("number", "cpu", "memory", "gpus"), (number, *node)):
            document.add_integer(name, value)
        self._writer.add_document(document)

    def _seen(self) -> None:
        self._writer.commit()
        self._index.reload()

    def update(self, number: int, node: Node) -> None:
        self._writer.delete_documents_by_term("number", number)
        self._add(number, node)
        self._seen()

    def _query(self, question: Question) -> Any:
        query, occur = self._module.Query, self._module.Occur.Must
        parts = [
            (occur, query.range_query(self._schema, name, self._kinds, low, TOP))
            for name, low in zip(("cpu", "memory", "gpus"), question)
        ]
        return query.boolean_query(parts)

    def first(self, question: Question, limit: int) -> Sequence[int]:
        searcher = self._index.searcher()
        hits = searcher.search(self._query(question), limit, count=False, order_by_field="number").hits
        return [number for number, _ in hits]

    def every(self, question: Question) -> Sequence[int]:
        return self.first(question, self.size)


@contextmanager
def start(synced: bool) -> Iterator[Tantivy]:
    try:
        import tantivy
    except ImportError:
        raise Absent("pip install tantivy") from None
    with tempfile.TemporaryDirectory(prefix="rival-tantivy-") as folder:
        yield Tantivy(tantivy, folder if synced else None)


def entries(synced: bool) -> list[Entry]:
    return [Entry("tantivy (as Lucene), fast fields", LOGGED[True] if synced else "in memory", partial(start, synced))]
