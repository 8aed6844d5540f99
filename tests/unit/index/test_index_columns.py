"""The column index at sizes where blocks, chunks, merges and slots come into play, beside a dictionary."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Op, Where
from minikube_py.index import columns
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import Row, RowChange
from minikube_py.mvcc.key_index import KeyIndex

FIELDS = FieldSet(
    "things",
    b"/things/",
    (
        FieldSpec("n", "int", "path@1", {"path": "n"}),
        FieldSpec("s", "string", "path@1", {"path": "s"}),
        FieldSpec("r.*", "quantity", "resources@1", {"path": "r"}),
    ),
)


def where(*parts: tuple[str, Op, str]) -> Where:
    return Where(tuple(Comparison(field, op, (text,)) for field, op, text in parts))


class Beside:
    """An index and one dictionary of rows per revision, changed alike."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index = ColumnIndex(FIELDS, 1)
        self.rows: dict[int, dict[bytes, Row]] = {1: {}}
        self.revision = 1

    def key(self, count: int) -> bytes:
        return b"/things/%05d" % self.random.randrange(count)

    def row(self) -> Row:
        pick = self.random.randrange
        row: dict[str, int | str] = {"n": pick(1000), "s": f"text{pick(50)}"}
        if pick(3):
            row[f"r.kind{pick(12)}"] = pick(100)
        if not pick(10):
            del row["n"]
        return row

    def change(self, keys: list[bytes], gone: float) -> None:
        self.revision += 1
        now = dict(self.rows[self.revision - 1])
        changes = []
        for key in dict.fromkeys(keys):
            row = None if self.random.random() < gone else self.row()
            changes.append(RowChange(key, row))
            if row is None:
                now.pop(key, None)
            else:
                now[key] = row
        before = self.rows[self.revision - 1]
        changed = self.index.apply(self.revision, changes)
        assert changed == [key for key, row in changes if before.get(key) != row]
        self.rows[self.revision] = now

    def check(self, revision: int) -> None:
        rows = self.rows[revision]
        bound = self.random.randrange(1000)
        for asked, truth in (
            (where(("n", ">=", str(bound))), lambda row: row.get("n", -1) >= bound),
            (
                where(("n", "<", str(bound)), ("s", "!=", "text7")),
                lambda row: "n" in row and row["n"] < bound and row["s"] != "text7",
            ),
            (where(("s", ">", "text3")), lambda row: row.get("s", "") > "text3"),
            (where(("r.kind3", "!=", "5")), lambda row: row.get("r.kind3") != 5),
            (where(("r.kind3", "<=", "50")), lambda row: row.get("r.kind3", 99) <= 50),
            (where(("n", "=", str(bound))), lambda row: row.get("n") == bound),
            (Where(), lambda row: True),
        ):
            wanted = sorted(key for key, row in rows.items() if truth(row))
            self.check_query(asked, revision, wanted)

    def check_query(self, asked: Where, revision: int, wanted: list[bytes]) -> None:
        query = self.index.query
        assert query(asked, revision).keys == wanted
        for limit in (1, 10, 300):
            first = query(asked, revision, limit)
            assert (first.keys, first.count, first.more) == (wanted[:limit], len(wanted), len(wanted) > limit)
            some = query(asked, revision, limit, order="ANY")
            assert len(set(some.keys)) == len(some.keys) == min(limit, len(wanted))
            assert set(some.keys) <= set(wanted)
            assert some.more is (len(wanted) > limit)
        assert self.index.may_match(asked, revision) is bool(wanted)
        if wanted:
            cursor = wanted[len(wanted) // 2]
            rest = query(asked, revision, 5, cursor, end=b"/things/04")
            part = [key for key in wanted if cursor < key < b"/things/04"]
            assert (rest.keys, rest.count, rest.more) == (part[:5], len(part), len(part) > 5)
            few = query(asked, revision, 2, start=cursor, end=cursor[:-1] + b":", order="ANY")
            part = [key for key in wanted if cursor <= key < cursor[:-1] + b":"]
            assert (set(few.keys) <= set(part), len(few.keys), few.count) == (True, min(2, len(part)), len(part))


@pytest.mark.parametrize("seed", range(3))
def test_every_retained_revision_answers_as_its_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BLOCK_ROWS", 64)
    monkeypatch.setattr(columns, "CHUNK_ENTRIES", 50)
    beside = Beside(seed)
    beside.change([beside.key(1000) for _ in range(700)], 0)
    oldest = 1
    for step in range(40):
        # A few at a time: slots come and go, keys are inserted into the order, log chunks fill.
        beside.change([beside.key(1000) for _ in range(beside.random.choice([1, 2, 9, 30]))], 0.4)
        if step % 3 == 0:
            beside.check(beside.revision)
        if step % 10 == 9:
            for revision in beside.random.sample(range(oldest, beside.revision + 1), 4):
                beside.check(revision)
            oldest = beside.revision - 6
            beside.index.compact(oldest)
            beside.check(oldest)
    for revision in range(oldest, beside.revision + 1):
        digest = ColumnIndex(FIELDS, 0, [RowChange(key, row) for key, row in beside.rows[revision].items()]).hash(0)
        assert beside.index.hash(revision) == digest
    stats = beside.index.stats()
    assert (stats.rows, stats.oldest_revision, stats.revision) == (
        len(beside.rows[beside.revision]),
        oldest,
        beside.revision,
    )


def test_few_keys_are_looked_at_alone() -> None:
    rows = [RowChange(b"/things/%05d" % number, {"n": number % 7}) for number in range(1000)]
    index = ColumnIndex(FIELDS, 1, rows)
    found = index.query(where(("n", ">=", "5")), 1, start=b"/things/00100", end=b"/things/00120")
    assert found.keys == [key for key, row in rows[100:120] if row is not None and row["n"] >= 5]
    assert found.rows_examined == 20
    assert index.query(where(("n", ">=", "5")), 1, end=b"/things/00900").rows_examined == 1000


def test_revisions_out_of_reach() -> None:
    index = ColumnIndex(FIELDS, 5, [RowChange(b"/things/a", {"n": 1})])
    index.apply(7, [RowChange(b"/things/a", {"n": 2})])
    index.compact(6)
    for call in (
        lambda r: index.query(Where(), r),
        lambda r: index.row(b"x", r),
        lambda r: index.may_match(Where(), r),
    ):
        with pytest.raises(Compacted):
            call(5)
        with pytest.raises(FutureRevision):
            call(8)
    with pytest.raises(Compacted):
        index.changed(5, 7)
    with pytest.raises(ValueError, match="revision 3 after 7"):
        index.apply(3, [])
    with pytest.raises(InvalidRequest):
        index.query(where(("unknown", "=", "1")), 7)


def test_a_slot_is_not_reused_while_its_past_is_retained() -> None:
    index = ColumnIndex(FIELDS, 1)
    index.apply(2, [RowChange(b"a", {"n": 1})])
    index.apply(3, [RowChange(b"a", None)])
    index.apply(4, [RowChange(b"a", {"n": 2})])
    index.apply(5, [RowChange(b"a", None)])
    index.compact(3)
    index.apply(6, [RowChange(b"b", {"n": 3})])
    assert [index.query(Where(), revision).keys for revision in (3, 4, 5, 6)] == [[], [b"a"], [], [b"b"]]
    assert index.row(b"a", 4) == {"n": 2}


def test_strings_of_the_dead_are_forgotten() -> None:
    index = ColumnIndex(FIELDS, 1)
    for number in range(12_000):
        index.apply(2 + number, [RowChange(b"k%d" % (number % 5), {"s": f"name{number}"})])
    index.compact(index.revision)
    assert sum(len(table) for table in index._strings.values()) < 3000
    assert index.query(where(("s", ">=", "name11999")), index.revision).keys == [b"k4"]
    assert index.query(where(("s", "=", "name7")), index.revision).keys == []


def test_values_at_the_edges_of_64_bits() -> None:
    high, low = (1 << 63) - 1, -(1 << 63) + 1
    index = ColumnIndex(FIELDS, 1, [RowChange(b"h", {"n": high}), RowChange(b"l", {"n": low}), RowChange(b"m", {})])
    cases: list[tuple[tuple[str, Op, str], list[bytes]]] = [
        (("n", ">=", str(high)), [b"h"]),
        (("n", "<=", str(low)), [b"l"]),
        (("n", "<", str(low)), []),
        (("n", ">=", str(low)), [b"h", b"l"]),
        (("n", "!=", str(low)), [b"h", b"m"]),
    ]
    for part, expected in cases:
        assert index.query(where(part), 1).keys == expected


@pytest.mark.parametrize("seed", range(3))
def test_the_key_index_pages_through_the_past(seed: int) -> None:
    """Blocks of live and dead keys, merged: more keys than one block holds."""
    rng = random.Random(seed)
    index, states = KeyIndex(), {1: dict[bytes, Any]()}
    for revision in range(2, 1200):
        key = b"k%04d" % rng.randrange(600)
        now = dict(states[revision - 1])
        if key in now and rng.random() < 0.5:
            index.delete(key, revision)
            del now[key]
        else:
            now[key] = index.put(key, b"v", revision, 0).kv
        states[revision] = now
    for revision in rng.sample(range(1, 1200), 60):
        held = [states[revision][key] for key in sorted(states[revision])]
        assert index.range_at(b"k", b"l", revision) == held
        for limit in (1, 7, 100):
            start = b"k%04d" % rng.randrange(600)
            wanted = [kv for kv in held if kv.key >= start][:limit]
            assert index.range_at(start, b"l", revision, limit) == wanted
