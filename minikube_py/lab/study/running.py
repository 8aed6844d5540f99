"""`minikube-py lab study NAME`: runs the remaining units, and writes the report of all finished ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from minikube_py import own_code
from minikube_py.control_plane.config import Step
from minikube_py.errors import MinikubeError
from minikube_py.lab import plots, report
from minikube_py.lab.environment import Environment, describe
from minikube_py.lab.progress import progress
from minikube_py.lab.study import runner, study_report
from minikube_py.lab.study.checking import check_figures
from minikube_py.lab.study.design import Design, Mode, StudyError
from minikube_py.lab.study.experiment import Rates, Study, find
from minikube_py.lab.study.journal import NAME, Journal, Record, of_study
from minikube_py.lab.study.registration import Registration, code_digest, load, told
from minikube_py.lab.study.runner import Results, Task


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """`target`: the name of a study, or the file of its design. `limit_s`: the run stops
    after this time. `report_only`: runs nothing. `blocks`: all without any."""

    target: str
    mode: Mode
    out: Path
    jobs: int
    resume: bool = False
    report_only: bool = False
    limit_s: float | None = None
    bench: Sequence[Path] = ()
    unregistered: bool = False
    blocks: tuple[str, ...] = ()


def run_study(options: StudyOptions, step: Step) -> int:
    """Returns 0, or 1 if units failed. Raises: StudyError, ReportError."""
    study = find(options.target)
    # A report has the registration of its run.
    design, registration = load(study, options.mode, options.unregistered or options.report_only)
    design.require_blocks(options.blocks)
    if options.bench and not study.draws_rates:
        raise StudyError(f"the study {study.name} shows nothing of benchmarks; leave --bench out")
    rates = bench_rates(options.bench)
    report.require_writable(options.out, "--out")
    jobs = f"{options.jobs} processes, {_threads()} each"
    environment, code = describe(options.out, jobs).as_dict(), code_digest(study)
    about = {"registration": registration.as_dict(), "environment": environment, "code": code}
    resumes, alone = options.resume or options.report_only, not options.report_only
    journal = of_study(options.out / NAME, design, resumes, about, alone)
    # The commit and machine of the run's start count, wherever its report is written.
    registration = Registration(**journal.about["registration"])
    try:
        if not options.report_only:
            journal.require_code(code)
        checked: set[str] = set()
        for record in journal.records.values():
            _check_first(study, design, record, checked)
        step("design", registration.line(told(study.text)))
        for note in journal.notes():
            print(note, flush=True)
        failed = 0 if options.report_only else _run(options, study, design, journal, checked)
        return _tell(options, study, design, registration, journal, rates) or int(failed > 0)
    except KeyboardInterrupt:
        print(f"\nstopped; {len(journal.records):,} units are in {journal.path}; --resume goes on", flush=True)
        raise
    finally:
        journal.close()


def _threads() -> str:
    """How many threads this process has, those of libraries included, as far as the system tells."""
    import numpy  # noqa: F401  # Its BLAS starts threads when it is loaded.

    count = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    return f"{count} thread{'s' if count != 1 else ''}" if count else "threads not counted"


def _check_first(study: Study, design: Design, record: Record, checked: set[str]) -> None:
    """Raises: StudyError for figures that the first unit of a block does not have."""
    if "failed" not in record and record["block"] not in checked:
        checked.add(record["block"])
        check_figures(design.raw, str(study.design), record)


def _run(options: StudyOptions, study: Study, design: Design, journal: Journal, checked: set[str]) -> int:
    units = runner.todo(design, journal, options.blocks)
    if not units:
        print(f"every unit{' of ' if options.blocks else ''}{', '.join(options.blocks)} has finished", flush=True)
        return 0
    stop_s = time.monotonic() + options.limit_s if options.limit_s else None
    if journal.records:
        print(f"{len(journal.records):,} units have finished before", flush=True)

    def check(record: Record) -> None:
        _check_first(study, design, record, checked)

    what = f"{design.mode} study, {options.jobs} processes"
    with runner.in_processes(options.jobs, stop_s) as results, progress(what, len(units)) as shown:
        failed = runner.run(options.target, design, journal, units, _until(results, stop_s, check), shown.update)
    for record in failed[:3]:
        print(f"failed: {record['key']}\n{record['failed']}", flush=True)
    return len(failed)


def _until(
    results: Callable[[Sequence[Task]], Results], stop_s: float | None, check: Callable[[Record], None]
) -> Callable[[Sequence[Task]], Results]:
    def limited(tasks: Sequence[Task]) -> Iterator[Record]:
        for record in results(tasks):
            check(record)
            yield record
            if stop_s is not None and time.monotonic() >= stop_s:
                return

    return limited


def _tell(
    options: StudyOptions,
    study: Study,
    design: Design,
    registration: Registration,
    journal: Journal,
    rates: Rates,
) -> int:
    records = list(journal.records.values())
    if not any("failed" not in record for record in records):
        print("no unit has finished; there is nothing to report", flush=True)
        return 1
    environment = Environment(**journal.about["environment"])
    try:
        made = study_report.write(study, design, registration, environment, records, options.out, rates)
    except MinikubeError:
        raise
    except own_code.raised() as error:
        raise StudyError(f"no report can be made of {journal.path}: {own_code.told(error)}") from error
    once = [name for name, runs in rates.items() if len(runs) < 2]
    for warning in [*made.warnings, *(f"{name}: a single run has no interval, and is not drawn" for name in once)]:
        print(f"note: {warning}", flush=True)
    for each in made.findings:
        print(f"{each.name} | {each.claim} | **{each.outcome}** | {each.evidence}", flush=True)
    report.print_written([journal.path, *made.files])
    if not plots.available():
        print(plots.MISSING, flush=True)
    return 0


def bench_rates(paths: Sequence[Path]) -> dict[str, list[float]]:
    """Pods/s of the runs recorded by benchmarks, by description. Raises: StudyError."""
    found: dict[str, list[float]] = {}
    for path in paths:
        before = sum(map(len, found.values()))
        try:
            document = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise StudyError(f"cannot read {path}: {error}; name a JSON file that a bench wrote") from error
        _collect(document, path.parent.name, found)
        if sum(map(len, found.values())) == before:
            raise StudyError(f"{path} names no pods_per_s; give a file of `bench density` or `bench schedule`")
    return found


def _collect(node: object, name: str, found: dict[str, list[float]]) -> None:
    if isinstance(node, dict):
        rate = node.get("pods_per_s")
        if isinstance(rate, int | float):
            found.setdefault(_named(node.get("options"), name), []).append(float(rate))
        for key, value in node.items():
            _collect(value, str(key), found)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            _collect(value, f"{name} {number + 1}", found)


def _named(options: object, name: str) -> str:
    """A run's description by its options, if given."""
    if not isinstance(options, dict) or not {"nodes", "matcher"} <= options.keys():
        return name
    members = options.get("members") or 1
    of_members = f"{members} store member{'s' if members != 1 else ''}"
    more = f"{options.get('sampling')} scored, {of_members}, {options.get('utilisation')} full"
    return f"{options['matcher']}, {options['nodes']:,} nodes, {options.get('pods', 0):,} pods, {more}"
