"""Roles wait for those they need, and say for whom."""

import asyncio
import random

import pytest
from step_clock import StepClock

from minikube_py.client.transport import ApiResponse
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.waiting import api_is_ready, when_available
from minikube_py.errors import MinikubeError, Unavailable


async def test_it_waits_until_it_is_there_and_says_so_now_and_then() -> None:
    clock, said, tries = StepClock(), [], []

    async def attempt() -> str:
        tries.append(clock.now_s)
        if clock.now_s < 25:
            raise Unavailable("connection refused")
        return "there"

    waiting = asyncio.create_task(when_available(attempt, "the store", clock, random.Random(1), said.append))
    await clock.advance(26.5)
    assert waiting.result() == "there"
    assert said == ["waiting for the store: connection refused"] * 3
    assert 20 < len(tries) < 60


async def test_what_waiting_does_not_help_is_raised() -> None:
    async def attempt() -> None:
        raise MinikubeError("the token is wrong")

    with pytest.raises(MinikubeError, match="the token is wrong"):
        await when_available(attempt, "the store", StepClock(), random.Random(1), lambda _: None)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(200, None, id="ready"),
        pytest.param(403, None, id="the first real request will tell"),
        pytest.param(401, SetupError, id="unknown token"),
        pytest.param(500, Unavailable, id="not ready"),
        pytest.param(429, Unavailable, id="busy"),
    ],
)
async def test_when_an_api_server_counts_as_ready(status: int, error: type[Exception] | None) -> None:
    class Answering:
        async def request(self, *_: object) -> ApiResponse:
            return ApiResponse(status, b"[-]informer-sync failed")

    if error is None:
        await api_is_ready(Answering())  # type: ignore[arg-type]
        return
    with pytest.raises(error):
        await api_is_ready(Answering())  # type: ignore[arg-type]
