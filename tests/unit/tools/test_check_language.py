"""The list of terms: each is found where it stands, and no file has more of them than it had."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_language import TERMS, counted, grown, occurrences, read_baseline

EXAMPLES = {
    "utilisation of .9 at most": "a zero before the point: 0.9",
    "The original answers 404": "upstream",
    "as the original's does": "upstream",
    "it won none of 3,480": "lost every one of",
    "One that stands by is well": "a standby is healthy",
    "the way of a pod": "life of a pod",
    "## The house": "package layout",
    "measured by turns": "interleaved",
    "parted, torn": "partitioned",
    "1,096 rotten ones": "corrupt",
    "the own disk is the majority": "its own disk",
    "a dearer test": "expensive",
    "in the midst of that": "during",
    "histories of before": "earlier, previous",
    "read anew": "again",
    "who is told": "reported, notified, logged",
    "what is asked of it": "required of, requested from",
    "was held to have ended": "assumed to have",
    "each one's like": "a bug of the same kind",
    "and know of none": "knows none of them",
    "what came of it": "the result of",
    "Two commands for a stranger": "for a new user",
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_term_is_found_in_prose(text: str) -> None:
    (found,) = occurrences("docs/a.md", f"# Title\n\n{text}.\n")
    assert (found.line, found.instead) == (3, EXAMPLES[text])


def test_every_term_has_an_example() -> None:
    assert {term.instead for term in TERMS} == set(EXAMPLES.values())


@pytest.mark.parametrize(
    "text", ["`up --budget .5`", "```\nbudget .5\n```", "see 1.36.2", "a.5", "the original value", "../.5", "no order"]
)
def test_code_numbers_and_plain_words_are_left_alone(text: str) -> None:
    assert list(occurrences("docs/a.md", text)) == []


def test_decimals_in_code_are_not_prose() -> None:
    assert list(occurrences("minikube_py/a.py", "HALF = .5\n")) == []


def test_a_file_may_have_fewer_terms_and_not_more() -> None:
    found = {"a.md": list(occurrences("a.md", "told anew\nand anew\n"))}
    assert grown(found, {"a.md": 2}) == [] == grown(found, {"a.md": 3})
    title, *lines = grown(found, {"a.md": 1})
    assert title.startswith("a.md: 2 terms") and lines[1] == "  a.md:2: 'anew': write: again"
    assert grown(found, {})


def test_no_file_has_more_terms_than_it_had(tmp_path: Path) -> None:
    lines = grown(counted(), read_baseline())
    assert not lines, "\n".join(lines)
