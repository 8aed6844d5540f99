"""Code of others is judged in a process of its own: what it prints is not the verdict, and no verdict is a failure."""

from __future__ import annotations

import json
import os
import signal
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


STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


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


@pytest.mark.parametrize("number", sorted(signal.valid_signals() - STOPS))
def test_a_signal_is_named_and_so_is_the_step(number: int) -> None:
    def judge(say: apart.Say) -> int:
        say("the second of two steps")
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 1

    told: list[str] = []
    if number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH):
        assert judged_apart(judge, told.append) == 1
        return
    known = {each.value: each.name for each in signal.Signals}
    text = f"ended its process by {known.get(number, f'signal {number}')}, during: the second of two steps"
    with pytest.raises(NoVerdict, match=text):
        judged_apart(judge, told.append)
    assert told == ["the second of two steps"]


def test_a_verdict_counts_that_arrives_after_the_last_look_at_the_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apart, "LIFE_S", 0.01)
    os.mkfifo(tmp_path / "gate")
    # Larger than what one read gets.
    verdict = list(range(10_000))

    def judge(say: apart.Say) -> list[int]:
        say((tmp_path / "gate").read_text())
        return verdict

    wait = apart._Heard._wait

    def late(heard: apart._Heard) -> None:
        monkeypatch.setattr(apart._Heard, "_wait", wait)
        (tmp_path / "gate").write_text("opened")
        os.waitid(os.P_PID, heard._pid, os.WEXITED | os.WNOWAIT)
        wait(heard)

    monkeypatch.setattr(apart._Heard, "_wait", late)
    told: list[str] = []
    assert judged_apart(judge, told.append) == verdict
    assert told == ["opened"]


@pytest.mark.parametrize(("line", "code"), [("pass", 0), ("os._exit(3)", 1), ("os.kill(os.getpid(), 9)", 1)])
def test_a_starter_may_ignore_the_ends_of_processes(line: str, code: int, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "minikube_py", *own(tmp_path, "model", line)]
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    how = {"os._exit(3)": "with exit code 3", "os.kill(os.getpid(), 9)": "by SIGKILL"}.get(line)
    assert f"ended its process {how}, during: " in ended.stderr if how else json.loads(ended.stdout)["holds"]


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
