"""What a tool writes into a page of the docs. The page marks its place with the tool's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
END = "<!-- end -->\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ["---"] * len(heads), *rows))


Rendered = Callable[[Mapping[str, Any]], str]


def main(arguments: Sequence[str], tool: str, page: Path, data: Path, rendered: Rendered) -> int:
    """A table of committed data."""
    return put(arguments, tool, page, rendered(json.loads(data.read_bytes())), str(data))


def put(arguments: Sequence[str], tool: str, page: Path, made: str, of: str) -> int:
    """With `--write`, writes what is `made` into the page; else 1 where the page is not up to date with what it is
    made `of`."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(f"<!-- table: tools/{tool}.py -->\n")
    _, end, after = rest.partition(END)
    assert begin and end, f"{page} has no place for what tools/{tool}.py writes"
    wanted = f"{before}{begin}\n{made}\n{end}{after}"
    if "--write" in arguments:
        page.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print(f"{page} is not what {of} says; python tools/{tool}.py --write")
        return 1
    return 0
