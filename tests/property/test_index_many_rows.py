"""The index over enough rows that its ways for large tables are taken: blocks, merged key order, slots used again.

Against a dictionary of rows per revision, without a store around it. Pages follow each other by cursor.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import RowChange

Rows = dict[bytes, dict[str, Any]]
ROWS_AT_FIRST = 400
KEYS = [b"%s%04d" % (NODES.prefix, number) for number in range(0, 2000, 3)]


def row(rng: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {"free.memory": rng.randrange(5), "free.cpu": rng.randrange(-1, 40) * 1000}
    return values if rng.random() < 0.9 else {"free.memory": values["free.memory"]}


def matches(rows: Rows, least_cpu: int | None) -> list[bytes]:
    """All keys in order; with `least_cpu`, those of rows that have as many free CPUs."""
    if least_cpu is None:
        return sorted(rows)
    return sorted(key for key, values in rows.items() if values.get("free.cpu", -(1 << 60)) >= least_cpu * 1000)


def check(index: ColumnIndex, rows: Rows, revision: int, rng: random.Random) -> None:
    least_cpu = rng.choice([None, 0, 5, 20, 37, 39, 40])
    where = Where() if least_cpu is None else Where((Comparison("free.cpu", ">=", (str(least_cpu),)),))
    start = rng.choice([b"", b"", rng.choice(KEYS)])
    end = rng.choice([None, None, rng.choice(KEYS) + b"\0"])
    limit = rng.choice([1, 7, 50, 300])
    wanted = [key for key in matches(rows, least_cpu) if start <= key and (end is None or key < end)]
    assert index.query(where, revision, 0, None, "KEY", end, start).keys == wanted
    found: list[bytes] = []
    cursor: bytes | None = None
    while True:
        page = index.query(where, revision, limit, cursor, "KEY", end, start)
        assert page.count == len(wanted) - len(found)
        found += page.keys
        if not page.more:
            break
        cursor = page.keys[-1]
    assert found == wanted
    some = index.query(where, revision, limit, None, "ANY", end, start).keys
    assert len(set(some)) == len(some) == min(limit, len(wanted)) and set(some) <= set(wanted)
    keys = rng.sample(KEYS, 20)
    assert index.rows(keys, revision) == [rows.get(key) for key in keys]
    assert index.matching(where, revision, keys) == [key in rows and key in matches(rows, least_cpu) for key in keys]


STEPS = st.lists(
    st.sampled_from(["one", "few", "few", "few", "many", "empty", "compact", "compact", "ask", "ask"]),
    min_size=10,
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 10**6))
def test_the_index_is_a_dictionary_of_rows_per_revision(steps: list[str], seed: int) -> None:
    rng = random.Random(seed)
    states: dict[int, Rows] = {1: {key: row(rng) for key in rng.sample(KEYS, ROWS_AT_FIRST)}}
    index = ColumnIndex(NODES, 1, [RowChange(key, values) for key, values in states[1].items()])
    newest = oldest = 1
    for step in [*steps, "ask"]:
        if step == "compact":
            oldest = rng.randrange(oldest, newest + 1)
            index.compact(oldest)
        elif step == "ask":
            for revision in {oldest, newest, rng.randrange(oldest, newest + 1)}:
                check(index, states[revision], revision, rng)
        else:
            rows = dict(states[newest])
            newest += 1
            share_gone = 0.9 if step == "empty" else 0.4
            changes: list[RowChange] = []
            for key in rng.sample(KEYS, {"one": 1, "few": 5, "many": 150, "empty": 300}[step]):
                gone = rng.random() < share_gone
                changes.append(RowChange(key, None if gone else row(rng)))
                if gone:
                    rows.pop(key, None)
                else:
                    rows[key] = changes[-1].row or {}
            index.apply(newest, changes)
            states[newest] = rows
