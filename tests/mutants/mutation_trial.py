"""One mutant, tried: put to the tests that run it, or to simulated histories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mutation_map import Coverage
from mutation_operators import Change
from mutation_tree import Tree
from mutation_worker import COLD, Answer, Request, base

KILLED, SURVIVED, TIMEOUT, NOT_IMPORTED = "killed", "survived", "timeout", "not imported"
STATUSES: Final = (KILLED, SURVIVED, TIMEOUT, NOT_IMPORTED)
ROUNDS: Final = (10, 50)
"""So many tests in the first requests, the rest in a last one: files that need not be collected take no time."""
ALLOWANCE: Final = 5
"""A mutant may take so many times the processor time that its tests take without it, and `GRACE_S`."""
GRACE_S: Final = 60
HISTORY_S: Final = 4.0
"""Processor time for a history, generously."""


class Verdict(NamedTuple):
    """`by`: the test, or the history, that found it. `tests` counts those that were chosen, `histories` those that were
    played or could not have differed, `cpu_s` all of the processor time, `histories_s` that of histories."""

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
    histories_s: float = 0.0

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]


def module_of(change: Change) -> str:
    return "minikube_py." + change.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def by_tests(tree: Tree, change: Change, coverage: Coverage) -> Verdict:
    """Imported, and put to the tests that run it. In what is loaded already, if nothing of it runs at import."""
    judges = coverage.judges(change)
    verdict = Verdict(
        change.key, change.path, change.line, change.function, change.operator, change.old, change.new, SURVIVED,
        tests=len(judges),
    )  # fmt: skip
    cpu_s = 0.0
    for what, answer in _answers(tree, change, coverage, judges):
        cpu_s += answer.cpu_s
        if answer.outcome not in ("passed", COLD):
            # What cannot be collected is what cannot be imported, from another module than its own.
            status = {"failed": KILLED, "timeout": TIMEOUT, "broken": NOT_IMPORTED}[answer.outcome]
            if what == "import":
                status = NOT_IMPORTED
            return verdict._replace(status=status, by=answer.by, cpu_s=round(cpu_s, 1))
    return verdict._replace(cpu_s=round(cpu_s, 1))


def by_histories(tree: Tree, change: Change, verdict: Verdict, seeds: list[int], until: int) -> Verdict:
    """Of those below `until`, the seeds that can differ."""
    if not seeds:
        return verdict._replace(histories=until)
    with tree.planted(change):
        answer = tree.ask(Request("histories", seeds=seeds, cpu_s=round(GRACE_S + HISTORY_S * len(seeds))))
    # Without a word, as a limit of memory ends it, a history is no less wrong.
    status = {"passed": SURVIVED, "timeout": TIMEOUT}.get(answer.outcome, KILLED)
    return verdict._replace(
        status=status, by=answer.by, histories=until, cpu_s=round(verdict.cpu_s + answer.cpu_s, 1),
        histories_s=round(verdict.histories_s + answer.cpu_s, 1),
    )  # fmt: skip


def _answers(tree: Tree, change: Change, coverage: Coverage, judges: list[str]) -> Iterator[tuple[str, Answer]]:
    if not coverage.at_import(change) and judges:
        cold = False
        for answer in _fit(tree, change, coverage, judges, warm=True):
            cold = answer.outcome == COLD
            yield "tests", answer
        if not cold:
            return
    with tree.planted(change):
        yield "import", tree.ask(Request("import", [module_of(change)], cpu_s=GRACE_S))
    for names in _rounds(judges):
        for answer in _fit(tree, change, coverage, names, warm=False):
            yield "tests", answer


def _fit(tree: Tree, change: Change, coverage: Coverage, names: list[str], warm: bool) -> Iterator[Answer]:
    """One answer, without the tests whose failure says nothing of the mutant."""
    left = names
    while left:
        allowed_s = {name: round(ALLOWANCE * coverage.cost_s[name], 1) for name in left}
        request = Request("tests", left, cpu_s=round(GRACE_S + sum(allowed_s.values())), allowed_s=allowed_s)
        answer = _asked(tree, change, request, warm)
        failed = base(answer.by)
        if answer.outcome == "failed" and failed in left and not _repeats(tree, change, request, failed, warm):
            left = [name for name in left if name != failed]
            continue
        yield answer
        return


def _asked(tree: Tree, change: Change, request: Request, warm: bool) -> Answer:
    if warm:
        return tree.ask_warm(request, change)
    with tree.planted(change):
        return tree.ask(request)


def _repeats(tree: Tree, change: Change, request: Request, name: str, warm: bool) -> bool:
    """Whether a test that failed fails alone, too, with the mutant, and not without. A test on the machine's own clock
    can fail because the machine is busy; that is no kill."""
    alone = request._replace(names=[name])
    if _asked(tree, change, alone, warm).outcome != "failed":
        return False
    # Where the mutant was exchanged in what is loaded, so it must be healthy there.
    return (tree.ask_warm(alone, None) if warm else tree.ask(alone)).outcome == "passed"


def _rounds(names: list[str]) -> Iterator[list[str]]:
    for size in ROUNDS:
        if names[:size]:
            yield names[:size]
        names = names[size:]
    if names:
        yield names
