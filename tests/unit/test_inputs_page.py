"""docs/reference/inputs.md: each limit, module and test that it names exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "inputs.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| Input")
]
OWN_CODE = ("Plugins, indexes, models", "Environment")
"""What a user gives to be run, and names of other inputs."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_row_is_whole_and_names_what_exists(row: list[str]) -> None:
    assert len(row) == 5, row
    _, who, bound, checked, attacked = row
    assert who and bound
    for path in re.findall(r"`([\w/]+\.py)`", checked):
        assert (ROOT / "minikube_py" / path).is_file(), path
    for path in (tests := re.findall(r"`(tests/[\w/]+\.py)`", attacked)):
        assert (ROOT / path).is_file(), path
    assert tests or row[0].startswith(OWN_CODE)
    assert re.search(r"\.py`", checked)
    for name in re.findall(r"`((?:\w+\.)+\w+)`", bound):
        if name.endswith(".py"):
            continue
        module, _, limit = name.rpartition(".")
        kind = ""
        if module.rpartition(".")[2][0].isupper():
            module, _, kind = module.rpartition(".")
        owner = importlib.import_module(f"minikube_py.{module}")
        value = getattr(getattr(owner, kind)() if kind else owner, limit)
        assert type(value) is int and value > 0, name


def test_whoever_reads_yaml_of_others_goes_by_the_bounded_reader() -> None:
    """`yaml.load` in C ends the process where a text is deep."""
    readers = {
        path.relative_to(ROOT / "minikube_py").as_posix()
        for path in (ROOT / "minikube_py").rglob("*.py")
        if re.search(r"yaml\.(safe_)?load(_all)?\(", path.read_text(encoding="utf-8"))
    }
    assert not readers
