"""Implements `minikube-py index check`: laws, honest counts, and costs compared with the built-in structures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minikube_py.lab.conformance import bench, history_text, laws, program, work
from minikube_py.lab.conformance.hosting import Hosting
from minikube_py.lab.conformance.judging import Failure, Part, Say
from minikube_py.lab.conformance.program import Broken
from minikube_py.lab.conformance.subject import Subject

EXAMPLES = 400
SIZE_FACTOR = 4
"""Above this ratio of held to reported bytes, a memory limit would be ineffective."""


@dataclass(slots=True)
class Verdict:
    """`costs` is empty unless all laws hold: the speed of wrong results is meaningless."""

    structure: str
    parts: list[Part] = field(default_factory=list)
    costs: list[bench.Cost] = field(default_factory=list)
    left_out: list[bench.LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(part.failure is None for part in self.parts)


def check(subject: Subject, examples: int, seed: int, with_bench: bool = True, say: Say = lambda _: None) -> Verdict:
    """Runs the parts independently; parts that depend on a failed one are skipped."""
    verdict = Verdict(subject.title)
    say(f"{examples} programs of put, remove, find, may_match")
    found = laws.find_counter_example(subject.build, examples, seed)
    part = Part("structure", f"{examples} programs against a dictionary of points")
    if found is not None:
        drawn, broken = found
        shown = program.listing(drawn, broken, subject.made) if drawn.steps else ""
        part.failure = Failure(broken.law, broken.wanted, shown)
    verdict.parts.append(part)
    if part.failure is None:
        _check_index(subject, max(1, examples // 4), seed, verdict, say)
        _check_work(subject, verdict, say)
    if verdict.holds and with_bench:
        verdict.costs, verdict.left_out = bench.beside_the_family(subject.title, subject.build, told=say)
        verdict.notes += _notes(verdict)
    return verdict


def _check_index(subject: Subject, examples: int, seed: int, verdict: Verdict, say: Say) -> None:
    say(f"{examples} histories of an index in a store")
    most_fields = max(laws.dimensions_of(subject.build))
    part = Part("index", f"{examples} histories against a dictionary of rows per revision")
    found = laws.find_counter_history(Hosting(subject.build), examples, seed, most_fields)
    if found is not None:
        drawn, broken = found
        part.failure = Failure(broken.law, broken.wanted, history_text.listing(drawn, broken, subject.title))
    verdict.parts.append(part)


def _check_work(subject: Subject, verdict: Verdict, say: Say) -> None:
    dimensions = min(3, max(laws.dimensions_of(subject.build)))
    counted = f"numbers that count, {work.ROWS:,} rows"
    grown = f"time of {work.GROWTH_ROWS[0]:,} and of {work.GROWTH_ROWS[1]:,} rows"
    for name, what, ask in (
        ("counts", f"comparisons against the reported examined count: {counted}", work.check_counted),
        ("growth", f"the reported examined count explains the time: {grown}", work.check_growth),
    ):
        say(what)
        part = Part(name, what)
        try:
            ask(subject.build, dimensions)
        except Broken as broken:
            part.failure = Failure(broken.law, broken.wanted)
        verdict.parts.append(part)


def _notes(verdict: Verdict) -> list[str]:
    """Observations that break no law."""
    own = [cost for cost in verdict.costs if cost.structure == verdict.structure]
    notes = []
    largest = own[-1]
    if largest.size_bytes * SIZE_FACTOR < largest.held_bytes:
        notes.append(
            f"size_bytes says {largest.size_bytes:,} of {largest.rows:,} rows, tracemalloc {largest.held_bytes:,}: "
            "a memory limit would be noticed late"
        )
    for question in largest.finds_us:
        told, best = bench.beside_best(verdict.costs, largest, question)
        if best:
            notes.append(f"{question!r} of {largest.rows:,} rows: {told} the best other ({best})")
    return notes


def as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "structure": verdict.structure,
        "holds": verdict.holds,
        "parts": [part.as_json() for part in verdict.parts],
        "costs": [cost._asdict() for cost in verdict.costs],
        "left_out": [each._asdict() for each in verdict.left_out],
        "notes": verdict.notes,
    }
