"""Worker processes for large requests: few, started on demand, killed if a job takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from minikube_py.api.errors import StatusError, internal, timeout, too_many_requests
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.work import ASKED_BY
from minikube_py.apiserver.worker import FRAME
from minikube_py.env import module_command

log = logging.getLogger(__name__)
STREAM_BYTES: Final = 1 << 20
RETRY_AFTER_S: Final = 1
FRESH_MAX: Final = 3
"""Processes tried per job; a job that crashes each of them fails."""


class WorkerEnded(Exception):
    """The process died during a job, or before it."""


class Places:
    """`count` places, for which up to `waiting_max` wait. They are given to one user after the other, each user's in
    order; whoever has most waiting makes room for others."""

    def __init__(self, count: int, waiting_max: int) -> None:
        self._free = count
        self._waiting_max = waiting_max
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self.waiting = 0

    async def take(self, user: Hashable) -> None:
        """Raises: StatusError 429."""
        if self._free:
            self._free -= 1
            return
        if self.waiting >= self._waiting_max:
            self._make_room(len(self._queues.get(user, ())))
        place = asyncio.get_running_loop().create_future()
        self._queues.setdefault(user, deque()).append(place)
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                if place.exception() is None:
                    self.give()
            elif (queue := self._queues.get(user)) and place in queue:
                queue.remove(place)
                self.waiting -= 1
                if not queue:
                    del self._queues[user]
            raise

    def give(self) -> None:
        while self._queues:
            user = next(iter(self._queues))
            queue = self._queues.pop(user)
            place = queue.popleft()
            self.waiting -= 1
            if queue:
                self._queues[user] = queue
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    def _make_room(self, held: int) -> None:
        refusal = too_many_requests(
            f"too many large requests: {self._waiting_max} wait, which is the limit; please try again later",
            RETRY_AFTER_S,
        )
        most = max(self._queues.values(), key=len, default=None)
        if most is None or len(most) <= held + 1:
            raise refusal
        self.waiting -= 1
        place = most.pop()
        if not place.done():
            place.set_exception(refusal)


_OF_ANSWERS: Final = frozenset(("as_yaml", "open_api", "yaml_lists"))


class Workers:
    """Up to `limits.workers_max` processes, each with one job at a time; `limits.jobs_waiting_max` more may wait. A
    user's answers wait apart from what the user writes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._places = Places(limits.workers_max, limits.jobs_waiting_max)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._busy = 0
        self._closed = False
        self.done = 0
        self.killed = 0
        self.lost = 0

    async def run(self, job: str, *given: Any) -> Any:
        """Raises: what the job raises; StatusError 429 if too many wait, 504 if it takes too long, 500 if FRESH_MAX
        processes died on it."""
        await self._places.take((ASKED_BY.get(), (given[0] if job == "late" else job) in _OF_ANSWERS))
        self._busy += 1
        try:
            return await self._run(pickle.dumps((job, given), 5))
        finally:
            self._busy -= 1
            self._places.give()

    async def _run(self, frame: bytes) -> Any:
        fresh = 0
        while fresh < FRESH_MAX:
            worker = self._idle.pop() if self._idle else None
            if worker is None:
                fresh += 1
                worker = await self._start()
            try:
                async with asyncio.timeout(self._limits.job_timeout_s):
                    done, result = await worker.ask(frame)
            except WorkerEnded:
                # The kernel or a person may have killed it; blame the job only after several deaths.
                self._end(worker)
                self.lost += 1
                continue
            except TimeoutError:
                self.killed += 1
                self._end(worker)
                raise timeout(f"request did not complete within {self._limits.job_timeout_s:g} s of work") from None
            except BaseException:
                # The caller has gone; the worker's result is not needed.
                self._end(worker)
                raise
            self.done += 1
            self._idle.append(worker)
            if done:
                return result
            if isinstance(result, StatusError):
                raise result
            log.error("a large request: %s", result)
            raise internal("the server met a condition that it does not know")
        raise internal(f"{FRESH_MAX} processes that work on large requests have ended on this one")

    async def _start(self) -> _Worker:
        if self._closed:
            raise internal("the server is stopping")
        worker = await _Worker.start(self._left)
        self._all.add(worker)
        return worker

    def _left(self, worker: _Worker) -> None:
        """It ended while idle; a busy one is detected by its job."""
        if worker in self._idle:
            self._idle.remove(worker)
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        self._all.discard(worker)
        worker.kill()

    def close(self) -> None:
        """Ends all processes; no caller may be waiting."""
        self._closed = True
        self._idle.clear()
        for worker in list(self._all):
            self._end(worker)

    def metrics(self) -> dict[str, float]:
        return {
            "apiserver_workers": len(self._all),
            "apiserver_worker_jobs_waiting": self._places.waiting + self._busy,
            "apiserver_worker_jobs_total": self.done,
            "apiserver_workers_killed_total": self.killed,
            "apiserver_workers_lost_total": self.lost,
        }


def _spawn(command: list[str], stdin: socket.socket) -> subprocess.Popen[bytes]:
    """In a thread, the only one that closes `stdin`, so the descriptor is not reused before."""
    with stdin:
        return subprocess.Popen(command, stdin=stdin.fileno(), stdout=subprocess.DEVNULL)


def _abandon(spawning: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """Reaps a process that has no waiter."""
    if not spawning.cancelled() and spawning.exception() is None:
        process = spawning.result()
        process.kill()
        process.wait()


class _Link(asyncio.StreamReaderProtocol):
    left: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.left is not None:
            self.left()

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class _Worker:
    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process = process
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def start(left: Callable[[_Worker], None]) -> _Worker:
        """`left` is called once the process has closed its end."""
        ours, theirs = socket.socketpair()
        command = module_command("minikube_py.apiserver.worker")
        spawning = asyncio.get_running_loop().run_in_executor(None, _spawn, command, theirs)
        try:
            process = await asyncio.shield(spawning)
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(limit=STREAM_BYTES)
            link = _Link(reader)
            transport, _ = await loop.create_connection(lambda: link, sock=ours)
        except BaseException:
            ours.close()
            spawning.add_done_callback(_abandon)
            raise
        worker = _Worker(process, reader, asyncio.StreamWriter(transport, link, reader, loop))
        link.left = lambda: left(worker)
        return worker

    async def ask(self, frame: bytes) -> tuple[bool, Any]:
        """Raises: WorkerEnded."""
        try:
            self._writer.write(FRAME.pack(len(frame)))
            self._writer.write(frame)
            await self._writer.drain()
            (size,) = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            answer: tuple[bool, Any] = pickle.loads(await self._reader.readexactly(size))
            return answer
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WorkerEnded from error

    def kill(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            self._process.kill()
        # In a thread: freeing a large process's memory takes time.
        asyncio.get_running_loop().run_in_executor(None, self._process.wait)
