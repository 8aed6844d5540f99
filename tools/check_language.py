#!/usr/bin/env python3
"""Checks that text is plain technical English: terms that the project coined are not used again.

    python tools/check_language.py            exits with 1 and lists the terms of each file that has more than it had
    python tools/check_language.py --shrink   writes the lower counts of files that have got better

`TERMS` is the list: what not to write, and what to write instead. Files from before the list have a count in
`language_baseline.json`. It may only get lower; a new file has none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_name("language_baseline.json")
ITSELF = ("tools/check_language.py", "tests/unit/tools/test_check_language.py")
SUFFIXES = (".md", ".py")
CHECKED = ("README.md", "CHANGELOG.md", "docs", "minikube_py", "tests", "tools")


class Term(NamedTuple):
    """`hint` stands wherever the pattern matches, and is quicker to look for. In lower case, as the text is then."""

    hint: str
    pattern: str
    instead: str
    prose_only: bool = False
    """Looked for in Markdown alone, outside of code."""


TERMS = (
    Term(".", r"(?<![\w./:-])\.\d+\b", "a zero before the point: 0.9", prose_only=True),
    Term("original", r"\bthe originals?\b(?! (?:object|value|text|order|request|error|bytes|body))", "upstream"),
    Term("won none of", r"\bwon none of\b", "lost every one of"),
    Term("by is well", r"\bstands? by is well\b", "a standby is healthy"),
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
    Term("for a stranger", r"\bfor a stranger\b", "for a new user"),
)
_COMPILED = tuple((re.compile(term.pattern), term) for term in TERMS)


class Found(NamedTuple):
    path: str
    line: int
    text: str
    instead: str


def occurrences(path: str, text: str) -> Iterator[Found]:
    """Every place where a term of the list stands."""
    markdown = path.endswith(".md")
    prose = (_prose(text) if markdown else text).lower()
    for pattern, term in _COMPILED:
        if term.hint not in prose or (term.prose_only and not markdown):
            continue
        for match in pattern.finditer(prose):
            yield Found(path, prose.count("\n", 0, match.start()) + 1, match[0].strip(), term.instead)


def _prose(text: str) -> str:
    """Markdown with its code blanked out, line by line."""
    text = re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def files(root: Path = ROOT) -> Iterator[Path]:
    for name in CHECKED:
        path = root / name
        found = [path] if path.is_file() else sorted(each for suffix in SUFFIXES for each in path.rglob(f"*{suffix}"))
        for file in found:
            if file.relative_to(root).as_posix() not in ITSELF:
                yield file


def counted(root: Path = ROOT) -> dict[str, list[Found]]:
    found = {}
    for file in files(root):
        name = file.relative_to(root).as_posix()
        if those := list(occurrences(name, file.read_text(encoding="utf-8"))):
            found[name] = those
    return found


def grown(found: dict[str, list[Found]], baseline: dict[str, int]) -> list[str]:
    """A line for each term in a file that has more of them than it had. Which of them are new cannot be known."""
    lines = []
    for name, those in found.items():
        if len(those) > baseline.get(name, 0):
            lines.append(f"{name}: {len(those)} terms that are not plain English, where {baseline.get(name, 0)} were:")
            lines += [f"  {name}:{each.line}: {each.text!r}: write: {each.instead}" for each in those]
    return lines


def read_baseline() -> dict[str, int]:
    baseline: dict[str, int] = json.loads(BASELINE.read_text())
    return baseline


def main(arguments: list[str]) -> int:
    found, baseline = counted(), read_baseline()
    if "--shrink" in arguments:
        lower = {name: min(count, len(found.get(name, ()))) for name, count in baseline.items()}
        kept = {name: count for name, count in sorted(lower.items()) if count}
        BASELINE.write_text(json.dumps(kept, indent=0) + "\n")
        before, left = sum(baseline.values()), sum(kept.values())
        print(f"{before - left} fewer; {left} in {len(kept)} files are left")
        return 0
    lines = grown(found, baseline)
    print("\n".join(lines), file=sys.stderr, end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
