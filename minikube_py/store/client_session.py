"""A client's writes, numbered in a session, so that one whose answer was lost can be sent again.

The next leader knows from the replicated session what was executed, and repeats the answer. So a write ends as done or
refused; as unknown only if its deadline passes while it may be in flight, or if the session ended (the store drops one
that is long unused) before the outcome of an earlier sending was known."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from minikube_py.env import Rng
from minikube_py.errors import MinikubeError, OutcomeUnknown, RequestTooLarge, SessionExpired, Unavailable
from minikube_py.mvcc.codec import from_plain, pack
from minikube_py.mvcc.sessions import KEPT_MAX
from minikube_py.mvcc.types import CloseSession, InSession, OpenSession, SessionCommand, SessionResult
from minikube_py.store.client_connection import Call, ClientConnection
from minikube_py.store.framing import ProtocolError
from minikube_py.store.protocol import Op

IDLE: Final = 0
"""The session's id while none is open."""


class Write(Call):
    """`session` and `sequence` identify it to the store. `on`: the connection it was sent over and may still be
    answered on. `doubtful`: an earlier sending may have been executed, or may still be."""

    __slots__ = ("command", "doubtful", "on", "sequence", "session")

    def __init__(self, command: SessionCommand, future: asyncio.Future[Any]) -> None:
        super().__init__(Op.COMMAND, None, future)
        self.command = command
        self.session = IDLE
        self.sequence = 0
        self.on: ClientConnection | None = None
        self.doubtful = False

    @property
    def maybe_done(self) -> bool:
        return self.doubtful or (self.on is not None and self.sent)


class Opening(Call):
    """The request for a session. Repeating it is harmless: an extra session expires unused."""

    __slots__ = ()

    def __init__(self, client: int, future: asyncio.Future[Any]) -> None:
        super().__init__(Op.COMMAND, pack(OpenSession(client)), future)


class SessionWrites:
    """`unanswered` by sequence, `lowest` the first of them (or the next one). `submit` gets the request for a session;
    the owner reports how writes ended, and calls `flush` when there is a connection to the leader."""

    def __init__(self, rng: Rng, submit: Callable[[Opening], None]) -> None:
        self._rng = rng
        self._submit = submit
        self._opening: Opening | None = None
        self._queue: deque[Write] = deque()
        self._dead = 0
        self._next = 1
        self.id = IDLE
        self.lowest = 1
        self.unanswered: dict[int, Write] = {}
        self.renewed = 0
        self.resent = 0

    def add(self, write: Write, connection: ClientConnection | None) -> None:
        """Sends it, or keeps it until there is a session, a `connection` to the leader, and room."""
        if connection is None or self._queue or not self.id or self._next - self.lowest >= KEPT_MAX:
            self._queue.append(write)
            if not self.id:
                self._open()
        else:
            self._number(write, connection)

    def flush(self, connection: ClientConnection) -> None:
        """Sends everything not in flight over `connection`, in order of number."""
        for write in list(self.unanswered.values()):
            if write.on is not connection:
                if write.future.done():
                    self.ended(write)
                    continue
                self.resent += 1
                self._send(write, connection)
        self._take_queue(connection)

    def _take_queue(self, connection: ClientConnection) -> None:
        queue = self._queue
        while queue and self.id and self._next - self.lowest < KEPT_MAX:
            write = queue.popleft()
            if not write.future.done():
                self._number(write, connection)
            elif self._dead:
                self._dead -= 1
        if queue and not self.id:
            self._open()

    def _number(self, write: Write, connection: ClientConnection) -> None:
        sequence = self._next
        write.session, write.sequence = self.id, sequence
        write.argument = pack(InSession(self.id, sequence, self.lowest, write.command))
        try:
            self._send(write, connection)
        except RequestTooLarge as error:
            write.session, write.sequence = IDLE, 0
            if not write.future.done():
                write.future.set_exception(error)
            return
        self._next = sequence + 1
        self.unanswered[sequence] = write

    def _send(self, write: Write, connection: ClientConnection) -> None:
        write.on = connection
        connection.send(write)

    # -- how sendings end ---------------------------------------------------------------------------------------------

    def ended(self, write: Write) -> None:
        """The outcome is final, or no longer wanted: its number will not be used again."""
        if not write.sequence:
            self._dead += 1
            if self._dead * 2 > len(self._queue) + 64:
                self._queue = deque([each for each in self._queue if not each.future.done()])
                self._dead = 0
            return
        if write.session == self.id and self.unanswered.pop(write.sequence, None) is not None:
            while self.lowest < self._next and self.lowest not in self.unanswered:
                self.lowest += 1
            if self._queue and write.on is not None and not write.on.why_lost:
                self._take_queue(write.on)

    def undelivered(self, write: Write, *, may_be_done: bool) -> None:
        """This sending will not be answered; the write waits for the next `flush`, unless its outcome would be
        unknown."""
        write.on = None
        write.doubtful = write.doubtful or may_be_done
        if write.future.done():
            self.ended(write)
        elif write.session != self.id:
            self._of_ended_session(write, f"session {write.session} of the store has ended")

    def expired(self, write: Write, error: SessionExpired) -> None:
        """The store no longer knows the session, and has not executed this sending."""
        if write.session == self.id:
            self._renew()
        write.on = None
        if not write.future.done():
            self._of_ended_session(write, str(error))

    def _renew(self) -> None:
        """The next write opens another session. Unsent writes move there; those in flight in the old one end as the
        store answers, those lost in transit as unknown."""
        self.id = IDLE
        self.renewed += 1
        old, self.unanswered = self.unanswered, {}
        self._next = self.lowest = 1
        for write in old.values():
            if write.on is None and not write.future.done():
                self._of_ended_session(write, f"session {write.session} of the store has ended")

    def _of_ended_session(self, write: Write, why: str) -> None:
        if write.doubtful:
            write.future.set_exception(SessionExpired(f"{why}; the write may or may not have taken effect"))
            return
        # No sending of it was or will be executed: treat it as new.
        write.session, write.sequence = IDLE, 0
        self._queue.append(write)
        self._open()

    # -- the session itself -------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._opening is None:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._opening = Opening(self._rng.getrandbits(62) + 1, future)
            self._submit(self._opening)

    def opened(self, session_id: int, connection: ClientConnection | None) -> None:
        self._opening = None
        self.id = session_id
        self._next = self.lowest = 1
        if connection is not None:
            self._take_queue(connection)

    def not_opened(self, error: MinikubeError) -> None:
        """The store refuses, and so do the writes that waited for the session. The next write requests one again."""
        self._opening = None
        queue, self._queue = self._queue, deque()
        for write in queue:
            if not write.future.done():
                write.future.set_exception(error)

    def closing(self) -> bytes | None:
        """The command that ends the session, or None if none is open."""
        return pack(CloseSession(self.id)) if self.id else None

    def close(self, reason: str) -> None:
        for write in [*self.unanswered.values(), *self._queue]:
            if not write.future.done():
                write.future.set_exception(lost(write, reason))
        self.unanswered.clear()
        self._queue.clear()


def lost(write: Write, reason: str) -> MinikubeError:
    """The outcome of a write that is no longer waited for."""
    if write.maybe_done:
        return OutcomeUnknown(f"{reason}; the write may or may not have taken effect")
    return Unavailable(reason)


def session_of(answer: Any) -> int:
    """The id in the answer to an `Opening`. Raises: ProtocolError."""
    result = from_plain(answer)
    if not isinstance(result, SessionResult):
        raise ProtocolError(f"a session was requested, but {type(result).__name__} was received")
    return result.id
