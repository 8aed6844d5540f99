"""An experiment in which candidates answer the same requests: interleaved in a drawn order, and checked.

Subclass `Contest`, say what the world is and how a candidate of a name is built; the rest is data in the design.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import thread_time_ns
from typing import Any, NamedTuple, Protocol

from minikube_py.lab.study.design import Design, Levels, Unit
from minikube_py.lab.study.experiment import Absent, Account, Report, Study
from minikube_py.lab.study.measured import Measured


class Batch(NamedTuple):
    """`asked` and `right` are of the same length: what is asked, and the truth. `changes` come after it was asked."""

    asked: Any
    right: Any
    changes: Any = ()


class Candidate(Protocol):
    def answer(self, asked: Any) -> Any:
        """One answer for each request, in order; fewer where it stopped early."""

    def change(self, changes: Any) -> None: ...

    def figures(self) -> Mapping[str, float]:
        """What it takes up and has counted so far."""


class World(Protocol):
    """What one seed makes: a cluster, and what happens to it."""

    @property
    def batches(self) -> Sequence[Batch]: ...


class Contest(Study):
    """Each candidate answers each batch, then takes in its changes. Measured of each batch: `answer_us` and `change_us`
    for each request and change (CPU time of the thread), what `score` says of the answers, the candidate's figures."""

    def world(self, design: Design, levels: Levels, seed: int) -> World:
        """Equal arguments, equal worlds; all candidates meet the same one."""
        raise NotImplementedError

    def candidate(self, name: str, world: Any, design: Design, levels: Levels) -> Candidate:
        """Raises: Absent, where it cannot be built here."""
        raise NotImplementedError

    def mistakes(self, batch: Batch, answers: Any) -> int:
        """How many answers are wrong, of those given."""
        return sum(bool(answer != right) for answer, right in zip(answers, batch.right))

    def score(self, batch: Batch, answers: Any) -> Mapping[str, float]:
        """Figures of the answers beyond right and wrong."""
        return {}

    def turns(self, names: Sequence[str], unit: Unit, batch: int) -> list[str]:
        """Who is asked when: an order drawn for the unit, and moved on by one place for each batch."""
        drawn = list(names)
        random.Random(unit.key).shuffle(drawn)
        first = batch % max(1, len(drawn))
        return drawn[first:] + drawn[:first]

    def measure(self, design: Design, unit: Unit) -> Report:
        levels = dict(unit.levels)
        world = self.world(design, levels, unit.seed)
        there: dict[str, Candidate] = {}
        reports: dict[str, Report] = {}
        absent: dict[str, str] = {}
        for name in design.candidates(unit.block):
            try:
                there[name] = self.candidate(name, world, design, levels)
                reports[name] = {"asked": [], "wrong": 0, "figures": {}}
            except Absent as error:
                absent[name] = f"{name}: {error}"
        planned: list[int] = []
        order: list[list[str]] = []
        for number, batch in enumerate(world.batches):
            planned.append(len(batch.asked))
            order.append(self.turns(list(there), unit, number))
            for name in order[-1]:
                try:
                    self.ask(there[name], batch, reports[name])
                except Exception as error:
                    # One that fails is reported, and does not take the others with it.
                    absent[name] = f"{name} (failed): {type(error).__name__}: {error}"
                    del there[name], reports[name]
        return {"candidates": reports, "absent": absent, "planned": planned, "order": order}

    def ask(self, candidate: Candidate, batch: Batch, report: Report) -> None:
        """One batch, and what was measured of it into `report`."""
        began_ns = thread_time_ns()
        answers = candidate.answer(batch.asked)
        asked_ns = thread_time_ns() - began_ns
        given = len(answers)
        report["asked"].append(given)
        report["wrong"] += self.mistakes(batch, answers) + max(0, given - len(batch.asked))
        began_ns = thread_time_ns()
        candidate.change(batch.changes)
        changed_ns = thread_time_ns() - began_ns
        figures = {
            "answer_us": asked_ns / 1000 / max(1, given),
            "change_us": changed_ns / 1000 / max(1, len(batch.changes)),
            **self.score(batch, answers),
            **candidate.figures(),
        }
        for name, value in figures.items():
            report["figures"].setdefault(name, []).append(round(float(value), 6))

    def tell(self, design: Design, records: Sequence[Report], folder: Path, rates: Mapping[str, float]) -> Account:
        measured = Measured(design, records)
        pictures = measured.draw(folder, self.name, self.packaged)
        return Account(measured.judge(), measured.tables(), measured.rows(), pictures)

    def intervals(self, design: Design) -> str:
        share = 100 * float(design.raw.get("confidence", 0.95))
        return (
            f"Intervals: {share:g} %, by Student's t over clusters (seeds): each is one value, however many requests "
            "it was asked. Batches that a candidate or its rival did not finish are compared with nothing."
        )
