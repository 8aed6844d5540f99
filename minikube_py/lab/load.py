"""Sends objects to the API in order, as fast as accepted, with bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.errors import MinikubeError
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.workload import PodBody

IN_FLIGHT = 64
ATTEMPTS = 8
RETRY_WAIT_S = 0.2
DELETE_NOW = orjson.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})


class LoadError(MinikubeError):
    """The API refused part of the load; the run would not be as specified."""


async def run_bounded(tasks: AsyncGenerator[Callable[[], Awaitable[None]], None], in_flight: int = IN_FLIGHT) -> None:
    """Starts each in order, at most `in_flight` at once. The first failure stops all and is raised."""
    slots = asyncio.Semaphore(in_flight)
    try:
        async with aclosing(tasks), asyncio.TaskGroup() as group:

            async def run(work: Callable[[], Awaitable[None]]) -> None:
                try:
                    await work()
                finally:
                    slots.release()

            async for work in tasks:
                await slots.acquire()
                group.create_task(run(work))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def create_pod(transport: ApiTransport, pod: PodBody, recorder: PodRecorder) -> None:
    """Retries if the outcome is unknown (504). Raises: LoadError on a permanent refusal; Unavailable."""
    unknown = False
    path = f"/api/v1/namespaces/{pod.namespace}/pods"
    for attempt in range(1, ATTEMPTS + 1):
        recorder.sent(pod.key)
        answer = await transport.request("POST", path, body=pod.body)
        if answer.status == 201 or (unknown and answer.status == 409):
            recorder.answered(pod.key)
            return
        if answer.status not in (429, 503, 504) or attempt == ATTEMPTS:
            break
        unknown = unknown or answer.status == 504
        await asyncio.sleep(RETRY_WAIT_S * attempt)
    raise LoadError(f"create of pod {pod.key} answered {answer.status}: {message_of(answer.body)}")


async def creations(
    transport: ApiTransport, pods: Iterable[PodBody], recorder: PodRecorder
) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
    """For `run_bounded`."""
    for pod in pods:
        yield partial(create_pod, transport, pod, recorder)


async def delete_pod(transport: ApiTransport, pod: PodBody) -> None:
    """Without grace. Raises: LoadError; Unavailable, OutcomeUnknown."""
    answer = await transport.request("DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", body=DELETE_NOW)
    if answer.status not in (200, 202, 404):
        raise LoadError(f"delete of pod {pod.key} answered {answer.status}: {message_of(answer.body)}")


async def create_namespaces(transport: ApiTransport, names: Iterable[str]) -> None:
    """Existing namespaces are left as they are. Raises: LoadError."""
    for name in names:
        body = orjson.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        answer = await transport.request("POST", "/api/v1/namespaces", body=body)
        if answer.status not in (201, 409):
            raise LoadError(f"create of namespace {name} answered {answer.status}: {message_of(answer.body)}")


def message_of(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
