"""`minikube-py index check`: what it judges, what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli.main import main

RIGHT = """
import numpy as np
from minikube_py.index.structure import Found

class Mine:
    structure = "mine"
    def __init__(self, dimensions, cut=0):
        self.points, self.cut = {}, cut
    def put(self, slot, point):
        self.points[slot] = point
    def remove(self, slot):
        self.points.pop(slot, None)
    def find(self, box, limit=0):
        slots = [slot for slot, point in self.points.items() if box.holds(point)]
        shown = slots[self.cut : limit or None]
        return Found(np.array(shown, dtype=np.int64), len(shown) == len(slots), len(self.points))
    def may_match(self, box):
        return True
    def size_bytes(self):
        return 300 * len(self.points)
"""


def check(*arguments: str) -> int:
    return main(["index", "check", *arguments])


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "my_own_index.py"
    path.write_text(RIGHT)
    return f"{path}:Mine"


def test_a_structure_whose_laws_hold(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(mine, "--examples", "8", "--no-bench") == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed[:4]] == [
        ["ok", name] for name in ("structure", "index", "counts", "growth")
    ]
    assert printed[-1] == "mine: all laws hold"


def test_nothing_is_left_in_the_folder(mine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minikube_py", "index", "check", mine, "--examples", "4", "--no-bench"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} <= {"my_own_index.py", "__pycache__"}


def test_one_that_is_broken_shows_a_program(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(mine, "--examples", "40", "--option", "cut=1") == 1
    printed = capsys.readouterr().out
    assert "BROKEN  structure" in printed
    assert "    index = Mine(1)\n    index.put(0, (0,))\n    index.find(Box((MISSING,), (HIGH,)), limit=0)\n" in printed
    assert printed.endswith("mine: broken\n") and "STRUCTURE" not in printed


def test_as_json(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(mine, "--examples", "40", "--option", "cut=1", "--json") == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["structure"], told["holds"], told["costs"]) == ("mine", False, [])
    assert [(part["name"], part["failure"] and part["failure"]["law"]) for part in told["parts"]] == [
        ("structure", "slots in the box are found")
    ]


def test_a_structure_of_the_family_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("columns", "--examples", "4", "--no-bench") == 0
    assert capsys.readouterr().out.endswith("columns: all laws hold\n")


REFUSED = {
    "no such structure": (["nothing"], "neither FILE.py:CLASS nor the name of a structure; the structures are scan"),
    "no such file": (["/nowhere/mine.py:Mine"], "there is no file"),
    "no such class": (["{path}:Yours"], "has no class 'Yours'; with find it has Mine"),
    "no such module": (["no.such.module:Mine"], "cannot be imported"),
    "no option": (["scan", "--option", "cut"], "write NAME=VALUE"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_cannot_be_judged(case: str, mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, told = REFUSED[case]
    assert check(*(text.format(path=mine.rpartition(":")[0]) for text in arguments)) == 2
    assert told in capsys.readouterr().err


def test_a_file_that_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad_index.py").write_text("1 / 0\n")
    assert check(f"{tmp_path}/bad_index.py:Mine") == 2
    assert "cannot be run: ZeroDivisionError" in capsys.readouterr().err
