"""A sample of what `make judge` asks: drawn scripts, played by our scheduler, beside what upstream's made of them."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import pytest
from differences import SCHEDULER_SCRIPTS
from drawn_scheduling import THEMES
from scheduler_twin import Twin, differences
from scripts_of_scheduling import Script, node, pod

from minikube_py.scheduler.configuration.merging import UPSTREAM_DEFAULTS

DATA = pathlib.Path(__file__).parents[2] / "conformance" / "data"
RECORDED: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "scheduler_answers.jsonl").read_text().splitlines()
]


SILENT = {
    "PrioritySort": "orders the queue, which the order of attempts shows",
    "NodeName": "a pod with a node name is not for a scheduler",
    "DefaultBinder": "binds, whatever was decided",
}
"""Plugins that turn no pod down and give no score in a script, by why."""
JUDGED = sorted({name for name, _ in UPSTREAM_DEFAULTS} - SILENT.keys())


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
async def test_a_script_ends_as_upstreams(recorded: dict[str, Any]) -> None:
    ours = await Twin(recorded, recorded["answers"]).play()
    assert differences(recorded, recorded["answers"], ours) == []


def test_the_sample_says_something() -> None:
    attempts = [each for found in RECORDED for answer in found["answers"] for each in answer.get("attempts") or ()]
    assert sum(bool(each.get("message")) for each in attempts) > 20
    assert sum(bool(each.get("scores")) for each in attempts) > 20


def test_the_counts_cover_every_plugin() -> None:
    counts = json.loads((DATA / "scheduler_twins.json").read_text())
    assert counts["pods"] >= 2_000 and set(counts["differences"]) <= set(SCHEDULER_SCRIPTS)
    assert {name: counts["plugins"].get(name, 0) for name in JUDGED if counts["plugins"].get(name, 0) < 50} == {}
    assert set(counts["themes"]) == set(THEMES), "make judge has not been run since a theme came"


@pytest.mark.parametrize(("has", "asks", "fits"), (
    ("72057594037927935", "72057594037927935", True),
    ("72057594037927936", "72057594037927935", True),
    ("1E", "72057594037927936", False),
    ("9223372036854775807", "1E", False),
))  # fmt: skip
async def test_amounts_beyond_those_that_are_told_apart_fit_nowhere(has: str, asks: str, fits: bool) -> None:
    """As `differences.SCHEDULER` says."""
    s = Script(random.Random(1))
    s.put("Node", node("n", {"cpu": "4", "memory": has, "pods": "9"}))
    wanted = pod("p")
    wanted["spec"]["containers"][0]["resources"] = {"requests": {"memory": asks}}
    s.attempt(wanted)
    *_, tried = await Twin({"steps": s.steps}).play()
    (attempt,) = tried["attempts"]
    assert (attempt.get("node") == "n") is fits and ("1 Insufficient memory" in attempt.get("message", "")) is not fits
