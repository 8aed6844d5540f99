"""Each duty on the page of Raft's driver has a line that keeps it, and something that finds it gone."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "raft-driver.md"
ROW = re.compile(r"^\| (?P<duty>.+) \| \[[^]]+\]\((?P<link>\S+)\) `(?P<code>[^`]+)` \| (?P<found>.+) \|$", re.MULTILINE)
BUG, TEST = re.compile(r'^"([^"]+)"$'), re.compile(r"^\[(\w+)\]\((\S+)\)$")
ROWS = [match.groupdict() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def planted() -> dict[str, tuple[str, str]]:
    """File and text of each planted bug, by name."""
    sys.path.insert(0, str(ROOT / "tests" / "planted"))
    try:
        from mutants import MUTANTS
        from swarm_mutants import MUTANTS as SWARM
    finally:
        sys.path.pop(0)
    return {each.name: (each.file, each.old) for each in (*MUTANTS, *SWARM)}


BUGS = planted()


def body(path: Path, name: str) -> str:
    """Of a function, or of `Class.method`; without a name, all of the file."""
    text = path.read_text(encoding="utf-8")
    nodes: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for part in filter(None, name.split(".")):
        (found,) = [each for each in nodes if getattr(each, "name", "") == part]
        nodes = getattr(found, "body", [])
    return text if found is None else ast.get_source_segment(text, found) or ""


def test_every_line_of_the_tables_is_read() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(ROWS) == len([line for line in lines if "](../../minikube_py/" in line]) == len(lines) - 3 > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["duty"][:60])
def test_a_duty_has_its_line_and_what_finds_it_gone(row: dict[str, str]) -> None:
    link, _, name = row["link"].partition("#")
    path = (PAGE.parent / link).resolve()
    assert body(path, name).count(row["code"]) == 1, "the line is not there, or not the only one of its kind"
    if bug := BUG.match(row["found"]):
        file, old = BUGS[bug[1]]
        assert path == ROOT / "minikube_py" / file, "the bug is planted in another file"
        assert row["code"] in old or any(line.strip() in row["code"] for line in old.splitlines() if line.strip())
    else:
        test = TEST.match(row["found"])
        assert test is not None
        file, _, name = test[2].partition("#")
        assert "def test_" in (text := body((PAGE.parent / file).resolve(), "")) and (not name or f" {name}(" in text)
