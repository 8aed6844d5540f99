"""Requests as frames, some of them odd, to a real etcd and to ours: how each is answered, field by field."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawn_frames import DrawnFrames
from etcd_api import ours, real_etcd
from http2_peer import DATA, HEADERS, PING, REQUEST, SETTINGS, RawPeer, block, frame, message, request
from patience import PATIENCE_S

from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original("etcd")

CALLS = int(os.environ.get("MINIKUBE_PY_ETCD_CALLS", "400"))

GET = message(pb.RangeRequest(key=b"none").SerializeToString())
PUT = message(pb.PutRequest(key=b"a", value=b"1").SerializeToString())
BODY = frame(DATA, 1, 1, GET)
OTHER = "grpc.health.v1.Health/Check"
WITHOUT_HOST = [each for each in REQUEST if each[0] != ":authority"]


def path(name: str) -> bytes:
    return request(1, path=name)


CASES: dict[str, bytes] = {
    "a get": request(1) + BODY,
    "in two frames": request(1) + frame(DATA, 0, 1, GET[:3]) + frame(DATA, 1, 1, GET[3:]),
    "without the end of its stream": request(1) + frame(DATA, 0, 1, GET),
    "with an end of its own": request(1) + frame(DATA, 0, 1, GET) + frame(DATA, 1, 1),
    "padded": request(1) + frame(DATA, 9, 1, b"\x03" + GET + bytes(3)),
    "headers in two frames": frame(HEADERS, 0, 1, block(*REQUEST[:3])) + frame(9, 4, 1, block(*REQUEST[3:])) + BODY,
    "two messages": request(1) + frame(DATA, 1, 1, GET + GET),
    "no message, by an empty frame": request(1) + frame(DATA, 1, 1),
    "half a message": request(1) + frame(DATA, 1, 1, GET[:-1]),
    "half a prefix": request(1) + frame(DATA, 1, 1, GET[:3]),
    "a message too large": request(1) + frame(DATA, 0, 1, b"\0\x00\x20\x00\x01"),
    "a message far too large": request(1) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"),
    "one that says it is compressed": request(1) + frame(DATA, 1, 1, b"\x01" + GET[1:]),
    "compressed by identity": request(1, ("grpc-encoding", "identity")) + frame(DATA, 1, 1, b"\x01" + GET[1:]),
    "an encoding of identity": request(1, ("grpc-encoding", "identity")) + BODY,
    "an encoding of gzip": request(1, ("grpc-encoding", "gzip")) + BODY,
    "compressed by gzip": request(1, ("grpc-encoding", "gzip"))
    + frame(DATA, 1, 1, b"\x01" + message(gzip.compress(GET[5:], mtime=0))[1:]),
    "compressed by gzip, and larger than it may be": request(1, ("grpc-encoding", "gzip"))
    + frame(DATA, 1, 1, b"\x01" + message(gzip.compress(bytes(3 << 20), mtime=0))[1:]),
    "compressed by something else": request(1, ("grpc-encoding", "gzip")) + frame(DATA, 1, 1, b"\x01" + GET[1:]),
    "an unknown encoding": request(1, ("grpc-encoding", "x\"y")) + BODY,
    "an unknown format": request(1) + frame(DATA, 1, 1, b"\x02" + GET[1:]),
    "a message that does not read": request(1) + frame(DATA, 1, 1, message(b"\xff")),
    "an unknown service": path("/a.B/C") + BODY,
    "an unknown method": path("/etcdserverpb.KV/C") + BODY,
    "no service": path("/C") + BODY,
    "no slash": path("C") + BODY,
    "two slashes": path("//") + BODY,
    "odd letters": path("/etcdserverpb.KV/é%\"") + BODY,
    "no content type": request(1, content_type="") + BODY,
    "a content type of the web": request(1, content_type="application/json") + BODY,
    "a content type like it": request(1, content_type="application/grpcx") + BODY,
    "one with a subtype": request(1, content_type="application/grpc+proto") + BODY,
    "one with parameters": request(1, content_type="application/grpc;charset=utf-8") + BODY,
    "one with an empty subtype": request(1, content_type="application/grpc+") + BODY,
    "GET": request(1, method="GET") + BODY,
    "no te": request(1, te="") + BODY,
    "another te": request(1, te="gzip") + BODY,
    "https": request(1, scheme="https") + BODY,
    "no authority": frame(HEADERS, 4, 1, block(*WITHOUT_HOST)) + BODY,
    "a host for it": frame(HEADERS, 4, 1, block(*WITHOUT_HOST, ("host", "a"))) + BODY,
    "two hosts": request(1, ("host", "a"), ("host", "b")) + BODY,
    "a connection field": request(1, ("connection", "close")) + BODY,
    "capital letters": request(1, ("A", "b")) + BODY,
    "a binary field": request(1, ("x-bin", "AAA=")) + BODY,
    "a binary field without padding": request(1, ("x-bin", "AAA")) + BODY,
    "a binary field that is none": request(1, ("x-bin", "A")) + BODY,
    "a leader wanted": request(1, ("hasleader", "true")) + BODY,
    **{
        f"a timeout of {each!r}": request(1, ("grpc-timeout", each)) + BODY
        for each in ("10S", "99999999H", "1M", "0m", "", "S", "1", "1s", "-1S", "1.5S", "123456789S", "99999999n",
                     "+1S", "１S")
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    folder: Path = tmp_path_factory.mktemp("frames")
    with real_etcd(folder / "theirs") as place, ours(folder / "ours") as server:
        yield int(place.rpartition(":")[2]), server.port


def plain(found: dict[str, str]) -> dict[str, str]:
    """Go's protobuf has a blank of one kind or another, and its gRPC says that there is no message. etcd compresses its
    answers to who compresses, which ours leaves. What is wrong with base64 or gzip has words of Go's."""
    text = found.pop("grpc-message", "").replace("%C2%A0", " ").partition(" at input byte")[0]
    text = text.partition("failed to decompress the")[0]
    found.pop("grpc-encoding", None)
    return found | {"grpc-message": text}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_answered_alike(both: tuple[int, int], case: str) -> None:
    found = []
    for port in both:
        with RawPeer(port, PATIENCE_S) as peer:
            peer.send(CASES[case])
            found.append(plain(peer.answer(1)))
    theirs, ours_ = found
    assert ours_ == theirs


def test_drawn_calls_are_answered_alike(both: tuple[int, int]) -> None:
    """Another seed may find the one known difference: Python's protobuf reads no tag of more than five bytes."""
    drawn, wrong, codes = DrawnFrames(int(os.environ.get("MINIKUBE_PY_SEED", "1"))), [], set()
    for n in range(CALLS):
        call = drawn.call()
        found = []
        for port in both:
            with RawPeer(port, PATIENCE_S) as peer:
                peer.send(call)
                found.append(plain(peer.answer(1)))
        codes.add(found[0].get("grpc-status", "none"))
        if found[0] != found[1]:
            wrong.append(f"call {n}: {call!r:.1500}\n  etcd: {found[0]}\n  ours: {found[1]}")
    assert not wrong, f"{len(wrong)} of {CALLS} calls\n" + "\n".join(sorted(wrong, key=len)[:20])
    assert len(codes) > 4, codes


PAIRS: dict[str, bytes] = {
    "two at once": request(1) + request(3) + frame(DATA, 1, 3, GET) + frame(DATA, 1, 1, GET),
    "one reset": request(1) + frame(3, 0, 1, bytes(4)) + request(3) + frame(DATA, 1, 3, GET),
    "one malformed": request(1, te="gzip") + request(3) + frame(DATA, 1, 3, GET),
    "one that comes twice": request(1) + BODY + request(1) + request(3) + frame(DATA, 1, 3, GET),
    "a lower number": request(5) + request(3) + frame(DATA, 1, 3, GET),
    "an even number": request(2) + request(3) + frame(DATA, 1, 3, GET),
    "a ping": frame(PING, 0, 0, bytes(8)) + request(3) + frame(DATA, 1, 3, GET),
    "three pings": frame(PING, 0, 0, bytes(8)) * 3 + request(3) + frame(DATA, 1, 3, GET),
    "four pings": frame(PING, 0, 0, bytes(8)) * 4 + request(3) + frame(DATA, 1, 3, GET),
    "a table of nothing": frame(SETTINGS, 0, 0, b"\0\x01\0\0\0\0") + request(3) + frame(DATA, 1, 3, GET),
    "more data than the window": request(1) + b"".join([frame(DATA, 0, 1, bytes(16_384))] * 5) + request(3)
    + frame(DATA, 1, 3, GET),
    "a block that does not read": frame(HEADERS, 5, 1, b"\xff") + request(3) + frame(DATA, 1, 3, GET),
    "an unknown frame": frame(77, 0, 1, bytes(4)) + request(3) + frame(DATA, 1, 3, GET),
    "a frame too large": frame(DATA, 0, 1, bytes(16_385)),
}  # fmt: skip


def ended(found: dict[str, str]) -> str:
    """Whether it was served. Go ends some connections without a word, or with another code than RFC 9113 asks for."""
    return "served" if found.get("grpc-status") == "0" else "not served"


@pytest.mark.parametrize("case", PAIRS)
def test_what_comes_before_a_request_ends_the_connection_or_does_not_alike(both: tuple[int, int], case: str) -> None:
    found = []
    for port in both:
        with RawPeer(port, PATIENCE_S) as peer:
            peer.send(PAIRS[case])
            found.append(ended(peer.answer(3)))
    theirs, ours_ = found
    assert ours_ == theirs


STRICT: dict[str, bytes] = {
    "a setting that is wrong": frame(SETTINGS, 0, 0, b"\0\x02\0\0\0\x02") + request(3) + frame(DATA, 1, 3, GET),
    "data of no stream": frame(DATA, 0, 1, b"a") + request(3) + frame(DATA, 1, 3, GET),
    "a promise": frame(5, 4, 1, bytes(4)) + request(3) + frame(DATA, 1, 3, GET),
}  # fmt: skip
"""What RFC 9113 calls an error of the connection, and Go's gRPC passes over."""


@pytest.mark.parametrize("case", STRICT)
def test_ours_ends_a_connection_where_the_standard_says_so_and_etcd_does_not(both: tuple[int, int], case: str) -> None:
    found = []
    for port in both:
        with RawPeer(port, PATIENCE_S) as peer:
            peer.send(STRICT[case])
            found.append(ended(peer.answer(3)))
    assert found == ["served", "not served"]


@pytest.mark.parametrize(
    "field", [("keep-alive", "1"), ("proxy-connection", "a"), ("x-a", " b "), ("grpc-timeout", "1S ")]
)
def test_ours_resets_a_stream_whose_fields_the_standard_forbids(both: tuple[int, int], field: tuple[str, str]) -> None:
    """RFC 9113 8.2: fields of HTTP/1 connections, and blanks around values. Go's gRPC takes them as they are."""
    with RawPeer(both[1], PATIENCE_S) as peer:
        peer.send(request(1, field) + BODY)
        assert peer.answer(1) == {"code": "1"}


def test_a_request_without_a_message_is_told_so_where_etcd_lets_it_wait(both: tuple[int, int]) -> None:
    with RawPeer(both[1], PATIENCE_S) as peer:
        peer.send(request(1, end=True))
        found = peer.answer(1)
    assert (found["grpc-status"], found["grpc-message"]) == ("2", "EOF")


def test_trailers_are_passed_over_where_etcd_ends_the_connection(both: tuple[int, int]) -> None:
    with RawPeer(both[1], PATIENCE_S) as peer:
        peer.send(request(1) + frame(DATA, 0, 1, GET) + frame(HEADERS, 5, 1, block(("a", "b"))))
        assert ended(peer.answer(1)) == "served"
