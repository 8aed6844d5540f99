"""docs/reference/limits.md names every limit of the live page, with its value."""

from __future__ import annotations

import re
from pathlib import Path

from minikube_py.ui import page, recording, view

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## The live page\n")[2].partition("\n## ")[0]


def test_the_page_names_each_limit_with_its_value() -> None:
    stated = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", SECTION, re.MULTILINE))
    found = {
        name: float(value)
        for module in (page, recording, view)
        for name, value in vars(module).items()
        if re.fullmatch(r"[A-Z][A-Z_]*", name) and type(value) in (int, float) and not re.search("_(PUT|GONE)$", name)
    }
    assert {name: float(value) for name, value in stated.items()} == found
