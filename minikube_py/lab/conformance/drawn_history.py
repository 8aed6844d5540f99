"""Histories drawn by hypothesis: few keys that come back, thresholds at values that stood somewhere, in mixed units."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from minikube_py.fields.where import Op
from minikube_py.index.contract import Row
from minikube_py.index.structure import HIGH, LOW
from minikube_py.lab.conformance.history import (
    INDEXED,
    Apply,
    Asked,
    Changed,
    Compact,
    Declare,
    Drop,
    Event,
    History,
    Query,
    Restore,
)

KEYS = [b"/t/%s" % name for name in (b"a", b"b", b"b0", b"c", b"d", b"e", b"f", b"g")]
ROWS_MOST = 300
EVENTS_MOST = 22
NUMBERS = ("cpu", "memory", "n", "other")
LABELS = ("", "a", "b", "zz", "zz0", "\u00e9")
_ORDERED: tuple[Op, ...] = (">=", ">=", "<", "<=", ">", "=", "!=")
_TEXT_OPS: tuple[Op, ...] = ("=", "=", "!=", "in", "exists", "<", ">=")


def texts_of(field: str, value: int) -> list[str]:
    """How a user may write a value: `cpu` is in milli-units."""
    if field in ("n", "other"):
        return [str(value), f"+{value}"] if value > 0 else [str(value)]
    if field == "cpu":
        written = [f"{value}m"]
        if value % 1000 == 0:
            written += [str(value // 1000), f"{value // 1000}e0", f"{value // 1000}.0"]
        if value and value % 1_000_000 == 0:
            written += [f"{value // 1_000_000}k", f"{value // 1_000_000}e3"]
        return written
    written = [str(value), f"{value}000m"] if abs(value) < 1 << 50 else [str(value)]
    for unit, suffixes in ((1024, ("Ki",)), (1000, ("k", "e3")), (1 << 20, ("Mi",)), (10**6, ("M", "E6"))):
        if value and value % unit == 0:
            written += [f"{value // unit}{suffix}" for suffix in suffixes]
    return written


def _values(field: str) -> st.SearchStrategy[int]:
    edges = [0, -1, 1, HIGH, HIGH - 1, LOW, 1 << 40]
    edges += {"cpu": [1000, 100, 1500, 1_000_000], "memory": [1024, 1000, 1 << 20]}.get(field, [7, 1 << 53])
    return st.one_of(st.sampled_from(edges), st.integers(-2, 6))


def _beside(value: int, by: int) -> int:
    return min(HIGH, max(LOW, value + by))


@st.composite
def _asked(draw: st.DrawFn, palettes: dict[str, list[int]]) -> Asked:
    field = draw(st.sampled_from([*NUMBERS, "cpu", "memory", "label"]))
    if field == "label":
        op = draw(st.sampled_from(_TEXT_OPS))
        count = {"exists": 0, "in": draw(st.integers(1, 3))}.get(op, 1)
        texts = tuple(draw(st.sampled_from(LABELS)) for _ in range(count))
        return Asked(field, op, texts, texts)
    op = draw(st.sampled_from([*_ORDERED, "in", "exists"]))
    count = {"exists": 0, "in": draw(st.integers(1, 3))}.get(op, 1)
    values = [
        _beside(draw(st.sampled_from(palettes[field])), draw(st.sampled_from((0, 0, -1, 1)))) for _ in range(count)
    ]
    texts = tuple(draw(st.sampled_from(texts_of(field, value))) for value in values)
    return Asked(field, op, texts, tuple(values))


def _rows(palettes: dict[str, list[int]]) -> st.SearchStrategy[Row]:
    optional: dict[Any, st.SearchStrategy[Any]] = {name: st.sampled_from(palettes[name]) for name in NUMBERS}
    optional["label"] = st.sampled_from(LABELS)
    return st.fixed_dictionaries({}, optional=optional)


def many_rows(count: int, seed: int, palettes: dict[str, list[int]]) -> list[tuple[bytes, Row]]:
    rng = random.Random(seed)
    rows: list[tuple[bytes, Row]] = []
    for number in range(count):
        row: dict[str, int | str] = {}
        for name in NUMBERS:
            if rng.random() < 0.9:
                row[name] = _beside(rng.choice(palettes[name]), rng.randrange(5))
        if rng.random() < 0.5:
            row["label"] = rng.choice(LABELS)
        rows.append((b"/t/b%03d" % number, row))
    return rows


@st.composite
def histories(draw: st.DrawFn, most_fields: int = 4) -> History:
    """A history of an index over at most `most_fields` of INDEXED."""
    palettes = {name: draw(st.lists(_values(name), min_size=1, max_size=3, unique=True)) for name in NUMBERS}
    fields = tuple(draw(st.lists(st.sampled_from(INDEXED), min_size=1, max_size=most_fields, unique=True)))
    rows: Sequence[tuple[bytes, Row]] = ()
    if draw(st.integers(0, 3)) == 0:
        rows = many_rows(draw(st.integers(1, ROWS_MOST)), draw(st.integers(0, 1 << 16)), palettes)
    keys = st.sampled_from([*KEYS, *(key for key, _ in rows[:4])])
    row = _rows(palettes)
    change = st.tuples(keys, st.one_of(row, row, row, st.none()))
    changes = st.lists(change, min_size=1, max_size=4, unique_by=lambda pair: pair[0]).map(tuple)
    apply = st.builds(Apply, changes, st.sampled_from((1, 1, 1, 3)))
    asked = st.lists(_asked(palettes), max_size=3).map(tuple)
    back = st.sampled_from((0, 0, 1, 2, 3, 5, 100))
    query = st.builds(
        Query,
        asked,
        back,
        st.sampled_from((0, 0, 1, 2, 10)),
        st.sampled_from(("KEY", "KEY", "ANY")),
        st.sampled_from((b"", b"", b"/t/b", b"/t/c\0")),
        st.sampled_from((None, None, b"/t/c", b"/t/b")),
    )
    kinds: list[st.SearchStrategy[Event]] = [
        apply,
        apply,
        apply,
        apply,
        query,
        query,
        query,
        st.builds(Changed, back),
        st.builds(Compact, st.sampled_from((0, 1, 2, 5))),
        st.builds(Restore, st.sampled_from((None, 0, 1, 3)), st.booleans()),
        st.builds(Declare, st.sampled_from((1, 3, 100, 1000)), st.integers(0, 2)),
        st.just(Drop()),
    ]
    events = draw(st.lists(st.one_of(kinds), min_size=1, max_size=EVENTS_MOST))
    # States are kept of all revisions, of some, of none: what is not kept is found by the log.
    frozen_max = draw(st.sampled_from((1 << 30, 2, 0)))
    return History(fields, tuple(rows), (*events, draw(query)), frozen_max)
