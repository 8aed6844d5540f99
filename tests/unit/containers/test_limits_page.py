"""docs/reference/limits.md names every limit of `containers`, with its value."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from minikube_py import containers, env

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Simulated containers\n")[2].partition("\n## ")[0]
LIMIT = re.compile(r"[A-Z_]+_(?:MAX|AT_ONCE|TIMEOUT_S)")


def test_the_page_names_each_limit_with_its_value() -> None:
    stated = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", SECTION, re.MULTILINE))
    found: dict[str, set[int]] = {}
    for module in pkgutil.iter_modules(containers.__path__):
        values = vars(importlib.import_module(f"minikube_py.containers.{module.name}"))
        for name, value in values.items():
            if LIMIT.fullmatch(name) and not name.startswith("_"):
                found.setdefault(name, set()).add(int(value))
    found["STEPS_AT_ONCE"] = {env.STEPS_AT_ONCE}
    # The runtime's splits lines of a log.
    found["SCRIPT_BYTES_MAX"] -= found["LINE_BYTES_MAX"]
    assert not found.pop("SCRIPT_BYTES_MAX")
    assert {16_384, int(stated["LINE_BYTES_MAX"])} == found.pop("LINE_BYTES_MAX")
    del stated["LINE_BYTES_MAX"]
    assert {name: {int(value)} for name, value in stated.items()} == found
