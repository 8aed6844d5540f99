"""The native protocol's messages, in frames (`store.framing`), many in flight over one connection.

A client's first frame is the hello: [magic, version, token, cluster id or 0]; the server answers with its `Welcome`, or
[0, error] and closes. After that answer the client sends [id, Op, argument] or [id, Op, argument, flags]; the server
answers by id, in any order: [id, Answer, ...]. A watch's events keep the id of its request until its END. Ids of
requests are positive; id 0 marks unsolicited frames, [0, Answer.LEADER, ...] and the final [0, error]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.codec import event_from_plain
from minikube_py.mvcc.types import Event, KeyValue, QueryStats, RangeResult
from minikube_py.store.framing import LENGTH, Greeting, ProtocolError, frame
from minikube_py.store.limits import PART_BYTES

VERSION = 3
GREETING = Greeting("minikube-py-store", VERSION, "serves the store's native protocol")


class Op(IntEnum):
    """Any member answers, except requests for the leader, which others refuse with NotLeader.

    - COMMAND (leader): a packed command for the log.
    - RANGE: a packed request.
    - WATCH: (key, range_end, start_revision, plain where or None, after). Start 0 is from now on, where now is not
      before revision `after`; it is answered at once by EVENTS without events, at the revision before the first.
    - CANCEL: the id of a watch.
    - KEEP_ALIVE (leader): a lease's id. Answered by its TTL in seconds, 0 if unknown.
    - REMAINING (leader): a lease's id. Answered by the seconds until it ends, None if unknown.
    - STATUS, PING, MEMBERS: nothing. Answered by the member's status, its revision, and
      {"members": [...], "expected": [...]}. (6 was once another request.)
    - MEMBER_CHANGE (leader): an encoded MemberChange. TRANSFER: the id of the member that is to lead.
    - HASH: a revision, 0 for the present one. Answered by (hash, revision).
    - INDEXES: nothing. Answered by plain reports of the declared indexes' state at this member.
    - EXPLAIN: a packed range request. Answered by a plain explanation, measured at this member.
    - SNAPSHOT: nothing. PARTs of the file of a snapshot that holds all the member has applied, then (size, sha256,
      index, term)."""

    COMMAND = 1
    RANGE = 2
    WATCH = 3
    CANCEL = 4
    KEEP_ALIVE = 5
    STATUS = 7
    MEMBERS = 8
    MEMBER_CHANGE = 9
    TRANSFER = 10
    HASH = 11
    SNAPSHOT = 12
    PING = 13
    INDEXES = 14
    EXPLAIN = 15
    REMAINING = 16


SERIALIZABLE = 1
"""The flag of a RANGE that reads the member's own state, without asking the others; it may be stale."""


class Answer(IntEnum):
    """OK: result. ERROR: error, and True if it was raised before the request reached the log (earlier releases omit
    this). PART: key-values and fields of a range, or bytes of a snapshot; more follows. EVENTS: revision, events, and
    whether more of the same batch follow. END: the error that ended the watch. FRAGMENT: a piece of a frame too large
    to be sent whole, and whether it is the last. LEADER: as in `Welcome`, from the leader's id on, whenever that
    changes."""

    OK = 0
    ERROR = 1
    PART = 2
    EVENTS = 3
    END = 4
    FRAGMENT = 5
    LEADER = 6


class Leadership(NamedTuple):
    """The leader known to a member, its term, and the members' (id, client address) pairs. `leader_id` 0: none; unknown
    addresses are empty."""

    leader_id: int = 0
    leader_address: str = ""
    term: int = 0
    members: tuple[tuple[int, str], ...] = ()


class Welcome(NamedTuple):
    cluster_id: int
    revision: int
    member_id: int
    leadership: Leadership


class WatchRequest(NamedTuple):
    """The request of a WATCH; see `Op`."""

    key: bytes
    range_end: bytes
    start_revision: int
    where: Any = None
    after: int = 0

    @classmethod
    def of(cls, plain: Sequence[Any]) -> WatchRequest:
        """Raises: InvalidRequest."""
        try:
            request = cls(*plain)
        except TypeError:
            raise InvalidRequest("a watch is (key, range_end, start_revision, where, after)") from None
        key, range_end, start_revision, _, after = request
        if (type(key), type(range_end), type(start_revision), type(after)) != (bytes, bytes, int, int):
            raise InvalidRequest("a watch is (key, range_end, start_revision, where, after)")
        return request


def welcome_to_plain(welcome: Welcome) -> object:
    return (VERSION, *welcome[:3], *welcome.leadership)


def welcome_from_plain(plain: Sequence[Any]) -> Welcome:
    """Raises: ProtocolError."""
    try:
        version, cluster_id, revision, member_id, *leadership = plain
        if {type(version), type(cluster_id), type(revision), type(member_id)} != {int}:
            raise TypeError("not numbers")
        return Welcome(cluster_id, revision, member_id, leadership_from_plain(leadership))
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a welcome cannot be decoded: {error}") from None


def leadership_from_plain(plain: Sequence[Any]) -> Leadership:
    """Raises: ProtocolError."""
    try:
        leader_id, address, term, members = plain
        found = tuple([(member_id, client) for member_id, client in members])
        if (type(leader_id), type(address), type(term)) != (int, str, int):
            raise TypeError("wrong types")
        if any((type(member_id), type(client)) != (int, str) for member_id, client in found):
            raise TypeError("members are not (id, address)")
        return Leadership(leader_id, address, term, found)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"invalid leadership: {error}") from None


def key_value_bytes(kv: KeyValue) -> int:
    return len(kv.key) + len(kv.value) + 40


def event_bytes(event: Event) -> int:
    size = key_value_bytes(event.kv)
    return size if event.prev_kv is None else size + key_value_bytes(event.prev_kv)


def split(items: Sequence[Any], sizes: Iterator[int], part_bytes: int = PART_BYTES) -> Iterator[tuple[int, int]]:
    """Cuts `items` into half-open ranges of about `part_bytes` each, at least one item in each."""
    start = size = 0
    for position, item_bytes in enumerate(sizes):
        if size and size + item_bytes > part_bytes:
            yield start, position
            start, size = position, 0
        size += item_bytes
    if start < len(items):
        yield start, len(items)


def range_frames(request_id: int, result: RangeResult) -> Iterator[bytes]:
    """A range's answer: parts below the frame limit, then the final frame with count, more, revision and stats."""
    kvs, fields = result.kvs, result.fields
    start, stop = 0, 0
    for start, stop in split(kvs, map(key_value_bytes, kvs)):
        if stop < len(kvs):
            yield frame((request_id, Answer.PART, kvs[start:stop], fields and fields[start:stop]))
    rest = result._replace(kvs=kvs[start:stop], fields=fields[start:stop] if fields is not None else None)
    yield frame((request_id, Answer.OK, rest))


def fragments(request_id: int, whole: bytes) -> Iterator[bytes]:
    """A frame, without its length, in pieces below the frame limit."""
    for start in range(LENGTH.size, len(whole), PART_BYTES):
        stop = start + PART_BYTES
        yield frame((request_id, Answer.FRAGMENT, whole[start:stop], stop >= len(whole)))


def event_frames(request_id: int, revision: int, events: Sequence[Event]) -> Iterator[bytes]:
    """A watch batch: parts below the frame limit; the last marks the batch as complete."""
    if not events:
        yield frame((request_id, Answer.EVENTS, revision, (), False))
    for start, stop in split(events, map(event_bytes, events)):
        yield frame((request_id, Answer.EVENTS, revision, events[start:stop], stop < len(events)))


def decode_events(items: Sequence[Any]) -> list[Event]:
    return [event_from_plain(item) for item in items]


def decode_range(parts: Sequence[tuple[Any, Any]], answer: Sequence[Any]) -> RangeResult:
    """A range's answer from its parts and its final frame."""
    rest, count, more, revision, fields, stats = answer
    kvs = [KeyValue(*item) for part, _ in parts for item in part]
    kvs.extend(KeyValue(*item) for item in rest)
    rows = None if fields is None else [tuple(row) for _, part in parts for row in part] + [tuple(r) for r in fields]
    return RangeResult(kvs, count, more, revision, rows, None if stats is None else QueryStats(*stats))
