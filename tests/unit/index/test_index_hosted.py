"""A structure on a host answers what the host answers alone: now and in the past, while it is built and after."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Op, Where, compile_where
from minikube_py.index.box import bounded, boxed
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import Row, RowChange
from minikube_py.index.hosted import HostedIndex
from minikube_py.index.structure import HIGH, LOW, MISSING, Box, Found, IntArray, Point

FIELDS = FieldSet(
    "things",
    b"/things/",
    (
        FieldSpec("n", "int", "path@1", {"path": "n"}),
        FieldSpec("m", "int", "path@1", {"path": "m"}),
        FieldSpec("s", "string", "path@1", {"path": "s"}),
    ),
)


class Tiny:
    """The least that a structure can be."""

    structure = "tiny"

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.points: dict[int, Point] = {}

    def put(self, slot: int, point: Point) -> None:
        assert len(point) == self.dimensions
        self.points[slot] = point

    def remove(self, slot: int) -> None:
        self.points.pop(slot, None)

    def find(self, box: Box, limit: int = 0) -> Found:
        return _find(self.points, box, limit)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        return len(self.points)


class TinyLoading(Tiny):
    def load(self, slots: IntArray, points: IntArray) -> None:
        assert not self.points
        self.points = dict(zip(slots.tolist(), map(tuple, points.tolist())))


class TinyVersioned(TinyLoading):
    def freeze(self) -> Any:
        return dict(self.points)

    def find_frozen(self, frozen: Any, box: Box, limit: int = 0) -> Found:
        return _find(frozen, box, limit)


def _find(points: dict[int, Point], box: Box, limit: int) -> Found:
    slots = [slot for slot, point in points.items() if box.holds(point)]
    kept = slots[:limit] if limit else slots
    return Found(np.array(kept, dtype=np.int64), len(kept) == len(slots), len(points))


def where(*parts: tuple[str, Op, str]) -> Where:
    return Where(
        tuple(
            Comparison(field, op, () if op == "exists" else tuple(text.split(",")) if op == "in" else (text,))
            for field, op, text in parts
        )
    )


def ask(pick: random.Random) -> Where:
    number = str(pick.randrange(-2, 42))
    parts: list[tuple[str, Op, str]] = [
        ("n", ">=", number),
        ("n", "<", number),
        ("m", ">", number),
        ("m", "<=", number),
        ("n", "=", number),
        ("n", "!=", number),
        ("n", "in", f"{number},7,30"),
        ("m", "exists", ""),
        ("s", "=", f"text{pick.randrange(6)}"),
        ("s", "!=", f"text{pick.randrange(6)}"),
        ("s", "in", "text1,text3,none"),
        ("s", ">=", "text3"),
        ("s", "exists", ""),
    ]
    return where(*pick.sample(parts, pick.choice([0, 1, 1, 2, 2, 3])))


def row(pick: random.Random) -> Row:
    whole: dict[str, int | str] = {
        "n": pick.randrange(40),
        "m": pick.randrange(40),
        "s": f"text{pick.randrange(5)}",
    }
    for name in list(whole):
        if not pick.randrange(8):
            del whole[name]
    return whole


class Beside:
    """A host with an index on it, changed alike."""

    def __init__(self, structure: type[Tiny], fields: tuple[str, ...], seed: int, rows: int, *, built: bool) -> None:
        self.random = random.Random(seed)
        first = [RowChange(self.key(), row(self.random)) for _ in range(rows)]
        self.host = ColumnIndex(FIELDS, 5, first)
        self.index = HostedIndex(self.host, fields, structure(len(fields)), built=built, frozen_max=1000)
        self.revision = 5

    def key(self) -> bytes:
        return b"/things/%03d" % self.random.randrange(150)

    def change(self) -> None:
        self.revision += 1
        keys = dict.fromkeys(self.key() for _ in range(self.random.choice([1, 1, 3, 30])))
        rows = [RowChange(key, None if self.random.random() < 0.3 else row(self.random)) for key in keys]
        self.index.apply(self.revision, rows)

    def check(self, revision: int) -> None:
        pick = self.random
        asked = ask(pick)
        limit = pick.choice([0, 1, 3, 10, 1000])
        start, end = pick.choice([(b"", None), (b"/things/040", b"/things/090"), (b"/things/100", None)])
        cursor = pick.choice([None, None, b"/things/050"])
        truth = self.host.query(asked, revision, limit, cursor, "KEY", end, start)
        found = self.index.query(asked, revision, limit, cursor, "KEY", end, start)
        assert found[:3] == truth[:3], (str(asked), revision, limit, cursor, start, end)
        every = self.host.keys_at(revision)
        whole = [key for key, held in zip(every, self.host.matching(asked, revision, every)) if held]
        some = self.index.query(asked, revision, limit, None, "ANY")
        assert set(some.keys) <= set(whole) and len(set(some.keys)) == len(some.keys)
        assert len(some.keys) == min(limit or len(whole), len(whole))
        assert some.more == (len(some.keys) < len(whole))
        assert some.count == (-1 if some.more else len(whole))
        if whole:
            assert self.index.may_match(asked, revision)


@pytest.mark.parametrize("structure", [Tiny, TinyLoading, TinyVersioned])
@pytest.mark.parametrize("fields", [("n",), ("n", "m"), ("s", "m", "n"), ("s",)], ids=",".join)
def test_index_and_host_agree(structure: type[Tiny], fields: tuple[str, ...]) -> None:
    for seed in range(4):
        beside = Beside(structure, fields, seed, rows=60 if seed else 0, built=seed % 2 == 0)
        for step in range(40):
            beside.change()
            if not beside.index.ready:
                beside.index.build(7)
                continue
            for _ in range(4):
                beside.check(beside.random.randrange(beside.host.oldest_revision, beside.revision + 1))
            if step == 25:
                beside.index.compact(beside.revision - 9)
        assert beside.index.ready
        with pytest.raises(Compacted):
            beside.index.query(Where(), beside.host.oldest_revision - 1)
        with pytest.raises(FutureRevision):
            beside.index.query(Where(), beside.revision + 1)
        assert beside.index.changed(beside.host.oldest_revision, beside.revision) == beside.host.changed(
            beside.host.oldest_revision, beside.revision
        )


def test_states_of_the_past_are_used_where_they_are_kept() -> None:
    index = HostedIndex.alone(FIELDS, TinyVersioned(1), ("n",))
    for revision in range(1, 9):
        index.apply(revision, [RowChange(b"/things/a", {"n": revision})])
    index.compact(3)
    assert [len(index.query(where(("n", "=", "5")), revision).keys) for revision in range(3, 9)] == [0, 0, 1, 0, 0, 0]
    assert index._frozen[0][0] == 3 and len(index._frozen) == 6
    few = HostedIndex.alone(FIELDS, TinyVersioned(1), ("n",), frozen_max=2)
    for revision in range(1, 9):
        few.apply(revision, [RowChange(b"/things/a", {"n": revision})])
    assert len(few._frozen) <= 4
    assert [len(few.query(where(("n", "=", "5")), revision).keys) for revision in range(1, 9)] == [0] * 4 + [1] + [
        0
    ] * 3


def test_a_row_costs_nothing_where_no_field_of_the_index_changes() -> None:
    index = HostedIndex.alone(FIELDS, Tiny(1), ("n",), rows=[RowChange(b"/things/a", {"n": 1, "m": 1})])
    puts = []
    index.structure.put = lambda slot, point: puts.append((slot, point))  # type: ignore[method-assign]
    for revision in range(1, 50):
        index.apply(revision, [RowChange(b"/things/a", {"n": 1, "m": revision})])
        index.query(where(("n", "=", "1")), revision)
    assert puts == []
    for revision in range(50, 60):
        index.apply(revision, [RowChange(b"/things/a", {"n": revision, "m": revision})])
    index.query(where(("n", "=", "1")), 59)
    assert puts == [(0, (59,))]


def test_building_takes_rows_in_slices_and_then_what_changed() -> None:
    rows = [RowChange(b"/things/%05d" % number, {"n": number}) for number in range(2000)]
    host = ColumnIndex(FIELDS, 1, rows)
    index = HostedIndex(host, ("n",), Tiny(1), built=False)
    shares = []
    revision = 1
    while not index.build(100):
        shares.append(index.progress)
        if revision < 12:
            revision += 1
            host.apply(
                revision, [RowChange(b"/things/%05d" % number, {"n": -1}) for number in range(revision, 2000, 12)]
            )
    assert shares == sorted(shares) and len(shares) > 20
    assert index.query(where(("n", "<", "0")), revision).count == host.query(where(("n", "<", "0")), revision).count
    index.close()
    host.apply(20, [RowChange(b"/things/00001", None)])


BOXES: dict[str, tuple[Where, tuple[int, ...], tuple[int, ...], int]] = {
    "nothing asked": (where(), (MISSING, MISSING), (HIGH, HIGH), 0),
    "at least": (where(("n", ">=", "4")), (4, MISSING), (HIGH, HIGH), 0),
    "more than": (where(("n", ">", "4")), (5, MISSING), (HIGH, HIGH), 0),
    "at most": (where(("n", "<=", "4")), (LOW, MISSING), (4, HIGH), 0),
    "less than": (where(("n", "<", "4")), (LOW, MISSING), (3, HIGH), 0),
    "several": (where(("n", "<", "9"), ("n", ">", "4"), ("n", ">", "2")), (5, MISSING), (8, HIGH), 0),
    "exists": (where(("s", "exists", "")), (MISSING, LOW), (HIGH, HIGH), 0),
    "text": (where(("s", "=", "b")), (MISSING, 1), (HIGH, 1), 0),
    "unknown text": (where(("s", "=", "nobody's")), (MISSING, -2), (HIGH, -2), 0),
    "order of texts": (where(("s", ">", "a")), (MISSING, LOW), (HIGH, HIGH), 1),
    "one of one": (where(("n", "in", "4")), (4, MISSING), (4, HIGH), 0),
    "one of some": (where(("n", "in", "4,9,6")), (4, MISSING), (9, HIGH), 1),
    "not": (where(("n", "!=", "4")), (MISSING, MISSING), (HIGH, HIGH), 1),
    "elsewhere": (where(("m", ">", "4")), (MISSING, MISSING), (HIGH, HIGH), 1),
}


@pytest.mark.parametrize("name", BOXES)
def test_comparisons_as_a_box(name: str) -> None:
    asked, lows, highs, left = BOXES[name]
    box, residual = boxed(
        compile_where(FIELDS, asked).tests, {"n": 0, "s": 1}, lambda _, text: {"a": 0, "b": 1}.get(text, -2)
    )
    assert (box, len(residual)) == ((lows, highs), left)
    assert bounded(box) == sum(pair != (MISSING, HIGH) for pair in zip(lows, highs))


@pytest.mark.parametrize(
    "parts",
    [
        [("n", ">", str(HIGH))],
        [("n", "<", str(LOW))],
        [("n", ">", "4"), ("n", "<", "5")],
        [("n", "=", "4"), ("n", "=", "5")],
        [("s", "=", "a"), ("s", "=", "b")],
    ],
    ids=str,
)
def test_ranges_that_contradict_hold_nothing(parts: list[tuple[str, Op, str]]) -> None:
    rows: list[Row] = [{"n": 4, "s": "a"}, {"n": 5, "s": "b"}, {"n": HIGH}, {"n": LOW}, {}]
    index = HostedIndex.alone(
        FIELDS, Tiny(2), ("n", "s"), rows=[RowChange(b"/things/%d" % number, each) for number, each in enumerate(rows)]
    )
    found = index.query(where(*parts), 0)
    assert found[:3] == ([], 0, False)
    assert index.boxed(compile_where(FIELDS, where(*parts)).tests)[0].empty == (found.rows_examined == 0)


@pytest.mark.parametrize("value", [LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH])
def test_bounds_next_to_stored_values(value: int) -> None:
    rows: list[Row] = [*({"n": each} for each in (LOW, LOW + 1, -1, 0, 1, HIGH - 1, HIGH)), {}]
    index = HostedIndex.alone(
        FIELDS, Tiny(1), ("n",), rows=[RowChange(b"/things/%d" % number, each) for number, each in enumerate(rows)]
    )
    operators: tuple[Op, ...] = (">=", ">", "<=", "<", "=", "!=")
    for op in operators:
        asked = where(("n", op, str(value)))
        assert index.query(asked, 0)[:3] == index.host.query(asked, 0)[:3], op


def test_what_an_index_alone_refuses() -> None:
    with pytest.raises(InvalidRequest, match="no structure is named 'nope'"):
        HostedIndex.alone(FIELDS, "nope", ("n",))
    with pytest.raises(InvalidRequest, match="field 'x' is not declared on things"):
        HostedIndex.alone(FIELDS, "scan", ("x",))
    with pytest.raises(InvalidRequest, match="field 'x' is not declared on things"):
        HostedIndex.alone(FIELDS, "scan", ("n",)).query(where(("x", "=", "1")), 0)
