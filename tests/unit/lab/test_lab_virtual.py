"""Measurements in virtual time come to the same digest whenever they are run, and say what to type next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikube_py.cli import virtual
from minikube_py.cli.main import main

SMALL_STRESS = ["bench", "schedule", "--virtual", "--nodes", "30", "--pods", "60"]
SMALL_REPLAY = ["replay", "openb", "--virtual", "--pods", "40"]
SMALL_DENSITY = ["bench", "density", "--virtual", "--nodes", "5", "--pods", "20", "--latency-pods", "3"]


def told(words: list[str], seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a run says that must be the same each time: its digest and its virtual figures."""
    assert main([*words, "--seed", str(seed), "--results", str(folder)]) == 0
    said = capsys.readouterr().out
    digests = re.findall(r"digest [0-9a-f]{64}: .*", said)
    assert len(digests) == 1
    return [*digests, *re.findall(r"[\d.,]+ s of virtual time", said), *re.findall(r".* attempts, .* bound", said)]


@pytest.mark.parametrize("words", [SMALL_STRESS, SMALL_REPLAY, SMALL_DENSITY], ids=["schedule", "replay", "density"])
def test_a_run_of_one_seed_is_told_alike_each_time(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = told(words, 3, tmp_path, capsys)
    assert told(words, 3, tmp_path, capsys) == first
    assert told(words, 4, tmp_path, capsys)[0] != first[0]


@pytest.mark.parametrize("flag", ["--split", "--data-dir=x"])
def test_what_virtual_time_does_not_have_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL_DENSITY, flag]) == 2
    assert "--virtual has no processes and no folder; remove --" in capsys.readouterr().err


def test_several_members_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL_STRESS, "--members", "3"]) == 2
    assert "--virtual has one member, not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["demo", "--virtual", "--seed", "7"], ["demo", "--seed=7", "--virtual"], ["demo", "--virtual"]],
)
def test_the_command_is_told_without_its_seed(words: list[str]) -> None:
    assert virtual.again(words) == "minikube-py demo --virtual"
