"""Runs the remaining units by processes on all cores.

Only this process writes results, as they arrive. A unit that raises also counts as a result: it is reported, recorded
as failed, and retried by the next `--resume`.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import Final, NamedTuple

from minikube_py import own_code
from minikube_py.lab.study.design import Design, Unit
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.journal import Journal, Record
from minikube_py.lab.study.threads import at_work

UNITS_A_PROCESS: Final = 40
"""A worker is replaced after this many units, so that leaked memory does not slow later ones."""
Results = Iterator[Record]


class Task(NamedTuple):
    """`target`: locates the study's code in a process."""

    target: str
    design: Design
    unit: Unit


def run_unit(task: Task) -> Record:
    """The record of one unit; never raises unless interrupted."""
    target, design, unit = task
    began_s = time.monotonic()
    record = _record(unit)
    try:
        gc.collect()
        gc.disable()
        record.update(find(target).measure(design, unit))
    except own_code.raised():
        record["failed"] = traceback.format_exc(limit=8)
    finally:
        gc.enable()
    record["took_s"] = round(time.monotonic() - began_s, 3)
    return record


def _record(unit: Unit) -> Record:
    return {"key": unit.key, "block": unit.block, "levels": dict(unit.levels), "seed": unit.seed}


def todo(design: Design, journal: Journal, blocks: tuple[str, ...] = ()) -> list[Unit]:
    """The first unit of each block comes first: it shows whether the design names figures that there are."""
    done = {key for key, record in journal.records.items() if "failed" not in record}
    left = [unit for unit in design.units(blocks) if unit.key not in done]
    first = set({unit.block: unit for unit in reversed(left)}.values())
    return sorted(left, key=lambda unit: unit not in first)


@contextmanager
def in_processes(jobs: int, stop_s: float | None = None) -> Iterator[Callable[[Sequence[Task]], Results]]:
    """`jobs` workers, spawned rather than forked, so that all systems behave alike; one job runs in this process.
    `stop_s`: on the monotonic clock, when workers are ended with what they do; then one job is a worker, too."""
    if jobs == 1 and stop_s is None:
        yield _here
    else:
        yield lambda tasks: _by_workers(tasks, jobs, stop_s)


def _here(tasks: Sequence[Task]) -> Results:
    """Goes on in a worker once threads that do not end would be paid for by whoever is asked here."""
    left = deque(tasks)
    while left and not at_work():
        yield run_unit(left.popleft())
    yield from _by_workers(left, 1, None)


def _left_s(stop_s: float | None) -> float | None:
    return None if stop_s is None else max(0.0, stop_s - time.monotonic())


class _Worker:
    """A process, and the task that it has. A pool would wait forever for the task of a process that was killed."""

    def __init__(self, context: SpawnContext, task: Task) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.given = 0
        self.give(task)

    def give(self, task: Task) -> None:
        self.task = task
        self.given += 1
        try:
            self.pipe.send(task)
        except OSError:
            pass  # It has ended, which `record` says.

    def record(self) -> tuple[Record, bool]:
        """Blocks until there is one; and whether the process can take another task."""
        try:
            found: Record
            found, left_at_work = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            how = f"its process ended with exit code {self.process.exitcode}; -9 may mean that memory was short"
            return {**_record(self.task.unit), "failed": how, "took_s": 0.0}, False
        return found, self.given < UNITS_A_PROCESS and not left_at_work

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: Connection) -> None:
    try:
        while True:
            pipe.send((run_unit(pipe.recv()), at_work()))
    except (EOFError, KeyboardInterrupt):
        pass


def _by_workers(tasks: Iterable[Task], jobs: int, stop_s: float | None) -> Results:
    """In the order in which they finish. Leaving early ends the workers; at `stop_s` all are ended, and named."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(tasks)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_Worker(context, waiting.popleft()))
            ready = wait([each.pipe for each in workers], _left_s(stop_s))
            if not ready:
                listed = ", ".join(each.task.unit.key for each in workers)
                print(f"the time is over; under way, and not finished: {listed}", flush=True)
                return
            for worker in [each for each in workers if each.pipe in ready]:
                record, usable = worker.record()
                if usable and waiting:
                    worker.give(waiting.popleft())
                else:
                    workers.remove(worker)
                    worker.end()
                yield record
    finally:
        for worker in workers:
            worker.end()


def run(
    target: str,
    design: Design,
    journal: Journal,
    units: Sequence[Unit],
    results: Callable[[Sequence[Task]], Results],
    told: Callable[[int, str], None],
) -> list[Record]:
    """Runs and records `units`, and reports progress and the remaining time; returns the failed ones."""
    failed: list[Record] = []
    study = find(target)
    weights = {unit.key: study.weight(unit) for unit in units}
    left = total = sum(weights.values())
    began_s = time.monotonic()
    for done, record in enumerate(results([Task(target, design, unit) for unit in units]), 1):
        journal.add(record)
        if "failed" in record:
            failed.append(record)
        left -= weights[record["key"]]
        left_s = (time.monotonic() - began_s) / max(total - left, 1e-9) * left
        told(done, f"{duration(left_s)} left" + (f", {len(failed)} failed" if failed else ""))
    return failed


def duration(value_s: float) -> str:
    minutes, seconds = divmod(round(max(0.0, value_s)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
