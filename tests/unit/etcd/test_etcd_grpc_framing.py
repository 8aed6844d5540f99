"""gRPC's own layer, without IO: messages out of any pieces, timeouts, statuses as trailers."""

from __future__ import annotations

import gzip
import itertools
import tracemalloc
from urllib.parse import unquote

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.grpc_framing import (
    HEAD_BYTES_MAX,
    Heads,
    Messages,
    Unreadable,
    framed,
    head_of,
    percent_encoded,
    timeout_of,
    trailers,
)
from minikube_py.http2.hpack import Block

MOST = 100


@given(
    st.lists(st.tuples(st.binary(max_size=MOST), st.booleans()), max_size=8), st.lists(st.integers(0, 900), max_size=20)
)
def test_messages_are_the_same_however_their_bytes_are_cut(sent: list[tuple[bytes, bool]], places: list[int]) -> None:
    data = b"".join(
        [
            b"\1" + framed(gzip.compress(each))[1:] if zipped and len(gzip.compress(each)) <= MOST else framed(each)
            for each, zipped in sent
        ]
    )
    edges = sorted({min(each, len(data)) for each in places} | {0, len(data)})
    messages = Messages(MOST, "gzip")
    found = [each for start, stop in itertools.pairwise(edges) for each in messages.receive(data[start:stop])]
    assert found == [each for each, _ in sent] and messages.held_bytes == 0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=10), st.integers(0, MOST))
def test_what_is_held_is_what_has_come_of_a_message(pieces: list[int], size: int) -> None:
    messages, data = Messages(MOST, ""), framed(bytes(size))
    at = 0
    for piece in pieces:
        whole = messages.receive(data[at : at + piece])
        at = min(at + piece, len(data))
        assert (whole, messages.held_bytes) == (([bytes(size)], 0) if at == len(data) else ([], at))
        if at == len(data):
            return


@pytest.mark.parametrize(
    ("data", "encoding", "code"),
    [
        (b"\0\0\0\0\x65", "", "RESOURCE_EXHAUSTED"),
        (b"\0\xff\xff\xff\xff", "", "RESOURCE_EXHAUSTED"),
        (b"\1\0\0\0\0", "", "INTERNAL"),
        (b"\1\0\0\0\0", "identity", "INTERNAL"),
        (b"\1\0\0\0\1a", "gzip", "INTERNAL"),
        (b"\1" + framed(gzip.compress(bytes(1 << 10), mtime=0))[1:], "gzip", "RESOURCE_EXHAUSTED"),
        (b"\1" + framed(gzip.compress(b"a", mtime=0)[:-3])[1:], "gzip", "INTERNAL"),
        (b"\2\0\0\0\0", "", "INTERNAL"),
        (b"\xff\0\0\0\0", "gzip", "INTERNAL"),
    ],
)
def test_a_message_that_cannot_be_taken_says_why(data: bytes, encoding: str, code: str) -> None:
    with pytest.raises(Unreadable) as refused:
        Messages(MOST, encoding).receive(data)
    assert refused.value.code.name == code and refused.value.text.startswith("grpc: ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9), ("00000000S", 0),
     ("99999999H", 359999996400)],
)  # fmt: skip
def test_timeouts_are_eight_digits_and_a_unit(text: str, seconds: float) -> None:
    assert timeout_of(text.encode()) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "-1S", "+1S", " 1S", "1_0S", "1.5S", "123456789S", "٣S"])
def test_other_timeouts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        timeout_of(text.encode())


@given(st.text())
def test_texts_go_through_trailers(text: str) -> None:
    whole = text.encode("utf-8", "replace").decode()
    coded = percent_encoded(text).decode("ascii")
    assert unquote(coded) == whole and coded.isprintable()
    fields = dict(hpack.Decoder().decode(trailers(StatusCode.ABORTED, text)))
    assert fields == {"grpc-status": "10"} | ({"grpc-message": coded} if text else {})
    head = head_of([(b":path", b"/a"), (b"content-type", b"text/plain")])
    fields = dict(hpack.Decoder().decode(head.answer + trailers(StatusCode.UNKNOWN, text)))
    assert fields[":status"] == "415" and fields["content-type"] == "application/grpc" and fields["grpc-status"] == "2"


@pytest.mark.parametrize("count", [1, 10, 20, 415])
def test_what_heads_keep_of_a_connection_is_bounded_in_memory(count: int) -> None:
    heads = Heads()
    usual = [(b":method", b"POST"), (b":path", b"/a"), (b"content-type", b"application/grpc"), (b":authority", b"a")]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(200):
            fields = [(b"k%d" % at, b"%d.%d" % (n, at)) for at in range(count)]
            head = heads.of(Block([*usual, *fields]))
            assert len(head.metadata) == count and head.refusal is None
            assert heads.of(Block([*usual, *fields])) == head
        del fields, head
        held_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held_bytes < 200_000


def test_a_block_keeps_its_head_unless_that_is_long() -> None:
    heads = Heads()
    for fields, kept in (([(b":path", b"/a")], True), ([(b"k", b"v" * HEAD_BYTES_MAX)], False)):
        block = Block(fields)
        head = heads.of(block)
        assert (block.meaning is head) is kept
