"""A Scale of a large object, and its deletion, are worked out elsewhere: with the answers of a small one."""

from __future__ import annotations

import re
from typing import Any

import orjson
from turns import Elsewhere, Turns

from tests.support.api_core import JSON, MERGE, Core

Json = dict[str, Any]
SETS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "application/apply-patch+yaml"
LINES_MAX = 20_000
CODED_BYTES_MAX = 600_000
SCALE: Json = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "namespace": "default"}}


def deployment(variables: int) -> bytes:
    labels = {"a": "b"}
    env = [{"name": f"A{at}", "value": "x"} for at in range(variables)]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return orjson.dumps({"metadata": {"name": "d"}, "spec": spec})


ASKED = (
    ("GET", f"{SETS}/d/scale", None, JSON),
    ("PATCH", f"{SETS}/d/scale", {"spec": {"replicas": 1}}, MERGE),
    ("PATCH", f"{SETS}/d/scale?fieldManager=z", {**SCALE, "spec": {"replicas": 2}}, APPLY),
    ("PATCH", f"{SETS}/d/scale?fieldManager=z&force=true", {**SCALE, "spec": {"replicas": 2}}, APPLY),
    ("PATCH", f"{SETS}/d/scale", {"spec": {"replicas": -1}}, MERGE),
    ("PATCH", f"{SETS}/d/scale?dryRun=All", {"spec": {"replicas": 7}}, MERGE),
    ("PUT", f"{SETS}/d/scale", {**SCALE, "spec": {"replicas": 3}}, JSON),
    ("PUT", f"{SETS}/d/scale", {**SCALE, "metadata": {**SCALE["metadata"], "uid": "other"}}, JSON),
    ("GET", f"{SETS}/d/scale", None, JSON),
    ("DELETE", f"{SETS}/d", {"preconditions": {"uid": "other"}}, JSON),
    ("DELETE", f"{SETS}/d", {"propagationPolicy": "Foreground"}, JSON),
    ("DELETE", f"{SETS}/d", {"dryRun": ["All"], "propagationPolicy": "Background"}, JSON),
    ("DELETE", f"{SETS}/d", {"propagationPolicy": "Background"}, JSON),
)


async def answers(core: Core, work: Elsewhere, turns: Turns, variables: int) -> list[Any]:
    """Statuses and bodies, without the template, whose length differs."""
    core.api.hand_work_to(work)
    created = await core.respond("POST", f"{SETS}?fieldManager=f", deployment(variables))
    assert created.status == 201
    turns.most = turns.most_bytes = 0
    found = []
    for method, path, body, content_type in ASKED:
        status, answer = await turns.of(core.ask(method, path, body, content_type=content_type))
        answer.pop("spec", None) if answer["kind"] == "Deployment" else None
        answer.get("metadata", {}).pop("managedFields", None)
        for name in ("uid", "resourceVersion"):
            answer.get("metadata", {}).pop(name, None)
        answer.get("details", {}).pop("uid", None)
        text = orjson.dumps(answer).decode()
        found.append((method, path, status, re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text)))
    return found


async def test_a_scale_and_a_deletion_of_a_large_object_are_worked_out_elsewhere(core: Core) -> None:
    turns = Turns()
    small = Elsewhere(turns)
    expected = await answers(core, small, turns, 3)
    assert small.jobs == 0 and {each[2] for each in expected} == {200, 409, 422}
    large, turns = Elsewhere(turns), Turns()
    large.turns = turns
    assert await answers(core, large, turns, 6_000) == expected
    assert turns.most < LINES_MAX and turns.most_bytes < CODED_BYTES_MAX, (turns.most, turns.most_bytes)
    # One for the object's creation; a write to the Scale is two and its answer one.
    assert large.jobs > len(ASKED)
