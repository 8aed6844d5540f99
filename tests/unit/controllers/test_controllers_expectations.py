"""A pod that came and went before its watch had to list again is never observed: its controller goes on without it."""

from __future__ import annotations

from typing import Any

import pytest
from controller_world import TEMPLATE, World
from step_clock import settle

TIMEOUT_S = 300
SELECTOR = {"matchLabels": {"app": "web"}}
ONCE = {"metadata": TEMPLATE["metadata"], "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}  # type: ignore[dict-item]
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("replicationcontroller-controller", "replicationcontrollers", {"selector": {"app": "web"}, "replicas": 1}),
    ("replicaset-controller", "replicasets", {"selector": SELECTOR, "replicas": 1}),
    ("statefulset-controller", "statefulsets", {"selector": SELECTOR, "replicas": 1, "serviceName": "web"}),
    ("daemonset-controller", "daemonsets", {"selector": SELECTOR}),
    ("job-controller", "jobs", {"selector": SELECTOR, "parallelism": 1, "completions": 1, "backoffLimit": 6}),
)


@pytest.mark.parametrize(("name", "plural", "spec"), KINDS, ids=[plural for _, plural, _ in KINDS])
async def test_what_was_never_seen_is_created_again(name: str, plural: str, spec: dict[str, Any]) -> None:
    async with World(name) as w:
        w.api.make("nodes", "n1", status={"conditions": [{"type": "Ready", "status": "True"}]})
        await settle()
        create = w.api.create

        def unseen(kind: Any, namespace: str, body: Any) -> Any:
            """The first pod is created and removed before any watch tells of it."""
            made = create(kind, namespace, body)
            if kind.plural == "pods" and not lost:
                lost.append(f"{namespace}/{made['metadata']['name']}")
                del w.api.kind("pods")[lost[0]]
                w.api.history.pop()
            return made

        lost: list[str] = []
        w.api.create = unseen  # type: ignore[method-assign]
        w.api.make(plural, "a/web", spec={**spec, "template": ONCE if plural == "jobs" else TEMPLATE})
        await w.clock.advance(1)
        w.api.compact()
        w.api.drop_watches()
        await w.clock.advance(TIMEOUT_S - 10)
        assert len(lost) == 1 and not w.pods()
        await w.clock.advance(20)
        assert len(w.pods()) == 1
