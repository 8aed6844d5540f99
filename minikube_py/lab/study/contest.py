"""An experiment whose candidates answer the same requests, interleaved in a drawn order, and checked.

Subclass `Contest`, define the world and how to build a candidate by name; the rest is data in the design.
"""

from __future__ import annotations

import copy
import math
import resource
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time_ns, thread_time_ns
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from minikube_py import own_code
from minikube_py.lab.study.audit import drawn
from minikube_py.lab.study.design import Design, Levels, StudyError, Unit
from minikube_py.lab.study.experiment import Absent, Account, Rates, Report, Study
from minikube_py.lab.study.measured import Measured, Titles, labels_beside
from minikube_py.lab.study.threads import LeftAtWork, Threads

PLAIN: Final = (bool, int, float, str, bytes, type(None))
"""Types of answers that are values, beside numpy's, and containers of such."""
SCALARS: Final = frozenset(np.sctypeDict.values())
READ_SHARE: Final = 0.1
READ_NS: Final = 50_000
"""A reading of figures takes a tenth of its batch's time, or so much, for nothing: 200 arrays take 12 us. What it takes
beyond is upkeep that was put off."""
_COMPARED: Final = ("__eq__", "__ne__", "__iter__")


class Batch(NamedTuple):
    """Batch: `asked` and `right` have equal length: the requests and the true answers. `changes` follow afterwards."""

    asked: Any
    right: Any
    changes: Any = ()


class Candidate(Protocol):
    def answer(self, asked: Any) -> Any:
        """One answer per request, in order; fewer if it stopped early."""

    def change(self, changes: Any) -> None: ...

    def figures(self) -> Mapping[str, float]:
        """Its memory use and counters so far: amounts of at least 0, the same ones after every batch."""


class World(Protocol):
    """A seed's world: a cluster, and its events. Candidates get it without the batches, so that none can look at its
    requests, changes or answers before it is asked."""

    @property
    def batches(self) -> Sequence[Batch]: ...


class Contest(Study):
    """Each candidate answers each batch, then applies its changes. Measured per batch: `answer_us` and `change_us` per
    request and change (CPU time of the thread, and of others that worked for it), the answers' `score`, the candidate's
    figures."""

    shares: Mapping[str, str] = {}
    """Figures that are shares, and the figure of what they are shares of: in a batch where that is 0 they have no
    value, and none in the means."""

    titles: Titles = {}
    """Of pictures, by their names: from what is measured."""

    def world(self, design: Design, levels: Levels, seed: int) -> World:
        """Deterministic in its arguments; all candidates get the same one."""
        raise NotImplementedError

    def candidate(self, name: str, world: Any, design: Design, levels: Levels) -> Candidate:
        """Raises: Absent, if it cannot be built here."""
        raise NotImplementedError

    def mistakes(self, batch: Batch, answers: Any) -> int:
        """The number of wrong answers among those given."""
        return sum(bool(answer != right) for answer, right in zip(answers, batch.right))

    def score(self, batch: Batch, answers: Any) -> Mapping[str, float]:
        """Figures of the answers besides correctness."""
        return {}

    def turns(self, names: Sequence[str], unit: Unit, batch: int) -> list[str]:
        """The order of candidates. Times of a block with another order are no evidence."""
        return drawn(names, unit.key, batch)

    def measure(self, design: Design, unit: Unit) -> Report:
        levels = dict(unit.levels)
        world = self.world(design, levels, unit.seed)
        batches = taken_from(world)
        threads = Threads()
        there: dict[str, Candidate] = {}
        reports: dict[str, Report] = {}
        absent: dict[str, str] = {}
        for name in design.candidates(unit.block):
            try:
                # Of its own, so that nobody can change what the others get.
                with threads.turn():
                    made = self.candidate(name, copy.deepcopy(world), design, levels)
                there[name] = made
                reports[name] = {"asked": [], "wrong": 0, "figures": {}}
            except LeftAtWork:
                raise
            except Absent as error:
                absent[name] = f"{name}: {error}"
            except own_code.raised() as error:
                absent[name] = f"{name} (failed): {type(error).__name__}: {error}"
        planned: list[int] = []
        order: list[list[str]] = []
        for number, batch in enumerate(batches):
            planned.append(len(batch.asked))
            order.append(self.turns(list(there), unit, number))
            for name in order[-1]:
                try:
                    with threads.turn():
                        self.ask(there[name], batch, reports[name])
                except LeftAtWork:
                    raise
                except own_code.raised() as error:
                    # A failing candidate is reported, without affecting the others.
                    absent[name] = f"{name} (failed): {type(error).__name__}: {error}"
                    del there[name], reports[name]
        return {"candidates": reports, "absent": absent, "planned": planned, "order": order}

    def ask(self, candidate: Candidate, batch: Batch, report: Report) -> None:
        """Runs one batch, and adds its measurements to `report`. Raises: StudyError for figures or answers that
        cannot be."""
        # Each gets copies, so that nobody can change what the others are asked.
        asked, changes = copy.deepcopy((batch.asked, batch.changes))
        answer = _Span()
        answers = plain(candidate.answer(asked))
        asked_ns = answer.own_ns()
        _refuse_late(answers, batch.right)
        given = len(answers)
        wrong = self.mistakes(batch, answers) + max(0, given - len(batch.asked))
        # Threads that go on until their answers have been read are the answers' too.
        asked_ns += (elsewhere_ns := answer.elsewhere_ns())
        change = _Span()
        candidate.change(changes)
        changed_ns = change.own_ns()
        changed_ns += (change_elsewhere_ns := change.elsewhere_ns())
        for name, spent_ns in (("cpu_ns", asked_ns + changed_ns), ("elsewhere_ns", elsewhere_ns + change_elsewhere_ns)):
            report[name] = report.get(name, 0) + spent_ns
        reading = _Span()
        own = dict(candidate.figures())
        read_ns = reading.own_ns() + reading.elsewhere_ns()
        late_ns = max(0, read_ns - max(READ_NS, round(READ_SHARE * (asked_ns + changed_ns))))
        report["cpu_ns"] += late_ns
        figures = {
            "answer_us": asked_ns / 1000 / max(1, given),
            "change_us": (changed_ns + late_ns) / 1000 / max(1, len(batch.changes)),
            **self.score(batch, answers),
        }
        if both := figures.keys() & own.keys():
            raise StudyError(f"its figures name {', '.join(sorted(both))}, which the runner measures")
        if bad := [f"{name} = {value!r}" for name, value in own.items() if not _amount(value)]:
            raise StudyError(f"its figures are no amounts: {', '.join(bad)}")
        figures |= own
        before = report["figures"]
        if report["asked"] and figures.keys() != before.keys():
            unlike = ", ".join(sorted(figures.keys() ^ before.keys()))
            raise StudyError(f"its figures differ from batch to batch: {unlike}")
        report["asked"].append(given)
        report["wrong"] += wrong
        for name, value in figures.items():
            before.setdefault(name, []).append(round(float(value), 6))

    def tell(self, design: Design, records: Sequence[Report], folder: Path, rates: Rates) -> Account:
        measured = Measured(design, records, labels_beside(self.packaged), self.shares, self.titles)
        pictures = measured.draw(folder, self.name)
        return Account(measured.judge(), measured.tables(), measured.rows(), pictures)

    def intervals(self, design: Design) -> str:
        share = 100 * float(design.raw.get("confidence", 0.95))
        return (
            f"Intervals: {share:g} %, by Student's t over clusters (seeds): each is one value, however many requests "
            "it was asked. Batches that a candidate or its rival did not finish are compared with nothing."
        )


def taken_from(world: Any) -> Sequence[Batch]:
    """The batches, which the world has no longer. Raises: StudyError, where they cannot be taken out of it."""
    batches: Sequence[Batch] = world.batches
    with suppress(AttributeError):
        del world.batches
    if hasattr(world, "batches"):
        raise StudyError("a world's batches must be an attribute of its own: candidates get it without them")
    return batches


class _Span:
    """CPU time since it was made: of this thread, and of all others of the process and of processes that it started and
    waited for, together."""

    def __init__(self) -> None:
        self._children_ns = _of_children_ns()
        self._process_ns = process_time_ns()
        self._thread_ns = thread_time_ns()

    def own_ns(self) -> int:
        return thread_time_ns() - self._thread_ns

    def elsewhere_ns(self) -> int:
        process_ns = process_time_ns() - self._process_ns
        return max(0, process_ns - self.own_ns()) + _of_children_ns() - self._children_ns


def _of_children_ns() -> int:
    """Of those that have ended, and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def plain(answers: Any) -> Any:
    """Answers that have been computed: an array or a list. What computes them when they are read does so here."""
    return answers if type(answers) in (list, tuple, np.ndarray) else list(answers)


def _refuse_late(answers: Any, right: Any) -> None:
    """Raises: StudyError for an answer that may compute itself when it is compared."""
    kinds = {type(each) for each in (right if type(right) in (list, tuple) else ())}
    listed = answers.ravel().tolist() if isinstance(answers, np.ndarray) and answers.dtype.hasobject else answers
    pending = [] if isinstance(listed, np.ndarray) else list(listed)
    while pending:
        each = pending.pop()
        kind = type(each)
        named = isinstance(each, tuple) and all(getattr(kind, of) is getattr(tuple, of) for of in _COMPARED)
        if named or kind in (list, set, frozenset):
            pending += each
        elif kind is dict:
            pending += [*each, *each.values()]
        elif kind is np.ndarray or kind is np.void:
            pending += [each.tolist()] if each.dtype.hasobject else []
        elif kind not in PLAIN and kind not in kinds and kind not in SCALARS:
            raise StudyError(f"its answers are no values but {kind.__name__}: answer numbers, texts or tuples")


def _amount(value: object) -> bool:
    try:
        return 0 <= float(value) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
