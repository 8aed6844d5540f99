"""Where a mutant differs, its witness has seen it; and a mutant exchanged in what is loaded is the imported one."""

from __future__ import annotations

import builtins
import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from mutation_draw import QUOTAS, candidates
from mutation_operators import Change, changes
from mutation_swap import exchange, functions, pairs
from mutation_watched import Block, Watched, witnessed
from mutation_witness import NAME, planted, witness

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
from functools import cache

LIMIT = 4


class Counted:
    STEP = 2

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = list(numbers)
        self.seen = 0

    @property
    def most(self) -> int:
        return max(self.numbers[1:LIMIT], default=-1)

    @staticmethod
    def middle(numbers: list[int], at: int = 1) -> list[int]:
        return numbers[at : len(numbers) - 1]

    def total(self) -> int:
        total = 0
        for number in self.numbers:
            if not number or (number > LIMIT and self.seen != 3):
                continue
            self.seen += 1
            if self.seen >= 5: break
            total += min(number, 7) * self.STEP
        try:
            total //= self.numbers[2] - 5
        except (IndexError, ZeroDivisionError):
            self.seen = -1
            total += 100
        return total


@cache
def even(number: int) -> bool:
    return number % 2 == 0


def judged(numbers: list[int]) -> list[object]:
    counted = Counted(numbers)

    def inner(bound: int) -> list[int]:
        return [each for each in numbers if each < bound or even(each)]

    small = inner(3)
    first = sorted(numbers)[:2] if small else None
    return [counted.total(), counted.seen, counted.most, counted.middle(numbers), small, first]
"""
INPUTS = [[], [0], [1, 2, 5], [4, 4, 4, 4], [5, 6, 7, 8], [3, 2, 4, 1, 1, 1, 1], [7, -1, 5], [1, 1, 6, 1, 1, 9, 3]]
ALL = changes("sample.py", SOURCE)
AT_IMPORT = {
    at
    for at, line in enumerate(SOURCE.splitlines(), 1)
    if any(text in line for text in ("LIMIT = ", "STEP = ", "at: int = 1"))
}


def loaded(source: str | CodeType) -> Callable[[list[int]], object]:
    names: dict[str, Any] = {}
    exec(compile(source, "/sample.py", "exec") if isinstance(source, str) else source, names)
    return partial(outcome, names)


def outcome(names: dict[str, Any], numbers: list[int]) -> object:
    names["even"].cache_clear()
    try:
        return names["judged"](numbers)
    except Exception as error:
        return type(error), str(error)


@pytest.fixture
def seen() -> Iterator[set[str]]:
    now: set[str] = set()
    setattr(builtins, NAME, partial(witness, now))
    yield now
    delattr(builtins, NAME)


@pytest.mark.parametrize("change", ALL, ids=lambda change: f"{change.operator}-{change.line}-{change.key}")
def test_a_witness_changes_nothing_and_sees_every_difference(change: Change, seen: set[str]) -> None:
    healthy, mutant = loaded(SOURCE), loaded(change.apply(SOURCE.encode()).decode())
    text, keys = planted(SOURCE, [change])
    watched = loaded(text)
    assert keys == (set() if change.line in AT_IMPORT else {change.key})
    for numbers in INPUTS if keys else ():
        seen.clear()
        assert watched(numbers) == healthy(numbers)
        assert mutant(numbers) == healthy(numbers) or seen == {change.key}


def test_a_witness_sees_no_difference_where_there_is_none(seen: set[str]) -> None:
    (change,) = (each for each in ALL if each.operator == "comparison" and each.old == "self.seen >= 5")
    text, keys = planted(SOURCE, [change])
    judged = loaded(text)
    assert keys == {change.key}
    judged([1, 2, 3])
    assert seen == set()
    judged([1] * 5)
    assert seen == {change.key}


def test_many_witnesses_of_the_product_stand_in_one_text() -> None:
    those = [change for package in QUOTAS for change in candidates(ROOT, package)]
    texts, keys = witnessed(ROOT, those)
    assert len(keys) > len(those) / 2
    for path, text in texts.items():
        compile(text, path, "exec")


@pytest.mark.parametrize("change", ALL, ids=lambda change: f"{change.operator}-{change.line}-{change.key}")
def test_a_mutant_that_is_exchanged_is_the_one_that_is_imported(change: Change, tmp_path: Path) -> None:
    path = str(tmp_path / "sample.py")
    text = change.apply(SOURCE.encode()).decode()
    those = pairs(path, SOURCE, text)
    if those is None:
        assert change.line in AT_IMPORT
        return
    judged = loaded(compile(SOURCE, path, "exec"))
    assert exchange(functions(gc.get_objects(), str(tmp_path)), those)
    fresh = loaded(text)
    assert [judged(numbers) for numbers in INPUTS] == [fresh(numbers) for numbers in INPUTS]


def test_a_function_that_is_not_loaded_is_not_exchanged() -> None:
    (change,) = (each for each in ALL if each.operator == "deletion" and each.old == "total += 100")
    those = pairs("/elsewhere.py", SOURCE, change.apply(SOURCE.encode()).decode())
    assert those and not exchange({}, those)


def test_only_seeds_that_were_watched_and_saw_nothing_are_left_out() -> None:
    watched, change = Watched(), ALL[0]
    assert watched.seeds(change, 0, 4) == [0, 1, 2, 3]
    watched.add(Block([change.key], [0, 1, 2], {change.key: [1]}))
    watched.add(Block(["another"], [3], {}))
    assert watched.seeds(change, 0, 4) == [1, 3]
    assert watched.seeds(change, 2, 3) == []
