"""Declares a store index through the API, and waits until it is complete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.env import Clock
from minikube_py.errors import MinikubeError
from minikube_py.lab.load import message_of
from minikube_py.lab.measure import summary_ms
from minikube_py.lab.workload import GPU_RESOURCE

INDEXES_PATH = "/minikube-py/v1/indexes"
FIELDS = ("free.cpu", "free.memory", f"free.{GPU_RESOURCE}")
POLL_S = 0.1
READY_WITHIN_S = 300.0


class IndexNotReady(MinikubeError):
    """The store refused the index, or dropped it."""


class StoreIndex(NamedTuple):
    """`structure`: by its name in `minikube_py.index.catalogue`."""

    name: str
    structure: str


async def declare_and_wait(transport: ApiTransport, index: StoreIndex) -> None:
    """Over the nodes' free cpu, memory and GPUs. Raises: IndexNotReady; Unavailable, OutcomeUnknown."""
    body = {"name": index.name, "on": "nodes", "fields": list(FIELDS), "structure": index.structure}
    answer = await transport.request("POST", INDEXES_PATH, body=orjson.dumps(body))
    if answer.status not in (200, 201):
        raise IndexNotReady(f"index {index.name}: the API answered {answer.status}: {message_of(answer.body)}")
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        answer = await transport.request("GET", f"{INDEXES_PATH}/{index.name}")
        if answer.status != 200:
            raise IndexNotReady(f"index {index.name}: the API answered {answer.status}: {message_of(answer.body)}")
        status: dict[str, Any] = orjson.loads(answer.body)["status"]
        if status["state"] == "ready":
            return
        if status["state"] == "degraded":
            raise IndexNotReady(f"index {index.name}: the store gave it up: {status['reason']}")
        await asyncio.sleep(POLL_S)
    raise IndexNotReady(f"index {index.name} was not ready within {READY_WITHIN_S:.0f} s")


class Asker:
    """Queries the store for a node with room for a pod, like a scheduler without its own node cache."""

    def __init__(self, transport: ApiTransport, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        self.durations_s: list[float] = []
        self.found = 0

    async def ask(self, amounts: Mapping[str, int]) -> None:
        """`amounts`: cpu in milli-units, others in whole units. Raises: IndexNotReady; Unavailable."""
        texts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
        selector = ",".join(f"free.{name}>={text}" for name, text in texts.items())
        started_s = self._clock.monotonic_s()
        answer = await self._transport.request("GET", "/api/v1/nodes", {"fieldSelector": selector, "limit": "1"})
        if answer.status != 200:
            raise IndexNotReady(f"{selector}: the API answered {answer.status}: {message_of(answer.body)}")
        self.found += len(orjson.loads(answer.body)["items"])
        self.durations_s.append(self._clock.monotonic_s() - started_s)

    async def figures(self) -> dict[str, Any]:
        """Number of queries and hits, their times, and the state of each index."""
        answer = await self._transport.request("GET", INDEXES_PATH)
        items = orjson.loads(answer.body)["items"] if answer.status == 200 else []
        indexes = [{"name": each["name"], "structure": each["structure"], **each["status"]} for each in items]
        return {"asked": len(self.durations_s), "found": self.found, **summary_ms(self.durations_s), "indexes": indexes}
