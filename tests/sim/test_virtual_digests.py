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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from virtual_plants import PLANTS
from virtual_workloads import GOLDEN, SEED, WIDE, WORKLOADS, digest_of, versions

TOP = Path(__file__).resolve().parents[2]
SCRIPT = TOP / "tests" / "support" / "virtual_workloads.py"
ONE = {"PYTHONHASHSEED": "1"}
FOUND_BY_WIDE = ("set-of-quotas", "time-of-the-processor", "address-in-an-event")
OTHER = {"PYTHONHASHSEED": "4242", "PYTHONMALLOC": "malloc"}


def without_dispatch() -> dict[str, str]:
    """numpy with the plainest code it has: no features beyond those it was built for."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    found = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(found)}


def digests(environment: dict[str, str], *arguments: str) -> dict[str, str]:
    paths = os.pathsep.join([str(TOP), str(SCRIPT.parent)])
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), SEED, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, str] = json.loads(answer.stdout)
    return found


@contextmanager
def load() -> Iterator[None]:
    """A process that takes what processor time there is, while the block lasts."""
    burning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        burning.kill()
        burning.wait()


@pytest.mark.timeout(400)
def test_one_seed_comes_to_one_digest_in_any_process() -> None:
    alone = digests(ONE)
    with load():
        beside = digests({**OTHER, **without_dispatch()})
    assert alone == beside
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    advice = "if histories are meant to change: python tests/support/virtual_workloads.py golden"
    assert alone == golden["digests"], f"written with {golden['versions']}, here {versions()}; {advice}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_seed_gives_another_history_with_the_same_outcome(name: str) -> None:
    golden: dict[str, str] = json.loads(GOLDEN.read_text())["digests"]
    # Each workload asserts what must hold at its end.
    assert len({golden[name], *(digest_of(name, seed) for seed in ("2", "3"))}) == 3


@pytest.mark.parametrize("fault", PLANTS)
def test_what_makes_runs_differ_is_found(fault: str) -> None:
    workload = WIDE if fault in FOUND_BY_WIDE else "scale"
    assert digests(ONE, workload, "--plant", fault) != digests(OTHER, workload, "--plant", fault)
