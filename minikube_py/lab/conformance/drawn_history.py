"""Generates histories with hypothesis: few, recurring keys, thresholds at earlier values, mixed units.

Everything is drawn from few values so that they collide: the rows of a history share a few values of each field,
including neighbours, and queries use those and adjacent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

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

KEYS: Final = tuple(b"/t/%s" % name for name in (b"a", b"b", b"b0", b"c", b"d", b"e", b"f", b"g"))
ROWS_MOST: Final = 300
EVENTS: Final = (8, 36)
NUMBERS: Final = ("cpu", "memory", "n", "other")
LABELS: Final = ("", "a", "b", "zz", "zz0", "\u00e9")
_NUMBER_OPS: Final[tuple[Op, ...]] = (">=", ">=", "<", "<=", ">", "=", "!=", "in", "exists")
_TEXT_OPS: Final[tuple[Op, ...]] = ("=", "=", "!=", "in", "exists", "<", ">=")
_EDGES: Final = (0, -1, 1, HIGH, HIGH - 1, LOW, 1 << 40)
_OWN_EDGES: Final = {"cpu": (1000, 100, 1500, 10**6), "memory": (1024, 1000, 1 << 20)}
_BACKS: Final = (0, 0, 1, 2, 3, 5, 100)
_KINDS: Final = "aaaaaqqqqqhcsdD"


def histories(most_fields: int = 4) -> st.SearchStrategy[History]:
    """Histories of an index over at most `most_fields` of INDEXED."""
    return st.randoms(use_true_random=False).map(lambda rng: draw_history(rng, most_fields))


def draw_history(rng: Random, most_fields: int) -> History:
    palettes = {name: _palette(rng, name) for name in NUMBERS}
    start = rng.randrange(len(INDEXED))
    fields = (*INDEXED[start:], *INDEXED[:start])[: rng.randrange(1, min(most_fields, len(INDEXED)) + 1)]
    rows: Sequence[tuple[bytes, Row]] = ()
    if rng.randrange(4) == 3:
        rows = many_rows(rng.randrange(1, ROWS_MOST), rng.randrange(1 << 16), palettes)
    drawer = _Drawer(rng, palettes, [*KEYS, *(key for key, _ in rows[:4])])
    events = [drawer.event(rng.choice(_KINDS)) for _ in range(rng.randrange(*EVENTS))]
    # All, some or no states are frozen: the others are reconstructed from the log.
    frozen_max = rng.choice((1 << 30, 2, 0))
    return History(fields, tuple(rows), (*events, drawer.event("q")), frozen_max)


def _palette(rng: Random, field: str) -> list[int]:
    values = [rng.choice((rng.randrange(-2, 7), rng.choice((*_EDGES, *_OWN_EDGES.get(field, (7, 1 << 53))))))]
    values += [rng.randrange(-2, 7) for _ in range(rng.randrange(4))]
    if rng.randrange(2):
        values.append(_beside(values[0], 1))
    return values


def _beside(value: int, by: int) -> int:
    return min(HIGH, max(LOW, value + by))


class _Drawer:
    """Draws the events of one history."""

    def __init__(self, rng: Random, palettes: dict[str, list[int]], keys: Sequence[bytes]) -> None:
        self._rng = rng
        self._palettes = palettes
        self._keys = keys

    def event(self, kind: str) -> Event:
        rng = self._rng
        if kind == "a":
            keys = dict.fromkeys(rng.choice(self._keys) for _ in range(rng.choice((1, 1, 2, 4))))
            changes = tuple((key, self._row() if rng.randrange(4) else None) for key in keys)
            return Apply(changes, rng.choice((1, 1, 1, 3)))
        if kind == "q":
            return Query(
                self._where(),
                rng.choice(_BACKS),
                rng.choice((0, 0, 1, 2, 10)),
                rng.choice(("KEY", "KEY", "ANY")),
                rng.choice((b"", b"", b"", b"/t/b", b"/t/c\0")),
                rng.choice((None, None, None, b"/t/c", b"/t/b")),
            )
        if kind == "h":
            return Changed(rng.choice(_BACKS))
        if kind == "c":
            return Compact(rng.choice((0, 1, 2, 5)))
        if kind == "s":
            return Restore(rng.choice((None, 0, 1, 3)), bool(rng.randrange(2)))
        return Declare(rng.choice((1, 3, 100, 1000)), rng.randrange(3)) if kind == "d" else Drop()

    def _row(self) -> Row:
        rng = self._rng
        row: dict[str, int | str] = {name: rng.choice(self._palettes[name]) for name in NUMBERS if rng.randrange(5)}
        if rng.randrange(2):
            row["label"] = rng.choice(LABELS)
        return row

    def _where(self) -> tuple[Asked, ...]:
        """None to three comparisons, some on the same field: a range, or a contradiction."""
        rng = self._rng
        asked: list[Asked] = []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            again = asked and rng.randrange(3) == 0
            asked.append(self._asked(asked[-1].field if again else rng.choice((*NUMBERS, "cpu", "memory", "label"))))
        return tuple(asked)

    def _asked(self, field: str) -> Asked:
        rng = self._rng
        if field == "label":
            op = rng.choice(_TEXT_OPS)
            labels = tuple(rng.choice(LABELS) for _ in range(_count(rng, op)))
            return Asked(field, op, labels, labels)
        op = rng.choice(_NUMBER_OPS)
        stored = self._palettes[field]
        values = [_beside(rng.choice(stored), rng.choice((0, 0, -1, 1))) for _ in range(_count(rng, op))]
        return Asked(field, op, tuple(rng.choice(texts_of(field, value)) for value in values), tuple(values))


def _count(rng: Random, op: Op) -> int:
    """The number of values for an operator."""
    return 0 if op == "exists" else rng.choice((2, 2, 1, 3)) if op == "in" else 1


def texts_of(field: str, value: int) -> list[str]:
    """Spellings of a value by users: `cpu` is in milli-units."""
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


def many_rows(count: int, seed: int, palettes: dict[str, list[int]]) -> list[tuple[bytes, Row]]:
    """Rows derived from `seed`, at the palettes' values and slightly above."""
    rng = Random(seed)
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
