"""What the scheduler writes: the status of pods, notes of events, and names in metrics."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from scheduler_objects import pod
from scheduler_world import ManualClock, settle

from minikube_py.scheduler.metrics import Metrics
from minikube_py.scheduler.reports import Conditions, truncate


class _Answering:
    """A client whose patches wait."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gate = asyncio.Event()

    async def raw(self, method: str, path: str, params: Any, body: bytes, kind: str) -> None:
        self.sent.append(json.loads(body)["status"])
        await self.gate.wait()


async def test_nominations_and_conditions_of_a_pod_are_written_in_order() -> None:
    client, low = _Answering(), pod("low")
    conditions = Conditions(client, ManualClock())  # type: ignore[arg-type]
    conditions.not_scheduled(low, "Unschedulable", "no room", "")
    await settle()
    nominating = asyncio.ensure_future(conditions.nominate(low, "n1"))
    await settle()
    assert len(client.sent) == 1 and "nominatedNodeName" not in client.sent[0] and not nominating.done()
    client.gate.set()
    await nominating
    assert client.sent[1:] == [{"nominatedNodeName": "n1"}]
    # It is not written again before the pod is seen in another version; to clear it is.
    await conditions.nominate(low, "n1")
    conditions.not_scheduled(low, "Unschedulable", "no room", "")
    await settle()
    assert client.sent[2:] == [{"nominatedNodeName": None}]
    conditions.not_scheduled(low, "Unschedulable", "no room", "")
    await settle()
    assert len(client.sent) == 3
    await conditions.stop()


@pytest.mark.parametrize("text", ["a" * 1024, "ä" * 512, "node"])
def test_a_note_that_fits_is_kept(text: str) -> None:
    assert truncate(text) == text


@pytest.mark.parametrize("text", ["a" * 1025, "ä" * 513, "x" + "漢" * 1000, "\ud800" * 1025])
def test_a_note_has_as_many_bytes_as_the_api_server_accepts(text: str) -> None:
    short = truncate(text)
    assert 1018 < len(short.encode()) <= 1024 and short.endswith(" ...") and "\ufffd" not in short


def test_names_in_metrics_may_have_any_character() -> None:
    metrics = Metrics()
    metrics.count("scheduler_x_total", (("plugin", 'my "best"\\fit\n'),))
    assert list(metrics.collect({})) == ['scheduler_x_total{plugin="my \\"best\\"\\\\fit\\n"}']
