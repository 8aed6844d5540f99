"""Requests with a deadline of their own (`timeout`)."""

from __future__ import annotations

import asyncio

from virtual_time import LoopClock

from minikube_py.apiserver.inflight import within
from minikube_py.apiserver.messages import Request, Response


async def test_an_answer_that_nobody_takes_gives_its_place_back() -> None:
    """Whoever asked went away in the turn of the loop in which the answer was ready."""
    ready, given_back = asyncio.get_running_loop().create_future(), []

    async def handle(_: Request) -> Response:
        await ready
        response = Response(200, pieces=iter(()))
        response.sent = lambda: given_back.append(1)
        return response

    request = Request("GET", "/api/v1/nodes")
    request.deadline_s = LoopClock().monotonic_s() + 60
    asking = asyncio.create_task(within(request, LoopClock(), handle, set()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ready.set_result(None)
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled() and given_back == [1]
