"""The laws of `scheduler_laws` in scripts drawn for the twins: at every step, whatever the cluster goes through."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
import scheduler_laws
from drawn_scheduling import THEMES, script
from scheduler_twin import Twin

from minikube_py.scheduler import cached_results
from minikube_py.scheduler.objects import project_pod

SEED = int(os.environ.get("MINIKUBE_PY_LAW_SEED", "0"))
SCRIPTS = 2
"""Of each theme."""


class Judged(Twin):
    """`tried`: the pods of the script so far, which are asked about forever."""

    def __init__(self, drawn: dict[str, Any]) -> None:
        super().__init__(drawn)
        self.tried: dict[str, Any] = {}

    async def step(self, step: dict[str, Any]) -> Any:
        answer = await super().step(step)
        if step["do"] == "try":
            pod = project_pod(step["object"])
            self.tried[pod.key] = pod
        scheduler_laws.check(self.scheduler, self.tried.values())
        return answer


@pytest.mark.parametrize("theme", THEMES)
async def test_the_laws_hold_at_every_step(theme: str) -> None:
    for seed in range(SEED * SCRIPTS, (SEED + 1) * SCRIPTS):
        # With few nodes, several that changed would always be looked at one by one.
        with patch.object(cached_results, "FEW_NODES", 1 if seed % 2 else cached_results.FEW_NODES):
            await Judged(script(theme, seed)).play()
