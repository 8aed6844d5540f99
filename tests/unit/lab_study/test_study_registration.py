"""A registration names what changed in the experiment's code and data since, also what is there no more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minikube_py.lab.study import registration

IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
DESIGN = "version = 1\nseeds = {quick = 1}\ndefaults = {}\nblocks = {b = {candidates = [], quick = {}}}\n"
TEXTS = {
    "mine.py": "x = 1\n",
    "mine.toml": f'study = "mine"\n{DESIGN}',
    "data/days.csv": "1\n",
    "data/days.json": "{}\n",
    "data/old.py": "y = 1\n",
    "other.toml": f'study = "other"\n{DESIGN}',
    "mine-report.json": "{}\n",
}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, env={**os.environ, **IDENTITY})


@pytest.mark.parametrize("name", [name for name in TEXTS if not name.startswith("mine.")])
def test_what_was_deleted_after_the_registration_changed_the_experiment(name: str, tmp_path: Path) -> None:
    for each, text in TEXTS.items():
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "registers"]):
        git(tmp_path, *words)
    design = tmp_path / "mine.toml"
    study: Any = SimpleNamespace(name="mine", text=design, design=design)
    code = [tmp_path / "mine.py"]
    assert registration._registered(study, code).changed == ""
    git(tmp_path, "rm", "-q", name)
    git(tmp_path, "commit", "-qm", "deletes")
    found = registration._registered(study, code)
    counts = name.startswith("data/")  # Neither another study's design nor what a run wrote is an experiment's own.
    assert found.later_files == ((name,) if counts else ())
    assert bool(found.changed) is counts
