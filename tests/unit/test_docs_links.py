"""Every link from docs to code names a file that exists and, after `#`, a definition that is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def definitions(path: Path) -> set[str]:
    """`f`, `Class` and `Class.method` of a module, and the names it imports or assigns."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve()
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and target.suffix == ".py" and anchor not in definitions(target):
            broken.append(f"{link}: {anchor} is not defined there")
    assert not broken, broken


RECORDS = sorted(ROOT.glob("docs/adr/0*.md"))


def test_numbers_without_a_decision_are_told() -> None:
    (told,) = re.findall(r"Numbers (.*?) were never used", (ROOT / "docs/adr/index.md").read_text(encoding="utf-8"))
    used = {int(each.name[:4]) for each in RECORDS}
    assert [int(each) for each in re.findall(r"\d{4}", told)] == [
        number for number in range(1, max(used)) if number not in used
    ]


@pytest.mark.parametrize("record", RECORDS, ids=[each.stem for each in RECORDS])
def test_a_decision_has_a_number_a_status_and_a_date(record: Path) -> None:
    title, _, status = record.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith(f"# {record.name[:4]}: ")
    assert re.fullmatch(r"Status: (accepted|replaced by \d{4}), \d{4}-\d\d-\d\d\.( .+)?", status)
