"""Declares an index of the store through the API, and waits until every row is in it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.errors import MinikubeError
from minikube_py.lab.workload import GPU_RESOURCE

INDEXES_PATH = "/minikube-py/v1/indexes"
FIELDS = ("free.cpu", "free.memory", f"free.{GPU_RESOURCE}")
POLL_S = 0.1
READY_WITHIN_S = 300.0


class IndexNotReady(MinikubeError):
    """The store did not take the index, or gave it up."""


class StoreIndex(NamedTuple):
    """`structure`: by its name in `minikube_py.index.catalogue`."""

    name: str
    structure: str


async def declare_and_wait(transport: ApiTransport, index: StoreIndex) -> None:
    """Over what the nodes have free of cpu, memory and GPUs. Raises: IndexNotReady; Unavailable, OutcomeUnknown."""
    body = {"name": index.name, "on": "nodes", "fields": list(FIELDS), "structure": index.structure}
    answer = await transport.request("POST", INDEXES_PATH, body=orjson.dumps(body))
    if answer.status not in (200, 201):
        raise IndexNotReady(f"index {index.name}: the API answered {answer.status}: {_message(answer.body)}")
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        answer = await transport.request("GET", f"{INDEXES_PATH}/{index.name}")
        if answer.status != 200:
            raise IndexNotReady(f"index {index.name}: the API answered {answer.status}: {_message(answer.body)}")
        found: dict[str, Any] = orjson.loads(answer.body)
        state = found.get("state") or (found.get("status") or {}).get("state")
        if state == "ready":
            return
        if state == "degraded":
            raise IndexNotReady(f"index {index.name}: the store gave it up: {found}")
        await asyncio.sleep(POLL_S)
    raise IndexNotReady(f"index {index.name} was not ready within {READY_WITHIN_S:.0f} s")


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
