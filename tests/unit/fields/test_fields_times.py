"""Times: RFC 3339 to microseconds and back; time fields, counted sums and single members of a sum in rows and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.fields.evaluate import Reader, row_of
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.times import parse_time, time_text
from minikube_py.fields.where import Comparison, Where, compile_where
from minikube_py.index.table import Table

READ = [
    ("1970-01-01T00:00:00Z", 0),
    ("1970-01-01T00:00:00.000001Z", 1),
    ("1969-12-31T23:59:59.999999Z", -1),
    ("2026-01-31T12:00:00Z", 1_769_860_800_000_000),
    ("2026-01-31T12:00:00.5Z", 1_769_860_800_500_000),
    ("2026-01-31T12:00:00.123456999Z", 1_769_860_800_123_456),
    ("2026-01-31T14:30:00+02:30", 1_769_860_800_000_000),
    ("2026-01-31T11:00:00-01:00", 1_769_860_800_000_000),
    ("2026-01-31t12:00:00z", 1_769_860_800_000_000),
    ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
    ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
]
NOT_READ = [
    "", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-01-31T12:00Z", "2026-02-29T00:00:00Z",
    "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00+24:00",
    "2026-01-31T12:00:00+01:60", "0000-01-01T00:00:00Z", " 2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z\n",
    "２０２６-01-31T12:00:00Z", "2026-W05-6T12:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize(("text", "micros"), READ, ids=[each[0] for each in READ])
def test_times_that_are_read(text: str, micros: int) -> None:
    assert parse_time(text) == micros
    assert parse_time(time_text(micros)) == micros


@pytest.mark.parametrize("text", NOT_READ)
def test_texts_that_are_no_time(text: str) -> None:
    assert parse_time(text) is None


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), st.integers(-23 * 60, 23 * 60))
def test_a_time_reads_as_it_was_printed_in_any_zone(micros: int, offset: int) -> None:
    text = time_text(micros)
    assert parse_time(text) == micros
    sign, (hours, minutes) = "-" if offset < 0 else "+", divmod(abs(offset), 60)
    moved = parse_time(f"{text[:-1]}{sign}{hours:02d}:{minutes:02d}")
    assert moved == micros - offset * 60_000_000


@pytest.mark.parametrize("micros", [1 << 62, -(1 << 63) + 1])
def test_a_number_beyond_the_calendar_stays_a_number(micros: int) -> None:
    assert time_text(micros) == str(micros)


MADE = FieldSet(
    "x", b"/x/",
    (
        FieldSpec("made", "time", "path@1", {"path": "metadata.creationTimestamp"}),
        FieldSpec("used", "quantity", "sum@2", {"sum": "used.*", "resource": "cpu"}),
        FieldSpec("users", "quantity", "sum@2", {"sum": "users", "resource": ""}),
        FieldSpec("left", "quantity", "path@1", {"path": "size", "resource": "cpu"}, minus="used.*"),
    ),
    (SumSpec("used.*", b"/y/", "of", "pod_requests@1"), SumSpec("users", b"/y/", "of", "count@1")),
)  # fmt: skip
NOON = "2026-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("value", "row"),
    [(NOON, {"made": 1_769_860_800_000_000}), ("yesterday", {}), (1_769_860_800, {}), (None, {}), (["x"], {})],
)
def test_a_time_that_cannot_be_read_is_missing(value: Any, row: dict[str, int]) -> None:
    assert row_of(MADE, {"metadata": {"creationTimestamp": value}}) == row


@pytest.mark.parametrize(
    ("op", "value", "truth"),
    [
        ("=", NOON, True),
        ("=", "2026-01-31T13:00:00+01:00", True),
        ("=", "1769860800000000", True),
        ("<", NOON, False),
        ("<=", NOON, True),
        ("<", "2026-01-31T12:00:00.000001Z", True),
        (">", "2026-01-31T11:59:59.999999Z", True),
        (">", NOON, False),
        ("!=", NOON, False),
    ],
)
def test_times_compare(op: Any, value: str, truth: bool) -> None:
    row = row_of(MADE, {"metadata": {"creationTimestamp": NOON}})
    assert compile_where(MADE, Where((Comparison("made", op, (value,)),))).matches(row) is truth


@pytest.mark.parametrize("value", ["2026-01-31", "yesterday", "1e9", "9223372036854775808", ""])
def test_a_where_says_how_a_time_is_written(value: str) -> None:
    with pytest.raises(InvalidRequest, match="as a time for field made: write RFC 3339, as 2026-01-31T12:00:00Z"):
        compile_where(MADE, Where((Comparison("made", "<", (value,)),)))


def pod(of: str, cpu: str) -> dict[str, Any]:
    return {"of": of, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}


def test_single_members_of_a_sum_and_counts() -> None:
    table = Table(MADE, 1, [(b"/x/a", {"size": "4"}), (b"/x/b", {}), (b"/y/1", pod("a", "500m"))])
    row = {"used": 500, "users": 1, "left": 3500}
    assert table.index.row(b"/x/a", 1) == row
    assert table.index.row(b"/x/b", 1) == {"used": 0, "users": 0}
    assert table.apply(2, [(b"/y/2", pod("a", "1")), (b"/y/3", pod("nobody", "1"))]) == [b"/x/a"]
    assert table.index.row(b"/x/a", 2) == {"used": 1500, "users": 2, "left": 2500}
    assert table.apply(3, [(b"/y/1", pod("b", "500m"))]) == [b"/x/a", b"/x/b"]
    assert table.index.row(b"/x/b", 3) == {"used": 500, "users": 1}
    assert table.index.row(b"/x/a", 1) == row


@pytest.mark.parametrize(
    "spec",
    [
        FieldSpec("a", "int", "sum@2", {"sum": "users", "resource": ""}),
        FieldSpec("a.*", "quantity", "sum@2", {"sum": "users", "resource": ""}),
        FieldSpec("a", "quantity", "sum@2", {"sum": "users"}),
        FieldSpec("a", "quantity", "sum@2", {"sum": "none", "resource": ""}),
        FieldSpec("a", "quantity", "sum@2", {"sum": "users", "resource": ""}, minus="users"),
        FieldSpec("a", "string", "count@1"),
        FieldSpec("a.*", "quantity", "count@1"),
    ],
)
def test_unsound_declarations_of_them(spec: FieldSpec) -> None:
    with pytest.raises(InvalidRequest):
        Reader(FieldSet("x", b"/x/", (spec,), (SumSpec("users", b"/y/", "of", "count@1"),)))
