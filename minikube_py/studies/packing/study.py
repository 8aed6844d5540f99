"""`minikube-py lab packing`: replays lists, policies and seeds, and compares the means with the published ones.

A journal records every finished replay, so that an interrupted run resumes: as that of a study, of one code.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.lab import pod_lists
from minikube_py.lab.environment import commit
from minikube_py.lab.study.design import StudyError
from minikube_py.lab.study.journal import Journal
from minikube_py.lab.study.registration import digest_of, package_files
from minikube_py.lab.trace import load
from minikube_py.studies.packing.replay import MARKS, Replayed, replay

EXPECTED: Final = "fgd_expected.csv"
PUBLISHED_NAMES: Final[Mapping[str, str]] = {
    "01-Random": "random",
    "02-DotProd": "dotprod",
    "03-GpuClustering": "clustering",
    "04-GpuPacking": "packing",
    "05-BestFit": "bestfit",
    "06-FGD": "fgd",
}
LEAST_TOLERANCE: Final = 0.3
SHARES: Final = ("allocated", "fragmented")
SEEDS_PUBLISHED: Final = 10


class Task(NamedTuple):
    pods: str
    policy: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.pods} {self.policy} {self.seed}"


@dataclass(frozen=True, slots=True)
class Mean:
    """Over the replayed seeds, in percent of the GPUs, by seed. `deviation`: of the sample, 0 for one seed."""

    mean: float
    deviation: float
    by_seed: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, tuple(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One list under one policy, by mark."""

    pods: str
    policy: str
    seeds: int
    allocated: Mapping[int, Mean]
    fragmented: Mapping[int, Mean]


class Expected(NamedTuple):
    """The published mean of 10 seeds. At 130 % no deviation is published, so that at 100 % is used."""

    mean: float
    deviation: float

    def tolerance(self, seeds: int) -> float:
        """Twice the standard error of the difference to a mean of `seeds`; for 10 at least LEAST_TOLERANCE, for fewer
        as much more."""
        of_ten = max(LEAST_TOLERANCE, 2 * self.deviation * (2 / SEEDS_PUBLISHED) ** 0.5)
        return float(of_ten * ((1 / seeds + 1 / SEEDS_PUBLISHED) / (2 / SEEDS_PUBLISHED)) ** 0.5)

    def allows(self, mean: float, seeds: int) -> bool:
        return abs(mean - self.mean) <= self.tolerance(seeds)


def published() -> dict[tuple[str, str, int], Expected]:
    """By list, policy and mark."""
    text = resources.files("minikube_py.lab.traces").joinpath(EXPECTED).read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        key = row["pod_list"], PUBLISHED_NAMES[row["policy"]]
        for mark in MARKS:
            found[(*key, mark)] = Expected(float(row[f"at{mark}_mean"]), float(row["at100_sd"]))
    return found


def run(tasks: Sequence[Task], *, jobs: int, journal: Path | None, say: Callable[[str], None]) -> dict[Task, Replayed]:
    """Raises: StudyError for a journal of other code, TraceError."""
    for name in dict.fromkeys(task.pods for task in tasks):
        pod_lists.read(name)
    with ExitStack() as kept:
        kept_in = begun(journal, "packing", say) if journal is not None else None
        if kept_in is not None:
            kept.callback(kept_in.close)
        records = kept_in.records if kept_in is not None else {}
        found = {task: _replayed_of(records[task.key]) for task in tasks if task.key in records}
        for task, each in _replayed([task for task in tasks if task not in found], jobs):
            found[task] = each
            if kept_in is not None:
                kept_in.add({"key": task.key, **_json(each)})
            say(f"{task.pods}, {task.policy}, seed {task.seed}: {_told(each)} ({len(found)} of {len(tasks)})")
    return found


def begun(path: Path, what: str, say: Callable[[str], None]) -> Journal:
    """A journal of `what`, new or to go on with. Raises: StudyError."""
    about = {"code": digest_of(package_files()), "commit": commit()}
    journal = Journal(path, {"study": what}, about=about, flag="another file with --journal")
    for note in journal.notes():
        say(note)
    try:
        journal.require_code(about["code"])
    except StudyError:
        journal.close()
        raise
    return journal


def _told(each: Replayed) -> str:
    return ", ".join(f"{share:.2f} % allocated at {mark} %" for mark, share in each.allocated.items())


def _replayed(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Replayed]]:
    if jobs == 1 or len(tasks) < 2:
        yield from ((task, _one(task)) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from zip(tasks, pool.map(_one, tasks), strict=True)


def _one(task: Task) -> Replayed:
    return replay(load().nodes, pod_lists.read(task.pods), task.policy, task.seed)


def _json(each: Replayed) -> dict[str, Any]:
    shares = {name: {str(mark): round(v, 4) for mark, v in getattr(each, name).items()} for name in SHARES}
    return {**each._asdict(), **shares}


def _replayed_of(record: Mapping[str, Any]) -> Replayed:
    allocated, fragmented = ({int(mark): share for mark, share in record[name].items()} for name in SHARES)
    return Replayed(allocated, fragmented, record["placed"], record["unplaced"], record["digest"])


def means(found: Mapping[Task, Replayed]) -> list[Row]:
    """In task order."""
    by_row: dict[tuple[str, str], list[Replayed]] = {}
    for task, each in sorted(found.items(), key=lambda item: item[0].seed):
        by_row.setdefault((task.pods, task.policy), []).append(each)
    rows = []
    for pods, policy in dict.fromkeys((task.pods, task.policy) for task in found):
        runs = by_row[pods, policy]
        shares = [
            {mark: Mean.of([getattr(run, name)[mark] for run in runs if mark in run.allocated]) for mark in MARKS}
            for name in SHARES
        ]
        rows.append(Row(pods, policy, len(runs), *shares))
    return rows


def as_json(rows: Sequence[Row], seeds: Sequence[int]) -> bytes:
    """Byte-identical for equal lists, policies and seeds; one line per list and policy."""
    expected = published()
    lines = b",\n".join(orjson.dumps(_row_json(row, expected)) for row in rows)
    return b'{"seeds":%b,"rows":[\n%b\n]}\n' % (orjson.dumps(list(seeds)), lines)


def _row_json(row: Row, expected: Mapping[tuple[str, str, int], Expected]) -> dict[str, Any]:
    found: dict[str, Any] = {"pods": row.pods, "policy": row.policy, "seeds": row.seeds}
    for mark in MARKS:
        at: dict[str, Any] = {}
        for name in SHARES:
            each = getattr(row, name)[mark]
            at[name] = {"mean": round(each.mean, 3), "deviation": round(each.deviation, 3)}
            at[name]["by_seed"] = [round(value, 2) for value in each.by_seed]
        known = expected.get((row.pods, row.policy, mark))
        if known is not None:
            at["published"] = {"mean": known.mean, "tolerance": round(known.tolerance(row.seeds), 3)}
            at["within"] = known.allows(row.allocated[mark].mean, row.seeds)
        found[f"at{mark}"] = at
    return found


def outside(rows: Sequence[Row]) -> list[str]:
    """The means that differ from the published ones by more than so many seeds explain."""
    expected = published()
    found = []
    for row in rows:
        for mark in MARKS:
            known = expected.get((row.pods, row.policy, mark))
            mean = row.allocated[mark].mean
            if known is not None and not known.allows(mean, row.seeds):
                found.append(
                    f"{row.pods} at {mark} %: {row.policy} is {mean - known.mean:+.2f} from the published mean"
                )
    return found


def out_of_order(rows: Sequence[Row]) -> list[str]:
    """Pairs of policies that the published means order differently, by more than both tolerances."""
    expected = published()
    found = []
    for one in rows:
        for other in rows:
            if one.pods != other.pods:
                continue
            for mark in MARKS:
                first = expected.get((one.pods, one.policy, mark))
                second = expected.get((other.pods, other.policy, mark))
                if first is None or second is None:
                    continue
                apart = first.mean - second.mean > max(first.tolerance(one.seeds), second.tolerance(other.seeds))
                if apart and one.allocated[mark].mean <= other.allocated[mark].mean:
                    found.append(f"{one.pods} at {mark} %: {one.policy} is not above {other.policy}")
    return found
