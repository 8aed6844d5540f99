"""HTTP/1.1 as a server reads it, without IO: bytes in, heads and parts of bodies out.

Errors are those of Go's net/http: plain text, then the connection closes. Ambiguous messages are read strictly (one
Transfer-Encoding, whole CRLF in chunks).

Source: Go net/http (server.go, request.go, transfer.go, internal/chunked.go), RFC 9112.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from minikube_py.api.go_format import go_text

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rf"({_TOKEN}) ([\x21-\x7e\x80-\xff]+) HTTP/([0-9])\.([0-9])")
_FIELDS: Final = re.compile(rf"(?:{_TOKEN}:[^\x00-\x08\x0a-\x1f\x7f]*+\r?\n)*+")
_FIELD: Final = re.compile(rf"({_TOKEN}):[ \t]*([^\r\n]*)\r?\n")
_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z][ !#$%&'*+\-.^_`|~0-9A-Za-z]*+"
_BLANK_NAMES: Final = re.compile(rf"(?:{_NAME}:[^\x00-\x08\x0a-\x1f\x7f]*+\r?\n)*+")
"""Go parses names with blanks, and rejects them with a separate message after all other checks."""
_HOST: Final = re.compile(r"[!$%&'()*+,\-.0-9:;=A-Z\[\]_a-z~]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+\-.]*)?:")
_USER: Final = re.compile(r"(?:[A-Za-z0-9\-._:~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
_IN_HOST: Final = r"""(?:[A-Za-z0-9\-._~!$&'()*+,;=<>"\[\]\x80-\xff]|%(?:25|[89A-Fa-f][0-9A-Fa-f]))*"""
_AUTHORITY: Final = re.compile(rf"{_IN_HOST}(?::[0-9]*)?")
_LOOSE_AUTHORITY: Final = re.compile(rf"(?:{_IN_HOST}:)*{_IN_HOST}(?::[0-9]*)?")
_LITERAL: Final = re.compile(r"\[([^\[\]%]*)(%25(?:[^%]|%[0-9A-Fa-f]{2})*)?\](?::[0-9]*)?")
_CONTINUES: Final = re.compile(r"(?:.*[ ,\t])?100-continue(?:[ ,\t].*)?", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,400}")
_LENGTH_MAX: Final = (1 << 63) - 1
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*|;[^\r\n]*)")
_TRAILER: Final = re.compile(rf"{_NAME}:[^\x00-\x08\x0a-\x1f\x7f]*\r\n".encode())
_BLANK_BYTES_MAX: Final = 4
CHUNK_LINE_BYTES_MAX: Final = 4096
"""As Go's: the line before a chunk, and each line of a trailer."""
TRAILER_BYTES_MAX: Final = 8192
CHUNKS_READ_MAX: Final = 512
"""Chunks read by one call of `data`: a body may come in chunks of one byte."""
_EXCESS_BYTES_MAX: Final = 16 << 10
"""As Go's: what lines before chunks may hold beyond 16 bytes and twice the data."""
CHUNKED: Final = -1
PATH_BYTES_MAX: Final = 16 << 10
"""Names of 253 characters, escaped, a dozen of them. It is taken apart before anybody knows who asks."""
LISTS: Final = (
    "accept", "accept-encoding", "connection", "content-type", "if-none-match", "sec-websocket-protocol", "upgrade",
    "x-forwarded-for",
)  # fmt: skip
LISTS_BYTES_MAX: Final = 4096
"""Of each of the LISTS, whose items are read one by one; those of kubectl and of browsers have some 300 bytes."""
_KEPT_LENGTH_MAX: Final = 2048
"""Size of headers cached for a connection's next request, which mostly repeats them."""


class Refused(Exception):
    """Not an HTTP request. `text`, if any, follows the status; then the connection is closed."""

    def __init__(self, status: int, reason: str, text: str = "") -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.text = text

    def answer(self) -> bytes:
        if self.status == 417:
            return b"HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        first = f"{self.status} {self.reason}"
        if self.text and self.status != 501:
            first = f"{first}: {self.text}"
        body = self.text if self.status == 501 else first
        return (
            f"HTTP/1.1 {first}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{body}"
        ).encode()


class Malformed(ValueError):
    """A body with malformed chunks. The connection cannot be reused."""


class Head(NamedTuple):
    """`headers` have names in lower case, and of repeated names the first value; `repeated` has the further ones.

    `length` is that of the body; CHUNKED if unknown. `minor` is that of HTTP/1.x."""

    method: str
    path: str
    query: str
    minor: int
    headers: Mapping[str, str]
    repeated: tuple[tuple[str, str], ...]
    length: int
    keep_alive: bool
    expects_continue: bool

    def values(self, name: str) -> list[str]:
        """All values of a header, in order; `name` in lower case."""
        found = [self.headers[name]] if name in self.headers else []
        return found + [value for key, value in self.repeated if key == name] if self.repeated else found


class RequestReader:
    """The requests of one connection, one after another: a head, then its body, then the next head.

    `head_bytes_max` bounds a head (request line and headers), `headers_max` the number of headers."""

    __slots__ = ("_after_post", "_buffer", "_chunk", "_excess", "_headers_max", "_kept", "_kept_as", "_left",
                 "_looked", "_trailer", "has_more", "head_bytes_max")  # fmt: skip

    def __init__(self, head_bytes_max: int, headers_max: int) -> None:
        self.head_bytes_max = head_bytes_max
        self._headers_max = headers_max
        self._buffer = bytearray()
        self._looked = 0
        self._after_post = False
        self._left = 0
        self._chunk = False
        self._trailer = 0
        self._excess = 0
        self._kept: Head | None = None
        self._kept_as = ("", "")
        self.has_more = False
        """Whether `data` stopped at CHUNKS_READ_MAX with bytes left."""

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        self._buffer += data

    # --- heads ------------------------------------------------------------------------------------------------------

    def head(self) -> Head | None:
        """The next request's head, once it is whole. The body before must have been read. Raises: Refused."""
        buffer = self._buffer
        if self._after_post and not self._looked:
            # Old clients send an empty line after a body.
            start = bytes(buffer[:_BLANK_BYTES_MAX])
            if len(start) < _BLANK_BYTES_MAX and not start.strip(b"\r\n"):
                return None
            del buffer[: len(start) - len(start.lstrip(b"\r\n"))]
        end = self._head_end()
        if end < 0 or end > self.head_bytes_max:
            if end > 0 or len(buffer) > self.head_bytes_max:
                text = f"the limit is {self.head_bytes_max} bytes for the request line and all headers"
                raise Refused(431, "Request Header Fields Too Large", text)
            return None
        text = buffer[:end].decode("latin-1")
        del buffer[:end]
        self._looked = 0
        line, _, fields = text.partition("\n")
        head = self._parse(line.removesuffix("\r"), fields)
        self._chunk = head.length == CHUNKED
        self._left = 0 if self._chunk else head.length
        self._trailer = 0
        self._excess = 0
        return head

    def _head_end(self) -> int:
        """The end of the empty line, -1 if not received. Resumes where the last scan ended."""
        buffer = self._buffer
        start = max(self._looked - 3, 0)
        wide, narrow = buffer.find(b"\n\r\n", start), buffer.find(b"\n\n", start)
        self._looked = len(buffer)
        if wide >= 0 and (narrow < 0 or wide < narrow):
            return wide + 3
        return narrow + 2 if narrow >= 0 else -1

    def _parse(self, line: str, fields: str) -> Head:
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            raise Refused(400, "Bad Request")
        method, target, major, minor = match.groups()
        if len(target.partition("?")[0]) > PATH_BYTES_MAX:
            raise Refused(414, "URI Too Long", f"the limit is {PATH_BYTES_MAX} bytes for a path")
        path, query = _split_target(target, method == "CONNECT" and not target.startswith("/"))
        self._after_post = method == "POST"
        if self._kept is not None and self._kept_as == (minor, fields) and major == "1" and method != "CONNECT":
            return Head(method, path, query, *self._kept[3:])
        headers, repeated, sound = self._fields(fields[: -2 if fields.endswith("\r\n") else -1])
        modern = minor != "0"
        if repeated and any(name == "host" for name, _ in repeated):
            raise Refused(400, "Bad Request")
        if len(fields) > LISTS_BYTES_MAX:
            _check_lists(headers, repeated)
        length, sure = _length(headers, repeated, modern)
        if major != "1":
            raise Refused(505, "HTTP Version Not Supported", "unsupported protocol version")
        _check_host(headers, modern and method != "CONNECT")
        if not sound:
            raise Refused(400, "Bad Request", "invalid header name")
        connection = headers.get("connection")
        keep_alive = modern and sure
        if connection is not None:
            options = _options(headers, repeated)
            keep_alive = sure and "close" not in options and (modern or "keep-alive" in options)
        continues = False
        if expect := headers.get("expect"):
            if _CONTINUES.fullmatch(expect) is None:
                raise Refused(417, "Expectation Failed")
            continues = modern and length != 0
        found = Head(method, path, query, int(minor), headers, repeated, length, keep_alive, continues)
        if method != "CONNECT" and len(fields) <= _KEPT_LENGTH_MAX:
            self._kept, self._kept_as = found, (minor, fields)
        return found

    def _fields(self, text: str) -> tuple[dict[str, str], tuple[tuple[str, str], ...], bool]:
        """Headers, repeated headers, and whether all names are valid. Raises: Refused."""
        if text.count("\n") > self._headers_max:
            raise Refused(431, "Request Header Fields Too Large", f"the limit is {self._headers_max} headers")
        whole = _FIELDS.match(text)
        sound = whole is not None and whole.end() == len(text)
        if not sound and _BLANK_NAMES.fullmatch(text) is None:
            raise Refused(400, "Bad Request")
        headers: dict[str, str] = {}
        repeated: list[tuple[str, str]] = []
        for name, value in _FIELD.findall(text):
            key = name.lower()
            if key in headers:
                repeated.append((key, value.rstrip(" \t")))
            else:
                headers[key] = value.rstrip(" \t")
        return headers, tuple(repeated), sound

    def rest(self) -> bytes:
        """Remaining bytes, after a protocol upgrade."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest

    # --- bodies -----------------------------------------------------------------------------------------------------

    @property
    def body_ended(self) -> bool:
        return not self._left and not self._chunk

    def body_left_bytes(self) -> int:
        """How much of the body is unread; CHUNKED if unknown."""
        return CHUNKED if self._chunk else self._left

    def data(self) -> bytes:
        """The body's available bytes; empty if more must come, and at its end. Raises: Malformed."""
        if not self._chunk:
            return self._take(self._left) if self._left else b""
        parts: list[bytes] = []
        self.has_more = False
        for _ in range(2 * CHUNKS_READ_MAX):
            if self._left > 2:
                part = self._take(self._left - 2)
                if not part:
                    break
                parts.append(part)
            elif not self._between_chunks() or not self._chunk:
                break
        else:
            self.has_more = True
        return b"".join(parts)

    def _take(self, size: int) -> bytes:
        buffer = self._buffer
        if len(buffer) <= size:
            data = bytes(buffer)
            self._buffer = bytearray()
        else:
            data = bytes(memoryview(buffer)[:size])
            del buffer[:size]
        self._left -= len(data)
        return data

    def _between_chunks(self) -> bool:
        """Reads the end of a chunk, the line before the next, or a line of the trailer. False: more must come.

        `_left` counts a chunk with the CRLF after it; 2 or less left is that CRLF."""
        buffer = self._buffer
        if self._left:
            if len(buffer) < self._left:
                return False
            if buffer[: self._left] != b"\r\n":
                raise Malformed("malformed chunked encoding")
            del buffer[: self._left]
            self._left = 0
        end = buffer.find(b"\n", 0, CHUNK_LINE_BYTES_MAX)
        if end < 0:
            if len(buffer) >= CHUNK_LINE_BYTES_MAX:
                raise Malformed("header line too long")
            return False
        line = bytes(buffer[: end + 1])
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise Malformed("chunked line ends with bare LF")
        del buffer[: end + 1]
        if self._trailer:
            if line != b"\r\n" and _TRAILER.fullmatch(line) is None:
                raise Malformed("malformed MIME header line")
            self._trailer += len(line)
            if self._trailer > TRAILER_BYTES_MAX:
                raise Malformed(f"the trailer is longer than {TRAILER_BYTES_MAX} bytes")
            self._chunk = line != b"\r\n"
            return self._chunk
        match = _CHUNK_SIZE.fullmatch(line[:-2])
        if match is None:
            raise Malformed("invalid byte in chunk length")
        size = int(match[1], 16)
        self._excess = max(self._excess + len(line) - 16 - 2 * size, 0)
        if self._excess > _EXCESS_BYTES_MAX:
            raise Malformed("chunked encoding contains too much non-data")
        if size:
            self._left = size + 2
        else:
            self._trailer = 1
        return True


def _split_target(target: str, is_authority: bool = False) -> tuple[str, str]:
    """Path and query, as they were sent. Raises: Refused.

    Source: Go net/url (parse, getScheme, parseAuthority, parseHost)."""
    if is_authority:
        target = f"http://{target}"
    rest, _, query = target.partition("?")
    if not rest.startswith("/") and target != "*":
        match = _SCHEME.match(target)
        if match is None or not match[1]:
            raise Refused(400, "Bad Request")
        rest, _, query = target[match.end() :].partition("?")
        if not rest.startswith("/"):
            # Opaque URL: never valid here.
            return "", query
        if rest.startswith("//"):
            authority, slash, path = rest[2:].partition("/")
            _check_authority(authority, match[1].lower() in ("http", "https"))
            rest = slash + path
    if "%" in rest and _BAD_ESCAPE.search(rest):
        raise Refused(400, "Bad Request")
    return _as_text(rest), _as_text(query)


def _as_text(part: str) -> str:
    return part if part.isascii() else go_text(part.encode("latin-1"))


def _check_authority(authority: str, strict: bool) -> None:
    """Raises: Refused if host, port or user is invalid or ambiguous."""
    user, _, host = authority.rpartition("@")
    if host.startswith("["):
        found = _LITERAL.fullmatch(host)
        sound = found is not None and _is_ipv6(found[1])
    else:
        pattern = _AUTHORITY if strict else _LOOSE_AUTHORITY
        sound = "[" not in host and pattern.fullmatch(host) is not None
    if not sound or _USER.fullmatch(user) is None:
        raise Refused(400, "Bad Request")


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def _options(headers: Mapping[str, str], repeated: tuple[tuple[str, str], ...]) -> list[str]:
    """The tokens of all Connection headers."""
    found = headers["connection"].split(",")
    for name, value in repeated:
        if name == "connection":
            found += value.split(",")
    return [option.strip(" \t").lower() for option in found]


def _check_host(headers: Mapping[str, str], needed: bool) -> None:
    host = headers.get("host")
    if host is None:
        if needed:
            raise Refused(400, "Bad Request", "missing required Host header")
    elif _HOST.fullmatch(host) is None:
        raise Refused(400, "Bad Request", "malformed Host header")


def _check_lists(headers: Mapping[str, str], repeated: Iterable[tuple[str, str]]) -> None:
    for name in LISTS:
        if len(headers.get(name, "")) + sum(len(value) for key, value in repeated if key == name) > LISTS_BYTES_MAX:
            raise Refused(
                431, "Request Header Fields Too Large", f"the limit is {LISTS_BYTES_MAX} bytes for the header {name}"
            )


def _length(
    headers: Mapping[str, str], repeated: tuple[tuple[str, str], ...], modern: bool
) -> tuple[int, bool]:
    """The body's length, and whether it is unambiguous. Raises: Refused."""
    coding = headers.get("transfer-encoding")
    chunked = coding is not None and coding.lower() == "chunked"
    twice = any(name == "transfer-encoding" for name, _ in repeated)
    if coding is not None and modern and (not chunked or twice):
        raise Refused(501, "Not Implemented", "Unsupported transfer encoding")
    length = headers.get("content-length")
    if length is not None:
        if _LENGTH.fullmatch(length) is None or int(length) > _LENGTH_MAX:
            raise Refused(400, "Bad Request")
        if repeated and any(name == "content-length" and value != length for name, value in repeated):
            raise Refused(400, "Bad Request")
    if chunked and modern:
        return CHUNKED, length is None
    return int(length or 0), coding is None
