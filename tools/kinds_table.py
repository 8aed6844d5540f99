#!/usr/bin/env python3
"""The table of kinds in docs/reference/what-works.md, made from the registry.

    python tools/kinds_table.py            exits with 1 where the page holds another one
    python tools/kinds_table.py --write    puts it there
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minikube_py.api.registry import REGISTRY, Registry  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "what-works.md"
BEGIN, END = "<!-- kinds: tools/kinds_table.py -->\n", "<!-- end of kinds -->"


def table(registry: Registry = REGISTRY) -> str:
    """One row per group and version; kinds that are served but not stored are in italics."""
    rows = ["| Group | Kinds |", "|---|---|"]
    for group, version in registry.group_versions:
        kinds = {k.kind: k.stored for k in registry.kinds if (k.group, k.version) == (group, version)}
        names = ", ".join(name if stored else f"*{name}*" for name, stored in sorted(kinds.items()))
        rows.append(f"| {f'{group}/{version}' if group else version} | {names} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit("docs/reference/what-works.md has no place for the table of kinds")
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    wanted = with_table(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if text != wanted:
        print(f"{PAGE.name}: the table of kinds is another one; run `python {sys.argv[0]} --write`")
    return int(text != wanted)


if __name__ == "__main__":
    sys.exit(main())
