"""The tutorial, as typed: its files in an empty folder, and its last command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_plugin import LOADED, UNUSED

pytestmark = pytest.mark.real_time("real processes")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/tutorials/testing-an-operator.md"


def files() -> dict[str, str]:
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *LOADED, *UNUSED]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_tutorial_runs_as_typed(tmp_path: Path) -> None:
    found = files()
    named = ["explored.py", "exposer.py", "test_explored.py", "test_exposer.py", "test_widgets.py", "widgets.py"]
    assert sorted(found) == named
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_it_says_of_a_failure_is_so(tmp_path: Path) -> None:
    for name, text in files().items():
        if "explored" in name or "widgets" in name:
            continue
        changed = text.replace('"port": 80', '"port": 0').replace('"service/web")', '"service/web", timeout_s=3)')
        (tmp_path / name).write_text(changed)
    done = pytest_in(tmp_path)
    assert done.returncode == 1
    for said in (
        "service/web in test-a-labelled-controller-is-exposed-1: not there within 3 s",
        "minikube: objects in",
        "minikube: events in",
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ):
        assert said in done.stdout.replace("\\", "")
