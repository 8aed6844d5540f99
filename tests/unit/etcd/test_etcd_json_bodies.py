"""JSON bodies of etcd's gateway: values one after another, read a slice at a time, and not too many of them."""

from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.http import timeout_s
from minikube_py.etcd.messages import pb
from minikube_py.etcd.proto_json import SLICE, VALUES_MAX, Values, Wrong, read, write


def steps(name: str, body: bytes) -> tuple[int, Any]:
    text = Values(body).next()
    assert text is not None
    reading, count = read(name, text), 0
    while True:
        try:
            next(reading)
        except StopIteration as ended:
            return count, ended.value
        count += 1


def test_values_follow_each_other_with_white_space_between() -> None:
    bodies = Values(b' {"key": "YQ=="}\n\t{"key": "Yg=="}{} \n')
    assert [bodies.next() for _ in range(4)] == ['{"key": "YQ=="}', '{"key": "Yg=="}', "{}", None]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "unexpected EOF"),
        (b"\xe3\x80\x80{}", "invalid character 'ã' looking for beginning of value"),
        (b'{"key": 7.5}', "proto: (line 1:9): invalid value for bytes field key: 7.5"),
        (b"[" * 10_002, "invalid character '[' exceeded max depth"),
        (b"null", "proto: syntax error (line 1:1): unexpected token null"),
        (b'{"key":"","\nlimit":[[1]]}', "invalid character '\\n' in string literal"),
        (b'{\n "key":"YQ",\n "limit":1e400}', "proto: (line 3:10): invalid value for int64 field limit: 1e400"),
        (b'{"sort_order":"NONE","sortOrder":0}', 'proto: (line 1:22): duplicate field "sortOrder"'),
    ],
)
def test_what_is_no_message_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(Wrong) as wrong:
        steps("RangeRequest", body)
    assert str(wrong.value) == words


def test_fields_and_names_that_nobody_knows_are_passed_over() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    _, message = steps("RangeRequest", b'{"a":%s,"key":"YQ==","sort_order":"NOSUCH","[x]":{"key":"Yg=="}}' % deep)
    assert message == pb.RangeRequest(key=b"a")


def test_long_bodies_are_read_in_slices_and_not_without_end() -> None:
    count, message = steps("WatchCreateRequest", b'{"filters":[%s0]}' % (b"1," * 9_999))
    assert len(message.filters) == 10_000 and count >= 10_000 // SLICE - 1
    assert steps("RangeRequest", b'{"a":[%s0]}' % (b"{}," * 9_999))[0] >= 10_000 // SLICE - 1
    with pytest.raises(Refused, match="more than 50,000 values") as refused:
        Values(b"{}" * (VALUES_MAX + 1)).next()
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_txns_are_nested_as_deeply_as_etcd_takes_them() -> None:
    body = b'{"success":[{"request_txn":' * 120 + b"{}" + b"}]}" * 120
    assert steps("TxnRequest", body)[1].success[0].request_txn
    with pytest.raises(Refused, match="too many operations"):
        steps("TxnRequest", b'{"success":[{"request_txn":' * 140 + b"{}" + b"}]}" * 140)


@given(st.binary(max_size=30), st.integers(-(1 << 63), (1 << 63) - 1), st.booleans())
def test_bytes_and_numbers_are_what_was_meant(data: bytes, number: int, for_urls: bool) -> None:
    text = (base64.urlsafe_b64encode if for_urls else base64.b64encode)(data)
    for key in (text, text.rstrip(b"=")):
        for limit in (b"%d", b'"%d"', b"%d.0", b"%de0"):
            _, message = steps("RangeRequest", b'{"key":"%s","limit":%s}' % (key, limit % number))
            assert (message.key, message.limit) == (data, number)


def test_how_long_a_call_may_take() -> None:
    assert [timeout_s(each) for each in ("", "0S", "1S", "+2m", "3u", "1H")] == [None, None, 1.0, 0.002, 3e-06, 3600.0]
    for past in ("-1S", "99999999H", "9223372036854775807S"):
        found = timeout_s(past)
        assert found is not None and found < 0
    for bad in ("1", "S", "1s", "1.5S", "9223372036854775808S", "x", "1 S"):
        with pytest.raises(Refused, match=f"invalid grpc-timeout: {bad}"):
            timeout_s(bad)


def test_a_wrong_surrogate_after_many_escapes_is_found_without_a_list_of_them() -> None:
    text = b'{"key":"' + b"\\u0041" * 100_000 + b'\\ud800"}'
    tracemalloc.start()
    try:
        with pytest.raises(Wrong, match=r"unexpected EOF|invalid escape code"):
            for _ in read("RangeRequest", text.decode("latin-1")):
                pass
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A match object for each takes ten times as much.
    assert peak_bytes < 8 * len(text)


def test_large_values_count_as_several_in_a_step() -> None:
    kvs = [pb.KeyValue(key=b"k", value=bytes(100_000)) for _ in range(20)]
    assert sum(1 for _ in write(pb.RangeResponse(kvs=kvs))) >= 6
