"""What members say to each other: frames of msgpack behind a length, over mutual TLS.

    length 4 (little endian, of what follows) | msgpack array

Who connects says hello: [PEER_MAGIC, version, token, Ask, ...], and is answered. WHO and JOIN are one question and one
answer. A LINK carries messages one way, from who connected to who accepted; each member has one to each other. The
accepting side sends back only signs of life and how far a snapshot has come.

An APPEND's entries are packed once for all that get the same ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.mvcc.codec import from_plain, to_plain
from minikube_py.raft.codec import Malformed, message_from_plain, message_to_plain
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, Message, MessageType
from minikube_py.store.bootstrap import Answer, answer_from_plain, answer_to_plain
from minikube_py.store.membership import ID_MAX, TEXT_MAX
from minikube_py.store.snapshot_transfer import SnapshotOffer

PEER_MAGIC: Final = "minikube-py-peer"
PEER_VERSION: Final = 1
LENGTH: Final = struct.Struct("<I")
HELLO_BYTES_MAX: Final = 16 << 10
"""The largest frame from someone who has not shown a token yet."""
FRAME_BYTES_MAX: Final = 16 << 20
"""The largest frame: one APPEND (1 MiB, or one entry above that), a chunk of a snapshot, who all the members are."""
REASON_CHARS_MAX: Final = 1000


class Ask(IntEnum):
    """LINK: cluster id, sender, to, sender's peer address, applied. WHO: nothing. JOIN: cluster id, packed change."""

    LINK = 1
    WHO = 2
    JOIN = 3


class Say(IntEnum):
    """What follows on a link after its hello. MESSAGE: a message. PING: a number.
    OFFER: message, size, sha256: a snapshot. CHUNK: offset, bytes of it."""

    MESSAGE = 0
    PING = 1
    OFFER = 2
    CHUNK = 3


class Reply(IntEnum):
    """REFUSED: why, text; may come at any time, and is the last. WELCOME: cluster id, id. WHO: an answer. JOINED:
    nothing. NOT_LEADER: the leader's id or 0, its peer address. FAILED: an error. ALIVE: nothing. PONG: PING's number.
    WANT: the offset from which on a snapshot's bytes are wanted. DONE: whether the snapshot is in force, text."""

    REFUSED = 0
    WELCOME = 1
    WHO = 2
    JOINED = 3
    NOT_LEADER = 4
    FAILED = 5
    ALIVE = 6
    PONG = 7
    WANT = 8
    DONE = 9


class Refusal(IntEnum):
    """Why one is not let in. REMOVED is for ever; the rest may pass. EARLY: this member does not take part yet. FULL:
    too many connections. GARBLED: what came was not understood."""

    GARBLED = 0
    VERSION = 1
    TOKEN = 2
    CLUSTER = 3
    ADDRESSEE = 4
    STRANGER = 5
    REMOVED = 6
    EARLY = 7
    FULL = 8


class LinkHello(NamedTuple):
    """`address`: where the sender can be reached. `applied`: how far its log was applied when it said that it was a
    member, 0 where it does not know itself among the members."""

    cluster_id: int
    sender: NodeId
    to: NodeId
    address: str
    applied: int


class PeerProtocolError(Exception):
    """The other side does not speak this protocol; the connection ends."""


class Refused(MinikubeError):
    """The other member does not want this connection."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


# -- frames -----------------------------------------------------------------------------------------------------------


def frame(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return LENGTH.pack(len(body)) + body


class PeerReader:
    """Cuts a stream of bytes into frames. A frame that comes in pieces is put together once, when it is whole."""

    __slots__ = ("_have_bytes", "_need_bytes", "_pieces", "limit_bytes")

    def __init__(self, limit_bytes: int = HELLO_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._have_bytes = 0
        self._need_bytes = LENGTH.size

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """The frames that are whole now; each is unpacked when it is its turn. Raises: PeerProtocolError."""
        if self._pieces:
            self._pieces.append(data)
            self._have_bytes += len(data)
            if self._have_bytes < self._need_bytes:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        offset, size = 0, len(data)
        while offset + 4 <= size:
            (length,) = LENGTH.unpack_from(data, offset)
            if length > self.limit_bytes:
                raise PeerProtocolError(f"a frame of {length} bytes is over the limit of {self.limit_bytes}")
            end = offset + 4 + length
            if end > size:
                break
            yield _unpack(data[offset + 4 : end])
            offset = end
        if offset < size:
            rest = data[offset:] if offset else data
            self._pieces.append(rest)
            self._have_bytes = len(rest)
            self._need_bytes = 4 if len(rest) < 4 else 4 + LENGTH.unpack_from(rest)[0]


def _unpack(body: bytes) -> tuple[Any, ...]:
    try:
        value = msgpack.unpackb(body, use_list=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise PeerProtocolError(f"a frame does not unpack: {error}") from None
    if type(value) is not tuple or not value:
        raise PeerProtocolError("a frame is no array")
    return value


# -- hello ------------------------------------------------------------------------------------------------------------


def hello_frame(token: str, ask: Ask, *arguments: object) -> bytes:
    return frame((PEER_MAGIC, PEER_VERSION, token, ask, *arguments))


def link_hello(arguments: Sequence[Any]) -> LinkHello:
    """Raises: PeerProtocolError."""
    try:
        hello = LinkHello(*arguments)
    except TypeError:
        raise PeerProtocolError("a hello does not have its five fields") from None
    numbers = (hello.cluster_id, hello.sender, hello.to, hello.applied)
    if not all(type(number) is int and 0 <= number <= ID_MAX for number in numbers):
        raise PeerProtocolError("a hello's ids are no ids")
    if type(hello.address) is not str or len(hello.address) > TEXT_MAX:
        raise PeerProtocolError("a hello's address is none")
    return hello


def refusal_frame(refusal: Refusal, text: str) -> bytes:
    return frame((Reply.REFUSED, refusal, text[:REASON_CHARS_MAX]))


def refused(arguments: Sequence[Any]) -> Refused:
    """What a REFUSED says; reasons that only later versions know are kept as text."""
    number = arguments[0] if arguments else 0
    text = arguments[1] if len(arguments) > 1 else ""
    known = type(number) is int and number in Refusal.__members__.values()
    return Refused(Refusal(number) if known else Refusal.GARBLED, str(text)[:REASON_CHARS_MAX])


def who_frame(answer: Answer) -> bytes:
    return frame((Reply.WHO, answer_to_plain(answer)))


def who_answer(arguments: Sequence[Any]) -> Answer:
    """Raises: PeerProtocolError."""
    try:
        [plain] = arguments
        return answer_from_plain(plain)
    except (ValueError, InvalidRequest) as error:
        raise PeerProtocolError(str(error)) from None


def failed_frame(error: MinikubeError) -> bytes:
    return frame((Reply.FAILED, to_plain(error)))


def failed_error(arguments: Sequence[Any]) -> MinikubeError:
    """Raises: PeerProtocolError where it is no error."""
    error = from_plain(arguments[0]) if arguments else None
    if not isinstance(error, MinikubeError):
        raise PeerProtocolError("an error was announced, and something else came")
    return error


# -- messages ---------------------------------------------------------------------------------------------------------

_MESSAGE: Final = b"\x92" + msgpack.packb(int(Say.MESSAGE)) + b"\x9c"
"""How a MESSAGE begins: an array of two, its kind, an array of twelve."""
_ENTRIES: Final = Message._fields.index("entries")


class EntryPacker:
    """Packs entries, and the same ones only once: a leader sends a batch to all followers in one turn."""

    __slots__ = ("_count", "_first", "_last", "_packed")

    def __init__(self) -> None:
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._count = 0
        self._packed = b""

    def find(self, entries: Sequence[Entry]) -> bytes | None:
        """What `keep` was given for the same entries last; they follow each other in one log, as in an APPEND."""
        # The very objects: between the same ends of one log lies the same.
        if entries[0] is self._first and entries[-1] is self._last and len(entries) == self._count:
            return self._packed
        return None

    def keep(self, entries: Sequence[Entry], packed: bytes) -> bytes:
        self._first, self._last, self._count, self._packed = entries[0], entries[-1], len(entries), packed
        return packed


def message_frame(message: Message, packer: EntryPacker) -> bytes:
    entries = message.entries
    if not entries:
        return frame((Say.MESSAGE, message_to_plain(message)))
    packed = packer.find(entries)
    if packed is None:
        plain = message_to_plain(message)
        packed = packer.keep(entries, msgpack.packb(plain[_ENTRIES]))
    else:
        plain = message_to_plain(message._replace(entries=()))
    # The fields of an array of up to fifteen stand behind one byte.
    head, tail = msgpack.packb(plain[:_ENTRIES])[1:], msgpack.packb(plain[_ENTRIES + 1 :])[1:]
    length = len(_MESSAGE) + len(head) + len(packed) + len(tail)
    return b"".join((LENGTH.pack(length), _MESSAGE, head, packed, tail))


def read_message(arguments: Sequence[Any], sender: NodeId, to: NodeId) -> Message:
    """A MESSAGE from `sender` to `to`. Raises: PeerProtocolError; also where it says to be of or for another."""
    if len(arguments) != 1:
        raise PeerProtocolError("a message is one array")
    message = _message(arguments[0], sender, to)
    if message.type == MessageType.SNAPSHOT:
        raise PeerProtocolError("a snapshot comes by an offer, not as a message")
    return message


def offer_frame(message: Message, offer: SnapshotOffer) -> bytes:
    head = message._replace(entries=(), snapshot=offer.meta)
    return frame((Say.OFFER, message_to_plain(head), offer.size_bytes, offer.sha256))


def read_offer(arguments: Sequence[Any], sender: NodeId, to: NodeId) -> tuple[Message, SnapshotOffer]:
    """The SNAPSHOT message to step at the end, and what is offered. Raises: PeerProtocolError."""
    if len(arguments) != 3:
        raise PeerProtocolError("an offer is a message, a size and a hash")
    plain, size_bytes, sha256 = arguments
    message = _message(plain, sender, to)
    if message.type != MessageType.SNAPSHOT or message.snapshot is None:
        raise PeerProtocolError("what is offered is no snapshot")
    if type(size_bytes) is not int or size_bytes <= 0 or type(sha256) is not bytes or len(sha256) != 32:
        raise PeerProtocolError("an offer's size and hash are none")
    return message, SnapshotOffer(message.snapshot, size_bytes, sha256)


def _message(plain: Any, sender: NodeId, to: NodeId) -> Message:
    try:
        message = message_from_plain(plain)
    except Malformed as error:
        raise PeerProtocolError(f"not a message: {error}") from None
    if message.sender != sender or message.to != to:
        found = f"of {message.sender:x} to {message.to:x}"
        raise PeerProtocolError(f"a message {found} on the link of {sender:x} to {to:x}")
    return message
