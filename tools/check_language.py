#!/usr/bin/env python3
"""Checks that text is plain technical English: terms that the project coined are not used again.

    python tools/check_language.py    exits with 1 and lists each place, with what to write instead

`TERMS` is the list: what not to write, and what to write instead.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BUILT = "docs/_build"
ITSELF = ("tools/check_language.py", "tests/unit/tools/test_check_language.py")
SUFFIXES = (".md", ".py", ".js", ".html", ".toml", ".yml", ".yaml", ".ipynb")
CHECKED = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "docker-compose.yml",
    "cluster/Dockerfile", ".github/workflows/ci.yml", ".ci/run", ".ci/steps", "docs", "examples", "minikube_py",
    "tests", "tools",
)  # fmt: skip


class Term(NamedTuple):
    """`hint` occurs wherever the pattern matches, and is faster to search for. In lower case, like the searched text. A
    blank in a pattern also matches a line break with the prefix of a comment's or a quotation's next line, and the
    boundary of two string literals."""

    hint: str
    pattern: str
    instead: str
    prose_only: bool = False
    """Only looked for in Markdown, outside of code."""


TERMS = (
    Term(".", r"(?<![\w./:])\.\d+\b", "a zero before the point: 0.9", prose_only=True),
    Term("original", r"\bthe originals?\b(?! (?:object|value|text|order|request|error|bytes|body))", "upstream"),
    Term("won none of", r"\bwon none of\b", "lost every one of"),
    Term("stand", r"\b(?:one that|who|whoever|what) stands by\b", "a standby is healthy"),
    Term("way of a pod", r"\bway of a pod\b", "life of a pod"),
    Term("the house", r"\bthe house\b", "package layout"),
    Term("by turns", r"\bby turns\b", "interleaved"),
    Term("parted", r"\bparted\b", "partitioned"),
    Term("rotten", r"\brotten\b", "corrupt"),
    Term("the own disk", r"\bthe own disk\b", "its own disk"),
    Term("dear", r"\bdear(?:er|est|ly)?\b", "expensive"),
    Term("in the midst of", r"\bin the midst of\b", "during"),
    Term("of before", r"\bof before\b", "earlier, previous"),
    Term("anew", r"\banew\b", "again"),
    Term(" told", r"\b(?:is|are|was|were) told\b", "reported, notified, logged"),
    Term("asked of", r"\basked of\b", "required of, requested from"),
    Term("held to have", r"\bheld to have\b", "assumed to have"),
    Term("one's like", r"\bone's like\b", "a bug of the same kind"),
    Term(" of none", r"\bknows? of none\b", "knows none of them"),
    Term("what c", r"\bwhat (?:comes|came) of\b", "the result of"),
    Term("strangers", r"\bstrangers\b", "an unauthenticated connection", prose_only=True),
    Term("for a stranger", r"\bfor a stranger\b", "for a new user"),
    Term(
        "stand",
        r"\bstands? (?:in|under|beside|around|here|there|alone)\b(?! (?:zip|varies|\())",
        "is in, is listed in, wraps",
    ),
    Term("stood in", r"\bstood in\b(?! fixed)", "was in"),
    Term("told of", r"\btold of\b", "notified of, reported"),
    Term("only told", r"\bonly told\b", "reported, not enforced"),
    Term("said of", r"\bare said of\b", "hold for, are compared on"),
    Term("for ever", r"\bfor ever\b", "forever"),
)
GAP = r"""(?:\s+(?:(?:[#>*]|//)\s+)?|\s*["']\s+[fbr]?["']\s*)"""
_GAPS = re.compile(GAP)
_COMPILED = tuple((re.compile(term.pattern.replace(" ", GAP)), term) for term in TERMS)


class Found(NamedTuple):
    path: str
    line: int
    """Of a notebook, counted through the sources of its cells."""
    text: str
    instead: str


def occurrences(path: str, text: str) -> Iterator[Found]:
    """Every place where a term of the list occurs."""
    markdown = path.endswith(".md")
    prose = (_prose(text) if markdown else text).lower()
    joined = _GAPS.sub(" ", prose)
    for pattern, term in _COMPILED:
        if term.hint not in joined or (term.prose_only and not markdown):
            continue
        for match in pattern.finditer(prose):
            yield Found(path, prose.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), term.instead)


def _prose(text: str) -> str:
    """Markdown with its code blanked out, line by line."""
    text = re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def text_of(file: Path) -> str:
    """Of a notebook, the sources of its cells, without what they printed."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def files(root: Path = ROOT) -> Iterator[Path]:
    for name in CHECKED:
        path = root / name
        found = [path] if path.is_file() else sorted(each for suffix in SUFFIXES for each in path.rglob(f"*{suffix}"))
        for file in found:
            relative = file.relative_to(root)
            if relative.as_posix() not in ITSELF and not relative.is_relative_to(BUILT):
                yield file


def found_in(root: Path = ROOT) -> list[Found]:
    """Every term in the checked files, file by file."""
    found: list[Found] = []
    for file in files(root):
        found += occurrences(file.relative_to(root).as_posix(), text_of(file))
    return found


def main() -> int:
    found = found_in()
    for each in found:
        print(f"{each.path}:{each.line}: {each.text!r}: write: {each.instead}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
