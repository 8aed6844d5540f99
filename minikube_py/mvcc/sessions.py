"""Client sessions: a command sent again after its answer was lost is not executed again, and gets the same answer.

Sessions are replicated state, so the retry may go to any member. A session keeps the reply to each sequence number
until the client acknowledges it; lower numbers are never executed again. Sessions expire by counts in the log, not by
time: after `SESSION_ENTRIES` commands without use, or when `SESSIONS_MAX` others have been used since. A session's id
is never reused, so commands of an expired session find none.

Source: the Raft thesis, 6.3 (linearizable semantics)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from minikube_py.errors import InvalidRequest, MinikubeError, RequestError, SessionExpired
from minikube_py.mvcc.codec import from_plain, to_plain
from minikube_py.mvcc.types import DeleteResult, InSession, KeyValue, PutResult, RangeResult, Result, TxnResult

SESSION_ENTRIES: Final = 100_000
"""A session expires after this many commands of others."""
SESSIONS_MAX: Final = 1000
"""Limit of open sessions; one more ends the least recently used."""
KEPT_MAX: Final = 4096
"""Limit of kept replies: how far a client's sequence numbers may be ahead of what it has acknowledged."""
KEPT_BYTES_MAX: Final = 32 << 20
"""Limit of key-values in the kept replies of all sessions; beyond it only the fact of a reply is kept."""
SWEEP_ENTRIES: Final = 1024
KEY_VALUE_BYTES: Final = 40


class Refused:
    """A refusal as plain data: an exception would keep its stack frames alive."""

    __slots__ = ("plain",)

    def __init__(self, plain: Any) -> None:
        self.plain = plain


Reply = Result | Refused | None
"""The kept reply; None: executed, but the result was too large to keep."""


class Session:
    """`acknowledged`: the client has the answers to all sequence numbers below. `used`: the count at its last use."""

    __slots__ = ("acknowledged", "client", "id", "replies", "used")

    def __init__(self, id: int, client: int, used: int, acknowledged: int = 1) -> None:
        self.id = id
        self.client = client
        self.used = used
        self.acknowledged = acknowledged
        self.replies: dict[int, Reply] = {}


class Sessions:
    """`by_id` begins with the least recently used. `count`: commands applied so far."""

    def __init__(self) -> None:
        self.by_id: dict[int, Session] = {}
        self.count = 0
        self.kept_bytes = 0

    def counted(self) -> None:
        """Counts one more applied command."""
        self.count += 1
        if not self.count % SWEEP_ENTRIES:
            self._sweep()

    def open(self, client: int) -> Session:
        """A new session. Each opening increases the count, so ids are unique."""
        session = self.by_id[self.count + 1] = Session(self.count + 1, client, self.count)
        while len(self.by_id) > SESSIONS_MAX:
            self._end(next(iter(self.by_id.values())))
        return session

    def close(self, session_id: int) -> None:
        """Closing one that is not open is harmless."""
        session = self.by_id.get(session_id)
        if session is not None:
            self._end(session)

    def admit(self, request: InSession) -> Session | None:
        """The session if the command is to be executed now; None if its reply is kept.

        Raises: SessionExpired, InvalidRequest."""
        session_id, sequence, acknowledged, _ = request
        if not 1 <= acknowledged <= sequence:
            raise InvalidRequest(f"sequence {sequence} acknowledges {acknowledged}: use 1 to {max(sequence, 1)}")
        session = self.by_id.get(session_id)
        if session is None:
            raise SessionExpired(
                f"session {session_id} is not open: it expired after {SESSION_ENTRIES} entries without use, or when "
                f"{SESSIONS_MAX} others were used since"
            )
        self._use(session)
        if acknowledged > session.acknowledged:
            self._forget(session, acknowledged)
        if sequence in session.replies:
            return None
        if sequence < session.acknowledged:
            raise SessionExpired(f"request {sequence} of session {session_id} was acknowledged and its reply dropped")
        if len(session.replies) >= KEPT_MAX:
            raise InvalidRequest(f"a session keeps at most {KEPT_MAX} replies: acknowledge those received")
        return session

    def kept(self, request: InSession) -> Result:
        """The reply to a command that `admit` rejected. Raises: RequestError, SessionExpired."""
        reply = self.by_id[request.session].replies[request.sequence]
        if reply is None:
            raise SessionExpired(f"request {request.sequence} was executed, but its reply was too large to keep")
        if type(reply) is Refused:
            raise cast(RequestError, from_plain(reply.plain))
        return cast(Result, reply)

    def keep(self, session: Session, sequence: int, result: Result) -> None:
        size_bytes = held_bytes(result)
        if size_bytes:
            if self.kept_bytes + size_bytes > KEPT_BYTES_MAX:
                session.replies[sequence] = None
                return
            self.kept_bytes += size_bytes
        session.replies[sequence] = result

    def keep_refusal(self, session: Session, sequence: int, error: MinikubeError) -> None:
        session.replies[sequence] = Refused(to_plain(error))

    # -- ends ------------------------------------------------------------------------------------------------------

    def _use(self, session: Session) -> None:
        session.used = self.count
        del self.by_id[session.id]
        self.by_id[session.id] = session

    def _forget(self, session: Session, acknowledged: int) -> None:
        replies = session.replies
        if acknowledged - session.acknowledged <= len(replies):
            gone: Iterable[int] = range(session.acknowledged, acknowledged)
        else:
            gone = [sequence for sequence in replies if sequence < acknowledged]
        session.acknowledged = acknowledged
        if not self.kept_bytes:
            for sequence in gone:
                replies.pop(sequence, None)
            return
        for sequence in gone:
            self.kept_bytes -= held_bytes(replies.pop(sequence, None))

    def _end(self, session: Session) -> None:
        del self.by_id[session.id]
        self.kept_bytes -= sum(map(held_bytes, session.replies.values()))

    def _sweep(self) -> None:
        oldest = self.count - SESSION_ENTRIES
        while self.by_id:
            session = next(iter(self.by_id.values()))
            if session.used > oldest:
                return
            self._end(session)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[list[Any]]:
        """One plain record per session, as of this call, in order of use; the input of `load`."""
        now = [
            (session.id, session.client, session.used, session.acknowledged, list(session.replies.items()))
            for session in self.by_id.values()
        ]
        return ([*head, [[sequence, _reply_to_plain(reply)] for sequence, reply in replies]] for *head, replies in now)

    def load(self, record: list[Any]) -> None:
        """Raises: InvalidRequest, TypeError, ValueError if the record is not one of `records`."""
        id, client, used, acknowledged, replies = record
        session = Session(id, client, used, acknowledged)
        session.replies = {sequence: _reply_from_plain(plain) for sequence, plain in replies}
        if id in self.by_id or len(session.replies) < len(replies):
            raise InvalidRequest("there are two of one session, or of one reply")
        self.by_id[id] = session
        self.kept_bytes += sum(map(held_bytes, session.replies.values()))


def held_bytes(reply: object) -> int:
    """How much of the store's contents a reply keeps alive."""
    kind = type(reply)
    if kind is TxnResult:
        size = 0
        for response in cast(TxnResult, reply).responses:
            if type(response) is not PutResult or response.prev_kv is not None:
                size += held_bytes(response)
        return size
    if kind is PutResult:
        kv = cast(PutResult, reply).prev_kv
        return 0 if kv is None else _bytes_of((kv,))
    if kind is RangeResult:
        return _bytes_of(cast(RangeResult, reply).kvs)
    if kind is DeleteResult:
        return _bytes_of(cast(DeleteResult, reply).prev_kvs)
    return 0


def _bytes_of(kvs: Iterable[KeyValue]) -> int:
    return sum([len(kv.key) + len(kv.value) + KEY_VALUE_BYTES for kv in kvs])


def _reply_to_plain(reply: Reply) -> Any:
    if reply is None:
        return None
    return reply.plain if type(reply) is Refused else to_plain(cast(Result, reply))


def _reply_from_plain(plain: Any) -> Reply:
    if plain is None:
        return None
    message = from_plain(plain)
    if isinstance(message, RequestError):
        return Refused(plain)
    if not isinstance(message, Result):
        raise InvalidRequest(f"{type(message).__name__} is no reply")
    return message
