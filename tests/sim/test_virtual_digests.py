"""One seed, one history: workloads of the whole control plane, each in fresh processes that differ in all that a
program must not depend on, come to the digests that are committed; and what makes runs differ is found by them.

The golden digests hold for the versions of `orjson` and `numpy` that they name (the bytes of objects, the scheduler's
scores) and for every Python minor from 3.11 on. After a change that is meant to change histories:
`python tests/support/virtual_workloads.py golden` writes them again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from depth import DEEP
from virtual_plants import PLANTS
from virtual_workloads import GOLDEN, SEED, WORKLOADS, digest_of, versions

TOP = Path(__file__).resolve().parents[2]
SCRIPT = TOP / "tests" / "support" / "virtual_workloads.py"
ONE = {"PYTHONHASHSEED": "1"}
FOUND_BY = {"set-of-quotas": "quotas", "time-of-the-processor": "preemption", "address-in-an-event": "preemption"}
"""By planted fault the workload that shows it; "scale" shows the others."""
OTHER = {"PYTHONHASHSEED": "4242", "PYTHONMALLOC": "malloc"}


def without_dispatch() -> dict[str, str]:
    """numpy with the plainest code it has: no features beyond those it was built for."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    found = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(found)}


def both_digests(environments: tuple[dict[str, str], dict[str, str]], *arguments: str) -> list[dict[str, str]]:
    """Of two processes that run at the same time, so that each takes processor time from the other."""
    paths = os.pathsep.join([str(TOP), str(SCRIPT.parent)])
    command = [sys.executable, str(SCRIPT), SEED, *arguments]
    with ExitStack() as ends:
        running = []
        for environment in environments:
            around = {**os.environ, "PYTHONPATH": paths, **environment}
            process = subprocess.Popen(command, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            running.append(ends.enter_context(process))
            ends.callback(process.kill)
        answers = [process.communicate(timeout=300) for process in running]
        assert [process.returncode for process in running] == [0, 0], answers
    return [json.loads(printed) for printed, _ in answers]


@pytest.mark.timeout(400)
def test_one_seed_comes_to_one_digest_in_any_process() -> None:
    alone, beside = both_digests((ONE, {**OTHER, **without_dispatch()}))
    assert alone == beside
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    advice = "if histories are meant to change: python tests/support/virtual_workloads.py golden"
    assert alone == golden["digests"], f"written with {golden['versions']}, here {versions()}; {advice}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_seed_gives_another_history_with_the_same_outcome(name: str) -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())["digests"]
    # Each workload asserts what must hold at its end.
    others = ("2", "3") if DEEP else ("2",)
    assert len({golden[name], *(digest_of(name, seed) for seed in others)}) == 1 + len(others)


@pytest.mark.parametrize("fault", PLANTS)
def test_what_makes_runs_differ_is_found(fault: str) -> None:
    one, other = both_digests((ONE, OTHER), FOUND_BY.get(fault, "scale"), "--plant", fault)
    assert one != other
