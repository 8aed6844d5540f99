"""The list of terms: each is found in prose, and no checked file uses one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from check_language import TERMS, files, found_in, occurrences

EXAMPLES = {
    "utilisation of .9 at most": "a zero before the point: 0.9",
    "The original answers 404": "upstream",
    "as the original's does": "upstream",
    "it won none of 3,480": "lost every one of",
    "What stands by is healthy": "a standby is healthy",
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
    "they stand beside": "is in, is listed in, wraps",
    "as it stood in the file": "was in",
    "addresses are kept and told of": "notified of, reported",
    "the maximum is only told": "reported, not enforced",
    "digests are said of Linux alone": "hold for, are compared on",
    "who is told": "reported, notified, logged",
    "what is asked of it": "required of, requested from",
    "was held to have ended": "assumed to have",
    "each one's like": "a bug of the same kind",
    "and know of none": "knows none of them",
    "what came of it": "the result of",
    "Two commands for a stranger": "for a new user",
    "closed to make room for strangers": "an unauthenticated connection",
    "an owner leaves its dependents for ever": "forever",
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_term_is_found_in_prose(text: str) -> None:
    (found,) = occurrences("docs/a.md", f"# Title\n\n{text}.\n")
    assert (found.line, found.instead) == (3, EXAMPLES[text])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/a.md", "as in the\noriginal, which"),
        ("docs/a.md", "> as in the\n> original, which"),
        ("docs/a.md", "- as in the\n  original"),
        ("minikube_py/a.py", "    # as in the\n    # original\n"),
        ("minikube_py/a.js", "// as in the\n// original\n"),
        ("minikube_py/a.py", '    "as in the "\n    "original"\n'),
        ("minikube_py/a.py", "    f'as in the '\n    f'original'\n"),
    ],
)
def test_a_term_is_found_across_a_line_break(path: str, text: str) -> None:
    (found,) = occurrences(path, text)
    assert (found.line, found.instead) == (1, "upstream")


@pytest.mark.parametrize("text", ["from -.8 to 1", "| -.8 | 1.3 |", "0.2-.8", "(.5)"])
def test_a_negative_decimal_needs_its_zero_as_well(text: str) -> None:
    assert [each.instead for each in occurrences("docs/a.md", text)] == ["a zero before the point: 0.9"]


@pytest.mark.parametrize("text", ["who stands by is well", "one that stands by is ready", "what stands\nby leads"])
def test_a_standby_has_its_name(text: str) -> None:
    assert [each.instead for each in occurrences("docs/a.md", text)] == ["a standby is healthy"]


def test_every_term_has_an_example() -> None:
    assert {term.instead for term in TERMS} == set(EXAMPLES.values())


@pytest.mark.parametrize(
    "text", ["`up --budget .5`", "```\nbudget .5\n```", "see 1.36.2", "a.5", "the original value", "../.5", "no order"]
)
def test_code_numbers_and_plain_words_are_left_alone(text: str) -> None:
    assert list(occurrences("docs/a.md", text)) == []


def test_decimals_in_code_are_not_prose() -> None:
    assert list(occurrences("minikube_py/a.py", "HALF = .5\n")) == []


def test_a_repeated_term_is_found_on_each_line() -> None:
    found = occurrences("a.md", "told anew\nand `anew` and anew\n")
    assert [(each.line, each.text) for each in found] == [(1, "anew"), (2, "anew")]


def test_built_pages_are_not_checked(tmp_path: Path) -> None:
    for name in ("docs/page.md", "docs/_build/page.html", "docs/_build/_source/page.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("read anew")
    assert [file.relative_to(tmp_path).as_posix() for file in files(tmp_path)] == ["docs/page.md"]


def test_every_checked_file_is_plain() -> None:
    found = [f"{each.path}:{each.line}: {each.text!r}: write: {each.instead}" for each in found_in()]
    assert not found, "\n".join(found)


def test_notebooks_and_examples_are_read(tmp_path: Path) -> None:
    assert {"a-cluster-in-a-notebook.ipynb", "best_fit.py"} <= {file.name for file in files()}
    notebook = tmp_path / "docs" / "a.ipynb"
    notebook.parent.mkdir()
    cells = [{"source": ["plain\n", "read\n", "anew"], "outputs": [{"text": ["told anew"]}]}, {"source": []}]
    notebook.write_text(json.dumps({"cells": cells}))
    assert [(each.path, each.line, each.text) for each in found_in(tmp_path)] == [("docs/a.ipynb", 3, "anew")]
