"""The same seed gives the same history in every supported Python of this machine: the golden digests, and simulated
histories under faults to the last line. `make pythons` installs the packages for it.

One patch release of each other minor version is run; every one that is found in `make deep`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import pythons
from depth import DEEP
from needs import absent
from virtual_workloads import GOLDEN, SEED, versions

FOUND = pythons.found()
GOLDEN_NOW: dict[str, Any] = json.loads(GOLDEN.read_text())
RUN = list(FOUND) if DEEP else pythons.one_of_each_minor(FOUND)
OTHERS = [python for python in RUN if python != pythons.RUNNING]
# test_virtual_digests checks the running Python, if its packages are those of the digests.
DIGESTED = OTHERS if versions() == GOLDEN_NOW["versions"] else list(RUN)


def run(python: str, script: str, *arguments: str, **environment: str) -> dict[str, str]:
    if pythons.packages(python) is None:
        absent(f"Python {python} is here, but its packages are not installed: make pythons")
    answer: dict[str, str] = json.loads(pythons.run(python, FOUND[python], script, *arguments, **environment))
    return answer


@cache
def histories_here() -> dict[str, str]:
    return run(pythons.RUNNING, "seeded_histories.py", PYTHONHASHSEED="1")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", DIGESTED or ["none"])
def test_the_golden_digests_are_those_of_every_python(python: str) -> None:
    if python not in FOUND:
        pytest.skip("no other Python is found on this machine")
    assert run(python, "virtual_workloads.py", SEED) == GOLDEN_NOW["digests"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", OTHERS or ["none"])
def test_histories_under_faults_are_the_same_in_every_python(python: str) -> None:
    if python not in FOUND:
        pytest.skip("no other Python is found on this machine")
    assert run(python, "seeded_histories.py", PYTHONHASHSEED="4242") == histories_here()


def test_of_each_minor_version_one_is_run() -> None:
    minor, running = pythons.minor_of(pythons.RUNNING), pythons.RUNNING
    found = {f"{minor}.99": "", running: "", "3.98.2": "", "3.98.10": "", "3.99.0": ""}
    assert pythons.one_of_each_minor(found) == [running, "3.98.10", "3.99.0"]
    assert {pythons.minor_of(each) for each in RUN} == {pythons.minor_of(each) for each in FOUND}


def test_the_pythons_that_are_found_are_those_that_the_project_names() -> None:
    assert pythons.named()[0] == "3.11" and pythons.minor_of(pythons.RUNNING) in pythons.named()
    assert {pythons.minor_of(each) for each in FOUND} <= set(pythons.named())
