#!/usr/bin/env python3
"""The mutation score: automatic mutants of the store's packages, and how many of them the tests and histories notice.

    python tests/mutants/mutants_command.py --limit 40             a sample of 40, at the present commit
    python tests/mutants/mutants_command.py --limit 400            goes on where the sample ended
    python tests/mutants/mutants_command.py --only raft            of one package
    python tests/mutants/mutants_command.py --again JOURNAL        the survivors of an earlier run, at this commit
    python tests/mutants/mutants_command.py --report               what the journal says so far
    python tests/mutants/mutants_command.py --commit C --resume FILE   goes on with a draw that `--json` has recorded

A draw is fixed by the commit: its hash is the seed, each package and each operator has its share (`mutation_draw`,
`mutation_operators`). Mutants are planted in a copy of the commit's files; the checkout is not touched, and need not be
clean. Each mutant is put to the tests that run its line (which ones was measured once), the cheapest first. Then those
that live are put to simulated histories, survivors to more of them; but a history that healthy code plays without a
difference at the mutant's place is not played again. Score: killed / (killed + survived). Left out of both are
mutants that change nothing which can be seen (`judged.toml` gives the reason for each), that run into the limit of
time, and that cannot be imported.

Interrupt it at any time: verdicts are in a journal, and the next run with the same commit goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from mutation_draw import QUOTAS, candidates, draw
from mutation_map import files, measured
from mutation_operators import Change
from mutation_report import Journal, Report, reasons, recorded
from mutation_tree import ROOT, Tree, commit_of
from mutation_trial import KILLED, SURVIVED, Verdict, by_histories, by_tests
from mutation_watched import Watched, Witnesses
from mutation_worker import base

NICE = 10
T = TypeVar("T")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=400, metavar="N", help="mutants in the draw (400)")
    parser.add_argument("--only", choices=tuple(QUOTAS), help="mutants of this package alone")
    cores = max(1, (os.cpu_count() or 2) // 2)
    parser.add_argument("--jobs", type=int, default=cores, metavar="J", help="mutants at a time (half of the cores)")
    parser.add_argument("--commit", default="HEAD", help="whose files are changed, and whose hash is the seed (HEAD)")
    parser.add_argument("--histories", type=int, default=30, metavar="N", help="for each that tests do not kill (30)")
    parser.add_argument("--survivor-histories", type=int, default=300, metavar="N", help="for each survivor (300)")
    parser.add_argument("--again", type=Path, metavar="JOURNAL", help="instead of a draw, the survivors in it")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M", help="begin no mutant after so many minutes")
    parser.add_argument("--report", action="store_true", help="try nothing; print what the journal says")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="its verdicts count; as --json has written it")
    parser.add_argument("--folder", type=Path, default=ROOT / "results/mutants", help="of journals")
    return parser.parse_args(arguments)


class Run:
    """One run at one commit: where its files are, and what is printed on stderr."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.commit = commit_of(arguments.commit)
        self.folder = arguments.folder / self.commit[:12]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.folder / ("again.jsonl" if arguments.again else "journal.jsonl"))
        self.known = reasons()
        self.witnesses = Witnesses(self.folder / "witnesses.jsonl")
        self.packages = [arguments.only] if arguments.only else list(QUOTAS)
        self._started_s = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._started_s:7.0f} s  {text}", file=sys.stderr, flush=True)

    def wanted(self, tree: Path) -> list[Change]:
        found = {package: candidates(tree, package) for package in self.packages}
        if self.arguments.again is None:
            return list(itertools.islice(draw(found, self.commit), self.arguments.limit))
        survived = {v.key for v in Journal(self.arguments.again).verdicts.values() if v.status == SURVIVED}
        changes = [change for those in found.values() for change in those if change.key in survived]
        if gone := survived.difference(change.key for change in changes):
            self.tell(f"no longer there: {', '.join(sorted(gone))}")
        return changes

    def report(self, wanted: list[Change]) -> Report:
        verdicts = self.journal.verdicts
        return Report([verdicts[change.key] for change in wanted if change.key in verdicts], self.known)

    def try_all(self, scratch: Path) -> Report:
        """All mutants to the tests first, and only then those that live to histories, few before many: a run that is
        interrupted knows something about each."""
        arguments = self.arguments
        trees = [Tree(scratch / str(each), self.commit) for each in range(max(1, arguments.jobs))]
        try:
            wanted = self.wanted(trees[0].folder)
            if arguments.resume:
                self._resume(wanted)
            if not arguments.report:
                self._try(trees, wanted)
            return self.report(wanted)
        finally:
            for tree in trees:
                tree.close()

    def _resume(self, wanted: list[Change]) -> None:
        for verdict in recorded(self.arguments.resume, self.commit, wanted):
            if verdict.key not in self.journal.verdicts:
                self.journal.add(verdict)

    def _try(self, trees: list[Tree], wanted: list[Change]) -> None:
        coverage = measured(self.folder / "map.jsonl", trees[0], QUOTAS, self.tell)
        for verdict in self.journal.verdicts.values():
            coverage.kills[base(verdict.by)] += verdict.status == KILLED

        def to_tests(tree: Tree, change: Change) -> Verdict:
            tree.warm_up(list(files(tree.folder)))
            return by_tests(tree, change, coverage)

        self._run(trees, [change for change in wanted if change.key not in self.journal.verdicts], to_tests)
        for until in sorted({self.arguments.histories, self.arguments.survivor_histories} - {0}):
            left = [change for change in wanted if coverage.in_histories(change) and self._lives(change, until)]
            watched = self.witnesses.watch(trees, left, until, self._pooled, self.tell)

            def to_histories(tree: Tree, change: Change, until: int = until, watched: Watched = watched) -> Verdict:
                verdict = self.journal.verdicts[change.key]
                return by_histories(tree, change, verdict, watched.seeds(change, verdict.histories, until), until)

            self._run(trees, left, to_histories)

    def _lives(self, change: Change, until: int) -> bool:
        verdict = self.journal.verdicts.get(change.key)
        if verdict is None or change.key in self.known.equivalent:
            return False
        return verdict.status == SURVIVED and verdict.histories < until

    def _run(self, trees: list[Tree], left: list[Change], one: Callable[[Tree, Change], Verdict]) -> None:
        def task(change: Change) -> Callable[[Tree], Verdict]:
            return lambda tree: one(tree, change)

        self._pooled(trees, [task(change) for change in left], self._note)

    def _pooled(self, trees: list[Tree], tasks: Sequence[Callable[[Tree], T]], note: Callable[[T], None]) -> None:
        """Each task on a tree that is free; none begins when time is over."""
        free: SimpleQueue[Tree] = SimpleQueue()
        for tree in trees:
            free.put(tree)

        def work(task: Callable[[Tree], T]) -> T:
            tree = free.get()
            try:
                return task(tree)
            finally:
                free.put(tree)

        left = iter(tasks)
        end_s = self._started_s + 60 * self.arguments.minutes
        with ThreadPoolExecutor(len(trees)) as pool:
            running: set[Future[T]] = set()
            try:
                while True:
                    while len(running) < len(trees) and time.monotonic() < end_s and (task := next(left, None)):
                        running.add(pool.submit(work, task))
                    if not running:
                        return
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in done:
                        note(each.result())
            except BaseException:
                # Else the pool would wait for what is under way.
                for tree in trees:
                    tree.stop()
                raise

    def _note(self, verdict: Verdict) -> None:
        self.journal.add(verdict)
        by = verdict.by if verdict.status == KILLED else ""
        place = f"{verdict.path}:{verdict.line} {verdict.operator}"
        spent = f"{verdict.cpu_s:.1f} s, {verdict.histories} histories"
        self.tell(f"{verdict.status:<9}{verdict.key} {place} ({spent}) {by}")


def main() -> int:
    arguments = parse()
    os.nice(NICE)
    scratch = Path(tempfile.mkdtemp(prefix="mutants-"))
    run = Run(arguments)
    try:
        report = run.try_all(scratch)
    except KeyboardInterrupt:
        raise SystemExit(f"\ninterrupted; what was found is in {run.folder}; the next run goes on from there") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(report.table())
    if arguments.json:
        arguments.json.write_text(json.dumps(report.to_json(run.commit, run.commit), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
