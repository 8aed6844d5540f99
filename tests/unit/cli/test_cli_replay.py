"""Each flag of `replay` is honoured, or refused by its name: in each form of the command, alone and with each other."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli import replay, virtual
from minikube_py.cli.main import main
from minikube_py.lab import replay_report

FORMS = {
    replay.LOG: ["--from", "LOG"],
    replay.REAL: ["openb"],
    replay.VIRTUAL: ["openb", "--virtual"],
}
FILES = {
    "f": "",
    "LOG": "",
    "FILE": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
    "FILE.py": "class A:\n    def score(self, pod, node):\n        return 1\n",
}
ETCD = ["--etcd-servers", "http://127.0.0.1:1"]
VALUES = {
    "until": ["12.5"],
    "port": ["3"],
    "departures": [],
    "speed": ["3"],
    "day": ["2"],
    "heartbeats": ["elided"],
    "members": ["3"],
    "pods": ["7"],
    "tables": ["DIR"],
    "scheduler_config": ["FILE"],
    "plugins": ["FILE.py:A"],
    "split": [],
    "data_dir": ["DIR"],
    "results": ["DIR"],
    "seed": ["8"],
    "page": ["p.html"],
    "etcd_servers": ETCD[1:],
    "etcd_cafile": ["f"],
    "etcd_certfile": ["f"],
    "etcd_keyfile": ["f"],
    "etcd_prefix": ["/other"],
    "etcd_compaction_interval": ["9m"],
}
PARTS = {"etcd_certfile": ("etcd_keyfile",), "etcd_keyfile": ("etcd_certfile",)}
"""Flags that go with others only, besides --etcd-servers."""
Said = tuple[int, Any, str]
Run = Callable[[str, tuple[str, ...]], Said]


def names() -> dict[str, str]:
    """All flags of the parser, by destination."""
    parser = argparse.ArgumentParser()
    replay.configure(parser)
    flags = (each for each in parser._actions if each.option_strings)
    return {each.dest: each.option_strings[0] for each in flags if each.dest not in ("help", "log", "virtual")}


NAMES = names()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Of a form with flags: the exit code, what would be carried out, and what is said."""
    seen: list[Any] = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DIR").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def run_replay(options: Any, ground: Any, results: Path) -> str:
        return f"{options} {replace(ground, step=None, virtual=None)} {results}"

    def run_virtually(seed: int, call: Callable[[], Any], config: Any, page: Path | None) -> None:
        seen.append(f"{call()} {seed} {config} {page}")

    monkeypatch.setattr(replay_report, "run_replay", run_replay)
    monkeypatch.setattr(replay, "run_interruptible", seen.append)
    monkeypatch.setattr(virtual, "run", run_virtually)
    monkeypatch.setattr(replay, "_look", lambda *given: seen.append(given) or 0)

    def once(form: str, flags: tuple[str, ...]) -> Said:
        words = [*FORMS[form]]
        of_etcd = [each for each in flags if each.startswith("etcd_")]
        for flag in dict.fromkeys((*flags, *(other for each in of_etcd for other in PARTS.get(each, ())))):
            words += [NAMES[flag], *VALUES[flag]]
        if of_etcd and "etcd_servers" not in flags:
            words += ETCD
        if any(each.endswith("file") for each in of_etcd):
            words[words.index("http://127.0.0.1:1")] = "https://127.0.0.1:1"
        seen.clear()
        code = main(["replay", *words])
        return code, seen[0] if seen else None, capsys.readouterr().err

    return once


def test_the_table_has_each_flag() -> None:
    assert {*NAMES, "log", "virtual"} == set(replay.HONOURED) and set(NAMES) == set(VALUES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("flag", VALUES)
def test_a_flag_changes_what_is_done_or_is_refused_by_name(run: Run, form: str, flag: str) -> None:
    usual = run(form, ())
    assert usual[0] == 0
    more = ("departures",) if flag == "speed" and form in replay.HONOURED["departures"] else ()
    compared = run(form, more)
    code, done, said = run(form, (flag, *more))
    if form in replay.HONOURED[flag]:
        assert code == 0 and done is not None, said
        assert str(done) != str(compared[1])
    else:
        assert code == 2 and done is None
        assert f"{NAMES[flag]} needs {' or '.join(replay.HONOURED[flag])}" in said and f"this is {form}" in said


@pytest.mark.parametrize("form", FORMS)
def test_of_two_flags_each_is_honoured_or_refused(run: Run, form: str) -> None:
    for pair in itertools.permutations(VALUES, 2):
        code, done, said = run(form, pair)
        refused = [each for each in pair if form not in replay.HONOURED[each]]
        assert all(f"{NAMES[each]} needs" in said for each in refused), (pair, said)
        alone = "speed" in pair and not {"departures", "day"} & set(pair) and not refused
        if refused or alone:
            assert code == 2 and done is None and (refused or "--speed needs --departures or --day" in said), pair
            continue
        assert code == 0, (pair, said)
        first, second = (run(form, tuple(each for each in pair if each != left)) for left in pair)
        # Days have departures, and etcd's other flags come with its servers.
        implied = {("day", "departures"), ("departures", "day")}
        if pair not in implied and not (pair[0].startswith("etcd_") and pair[1].startswith("etcd_")):
            assert str(done) not in (str(first[1]), str(second[1])), pair


def test_flags_given_with_their_defaults_are_given(run: Run) -> None:
    for form, flag, value in ((replay.REAL, "port", "0"), (replay.LOG, "seed", "0"), (replay.REAL, "members", "1")):
        assert main(["replay", *FORMS[form], NAMES[flag], value]) == 2
    assert "speed=0.0" in str(run_of(run, "--day", "2", "--speed", "0"))
    assert "speed=1.0" in str(run(replay.REAL, ("day",))[1])


def run_of(run: Run, *words: str) -> Any:
    FORMS["these"] = ["openb", *words]
    try:
        return run("these", ())[1]
    finally:
        del FORMS["these"]
