"""Code of others is judged in a process of its own: what it prints is not the verdict, and no verdict is a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikube_py.cli import apart
from minikube_py.cli.apart import NoVerdict, judged_apart
from minikube_py.cli.main import main
from minikube_py.errors import WrongUsage

SAYS = """
import os, sys
print("loaded")
os.write(1, b"to the descriptor\\n")
"""
OWN = {
    "index": ("from minikube_py.index.structures.scan import Scan as Theirs", "find"),
    "front": ("from minikube_py.studies.emptiness.fronts import Skyline as Theirs", "passing"),
    "plugin": ("class Theirs:\n    def filter(self, state, pod, node):\n        return None", "filter"),
    "predictor": ("from minikube_py.scheduler.prediction.predictors import Limits as Theirs", "peak"),
    "model": ("from minikube_py.scheduler.flow.models import Trivial as Theirs", "task_to_unscheduled_agg"),
}


def own(folder: Path, what: str, line: str) -> list[str]:
    """The command for a class that runs a line before each answer."""
    theirs, method = OWN[what]
    text = f"{SAYS}{theirs}\n\nclass Mine(Theirs):\n    name = front = structure = 'mine'\n"
    text += f"    def {method}(self, *given, **more):\n        {line}\n"
    text += f"        return super().{method}(*given, **more)\n"
    (folder / "mine.py").write_text(text)
    quick = ["--no-bench"] if what in ("index", "front", "plugin") else []
    return [what, "check", f"{folder}/mine.py:Mine", "--examples", "2", *quick, "--json"]


@pytest.mark.parametrize("what", OWN)
def test_what_own_code_prints_is_not_in_the_json(what: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "minikube_py", *own(tmp_path, what, "print('hello')")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "parts" in json.loads(ended.stdout), ended.stderr
    assert all(said in ended.stderr for said in ("loaded", "to the descriptor", "hello"))


@pytest.mark.parametrize("what", OWN)
def test_code_that_ends_its_process_is_not_judged(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(own(tmp_path, what, "os._exit(0)")) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"minikube-py {what} check: no verdict: " in printed.err
    assert "ended its process with exit code 0, during: " in printed.err


def test_a_signal_is_named_and_so_is_the_step() -> None:
    def judge(say: apart.Say) -> int:
        say("the second of two steps")
        os.kill(os.getpid(), 9)
        return 1

    told: list[str] = []
    with pytest.raises(NoVerdict, match="ended its process by SIGKILL, during: the second of two steps"):
        judged_apart(judge, told.append)
    assert told == ["the second of two steps"]


def test_a_step_that_takes_long_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(apart, "LONG_S", 0.01)
    monkeypatch.setattr(apart, "LIFE_S", 0.01)
    os.mkfifo(tmp_path / "gate")

    def judge(say: apart.Say) -> str:
        say("a step without an end")
        return (tmp_path / "gate").read_text()

    class Opens:
        def write(self, text: str) -> int:
            if "still" in text:
                (tmp_path / "gate").write_text("opened")
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Opens())
    assert judged_apart(judge, lambda _: None) == "opened", "only because the step was named"


def test_errors_of_ours_arrive() -> None:
    def judge(say: apart.Say) -> int:
        raise WrongUsage("no such thing")

    with pytest.raises(WrongUsage, match="no such thing"):
        judged_apart(judge, lambda _: None)
