"""A sample of what `make judge` asks: drawn scripts, played by our scheduler, beside what upstream's made of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from scheduler_twin import Twin, differences

DATA = pathlib.Path(__file__).parents[2] / "conformance" / "data"
RECORDED: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "scheduler_answers.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
async def test_a_script_ends_as_upstreams(recorded: dict[str, Any]) -> None:
    ours = await Twin(recorded).play()
    assert differences(recorded, recorded["answers"], ours) == []


def test_the_sample_says_something() -> None:
    attempts = [each for found in RECORDED for answer in found["answers"] for each in answer.get("attempts") or ()]
    assert sum(bool(each.get("message")) for each in attempts) > 20
    assert sum(bool(each.get("scores")) for each in attempts) > 20


def test_the_counts_cover_every_plugin() -> None:
    counts = json.loads((DATA / "scheduler_twins.json").read_text())
    assert counts["pods"] >= 2_000 and not counts["differences"]
    assert {name: number for name, number in counts["plugins"].items() if number < 50} == {}
