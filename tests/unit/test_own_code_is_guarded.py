"""Code of others runs behind one guard: one tuple of what it may raise, and one loader of installed code."""

from __future__ import annotations

import ast
import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import minikube_py
from minikube_py import own_code
from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.index import catalogue
from minikube_py.lab import trace
from minikube_py.lab.study import experiment
from minikube_py.lab.trace import TraceError
from minikube_py.scheduler import registry
from minikube_py.scheduler.flow import models
from minikube_py.scheduler.prediction import predictor
from minikube_py.studies.emptiness import check

PRODUCT = Path(minikube_py.__file__).parent
OF_THE_PRODUCT = {"scheduler/flow/rounds.py", "lab/study/runner.py"}
"""They also run the product's own steps, and Ray."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PRODUCT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "raised()" in text or "entry_points" in text or "own_code" in text:
            yield path.relative_to(PRODUCT).as_posix(), ast.parse(text)


def _named(tree: ast.AST, *names: str) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in names) or (isinstance(each, ast.Attribute) and each.attr in names)
        for each in ast.walk(tree)
    )


def _guards(tree: ast.AST) -> bool:
    return any(
        isinstance(each, ast.ExceptHandler) and isinstance(each.type, ast.Call) and _named(each.type.func, "raised")
        for each in ast.walk(tree)
    )


def test_there_is_one_gate_for_what_code_of_others_may_raise() -> None:
    found = [
        module
        for module, tree in _modules()
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and each.name == "raised"
    ]
    assert found == ["own_code.py"]


def test_no_module_that_runs_code_of_others_catches_less() -> None:
    found = {
        module
        for module, tree in _modules()
        if _guards(tree)
        for each in ast.walk(tree)
        if isinstance(each, ast.ExceptHandler) and isinstance(each.type, ast.Name) and each.type.id == "Exception"
    }
    assert found <= OF_THE_PRODUCT


def test_each_structure_in_use_is_asked_by_a_module_that_catches_it() -> None:
    asked = {"index/running.py", "index/hosted.py", "index/planner.py", "mvcc/queries.py", "scheduler/matcher.py"}
    assert asked <= {module for module, tree in _modules() if _guards(tree)}


def test_installed_code_is_loaded_in_one_place() -> None:
    found = [
        module
        for module, tree in _modules()
        if _named(tree, "entry_points", "EntryPoint") or module == "own_code.py"
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "load"
        if not each.args and not (isinstance(each.func.value, ast.Name) and each.func.value.id == "own_code")
    ]
    assert found == ["own_code.py"]


FOUND: dict[str, Callable[[str], Any]] = {
    catalogue.GROUP: lambda name: catalogue.build(name, 1, {}),
    check.GROUP: lambda name: check.find_front(name, {}),
    experiment.GROUP: experiment.find,
    models.GROUP: lambda name: models.model_named(name, {}, random.Random(0)),
    predictor.GROUP: lambda name: predictor.predictor_named(name, {}),
    registry.ENTRY_POINT_GROUP: registry.entry_point,
    trace.GROUP: trace.trace_named,
}
KEPT: list[Any] = [catalogue._installed, registry._entry_points]


ENDS = {
    "SystemExit": "SystemExit(3)",
    "GeneratorExit": "GeneratorExit",
    "CancelledError": "asyncio.CancelledError",
    "ValueError": "ValueError('no')",
    "Panic": "type('Panic', (BaseException,), {})",
}


@pytest.mark.parametrize("raised", ENDS)
@pytest.mark.parametrize("group", FOUND)
def test_installed_code_that_ends_at_import_is_told(
    group: str, raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ends{list(FOUND).index(group)}{raised[:3].lower()}"
    (tmp_path / f"{name}.py").write_text(f"import asyncio\nraise {ENDS[raised]}\n")
    info = tmp_path / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:It\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for kept in KEPT:
        kept.cache_clear()
    try:
        with pytest.raises((RequestError, InvalidRequest, TraceError), match=raised):
            FOUND[group](name)
    finally:
        for kept in KEPT:
            kept.cache_clear()


class Panic(BaseException):
    """As pyo3's: what a panic in an extension written in Rust becomes."""


OTHERS: list[BaseException] = [
    ValueError(),
    SystemExit(3),
    GeneratorExit(),
    asyncio.CancelledError(),
    Panic(),
    BaseExceptionGroup("several", [SystemExit(1), ValueError()]),
]


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_the_gate_stops_whatever_somebody_raises(error: BaseException) -> None:
    try:
        raise error
    except own_code.raised() as found:
        assert found is error


def test_keyboard_interrupt_is_the_users() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        except own_code.raised():
            pytest.fail("it was taken for an error of the code")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
