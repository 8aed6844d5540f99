"""The table of a cluster in a test is what the committed data say."""

from __future__ import annotations

import json

import door_table


def test_the_page_has_the_table_of_the_data() -> None:
    assert door_table.main([]) == 0


def test_a_row_tells_median_range_turns_load_and_commit() -> None:
    document = json.loads(door_table.DATA.read_bytes())
    figures = {"stop processor ms": [4.0, 6.26, 30.0], "stop wall ms": [1200.0]}
    row = {"figures": figures, "load": [0.25, 3.0], "environment": {"commit": "0123456789ab"}}
    document["rows"][f"{door_table.WATCHES}, two requests in flight"] = row
    (line,) = (each for each in door_table.rendered(document).splitlines() if "followed log" in each)
    assert line.endswith("| 50 | 6.3 (4.0 to 30.0) | 1,200 (1,200 to 1,200) | 3 | 0.2 to 3.0 | 01234567 |")
