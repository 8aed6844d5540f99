"""The commands in the fenced blocks of the docs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
NEXT = ("|", "||", "&&", "&", ";")
ENDS = (*NEXT, ">", ">>", "<", ">&")


class Line(NamedTuple):
    page: str
    number: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {' '.join(self.words)}"


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines of fenced blocks, continued ones as one."""
    for block in FENCE.finditer(text):
        if block[1] not in ("", "console", "bash", "sh", "shell"):
            continue
        first = text.count("\n", 0, block.start(2)) + 1
        held = ""
        for number, line in enumerate(block[2].splitlines(), first):
            if line.endswith("\\"):
                held += line[:-1]
                continue
            yield number, held + line
            held = ""


def commands(page: str, text: str) -> Iterator[Line]:
    for number, line in lines_of(text):
        bare = re.sub(r"\s#\s.*", "", re.sub(r"\$\([^)]*\)", "SUBSTITUTED", line)).strip().removeprefix("$ ")
        lexer = shlex.shlex(bare, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:
            continue
        while words:
            end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
            part, rest = words[:end], words[end:]
            # What follows a redirection names a file.
            next_at = next((at for at, word in enumerate(rest) if word in NEXT), len(rest))
            words = rest[next_at + 1 :]
            while part and re.fullmatch(r"[A-Z_]+=\S*|sudo|time|exec|nice", part[0]):
                del part[0]
            if part:
                yield Line(page, number, tuple(part))


def commands_of(*programs: str) -> list[Line]:
    """Those of these programs on all pages."""
    return [
        line
        for page in PAGES
        for line in commands(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
        if line.words[0] in programs
    ]
