"""Whatever bytes hold, each decoder of the store's raises its own errors and no other: also of values that are nested
deeper than Python shows, whose message is bounded, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import Corruption, InvalidRequest, shown
from minikube_py.mvcc.codec import from_plain, unpack
from minikube_py.raft.codec import Malformed, decode_change, message_from_plain
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


@given(value=edges.plain_values)
def test_what_is_shown_is_short(value: Any) -> None:
    assert len(shown(value)) < MESSAGE_CHARS_MAX
    if type(value) in (int, bool, type(None)):
        assert shown(value) == repr(value)
