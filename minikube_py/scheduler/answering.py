"""A scheduler in its own process fetches user queries (`explain`, `what-if`) from an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import RestClient
from minikube_py.env import Clock, ended
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.scheduler import Scheduler

QUESTIONS: Final = "/minikube-py/v1/scheduler/questions"
ANSWERS: Final = "/minikube-py/v1/scheduler/answers"
RETRY_S: Final = 1.0
UNKNOWN_S: Final = 60.0
"""Retry interval for foreign API servers, which have no such endpoint but may be replaced by one that does."""


class Answering:
    """`name`: unique among schedulers. `scheduler()` is None while this process is a standby and fetches nothing."""

    def __init__(self, client: RestClient, clock: Clock, name: str, scheduler: Callable[[], Scheduler | None]) -> None:
        self._client, self._clock, self._name, self._scheduler = client, clock, name, scheduler
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)

    async def _run(self) -> None:
        while True:
            pause_s = RETRY_S
            try:
                while (scheduler := self._scheduler()) is not None:
                    found = await self._client.request("GET", QUESTIONS, {"from": self._name})
                    for asked in found["questions"]:
                        document = {"from": self._name, "id": asked["id"], **_answer(scheduler, asked)}
                        await self._client.request("POST", ANSWERS, body=document)
            except StatusError as error:
                pause_s = UNKNOWN_S if error.code in (403, 404) else RETRY_S
            except (MinikubeError, ValueError):
                pass
            await self._clock.sleep(pause_s)


def _answer(scheduler: Scheduler, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": scheduler.ask(asked["question"], asked["subject"], asked["params"])}
    except StatusError as error:
        return {"error": error.message, "code": error.code}
    except ValueError as error:
        return {"error": str(error), "code": 400}
    except Exception as error:
        return {"error": f"the scheduler cannot say: {error}", "code": 500}
