"""Which way a question goes: the shares that are guessed, and the ways that are offered."""

from __future__ import annotations

import random

import numpy as np
import pytest

from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Op, Where, compile_where
from minikube_py.index import catalogue
from minikube_py.index.declared import IndexSpec
from minikube_py.index.planner import CALL_US, Plan, _share, plan
from minikube_py.index.running import Counts, Running
from minikube_py.index.structures.scan import Scan
from minikube_py.index.table import GONE, Table

FIELDS = FieldSet(
    "things", b"/things/", tuple(FieldSpec(name, "int", "path@1", {"path": name}) for name in ("a", "b", "c"))
)
ROWS = 5000


def table(rows: int = ROWS) -> Table:
    pick = random.Random(4).randrange
    return Table(FIELDS, 1, ((b"/things/%d" % number, {name: pick(1000) for name in "abc"}) for number in range(rows)))


def run(on: Table, name: str, fields: str, structure: str = "columns") -> Running:
    running = Running(IndexSpec(name, "things", tuple(fields), structure), on.index, Counts())
    while running.state == "building":
        running.build(100_000)
    assert running.ready, running.reason
    on.running[name] = running
    return running


def planned(on: Table, *parts: tuple[str, Op, str], limit: int = 0, any_order: bool = False) -> Plan:
    where = Where(tuple(Comparison(field, op, (text,)) for field, op, text in parts))
    return plan(on, compile_where(FIELDS, where).tests, limit, "ANY" if any_order else "KEY")


def names(found: Plan) -> list[str]:
    return ["" if way.running is None else way.running.spec.name for way in found.ways]


@pytest.mark.parametrize(
    ("parts", "low", "high"),
    [
        ([("a", ">=", "500")], 0.45, 0.55),
        ([("a", ">=", "500"), ("b", "<", "500")], 0.2, 0.3),
        ([("a", ">=", "0")], 0.99, 1.0),
        ([("a", ">=", "5000")], 1e-5, 1e-3),
        ([("a", ">=", "990"), ("b", ">=", "990"), ("c", ">=", "990")], 1e-7, 1e-5),
        ([], 1.0, 1.0),
    ],
    ids=["half", "a quarter", "all", "none", "too few to be in a sample", "nothing asked"],
)
def test_the_share_that_is_guessed(parts: list[tuple[str, Op, str]], low: float, high: float) -> None:
    assert low <= planned(table(), *parts).share <= high


def test_a_sample_follows_the_rows() -> None:
    on = table(300)
    assert planned(on, ("a", ">=", "5000")).share < 0.01
    for revision, number in enumerate(range(300), 2):
        on.apply(revision, [(b"/things/%d" % number, {"a": 6000} if number % 2 else GONE)])
    assert 0.3 < planned(on, ("a", ">=", "5000")).share < 0.7


def test_shares_of_masks() -> None:
    half, other = np.arange(10) < 5, np.arange(10) >= 5
    assert _share([]) == 1.0
    assert _share([half]) == 5.5 / 11
    assert _share([half, half]) == 5.5 / 11
    assert _share([half, other]) == 0.5 / 11


def test_only_what_covers_part_of_the_question_is_offered() -> None:
    on = table()
    for fields in ("a", "ab", "c"):
        run(on, fields, fields)
    assert set(names(planned(on, ("a", ">=", "900")))) == {"", "a", "ab"}
    assert set(names(planned(on, ("a", "!=", "900")))) == {""}
    assert set(names(planned(on, ("b", "<", "3"), ("c", "=", "4")))) == {"", "ab", "c"}
    contradictory = planned(on, ("c", "<", "3"), ("c", ">", "4"), ("a", ">", "1"))
    assert names(contradictory)[0] == "c" and contradictory.ways[0].estimated_us == CALL_US


def test_what_is_not_ready_or_far_behind_is_not_offered() -> None:
    on = table(2000)
    run(on, "ready", "a")
    waiting = Running(IndexSpec("building", "things", ("a",), "columns"), on.index, Counts())
    waiting.build(10)
    on.running["building"] = waiting
    behind = run(on, "behind", "a")
    for revision in range(2, 1600):
        on.apply(revision, [(b"/things/%d" % revision, {"a": revision})])
        if not revision % 100:
            assert behind.hosted is not None and on.running["ready"].hosted is not None
            on.running["ready"].hosted.catch_up(1000)
    assert set(names(planned(on, ("a", ">", "5")))) == {"", "ready"}
    assert behind.behind and not on.running["ready"].behind
    while behind.behind:
        behind.catch_up(1000)
    assert set(names(planned(on, ("a", ">", "5")))) == {"", "ready", "behind"}


def test_the_cheapest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    on = table()
    cheap, costly, silent = (run(on, name, "ab", "scan") for name in ("cheap", "costly", "silent"))
    asked: list[tuple[int, float, int]] = []

    def cost_us(self: Scan, rows: int, share: float, limit: int) -> float:
        asked.append((rows, share, limit))
        return 0.0 if self is cheap.hosted.structure else 5e5  # type: ignore[union-attr]

    monkeypatch.setattr(Scan, "cost_us", cost_us)
    silent.hosted.estimating = None  # type: ignore[union-attr]
    found = planned(on, ("a", ">=", "500"), ("c", ">=", "900"), limit=10, any_order=True)
    assert (
        names(found)[0] == "cheap"
        and names(found)[-1] == "costly"
        and set(names(found)) == {"", "cheap", "costly", "silent"}
    )
    assert [way.estimated_us for way in found.ways] == sorted(way.estimated_us for way in found.ways)
    # One in ten of what lies in the box passes the other test too: as many more candidates are needed.
    rows, share, limit = asked[0]
    assert rows == ROWS and 0.45 < share < 0.55 and 70 <= limit <= 140
    assert costly.ready


def test_every_structure_there_is_can_be_planned_with() -> None:
    on = table(500)
    for name in catalogue.built_in():
        run(on, name, "a", name)
    offered = planned(on, ("a", ">=", "990"), limit=3, any_order=True)
    assert set(names(offered)) == {"", *catalogue.built_in()}
    assert all(0 < way.estimated_us < 1e7 for way in offered.ways)
