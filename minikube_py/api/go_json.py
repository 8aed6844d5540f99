"""JSON as upstream writes it, byte by byte but for the order of members.

Go's encoder escapes what could be taken for HTML and the two line separators of Unicode, ends a compact document with a
newline, and an indented one without. Source: `encoding/json`; apimachinery `pkg/runtime/serializer/json`.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def escaped(data: bytes) -> bytes:
    """JSON with Go's escapes: these characters occur in strings only."""
    for char, escape in _ESCAPES:
        if char in data:
            data = data.replace(char, escape)
    return data


def dumps(value: Any) -> bytes:
    return escaped(orjson.dumps(value))


def indented(data: bytes, depth: int = 0) -> bytes:
    """A JSON document laid out for people, to stand `depth` spaces deep; newlines in strings are escapes."""
    found = escaped(orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2))
    return found.replace(b"\n", b"\n" + b" " * depth) if depth else found
