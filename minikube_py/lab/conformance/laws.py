"""Tests the laws of a structure with hypothesis, and reports minimal counterexamples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import errors as hypothesis_errors
from hypothesis.strategies import SearchStrategy

from minikube_py.errors import RequestError
from minikube_py.index.structure import Estimating, Structure, Versioned
from minikube_py.lab.conformance.drawn import programs
from minikube_py.lab.conformance.drawn_history import histories
from minikube_py.lab.conformance.history import BuildIndex, History
from minikube_py.lab.conformance.history import run as history_run
from minikube_py.lab.conformance.history_text import shrink as shrink_history
from minikube_py.lab.conformance.judging import FLAKY
from minikube_py.lab.conformance.program import Broken, Build, Program, run, shrink
from minikube_py.own_code import raised, told

Drawn = TypeVar("Drawn")

DIMENSIONS: Final = (1, 2, 3, 4)
METHODS: Final = ("put", "remove", "find", "may_match", "size_bytes")


def dimensions_of(build: Build) -> tuple[int, ...]:
    """The numbers of dimensions, 1 to 4, that the structure accepts; it refuses others with InvalidRequest.

    Raises: Broken if it accepts none, or lacks a required member."""
    taken = []
    refused = ""
    for dimensions in DIMENSIONS:
        try:
            structure = build(dimensions)
        except RequestError as error:
            refused = str(error)
            continue
        except raised() as error:
            raise Broken("it is built by the number of dimensions", told(error)) from error
        check_shape(structure)
        taken.append(dimensions)
    if not taken:
        raise Broken("it is built by the number of dimensions", f"1 to 4 were all refused: {refused}")
    return tuple(taken)


def check_shape(structure: Structure) -> None:
    """Raises: Broken if a member of `index.structure.Structure` is missing."""
    missing = [name for name in METHODS if not callable(getattr(structure, name, None))]
    if missing:
        raise Broken("it has the methods of Structure", f"without {', '.join(missing)}")
    name = getattr(structure, "structure", None)
    if not isinstance(name, str) or not name:
        raise Broken("it has a name", f"its attribute `structure` is {name!r}, not a text")
    if hasattr(structure, "freeze") != hasattr(structure, "find_frozen"):
        raise Broken("it is Versioned or not", "it has only one of freeze and find_frozen")
    if isinstance(structure, Estimating):
        for rows, share, limit in product((0, 1, 100_000), (0.0, 0.01, 1.0), (0, 10)):
            cost_us = structure.cost_us(rows, share, limit)
            if not isinstance(cost_us, int | float) or not 0 <= cost_us < float("inf"):
                told = f"cost_us({rows}, {share}, {limit}) was {cost_us!r}"
                raise Broken("an estimate is a number of microseconds", told)


def find_counter_example(
    build: Build, examples: int, drawn_seed: int, least: bool = True
) -> tuple[Program, Broken] | None:
    """A program, drawn with hypothesis, that breaks a law; None: none did. `least`: shrinks it."""
    try:
        dimensions = dimensions_of(build)
    except Broken as broken:
        return Program(1, ()), broken
    drawn = programs(dimensions, isinstance(build(dimensions[0]), Versioned))
    return _found(drawn, partial(run, build), partial(shrink, build), examples, drawn_seed, least)


def find_counter_history(
    build: BuildIndex[Any], examples: int, drawn_seed: int, most_fields: int, least: bool = True
) -> tuple[History, Broken] | None:
    """The same for an index in a store."""
    shrinking = partial(shrink_history, build)
    return _found(histories(most_fields), partial(history_run, build), shrinking, examples, drawn_seed, least)


def _found(
    drawn: SearchStrategy[Drawn],
    judged: Callable[[Drawn], None],
    shrinking: Callable[[Drawn, Broken], tuple[Drawn, Broken]],
    examples: int,
    drawn_seed: int,
    least: bool,
) -> tuple[Drawn, Broken] | None:
    failed = failing(drawn, judged, examples, drawn_seed, least)
    return shrinking(*failed) if failed is not None and least and failed[1].law != FLAKY else failed


def failing(
    drawn: SearchStrategy[Drawn], judged: Callable[[Drawn], None], examples: int, drawn_seed: int, least: bool
) -> tuple[Drawn, Broken] | None:
    """The minimal drawn example that breaks a law, found by hypothesis."""
    failed: list[tuple[Drawn, Broken]] = []

    @seed(drawn_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if least else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def laws(one: Drawn) -> None:
        try:
            judged(one)
        except Broken as broken:
            failed.append((one, broken))
            raise

    try:
        laws()
    except Broken:
        # Hypothesis finishes by running its minimal example again.
        return failed[-1]
    except hypothesis_errors.FlakyFailure:
        one, broken = failed[-1]
        told = f"this failed once and not again ({broken.law}: {broken.wanted})"
        return one, Broken(FLAKY, told, broken.step)
    return None
