# ruff: noqa: E501
"""How bytes become requests: the same whatever pieces they come in, and refused as Go's net/http refuses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.apiserver.http1 import (
    CHUNKED,
    LISTS,
    LISTS_BYTES_MAX,
    PATH_BYTES_MAX,
    Head,
    Malformed,
    Refused,
    RequestReader,
)

GET = b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n"


def read_all(pieces: list[bytes]) -> list[tuple[Head, bytes]]:
    """The requests in these pieces; the last body may be unfinished."""
    reader = RequestReader(8192, 64)
    found: list[tuple[Head, bytearray]] = []
    reading = False
    for piece in pieces:
        reader.receive(piece)
        while True:
            if reading:
                while data := reader.data():
                    found[-1][1].extend(data)
                if not reader.body_ended:
                    break
                reading = False
            head = reader.head()
            if head is None:
                break
            found.append((head, bytearray()))
            reading = True
    return [(head, bytes(body)) for head, body in found]


def post(body: bytes, sizes: list[int] | None) -> bytes:
    """A request with its body in chunks of these sizes, or whole."""
    if sizes is None:
        return b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chunks, at = [], 0
    for size in [*sizes, len(body)]:
        part = body[at : at + size]
        chunks.append(b"%x\r\n%b\r\n" % (len(part), part) if part else b"")
        at += size
    return b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + b"0\r\nT: 1\r\n\r\n"


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.none() | st.lists(st.integers(1, 50), max_size=5)), max_size=4),
    st.lists(st.integers(1, 400), max_size=30),
)
def test_requests_are_the_same_in_whatever_pieces_they_come(
    bodies: list[tuple[bytes, list[int] | None]], cuts: list[int]
) -> None:
    text = b"".join(post(body, sizes) for body, sizes in bodies)
    pieces, at = [], 0
    for cut in [*cuts, len(text)]:
        pieces.append(text[at : at + cut])
        at += cut
    found = read_all(pieces)
    assert [body for _, body in found] == [body for body, _ in bodies]
    assert all((head.method, head.path, head.query) == ("POST", "/a", "b=c") for head, _ in found)


def test_a_head_of_one_byte_at_a_time_is_looked_at_once() -> None:
    reader = RequestReader(8192, 64)
    for index, byte in enumerate(GET):
        assert reader.head() is None
        assert reader._looked == index
        reader.receive(bytes((byte,)))
    head = reader.head()
    assert head is not None and head.path == "/api" and head.keep_alive and head.headers["host"] == "x"


def test_many_small_chunks_are_read_some_at_a_time() -> None:
    reader = RequestReader(8192, 64)
    reader.receive(post(b"x" * 5000, [1] * 5000))
    assert reader.head() is not None
    parts = []
    while not reader.body_ended:
        parts.append(reader.data())
        assert len(parts[-1]) <= 1024
    assert b"".join(parts) == b"x" * 5000 and len(parts) > 4


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "no request": (b"\x00\x01 garbage\r\n\r\n", 400, ""),
    "two words": (b"GET /\r\n\r\n", 400, ""),
    "no version": (b"GET / HTTX/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "another version": (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, "unsupported protocol version"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "missing required Host header"),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, ""),
    "a strange host": (b'GET / HTTP/1.1\r\nHost: "x"\r\n\r\n', 400, "malformed Host header"),
    "no colon": (b"GET / HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n", 400, ""),
    "a space before the colon": (b"GET / HTTP/1.1\r\nHost: x\r\nA : x\r\n\r\n", 400, "invalid header name"),
    "a space before the host's colon": (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, "missing required Host header"),
    "a length with a space before the colon": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n", 400, "invalid header name"),
    "a nul in a header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", 400, ""),
    "a length that is none": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, ""),
    "a length with a sign": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", 400, ""),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, ""),
    "gzip": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "Unsupported transfer encoding"),
    "two codings": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501, ""),
    "a broken escape": (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "no target": (b"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "a target without a scheme": (b"GET ://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "half a literal address": (b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "no address in brackets": (b"GET http://[1.2.3.4]/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "a port that is none": (b"GET http://x:y/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "a folded line": (b"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\n 2\r\n\r\n", 400, ""),
    "a blank line before": (b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""),
    "a path in the host": (b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400, "malformed Host header"),
    "a coding before a version": (b"GET / HTTP/2.0\r\nTransfer-Encoding: x\r\n\r\n", 505, ""),
    "a length beyond 63 bits": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775808\r\n\r\n", 400, ""),
    "an expectation": (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417, ""),
    "a long head": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000, 431, "the limit is 8192 bytes"),
    "a long whole head": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000 + b"\r\n\r\n", 431, "the limit is 8192 bytes"),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 70 + b"\r\n", 431, "the limit is 64 headers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_request_is_refused_as_the_original_does(name: str) -> None:
    sent, status, text = REFUSED[name]
    reader = RequestReader(8192, 64)
    reader.receive(sent)
    with pytest.raises(Refused) as refused:
        reader.head()
    assert refused.value.status == status and text in refused.value.text
    assert refused.value.answer().startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_read_item_by_item_is_bounded(name: str, split: bool) -> None:
    """120,000 commas took a third of a second, before anybody knew who asked."""
    values = ["," * 2048, "," * 2048] if split else ["," * LISTS_BYTES_MAX]
    lines = "".join(f"{name.title()}: {value}\r\n" for value in values)
    for more, refused in (("", False), (f"{name}: x\r\n", True)):
        reader = RequestReader(128 << 10, 64)
        reader.receive(f"GET / HTTP/1.1\r\nHost: x\r\n{lines}{more}X: {'x' * 100_000}\r\n\r\n".encode())
        if refused:
            with pytest.raises(Refused, match="431") as told:
                reader.head()
            assert told.value.text == f"the limit is 4096 bytes for the header {name}"
        else:
            assert reader.head() is not None


@pytest.mark.parametrize(("path", "status"), [("/" + "a" * (PATH_BYTES_MAX - 1), 0), ("/" + "%41" * 6000, 414)])
def test_a_path_is_bounded_and_its_query_is_not(path: str, status: int) -> None:
    reader = RequestReader(128 << 10, 64)
    reader.receive(f"GET {path}?labelSelector={'a' * 100_000} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    if status:
        with pytest.raises(Refused, match="414"):
            reader.head()
    else:
        assert reader.head() is not None


@pytest.mark.parametrize("body", [b"x\r\n", b"1\n", b"1\r\nab\r\n", b"1;" + b"x" * 5000, b"-1\r\n", b"1\r\rx\r\n", b"1 ;a\r\n", b"0\r\nA\r\n\r\n", b"0\r\n A: 1\r\n\r\n"])
def test_chunks_that_cannot_be_told_apart_are_malformed(body: bytes) -> None:
    reader = RequestReader(8192, 64)
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    head = reader.head()
    assert head is not None and head.length == CHUNKED
    with pytest.raises(Malformed):
        for _ in range(3):
            reader.data()


def test_chunks_may_not_hold_more_frame_than_data() -> None:
    reader = RequestReader(8192, 64)
    reader.receive(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1;%b\r\nx\r\n" % (b"e" * 1000) * 50)
    assert reader.head() is not None
    with pytest.raises(Malformed, match="too much non-data"):
        reader.data()


@pytest.mark.parametrize(
    ("lines", "keep_alive", "length", "continues"),
    [
        ("HTTP/1.1\r\nHost: x", True, 0, False),
        ("HTTP/1.0\r\nHost: x", False, 0, False),
        ("HTTP/1.0\r\nConnection: Keep-Alive", True, 0, False),
        ("HTTP/1.1\r\nHost: x\r\nConnection: a, Close", False, 0, False),
        ("HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\nExpect: 100-Continue", True, 5, True),
        ("HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked", False, CHUNKED, False),
        ("HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: a, 100-Continue", True, 5, True),
        ("HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect:", True, 5, False),
        ("HTTP/1.1\r\nHost: x\r\nConnection: a\r\nConnection: close", False, 0, False),
        ("HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", False, 5, False),
    ],
)
def test_what_a_head_says_of_its_connection_and_body(lines: str, keep_alive: bool, length: int, continues: bool) -> None:
    reader = RequestReader(8192, 64)
    reader.receive(f"POST / {lines}\r\n\r\n".encode())
    head = reader.head()
    assert head is not None
    assert (head.keep_alive, head.length, head.expects_continue) == (keep_alive, length, continues)


def test_heads_in_odd_but_allowed_forms() -> None:
    found = read_all([b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n\r\n\r\nGET http://host/a%20b?c=%zz HTTP/1.1\nHost: host\nA: 1\nA: 2 \n\n" + GET])
    assert [(head.path, head.query) for head, _ in found] == [("/p", ""), ("/a%20b", "c=%zz"), ("/api", "")]
    assert found[1][0].values("a") == ["1", "2"] and found[1][0].values("b") == []


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://h", "", ""),
        ("http://h?x", "", "x"),
        ("HTTPS://h:1?x=/api", "", "x=/api"),
        ("http://u:p@[::1%25a]:1/api", "/api", ""),
        ("ftp://a:b:1/api", "/api", ""),
        ("x:443", "", ""),
        ("*", "*", ""),
        ("http://h/?x", "/", "x"),
        ("http://h/api?x=/y?z", "/api", "x=/y?z"),
    ],
)
def test_the_absolute_form_of_a_target_keeps_its_query(target: str, path: str, query: str) -> None:
    [(head, _)] = read_all([f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()])
    assert (head.path, head.query) == (path, query)


_LINES = ["GET /a HTTP/1.1", "POST /b?c=d HTTP/1.1", "GET /a HTTP/1.0", "CONNECT x:1 HTTP/1.1", "CONNECT /p HTTP/1.1", "GET /a HTTP/2.0", "OPTIONS * HTTP/1.1"]
_HEADERS = [
    "Host: x\r\n", "Host: y\r\n", "", "Host: x\r\nConnection: close\r\n", "Host: x\r\nConnection: keep-alive\r\n", "Host: a b\r\n",
    "Host: x\r\nX: 1\r\nx: 2\r\n", "Host: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n", "Host: x\r\nTransfer-Encoding: gzip\r\n",
    "Host: x\r\nHost: x\r\n", "Host: x\r\nbad name: 1\r\n", f"Host: x\r\nLong: {'y' * 3000}\r\n",
]  # fmt: skip


def _read(reader: RequestReader, data: bytes) -> Head | tuple[int, str, str] | None:
    reader.receive(data)
    try:
        return reader.head()
    except Refused as refused:
        return refused.status, refused.reason, refused.text


@given(st.lists(st.tuples(st.sampled_from(_LINES), st.sampled_from(_HEADERS)), min_size=2, max_size=8))
def test_a_head_is_read_the_same_whatever_came_before_it(requests: list[tuple[str, str]]) -> None:
    used = RequestReader(8192, 64)
    for line, headers in requests:
        data = f"{line}\r\n{headers}\r\n".encode()
        fresh = _read(RequestReader(8192, 64), data)
        assert _read(used, data) == fresh
        if not isinstance(fresh, Head):
            # The connection of what is refused ends.
            used = RequestReader(8192, 64)


def test_bytes_of_a_target_that_are_no_character_are_replaced_one_by_one_as_go_does() -> None:
    [(head, _)] = read_all([b"GET /caf\xc3\xa9/\xe2\x82/x?a=\xf0\x9f\x98 HTTP/1.1\r\nHost: x\r\n\r\n"])
    assert (head.path, head.query) == ("/caf\u00e9/\ufffd\ufffd/x", "a=\ufffd\ufffd\ufffd")
