"""A study of few small units from design to report; what is resumed, what is refused, and that wrong answers show."""

import contextlib
import csv
import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from needs import require_numba

from minikube_py.cli.main import main
from minikube_py.index.catalogue import build
from minikube_py.index.structure import Box, Found
from minikube_py.lab.environment import Environment
from minikube_py.lab.study import audit, runner, running, study_report
from minikube_py.lab.study.design import Design, StudyError, Unit, parse
from minikube_py.lab.study.experiment import Absent
from minikube_py.lab.study.journal import NAME, Journal, digest, of_study, sealed
from minikube_py.lab.study.registration import Registration
from minikube_py.lab.study.running import StudyOptions, bench_rates
from minikube_py.studies.bloom import candidates, compiled, matching
from minikube_py.studies.bloom.candidates import Candidate, candidate, fitted, joint_buckets, shards_of
from minikube_py.studies.bloom.predictions import Evidence, judge
from minikube_py.studies.bloom.probes import tables
from minikube_py.studies.bloom.study import WITHIN_UNIT, Bloom
from minikube_py.studies.bloom.workload import Cluster, boxes
from minikube_py.studies.bloom.workload import matching as right_slots

RAW: dict[str, Any] = dict(Bloom().load("quick").raw)
SMALL = {
    "grid": {"n": [300], "shards": [16], "utilisation": [0.9]},
    "ranges": {"n": [300], "d": [1], "universe": [4096], "length": [32], "shards": [16]},
    "churn": {"n": [300], "changed_share": [0, 0.1]},
    "history": {"n": [300], "window_share": [0.5], "old_share": [0, 0.5]},
    "stream": {"n": [300], "updates": [1, 10]},
    "rates": {"keys": [500], "bits_per_key": [16], "length": [32], "queries": ["correlated"]},
}


def small(**changes: Any) -> Design:
    raw = orjson.loads(orjson.dumps(RAW))
    raw["blocks"] = {name: {**raw["blocks"][name], "quick": levels} for name, levels in SMALL.items()}
    raw["queries_per_batch"]["quick"], raw["updates_per_batch"]["quick"] = 3, 8
    raw["filters"] = ["grafite"]
    raw["blocks"]["rates"]["filters"] = ["grafite"]
    raw["blocks"]["churn"]["candidates"] = ["columns", "kd-tree", "max-vector"]
    raw["resamples"] = 100
    raw["seeds"]["quick"] = 1
    return replace(parse(orjson.dumps({**raw, **changes}), "quick", "small.json"), within=WITHIN_UNIT)


def in_this_process(tasks: Sequence[runner.Task]) -> runner.Results:
    return map(runner.run_unit, tasks)


ENVIRONMENT = Environment("0", "", "3", "here", 1, "none", 0.0, "alone")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Design, Journal, Path]]:
    folder = tmp_path_factory.mktemp("study")
    design = small()
    journal = of_study(folder / NAME, design, resume=False)
    told: list[str] = []
    failed = runner.run(
        "bloom", design, journal, runner.todo(design, journal), in_this_process, lambda _, note: told.append(note)
    )
    assert failed == []
    assert told[-1] == "0 s left"
    yield design, journal, folder
    journal.close()


def test_every_unit_has_finished_and_no_candidate_was_wrong(ran: tuple[Design, Journal, Path]) -> None:
    design, journal, _ = ran
    assert set(journal.records) == {unit.key for unit in design.units()}
    assert runner.todo(design, journal) == []
    for record in journal.records.values():
        assert all(each["wrong"] == 0 for each in record["candidates"].values()), record["key"]
        assert record["absent"] == {}, record["key"]


def test_the_front_that_opens_least_is_the_oracle(ran: tuple[Design, Journal, Path]) -> None:
    _, journal, _ = ran
    (record,) = [each for each in journal.records.values() if each["block"] == "grid"]
    opened = {
        name: sum(each["limits"]["0"]["opened"])
        for name, each in record["candidates"].items()
        if each["kind"] == "front"
    }
    assert opened["oracle"] == min(opened.values())
    assert opened["always"] == max(opened.values()) == 8 * 16
    whole = record["candidates"]["columns"]["limits"]["0"]["opened"]
    assert sum(whole) == pytest.approx(opened["oracle"])


def test_the_report_is_written_in_all_its_forms(ran: tuple[Design, Journal, Path]) -> None:
    design, journal, folder = ran
    registration = Registration("c0ffee" * 6, "2026-01-01")
    records = list(journal.records.values())
    files = study_report.write(Bloom(), design, registration, ENVIRONMENT, records, folder, {"one": [5.0, 6.0]}).files
    text = (folder / "bloom-report.md").read_text()
    assert "c0ffeec0ffee" in text
    assert "6 of 6 units (100 %)" in text
    assert "WRONG" not in text
    document = json.loads((folder / "bloom-report.json").read_text())
    assert {each["name"] for each in document["findings"]} == {f"P{number}" for number in range(1, 13)}
    rows = list(csv.DictReader((folder / "bloom-report.csv").read_text().splitlines()))
    assert {row["candidate"] for row in rows} >= {"columns", "max-vector", "oracle"}
    assert all(float(row["query_us"]) > 0 for row in rows)
    page = (folder / "bloom-report.html").read_text()
    assert "**C_behind**" in text and "<b>C_behind</b>" in page
    for path in files:
        assert path.stat().st_size > 0
        if path.suffix == ".png":
            assert path.name in text and path.name in page
    for table in document["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"]), table["title"]


def test_a_report_names_the_machine_that_ran_not_the_one_that_writes(
    ran: tuple[Design, Journal, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, journal, _ = ran
    there = {**ENVIRONMENT.as_dict(), "machine": "far away", "commit": "c0ffee"}
    about = {"registration": asdict(Registration("abc", "2026-01-01")), "environment": there}
    with contextlib.closing(of_study(tmp_path / NAME, design, resume=False, about=about)) as copy:
        for record in journal.records.values():
            copy.add(record)
    later = Registration("later", "2026-02-02")
    monkeypatch.setattr(running, "load", lambda study, mode, unregistered: (design, later))
    assert running.run_study(StudyOptions("bloom", "quick", tmp_path, 1, report_only=True), lambda *_: None) == 0
    text = (tmp_path / "bloom-report.md").read_text()
    assert "commit c0ffee; Python 3; far away, 1 CPUs" in text
    assert "commit abc" in text and "later" not in text


def test_what_nothing_vouches_for_says_so(ran: tuple[Design, Journal, Path]) -> None:
    design, journal, _ = ran
    nothing = Registration("", "", "not a checkout")
    warnings = audit.warnings_of(Bloom(), design, nothing, list(journal.records.values()))
    assert "UNREGISTERED: not a checkout" in warnings[0]


def test_what_went_wrong_stands_above_the_figures() -> None:
    records = [
        {
            "key": "a",
            "candidates": {"zones": {"wrong": 2}, "bloom": {"wrong": 0, "cut": True}},
            "absent": {"x": "x: no"},
        },
        {"key": "b", "failed": "Traceback\nValueError: gone\n"},
    ]
    text = "\n".join(audit.warnings_of(Bloom(), small(), Registration("c", "t"), records))
    for part in (
        "WRONG ANSWERS, and therefore left out: zones",
        "bloom (1 units)",
        "x (in 1 units)",
        "ValueError: gone",
    ):
        assert part in text
    assert "5 units have not finished" in text


def test_predictions_without_evidence_are_not_judged() -> None:
    findings = judge(Evidence(small(), []))
    assert {each.outcome for each in findings} == {"not tested"}


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    design = small()
    units = list(design.units())
    path = tmp_path / NAME
    journal = of_study(path, design, resume=False)
    for unit in units[:2]:
        journal.add({"key": unit.key, "block": unit.block, "seed": unit.seed, "candidates": {}})
    journal.close()
    whole = path.read_bytes()
    # A kill tears the last line.
    path.write_bytes(whole[:-20])
    again = of_study(path, design, resume=True)
    assert again.torn == 1
    assert runner.todo(design, again) == units[1:]
    again.add(orjson.loads(whole.splitlines()[2]))
    again.close()
    third = of_study(path, design, resume=True)
    assert runner.todo(design, third) == units[2:]
    third.close()


@pytest.mark.parametrize("at", [40, -40])
def test_a_changed_byte_is_noticed_and_its_unit_runs_again(at: int, tmp_path: Path) -> None:
    design, path = small(), tmp_path / NAME
    units = list(design.units())
    with contextlib.closing(of_study(path, design, resume=False)) as journal:
        for unit in units[:2]:
            journal.add({"key": unit.key, "block": unit.block, "seed": unit.seed, "candidates": {}, "took_s": 12345.25})
    header, first, second = path.read_bytes().splitlines()
    changed = first.replace(b"12345.25", b"12345.26") if at < 0 else first.replace(b'"key"', b'"kee"')
    path.write_bytes(b"\n".join((header, changed, second)) + b"\n")
    with contextlib.closing(of_study(path, design, resume=True)) as again:
        assert again.torn == 1 and list(again.records) == [units[1].key]
        assert "sum" not in again.records[units[1].key]


def test_a_journal_from_before_checksums_is_read_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    design, path = small(), tmp_path / NAME
    about = {"registration": asdict(Registration("abc", "2026-01-01")), "environment": ENVIRONMENT.as_dict()}
    header = {"study": "bloom", "mode": "quick", "design": digest(design), "about": about}
    unit = next(design.units())
    old = {"key": unit.key, "block": unit.block, "levels": dict(unit.levels), "seed": unit.seed, "failed": "x"}
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in (header, old)))
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        assert not journal.summed and list(journal.records) == [unit.key]
        journal.add({**old, "key": "more"})
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        assert list(journal.records) == [unit.key, "more"] and journal.torn == 0
    monkeypatch.setattr(running, "load", lambda *_: (design, Registration("", "", "not a checkout")))
    running.run_study(StudyOptions("bloom", "quick", tmp_path, 1, report_only=True), lambda *_: None)
    assert "is of a version without checksums" in capsys.readouterr().out


def test_a_journal_is_neither_lost_nor_mixed(tmp_path: Path) -> None:
    design, path = small(), tmp_path / NAME
    with pytest.raises(StudyError, match="nothing to resume"):
        of_study(path, design, resume=True)
    of_study(path, design, resume=False).close()
    with pytest.raises(StudyError, match="give --resume, or another folder"):
        of_study(path, design, resume=False)
    with pytest.raises(StudyError, match="of another design or mode"):
        of_study(path, small(margin=0.1), resume=True)


def test_a_journal_is_added_to_by_one_run_and_read_by_others(tmp_path: Path) -> None:
    design, path = small(), tmp_path / NAME
    with contextlib.closing(of_study(path, design, resume=False)):
        with pytest.raises(StudyError, match=r"another run adds to .*cells\.jsonl; wait for its end, or name another"):
            of_study(path, design, resume=True)
        of_study(path, design, resume=True, alone=False).close()
    of_study(path, design, resume=True).close()


def unit_line(key: str) -> dict[str, Any]:
    return {"key": key, "block": "b", "seed": 1, "levels": {}, "candidates": {}, "took_s": 1.0}


def test_a_journal_is_read_once_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design, path = small(), tmp_path / NAME
    first, lock = of_study(path, design, resume=False), Journal._lock
    first.add(unit_line("a"))

    def ends_before(self: Journal) -> None:
        first.add(unit_line("b"))
        first.close()
        lock(self)

    monkeypatch.setattr(Journal, "_lock", ends_before)
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        assert list(journal.records) == ["a", "b"], "what is not known would be measured again"


@pytest.mark.parametrize("alone", [True, False], ids=["a second run", "a report"])
def test_a_line_that_another_run_writes_is_left_whole(alone: bool, tmp_path: Path) -> None:
    design, path = small(), tmp_path / NAME
    with contextlib.closing(of_study(path, design, resume=False)) as first:
        whole = sealed(unit_line("a"))
        first._file.write(whole[:9])
        first._file.flush()
        with pytest.raises(StudyError, match="another run") if alone else contextlib.nullcontext():
            of_study(path, design, resume=True, alone=alone).close()
        first._file.write(whole[9:] + b"\n")
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        assert list(journal.records) == ["a"] and journal.torn == 0


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_without_locks_has_journals_all_the_same(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(file: Any, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("minikube_py.lab.study.journal.fcntl.flock", refused)
    design, path = small(), tmp_path / NAME
    with contextlib.closing(of_study(path, design, resume=False)) as journal:
        journal.add(unit_line("a"))
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        assert list(journal.records) == ["a"]
        assert journal.notes() == [f"note: {path} cannot be locked ({os.strerror(code)}): let no second run add to it"]
    code = errno.EIO
    with pytest.raises(StudyError, match=f"cannot use .*: {os.strerror(code)}; name another folder"):
        of_study(path, design, resume=True)


def test_of_a_unit_that_is_measured_twice_the_first_counts_and_it_is_said(tmp_path: Path) -> None:
    design, path = small(), tmp_path / NAME
    unit = next(design.units())
    line = {"key": unit.key, "block": unit.block, "seed": unit.seed, "levels": dict(unit.levels), "candidates": {}}
    with contextlib.closing(of_study(path, design, resume=False)) as journal:
        for took_s in (9.0, 1.0, 5.0):
            journal.add({**line, "took_s": took_s})
    with contextlib.closing(of_study(path, design, resume=True)) as journal:
        (record,) = journal.records.values()
    assert record["took_s"] == 9.0
    told = "\n".join(audit.warnings_of(Bloom(), design, Registration("abc", "2026-01-01"), [record]))
    assert "MEASURED TWICE: 1 units are in the journal more than once; the first of each counts." in told


def test_a_journal_keeps_the_commit_its_run_began_under(tmp_path: Path) -> None:
    path = tmp_path / NAME
    of_study(path, small(), resume=False, about={"commit": "first"}).close()
    again = of_study(path, small(), resume=True, about={"commit": "later"})
    assert again.about == {"commit": "first"}
    again.close()


def test_a_unit_that_raises_is_told_and_tried_again(tmp_path: Path) -> None:
    design = small(drift="no number")
    journal = of_study(tmp_path / NAME, design, resume=False)
    units = [unit for unit in design.units() if unit.block == "grid"]
    failed = runner.run("bloom", design, journal, units, in_this_process, lambda *_: None)
    assert [record["key"] for record in failed] == [units[0].key]
    assert "ValueError" in failed[0]["failed"]
    assert units[0] in runner.todo(design, journal)
    journal.close()


def test_blocks_run_alone_and_the_others_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = small()
    monkeypatch.setattr(running, "load", lambda *_: (design, Registration("", "", "not a checkout")))

    def blocks_after(*blocks: str) -> set[str]:
        options = StudyOptions("bloom", "quick", tmp_path, 1, resume=(tmp_path / NAME).exists(), blocks=blocks)
        assert running.run_study(options, lambda *_: None) == 0
        with contextlib.closing(of_study(tmp_path / NAME, design, resume=True)) as journal:
            return {record["block"] for record in journal.records.values()}

    assert blocks_after("grid") == {"grid"}
    assert blocks_after("grid", "ranges") == {"grid", "ranges"}
    with pytest.raises(StudyError, match="mode quick has no block 'gird'; its blocks are: grid, ranges"):
        running.run_study(StudyOptions("bloom", "quick", tmp_path / "elsewhere", 1, blocks=("gird",)), lambda *_: None)
    assert not (tmp_path / "elsewhere").exists()


class Forgetful:
    """Columns that now and then lose the last slot of an answer."""

    structure = "forgetful"

    def __init__(self, dimensions: int) -> None:
        self.inner = build("columns", dimensions, {})
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, slot: int, point: tuple[int, ...]) -> None:
        self.inner.put(slot, point)

    def find(self, box: Box, limit: int = 0) -> Found:
        self.asked += 1
        found = self.inner.find(box, limit)
        return found._replace(slots=found.slots[:-1]) if self.asked % 7 == 0 else found


def test_one_that_loses_a_slot_is_called_wrong() -> None:
    design = small()
    unit = next(unit for unit in design.units() if unit.block == "grid")
    plan = matching.script(design, unit)
    report = matching.run(Candidate("forgetful", "whole", Forgetful(3)), plan)
    assert report["wrong"] > 0
    assert matching.run(candidate("columns", design, dict(unit.levels)), plan)["wrong"] == 0


def test_a_candidate_that_is_not_there_is_absent_and_none_takes_its_place() -> None:
    with pytest.raises(Absent, match="no-such-filter"):
        candidate("no-such-filter", small(), {**RAW["defaults"], "n": 100})


@pytest.mark.parametrize(
    ("dimensions", "bits", "buckets"),
    [
        pytest.param(3, 8**3, 8, id="exactly a cube"),
        pytest.param(3, 8**3 - 1, 7, id="a bit less"),
        pytest.param(3, 10**6, 16, id="no more than 16"),
        pytest.param(3, 1, 2, id="no fewer than 2"),
        pytest.param(1, 468, 468, id="one resource: a bit for each step"),
    ],
)
def test_a_joint_bitset_takes_no_more_bits(dimensions: int, bits: int, buckets: int) -> None:
    assert joint_buckets(small(), dimensions, bits) == buckets


def test_filters_are_told_the_longest_range() -> None:
    assert fitted("rosetta", 32) == {"max_length": 32}
    assert fitted("prefix-bloom", 1) == {"shift": 0}
    assert fitted("memento", 4096) == {"memento_bits": 6}
    assert fitted("grafite", 32) == {}


def test_shards_of_slots() -> None:
    assert shards_of(np.array([0, 16, 32, 1]), 16) == 2
    assert shards_of(np.array([], dtype=np.int64), 16) == 0


def in_machine_code() -> compiled.Probes:
    require_numba()
    way = compiled.compiled()
    assert way is not None
    return way


WAYS = {"python": lambda: compiled.PYTHON, "numpy": lambda: compiled.NUMPY, "numba": in_machine_code}


@pytest.mark.parametrize("name", WAYS)
def test_the_three_ways_find_the_same(name: str) -> None:
    way = WAYS[name]()
    design = small()
    cluster = Cluster(design, {**RAW["defaults"], "n": 200, "shards": 16, "utilisation": 0.9}, 1)
    table = tables(design, cluster, 12, np.random.default_rng(3))
    for lows, box in zip((drawn := cluster.requests(12)), boxes(drawn)):
        wanted = np.maximum(np.array(lows, dtype=np.int64), 0)
        right = right_slots(cluster.points, box)
        assert way.first_fit(table.points, wanted) == (right[0] if len(right) else -1)
        if way.tree_first is not None:
            assert way.tree_first(table.tree, table.leaves, wanted) == (right[0] if len(right) else -1)
        steps = np.minimum(wanted, table.capacity) // table.width
        plain = way.max_vector(table.highs, wanted)
        holding = shards_of(right, 16)
        assert holding <= way.joint(table.cells, steps, table.masks, table.highs, wanted) <= plain
        assert holding <= way.bloom(table.bits, table.places, wanted, table.capacity)
        assert plain == sum((cluster.points[shard::16].max(axis=0) >= wanted).all() for shard in range(16))


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "study", "other"]) == 2
    assert "there is no study 'other': there are bloom" in capsys.readouterr().err
    assert main(["lab", "study", "bloom", "--quick", "--out", str(tmp_path), "--report", "--bench", "/no"]) == 2
    assert "argument --bench: /no" in capsys.readouterr().err


def test_pods_a_second_are_found_in_what_a_bench_wrote(tmp_path: Path) -> None:
    density, schedule, empty = tmp_path / "density.json", tmp_path / "schedule.json", tmp_path / "empty.json"
    density.write_text(json.dumps({"saturation": {"pods_per_s": 900.5}, "latency": {"pods_per_s": 5}}))
    options = {"nodes": 1000, "pods": 1500, "matcher": "kd-tree", "sampling": "all", "members": 3, "utilisation": 0.97}
    schedule.write_text(json.dumps({"outcomes": [{"options": options, "pods_per_s": 3}] * 2}))
    name = "kd-tree, 1,000 nodes, 1,500 pods, all scored, 3 store members, 0.97 full"
    expected = {"saturation": [900.5], "latency": [5.0], name: [3.0, 3.0]}
    assert bench_rates([density, schedule]) == expected
    assert bench_rates([]) == {}
    empty.write_text("{}")
    with pytest.raises(StudyError, match="names no pods_per_s"):
        bench_rates([empty])


def test_options_are_data() -> None:
    assert StudyOptions("bloom", "quick", Path("x"), 2).limit_s is None
    assert isinstance(next(small().units()), Unit)
    assert candidates.NO_BITS[0] == "always"
