"""etcd's JSON gateway and its health over HTTP: ours, and a real etcd's, which tells what they answer."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from etcd_api import ours, real_etcd
from patience import PATIENCE_S

FUTURE = "etcdserver: mvcc: required revision is a future revision"
Place = tuple[str, int]


@pytest.fixture(scope="module", params=["ours", pytest.param("etcd", marks=pytest.mark.original)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("etcd")
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            server = stack.enter_context(ours(folder, http=True))
            yield "127.0.0.1", server.http_port
        else:
            host, _, port = stack.enter_context(real_etcd(folder)).partition(":")
            yield host, int(port)


def ask(place: Place, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*place, timeout=PATIENCE_S)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"} | headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def post(place: Place, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    status, text = ask(place, "POST", path, body)
    return status, json.loads(text)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_whole_numbers_are_texts_and_what_is_zero_is_left_out(place: Place) -> None:
    code, put = post(place, "/v3/kv/put", {"key": b64(b"foo"), "value": b64(b"bar")})
    assert code == 200 and int(put["header"]["revision"]) > 1 and isinstance(put["header"]["cluster_id"], str)
    code, found = post(place, "/v3/kv/range", {"key": b64(b"foo")})
    (kv,) = found["kvs"]
    assert kv["value"] == b64(b"bar") and kv["version"] == "1" and found["count"] == "1"
    assert "lease" not in kv and "more" not in found
    # By either spelling of a name.
    for name in ("range_end", "rangeEnd"):
        assert post(place, "/v3/kv/range", {"key": b64(b"f"), name: b64(b"g")})[1]["count"] == "1"


def test_a_txn_with_one_inside(place: Place) -> None:
    inner = {"success": [{"request_range": {"key": b64(b"t")}}]}
    ops = [{"requestPut": {"key": b64(b"t"), "value": b64(b"1")}}, {"requestTxn": inner}]
    compare = [{"key": b64(b"t"), "target": "VERSION", "result": "EQUAL", "version": "0"}]
    code, found = post(place, "/v3/kv/txn", {"compare": compare, "success": ops})
    assert code == 200 and found["succeeded"]
    nested = found["responses"][1]["response_txn"]
    assert nested["responses"][0]["response_range"]["kvs"][0]["value"] == b64(b"1")


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "text"),
    [
        ("/v3/kv/range", {}, 400, 3, "etcdserver: key is not provided"),
        ("/v3/kv/range", {"key": "YQ==", "revision": "999"}, 400, 11, FUTURE),
        ("/v3/kv/put", {"key": "YQ==", "lease": "7"}, 404, 5, "etcdserver: requested lease not found"),
        ("/v3/lease/revoke", {"ID": "7"}, 404, 5, "etcdserver: requested lease not found"),
        ("/v3/kv/lease/revoke", {"ID": "7"}, 404, 5, "etcdserver: requested lease not found"),
        ("/v3/cluster/member/remove", {"ID": "7"}, 404, 5, "etcdserver: member not found"),
    ],
)  # fmt: skip
def test_errors_have_grpcs_code_and_etcds_words(
    place: Place, path: str, body: Any, status: int, code: int, text: str
) -> None:
    answered, found = post(place, path, body)
    assert (answered, found["code"], found["message"]) == (status, code, text)


def test_what_is_no_json_is_refused(place: Place) -> None:
    for body in (b"{", b"[]", b'{"key": 7.5}', b'{"limit": "x"}', b"\xff"):
        assert ask(place, "POST", "/v3/kv/range", body)[0] == 400
    assert ask(place, "POST", "/v3/kv/nothing", {})[0] == 404


def test_a_watch_gives_a_line_for_each_answer(place: Place) -> None:
    revision = int(post(place, "/v3/kv/put", {"key": b64(b"w"), "value": b64(b"1")})[1]["header"]["revision"])
    connection = http.client.HTTPConnection(*place, timeout=PATIENCE_S)
    asked = {"create_request": {"key": b64(b"w"), "start_revision": str(revision)}}
    connection.request("POST", "/v3/watch", json.dumps(asked))
    answer = connection.getresponse()
    created, first = json.loads(answer.readline())["result"], json.loads(answer.readline())["result"]
    assert created["created"] and first["events"][0]["kv"]["value"] == b64(b"1")
    post(place, "/v3/kv/deleterange", {"key": b64(b"w")})
    assert json.loads(answer.readline())["result"]["events"][0]["type"] == "DELETE"
    connection.close()


def test_health_and_version(place: Place) -> None:
    assert ask(place, "GET", "/health") == (200, '{"health":"true","reason":""}')
    assert ask(place, "GET", "/livez") == (200, "ok\n")
    for path in ("/livez/", "/readyz/", "/livez/linearizable_read"):
        assert ask(place, "GET", path)[0] == 404, path
    status, text = ask(place, "GET", "/readyz?verbose")
    lines = text.splitlines()
    assert status == 200 and lines[-1] == "ok" and "[+]linearizable_read ok" in lines and "[+]non_learner ok" in lines
    assert ask(place, "GET", "/readyz/serializable_read")[0] == 200
    assert ask(place, "GET", "/readyz/nothing")[0] == 404
    assert ask(place, "POST", "/version")[0] == 405
    versions = json.loads(ask(place, "GET", "/version")[1])
    assert sorted(versions) == ["etcdcluster", "etcdserver", "storage"]
    assert ask(place, "GET", "/metrics")[0] == 200


def test_a_body_is_read_as_it_comes_whatever_its_encoding_is_called(place: Place) -> None:
    """A text that says gzip, and gzip itself, which is no JSON."""
    body, said = json.dumps({"key": b64(b"none")}).encode(), {"Content-Encoding": "gzip"}
    assert ask(place, "POST", "/v3/kv/range", body, **said)[0] == 200
    assert ask(place, "POST", "/v3/kv/range", gzip.compress(body), **said)[0] == 400
