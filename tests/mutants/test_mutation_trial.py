"""A mutant that tests notice is killed, one that they do not notice is reported, and nothing else counts as either."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mutation_map import HISTORIES, Coverage, _of_other_commits, _sources, importers
from mutation_operators import Change, changes
from mutation_report import Journal, Reasons, Report, Score, reasons, recorded
from mutation_tree import ROOT, Tree, commit_of
from mutation_trial import KILLED, NOT_IMPORTED, SURVIVED, TIMEOUT, Verdict, by_histories, by_tests
from mutation_warm import TEST_ALLOWANCE_S
from mutation_worker import COLD, Request

MODULE = "wal/record.py"
JUDGE = "tests/unit/wal/test_wal_formats.py"
OTHER = "tests/unit/raft/test_raft_quorum.py"
UNFIT = "tests/unit/raft/test_raft_progress.py::test_that_is_not_there"
FLAKY = "tests/unit/wal/test_wal_flaky.py"
ENDLESS = "tests/unit/wal/test_wal_endless.py"
BUSY = "tests/unit/wal/test_wal_busy.py"
TESTS = (JUDGE, OTHER, FLAKY, ENDLESS, BUSY)
ONCE = """
from pathlib import Path
def test_once():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    inside = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=ROOT, capture_output=True)
    if inside.returncode:
        pytest.skip("not a git checkout: mutants are planted in the files of a commit")
    tree = Tree(tmp_path_factory.mktemp("tree"), commit_of())
    (tree.folder / FLAKY).write_text("def test_red():\n    assert False\n")
    (tree.folder / ENDLESS).write_text("def test_endless():\n    while True:\n        pass\n")
    (tree.folder / BUSY).write_text(ONCE)
    tree.warm_up(TESTS)
    yield tree
    tree.close()


def coverage(*names: str, path: str = MODULE) -> Coverage:
    lines = {line: list(names) for line in range(1, 2000)}
    return Coverage(dict.fromkeys(names, 1.0), {path: lines}, {}, set())


def the_change(tree: Tree, operator: str, old: str, path: str = MODULE) -> Change:
    source = (tree.folder / "minikube_py" / path).read_text()
    return next(change for change in changes(path, source) if (change.operator, change.old) == (operator, old))


def of_module(tree: Tree) -> list[Change]:
    return changes(MODULE, (tree.folder / "minikube_py" / MODULE).read_text())


def some_change(tree: Tree) -> Change:
    """A function of the format's that gives nothing back."""
    return next(change for change in of_module(tree) if change.operator == "return")


def test_a_mutant_that_a_test_notices_is_killed_by_that_test(tree: Tree) -> None:
    verdict = by_tests(tree, some_change(tree), coverage(OTHER, JUDGE))
    assert verdict.status == KILLED and verdict.by.startswith(JUDGE)


def test_a_mutant_that_no_test_notices_survives_and_is_reported(tree: Tree) -> None:
    change = some_change(tree)
    verdict = by_tests(tree, change, coverage(OTHER))
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
    verdict = by_tests(tree, broken, coverage(JUDGE))
    assert verdict.status == NOT_IMPORTED
    assert Report([verdict], Reasons({}, {})).score().judged == 0


def test_a_test_that_fails_without_the_mutant_says_nothing(tree: Tree) -> None:
    verdict = by_tests(tree, some_change(tree), coverage(f"{FLAKY}::test_red", OTHER))
    assert verdict.status == SURVIVED


@pytest.mark.parametrize("at_import", [False, True])
def test_a_failure_that_does_not_come_again_kills_nothing(tree: Tree, at_import: bool) -> None:
    """As that of a test which waited too short a time on a busy machine."""
    (tree.folder / "seen").unlink(missing_ok=True)
    constant = (change for change in of_module(tree) if change.operator == "constant" and not change.function)
    verdict = by_tests(tree, next(constant) if at_import else some_change(tree), coverage(f"{BUSY}::test_once", OTHER))
    assert (tree.folder / "seen").exists() and verdict.status == SURVIVED


def test_what_never_ends_is_a_timeout(tree: Tree) -> None:
    name = f"{ENDLESS}::test_endless"
    assert tree.ask(Request("tests", [name], cpu_s=2)).outcome == TIMEOUT
    assert tree.ask_warm(Request("tests", [name], cpu_s=2), None).outcome == TIMEOUT


def test_a_test_has_a_limit_of_its_own(tree: Tree) -> None:
    name = f"{ENDLESS}::test_endless"
    answer = tree.ask_warm(Request("tests", [name], allowed_s={name: 0.5 - TEST_ALLOWANCE_S}), None)
    assert answer.outcome == TIMEOUT and answer.by == name and answer.cpu_s < TEST_ALLOWANCE_S


def test_what_runs_at_import_is_tried_in_a_process_that_imports_it(tree: Tree) -> None:
    number = next(change for change in of_module(tree) if change.operator == "constant" and not change.function)
    assert tree.ask_warm(Request("tests", [JUDGE]), number).outcome == COLD
    assert by_tests(tree, number, coverage(JUDGE)).status == KILLED


def test_a_mutant_in_what_is_loaded_is_gone_with_its_fork(tree: Tree) -> None:
    assert tree.ask_warm(Request("tests", [JUDGE]), some_change(tree)).outcome == "failed"
    assert tree.ask_warm(Request("tests", [JUDGE]), None).outcome == "passed"


def test_histories_judge_what_tests_let_pass(tree: Tree) -> None:
    change = the_change(tree, "return", "indexes[(len(indexes) - 1) // 2] if indexes else NOTHING", "raft/quorum.py")
    lives = by_tests(tree, change, Coverage())
    assert (lives.status, lives.histories) == (SURVIVED, 0)
    verdict = by_histories(tree, change, lives, [0, 1], 30)
    assert (verdict.status, verdict.by, verdict.histories) == (KILLED, "history 0", 30)
    assert by_histories(tree, change, lives, [], 30) == lives._replace(histories=30)


def test_the_cheapest_fit_tests_of_a_line_come_first() -> None:
    of = Coverage({"a": 3.0, "b": 1.0, "c": 2.0, "d": 1000.0}, {MODULE: {7: ["a", "b", "c", "d"], 8: []}}, {}, {"c"})
    change = Change(MODULE, "constant", "f", 7, 8, 0, 1, "1", "2")
    assert of.judges(change) == ["b", "a"]
    of.kills["a"] += 5
    assert of.judges(change) == ["a", "b"]


def test_what_runs_at_import_is_judged_by_whoever_runs_its_module_or_reads_declarations() -> None:
    page = "tests/unit/store/test_store_limits_page.py::test_a"
    of = Coverage(
        {"a": 1.0, "b": 2.0, "c": 3.0, page: 4.0},
        {"raft/node.py": {3: ["a"], 9: ["c"]}, "raft/log.py": {5: ["b"]}},
        imported={"raft/node.py": [9], "raft/message.py": [2]},
        importers={"raft/message.py": ["raft/node.py", "raft/log.py"]},
    )  # fmt: skip
    default = Change("raft/node.py", "constant", "Node.f", 9, 9, 0, 1, "1", "2")
    assert of.judges(default) == ["a", "c", page], "c was the first to import it"
    declared = Change("raft/message.py", "constant", "Kind", 2, 2, 0, 1, "1", "2")
    assert of.judges(declared) == ["a", "b", page]
    assert of.judges(Change("raft/node.py", "constant", "Node.f", 8, 8, 0, 1, "1", "2")) == []


def test_a_map_of_another_commit_holds_while_a_test_and_the_modules_it_ran_are_the_same(tmp_path: Path) -> None:
    source, judge = tmp_path / "tree/minikube_py/raft/log.py", tmp_path / "tree/tests/test_raft_log.py"
    other = tmp_path / "tree/minikube_py/raft/node.py"
    for file in (source, judge, other):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    found = {"lines": {"raft/log.py": {1: ["test"]}, "raft/node.py": {1: []}}}
    sources = _sources(tmp_path / "tree", "tests/test_raft_log.py", found)
    assert set(sources) == {"tests/test_raft_log.py", "minikube_py/raft/log.py"}
    (tmp_path / "a").mkdir()
    entry = {"name": "tests/test_raft_log.py", "found": found, "sources": sources}
    (tmp_path / "a/map.jsonl").write_text(json.dumps(entry) + "\n" + json.dumps({**entry, "sources": {}}) + "\n")

    def known() -> int:
        return len(list(_of_other_commits(tmp_path / "b/map.jsonl", tmp_path / "tree")))

    other.write_text("from minikube_py.raft.log import x\n")
    assert known() == 1 and importers(tmp_path / "tree") == {"raft/log.py": ["raft/node.py"]}
    for file in (source, judge):
        file.write_text("x = 2\n")
        assert known() == 0
        file.write_text("x = 1\n")
    judge.unlink()
    assert known() == 0 and _sources(tmp_path / "tree", HISTORIES, found) == {}


def test_a_journal_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    verdict = Verdict("k1", MODULE, 7, "f", "return", "a", "None", SURVIVED)
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(verdict)
    journal.add(verdict._replace(key="k2", status=KILLED))
    journal.add(verdict._replace(status=KILLED, by="a later test"))
    read = Journal(tmp_path / "journal.jsonl").verdicts
    assert [(key, each.status) for key, each in read.items()] == [("k1", KILLED), ("k2", KILLED)]


def test_a_draw_goes_on_from_its_report(tmp_path: Path) -> None:
    drawn = [Change(MODULE, "constant", "f", line, line, line, line + 1, str(line), "0") for line in range(1, 6)]

    def verdict(change: Change, **outcome: Any) -> Verdict:
        return Verdict(change.key, change.path, change.line, change.function, change.operator, change.old, change.new,
                       **outcome)  # fmt: skip

    known = [
        verdict(drawn[0], status=SURVIVED, tests=3, histories=30, cpu_s=2.5, histories_s=1.5),
        verdict(drawn[2], status=KILLED, by="a test"),
        verdict(drawn[4], status=TIMEOUT),
    ]
    file, written = tmp_path / "report.json", Report(known, Reasons({}, {})).to_json("c1", "c1")
    file.write_text(json.dumps(written))
    assert recorded(file, "c1", drawn) == known
    assert recorded(file, "c1", drawn[:3]) == known[:2], "a shorter draw"
    with pytest.raises(SystemExit, match="is of commit c1, not of c2"):
        recorded(file, "c2", drawn)
    del written["verdicts"][drawn[0].key]
    file.write_text(json.dumps(written))
    with pytest.raises(SystemExit, match="counts 3 mutants and has verdicts of 2"):
        recorded(file, "c1", drawn)


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
