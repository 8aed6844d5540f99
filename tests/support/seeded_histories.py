"""Digests of simulated histories: every step of a run counts.

    python seeded_histories.py      one line of JSON: name to digest
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any, Final

from depth import DEEP
from site_operator import a_site_comes_changes_and_goes

from minikube_py.cluster.aimed_faults import Aimed
from minikube_py.cluster.explore import run_once
from minikube_py.cluster.program import Step
from minikube_py.sim.faults import Fault
from minikube_py.sim.plane_run import PlaneRun, drawn_plane
from minikube_py.sim.run import Run, drawn_options

CLUSTERS: Final = (90, 100, 136) if DEEP else (100,)
STORES: Final = (1, 4) if DEEP else (4,)
WEATHER: Final = (
    Aimed(Fault(0, "crash_client"), Step("create", "services", 1)),
    Aimed(Fault(0, "unseen", (), (), 400_000, 1, "configmaps"), Step("MODIFIED", "configmaps", 1)),
    Aimed(Fault(1_000_000, "crash_client", amount=3)),
)


def history(kind: type[Run], options: Any) -> str:
    """Of every line of its trace."""
    told = hashlib.sha256()
    run = kind(options, lambda line: told.update(f"{line}\n".encode()))
    outcome = run.go()
    assert not outcome.violations, outcome.violations
    return f"{run.fingerprint()} {told.hexdigest()}"


def explored(seed: int) -> str:
    outcome = run_once(a_site_comes_changes_and_goes, seed, WEATHER)
    assert outcome.passed, outcome.error
    return hashlib.sha256("\n".join(outcome.timeline.lines()).encode()).hexdigest()


def histories() -> dict[str, str]:
    found = {f"cluster {seed}": partial(history, PlaneRun, drawn_plane(seed)) for seed in CLUSTERS}
    found |= {f"store {seed}": partial(history, Run, drawn_options(seed)) for seed in STORES}
    found["explored 1"] = partial(explored, 1)
    return {name: each() for name, each in found.items()}


if __name__ == "__main__":
    print(json.dumps(histories()))
