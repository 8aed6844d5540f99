"""Fronts that learn requests from the shards that are opened anyway."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import holding
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.measured import Measured
from minikube_py.studies.emptiness import check
from minikube_py.studies.emptiness.by_request import ByRequest, LazyByRequest, Refused
from minikube_py.studies.emptiness.check import steps
from minikube_py.studies.emptiness.searches import OPENED, READ, Searching, Turn

DESIGN = Path(__file__).resolve().parents[3] / "docs/studies/lazy-requests.toml"
POINTS = np.array([[9, 9], [7, 1], [5, 5], [1, 7]])
"""Of 2 shards: nodes 0 and 2, 1 and 3."""


def says(front: Any, *asked: Sequence[int]) -> list[list[bool]]:
    passing: list[list[bool]] = front.passing(np.array(asked)).tolist()
    return passing


def test_a_new_request_passes_unless_a_smaller_one_failed_and_no_node_is_read_for_it() -> None:
    front = LazyByRequest(POINTS, 2)
    assert says(front, [8, 8], [2, 2], [0, 0]) == [[True, True]] * 3 and front.rows_read == 0
    front.in_vain(1, np.array([8, 8]))
    assert says(front, [8, 8], [2, 2], [0, 0], [9, 9], [8, 1]) == [
        [True, False], [True, False], [True, True], [True, False], [True, True]
    ]  # fmt: skip
    assert front.rows_read == 2


def test_a_change_gives_room_back_and_takes_none_away() -> None:
    front = LazyByRequest(POINTS, 2)
    front.begin(np.array([[8, 8], [2, 2]]))
    assert says(front, [8, 8], [2, 2]) == [[True, False], [True, False]]
    front.put(0, (0, 0))
    front.put(1, (3, 3))
    assert says(front, [8, 8], [2, 2]) == [[True, False], [True, True]]
    front.in_vain(0, np.array([8, 8]))
    assert says(front, [8, 8], [2, 2]) == [[False, False], [True, True]]


def test_a_place_that_is_taken_over_says_nothing_of_the_request_before() -> None:
    front = LazyByRequest(POINTS, 2, 2)
    front.begin(np.array([[8, 8], [2, 2]]))
    assert says(front, [8, 8]) == [[True, False]]
    # Takes the place of [2, 2], which failed where [1, 1] does not.
    assert says(front, [1, 1]) == [[True, True]]
    assert says(front, [9, 9]) == [[True, True]], "[8, 8] was asked longest ago and is gone"


def test_what_was_refused_is_refused_until_a_node_has_room_for_it() -> None:
    front = Refused(POINTS, 2)
    front.in_vain(1, np.array([2, 2]))
    assert says(front, [2, 2], [3, 2], [2, 1]) == [[True, False], [True, False], [True, True]]
    front.in_vain(1, np.array([0, 2]))
    assert says(front, [2, 2], [0, 2], [2, 1]) == [[True, False], [True, False], [True, True]]
    front.put(1, (0, 3))
    assert says(front, [2, 2], [0, 2]) == [[True, True], [True, True]] and front.rows_read == 0


def test_no_more_is_held_than_was_said_and_the_oldest_goes() -> None:
    front = Refused(POINTS, 2, 2)
    for asked in ([9, 0], [5, 5], [0, 9]):
        front.in_vain(1, np.array(asked))
    assert says(front, [9, 0], [5, 5], [0, 9]) == [[True, True], [True, False], [True, False]]
    for kind in (Refused, LazyByRequest):
        with pytest.raises(InvalidRequest, match="1 at least"):
            kind(POINTS, 2, 0)


@pytest.mark.parametrize("kind", [LazyByRequest, Refused])
def test_it_rules_out_no_more_than_is_right_and_what_it_learned(kind: Any) -> None:
    @given(drawn=steps())
    @settings(max_examples=60, deadline=None)
    def holds(drawn: Any) -> None:
        now, asked = np.array(drawn.points), np.array(drawn.asked)
        front = kind(now, drawn.shards)
        for slot, point in drawn.changes:
            front.put(slot, point)
            now[slot] = point
            truth = holding(now, drawn.shards, asked)
            for row, shard in np.argwhere(front.passing(asked) & ~truth).tolist():
                front.in_vain(shard, asked[row])
            assert (front.passing(asked) == truth).all()

    holds()


@pytest.mark.parametrize("name", ["by-request-lazy", "refused"])
def test_front_check_reports_for_which_request_and_measures_it_as_it_is_used(name: str) -> None:
    """A shard was reported after other requests, so a front that learns from the request broke a law; and its bench
    reported nothing, so that all fronts that learn in vain let everything through."""
    found = check.check(check.find_front(name, {}), 100, 0)
    assert found.holds
    assert all(cost.let_through < 0.6 for cost in found.costs if cost.front == name and cost.world == "openb")


def test_learning_is_charged_only_where_a_shard_is_opened() -> None:
    turns = [Turn(np.array([6, 6]), np.array([True, False]), [])] * 2
    marks = [Searching(kind(POINTS, 2), None).answer(turns).tolist() for kind in (ByRequest, LazyByRequest)]
    assert marks == [[[OPENED | READ, READ], [OPENED, 0]], [[OPENED, OPENED | READ], [OPENED, 0]]]
    assert Searching(Refused(POINTS, 2), None).answer(turns).tolist() == [[OPENED, OPENED], [OPENED, 0]]


def test_the_design_runs() -> None:
    study = find(str(DESIGN))
    design = study.load("quick")
    raw = {**design.raw, "batches": 3, "requests_per_batch": 6, "settled_after": 1}
    small = type(design)(raw, design.mode, design.same, design.within)
    for block in ("openb", "grid-ten"):
        unit = next(iter(small.units((block,))))
        report = study.measure(small, unit)
        assert report["absent"] == {} and not any(each["wrong"] for each in report["candidates"].values())
        about = {"block": block, "levels": dict(unit.levels), "seed": unit.seed, "key": unit.key, "mode": "quick"}
        measured = Measured(small, [{**report, **about}], shares=study.shares)
        both = [measured.by_cluster(block, f"{which}turn_us", "refused@first")[0] for which in ("", "later_")]
        spent_us = report["candidates"]["refused@first"]["figures"]["turn_us"]
        assert both == pytest.approx([sum(spent_us) / 3, sum(spent_us[1:]) / 2])
