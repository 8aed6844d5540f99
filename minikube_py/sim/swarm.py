"""Many simulated histories on all cores: statistics of their contents, and the failed ones.

  python -m minikube_py.sim.swarm --seeds 1000
  python -m minikube_py.sim.swarm --seeds 10000 --from 5000 --jobs 4 --json swarm.json
  python -m minikube_py.sim.swarm --seeds 10000 --journal results/swarm   # continues after an interruption
  python -m minikube_py.sim.swarm --of cluster --seeds 100                # of a whole control plane"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from minikube_py.ports.memory import give_back
from minikube_py.sim.histories import NAMES, STORE, Histories, histories
from minikube_py.sim.journal import Done, Journal

BLOCK: Final = 8
"""Seeds that a worker takes at a time."""


def run_block(seeds: Sequence[int], of: Histories = STORE) -> list[Done]:
    return [_run(of, seed) for seed in seeds]


def _run(of: Histories, seed: int) -> Done:
    gc.collect()  # members, links and clients refer to each other: a worker held 6.5 GB after 800 histories
    give_back()  # values of megabytes come and go
    begun_s = time.process_time()
    try:
        outcome = of.run(of.drawn(seed)).go()
    except Exception as error:  # any exception of the product is a finding like others
        return Done(seed, {}, {}, Counter(), f"{type(error).__name__}: {error}", time.process_time() - begun_s)
    undecided = {name: each.text for name, each in outcome.verdicts.items() if each.outcome == "undecided"}
    return Done(seed, outcome.violations, undecided, outcome.counts, cpu_s=round(time.process_time() - begun_s, 3))


@dataclass(slots=True)
class Report:
    """The results of all histories."""

    seeds: range
    jobs: int
    of: Histories = STORE
    seen: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Done] = field(default_factory=list)
    undecided: list[Done] = field(default_factory=list)
    by_members: Counter[int] = field(default_factory=Counter)
    least_operations: int = 1 << 30
    cpu_s: float = 0.0
    code: str = ""

    @property
    def histories(self) -> int:
        return len(self.seen)

    def add(self, done: Done) -> None:
        self.seen.add(done.seed)
        self.counts.update(done.counts)
        self.cpu_s += done.cpu_s
        if done.violations or done.crashed:
            self.violations.append(done)
        elif done.undecided:
            self.undecided.append(done)
        if not done.crashed:
            self.by_members[self.of.drawn(done.seed).plan.members] += 1
            self.least_operations = min(self.least_operations, done.counts["operations"])

    def to_json(self) -> dict[str, Any]:
        return {
            "seeds": [self.seeds.start, self.seeds.stop],
            "histories": self.histories,
            "code": self.code, "jobs": self.jobs,
            "cpu_s": round(self.cpu_s, 3),
            "operations_least": self.least_operations,
            "violations": [
                {"seed": each.seed, **each.violations, **({"crashed": each.crashed} if each.crashed else {})}
                for each in sorted(self.violations)
            ],
            "undecided": [each.seed for each in sorted(self.undecided)],
            "clusters": {f"{members} members": count for members, count in sorted(self.by_members.items())},
            "counts": dict(sorted(self.counts.items())),
        }

    def table(self) -> str:
        counts = self.counts
        rate = self.histories / max(self.cpu_s, 1e-9)
        share = len(self.undecided) / max(self.histories, 1)
        sizes = ", ".join(f"{count} of {members}" for members, count in sorted(self.by_members.items()))
        faults = sorted((name[6:], count) for name, count in counts.items() if name.startswith("fault "))
        rows = [
            ("histories", f"{self.histories:,} (members: {sizes})"),
            ("violations", f"{len(self.violations):,}"),
            ("undecided", f"{len(self.undecided):,} ({share:.2%})"),
            ("operations", f"{counts['operations']:,}, at least {self.least_operations:,} in each: "
                           f"{counts['done']:,} done, {counts['refused']:,} refused, {counts['unknown']:,} unknown"),
            ("steps", f"{counts['steps']:,}, in {counts['virtual ms'] / 1000:,.0f} s of virtual time"),
            *(_cluster_rows(counts) if counts["changes of pods"] else _store_rows(counts)),
            ("faults", f"{counts['faults']:,}, {counts['faults left out']:,} left out"),
            *(("", f"{name:10s} {count:>8,}") for name, count in faults),
            ("time", f"{self.cpu_s:,.1f} s of processor time: {rate:,.2f} histories/s, "
                     f"{counts['operations'] / max(self.cpu_s, 1e-9):,.0f} operations/s"),
        ]  # fmt: skip
        return "\n".join(f"  {name:12s}{text}" for name, text in rows)


def _store_rows(counts: Counter[str]) -> list[tuple[str, str]]:
    return [
        ("messages", f"{counts['messages']:,}, {counts['messages lost']:,} lost, "
                     f"{counts['messages doubled']:,} doubled"),
        ("elections", f"{counts['elections']:,} won"),
        ("entries", f"{counts['entries']:,} committed, {counts['syncs']:,} syncs"),
        ("members", f"{counts['membership changes']:,} changes, {counts['starts']:,} starts, "
                    f"{counts['power losses']:,} power losses, {counts['rot detected']:,} damaged disks refused"),
        ("snapshots", f"{counts['snapshots taken']:,} taken, {counts['snapshots sent']:,} sent, "
                      f"{counts['snapshots installed']:,} installed"),
        ("watches", f"{counts['watch batches']:,} batches, {counts['watches resumed']:,} times resumed"),
    ]  # fmt: skip


def _cluster_rows(counts: Counter[str]) -> list[tuple[str, str]]:
    return [
        ("store", f"{counts['revisions']:,} revisions, {counts['changes of pods']:,} changes of pods, "
                  f"{counts['acknowledged']:,} writes of users acknowledged"),
        ("judged", f"{counts['evictions']:,} evictions, {counts['taint evictions']:,} for taints, "
                   f"{counts['preemptions']:,} preemptions, {counts['pods of StatefulSets']:,} pods of StatefulSets, "
                   f"{counts['jobs of CronJobs']:,} Jobs of CronJobs"),
        ("processes", f"{counts['lives']:,} starts, and {counts['starts']:,} of members; "
                      f"{counts['held messages']:,} messages held up by cut links"),
    ]  # fmt: skip


class Progress:
    """A line for each tenth of all histories, starting with those done earlier."""

    def __init__(self, report: Report, stream: TextIO) -> None:
        self._report = report
        self._stream = stream
        self._before = report.histories
        self._started_s = time.perf_counter()
        self._tenth = 0

    def show(self) -> None:
        report, total = self._report, len(self._report.seeds)
        done = report.histories
        if done * 10 // total == self._tenth:
            return
        self._tenth = done * 10 // total
        rate = (done - self._before) / (time.perf_counter() - self._started_s)
        wrong = f"{len(report.violations)} violations  {len(report.undecided)} undecided"
        left_s = (total - done) / rate if rate else 0.0
        print(f"{done:,}/{total:,}  {rate:.1f}/s  {wrong}  {left_s:.0f} s left", file=self._stream, flush=True)


def swarm(
    seeds: range,
    jobs: int,
    stream: TextIO | None = None,
    journals: Path | None = None,
    of: Histories = STORE,
) -> Report:
    """Runs all histories not in their journal, in the folder `journals`, each alone; a failure is printed at once."""
    stream = stream or sys.stdout
    report = Report(seeds, jobs, of)
    journal = Journal(journals, of.name) if journals is not None else None
    if journal is not None:
        report.code = journal.path.stem
        for before in {done.seed: done for done in journal.read() if done.seed in seeds}.values():
            report.add(before)
    wanted = [seed for seed in seeds if seed not in report.seen]
    progress = Progress(report, stream)
    blocks = [wanted[start : start + BLOCK] for start in range(0, len(wanted), BLOCK)]
    for block in _results(blocks, jobs, of):
        if journal is not None:
            journal.add(block)
        for done in block:
            report.add(done)
            if done.violations or done.crashed:
                print(told(done, of), file=stream, flush=True)
        progress.show()
    return report


def told(done: Done, of: Histories = STORE) -> str:
    """A failing history in a few lines, the last of which replays it."""
    lines = [f"seed {done.seed}: VIOLATION"]
    lines += [f"  {name}: {text.splitlines()[0][:300]}" for name, text in done.violations.items()]
    if done.crashed:
        lines.append(f"  the run itself: {done.crashed.splitlines()[0][:300]}")
    return "\n".join([*lines, f"  {of.replay} {done.seed}"])


def _results(blocks: Sequence[Sequence[int]], jobs: int, of: Histories) -> Iterable[list[Done]]:
    work = partial(run_block, of=of)
    if jobs == 1:
        yield from map(work, blocks)
        return
    with multiprocessing.get_context("fork").Pool(jobs, initializer=_prepare) as pool:
        yield from pool.imap_unordered(work, blocks)


def _prepare() -> None:
    """Loaded modules stay, so the collector need not walk them again; a run's objects are collected after it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a history failed."""
    parser = argparse.ArgumentParser(
        prog="python -m minikube_py.sim.swarm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    cores = os.cpu_count() or 1
    parser.add_argument("--of", choices=NAMES, default=NAMES[0], help="of what (default: the store)")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many histories (default: 1000)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=cores, metavar="J", help=f"processes (default: all {cores} cores)")
    parser.add_argument(
        "--journal", type=Path, metavar="DIR", help="note there what is done, and do what this code has not done yet"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to it")
    parsed = parser.parse_args(arguments)
    if parsed.seeds < 1 or parsed.jobs < 1:
        parser.error("--seeds and --jobs are at least 1")
    of = histories(parsed.of)
    report = swarm(range(parsed.first, parsed.first + parsed.seeds), parsed.jobs, journals=parsed.journal, of=of)
    print(report.table())
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    for done in sorted(report.violations):
        print(f"failed: {of.replay} {done.seed}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
