"""The peer protocol: frames (`store.framing`) over mutual TLS.

The connecting side sends a hello, [magic, version, token, Ask, ...], and gets an answer. WHO and JOIN are one question
and one answer. A LINK carries messages one way, from the connecting to the accepting side; each member has one to each
other. The accepting side returns only heartbeats and the progress of a snapshot.

An APPEND's entries are packed once for all receivers of the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.raft.codec import Malformed, message_from_plain, message_to_plain
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, Message, MessageType
from minikube_py.store.bootstrap import Answer, answer_from_plain, answer_to_plain
from minikube_py.store.framing import LENGTH, Greeting, ProtocolError, encode_error, frame
from minikube_py.store.membership import ID_MAX, TEXT_MAX
from minikube_py.store.snapshot_transfer import SnapshotOffer

PEER_VERSION: Final = 1
PEER_GREETING: Final = Greeting("minikube-py-peer", PEER_VERSION, "is for the store's own members")
HELLO_BYTES_MAX: Final = 16 << 10
"""The largest frame from a peer that has not sent a token yet."""
FRAME_BYTES_MAX: Final = 16 << 20
"""The largest frame: one APPEND (1 MiB, or one larger entry), a chunk of a snapshot, a list of all members."""
REASON_CHARS_MAX: Final = 1000


class Ask(IntEnum):
    """LINK: cluster id, sender, to, sender's peer address, applied. WHO: nothing. JOIN: cluster id, packed change."""

    LINK = 1
    WHO = 2
    JOIN = 3


class Say(IntEnum):
    """Frames on a link after its hello. MESSAGE: a message. PING: a number. OFFER: message, size, sha256: a snapshot.
    CHUNK: offset, its bytes."""

    MESSAGE = 0
    PING = 1
    OFFER = 2
    CHUNK = 3


class Reply(IntEnum):
    """REFUSED: reason, text; possible at any time, and the last frame. WELCOME: cluster id, id. WHO: an answer. JOINED:
    nothing. NOT_LEADER: the leader's id or 0, its peer address. FAILED: an error. ALIVE: nothing. PONG: PING's number.
    WANT: the offset at which to send a snapshot. DONE: whether the snapshot is installed, text."""

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
    """Why a peer is refused. REMOVED is permanent; the rest may pass. EARLY: this member is not in a cluster yet. FULL:
    too many connections. GARBLED: the request was not understood."""

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
    """`address`: where the sender can be reached. `applied`: the log index at which the sender is a member by its own
    record, 0 if it is not."""

    cluster_id: int
    sender: NodeId
    to: NodeId
    address: str
    applied: int


class Refused(MinikubeError):
    """The other member refuses this connection."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


# -- hello ------------------------------------------------------------------------------------------------------------


def link_hello(arguments: Sequence[Any]) -> LinkHello:
    """Raises: ProtocolError."""
    try:
        hello = LinkHello(*arguments)
    except TypeError:
        raise ProtocolError("a hello does not have its five fields") from None
    numbers = (hello.cluster_id, hello.sender, hello.to, hello.applied)
    if not all(type(number) is int and 0 <= number <= ID_MAX for number in numbers):
        raise ProtocolError("a hello's ids are invalid")
    if type(hello.address) is not str or len(hello.address) > TEXT_MAX:
        raise ProtocolError("a hello's address is invalid")
    return hello


def refusal_frame(refusal: Refusal, text: str) -> bytes:
    return frame((Reply.REFUSED, refusal, text[:REASON_CHARS_MAX]))


def refused(arguments: Sequence[Any]) -> Refused:
    """The content of a REFUSED; reasons that only later versions know are kept as text."""
    number = arguments[0] if arguments else 0
    text = arguments[1] if len(arguments) > 1 and type(arguments[1]) is str else ""
    known = type(number) is int and number in Refusal.__members__.values()
    return Refused(Refusal(number) if known else Refusal.GARBLED, text[:REASON_CHARS_MAX])


def who_frame(answer: Answer) -> bytes:
    return frame((Reply.WHO, answer_to_plain(answer)))


def who_answer(arguments: Sequence[Any]) -> Answer:
    """Raises: ProtocolError."""
    try:
        [plain] = arguments
        return answer_from_plain(plain)
    except (ValueError, InvalidRequest) as error:
        raise ProtocolError(str(error)) from None


def failed_frame(error: MinikubeError) -> bytes:
    return frame((Reply.FAILED, encode_error(error)))


# -- messages ---------------------------------------------------------------------------------------------------------

_MESSAGE: Final = b"\x92" + msgpack.packb(int(Say.MESSAGE)) + b"\x9c"
"""The prefix of a MESSAGE: an array of two, its kind, an array of twelve."""
_ENTRIES: Final = Message._fields.index("entries")


class EntryPacker:
    """Packs entries, identical batches only once: a leader sends a batch to all followers in one turn."""

    __slots__ = ("_count", "_first", "_last", "_packed")

    def __init__(self) -> None:
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._count = 0
        self._packed = b""

    def find(self, entries: Sequence[Entry]) -> bytes | None:
        """What `keep` stored for the same entries last; entries are consecutive in one log, as in an APPEND."""
        # The same first and last objects of one log imply the same entries between.
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
    # An array of up to fifteen fields has a one-byte header.
    head, tail = msgpack.packb(plain[:_ENTRIES])[1:], msgpack.packb(plain[_ENTRIES + 1 :])[1:]
    length = len(_MESSAGE) + len(head) + len(packed) + len(tail)
    return b"".join((LENGTH.pack(length), _MESSAGE, head, packed, tail))


def read_message(arguments: Sequence[Any], sender: NodeId, to: NodeId) -> Message:
    """A MESSAGE from `sender` to `to`. Raises: ProtocolError, also if it names another sender or receiver."""
    if len(arguments) != 1:
        raise ProtocolError("a message is one array")
    message = _message(arguments[0], sender, to)
    if message.type == MessageType.SNAPSHOT:
        raise ProtocolError("a snapshot must be sent as an offer, not as a message")
    return message


def offer_frame(message: Message, offer: SnapshotOffer) -> bytes:
    head = message._replace(entries=(), snapshot=offer.meta)
    return frame((Say.OFFER, message_to_plain(head), offer.size_bytes, offer.sha256))


def read_offer(arguments: Sequence[Any], sender: NodeId, to: NodeId) -> tuple[Message, SnapshotOffer]:
    """The SNAPSHOT message to step at the end, and the offer. Raises: ProtocolError."""
    if len(arguments) != 3:
        raise ProtocolError("an offer is a message, a size and a hash")
    plain, size_bytes, sha256 = arguments
    message = _message(plain, sender, to)
    if message.type != MessageType.SNAPSHOT or message.snapshot is None:
        raise ProtocolError("the offer is not a snapshot")
    if type(size_bytes) is not int or size_bytes <= 0 or type(sha256) is not bytes or len(sha256) != 32:
        raise ProtocolError("an offer's size and hash are invalid")
    return message, SnapshotOffer(message.snapshot, size_bytes, sha256)


def _message(plain: Any, sender: NodeId, to: NodeId) -> Message:
    try:
        message = message_from_plain(plain)
    except Malformed as error:
        raise ProtocolError(f"not a message: {error}") from None
    if message.sender != sender or message.to != to:
        found = f"of {message.sender:x} to {message.to:x}"
        raise ProtocolError(f"a message {found} on the link of {sender:x} to {to:x}")
    return message
