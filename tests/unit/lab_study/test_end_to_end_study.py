"""The study `end-to-end`: a small unit with a whole control plane, and its sign-flip tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minikube_py.lab import predicates
from minikube_py.lab.load import LoadError
from minikube_py.lab.predicates import CPU, MEMORY
from minikube_py.lab.study import runner
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.measured import Measured
from minikube_py.studies import end_to_end

DESIGN = str(Path(__file__).resolve().parents[3] / "docs/studies/end-to-end.toml")
SMALL = {"pods": 12, "pods_per_s": 100, "utilisation": 0.5, "mix": "cpu-memory", "writers": 2, "writes_per_s": 40}


def small() -> Any:
    design = find(DESIGN).load("quick")
    blocks = {"whole": {"candidates": ["matchers"], "quick": {"nodes": [4]}}}
    given = {"matchers": ["columns", "scan"], "defaults": {**design.raw["defaults"], **SMALL}, "blocks": blocks}
    return replace(design, raw={**design.raw, **given})


def test_each_matcher_has_a_control_plane_and_pods_become_running() -> None:
    design = small()
    unit = next(design.units())
    record = runner.run_unit(runner.Task(DESIGN, design, unit))
    assert "failed" not in record, record["failed"]
    assert record["planned"] == [12] and sorted(record["order"][0]) == ["columns", "scan"]
    for each in record["candidates"].values():
        figures = {name: value for name, (value,) in each["figures"].items()}
        assert (each["wrong"], each["asked"], figures["unbound"]) == (0, [12], 0)
        assert 0 < figures["bound_p50_ms"] <= figures["bound_p99_ms"] <= figures["running_p99_ms"]
        assert figures["bound_p50_ms"] <= figures["running_p50_ms"] and figures["write_p99_ms"] > 0


def test_a_pod_where_it_does_not_fit_makes_its_matcher_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(end_to_end.Ledger):
        def __init__(self, nodes: Any, pods: Any) -> None:
            super().__init__([node._replace(used=node.allocatable) for node in nodes], pods)

    monkeypatch.setattr(end_to_end, "Ledger", Full)
    design = small()
    record = find(DESIGN).measure(design, next(design.units()))
    assert all(each["wrong"] for each in record["candidates"].values())


def test_a_pod_that_was_never_bound_counts_as_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 12th of 12 pods decides the p99; it fits nowhere. Eleven come within 0.11 s, and all take longer."""
    drawn = predicates.lab_pods

    def pods(rng: Any, count: int, mix: str, repetition: float) -> list[predicates.LabPod]:
        with pytest.MonkeyPatch.context() as patched:
            shape = predicates.Shape(dict.fromkeys((CPU, MEMORY), 1 << 50))
            patched.setattr(predicates, "_shape", lambda *_: shape)
            large = drawn(rng, count, mix, repetition)[-1]
        return [*drawn(rng, count - 1, mix, repetition), large]

    monkeypatch.setattr(end_to_end, "lab_pods", pods)
    design = small()
    record = find(DESIGN).measure(design, next(design.units()))
    for each in record["candidates"].values():
        figures = {name: value for name, (value,) in each["figures"].items()}
        assert figures["unbound"] == 1 and figures["bound_p50_ms"] < figures["bound_p99_ms"]
        assert figures["bound_p99_ms"] == figures["running_p99_ms"] >= 110


def test_a_write_that_is_refused_ends_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    design = small()
    design = replace(design, raw={**design.raw, "defaults": {**design.raw["defaults"], "write_bytes": 2_000_000}})
    with pytest.raises(LoadError, match="a write beside the pods answered 4"):
        find(DESIGN).measure(design, next(design.units()))


@pytest.mark.parametrize(("slower", "better"), [(2.0, "columns"), (0.5, "scan"), (1.0, "equal")])
def test_what_the_sign_flip_test_says(slower: float, better: str) -> None:
    design = small()
    units = list(replace(design, raw={**design.raw, "seeds": {"quick": 10}}).units())
    records = [
        {
            "key": unit.key, "block": unit.block, "levels": dict(unit.levels), "seed": unit.seed, "planned": [12],
            "candidates": {
                name: {"asked": [12], "wrong": 0, "figures": {"bound_p99_ms": [factor * (10 + unit.seed)]}}
                for name, factor in (("columns", 1.0), ("scan", slower))
            },
        }
        for unit in units
    ]  # fmt: skip
    (table,) = [each for each in Measured(design, records).tables() if each.title.startswith("Until bound")]
    (row,) = table.rows
    assert (row[0], row[1], row[-1]) == ("scan", "10", better)
    assert better == "equal" or row[-2] == "0.00195"
