"""The tutorial of cost models, as typed: its files in an empty folder, its commands one after another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from minikube_py.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "a-cost-model-of-your-own.md"
BLOCK = re.compile(r"```(python|yaml|)\n(.*?)```", re.DOTALL)


def test_the_tutorial_runs_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""
    ran: list[int] = []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind:
            name, _, body = text.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(body)
        elif text.startswith("minikube-py "):
            ran.append(main.main(shlex.split(text)[1:]))
            printed = capsys.readouterr().out
        elif not text.startswith("git "):
            for line in text.splitlines():
                # Which cluster is the least depends on the release of hypothesis.
                shown = line.removeprefix("    #").strip() if "#" in line else line
                parts = [part.strip() for part in shown.split("...")]
                drawn = line.startswith(("    node", "    pod"))
                assert drawn or all(part in printed for part in parts), line
    assert ran == [1, 0, 0]
