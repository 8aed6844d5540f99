"""Rows computed from the objects themselves: the reference for every table, and the fallback where there is no table.

A row is a function only of the objects at a revision and of the declaration: not of a table's history, nor of the
member. Slow, and independent of the columns and structures that may have failed."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Sequence
from typing import Final

from minikube_py.fields.evaluate import NO_TOTALS, Reader, Row, Totals
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Test, predicate_of
from minikube_py.index.contract import Matches
from minikube_py.index.table import Sum
from minikube_py.mvcc.decoding import decode
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.types import KeyValue, prefix_end

PAGE_KEYS: Final = 256


class Scanned:
    """The rows of some objects at a revision; `decoded` counts the objects decoded for it."""

    def __init__(self, field_set: FieldSet) -> None:
        self._reader = Reader(field_set)
        self._sums = [Sum(spec, field_set.prefix) for spec in field_set.sums]
        self.rows: dict[bytes, Row] = {}
        self.decoded = 0

    @classmethod
    def of(cls, view: View, field_set: FieldSet, kvs: Iterable[KeyValue], at: int) -> Scanned:
        """Of `kvs`, the objects at `at`, with the sums over all that referred to them then."""
        scanned = cls(field_set)
        for _ in scanned.take_sums(view, at):
            pass
        for kv in kvs:
            if kv.key.startswith(field_set.prefix):
                scanned.rows[kv.key] = scanned.row(kv)
        return scanned

    def take_sums(self, view: View, at: int) -> Generator[None, None, None]:
        """Runs in slices, before the first row."""
        for total in self._sums:
            for kvs in _pages(view, total.source_prefix, at):
                for kv in kvs:
                    total.update(kv.key, decode(kv.value))
                self.decoded += len(kvs)
                yield

    def row(self, kv: KeyValue) -> Row:
        self.decoded += 1
        own = self._reader.own(decode(kv.value))
        if not own.parts:
            return own.plain
        totals: dict[str, Totals] = {total.name: total.totals.get(kv.key, NO_TOTALS) for total in self._sums}
        return self._reader.row(own, totals)

    def answer(self, tests: Sequence[Test], limit: int) -> Matches:
        """The matching rows, by key."""
        holds = predicate_of(tests)
        found = sorted([key for key, row in self.rows.items() if holds(row)])
        kept = found[:limit] if limit > 0 else found
        return Matches(kept, len(found), len(kept) < len(found), len(self.rows))


def hash_of_rows(view: View, field_set: FieldSet, at: int) -> Generator[None, None, int]:
    """Equals `ColumnIndex.hash` of these rows, in slices."""
    scanned = Scanned(field_set)
    yield from scanned.take_sums(view, at)
    digest = hashlib.blake2b(digest_size=8)
    for kvs in _pages(view, field_set.prefix, at):
        for kv in kvs:
            digest.update(repr((kv.key, sorted(scanned.row(kv).items()))).encode())
        yield
    return int.from_bytes(digest.digest(), "big")


def _pages(view: View, prefix: bytes, at: int) -> Generator[list[KeyValue], None, None]:
    start: bytes | None = prefix
    while start is not None:
        view.require_retained(at)
        kvs, start = view.index.page_at(start, prefix_end(prefix), at, PAGE_KEYS)
        yield kvs
