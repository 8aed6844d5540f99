"""The order in which several workers take the tests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath

import pytest
from run_order import LONG_S, WAITING, spread

TESTS = Path(__file__).resolve().parents[1]
LONG = tuple(LONG_S)[:6]


@dataclass(frozen=True)
class One:
    path: PurePath
    number: int


def collected() -> list[One]:
    """By folder and name, as pytest finds them: one in ten waits; and long ones."""
    waiting = [f"{WAITING[n % 3]}/test_{n}.py" for n in range(20)]
    computing = [f"unit/test_{n}.py" for n in range(180)]
    sizes = dict.fromkeys((*waiting, *computing), 10) | dict.fromkeys(LONG, 5)
    paths = ((PurePath("/x/tests", path), size) for path, size in sorted(sizes.items()))
    return [One(path, number) for path, size in paths for number in range(size)]


def parts(workers: int) -> list[list[One]]:
    """The parts that xdist deals out at first."""
    left, found = spread(collected(), workers), []
    for remaining in range(workers, 0, -1):
        size = len(left) // remaining
        found.append(left[:size])
        del left[:size]
    return found


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_nothing_is_lost_and_a_files_tests_stay_in_order(workers: int) -> None:
    found = [each for part in parts(workers) for each in part]
    assert sorted(found, key=lambda each: (str(each.path), each.number)) == collected()
    numbers: dict[PurePath, list[int]] = {}
    for each in found:
        numbers.setdefault(each.path, []).append(each.number)
    assert all(of == sorted(of) for of in numbers.values())
    runs = [path for part in parts(workers) for path, _ in groupby(part, lambda each: each.path)]
    assert len(runs) <= len(set(runs)) + workers - 1


@pytest.mark.parametrize("workers", [2, 3, 4, 6])
def test_each_part_begins_with_long_files_the_longest_first(workers: int) -> None:
    begins = []
    for part in parts(workers):
        names = [path.relative_to("/x/tests").as_posix() for path, _ in groupby(part, lambda each: each.path)]
        long = [name for name in names if name in LONG_S]
        assert long and names[: len(long)] == long
        begins.append([LONG_S[name] for name in long])
    assert all(durations == sorted(durations, reverse=True) for durations in begins)
    assert max(map(sum, begins)) - min(map(sum, begins)) <= max(LONG_S.values())


@pytest.mark.parametrize("workers", [2, 4])
def test_tests_that_wait_lie_evenly_among_the_others(workers: int) -> None:
    for part in parts(workers):
        waits = [each.path.parts[3] in WAITING for each in part if each.path.stem.startswith("test_")][len(LONG) * 5 :]
        for start in range(0, len(waits) - 200, 50):
            assert 10 <= sum(waits[start : start + 200]) <= 30, start


def test_the_long_files_are_there() -> None:
    assert [name for name in LONG_S if not (TESTS / name).is_file()] == []
