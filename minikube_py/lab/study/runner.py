"""Runs the units that are still to be run: by processes on all cores, or as tasks of a Ray cluster.

This process alone writes each result as it comes in. A unit that raises is a result too: it is reported, written down
as failed, and tried again by the next `--resume`.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikube_py.lab.study.design import Design, StudyError, Unit
from minikube_py.lab.study.experiment import find
from minikube_py.lab.study.journal import Journal, Record

UNITS_A_PROCESS: Final = 40
"""A worker is replaced after as many, so that memory that one unit left behind does not slow later ones."""
PACKAGE: Final = Path(__file__).resolve().parents[2]
Results = Iterator[Record]


class Task(NamedTuple):
    """`target`: by what a process finds the study's code."""

    target: str
    design: Design
    unit: Unit


def run_unit(task: Task) -> Record:
    """The record of one unit; never raises but when interrupted."""
    target, design, unit = task
    began_s = time.monotonic()
    record: Record = {
        "key": unit.key,
        "block": unit.block,
        "levels": dict(unit.levels),
        "seed": unit.seed,
    }
    try:
        gc.collect()
        gc.disable()
        record.update(find(target).measure(design, unit))
    except Exception:
        record["failed"] = traceback.format_exc(limit=8)
    finally:
        gc.enable()
    record["took_s"] = round(time.monotonic() - began_s, 3)
    return record


def weight(unit: Unit) -> float:
    """About how long a unit takes relative to the others; the remaining time is estimated from these."""
    levels = dict(unit.levels)
    return 1.0 + float(levels.get("n", levels.get("keys", 10_000))) / 2_000


def todo(design: Design, journal: Journal, blocks: tuple[str, ...] = ()) -> list[Unit]:
    done = {key for key, record in journal.records.items() if "failed" not in record}
    return [unit for unit in design.units(blocks) if unit.key not in done]


@contextmanager
def in_processes(jobs: int) -> Iterator[Callable[[Sequence[Task]], Results]]:
    """`jobs` workers, started again rather than forked, so that they are alike on every system; one is this process."""
    if jobs == 1:
        yield lambda tasks: map(run_unit, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=UNITS_A_PROCESS) as pool:
        yield lambda tasks: pool.imap_unordered(run_unit, tasks)


@contextmanager
def on_ray(address: str) -> Iterator[Callable[[Sequence[Task]], Results]]:
    """Tasks of one CPU each at a cluster that `ray start --head` began. Raises: StudyError."""
    try:
        import ray
    except ImportError as error:
        raise StudyError("ray is not installed; pip install 'minikube_py[sweep]', or leave --ray out") from error
    try:
        # The package goes along, so that the cluster's hosts run this very code.
        ray.init(address=address, log_to_driver=False, runtime_env={"py_modules": [str(PACKAGE)]})
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise StudyError(f"no Ray cluster at {address!r}: {said}; start one with `ray start --head`") from error
    try:
        yield _ray_results
    finally:
        ray.shutdown()


def _ray_results(tasks: Sequence[Task]) -> Results:
    """At most twice as many under way as there are CPUs, so that an end leaves little to be thrown away."""
    import ray

    remote: Any = ray.remote(num_cpus=1)(run_unit)
    room = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
    waiting = list(reversed(tasks))
    under_way: list[Any] = []
    while waiting or under_way:
        while waiting and len(under_way) < room:
            under_way.append(remote.remote(waiting.pop()))
        ready, under_way = ray.wait(under_way, num_returns=1)
        try:
            yield from ray.get(ready)
        except ray.exceptions.RayError as error:
            said = " ".join(str(error).split())[-300:]
            hint = "the cluster's hosts need Python and the packages of minikube_py as here; --resume goes on"
            raise StudyError(f"a task of the Ray cluster failed: {said}; {hint}") from error


def run(
    target: str,
    design: Design,
    journal: Journal,
    units: Sequence[Unit],
    results: Callable[[Sequence[Task]], Results],
    told: Callable[[int, str], None],
) -> list[Record]:
    """Runs `units`, writes each down, tells how many are done and the time left; returns those that failed."""
    failed: list[Record] = []
    left = total = sum(map(weight, units))
    began_s = time.monotonic()
    weights = {unit.key: weight(unit) for unit in units}
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
