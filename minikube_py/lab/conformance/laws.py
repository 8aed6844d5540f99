"""The laws of a structure, put to hypothesis; where one is broken, the least program that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import errors as hypothesis_errors

from minikube_py.errors import RequestError
from minikube_py.index.structure import Structure, Versioned
from minikube_py.lab.conformance.drawn import programs
from minikube_py.lab.conformance.program import Broken, Build, Program, run, shrink

DIMENSIONS = (1, 2, 3, 4)
METHODS = ("put", "remove", "find", "may_match", "size_bytes")


class CounterExample(NamedTuple):
    """The least program found that breaks a law, and how it does."""

    program: Program
    broken: Broken


def dimensions_of(build: Build) -> tuple[int, ...]:
    """How many dimensions the structure takes, of 1 to 4; it refuses others with InvalidRequest.

    Raises: Broken where it takes none, or lacks what every structure has."""
    taken = []
    refused = ""
    for dimensions in DIMENSIONS:
        try:
            structure = build(dimensions)
        except RequestError as error:
            refused = str(error)
            continue
        except Exception as error:
            raise Broken("it is built by the number of dimensions", f"{type(error).__name__}: {error}") from error
        check_shape(structure)
        taken.append(dimensions)
    if not taken:
        raise Broken("it is built by the number of dimensions", f"1 to 4 were all refused: {refused}")
    return tuple(taken)


def check_shape(structure: Structure) -> None:
    """Raises: Broken where something of `index.structure.Structure` is missing."""
    missing = [name for name in METHODS if not callable(getattr(structure, name, None))]
    if missing:
        raise Broken("it has the methods of Structure", f"without {', '.join(missing)}")
    name = getattr(structure, "structure", None)
    if not isinstance(name, str) or not name:
        raise Broken("it has a name", f"its attribute `structure` is {name!r}, not a text")
    if hasattr(structure, "freeze") != hasattr(structure, "find_frozen"):
        raise Broken("it is Versioned or not", "it has one of freeze and find_frozen without the other")


def find_counter_example(build: Build, examples: int, drawn_seed: int) -> CounterExample | None:
    """The laws on `examples` drawn programs. None: none of them was broken."""
    try:
        dimensions = dimensions_of(build)
    except Broken as broken:
        return CounterExample(Program(1, ()), broken)
    versioned = isinstance(build(dimensions[0]), Versioned)
    failed: list[tuple[Program, Broken]] = []

    @seed(drawn_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(dimensions, versioned))
    def laws(program: Program) -> None:
        try:
            run(build, program)
        except Broken as broken:
            failed.append((program, broken))
            raise

    return _least(laws, build, failed)


def _least(
    laws: Callable[[], None], build: Build, failed: list[tuple[Program, Broken]]
) -> CounterExample | None:
    try:
        laws()
    except Broken:
        # Hypothesis ends with the least example it found, run once more.
        return CounterExample(*shrink(build, *failed[-1]))
    except hypothesis_errors.FlakyFailure:
        program, broken = failed[-1]
        told = f"this failed once and not again ({broken.law}: {broken.wanted})"
        return CounterExample(program, Broken("equal programs have equal answers", told, broken.step))
    return None
