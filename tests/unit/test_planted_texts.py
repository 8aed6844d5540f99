"""Every text that `make planted` replaces stands exactly once in its file: who moves code moves its planted bugs."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "minikube_py"
PLANTED = Path(__file__).parents[1] / "planted"
TABLES = sorted(path.stem for path in PLANTED.glob("*mutants.py"))
FOLDERS = dict.fromkeys(("scheduler_mutants", "flow_mutants"), PACKAGE / "scheduler")


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@pytest.mark.parametrize("table", TABLES)
def test_each_planted_text_stands_once(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLANTED)
    folder, planted = FOLDERS.get(table, PACKAGE), import_module(table).MUTANTS
    counts = {each.name: (text_of(folder / each.file).count(each.old), each.file) for each in planted}
    moved = [f"{name}: {count} times in {file}" for name, (count, file) in counts.items() if count != 1]
    assert planted and not moved, f"bring tests/planted/{table}.py up to date: {moved}"


def test_all_tables_are_found() -> None:
    assert len(TABLES) == 7
