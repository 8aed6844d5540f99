# ruff: noqa: E501
"""Drawn raw bytes: what HTTP/1.1 connections can be sent, in all the forms that two readers could take for two things.

A draw is a connection: one or more messages, then a plain request that asks for the connection's end. What a server
makes of them is their fate: which statuses it answers, in which words it refuses, and whether it closes or waits.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hypothesis import strategies as st

TOKEN: Final = b"{TOKEN}"
"""Stands for the administrator's token of whichever server is asked."""
LAST: Final = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
QUIET_S: Final = 0.7
SURE_QUIET_S: Final = 4.0
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")
_REFUSAL: Final = re.compile(rb"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n(.*)\Z", re.S)

_USUAL_FIRST = 3
"""How often the usual is drawn, beside each oddity once."""


def _mostly(usual: bytes, *odd: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([usual] * max(len(odd) * _USUAL_FIRST, 1) + list(odd))


METHODS = _mostly(b"GET", b"HEAD", b"get", b"OPTIONS", b"G ET", b"", b"G(T", b"PRI", b"CONNECT", b"POST", b"DELETE", b"G\xc3T", b" GET", b"TRACE")
TARGETS = _mostly(
    b"/version", b"/nope", b"*", b"", b"//version", b"/version?x=%zz", b"/%zz", b"/%2e", b"http://x/version", b"http://y/version", b"HTTP://x", b"https://x?a",
    b"ftp://x/", b"x", b"/version#a", b"/ver sion", b"/\xc3\xa9", b"/\xff", b"/a\x00", b"/a\x7f", b"/a\tb", b"http://", b"http:///version", b"x:443", b"/version/", b"/a;b", b"/version?", b"?x", b"/[", b"http://[::1]/version", b"http://[/version", b"http://a b/", b"/../version", b"/./version",
)  # fmt: skip
VERSIONS = _mostly(b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/11", b"HTTP/1.10", b"http/1.1", b"HTTP/1.1 ", b"", b"HTTP/1", b"HTTP/1.", b"HTTP/3.0", b" HTTP/1.1", b"HTTP/01.1")
ENDS = _mostly(b"\r\n", b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\n\r")
HOSTS = _mostly(b"Host: x", b"", b"Host:", b"host: x", b"Host: a b", b"Host: x\r\nHost: x", b"Host: x\r\nHost: y", b"Host : x", b"Host: \"x\"", b"Host: x/y", b"Host: x:y:z", b"Host: [::1]", b"Host: \xc3\xa9", b"Host: a@b", b"Host: a%b", b"Host: x,y", b"Host:\tx", b"Host: a<b")
LENGTHS = st.sampled_from([
    b"2", b"02", b"+2", b"-2", b" 2 ", b"2,2", b"2, 2", b"", b"0", b"0x2", b"1", b"3", b"99", b"9223372036854775807", b"9223372036854775808", b"99999999999999999999", b"2a", b"2.0", b"\xb2", b"1_0", b"3145728", b"3145729",
])  # fmt: skip
CODINGS = st.sampled_from([b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"gzip", b"identity", b"", b" chunked ", b"\tchunked", b"chunked,", b"\x0bchunked", b"chunked;a=b", b"\"chunked\""])
CONNECTIONS = st.sampled_from([b"close", b"keep-alive", b"Keep-Alive", b"CLOSE", b"a, close", b"close, keep-alive", b"close,", b"closed", b"Upgrade", b"", b"upgrade, HTTP2-Settings", b"keep-alive, upgrade"])
EXPECTS = st.sampled_from([b"100-continue", b"100-Continue", b"tea", b"", b"100-continue, tea", b" 100-continue "])
ODD_LINES = st.sampled_from([
    b"A: 1\r\n 2", b"A: 1\r\n\t2", b" A: 1", b"A", b":", b": 1", b"A : 1", b"A\t: 1", b"A:1", b"A:", b"A: \x00", b"A: \x01", b"A: \x7f", b"A: \xff", b"A: \xc3\xa9", b"\xc3\xa9: 1", b"A b: 1", b"A(: 1", b"A: 1\n2: 3", b"A: 1\r2: 3", b"A_b: 1", b"Upgrade: websocket", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", b"Trailer: A", b"Trailer: Content-Length", b"TE: trailers", b"X: " + b"a" * 5000, b"Transfer-Encoding : chunked", b"Content-Length : 2", b"Transfer_Encoding: chunked", b"A: \x0b", b"A: 1 \t ", b"A:\r\n", b"Accept: application/yaml", b"Date: x", b"Via: 1.1 x", b"Pragma: no-cache", b"Sec-WebSocket-Key: x", b"Keep-Alive: timeout=1",
])  # fmt: skip
CHUNK_SIZES = _mostly(b"2", b"02", b"0002", b"2;a", b"2;a=b", b"2 ;a", b"2 ", b"2\t", b" 2", b"+2", b"-2", b"0x2", b"2x", b"", b"g", b"fffffffffffffffff", b"ffffffffffffffff", b"7fffffffffffffff", b"2;" + b"e" * 5000, b"2;a\rb", b"2\r", b"00000000000000002", b"2;\"\n", b"2;\x00", b"1", b"3", b"2,2")
CHUNK_ENDS = _mostly(b"\r\n", b"\n", b"\r", b"", b"\r\r\n", b"\n\r\n", b"x\r\n")
TRAILERS = _mostly(b"", b"A: 1\r\n", b"A: 1\n", b"Content-Length: 5\r\n", b"Host: y\r\n", b"A\r\n", b" A: 1\r\n", b"A : 1\r\n", b"A: 1\r\n 2\r\n", b"A: " + b"a" * 5000 + b"\r\n", b"A: \x00\r\n", b"\r", b"A: 1\r\r\n", b"A: b\r\n" * 300)


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(0, 2))
    parts = []
    for at in range(count):
        data = (b"{}" if at == 0 else b"  ") if draw(st.integers(0, 5)) else draw(st.binary(max_size=4))
        parts.append(draw(CHUNK_SIZES) + draw(CHUNK_ENDS) + data + draw(CHUNK_ENDS))
    last = draw(_mostly(b"0", b"00", b"0;a", b"-0", b"", b"0 ", b"0000000000000000000000"))
    return b"".join(parts) + last + draw(CHUNK_ENDS) + draw(TRAILERS) + draw(CHUNK_ENDS)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    with_body = draw(st.integers(0, 2)) > 0
    method = draw(METHODS) if not with_body else draw(_mostly(b"POST", b"PUT", b"GET", b"HEAD", b"DELETE", b"PATCH"))
    target = draw(TARGETS) if not with_body else draw(_mostly(REVIEW.encode(), b"/nope", b"/version", b"/api/v1/namespaces/none/pods"))
    lines = [draw(HOSTS)] if draw(st.integers(0, 3)) == 0 else [b"Host: x"]
    if draw(st.integers(0, 5)):
        lines.append(b"Authorization: Bearer " + TOKEN)
    body = b""
    if with_body:
        lines.append(b"Content-Type: application/json")
        framing = draw(st.integers(0, 7))
        if framing in (0, 1, 2, 7):
            lines.append(b"Content-Length: " + (b"2" if framing < 2 else draw(LENGTHS)))
            body = b"{}"
        if framing in (3, 4, 5, 6, 7):
            lines.append(b"Transfer-Encoding: " + (b"chunked" if framing < 6 else draw(CODINGS)))
            body = draw(chunked())
        if framing == 2 and draw(st.booleans()):
            lines.append(b"Content-Length: " + draw(LENGTHS))
        if framing == 6 and draw(st.booleans()):
            lines.append(b"Transfer-Encoding: " + draw(CODINGS))
    for odd, name in ((CONNECTIONS, b"Connection: "), (EXPECTS, b"Expect: "), (ODD_LINES, b"")):
        if draw(st.integers(0, 3)) == 0:
            lines.append(name + draw(odd))
    order = draw(st.permutations(lines)) if draw(st.integers(0, 3)) == 0 else lines
    end = draw(ENDS) if draw(st.integers(0, 5)) == 0 else b"\r\n"
    version = draw(VERSIONS) if draw(st.integers(0, 3)) == 0 else b"HTTP/1.1"
    sep = b" " if draw(st.integers(0, 15)) else draw(st.sampled_from([b"\t", b"  ", b"", b"\x0b"]))
    first = draw(_mostly(b"", b"\r\n", b"\n", b"\r\n\r\n", b" ", b"\r", b"\x16\x03"))
    return first + method + sep + target + b" " + version + end + b"".join(line + end for line in order if line) + end + body


connections = st.lists(messages(), min_size=1, max_size=3).map(b"".join)


class Fate(NamedTuple):
    """`refusal`: the words of the refusal that ended it, if one did. `closed`: by the server, at its own will."""

    statuses: tuple[int, ...]
    refusal: str
    closed: bool


class Rule(NamedTuple):
    """Ours refuses, with the reason, what upstream takes; what came before was answered alike."""

    name: str
    reason: str
    sent: re.Pattern[bytes]


STRICTER: Final = (
    Rule("folded header line", "RFC 9112, 5.2: a server may refuse it; who stands before may read it as two", re.compile(rb"\n[ \t]")),
    Rule("bare LF in a trailer", "ours asks of a trailer what upstream asks of the lines before chunks", re.compile(rb"[^\r]\n")),
)  # fmt: skip


def explained(sent: bytes, theirs: Fate, mine: Fate) -> str | None:
    """The rule by which ours may differ, "" where nothing differs, None where nothing explains it."""
    if theirs == mine:
        return ""
    # A body that cannot be read is its sender's mistake, not the server's: 400 where upstream says 500.
    as_ours = theirs._replace(statuses=tuple(400 if status == 500 else status for status in theirs.statuses))
    if as_ours == mine:
        return "a body that cannot be read"
    if mine.closed and (mine.statuses[-1:] == (400,) or not mine.refusal):
        before = mine.statuses[:-1] if mine.statuses[-1:] == (400,) else mine.statuses
        if as_ours.statuses[: len(before)] == before:
            return next((rule.name for rule in STRICTER if rule.sent.search(sent)), None)
    return None


class RawServer:
    """Connections of their own for each draw, over TLS without ALPN, as HTTP/1.1 clients open them."""

    def __init__(self, url: str, token: str) -> None:
        where = urlsplit(url)
        self._address = (where.hostname or "", where.port or 443)
        self._token = token.encode()
        self._context = ssl._create_unverified_context()

    def fate(self, sent: bytes, quiet_s: float = QUIET_S) -> Fate:
        """What becomes of a connection that is sent these bytes; it waits where nothing came for `quiet_s`."""
        with socket.create_connection(self._address, timeout=30) as plain, self._context.wrap_socket(plain) as sock:
            sock.suppress_ragged_eofs = True
            try:
                sock.sendall(sent.replace(TOKEN, self._token) + LAST)
            except OSError:
                pass
            received, closed = bytearray(), True
            try:
                for part in self._parts(sock, quiet_s):
                    received += part
            except TimeoutError:
                closed = False
            except OSError:
                pass
        found = _REFUSAL.search(bytes(received))
        refusal = found[1].decode("latin-1") if found else ""
        return Fate(tuple(int(status) for status in _STATUS.findall(received)), refusal, closed)

    @staticmethod
    def _parts(sock: ssl.SSLSocket, quiet_s: float) -> Iterator[bytes]:
        sock.settimeout(quiet_s)
        while part := sock.recv(1 << 16):
            yield part
