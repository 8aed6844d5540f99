"""Budgets of lines: kept by the code as it is, and exceeded by one line too many."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_size import BUDGETS, Budgets, functions, package_lines, read_budgets, too_long


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package `wal` of 12 lines, with a function of three lines."""
    (tmp_path / "minikube_py" / "wal").mkdir(parents=True)
    (tmp_path / "minikube_py" / "wal" / "record.py").write_text(
        "class Record:\n    @property\n    def size(self):\n        x = 1\n        return x\n" + "y = 1\n" * 7
    )
    return tmp_path


def test_the_code_keeps_its_budgets() -> None:
    assert too_long(read_budgets()) == []


def test_exactly_the_budget_is_kept(root: Path) -> None:
    assert package_lines(root) == {"wal": 12}
    assert too_long(Budgets({"wal": 12}, 12, 3), root) == []


def test_one_line_more_than_the_budget_needs_an_adr(root: Path) -> None:
    (found,) = too_long(Budgets({"wal": 11}, 12, 3), root)
    assert found == "minikube_py/wal has 12 lines, 1 over its budget: raise only by an ADR"


def test_a_module_and_a_function_have_limits_and_listed_exceptions(root: Path) -> None:
    found = too_long(Budgets({"wal": 12}, 11, 2), root)
    assert [each.partition(" has ")[0] for each in found] == [
        "minikube_py/wal/record.py",
        "minikube_py/wal/record.py:Record.size",
    ]
    listed = {"minikube_py/wal/record.py": 12}, {"minikube_py/wal/record.py:Record.size": 3}
    assert too_long(Budgets({"wal": 12}, 11, 2, *listed), root) == []


def test_a_new_package_needs_a_budget_and_a_budget_a_package(root: Path) -> None:
    found = too_long(Budgets({"raft": 9}, 12, 3), root)
    assert "minikube_py/wal has 12 lines and no budget in" in found[0] and "raft has a budget and no code" in found[1]


def test_every_exception_is_of_something_that_is_still_too_long() -> None:
    budgets = read_budgets()
    top = BUDGETS.parents[1]
    for name in budgets.modules:
        assert (top / name).read_bytes().count(b"\n") > budgets.module_lines, f"{name} is short enough: take it out"
    for name in budgets.functions:
        path, _, function = name.partition(":")
        assert dict(functions(top / path))[function] > budgets.function_lines, f"{name} is short enough: take it out"
