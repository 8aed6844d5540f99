"""JSON bodies of etcd's gateway: one object after another, read in one pass, and not too many of them."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseError
from grpc import StatusCode

from minikube_py.etcd.errors import Refused
from minikube_py.etcd.http import MESSAGES_MAX, _messages


def test_objects_follow_each_other_with_any_white_space_between() -> None:
    body = ' {"key": "YQ=="}\n\t{"key": "Yg=="}\u3000{} \n'.encode()
    assert [message.key for message in _messages("RangeRequest", body)] == [b"a", b"b", b""]
    assert list(_messages("RangeRequest", b" \n")) == []


@pytest.mark.parametrize("body", [b"{", b"{} x", b'{"key": 7.5}', b"[" * 100_000])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        list(_messages("RangeRequest", body))


def test_only_so_many_are_read() -> None:
    assert len(list(_messages("RangeRequest", b"{}" * MESSAGES_MAX))) == MESSAGES_MAX
    with pytest.raises(Refused, match="more than 1,000 messages") as refused:
        list(_messages("RangeRequest", b"{}" * 2_000_000))
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
