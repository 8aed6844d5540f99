"""A watch by a client outside virtual time. Between two polls it does not exist in the API server, which behaves as if
there were none: each poll opens the watch where the last one ended, and closes it again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, Final, cast

from minikube_py.api.errors import StatusError, timeout
from minikube_py.apiserver.core import error_response
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.options import parse_bool
from minikube_py.apiserver.routes import parse_path
from minikube_py.apiserver.watch_stream import Batch, Stream, error_event
from minikube_py.client.transport import WatchEvent
from minikube_py.cluster.gate import GatedServer
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.env import ended
from minikube_py.sim.inspection import TooLong
from minikube_py.sim.loop import NS_PER_S

BEGINS: Final = ("sendInitialEvents", "resourceVersionMatch", "resourceVersion", "timeoutSeconds")
"""The parameters for a watch's start and end."""
BOOKMARK_S: Final = 60.0
Undisturbed = Callable[[], AbstractContextManager[None]]


def waits(limit_s: float) -> StatusError:
    """The answer to a read that would have to wait for other tasks, as the server gives after its timeout."""
    return timeout(f"request did not complete within {limit_s:g} s: no virtual time passes for a read")


class VirtualWatch:
    """`begin()`, then `take()`, each while nothing else runs there. Faults of watches treat it as a stream."""

    on_cut: Any = None
    starting = awaited = held = False

    def __init__(self, virtual: VirtualCluster, request: Request, rng: random.Random, undisturbed: Undisturbed) -> None:
        self._virtual, self._request, self._rng, self._undisturbed = virtual, request, rng, undisturbed
        self._core = cast(GatedServer, virtual.plane.core)
        path = parse_path(request.path, self._core.registry)
        self.plural = path.plural if path is not None else ""
        self.ended = False
        self.timeout_s = 0.0
        self._since = -1
        self._queue: list[Batch] = []
        self._last: list[WatchEvent] = []
        self._repeats = False
        self._told = self._bookmark_ns = self._ends_ns = 0
        self._bookmarks = "allowWatchBookmarks" in request.query and parse_bool(request.query, "allowWatchBookmarks")

    @property
    def stream(self) -> VirtualWatch:
        return self

    def begin(self) -> Response:
        """The answer; a refused watch has no stream."""
        refused = self._look()
        if refused is not None:
            return refused
        limit_s = self._core.limits.watch_timeout_s
        given = self._request.query.get("timeoutSeconds", "0")
        self.timeout_s = float(given) if given.isdigit() and int(given) else limit_s * (1 + self._rng.random())
        now_ns = self._virtual.now_ns
        self._bookmark_ns, self._ends_ns = now_ns, now_ns + int(self.timeout_s * NS_PER_S)
        self._core.gate.watches[self] = None  # type: ignore[index]
        return Response(200, stream=cast(Stream, self))

    def take(self, over: bool = False) -> list[Batch] | None:
        """The events since the last call; None if there are none, empty at its end. `over`: it ends now."""
        with self._undisturbed():
            if over:
                self._ends_ns = self._virtual.now_ns
            if not self.ended:
                stalled = self._core.gate.stalled
                if not (stalled.get(self.plural) or stalled.get("")):
                    self._more()
                elif over:
                    self.finish()
                else:
                    return None
            found, self._queue = self._queue, []
            for batch in found:
                self._last = [each for each in batch.events if each.type not in ("BOOKMARK", "ERROR")] or self._last
            return found if found or self.ended else None

    def _more(self) -> None:
        if not self._queue:
            refused = self._look()
            if refused is not None:
                self._queue.append(Batch([WatchEvent("ERROR", refused.body)]))
                self.finish()
        if self._repeats:
            self._repeats = False
            self._queue.append(Batch(list(self._last)))
        if self._virtual.now_ns >= self._ends_ns:
            self.finish()

    def close(self) -> None:
        self._queue.clear()
        self.finish()

    def finish(self) -> None:
        self.ended = True
        self._core.gate.watches.pop(self, None)  # type: ignore[call-overload]

    # -- for faults ---------------------------------------------------------------------------------------------------

    def fail(self, error: StatusError | None) -> None:
        if not self.ended:
            self._queue = [Batch([error_event(error)])] if error is not None else []
            self.finish()

    def repeat(self) -> bool:
        self._repeats = bool(self._last)
        return self._repeats

    # -- polling ------------------------------------------------------------------------------------------------------

    def _look(self) -> Response | None:
        """Queues the new events. Returns the refusal, if any."""
        limit_s = self._core.limits.request_timeout_s
        try:
            return self._virtual.look(self._read, limit_s)
        except TooLong:
            return error_response(waits(limit_s))

    async def _read(self) -> Response | None:
        request = copy(self._request)
        request.warnings = []
        if self._since >= 0:
            left = {name: value for name, value in request.query.items() if name not in BEGINS}
            request.query = {**left, "resourceVersion": str(self._since)}
        response = await self._core.handle(request)
        stream = response.stream
        if stream is None:
            return response
        inner: Stream = getattr(stream, "stream", stream)
        try:
            if self._told:
                inner.resumed()
            while (batches := await _now(stream)) is not None:
                if not batches:
                    # It ended by itself, with an error as its last event.
                    self.finish()
                    break
                self._queue += [each for each in batches if each.events]
                self._told += len(batches)
            self._since = inner.reached()
            self._mark(inner)
        finally:
            stream.close()
        return None

    def _mark(self, inner: Stream) -> None:
        """The bookmarks of a minute without events, and of the end."""
        now_ns = self._virtual.now_ns
        if not self._bookmarks or not self._ends_ns or self.ended or self._queue:
            return
        if now_ns >= min(self._bookmark_ns + BOOKMARK_S * NS_PER_S, self._ends_ns):
            self._bookmark_ns = now_ns
            self._queue.append(inner.bookmark(self._since))


async def _now(stream: Stream) -> list[Batch] | None:
    """The queued events; None if there are none."""
    reading = asyncio.ensure_future(stream.next())
    while not reading.done() and not stream.awaited:  # noqa: ASYNC110
        await asyncio.sleep(0)
    if reading.done():
        return reading.result()
    reading.cancel()
    await ended(reading)
    return None
