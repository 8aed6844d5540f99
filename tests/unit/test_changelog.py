"""CHANGELOG is short enough to be read, has a heading for the version of pyproject.toml, and says nothing twice."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 120
"""Of one heading. Beyond it, fold entries into what the version has, or leave them to git log."""
SAME_WORDS = 8


def sections(text: str) -> dict[str, str]:
    heads = re.split(r"^## (\S+).*$", text, flags=re.MULTILINE)[1:]
    return dict(zip(heads[::2], heads[1::2], strict=True))


def repeated(text: str) -> list[str]:
    """Openings that two entries have in common."""
    openings = [" ".join(entry.split()[:SAME_WORDS]) for entry in re.findall(r"^- (.*)", text, flags=re.MULTILINE)]
    return [each for place, each in enumerate(openings) if each in openings[:place]]


def test_the_version_has_one_heading_of_its_own() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert list(sections(text))[:2] == ["Unreleased", told]
    long = {name: len(body.splitlines()) for name, body in sections(text).items() if body.count("\n") > LINES_MAX}
    assert not long, f"more than {LINES_MAX} lines: {long}"


def test_nothing_is_announced_twice() -> None:
    assert not repeated((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    twice = "- etcd's v3 API in front of the store (`store`): KV.\n"
    assert len(repeated(twice + twice)) == 1
