"""JSON text as Go reads it: members in order with repeats, numbers as written, and Go's error messages.

This is the thorough reader, for bodies that the fast one (orjson) cannot handle. Wordings are those of Go's
encoding/json scanner, which upstream answers with.
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from typing import Any, Final

from minikube_py.api.go_format import go_text

NESTING_MAX: Final = 10_000
"""Levels that a text may have, as upstream's decoders allow."""
MAX_DEPTH: Final = 200
"""Levels that are kept. Deeper values are checked and then removed: no kind has members there. Where they would be kept
(`runtime.RawExtension`), they are refused: orjson writes 254 levels."""
CUT: Final = "\x7fnested too deeply to be kept\x7f"
"""Placeholder for a removed value."""
TOO_DEEP: Final = f"it is nested more deeply than {MAX_DEPTH} levels, which is the limit of what is kept"

_DEPTH_WRONG: Final = "exceeded max depth"


class Syntax(ValueError):
    """Invalid JSON; the message is Go's."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object's members, in order, repeats kept."""

    __slots__ = ()


def _constant(text: str) -> Any:
    raise ValueError(text)


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=_constant
)


def read(body: bytes) -> Any:
    """The value of `body`: Members, list, str, Number, bool or None. Bytes that are no UTF-8 are read as U+FFFD.

    Raises: Syntax.
    """
    try:
        if is_deep(body):
            Scanner(body).document()
            body = _cut(body)
        return _decoder.decode(go_text(body))
    except Syntax:
        raise
    except (ValueError, RecursionError):
        raise Syntax(explain(body)) from None


def is_deep(body: bytes) -> bool:
    return body.count(b"{") + body.count(b"[") > MAX_DEPTH and _depth(body) > MAX_DEPTH


def _cut(body: bytes) -> bytes:
    """A valid text without levels below `MAX_DEPTH`."""
    parts: list[bytes] = []
    depth = kept = 0
    for match in _BRACKETS.finditer(body):
        char = match[0]
        if char in (b"{", b"["):
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += (body[kept : match.start()], json.dumps(CUT).encode())
        elif char in (b"}", b"]"):
            if depth == MAX_DEPTH + 1:
                kept = match.end()
            depth -= 1
    return b"".join((*parts, body[kept:]))


_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
"""In whole runs: one alternative for each character takes three times as long."""
_BRACKETS = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)


_WITHOUT_BRACKETS = re.compile(_STRING + rb'|[^"\[\]{}]+', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _depth(body: bytes) -> int:
    """The deepest nesting, found without recursion and without a step of Python for each bracket; also for invalid
    JSON."""
    brackets = _WITHOUT_BRACKETS.sub(b"", body)
    return max(accumulate(array("b", brackets.translate(_STEPS))), default=0)


_SURROGATES = re.compile("[\ud800-\udfff]")


def text_of(value: str) -> str:
    """A string with lone surrogates (from `\\ud800`) replaced, as Go does."""
    return _SURROGATES.sub("\ufffd", value) if not value.isascii() else value


def plain(value: Any) -> Any:
    """What `read` gave as ordinary dicts, lists and numbers; the last of repeated members counts.

    Numbers without a point that fit 64 bits become ints, others floats. Raises: OverflowError where a number is beyond
    float64."""
    if isinstance(value, Members):
        return {text_of(key): plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Number):
        return number(value)
    return text_of(value) if isinstance(value, str) else value


def number(text: str) -> int | float:
    if "." not in text and "e" not in text and "E" not in text:
        whole = int(text) if len(text) <= 20 else 1 << 64
        if -(1 << 63) <= whole < 1 << 63:
            return whole
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise OverflowError(text)
    return value


# --- errors ----------------------------------------------------------------------------------------

_SPACE = re.compile(rb"[ \t\r\n]*")
_SOUND = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
"""What a string holds up to its end or first error."""
_HEX = re.compile(rb"[0-9a-fA-F]{0,4}")
_SCALAR = rb'(?:"[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)[ \t\r\n]*'
_ITEMS = re.compile(rb"(?>,[ \t\r\n]*" + _SCALAR + rb"(?=[,\]]))*+")
_MEMBERS = re.compile(rb'(?>,[ \t\r\n]*"[^"\\\x00-\x1f]*"[ \t\r\n]*:[ \t\r\n]*' + _SCALAR + rb"(?=[,}]))*+")
"""Runs of plain valid items and members, skipped at once to make large bodies cheap."""
_END: Final = "unexpected end of JSON input"


MAX_EXPLAINED_BYTES: Final = 128 * 1024
"""Larger bodies are not rescanned for upstream's message."""


def _explain_large(body: bytes) -> str:
    try:
        json.loads(go_text(body))
    except ValueError as error:
        return str(error)
    return "invalid JSON"


def explain(body: bytes) -> str:
    """Go's message for the first error in `body`; Python's if it is large."""
    if len(body) > MAX_EXPLAINED_BYTES and not is_deep(body):
        return _explain_large(body)
    try:
        Scanner(body).document()
    except Syntax as error:
        return str(error)
    return "invalid JSON"


def _quoted(code: int) -> str:
    if code == 0x27:
        return "'\\''"
    if code == 0x22:
        return "'\"'"
    special = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 0x5C: "\\\\"}
    if code in special:
        return f"'{special[code]}'"
    char = chr(code)
    if char.isprintable():
        return f"'{char}'"
    return f"'\\x{code:02x}'" if code < 0x80 else f"'\\u{code:04x}'"


class Scanner:
    """Walks over the text once, without recursion, and stops with Go's message."""

    def __init__(self, body: bytes) -> None:
        # Go appends a blank, so a truncated literal differs from other ends.
        self.body = body + b" "
        self.at = 0

    def wrong(self, where: str) -> Syntax:
        if self.at >= len(self.body):
            return Syntax(_END)
        return Syntax(f"invalid character {_quoted(self.body[self.at])} {where}")

    def peek(self) -> int:
        match = _SPACE.match(self.body, self.at)
        assert match is not None
        self.at = match.end()
        return self.body[self.at] if self.at < len(self.body) else -1

    def document(self) -> None:
        self.value()
        if self.peek() != -1:
            raise self.wrong("after top-level value")

    def value(self) -> None:
        """One value; `at` is where it ends."""
        stack: list[int] = []
        self.begin_value(stack)
        while stack:
            closer = stack[-1]
            char = self.peek()
            if char == 0x2C:
                run = (_MEMBERS if closer == 0x7D else _ITEMS).match(self.body, self.at)
                assert run is not None
                self.at = run.end()
                char = self.peek()
            if char == closer:
                self.at += 1
                stack.pop()
            elif char == 0x2C:
                self.at += 1
                if closer == 0x7D:
                    self.key()
                self.begin_value(stack)
            else:
                raise self.wrong("after object key:value pair" if closer == 0x7D else "after array element")

    def begin_value(self, stack: list[int]) -> None:
        """Reads a scalar, or opens containers down to the first scalar or empty one."""
        while True:
            char = self.peek()
            if char == 0x7B:
                self.open(stack, 0x7D)
                if self.peek() == 0x7D:
                    return
                self.key()
            elif char == 0x5B:
                self.open(stack, 0x5D)
                if self.peek() == 0x5D:
                    return
            else:
                self.scalar(char)
                return

    def open(self, stack: list[int], closer: int) -> None:
        self.at += 1
        stack.append(closer)
        if len(stack) > NESTING_MAX:
            raise Syntax(f"invalid character {_quoted(self.body[self.at - 1])} {_DEPTH_WRONG}")

    def key(self) -> None:
        if self.peek() != 0x22:
            raise self.wrong("looking for beginning of object key string")
        self.string()
        if self.peek() != 0x3A:
            raise self.wrong("after object key")
        self.at += 1

    def scalar(self, char: int) -> None:
        if char == 0x22:
            self.string()
        elif char == 0x2D or 0x30 <= char <= 0x39:
            self.number()
        elif char in (0x74, 0x66, 0x6E):
            self.literal({0x74: b"true", 0x66: b"false", 0x6E: b"null"}[char])
        else:
            raise self.wrong("looking for beginning of value")

    def literal(self, word: bytes) -> None:
        for index, expected in enumerate(word):
            if self.at >= len(self.body) or self.body[self.at] != expected:
                raise self.wrong(f"in literal {word.decode()} (expecting {_quoted(word[index])})")
            self.at += 1

    def string(self) -> None:
        match = _SOUND.match(self.body, self.at + 1)
        assert match is not None
        self.at = match.end()
        if self.at >= len(self.body) or self.body[self.at] < 0x20:
            raise self.wrong("in string literal")
        self.at += 1
        if self.body[self.at - 1] != 0x22:
            self.escape()

    def escape(self) -> None:
        if self.at >= len(self.body) or self.body[self.at] not in b'bfnrt\\/"u':
            raise self.wrong("in string escape code")
        self.at += 1
        if self.body[self.at - 1] == 0x75:
            match = _HEX.match(self.body, self.at)
            assert match is not None
            self.at = match.end()
            if len(match[0]) < 4:
                raise self.wrong("in \\u hexadecimal character escape")

    def digits(self, where: str) -> None:
        first = self.at
        while self.at < len(self.body) and 0x30 <= self.body[self.at] <= 0x39:
            self.at += 1
        if self.at == first:
            raise self.wrong(where)

    def number(self) -> None:
        if self.body[self.at] == 0x2D:
            self.at += 1
        if self.body[self.at : self.at + 1] == b"0":
            self.at += 1
        else:
            self.digits("in numeric literal")
        if self.body[self.at : self.at + 1] == b".":
            self.at += 1
            self.digits("after decimal point in numeric literal")
        if self.body[self.at : self.at + 1] in (b"e", b"E"):
            self.at += 1
            if self.body[self.at : self.at + 1] in (b"+", b"-"):
                self.at += 1
            self.digits("in exponent of numeric literal")
