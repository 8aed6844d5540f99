"""The table of a cluster in a test is what the committed data say."""

from __future__ import annotations

import json

import door_table
import pytest


def test_the_page_has_the_table_of_the_data() -> None:
    assert door_table.main([]) == 0


@pytest.mark.parametrize(
    ("values", "goal", "prefix", "cells"),
    [
        ([14.62, 14.96, 14.54], 15, "", ["15, **missed**", "14.62 (14.54 to 14.96)"]),
        ([14.62, 14.94, 14.54], 15, "", ["15, **missed**", "14.6 (14.5 to 14.9)"]),
        ([15.0, 15.0, 15.4], 15, "", ["15", "15.0 (15.0 to 15.4)"]),
        ([15.2, 15.3, 16.0], 15, "", ["15", "15.3 (15.2 to 16.0)"]),
        ([37.1, 36.8, 36.7], 60, "", ["60, **missed**", "37 (37 to 37)"]),
        ([19.996, 18.0, 20.004], 20, "ms", ["20", "19.996 (18.000 to 20.004)"]),
        ([46.0, 50.0, 55.0], 20, "ms", ["20, **missed**", "50 (46 to 55)"]),
        ([20.0], 20, "ms", ["20, **missed**", "20 (20 to 20)"]),
        ([2240.0], None, "ms", ["", "2,240 (2,240 to 2,240)"]),
    ],
)
def test_a_missed_goal_is_marked_and_seen_in_the_digits(
    values: list[float], goal: int | None, prefix: str, cells: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_table, "ROWS", (("what", goal, "row", prefix),))
    row = {"figures": {"ms processor ms" if prefix else "times real time": values}}
    about = {"load": [1.0], "environment": {"commit": "0123456789ab"}}
    *_, line = door_table.rendered({"rows": {"row": row | about}}).splitlines()
    assert [each.strip() for each in line.split("|")][2:4] == cells


def test_a_row_tells_median_range_turns_load_and_commit() -> None:
    document = json.loads(door_table.DATA.read_bytes())
    figures = {"stop processor ms": [4.0, 6.26, 30.0], "stop wall ms": [1200.0]}
    row = {"figures": figures, "load": [0.25, 3.0], "environment": {"commit": "0123456789ab"}}
    document["rows"][f"{door_table.WATCHES}, two requests in flight"] = row
    (line,) = (each for each in door_table.rendered(document).splitlines() if "followed log" in each)
    assert line.endswith("| 50 | 6.3 (4.0 to 30.0) | 1,200 (1,200 to 1,200) | 3 | 0.2 to 3.0 | 01234567 |")
