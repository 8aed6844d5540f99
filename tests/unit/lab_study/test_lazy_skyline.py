"""Fronts that are formed again by whoever needs them; and what a search behind a front opens in all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import holding
from minikube_py.lab.study.experiment import find
from minikube_py.studies.emptiness import check
from minikube_py.studies.emptiness.by_request import ByRequest
from minikube_py.studies.emptiness.check import steps
from minikube_py.studies.emptiness.compiled import form_of
from minikube_py.studies.emptiness.fronts import FRONTS, DirtySkyline, RepairedSkyline, Skyline
from minikube_py.studies.emptiness.searches import FIRST, OPENED, READ, UNTRIED, Searches, Searching, Turn, TurnByTurn

DESIGN = Path(__file__).resolve().parents[3] / "docs/studies/lazy-skyline.toml"
POINTS = np.array([[9, 9], [7, 1], [5, 5], [1, 7]])
"""Of 2 shards: nodes 0 and 2, 1 and 3."""


def test_a_member_that_loses_marks_its_shard_and_is_formed_again_only_where_it_would_pass() -> None:
    front = DirtySkyline(POINTS, 2)
    front.put(0, (0, 0))
    front.put(2, (4, 4))
    assert front.rows_read == 0
    assert list(front.ask(np.array([10, 0]))) == [] and front.rows_read == 0
    assert list(front.ask(np.array([6, 0]))) == [1] and front.rows_read == 2
    assert front.passing(np.array([[4, 4], [8, 8]])).tolist() == [[True, False], [False, False]]
    assert (front.rows_read, front.members()) == (2, 3)


def test_a_stale_member_is_an_upper_bound_until_its_shard_was_opened_in_vain() -> None:
    front = RepairedSkyline(POINTS, 2)
    front.put(0, (0, 0))
    assert front.passing(np.array([[8, 8]])).tolist() == [[True, False]] and front.rows_read == 0
    front.put(2, (10, 2))
    assert front.members() == 4
    front.in_vain(0, np.array([8, 8]))
    assert front.passing(np.array([[8, 8], [10, 2]])).tolist() == [[False, False], [True, False]]
    assert (front.rows_read, front.members()) == (2, 3)


@given(drawn=steps())
@settings(max_examples=60, deadline=None)
def test_after_an_opening_in_vain_a_shard_is_what_a_skyline_says(drawn: Any) -> None:
    now = np.array(drawn.points)
    asked = np.array(drawn.asked)
    front = RepairedSkyline(now, drawn.shards)
    for slot, point in drawn.changes:
        front.put(slot, point)
        now[slot] = point
        truth = holding(now, drawn.shards, asked)
        for shard in np.flatnonzero((front.passing(asked) & ~truth).any(axis=0)).tolist():
            front.in_vain(shard, asked[0])
            assert (front.passing(asked)[:, shard] == truth[:, shard]).all()
        fresh = Skyline(now, drawn.shards)
        assert not (fresh.passing(asked) & ~front.passing(asked)).any()


def test_a_search_charges_what_is_read_in_order_to_answer_and_a_shard_once() -> None:
    turns = [
        Turn(np.array([6, 0]), np.array([True, True]), [(0, (0, 0))]),
        Turn(np.array([6, 0]), np.array([False, True]), []),
    ]

    def marks(kind: Any, first: str = "") -> list[list[int]]:
        found: list[list[int]] = Searching(kind(POINTS, 2), None, first).answer(turns).tolist()
        return found

    both = [OPENED, OPENED]
    assert marks(ByRequest) == [[OPENED | READ] * 2, [0, OPENED]]
    assert marks(ByRequest, FIRST) == [[OPENED | READ, UNTRIED | READ], [0, OPENED]]
    assert marks(DirtySkyline) == [both, [READ, OPENED]]
    # The second search repairs what it opened in vain.
    assert marks(RepairedSkyline) == [both, [OPENED | READ, OPENED]]
    assert marks(Skyline) == [both, [0, OPENED]]
    assert marks(Skyline, FIRST) == [[OPENED, UNTRIED], [0, OPENED]]
    study = Searches()
    answers = np.array([[OPENED, UNTRIED], [READ, OPENED]], dtype=np.int8)
    batch: Any = SimpleNamespace(right=np.array([[True, True], [False, True]]))
    found = study.score(batch, answers)
    assert found == {"opened": 1.0, "in_vain": 0.0, "opened_in_all": 1.5, "empty": 0.25}


def test_a_shard_with_room_that_is_passed_over_is_a_mistake() -> None:
    batch: Any = SimpleNamespace(right=np.array([[True, True], [True, False]]))
    for marks, wrong in (
        ([[OPENED, UNTRIED], [OPENED, 0]], 0),
        ([[OPENED, OPENED], [OPENED, OPENED]], 0),
        ([[0, OPENED], [OPENED, UNTRIED]], 1),
        ([[OPENED, 0], [READ, OPENED]], 2),
    ):
        assert Searches().mistakes(batch, np.array(marks, dtype=np.int8)) == wrong


def test_the_design_runs_and_counts_whole_turns() -> None:
    study = find(str(DESIGN))
    design = study.load("quick")
    raw = {**design.raw, "batches": 1, "requests_per_batch": 6}
    small = type(design)(raw, design.mode, design.same, design.within)
    unit = next(each for each in small.units(("grid-ten",)))
    levels = {**dict(unit.levels), "n": 200, "shards": 4}
    report = study.measure(small, unit._replace(levels=tuple(levels.items())))
    assert report["absent"] == {} and set(report["candidates"]) == set(raw["synthetic"])
    of = {name: each["figures"] for name, each in report["candidates"].items()}
    assert not any(each["wrong"] for each in report["candidates"].values())
    exact = of["skyline"]
    assert exact["opened"] == exact["opened_in_all"] and exact["in_vain"] == [0.0]
    repaired = of["skyline-repaired"]
    assert repaired["in_vain"][0] == pytest.approx(repaired["opened"][0] - exact["opened"][0], abs=1e-5)
    whole = of["skyline-dirty"]
    assert whole["whole_cost_at_10_us"][0] == pytest.approx(whole["turn_us"][0] + 10 * whole["opened_in_all"][0])
    assert not {"answer_us", "change_us", "let_through"} & set(whole)


def test_a_turn_has_its_share_of_what_was_put_off_beyond_the_turns() -> None:
    """It was left out: work that waited until figures were read cost nothing."""
    figures = {"answer_us": [10.0, 10.0], "change_us": [60.0, 0.0]}
    assert Searches().spent_us(figures, [6, 6]) == [20.0, 10.0] and figures == {"turn_us": [20.0, 10.0]}


@pytest.mark.parametrize("listed", ["default", "dlrm", "synthetic"])
def test_a_turn_has_as_many_changes_as_the_level_says(listed: str) -> None:
    design = find(str(DESIGN)).load("quick")
    raw = {**design.raw, "batches": 1, "requests_per_batch": 9}
    small = type(design)(raw, design.mode, design.same, design.within)
    for changes in (1, 10):
        world = TurnByTurn(small, {**design.raw["defaults"], "list": listed, "n": 160, "changes": changes}, 0)
        made = sum(len(turn.changes) for turn in world.batches[0].asked)
        assert 9 * changes <= made <= 9 * changes + 1


def test_there_are_no_loops_for_a_front_that_is_kept_up_otherwise() -> None:
    class Own(Skyline):
        front = "own"

        def put(self, slot: int, point: Any) -> None:
            self._build(slot % self.shards)

    names = ("skyline-dirty", "skyline-kept")
    for kind in (*(FRONTS[each][0] for each in names), Own):
        with pytest.raises(InvalidRequest, match=f"{kind.front} has no compiled form"):
            form_of(kind)


def test_a_front_of_ones_own_is_searched_without_what_only_some_fronts_have() -> None:
    class Plain:
        front, bound = "plain", 1.0

        def passing(self, asked: Any) -> Any:
            return np.ones((len(asked), 2), dtype=np.bool_)

        def put(self, slot: int, point: Any) -> None:
            pass

        def size_bytes(self) -> int:
            return 0

    class Told(Plain):
        def __init__(self) -> None:
            self.told: list[int] = []

        def in_vain(self, shard: int, asked: Any) -> None:
            self.told.append(shard)

    turns = [Turn(np.array([6, 0]), np.array([False, True]), [])] * 2
    told: Any = Told()
    for front in (Plain(), told):
        assert Searching(front, None, FIRST).answer(turns).tolist() == [[OPENED, OPENED]] * 2
    assert told.told == [0, 0]


def test_front_check_tells_a_front_which_openings_were_in_vain() -> None:
    class Forgetful(RepairedSkyline):
        """After an opening in vain it rules its shard out for good."""

        def in_vain(self, shard: int, asked: Any) -> None:
            self._kept[shard] = self._slots[shard] = -1

    found = check.check(check.Subject("forgetful", Forgetful), 200, 0, with_bench=False)
    assert found.parts[0].failure is not None and found.parts[0].failure.law == "it never rules out a node that fits"
    assert check.check(check.find_front("skyline-repaired", {}), 100, 0, with_bench=False).holds
