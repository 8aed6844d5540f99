"""A watch that outlives connections: it resumes after the last revision delivered, at whichever member is reached.

Its sink gets each revision once and complete: a batch cut short by a lost connection is dropped and read again. It ends
only with errors that every member would return: compacted history, redeclared fields, an invalid request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikube_py.errors import FieldsRedeclared, MinikubeError, NotLeader, Unavailable
from minikube_py.mvcc.types import Event, WatchBatch
from minikube_py.store.client_connection import ClientConnection
from minikube_py.store.framing import ProtocolError, decode_error
from minikube_py.store.protocol import Answer, WatchRequest, decode_events
from minikube_py.store.storage import WatchSink


class ClientWatch:
    """`cancel` may be called at any time; nothing is delivered afterwards. `revision`: the last one delivered.

    `owner` is called when it has ended, and when it is to restart after a delay."""

    __slots__ = ("_connection", "_events", "_id", "_over", "_owner", "_request", "_shown", "revision", "sink")

    def __init__(self, request: WatchRequest, sink: WatchSink, owner: Watches) -> None:
        self._request = request
        self.sink = sink
        self._owner = owner
        self.revision = max(request.start_revision - 1, 0)
        self._connection: ClientConnection | None = None
        self._id = 0
        self._events: list[Event] = []
        self._shown = False
        self._over = False

    def begin(self, connection: ClientConnection) -> None:
        """Starts, or resumes after the last event delivered, over `connection`; events of an older connection are
        ignored."""
        self._leave()
        self._connection = connection
        self._id = connection.watch(self._request, self)
        if not self._request.start_revision:
            # In case the answer is lost: a write begun after this watch must be in it.
            self._request = self._request._replace(start_revision=self._request.after + 1)

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._leave()
            self._owner.ended(self)

    def end(self, error: MinikubeError) -> None:
        """Notifies its sink of the reason, once."""
        if not self._over:
            self.cancel()
            self.sink(WatchBatch((), self.revision, error))

    @property
    def bound(self) -> bool:
        return self._connection is not None and not self._connection.why_lost

    def take(self, connection: ClientConnection, kind: int, answer: Any) -> None:
        if self._over or connection is not self._connection:
            return
        if kind == Answer.EVENTS:
            _, _, revision, events, more = answer
            self._events.extend(decode_events(events))
            if not more:
                self._show(revision)
            return
        error = decode_error(answer[2])
        self._connection = None
        self._events = []
        resumes = self._shown or isinstance(error, NotLeader)
        if resumes and isinstance(error, Unavailable) and not isinstance(error, FieldsRedeclared):
            self._owner.begin_later()
        else:
            self.end(error)

    def _show(self, revision: int) -> None:
        batch, self._events = self._events, []
        self._shown = True
        if revision < self.revision:
            if batch:
                raise ProtocolError(f"events up to {revision}, but those up to {self.revision} were shown")
            return
        self.revision = revision
        self._request = self._request._replace(start_revision=revision + 1)
        self.sink(WatchBatch(batch, revision))

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        self._events = []
        if connection is not None:
            connection.cancel_watch(self._id)


class Watches:
    """All watches of a client; `later` is called when some are to restart after a delay."""

    def __init__(self, later: Callable[[], None]) -> None:
        self._watches: dict[ClientWatch, None] = {}
        self.begin_later = later
        self.resumed = 0

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, request: WatchRequest, sink: WatchSink, connection: ClientConnection | None) -> ClientWatch:
        watch = ClientWatch(request, sink, self)
        self._watches[watch] = None
        if connection is not None:
            watch.begin(connection)
        return watch

    def begin(self, connection: ClientConnection, *, again: bool) -> None:
        """Starts over `connection` the watches that have none, or, with `again`, all."""
        for watch in list(self._watches):
            if again or not watch.bound:
                self.resumed += 1
                watch.begin(connection)

    def ended(self, watch: ClientWatch) -> None:
        self._watches.pop(watch, None)

    def close(self, error: MinikubeError) -> None:
        for watch in list(self._watches):
            watch.end(error)
