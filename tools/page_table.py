"""A table of a page of the docs that a tool makes of committed data. The page marks its place with the tool's name."""

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
    """With `--write`, writes the table; else 1 where the page is not up to date."""
    begin, text = f"<!-- table: tools/{tool}.py -->\n", page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    wanted = f"{before}{begin}\n{rendered(json.loads(data.read_bytes()))}\n{END}{rest.partition(END)[2]}"
    if "--write" in arguments:
        page.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print(f"{page} is not what {data} says; python tools/{tool}.py --write")
        return 1
    return 0
