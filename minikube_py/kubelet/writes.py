"""Writes in order of arrival, with bounded concurrency, retried while the server is unreachable."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from minikube_py.client.backoff import Backoff
from minikube_py.client.crew import Crew
from minikube_py.client.timers import Timers
from minikube_py.client.transport import ApiResponse, ApiTransport
from minikube_py.env import Rng
from minikube_py.errors import OutcomeUnknown, Unavailable

logger = logging.getLogger(__name__)


class Write(NamedTuple):
    """`done(response)` is called with any final answer, refusals included. The write must be safe to repeat: a uid in
    it names the one object it is for."""

    method: str
    path: str
    body: bytes
    content_type: str
    done: Callable[[ApiResponse], None]
    attempt: int = 0
    params: Mapping[str, str] | None = None


class Writer:
    """Retries 429, 5xx, connection errors and lost responses with backoff; anything else is final."""

    def __init__(self, transport: ApiTransport, timers: Timers, rng: Rng, at_once: int) -> None:
        self._transport = transport
        self._timers = timers
        self._crew = Crew(at_once, lambda _: self._work(Backoff(rng)), "kubelet writes")
        self._queue: deque[Write] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self.sent = self.retried = self.refused = 0

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        self._crew.start(len(self._queue))

    async def stop(self) -> None:
        """What is still queued is dropped; a restarted kubelet does it again."""
        await self._crew.stop()
        self._queue.clear()

    def put(self, write: Write) -> None:
        self._queue.append(write)
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return
        self._crew.hire()

    async def _work(self, backoff: Backoff) -> None:
        while True:
            while not self._queue:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
            write = self._queue.popleft()
            try:
                response = await self._transport.request(
                    write.method, write.path, write.params, write.body, write.content_type
                )
            except (Unavailable, OutcomeUnknown) as error:
                self._again(write, backoff, str(error))
                continue
            if response.status == 429 or response.status >= 500:
                self._again(write, backoff, f"{response.status} {response.body[:200]!r}")
                continue
            backoff.reset()
            self.sent += 1
            if response.status >= 400:
                self.refused += 1
            try:
                write.done(response)
            except Exception:
                logger.exception("after %s %s", write.method, write.path)

    def _again(self, write: Write, backoff: Backoff, why: str) -> None:
        self.retried += 1
        if write.attempt == 0:
            logger.info("%s %s: %s", write.method, write.path, why)
        later = write._replace(attempt=write.attempt + 1)
        self._timers.call_later(backoff.next_s(), lambda: self.put(later))
