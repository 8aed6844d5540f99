"""JSON as upstream writes it, byte by byte but for the order of members.

Go's encoder escapes HTML characters and the two line separators of Unicode, ends a compact document with a newline, and
an indented one without. Source: `encoding/json`; apimachinery `pkg/runtime/serializer/json`.
"""

from __future__ import annotations

from typing import Any

import orjson

_LINE, _PARAGRAPH = "\u2028".encode(), "\u2029".encode()


def escaped(data: bytes) -> bytes:
    """JSON with Go's escapes: these characters occur in strings only."""
    if b"<" in data or b">" in data or b"&" in data:
        data = data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if not data.isascii():
        data = data.replace(_LINE, b"\\u2028").replace(_PARAGRAPH, b"\\u2029")
    return data


def dumps(value: Any) -> bytes:
    return escaped(orjson.dumps(value))


def indented(data: bytes, depth: int = 0) -> bytes:
    """A JSON document indented, starting `depth` spaces deep; newlines in strings are escapes."""
    found = escaped(orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2))
    return found.replace(b"\n", b"\n" + b" " * depth) if depth else found
