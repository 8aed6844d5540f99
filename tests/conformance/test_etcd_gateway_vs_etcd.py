"""The JSON gateway beside a real etcd's: the same bodies, the same status, content type, code and words."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from etcd_api import ours, real_etcd
from patience import PATIENCE_S, eventually

pytestmark = pytest.mark.original
CASES = int(os.environ.get("MINIKUBE_PY_ETCD_HISTORIES", "2")) * 250
LONG = "9" * 400
DEEP = [b'{"a":' + b"[" * levels + b"]" * levels + b"}" for levels in (5_000, 10_001)]
VALUES = r"""
"" "YQ==" "YQ" "Y" "YWI=" "YWI" "-_8=" "+/8=" "+_8=" "YQ=\n=" "YQ==\n" "YQ==YQ==" "YQ=" "YQ===" "====" "=" "é"
"a!b=" "YWJj!" "YW\u004a" "\ud800" "\ud800\u0041" "\udc00" "\ud83d\ude00" "\ud800\ud800\udc00" "a\/b=" null true
false 0 -0 0.0 -0.0 1 1.0 1.5 15e-1 10e-1 1e2 1E+2 1e400 1e-400 0e99999999999 -1 9223372036854775807
9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 1e18 1e19
1e20 2147483647 2147483648 -2147483648 -2147483649 "1" "1x" "1,2" "0x1" "1e2" "1.0" "-0" "01" "+1" "１" "NaN" "true"
"\u0031" "1\u00a0" [] [1] {} {"a":1} [[]] "NONE" "none" "ASCEND" "NOSUCH" "LEASE" ["YQ=="] [null] [0,1] [{}]
[{"key":"YQ=="}] {"key":"YQ=="} [[{"key":1}]]
"""
SPACED = [LONG, f'"{LONG}"', '" 1"', '"1 "', '"1 2"', '"Y W="']
FIELDS = [line.split(" ", 1) for line in r"""
kv/put {"key":%s}
kv/put {"key":"YQ==","value":%s}
kv/put {"key":"YQ==","lease":%s}
kv/put {"key":"YQ==","prevKv":%s}
kv/range {"é":1, "key":"YQ==","limit":%s}
cluster/member/remove {"ID":%s}
kv/txn {"compare":%s}
kv/txn {"success":%s}
cluster/member/update {"peerURLs":%s}
kv/range {"key":"YQ==","no":%s}
kv/txn {"compare":[{"key":"YQ==","target":%s,"version":1}]}
kv/txn {"compare":[{"key":"YQ==","target":"VERSION","version":%s,"value":"YQ=="}]}
kv/txn {"success":[{"request_range":%s}]}
kv/txn {"success":[{"requestTxn":%s,"requestPut":null}]}
kv/txn {"success":[{"request_put":{"key":"YQ=="},"request_range":%s}]}
kv/put %s
""".strip().splitlines()] + [["kv/range", '{"key":"YQ==",\n"sort_order":%s}']]
BODIES = [
    b"", b"{", b"}", b"[", b"nul", b"nulll", b"{} x", b"{}{}", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{,}",
    b'{"a":1 "b":2}', b'{"key":"YQ==","key":"Yg=="}', b'{"no":1,"no":2}', b'{"a":01}', b'{"a":1.}', b'{"a":-}',
    b'{"a":1e}', b'{"a":tru}', b'{"a":"\n"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"', b"{'a':1}", b'{"a":NaN}',
    b'{"lease":Infinity}', b'{"a":[1,2}', b'{"a":{"b":1]}', b"\xef\xbb\xbf{}", *DEEP, b'{"key":"YQ==","\\ud800":1}',
    b'{"key":"YQ==","a":"\xff"}', b'{"key":"YQ==","\xff":1}', b'{"@type":"x","key":"YQ=="}',
    b'{"[x.y]":1,"key":"YQ=="}', b'{"prevKv":true,"prev_kv":true}', b'{"KEY":"YQ=="}', b'\n\n {"key":\n  "!!"}',
    b'{"key":"YQ=="}garbage', b' \t\r\n{"key":"YQ=="}', b'{"key":"\x7f"}', b"/**/{}",
]  # fmt: skip
TIMEOUTS = "1S,0S,1,S,1s,-1S,+1S,1.5S,99999999H,9223372036854775807S,9223372036854775808S,1n,1u,x,1 S,0n,-0S,2562048H"
ENDLESS = (b"null", b"1", b"[]", b"{", b'{"create_request":1}', b'{"create_request":{"key":1}}',
           b'{"create_request":{}}null', b'{"create_request":{"start_revision":-1}}',
           b'{"create_request":{"filters":["NOPUT",5]}}')  # fmt: skip


class Side:
    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def close(self) -> None:
        self._connection.close()

    def ask(self, path: str, body: bytes, method: str = "POST", **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, sent)
        answer = self._connection.getresponse()
        told = [plain(json.loads(line)) for line in answer.read().replace(b"\xc2\xa0", b" ").splitlines()]
        return answer.status, answer.getheader("Content-Type"), told


def plain(found: Any) -> Any:
    """Without what is each server's own."""
    inner = found.get("result", found) if isinstance(found, dict) else found
    for name in ("cluster_id", "member_id", "raft_term"):
        inner.get("header", {}).pop(name, None)
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("etcd")
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(real_etcd(folder / "theirs"))
        server = stack.enter_context(ours(folder / "ours", http=True))
        ports = int(target.rpartition(":")[2]), server.http_port
        theirs, mine = (stack.enter_context(contextlib.closing(Side(port))) for port in ports)
        yield theirs, mine


def same(both: tuple[Side, Side], *asked: Any, **headers: str) -> Any:
    theirs, mine = (side.ask(*asked, **headers) for side in both)
    assert mine == theirs, (asked, headers)
    return theirs


def test_every_field_is_read_alike_at_its_edges(both: tuple[Side, Side]) -> None:
    cases = [(path, shape.replace("%s", value)) for path, shape in FIELDS for value in (*VALUES.split(), *SPACED)]
    drawn = random.Random(4).sample(cases, min(CASES, len(cases)))
    statuses = {same(both, f"/v3/{path}", body.encode())[0] for path, body in drawn}
    assert statuses >= {200, 400, 404}


def test_every_body_is_read_alike(both: tuple[Side, Side]) -> None:
    for body in BODIES:
        for path in ("kv/put", "kv/txn", "election/leader"):
            same(both, f"/v3/{path}", body)


def test_a_call_takes_no_longer_than_its_header_says(both: tuple[Side, Side]) -> None:
    for timeout in TIMEOUTS.split(","):
        same(both, "/v3/kv/range", b'{"key":"YQ=="}', Grpc_Timeout=timeout)
    for lease in (b"901", b"902"):
        same(both, "/v3/lease/grant", b'{"TTL":600,"ID":%s}' % lease)
    same(both, "/v3/lock/lock", b'{"name":"bGs=","lease":901}')
    for side in both:
        found = side.ask("/v3/lock/lock", b'{"name":"bGs=","lease":902}', Grpc_Timeout="300m")
        assert (found[0], found[2][0]["code"]) == (504, 4)
        asked = b'{"key":"bGsv","range_end":"bGsw","count_only":true}'
        eventually(
            lambda: side.ask("/v3/kv/range", asked)[2][0]["count"] == "1",  # noqa: B023
            "who waits no longer leaves no key",
        )


def test_streams_end_alike(both: tuple[Side, Side]) -> None:
    asked = [(path, body) for path in ("/v3/watch", "/v3/election/observe") for body in ENDLESS]

    def answered(port: int, path: str, body: bytes) -> Any:
        with contextlib.closing(Side(port)) as side:
            status, kind, told = side.ask(path, body, Grpc_Timeout="2S")
        # Go's server may have ended the stream before its client knew why.
        told[-1].get("error", {}).pop("message", None)
        return status, kind, told

    with ThreadPoolExecutor(2 * len(asked)) as pool:
        futures = [[pool.submit(answered, side.port, *each) for each in asked] for side in both]
    for each, theirs, mine in zip(asked, *futures):
        assert mine.result() == theirs.result(), each
    for body in (b'{"ID":901}', b'{"ID":901}{"ID":1}x', b'{"ID":5}', b'{"ID":"x"}', b"null", b""):
        same(both, "/v3/lease/keepalive", body)


def test_paths_and_methods_are_known_alike(both: tuple[Side, Side]) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD"):
        for path in ("/v3/kv/range", "/v3/kv/nothing"):
            same(both, path, b"{}", method)
    for path in ("kv/nothing", "", "kv/range/", "kv/range?x=1", "kv/Range", "auth/status"):
        same(both, f"/v3/{path}", b'{"key":"YQ=="}')
        same(both, f"/v3beta/{path}", b'{"key":"YQ=="}')


OF_THE_MEMBER = re.compile(r"etcd_(mvcc_db|server_(id|proposals|leader_changes))")
"""Their values depend on the member, whatever its data."""


def metrics(side: Side) -> set[str]:
    """The lines of etcd's names, with numbers written alike."""
    connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.getheader("Content-Type") or "").startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    told = [line.rpartition(" ") for line in lines if line.startswith("etcd_")]
    known = {line for line in lines if line.startswith(("# HELP etcd_", "# TYPE etcd_"))}
    return known | {f"{name} {float(value)}" for name, _, value in told}


def test_metrics_under_etcds_names_are_etcds(both: tuple[Side, Side]) -> None:
    for side in both:
        for name in ("put", "range"):
            side.ask(f"/v3/kv/{name}", b'{"key":"YQ=="}')
    theirs, mine = map(metrics, both)
    more = mine - theirs
    assert not {line for line in more if not OF_THE_MEMBER.match(line)}
    names = {line.partition(" ")[0].partition("{")[0] for line in theirs}
    assert {line.partition(" ")[0].partition("{")[0] for line in more} <= names
    assert len(mine) > 50
