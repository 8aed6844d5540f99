"""A compiled front is the numpy front of its name: answers, bytes, nodes read again; without numba it is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import require_numba

from minikube_py.cli.main import main
from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import holding
from minikube_py.index.structure import MISSING
from minikube_py.lab.study.experiment import Absent, find
from minikube_py.studies.emptiness import compiled as module
from minikube_py.studies.emptiness import compiled_learning, compiled_rows
from minikube_py.studies.emptiness.check import _run, steps
from minikube_py.studies.emptiness.compiled import CompiledFront, form_of, front_of, machine_code
from minikube_py.studies.emptiness.fronts import FRONTS, JointCells, RangeFilter, RepairedSkyline
from minikube_py.studies.emptiness.searches import FIRST, NEXT, Searching, Turn
from minikube_py.studies.emptiness.study import Behind, World
from minikube_py.studies.emptiness.table import Table

DESIGN = Path(__file__).resolve().parents[3] / "docs/studies/compiled-fronts.toml"

WITHOUT = {"skyline-dirty", "skyline-kept"}
"""Those that are kept up otherwise than the loops do."""
LOOPS = [each for each in FRONTS if each not in WITHOUT]
QUICK = [each for each in LOOPS if not each.startswith("range-filter")]
"""Without those whose tens of thousands of cells numpy asks one by one."""


def as_it_is(function: Any) -> Any:
    return function


def numbas() -> Any:
    require_numba()
    return machine_code()


def same(numpy: Any, compiled: CompiledFront, asked: Any) -> None:
    assert (numpy.passing(asked) == compiled.passing(asked)).all()
    told = [(each.rows_read, each.size_bytes(), each.held_bytes()) for each in (numpy, compiled)]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", QUICK)
@given(drawn=steps(), many=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_compiled_front_is_the_numpy_one(name: str, drawn: Any, many: bool) -> None:
    require_numba()
    points, asked = np.array(drawn.points), np.array(drawn.asked, dtype=np.int64)
    try:
        numpy = front_of(name, points, drawn.shards)
    except InvalidRequest:
        with pytest.raises(InvalidRequest):
            front_of(f"{name}@compiled", points, drawn.shards)
        return
    compiled = front_of(f"{name}@compiled", points, drawn.shards)
    same(numpy, compiled, asked)
    for slot, point in drawn.changes:
        numpy.put(slot, point)
        if not many:
            compiled.put(slot, point)
            same(numpy, compiled, asked)
    if many:
        compiled.put_many(drawn.changes)
    same(numpy, compiled, asked)


@pytest.mark.parametrize("jit", [as_it_is, numbas])
def test_a_compiled_skyline_that_waits_is_repaired_as_the_numpy_one(jit: Any) -> None:
    """Its shards get more bounds than they have nodes: a node that moves along a front leaves a bound at each place."""
    jit = jit if jit is as_it_is else jit()
    points = np.array([[9, 9], [1, 0], [2, 2], [0, 1]])
    numpy, compiled = RepairedSkyline(points, 2), CompiledFront(RepairedSkyline(points, 2), jit)
    asked = np.array([[each, 12 - each] for each in range(13)])
    changes = [(0, (0, 0)), *[(1, (each, 12 - each)) for each in range(13)], (1, (3, 3)), (2, (20, 2))]
    for slot, point in changes:
        numpy.put(slot, point)
    compiled.put_many(changes)
    same(numpy, compiled, asked)
    assert numpy.members() == compiled.members() > len(points) and numpy.rows_read == 0
    for request in asked:
        assert list(numpy.ask(request)) == list(compiled.ask(request))
    for shard in (1, 0):
        numpy.in_vain(shard, asked[0])
        compiled.in_vain(shard, asked[0])
        same(numpy, compiled, asked)
        assert numpy.visited.tolist() == compiled.visited.tolist()
    assert compiled.members() == 2 and not compiled.passing(np.array([[4, 4]]))[0, 1]


@given(drawn=steps())
@settings(max_examples=25, deadline=None)
def test_searches_behind_a_compiled_front_open_what_they_open_behind_the_numpy_one(drawn: Any) -> None:
    require_numba()
    now = np.array(drawn.points)
    turns = []
    for number, (slot, point) in enumerate(drawn.changes):
        request = np.array(drawn.asked[number % len(drawn.asked)], dtype=np.int64)
        turns.append(Turn(request, holding(now, drawn.shards, request[None])[0], [(slot, point)]))
        now[slot] = point
    for name in ("skyline-repaired", "skyline", "by-request", "by-request-lazy", "refused", "reasons", "copy"):
        for order in ("", FIRST, NEXT) if turns else ():
            marks = [
                Searching(front_of(name + form, np.array(drawn.points), drawn.shards), None, order).answer(turns)
                for form in ("", "@compiled")
            ]
            assert (marks[0] == marks[1]).all(), name


LEARNING = ("by-request", "by-request-lazy", "refused", "reasons")


def learned(name: str, seed: int) -> None:
    """Long searches in which places run short: what is held, and what takes its place, is the same throughout."""
    rng = np.random.default_rng(seed)
    points, shards = rng.integers(0, 7, (int(rng.integers(5, 60)), 4)), int(rng.integers(1, 6))
    numpy, compiled = (
        front_of(name + form, points, shards, {"most": 4} if name in LEARNING else {}) for form in ("", "@compiled")
    )
    menu = rng.integers(0, 8, (12, 4))
    menu[rng.random(menu.shape) < 0.3] = MISSING
    for number in range(150):
        request, start = menu[rng.integers(12)], int(rng.integers(shards))
        right = holding(numpy.points, shards, request[None])[0]
        opened = list(numpy.ask(request, start))
        assert opened == list(compiled.ask(request, start)), number
        for shard in opened if hasattr(numpy, "in_vain") else ():
            if not right[shard]:
                numpy.in_vain(shard, request)
                compiled.in_vain(shard, request)
        changes = [(int(rng.integers(len(points))), tuple(rng.integers(0, 7, 4).tolist())) for _ in range(3)]
        for slot, point in changes:
            numpy.put(slot, point)
        compiled.put_many(changes)
        same(numpy, compiled, menu[:0] if name.startswith("by-request") else menu)
        assert not hasattr(numpy, "_rows") or np.array_equal(numpy._rows, compiled._rows)
        assert numpy.visited.tolist() == compiled.visited.tolist()
        numpy.visited[:] = compiled.visited[:] = False


@pytest.mark.parametrize("jit", [as_it_is, numbas])
@pytest.mark.parametrize("name", [*LEARNING, "copy"])
def test_what_a_compiled_front_learns_is_what_the_numpy_one_does(
    name: str, jit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = jit if jit is as_it_is else jit()
    monkeypatch.setattr(module, "machine_code", lambda: machine)
    for seed in range(3 if jit is as_it_is else 12):
        learned(name, seed)


def test_a_reason_that_is_lowered_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would rule out a shard that has room."""
    monkeypatch.setattr(module, "machine_code", lambda: as_it_is)
    least = compiled_learning._least(as_it_is)
    monkeypatch.setattr(compiled_learning, "_least", lambda jit: lambda *given: least(*given) - 1)
    with pytest.raises(AssertionError):
        learned("reasons", 1)


def test_a_skyline_that_is_kept_is_one_that_is_formed_again() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points, shards = rng.integers(0, 6, (int(rng.integers(1, 60)), 3)), int(rng.integers(1, 6))
        formed, kept = front_of("skyline", points, shards), front_of("skyline-kept", points, shards)
        asked = rng.integers(0, 7, (20, 3))
        for _ in range(60):
            slot, point = int(rng.integers(len(points))), tuple(rng.integers(0, 6, 3).tolist())
            formed.put(slot, point)
            kept.put(slot, point)
            assert (formed.passing(asked) == kept.passing(asked)).all()
            assert formed.size_bytes() == kept.size_bytes() and formed.held_bytes() == kept.held_bytes()
            for start in range(shards):
                assert list(formed.ask(asked[0], start)) == list(kept.ask(asked[0], start))


@pytest.mark.parametrize("name", QUICK)
def test_the_loops_are_the_same_in_plain_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_code", lambda: as_it_is)
    rng = np.random.default_rng(7)
    points, asked = rng.integers(0, 9, (40, 2)), rng.integers(-1, 10, (30, 2))
    asked[asked < 0] = MISSING
    numpy, compiled = front_of(name, points, 3), front_of(f"{name}@compiled", points, 3)
    for slot in rng.integers(0, 40, 60).tolist():
        point = tuple(rng.integers(0, 9, 2).tolist())
        numpy.put(slot, point)
        compiled.put(slot, point)
        same(numpy, compiled, asked)


@pytest.mark.parametrize("jit", [as_it_is, numbas])
def test_cells_whose_bits_are_shared_and_layered_answer_alike(jit: Any) -> None:
    jit = jit if jit is as_it_is else jit()
    rng = np.random.default_rng(5)
    points, asked = rng.integers(0, 4096, (60, 2)), rng.integers(0, 4200, (60, 2))
    for make in (
        lambda: JointCells(points, 3, 9),
        lambda: JointCells(points, 3, 9, 16),
        lambda: RangeFilter(points[:, [0, 1, 0, 1]] >> 7, 3, 8),
    ):
        numpy, compiled = make(), CompiledFront(make(), jit)
        wanted = asked if numpy.dimensions == 2 else asked[:4, [0, 1, 0, 1]] >> 7
        for slot in range(12):
            point = tuple((numpy.points[slot] // 2).tolist())
            numpy.put(slot, point)
            compiled.put(slot, point)
        same(numpy, compiled, wanted)


def test_the_laws_of_fronts_hold_compiled() -> None:
    require_numba()
    for name in ("skyband-2", "skyline-repaired"):
        assert main(["front", "check", f"{name}@compiled", "--examples", "60", "--no-bench"]) == 0


def test_a_loop_that_lies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled skyline that forgets to read a shard again is not exact."""
    from minikube_py.lab.conformance.laws import failing

    monkeypatch.setattr(module, "machine_code", lambda: as_it_is)
    band = compiled_rows._band(as_it_is)

    def forgets(points: Any, kept: Any, members: Any, counts: Any, sure: Any, *rest: Any) -> Any:
        sure += 1
        return band(points, kept, members, counts, sure, *rest)

    monkeypatch.setattr(compiled_rows, "_band", lambda jit: forgets)
    build = lambda points, shards: front_of("skyline@compiled", points, shards)  # noqa: E731
    assert failing(steps(), lambda drawn: _run(build, drawn), 60, 1, True) is not None


def test_without_numba_it_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine_code.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert main(["front", "check", "skyline@compiled"]) == 2
    said = "a compiled front needs numba, which is not installed; run pip install '.[compiled]'"
    assert said in capsys.readouterr().err
    study = find(str(DESIGN))
    design = study.load("quick")
    world = World(design, {**design.raw["defaults"], "n": 40, "shards": 4}, 0)
    with pytest.raises(Absent, match="a compiled front needs numba"):
        study.candidate("skyline@compiled", world, design, {})
    assert isinstance(study.candidate("skyline", world, design, {}), Behind)


@pytest.mark.parametrize("name", sorted(set(LOOPS) - set(QUICK)))
def test_a_front_that_numpy_asks_slowly_has_loops_too(name: str) -> None:
    require_numba()
    assert isinstance(front_of(f"{name}@compiled", np.ones((2, 2), dtype=np.int64), 1), CompiledFront)


def test_a_kind_without_loops_is_refused_by_name() -> None:
    """A subclass of the table itself, whose answers the table's loops would not give."""
    with pytest.raises(InvalidRequest, match="the front own has no compiled form"):
        form_of(type("Own", (Table,), {"front": "own"}))


def test_the_design_asks_each_front_both_ways_and_adds_prices() -> None:
    require_numba()
    study = find(str(DESIGN))
    design = study.load("quick")
    names = set(design.candidates("grid"))
    plain = {each for each in names if "@" not in each}
    later = {each for each in FRONTS if each.startswith(("bounded-skyline", "by-request", "skyline-"))}
    later = (later | {"max-vectors-8", "max-vectors-16", "refused", "reasons", "copy"}) - WITHOUT
    assert set(QUICK) == plain | later
    assert {f"{each}@compiled" for each in names if "@" not in each} <= names == set(design.candidates("openb"))
    small = type(design)({**design.raw, "batches": 2, "requests_per_batch": 8, "changes_per_batch": 8}, "quick")
    unit = next(unit for unit in small.units() if unit.block == "grid")
    record = study.measure(small, unit)
    assert record["absent"] == {} and all(each["wrong"] == 0 for each in record["candidates"].values())
    for name, each in record["candidates"].items():
        figures = each["figures"]
        plain = record["candidates"].get(name.split("@")[0], each)["figures"]
        for counted in ("let_through", "opened", "bytes", "held_bytes"):
            assert figures[counted] == plain[counted]
        costs = zip(figures["answer_us"], figures["change_us"], figures["opened"])
        assert figures["cost_at_10_us"] == pytest.approx([ask + change + 10 * opened for ask, change, opened in costs])
