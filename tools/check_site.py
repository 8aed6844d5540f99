#!/usr/bin/env python3
"""Checks the built site: every link within it leads to a file, and to an anchor that this file has.

    python tools/check_site.py docs/_build    exits with 1 and lists each broken link

Sphinx warns of links that it resolves itself. It does not warn of addresses that an extension or a template writes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"""<[a-z][^<>]*?\s(?:href|src)=(?:"([^"]*)"|'([^']*)')""")
ANCHOR = re.compile(r"""<[a-z][^<>]*?\s(?:id|name)=(?:"([^"]*)"|'([^']*)')""")


def broken_links(site: Path) -> Iterator[str]:
    """`page: link: reason` for each link of each page that leads nowhere. Links to other hosts are not followed."""
    site = site.resolve()
    for page in sorted(site.rglob("*.html")):
        for link in sorted(_matches(LINK, page)):
            reason = _wrong(site, page, link)
            if reason:
                yield f"{page.relative_to(site)}: {link}: {reason}"


def _wrong(site: Path, page: Path, link: str) -> str:
    parts = urlsplit(link)
    if "{%" in unquote(link) or "{{" in unquote(link):
        return "text of a template"
    if parts.scheme or parts.netloc:
        return "" if parts.scheme in ("http", "https", "mailto", "data") else f"no such scheme: {parts.scheme}"
    base = site if parts.path.startswith("/") else page.parent
    target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return "no such file"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _anchors(target):
        return "no such anchor"
    return ""


@cache
def _anchors(page: Path) -> set[str]:
    return _matches(ANCHOR, page)


def _matches(pattern: re.Pattern[str], page: Path) -> set[str]:
    return {unescape(double or single) for double, single in pattern.findall(page.read_text(encoding="utf-8"))}


def main() -> int:
    site = Path(sys.argv[1])
    if not (site / "index.html").exists():
        print(f"{site}: no site; run `make docs`", file=sys.stderr)
        return 1
    found = list(broken_links(site))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
