"""The report of a run says what each file used of the CPU, with the processes that its tests waited for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parents[1] / "support"
CONFTEST = """
from run_report import CpuMeter, RunReport

def pytest_configure(config):
    config.pluginmanager.register(meter := CpuMeter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(True, meter))
"""
BURN = "import time\nwhile time.process_time() < {}: pass"
COLLECTED = BURN.format(0.5)
CHILD = f"""
import subprocess, sys
def test_it():
    subprocess.run([sys.executable, "-c", {BURN.format(0.4)!r}], check=True)
"""
FIXTURE = """
import time, pytest
@pytest.fixture(scope="module", autouse=True)
def shared():
    yield
    start = time.process_time()
    while time.process_time() < start + 0.3: pass
def test_it(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_children_fixtures_and_collection_are_counted(workers: tuple[str, ...], tmp_path: Path) -> None:
    for folder, name, text in (("a", "test_child", CHILD), ("b", "test_fixture", COLLECTED + FIXTURE)):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *workers, "tests"],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(SUPPORT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^ *([\d.]+) s(?: +[\d.]+ s)? (.*)$", done.stdout, re.MULTILINE)
    used_s = {what.strip(): float(each) for each, what in lines}
    assert used_s["tests/a/test_child.py"] >= 0.4 and used_s["tests/a"] >= 0.4
    assert used_s["tests/b/test_fixture.py"] >= 0.3
    times = len(workers) or 1
    assert used_s[f"to collect, {times} times"] >= 0.5 * times
    assert used_s["in all"] >= 0.4 + 0.3 + 0.5 * times
