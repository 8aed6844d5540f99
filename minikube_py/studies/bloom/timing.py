"""Queries a candidate and measures: the thread's CPU time per batch for the ledger, the wall clock for single requests.

A shared machine stretches a batch's wall-clock time; CPU time is almost unaffected. The loop's own overhead is measured
by a structure that does nothing, and subtracted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

from minikube_py.index.structure import NOTHING, Box, Found, Point, Structure
from minikube_py.studies.bloom.workload import Update

STEPS_A_DECADE: Final = 12
"""For the histogram of single latencies: a step is 21 %."""


class Idle:
    """Does nothing: its cost is the loop's overhead."""

    structure = "idle"

    def put(self, slot: int, point: Point) -> None:
        pass

    def remove(self, slot: int) -> None:
        pass

    def find(self, box: Box, limit: int = 0) -> Found:
        return NOTHING

    def may_match(self, box: Box) -> bool:
        return False

    def size_bytes(self) -> int:
        return 0


@dataclass(slots=True)
class Answers:
    """Of one batch. `cut`: its time limit stopped it before the end."""

    cpu_us: float
    found: list[Found]
    latencies_us: list[float]
    cut: bool


def ask(structure: Structure, asked: Sequence[Box], limit: int, limit_s: float) -> Answers:
    find = structure.find
    found: list[Found] = []
    marks = [perf_counter_ns()]
    stop_ns = marks[0] + int(limit_s * 1e9)
    began_ns = thread_time_ns()
    for box in asked:
        found.append(find(box, limit))
        marks.append(perf_counter_ns())
        if marks[-1] > stop_ns:
            # Other processes may have had the processor; only our share counts.
            left_ns = int(limit_s * 1e9) - (thread_time_ns() - began_ns)
            if left_ns <= 0:
                break
            stop_ns = marks[-1] + left_ns
    cpu_us = (thread_time_ns() - began_ns) / 1000
    latencies_us = [(after - before) / 1000 for before, after in pairwise(marks)]
    return Answers(cpu_us, found, latencies_us, len(found) < len(asked))


def put(structure: Structure, updates: Sequence[Update], limit_s: float) -> tuple[float, bool]:
    """CPU time per update in us, and whether the time limit cut them short; the remaining ones are still put."""
    change = structure.put
    stop_ns = perf_counter_ns() + int(limit_s * 1e9)
    done = 0
    began_ns = thread_time_ns()
    for slot, point in updates:
        change(slot, point)
        done += 1
        if not done & 15 and perf_counter_ns() > stop_ns and thread_time_ns() - began_ns > limit_s * 1e9:
            break
    each_us = (thread_time_ns() - began_ns) / 1000 / max(1, done)
    for slot, point in updates[done:]:
        change(slot, point)
    return each_us, done < len(updates)


@dataclass(frozen=True, slots=True)
class Overhead:
    """Overhead of the loops, in us per request and update."""

    request_us: float
    update_us: float


def overhead(asked: Sequence[Box], updates: Sequence[Update]) -> Overhead:
    """The minimum of a few, since disturbances only add."""
    idle = Idle()
    request_us = min(ask(idle, asked, 1, 1.0).cpu_us for _ in range(5)) / max(1, len(asked))
    return Overhead(request_us, min(put(idle, updates, 1.0)[0] for _ in range(5)))


@dataclass(slots=True)
class Histogram:
    """Counts of latencies in logarithmic steps: step i covers [10^(i/12), 10^((i+1)/12)) us."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, value_us: float) -> None:
        self.counts[math.floor(math.log10(max(value_us, 0.01)) * STEPS_A_DECADE)] += 1

    def as_dict(self) -> dict[str, Any]:
        return {str(step): count for step, count in sorted(self.counts.items())}


def step_us(step: int) -> float:
    """The end of a Histogram step."""
    return float(10 ** ((step + 1) / STEPS_A_DECADE))
