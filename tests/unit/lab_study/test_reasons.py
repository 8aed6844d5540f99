"""Fronts that learn why a request was refused; a copy of all nodes; where searches go on; clusters that stay full."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.index.filters.front import holding
from minikube_py.index.structure import LOW, MISSING
from minikube_py.lab.study.design import StudyError
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.measured import Measured
from minikube_py.studies.emptiness import by_request, check
from minikube_py.studies.emptiness.by_request import Reasons, least
from minikube_py.studies.emptiness.check import steps
from minikube_py.studies.emptiness.fronts import Copied
from minikube_py.studies.emptiness.openb import OpenbCluster
from minikube_py.studies.emptiness.searches import FIRST, NEXT, OPENED, UNTRIED, Searches, Searching, Turn, TurnByTurn
from minikube_py.studies.emptiness.table import Table, around

DESIGN = Path(__file__).resolve().parents[3] / "docs/studies/reasons.toml"
POINTS = np.array([[9, 9], [7, 1], [5, 5], [1, 7]])
"""Of 2 shards: nodes 0 and 2, 1 and 3."""


def test_a_reason_is_what_the_shard_lacks_and_covers_requests_that_were_never_made() -> None:
    front = Reasons(POINTS, 2)
    front.in_vain(1, np.array([6, 6]))
    # Of nodes (7, 1) and (1, 7) none has 2 of both.
    asked = np.array([[6, 6], [2, 2], [2, 6], [7, 1], [1, 7], [1, 1]])
    assert front.passing(asked).tolist() == [[True, False]] * 3 + [[True, True]] * 3
    assert front.rows_read == 2


def test_a_node_that_has_it_raises_the_reason_as_far_as_the_request_that_found_it() -> None:
    front = Reasons(POINTS, 2)
    front.in_vain(1, np.array([6, 6]))
    front.put(1, (7, 3))
    asked = np.array([[2, 2], [2, 4], [6, 6]])
    assert front.passing(asked)[:, 1].tolist() == [True, False, False] and front.rows_read == 2
    front.put(1, (7, 6))
    assert front.passing(asked)[:, 1].tolist() == [True, True, True]


@given(
    points=st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=0, max_size=6),
    asked=st.tuples(*[st.sampled_from([MISSING, 0, 1, 2, 3, 4, 5])] * 3),
)
@settings(max_examples=200, deadline=None)
def test_no_amount_of_a_reason_can_be_lowered(points: Any, asked: Any) -> None:
    nodes, row = np.array(points, dtype=np.int64).reshape(-1, 3), np.maximum(np.array(asked), LOW)
    if (nodes >= row).all(axis=1).any():
        return
    found = least(nodes, row)
    assert (found <= row).all() and not (nodes >= found).all(axis=1).any()
    for each in np.flatnonzero(found > LOW):
        lower = found.copy()
        lower[each] = max(found[each] - 1, LOW)
        assert (nodes >= lower).all(axis=1).any(), (found, each)


@given(drawn=steps())
@settings(max_examples=60, deadline=None)
def test_it_rules_out_no_more_than_is_right_and_what_it_learned(drawn: Any) -> None:
    now, asked = np.array(drawn.points), np.array(drawn.asked)
    front = Reasons(now, drawn.shards)
    for slot, point in drawn.changes:
        front.put(slot, point)
        now[slot] = point
        truth = holding(now, drawn.shards, asked)
        assert not (truth & ~front.passing(asked)).any()
        for row, shard in np.argwhere(front.passing(asked) & ~truth).tolist():
            front.in_vain(shard, asked[row])
        assert (front.passing(asked) == truth).all()


@pytest.mark.parametrize("name", ["reasons", "copy"])
def test_the_laws_of_fronts_hold(name: str) -> None:
    assert check.check(check.find_front(name, {}), 200, 0, with_bench=False).holds


@given(drawn=steps(), start=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_copy_names_the_shards_with_room_in_order_from_any_of_them_on(drawn: Any, start: int) -> None:
    now = np.array(drawn.points)
    front = Copied(now, drawn.shards)
    for slot, point in drawn.changes:
        front.put(slot, point)
        now[slot] = point
    start %= drawn.shards
    for request in np.array(drawn.asked):
        truth = holding(now, drawn.shards, request[None])[0]
        assert list(front.ask(request, start)) == around(truth, start)


def test_a_search_goes_on_where_the_last_one_found_room() -> None:
    rights = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [1, 0, 1], [1, 0, 0]]
    turns = [Turn(np.array([6, 0]), np.array(right, dtype=np.bool_), []) for right in rights]
    marks = Searching(Table(np.zeros((3, 2), dtype=np.int64), 3), None, NEXT).answer(turns).tolist()
    one, left = OPENED, UNTRIED
    # They begin at 0, 0, 2, 1, 1, 0, 1 and 2.
    assert marks[:3] == [[one, one, one]] * 3
    assert marks[3:] == [[left, one, left], [one, one, one], [one, one, left], [left, one, one], [one, left, one]]
    study = Searches()
    batch: Any = SimpleNamespace(right=np.array([turn.right for turn in turns]))
    assert study.mistakes(batch, np.array(marks)) == 0


def test_an_opening_that_is_named_out_of_order_is_refused_as_it_would_erase_those_before() -> None:
    """A first fit marked all shards behind the one with room as not tried, those that had been opened, too."""

    class Behind(Table):
        named: list[int]

        def ask(self, asked: Any, start: int = 0) -> Any:
            yield from self.named

    front = Behind(POINTS, 2)
    turn = Turn(np.array([6, 0]), np.array([True, False]), [])
    for front.named in ([1, 0], [1, 1], [2], [-1]):
        with pytest.raises(StudyError, match="out of order or twice"):
            Searching(front, None, FIRST).answer([turn])
    front.named = [0, 1]
    assert Searching(front, None, FIRST).answer([turn]).tolist() == [[OPENED, UNTRIED]]


def test_front_check_finds_an_ask_that_says_otherwise_than_passing() -> None:
    class Says(Table):
        def ask(self, asked: Any, start: int = 0) -> Any:
            yield from ()

    found = check.check(check.Subject("says", Says), 50, 0, with_bench=False)
    assert found.parts[0].failure is not None
    assert found.parts[0].failure.law == "ask names the shards that passing does, in order"


def small(block: str, **raw: Any) -> Any:
    design = find(str(DESIGN)).load("quick")
    shorter = {**design.raw, "batches": 2, "requests_per_batch": 8, "settled_after": 1, "burn_in": 20, **raw}
    return type(design)(shorter, design.mode, design.same, design.within)


@pytest.mark.parametrize("block", ["openb", "openb-next", "both", "grid"])
def test_the_design_runs(block: str) -> None:
    study: Any = find(str(DESIGN))
    design = small(block)
    unit = next(iter(design.units((block,))))
    report = study.measure(design, unit)
    assert report["absent"] == {} and not any(each["wrong"] for each in report["candidates"].values())
    about = {"block": block, "levels": dict(unit.levels), "seed": unit.seed, "key": unit.key, "mode": "quick"}
    measured = Measured(design, [{**report, **about}], shares=study.shares)
    name = next(iter(report["candidates"]))
    figures = report["candidates"][name]["figures"]
    assert measured.by_cluster(block, "later_empty", name) == [figures["empty"][1]]


def test_a_front_that_lowers_too_far_is_found_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a reason rules out nodes that fit."""

    def half(points: Any, row: Any) -> Any:
        found = least(points, row)
        return np.where(found > LOW, found // 2, LOW)

    monkeypatch.setattr(by_request, "least", half)
    found = check.check(check.Subject("half", Reasons), 200, 0, with_bench=False)
    assert found.parts[0].failure is not None and found.parts[0].failure.law == "it never rules out a node that fits"
    study, design = find(str(DESIGN)), small("openb", requests_per_batch=64)
    report = study.measure(design, next(iter(design.units(("openb",)))))
    wrong = {name for name, each in report["candidates"].items() if each["wrong"]}
    assert wrong == {"reasons@first"}


def test_with_tries_a_cluster_stays_full_where_it_emptied() -> None:
    shares = []
    for tries in (0.0, 1.5):
        cluster = OpenbCluster("default", 100, False, 1)
        cluster.tries = tries
        cluster.change(8000)
        asked = cluster.requests(200)
        shares.append(float((~holding(cluster.points, 16, asked)).mean()))
    emptied, full = shares
    assert emptied < 0.4 < full


@pytest.mark.parametrize("order", ["first", "next"])
def test_a_pod_is_bound_where_the_search_of_its_order_finds_room(order: str) -> None:
    block = "openb-next" if order == "next" else "openb"
    design = small(block)
    unit = next(iter(design.units((block,))))
    world = TurnByTurn(design, dict(unit.levels), 3)
    turns = [turn for batch in world.batches for turn in batch.asked]
    none = Searching(Table(world.points, world.shards), None, f"@{order}", world.begins)
    bound = 0
    for turn, marks in zip(turns, none.answer(turns)):
        opened = np.flatnonzero(marks & OPENED)
        found = [shard for shard in opened if turn.right[shard]]
        if found:
            slot, _ = turn.changes[0]
            assert slot % world.shards == found[0]
            bound += 1
    assert bound
