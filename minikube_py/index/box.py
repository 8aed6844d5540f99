"""Comparisons as a box of closed intervals, and the residual tests that no box can express.

Ints of any kind and the equality of texts, which the host stores as codes, are intervals; so is `exists`. Residual are
`!=`, `in` with several values (its least and greatest bound the box), and the order of texts, whose codes are
unordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikube_py.fields.where import Test
from minikube_py.index.structure import HIGH, LOW, MISSING, Box

CodeOf = Callable[[str, str], int]
"""The code of a text in a field's column; for an unknown text one that no row has."""


Boxed = tuple[Box, tuple[Test, ...]]


def boxed(tests: tuple[Test, ...], places: Mapping[str, int], code_of: CodeOf) -> Boxed:
    """The box of `tests` with a dimension for each field in `places` (field to dimension), and the tests that a point
    in it may still fail: those on fields without a dimension, and those that the box expresses in part or not at
    all."""
    lows, highs = [MISSING] * len(places), [HIGH] * len(places)
    residual: list[Test] = []
    for test in tests:
        place = places.get(test.field)
        if place is None:
            residual.append(test)
            continue
        low, high, whole = _interval(test, code_of)
        lows[place] = max(lows[place], low)
        highs[place] = min(highs[place], high)
        if not whole:
            residual.append(test)
    return Box(tuple(lows), tuple(highs)), tuple(residual)


def _interval(test: Test, code_of: CodeOf) -> tuple[int, int, bool]:
    """(low, high) of every value that passes the test, and whether every value between passes."""
    name, kind, op, values = test
    if op == "exists":
        return LOW, HIGH, True
    if op == "!=":
        return MISSING, HIGH, False
    if kind == "string" and op not in ("=", "in"):
        return LOW, HIGH, False
    bounds = [code_of(name, str(value)) if kind == "string" else int(value) for value in values]
    if op == "in":
        return min(bounds), max(bounds), min(bounds) == max(bounds)
    bound = bounds[0]
    if op == "=":
        return bound, bound, True
    if op == ">=":
        return bound, HIGH, True
    if op == "<=":
        return LOW, bound, True
    if op == "<":
        # LOW - 1 is MISSING: an interval that ends before it begins.
        return LOW, bound - 1, True
    return (bound + 1, HIGH, True) if bound < HIGH else (HIGH, LOW, True)


def bounded(box: Box) -> int:
    """How many dimensions are constrained."""
    lows, highs = box
    return len(lows) - sum([low == MISSING and high == HIGH for low, high in zip(lows, highs)])
