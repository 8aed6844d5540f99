"""The how-to of fronts, as typed: its files in an empty folder, its commands one after another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from minikube_py.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "a-front-of-your-own.md"
BLOCK = re.compile(r"```(python|toml|)\n(.*?)```", re.DOTALL)


def test_the_how_to_runs_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran: list[int] = []
    printed = ""
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind:
            name, _, body = text.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(body)
        else:
            ran.append(main.main(shlex.split(text)[1:]))
            printed += capsys.readouterr().out
    assert ran == [0, 1, 0, 0, 0]
    assert "highest: all laws hold" in printed and "lowered: all laws hold" in printed
    assert "it is exact" in printed
    assert "P1 | It lets through more than half of the full shards | **" in printed and "not tested" not in printed
    assert "P1 | It opens more shards in vain than a skyline that waits | **" in printed


def test_the_front_of_the_how_to_that_forgets_to_look_at_the_nodes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its maxima are lowered to nothing: the next request that fits is ruled out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        name, _, body = text.partition("\n")
        if kind == "python" and name in ("# highest.py", "# lowered.py"):
            lie = body.replace("self.points[shard :: self.shards].max(axis=0, initial=0)", "0")
            (tmp_path / name.removeprefix("# ")).write_text(lie)
    assert main.main(["front", "check", "lowered.py:Lowered", "--no-bench"]) == 1
    assert "it never rules out a node that fits" in capsys.readouterr().out
