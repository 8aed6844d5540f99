"""`FILE.py:CLASS` and `MODULE:CLASS` wherever code of a user's own is named: one loader, the same words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikube_py.cli import main
from minikube_py.index import catalogue
from minikube_py.index.structures.scan import Scan

CODE = """
class Mine:
    def score(self, state, pod, node):
        return 0
    def find(self, box, limit=0):
        return None
    def passing(self, asked):
        return None
    def peak(self, past):
        return 0
    def task_to_unscheduled_agg(self, task):
        return 0
"""
WRONG = {
    "no file": ("absent.py:Mine", "there is no file {folder}/absent.py; write FILE.py:CLASS"),
    "no class": ("mine.py:Min", "{folder}/mine.py has no class 'Min'; with "),
    "no Python": ("broken.py:Mine", "{folder}/broken.py, line 1: SyntaxError: "),
    "fails": ("fails.py:Mine", "{folder}/fails.py cannot be run: ZeroDivisionError: division by zero (fails.py, "),
    "quits": ("quits.py:Mine", "{folder}/quits.py cannot be run: SystemExit: 0 (quits.py, line "),
    "no module": ("nowhere.at.all:Mine", "No module named 'nowhere'; write MODULE:CLASS or FILE.py:CLASS"),
}
DOORS = {
    "up --plugin": ["up", "--data-dir", "{data}", "--plugin", "{target}"],
    "up --matcher": ["up", "--data-dir", "{data}", "--matcher", "{target}"],
    "up --structure": ["up", "--data-dir", "{data}", "--split", "--structure", "{target}"],
    "scheduler --matcher": ["scheduler", "--kubeconfig", "{config}", "--healthz", "none", "--matcher", "{target}"],
    "bench schedule --matcher": ["bench", "schedule", "--data-dir", "{data}", "--matcher", "{target}"],
    "bench schedule --store-index": ["bench", "schedule", "--data-dir", "{data}", "--store-index", "a={target}"],
    "index create": ["index", "create", "a", "--on", "nodes", "--fields", "free.cpu", "--structure", "{target}"],
    "index check": ["index", "check", "{target}", "--no-bench"],
    "front check": ["front", "check", "{target}", "--no-bench"],
    "model check": ["model", "check", "{target}"],
    "predictor check": ["predictor", "check", "{target}"],
    "plugin check": ["plugin", "check", "{target}", "--no-bench"],
}
KUBECONFIG = """
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("class Mine(:\n")
    (tmp_path / "fails.py").write_text("class Mine:\n    x = 1 / 0\n")
    (tmp_path / "quits.py").write_text(f"{CODE}\nraise SystemExit(0)\n")
    (tmp_path / "config").write_text(KUBECONFIG)
    return tmp_path


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    kept = dict(catalogue._ADMITTED)
    yield
    catalogue._ADMITTED.clear()
    catalogue._ADMITTED.update(kept)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("target", "told"), WRONG.values(), ids=WRONG)
def test_every_door_says_the_same(
    door: list[str], target: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"target": target, "data": str(folder / "data"), "config": str(folder / "config")}
    assert main.main([word.format(**given) for word in door]) in (1, 2)
    assert told.format(folder=folder) in capsys.readouterr().err


MISSPELT = """
class Mine:
    def scores(self, state, pod, node):
        return 0
    def finds(self, box, limit=0):
        return None
    def pasing(self, asked):
        return None
    def peaks(self, past):
        return 0.0
class Nothing:
    pass
"""
TAKING = {
    "score": ["up --plugin {}", "compare default default --plugin {}", "plugin check {}", "demo --virtual --plugin {}"],
    "find": ["up --matcher {}", "up --split --structure {}", "index check {}", "bench schedule --store-index a={}"],
    "passing": ["front check {}"],
    "peak": ["predictor check {}", "lab prediction --predictor {}"],
}
"""By method, the commands that take a class which has it."""


@pytest.mark.parametrize(("method", "typed"), [(method, typed) for method in TAKING for typed in TAKING[method]])
def test_a_class_that_could_do_nothing_is_wrong_usage(
    method: str, typed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(MISSPELT)
    for name in ("Mine", "Nothing"):
        assert main.main(typed.format(f"mine.py:{name}").split()) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert method in printed.err and (f"did you mean {method!r}?" in printed.err) == (name == "Mine")


def test_a_front_that_raises_breaks_a_law(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["front", "check", "mine.py:Mine", "--examples", "5"]) == 1
    assert "it answers: TypeError: Mine() takes no arguments" in capsys.readouterr().out


def test_a_structure_is_known_by_its_name(folder: Path) -> None:
    target = f"{folder}/mine.py:Mine"
    assert catalogue.admit("max-tree") == "max-tree"
    assert catalogue.admit(target) == catalogue.admit("mine.py:Mine") == "Mine"
    assert "Mine" in catalogue.STRUCTURES and list(catalogue.STRUCTURES)[-1] == "Mine"
    assert catalogue.admitted() == (target,)
    (folder / "other.py").write_text(CODE)
    with pytest.raises(Exception, match="another structure is also named Mine"):
        catalogue.admit("other.py:Mine")


def test_nobody_takes_a_name_of_the_family(folder: Path) -> None:
    place = f"{Scan.__module__}:{Scan.__qualname__}"
    with pytest.raises(Exception, match="scan is a built-in structure; rename yours"):
        catalogue.admit(place)
    (folder / "mine.py").write_text("class Mine:\n    pass\n")
    with pytest.raises(Exception, match="has no method find"):
        catalogue.admit("mine.py:Mine")


def test_what_is_named_in_an_api_request_is_never_run(folder: Path) -> None:
    with pytest.raises(Exception, match=r"no structure is named 'mine\.py:Mine'"):
        catalogue.build("mine.py:Mine", 1, {})
