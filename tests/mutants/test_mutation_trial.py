"""A mutant that tests notice is killed, one that they do not notice is reported, and nothing else counts as either."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutation_map import Coverage
from mutation_operators import Change, changes
from mutation_report import Journal, Reasons, Report, Score, reasons
from mutation_tree import ROOT, Tree, commit_of
from mutation_trial import KILLED, NOT_IMPORTED, SURVIVED, TIMEOUT, Effort, Verdict, trial
from mutation_worker import Request

MODULE = "wal/record.py"
JUDGE = "tests/unit/wal/test_wal_formats.py"
OTHER = "tests/unit/raft/test_raft_quorum.py"
UNFIT = "tests/unit/raft/test_raft_progress.py::test_that_is_not_there"
NO_HISTORIES = Effort(0, 0)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    inside = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=ROOT, capture_output=True)
    if inside.returncode:
        pytest.skip("not a git checkout: mutants are planted in the files of a commit")
    tree = Tree(tmp_path_factory.mktemp("tree"), commit_of())
    yield tree
    tree.close()


def coverage(*names: str, path: str = MODULE) -> Coverage:
    lines = {line: list(names) for line in range(1, 2000)}
    return Coverage(dict.fromkeys(names, 1.0), {path: lines}, {}, set())


def the_change(tree: Tree, operator: str, old: str, path: str = MODULE) -> Change:
    source = (tree.folder / "minikube_py" / path).read_text()
    return next(change for change in changes(path, source) if (change.operator, change.old) == (operator, old))


def some_change(tree: Tree) -> Change:
    """A function of the format's that gives nothing back."""
    source = (tree.folder / "minikube_py" / MODULE).read_text()
    return next(change for change in changes(MODULE, source) if change.operator == "return")


def test_a_mutant_that_a_test_notices_is_killed_by_that_test(tree: Tree) -> None:
    verdict = trial(tree, some_change(tree), coverage(OTHER, JUDGE), NO_HISTORIES)
    assert verdict.status == KILLED and verdict.by.startswith(JUDGE)


def test_a_mutant_that_no_test_notices_survives_and_is_reported(tree: Tree) -> None:
    change = some_change(tree)
    verdict = trial(tree, change, coverage(OTHER), NO_HISTORIES)
    assert verdict.status == SURVIVED and verdict.tests == 1
    report = Report([verdict], Reasons({}, {}))
    assert f"survivor {change.key}: {MODULE}:{change.line}" in report.table()
    assert report.score() == Score(0, 1)
    excused = Report([verdict], Reasons({change.key: "nobody reads it"}, {}))
    assert excused.score() == Score(0, 0) and "survivor" not in excused.table()


def test_the_tree_is_healthy_after_a_trial(tree: Tree) -> None:
    file = tree.folder / "minikube_py" / MODULE
    before = file.read_bytes()
    with tree.planted(some_change(tree)):
        assert file.read_bytes() != before
    assert file.read_bytes() == before == (ROOT / "minikube_py" / MODULE).read_bytes() or _dirty()


def _dirty() -> bool:
    return bool(subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout)


def test_what_cannot_be_imported_counts_as_neither(tree: Tree) -> None:
    source = (tree.folder / "minikube_py" / MODULE).read_bytes()
    at = source.index(b"\nfrom ") + 1
    broken = Change(MODULE, "deletion", "", 1, 1, at, at, "", "raise RuntimeError\n")
    verdict = trial(tree, broken, coverage(JUDGE), NO_HISTORIES)
    assert verdict.status == NOT_IMPORTED
    assert Report([verdict], Reasons({}, {})).score().judged == 0


def test_a_test_that_fails_without_the_mutant_says_nothing(tree: Tree) -> None:
    flaky = tree.folder / "tests" / "unit" / "wal" / "test_wal_flaky.py"
    flaky.write_text("def test_red():\n    assert False\n")
    name = "tests/unit/wal/test_wal_flaky.py::test_red"
    verdict = trial(tree, some_change(tree), coverage(name, OTHER), NO_HISTORIES)
    assert verdict.status == SURVIVED


def test_what_never_ends_is_a_timeout(tree: Tree) -> None:
    endless = tree.folder / "tests" / "unit" / "wal" / "test_wal_endless.py"
    endless.write_text("def test_endless():\n    while True:\n        pass\n")
    name = "tests/unit/wal/test_wal_endless.py"
    assert tree.ask(Request("tests", [name], cpu_s=2)).outcome == TIMEOUT


def test_histories_judge_what_tests_let_pass(tree: Tree) -> None:
    change = the_change(tree, "return", "indexes[(len(indexes) - 1) // 2] if indexes else NOTHING", "raft/quorum.py")
    unseen = Coverage(histories={"raft/quorum.py": list(range(1, 100))})
    verdict = trial(tree, change, unseen, Effort(2, 0))
    assert verdict.status == KILLED and verdict.by == "histories 0 to 1"


def test_the_cheapest_fit_tests_of_a_line_come_first() -> None:
    of = Coverage({"a": 3.0, "b": 1.0, "c": 2.0, "d": 1000.0}, {MODULE: {7: ["a", "b", "c", "d"], 8: []}}, {}, {"c"})
    change = Change(MODULE, "constant", "f", 7, 8, 0, 1, "1", "2")
    assert of.judges(change) == ["b", "a"]


def test_a_journal_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    verdict = Verdict("k1", MODULE, 7, "f", "return", "a", "None", SURVIVED)
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(verdict)
    journal.add(verdict._replace(key="k2", status=KILLED))
    journal.add(verdict._replace(status=KILLED, by="a later test"))
    read = Journal(tmp_path / "journal.jsonl").verdicts
    assert [(key, each.status) for key, each in read.items()] == [("k1", KILLED), ("k2", KILLED)]


def test_a_score_knows_how_sure_it_is() -> None:
    assert Score(85, 100).share == 0.85
    low, high = Score(85, 100).interval()
    assert 0.76 < low < 0.78 and 0.90 < high < 0.91
    assert Score(0, 0).interval() == (0.0, 1.0)


def test_every_excuse_has_its_reason() -> None:
    known = reasons()
    for key, reason in {**known.equivalent, **known.survivor}.items():
        assert len(key) == 10 and len(reason) > 20, key
    assert not known.equivalent.keys() & known.survivor.keys()
