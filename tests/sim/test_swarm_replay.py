"""A replay is the same to the byte, in this process and in others; a failing history shrinks to what matters."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from minikube_py.sim import replay, swarm
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.fault_schedule import named_schedule
from minikube_py.sim.histories import NAMES, histories
from minikube_py.sim.journal import Done, Journal, code_hash
from minikube_py.sim.run import Outcome, drawn_faults, drawn_options, run_seed
from minikube_py.sim.swarm import Report

SEEDS = (3, 14, 92)


def replayed(*arguments: str) -> str:
    out = io.StringIO()
    replay.main(arguments, out)
    return out.getvalue()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_is_the_same_to_the_byte(seed):
    first = replayed(str(seed))
    assert first == replayed(str(seed))
    assert len(first.splitlines()) > 1000 and "leads term" in first


def test_and_in_other_processes():
    wanted = replayed(str(SEEDS[0]))
    for hash_seed in ("0", "random"):
        command = [sys.executable, "-m", "minikube_py.sim.replay", str(SEEDS[0])]
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"}
        told = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout.decode()
        assert told == wanted


def test_a_history_does_not_depend_on_who_listens():
    quiet, told = run_seed(SEEDS[1]), run_seed(SEEDS[1], lambda line: None)
    assert quiet.counts == told.counts and quiet.verdicts == told.verdicts


def test_until_tells_no_more(tmp_path):
    told = replayed(str(SEEDS[0]), "--until", "1.5")
    stamps = [line.partition(" ")[0] for line in told.splitlines()]
    times = [float(stamp) for stamp in stamps if re.fullmatch(r"\d+\.\d{9}", stamp)]
    assert times and max(times) <= 1.5
    assert "transactions   ok" in told, "it is judged as a whole all the same"


def test_the_seeds_differ_in_what_they_try():
    options = [drawn_options(seed) for seed in range(200)]
    assert {each.plan.members for each in options} == {1, 3, 5}
    assert len({each.world for each in options}) > 150 and len({each.plan.kinds for each in options}) > 80


def test_shrinking_keeps_what_is_needed():
    options = next(options for options in map(drawn_options, range(100)) if len(drawn_faults(options)) > 8)
    names = list(named_schedule(options.seed, options.plan))
    needed = {names[2], names[5]}

    def wrong(candidate):
        return not needed & candidate.without and candidate.operations >= 30

    smallest = replay.shrunk(options, wrong)
    assert smallest.without == frozenset(names) - needed
    assert 30 <= smallest.operations < 60
    words = replay.command(smallest).split()
    parsed = replay._parser().parse_args(words[3:])
    assert replace(options, operations=parsed.operations, without=frozenset(parsed.without)) == smallest


def test_a_violation_is_known_by_its_wording_without_what_was_drawn():
    def kinds(text):
        return replay.kinds_of(Outcome(1, {"transactions": Verdict("violation", text)}))

    one = kinds("revision 7: b'a' has lease 3, which was not requested\n  of client 1")
    assert one == kinds("revision 12: b'key/1' has lease 4, which was not requested\n  of client 2")
    assert one != kinds("revision 7: b'a' has lease 3, which had ended")


def test_faults_are_left_out_by_name():
    options = drawn_options(SEEDS[0])
    first, *_, last = named_schedule(options.seed, options.plan)
    told = replayed(str(SEEDS[0]), "--without", f"{first},{last}")
    assert [line.split()[0] for line in told.splitlines() if line.endswith("(left out)")] == [first, last]
    with pytest.raises(SystemExit, match=r"seed 3 has no fault 2, nothing\.0"):
        replayed(str(SEEDS[0]), "--without", f"{first},nothing.0,2")


def test_nothing_to_shrink_is_said():
    assert "does not fail" in replayed(str(SEEDS[0]), "--shrink")


def test_a_failing_seed_comes_with_the_command_that_replays_it():
    done = Done(17, {"transactions": "a stale read\n  of something"}, {}, Counter())
    assert swarm.told(done).splitlines() == [
        "seed 17: VIOLATION",
        "  transactions: a stale read",
        "  python -m minikube_py.sim.replay 17",
    ]
    report = Report(range(20), 1)
    report.add(done)
    report.add(Done(18, {}, {"registers": "too much"}, Counter(operations=200)))
    report.add(Done(19, {}, {}, Counter({"operations": 300, "fault crash": 2, "faults": 2}), "ValueError: odd"))
    plain = report.to_json()
    assert [each["seed"] for each in plain["violations"]] == [17, 19] and plain["undecided"] == [18]
    assert plain["counts"]["operations"] == 500
    assert "crash" in report.table() and "1 (33.33%)" in report.table()


def test_the_swarm_runs_on_several_processes(tmp_path, capsys):
    file = tmp_path / "swarm.json"
    assert swarm.main(["--seeds", "6", "--from", "40", "--jobs", "2", "--json", str(file)]) == 0
    told = capsys.readouterr().out
    assert "6/6" in told and "histories   6" in told
    assert '"histories": 6' in file.read_text()


def test_an_interrupted_swarm_goes_on_where_it_was(tmp_path, monkeypatch):
    asked = []

    def run_block(seeds, of):
        asked.extend(seeds)
        return [Done(seed, {}, {}, Counter(operations=200 + seed), cpu_s=0.5) for seed in seeds]

    monkeypatch.setattr(swarm, "run_block", run_block)
    swarm.swarm(range(10), 1, io.StringIO(), tmp_path)
    journal = Journal(tmp_path, "store")
    journal.path.write_bytes(journal.path.read_bytes()[:-7])
    report = swarm.swarm(range(20), 1, io.StringIO(), tmp_path)
    assert asked == [*range(10), 9, *range(10, 20)], "the last line was torn"
    assert report.histories == 20 and report.cpu_s == 10.0
    assert report.counts["operations"] == sum(range(200, 220)) and report.least_operations == 200
    assert report.to_json()["code"] == code_hash()


def test_histories_of_other_code_are_another_sittings(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, "a = 1"), (new, "a = 2")):
        folder.mkdir()
        (folder / "module.py").write_text(text)
    assert code_hash(old) != code_hash(new)
    Journal(tmp_path, "store", code_hash(old)).add([Done(3, {}, {}, Counter())])
    assert Journal(tmp_path, "store", code_hash(new)).read() == []
    assert [done.seed for done in Journal(tmp_path, "store", code_hash(old)).read()] == [3]


def test_histories_of_a_cluster_are_not_those_of_the_store(tmp_path, monkeypatch):
    asked = []

    def run_block(seeds, of):
        asked.append((of.name, list(seeds)))
        return [Done(seed, {}, {}, Counter(operations=200)) for seed in seeds]

    monkeypatch.setattr(swarm, "run_block", run_block)
    for name in NAMES * 2:
        assert swarm.swarm(range(2), 1, io.StringIO(), tmp_path, histories(name)).histories == 2
    assert asked == [(name, [0, 1]) for name in NAMES]
