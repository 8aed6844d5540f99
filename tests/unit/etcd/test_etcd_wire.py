"""Messages as Go reads them, and those that are none; peers' addresses; txns within txns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikube_py.etcd import wire
from minikube_py.etcd.cluster import Cluster
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.kv import NESTED_MAX, tree_of, txn_of
from minikube_py.etcd.messages import pb


def refused(call: Callable[[], object]) -> tuple[object, str]:
    with pytest.raises(Refused) as raised:
        call()
    return raised.value.code, raised.value.text


def test_a_message_is_read_and_garbage_refused_in_gos_words() -> None:
    request = pb.PutRequest(key=b"\xff" * 20, value=b"v", lease=-1)
    assert wire.read(pb.PutRequest, request.SerializeToString()) == request
    for data in (
        b"\xff",
        b"\x0a\x05ab",
        b"\x0b",
        b"\x0c",
        b"\0",
        b"\x18" + b"\xff" * 9 + b"\x7f",
        b"\x18" + b"\xff" * 11,
    ):
        code, text = refused(lambda: wire.read(pb.PutRequest, data))  # noqa: B023
        assert (code, text) == (StatusCode.INTERNAL, f"{wire.UNARY}: {wire.MALFORMED}"), data
    code, text = refused(lambda: wire.read(pb.MemberAddRequest, b"\x0a\x01\xff", wire.STREAM))
    assert text == f"{wire.STREAM}: {wire.NOT_UTF8}"


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert wire.read(pb.PutRequest, b"\x0a\x01k\xa2\x06\x05\xff\xff\xff\xff\xff").key == b"k"
    assert wire.read(pb.PutRequest, b"\x83\x10\x08\x01\x84\x10\x0a\x01k\x92\x06\x05\xff\xff\xff\xff\xff").key == b"k"


def nested(levels: int, width: int = 1) -> bytes:
    data: bytes = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k"))]).SerializeToString()
    for _ in range(levels):
        data = pb.TxnRequest(success=[pb.RequestOp(request_txn=data)] * width).SerializeToString()
    return data


def test_txns_within_txns_are_read_first_and_bounded() -> None:
    assert len(txn_of(tree_of(pb.TxnRequest.FromString(nested(3))), 128).success) == 1
    for data in (nested(200), nested(2, 100), nested(1, 129)):
        code, text = refused(lambda: txn_of(tree_of(pb.TxnRequest.FromString(data)), 128))  # noqa: B023
        assert (code, text) == (StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
    assert NESTED_MAX < 100 * 100
    # A key that lacks is found later than bytes that are no message.
    bad = [pb.RequestOp(request_put=pb.PutRequest()), pb.RequestOp(request_txn=b"\xff")]
    assert refused(lambda: tree_of(pb.TxnRequest(success=bad)))[0] is StatusCode.INTERNAL


@pytest.mark.parametrize(
    "url",
    ["http://\0:1", "http://h", "h:1", "", "http://h:1/", "ftp://h:1", "http://u@h:1", "http://h:1?x=1", "http://h :1",
     "http://:1", "http://h:", "http://h:0", "http://h:65536", "http://h:99999999999", "http://[::1:1", "http://[1::2::3]:1",
     "http://é:1", "http://\ud800:1", "http://h:１", "http://" + "a" * 300 + ":1"],
)  # fmt: skip
def test_a_peer_has_a_host_and_a_port_and_nothing_else(url: str) -> None:
    code, text = refused(lambda: Cluster._peer([url]))
    assert (code, text) == (StatusCode.INVALID_ARGUMENT, "etcdserver: given member URLs are invalid")


def test_a_peers_address_is_taken_as_it_is_meant() -> None:
    for url, peer in (
        ("https://H-1.b_c:2380", "h-1.b_c:2380"),
        (" http://[::1]:1", "[::1]:1"),
        ("HTTP://h:0080", "h:80"),
    ):
        assert Cluster._peer([url]) == peer
    assert refused(lambda: Cluster._peer(["http://a:1", "http://b:1"]))[0] is StatusCode.INVALID_ARGUMENT
