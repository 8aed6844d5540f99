"""Whatever bytes hold, each decoder of the store's raises its own errors and no other: also of values that are nested
deeper than Python shows, whose message is bounded, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minikube_py.errors import SHOWN_CHARS_MAX, Corruption, InvalidRequest, shown
from minikube_py.mvcc.codec import from_plain, unpack
from minikube_py.raft.codec import ENTRIES_MAX, Malformed, decode_change, message_from_plain
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.log import ENTRY_BYTES
from minikube_py.raft.message import MessageType
from minikube_py.raft.state import RaftConfig
from minikube_py.store.framing import ProtocolError, decode_error, unpack_frame
from minikube_py.store.membership import decode_member_change
from minikube_py.store.peer_protocol import PEER_GREETING, link_hello, read_message, read_offer, refused
from minikube_py.wal.record import RecordType, encode_record
from minikube_py.wal.segment import HEAD_BYTES, decode_head

MESSAGE_CHARS_MAX = 1000


def head(data: bytes) -> object:
    record = encode_record(RecordType.SEGMENT, data, seed=0, offset=0, synced=0)
    return decode_head("wal", record.ljust(HEAD_BYTES, b"\0"), whole=False)


def greeted(data: bytes) -> object:
    return PEER_GREETING.refuses((PEER_GREETING.magic, *unpack_frame(data), "", 0), "token")


DECODERS: dict[str, tuple[Callable[[bytes], object], tuple[type[Exception], ...]]] = {
    "command": (unpack, (InvalidRequest,)),
    "change": (decode_change, (Malformed,)),
    "member change": (decode_member_change, (InvalidRequest,)),
    "segment head": (head, (Corruption,)),
    "frame": (unpack_frame, (ProtocolError,)),
    "greeting": (greeted, (ProtocolError,)),
    "message": (lambda data: message_from_plain(unpack_frame(data)), (ProtocolError, Malformed)),
    "plain message": (lambda data: from_plain(unpack_frame(data)), (ProtocolError, InvalidRequest)),
    "error": (lambda data: decode_error(unpack_frame(data)), (ProtocolError,)),
    "refusal": (lambda data: refused(unpack_frame(data)), (ProtocolError,)),
    "hello": (lambda data: link_hello(unpack_frame(data)), (ProtocolError,)),
    "sent message": (lambda data: read_message(unpack_frame(data), 1, 2), (ProtocolError, Malformed)),
    "offer": (lambda data: read_offer(unpack_frame(data), 1, 2), (ProtocolError, Malformed)),
}
fields = st.lists(st.one_of(edges.plain_values.map(msgpack.packb), edges.deep_bytes), min_size=1, max_size=12)
arrays = fields.map(lambda packed: msgpack.Packer().pack_array_header(len(packed)) + b"".join(packed))


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None)
@given(data=edges.hostile_bytes | arrays)
def test_a_decoder_raises_its_own_errors_alone(name: str, data: bytes) -> None:
    decode, errors = DECODERS[name]
    try:
        decode(data)
    except errors as error:
        assert len(str(error)) < MESSAGE_CHARS_MAX


LARGE = st.sampled_from(
    (b"x" * 10_000, "x" * 10_000, {n: n for n in range(1000)}, ["x" * 1000] * 1000, msgpack.ExtType(5, b"x" * 10_000))
)
wide = st.recursive(LARGE, lambda inner: st.lists(inner, max_size=40), max_leaves=80)


@given(value=edges.plain_values | wide)
@example([[["x" * 100] * 6] * 6] * 6)
def test_what_is_shown_is_short(value: Any) -> None:
    assert len(shown(value)) <= SHOWN_CHARS_MAX + 3
    if type(value) in (int, bool, type(None)):
        assert shown(value) == repr(value)


def test_a_message_holds_no_more_entries_than_a_leader_sends() -> None:
    """A frame of 16 MiB may hold eight million empty ones, which took 1.1 GB."""
    def plain(count: int) -> list[Any]:
        return [int(MessageType.APPEND), 1, 2, 1, 1, 0, 0, [[1, 0, [b""] * count]], False, 0, b"", None]

    assert len(message_from_plain(plain(RaftConfig(NodeId(1)).append_bytes_max // ENTRY_BYTES + 1)).entries) == 65537
    with pytest.raises(Malformed, match="more than 131072 entries"):
        message_from_plain(plain(ENTRIES_MAX + 1))
