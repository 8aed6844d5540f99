"""Workers that begin as there is work for them: most of a component's hundreds never get any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from minikube_py.env import ended


class Crew:
    """Up to `size` tasks of `worker(number)`, which lives until it is cancelled or its work is over."""

    def __init__(self, size: int, worker: Callable[[int], Coroutine[Any, Any, None]], name: str = "") -> None:
        self._size, self._worker, self._name = size, worker, name
        self._tasks: list[asyncio.Task[None]] = []
        self._open = False

    def start(self, waiting: int = 0) -> None:
        """Idempotent. `waiting`: how many pieces of work there are already."""
        self._open = True
        for _ in range(min(waiting, self._size)):
            self.hire()

    def hire(self) -> None:
        """Call for each piece of work for which no worker waits; does nothing before `start`."""
        number = len(self._tasks)
        if self._open and number < self._size:
            name = f"{self._name} worker {number}".lstrip()
            self._tasks.append(asyncio.get_running_loop().create_task(self._worker(number), name=name))

    async def stop(self) -> None:
        self._open = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await ended(*tasks)
