"""One mutant, tried: imported, put to the tests that run it, then to simulated histories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mutation_map import Coverage
from mutation_operators import Change
from mutation_tree import Tree
from mutation_worker import Answer, Request, base

KILLED, SURVIVED, TIMEOUT, NOT_IMPORTED = "killed", "survived", "timeout", "not imported"
STATUSES: Final = (KILLED, SURVIVED, TIMEOUT, NOT_IMPORTED)
ROUNDS: Final = (10, 50)
"""So many tests in the first requests, the rest in a last one: files that need not be collected take no time."""
ALLOWANCE: Final = 5
"""A mutant may take so many times the processor time that its tests take without it, and `GRACE_S`."""
GRACE_S: Final = 60
HISTORY_S: Final = 4.0
"""Processor time for a history, generously."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How many histories each mutant gets that tests do not kill, and how many more each that those do not kill."""

    histories: int = 30
    more_histories: int = 270


class Verdict(NamedTuple):
    """`by`: the test, or the histories, that found it. `tests` counts those that were chosen."""

    key: str
    path: str
    line: int
    function: str
    operator: str
    old: str
    new: str
    status: str
    by: str = ""
    tests: int = 0
    histories: int = 0
    cpu_s: float = 0.0

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]


def module_of(change: Change) -> str:
    return "minikube_py." + change.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def trial(tree: Tree, change: Change, coverage: Coverage, effort: Effort) -> Verdict:
    judges = coverage.judges(change)
    histories = effort if coverage.in_histories(change) else Effort(0, 0)
    verdict = Verdict(
        change.key, change.path, change.line, change.function, change.operator, change.old, change.new, SURVIVED,
        tests=len(judges),
    )  # fmt: skip
    cpu_s = 0.0
    for what, answer in _answers(tree, change, coverage, judges, histories):
        cpu_s += answer.cpu_s
        if what == "histories":
            verdict = verdict._replace(histories=histories.histories + histories.more_histories)
        if answer.outcome != "passed":
            # What cannot be collected is what cannot be imported, from another module than its own.
            status = {"failed": KILLED, "timeout": TIMEOUT, "broken": NOT_IMPORTED}[answer.outcome]
            if what == "import":
                status = NOT_IMPORTED
            return verdict._replace(status=status, by=answer.by, cpu_s=round(cpu_s, 1))
    return verdict._replace(cpu_s=round(cpu_s, 1))


def _answers(
    tree: Tree, change: Change, coverage: Coverage, judges: list[str], effort: Effort
) -> Iterator[tuple[str, Answer]]:
    """One answer after the other, dear ones last. A test that fails without the mutant, too, says nothing."""
    with tree.planted(change):
        yield "import", tree.ask(Request("import", [module_of(change)], cpu_s=GRACE_S))
    for names in _rounds(judges):
        left = names
        while left:
            cost_s = sum(coverage.cost_s[name] for name in left)
            request = Request("tests", left, cpu_s=round(GRACE_S + ALLOWANCE * cost_s))
            with tree.planted(change):
                answer = tree.ask(request)
            failed = base(answer.by)
            if answer.outcome == "failed" and failed in left:
                healthy = tree.ask(request._replace(names=[failed]))
                if healthy.outcome != "passed":
                    left = [name for name in left if name != failed]
                    continue
            yield "tests", answer
            break
    for first, count in ((0, effort.histories), (effort.histories, effort.more_histories)):
        if count:
            with tree.planted(change):
                request = Request("histories", first=first, count=count, cpu_s=round(GRACE_S + HISTORY_S * count))
                yield "histories", tree.ask(request)


def _rounds(names: list[str]) -> Iterator[list[str]]:
    for size in ROUNDS:
        if names[:size]:
            yield names[:size]
        names = names[size:]
    if names:
        yield names
