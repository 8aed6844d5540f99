"""Whom a change of a node wakes, and what it costs to know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minikube_py.index.structure import MISSING
from minikube_py.lab.study.experiment import Absent, find
from minikube_py.studies.emptiness.watched import KINDS, Watching, crossing

ROOT = Path(__file__).resolve().parents[3]
WATCHED = np.array([[4, MISSING], [MISSING, 2], [4, 2], [4, MISSING], [9, 9]])
STEPS = np.array([[[3, 2], [4, 2]], [[4, 2], [4, 2]], [[8, 3], [3, 1]], [[3, 1], [9, 9]]])
CONCERNED = [
    [True, False, True, True, False],
    [False] * 5,
    [True, True, True, True, False],
    [True] * 5,
]


def test_who_is_concerned() -> None:
    assert crossing(WATCHED, STEPS).tolist() == CONCERNED


@pytest.mark.parametrize("name", KINDS)
def test_nobody_concerned_sleeps_on_and_who_compares_wakes_nobody_else(name: str) -> None:
    kind, options = KINDS[name]
    rng = np.random.default_rng(5)
    for watched, steps in [(WATCHED, STEPS)] + [
        (rng.integers(-1, 9, (40, 3)), rng.integers(0, 9, (30, 2, 3))) for _ in range(20)
    ]:
        woken = kind(watched, **options).answer(steps)
        right = crossing(watched, steps)
        assert woken.shape == right.shape and not (right & ~woken).any()
        assert name in ("broadcast", "sorted-unverified") or (woken == right).all()


def test_what_is_compared() -> None:
    compared = {}
    for name, (kind, options) in KINDS.items():
        made = kind(WATCHED, **options)
        made.answer(STEPS)
        compared[name] = (made.figures()["rows"], made.figures()["compared"] * len(STEPS))
    # Between 3 and 4: three watchers, two of them alike; nothing; between 8, 3 and 3, 1: four; up to 9, 9: all.
    assert compared == {
        "broadcast": (5, 0),
        "scan": (5, 20),
        "sorted-unverified": (5, 0),
        "sorted": (5, 3 + 0 + 4 + 5),
        "shapes": (4, 16),
        "sorted-shapes": (4, 2 + 0 + 3 + 4),
    }


def test_a_unit_of_each_block_runs_and_nobody_is_wrong() -> None:
    study = find(str(ROOT / "docs/studies/watched.toml"))
    design = study.load("quick")
    assert set(design.candidates("real")) == set(design.candidates("grid")) == set(KINDS)
    design = type(design)({**design.raw, "batches": 2, "changes_per_batch": 10}, "quick")
    units = {unit.block: unit for unit in design.units() if dict(unit.levels)["watchers"] == 100}
    assert set(units) == {"real", "grid"}
    for unit in units.values():
        record = study.measure(design, unit)
        assert record["absent"] == {} and set(record["candidates"]) == set(KINDS)
        told = {name: each["figures"] for name, each in record["candidates"].items()}
        assert all(each["wrong"] == 0 for each in record["candidates"].values())
        assert all(each["concerned"] == told["scan"]["concerned"] == told["scan"]["woken"] for each in told.values())
        assert told["scan"]["in_vain"] == told["sorted-shapes"]["in_vain"] == [0.0, 0.0]
        assert told["broadcast"]["woken"] == told["scan"]["compared"] == [100, 100]
    world = Watching(design, dict(units["real"].levels), 0)
    with pytest.raises(Absent, match="none of broadcast"):
        study.candidate("telepathy", world, design, {})


def test_steps_are_the_changes_of_each_node_in_order() -> None:
    design = find(str(ROOT / "docs/studies/watched.toml")).load("quick")
    world = Watching(design, {**design.raw["defaults"], "list": "synthetic", "n": 3}, 1)
    olds, news = (np.concatenate([batch.asked[:, side] for batch in world.batches]) for side in (0, 1))
    later = {tuple(point) for point in news.tolist()}
    first = [point for point in olds.tolist() if tuple(point) not in later]
    assert len(world.batches) == 4 and len(olds) == 256 and len(first) <= 3


@pytest.mark.parametrize(
    "name", ["emptiness", "constraints", "watched", "watched-synthetic", "range-filter", "compiled-fronts"]
)
def test_what_only_a_synthetic_cluster_has_is_varied_there_alone(name: str) -> None:
    """Two cells that differ in it would be the same cluster."""
    for mode in ("quick", "full"):
        design = find(str(ROOT / f"docs/studies/{name}.toml") if name != "emptiness" else name).load(mode)
        for block in design.blocks:
            cells = design.cells(block)
            varied = {
                factor for factor in ("utilisation", "correlation", "d") if len({c.get(factor) for c in cells}) > 1
            }
            assert (
                not varied or {cell["list"] for cell in cells} == {"synthetic"} or (name, block) == ("watched", "grid")
            )
