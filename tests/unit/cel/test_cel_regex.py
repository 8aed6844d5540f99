"""Regular expressions beside Python's own, on patterns that both read alike, and on those that Python never ends."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.cel import characters
from minikube_py.cel import regex as engine
from minikube_py.cel.regex import REMEMBERED_STEPS_MAX, STATES_MAX, BadPattern, Regex, TooDear

DATA = Path(__file__).parents[2] / "conformance" / "data" / "regex_answers.json"
RECORDED: dict[str, Any] = json.loads(DATA.read_text())
ATOMS = ("a", "b", "c", ".", "[ab]", "[^a]", "(?:ab)", "(?:a|bc)", "(?:a|)", r"\w", r"\b", "^", "[b-d]", "(?i:B)")
TIMES = ("", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,2}?")
PATTERNS = st.lists(st.builds(str.__add__, st.sampled_from(ATOMS), st.sampled_from(TIMES)), max_size=6).map("".join)
TEXTS = st.text("abcB \n", max_size=12)


def repeats_a_place(pattern: str) -> bool:
    """Python refuses or reads otherwise what repeats an empty match or a place."""
    return re.search(r"(\^|\\b)[*+?{]|\(\?:a\|\)[*+{]", pattern) is not None


@given(PATTERNS.filter(lambda pattern: not repeats_a_place(pattern)), TEXTS)
def test_finds_what_python_finds(pattern: str, text: str) -> None:
    known = re.compile(pattern, re.ASCII).search(text)
    ours = Regex(pattern)
    assert ours.find(text) == (known.span() if known else None)
    assert ours.matches(text) == (known is not None)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|aa)+$", "(a?){100}a{100}b", "(.*)(.*)(.*)(.*)(.*)x", "(?:a+)+(?:a+)+c"]
)
def test_no_pattern_goes_back(pattern: str) -> None:
    """Counted as calls into the engine: a step of a thread is one at most, and each thread takes a character once."""
    text, calls = "a" * 300, 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    ours = Regex(pattern)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = ours.matches(text)
    finally:
        sys.setprofile(before)
    assert found is (pattern == "(a|aa)+$")
    assert calls < 20 * len(text) * 250


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(" * 300 + ")" * 300, "expression nests too deeply: `" + "(" * 300 + ")" * 300 + "`"),
        ("((((a{10}){10}){10}){10}){10}", "invalid repeat count: `{10}`"),
    ],
)
def test_bad_patterns_are_refused_in_the_words_of_go(pattern: str, message: str) -> None:
    with pytest.raises(BadPattern) as refused:
        Regex(pattern)
    assert str(refused.value) == f"error parsing regexp: {message}"


@pytest.mark.parametrize("recorded", RECORDED["answers"], ids=lambda recorded: ascii(recorded["pattern"]))
def test_reads_and_finds_as_go(recorded: dict[str, Any]) -> None:
    """What `record_regexes` drew: each pattern's error, or where it is in each of the texts."""
    if "error" in recorded:
        with pytest.raises(BadPattern, match=f"^{re.escape(recorded['error'])}$"):
            Regex(recorded["pattern"])
        return
    ours = Regex(recorded["pattern"])
    assert [ours.find(text) for text in RECORDED["texts"]] == [at and tuple(at) for at in recorded["found"]]
    assert [ours.matches(text) for text in RECORDED["texts"]] == [at is not None for at in recorded["found"]]


@pytest.mark.parametrize("name", ["Lu", "Ll", "Nd", "Zs", "Sm"])
def test_the_tables_are_those_of_unicode(name: str) -> None:
    """Python's `unicodedata` is of another version: it agrees on all that was assigned in Unicode 3.2."""
    found = characters.named(name)
    assert found is not None
    known = [chr(code) for code in range(0x2000) if unicodedata.ucd_3_2_0.category(chr(code)) == name]
    assert [char for char in known if not found.has(char) and unicodedata.category(char) == name] == []


def test_a_code_point_with_many_zeros_is_read_in_one_pass() -> None:
    assert Regex("\\x{" + "0" * 200_000 + "61}").matches("a")


HOSTILE = ["(a|b)*a(a|b){500}", "(a?){1000}", "(.*a){60}", "(x+x+)+y", "((a|b)?c){200}d"]
LIMIT = 400_000


@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize("piece", ["ab", "a", "x", "abc", "é"])
def test_no_pattern_takes_longer_than_its_limit(pattern: str, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are counted, whatever the text; what is remembered is bounded too."""
    monkeypatch.setattr(engine, "WALKED_MAX", LIMIT)
    regex = Regex(pattern)
    for ask in (regex.matches, regex.find, lambda text: regex.find_all(text, -1)):
        with contextlib.suppress(TooDear):
            ask(piece * 20_000)
        assert regex._walked <= LIMIT + len(regex._steps)
        assert len(regex._states) <= STATES_MAX + 1
        assert regex._remembered <= REMEMBERED_STEPS_MAX + 2 * len(regex._steps)


def test_an_ordinary_pattern_matches_a_text_of_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WALKED_MAX", LIMIT)
    assert Regex("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").matches("a-b" * 350_000 + "c")
    with pytest.raises(TooDear, match="400000 steps, which is the limit"):
        Regex("(a|b)*a(a|b){500}c").matches("".join("ab"[i * i % 7919 % 2] for i in range(20_000)))
