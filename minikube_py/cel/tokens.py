"""Lexer for expressions, with cel-go's error messages."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from minikube_py.cel.syntax import Problem, Source


class Token(NamedTuple):
    """`kind`: the text of an operator or keyword, or NUM_INT, NUM_UINT, NUM_FLOAT, STRING, BYTES, IDENTIFIER,
    ESC_IDENTIFIER, <EOF>."""

    kind: str
    text: str
    at: int


_BLANK: Final = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)+")
_NUMBER: Final = re.compile(
    r"(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"
)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED: Final = re.compile(r"`[A-Za-z0-9_.\-/ ]+`")
_OPERATORS: Final = ("==", "!=", "<=", ">=", "&&", "||", *"[]{}().,-!?:+*/%<>")
_KEYWORDS: Final = frozenset(("true", "false", "null", "in"))
_OPENING: Final = re.compile(r"(?P<prefix>[rR][bB]?|[bB][rR]?)?(?P<quote>\"\"\"|'''|\"|')")
_ESCAPE: Final = re.compile(
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)


def tokens(source: Source) -> tuple[list[Token], list[Problem]]:
    text, at = source.text, 0
    found: list[Token] = []
    wrong: list[Problem] = []
    while True:
        if blank := _BLANK.match(text, at):
            at = blank.end()
        if at >= len(text):
            return [*found, Token("<EOF>", "<EOF>", at)], wrong
        token, end = _token(text, at)
        if token is not None:
            found.append(token)
        else:
            wrong.append(source.problem(at, f"Syntax error: token recognition error at: '{text[at:end]}'"))
        at = end


def _token(text: str, at: int) -> tuple[Token | None, int]:
    """The token at `at`, or None, and where the next one begins."""
    if opening := _OPENING.match(text, at):
        end = _string_end(text, opening)
        if end > 0:
            kind = "BYTES" if "b" in (opening["prefix"] or "").lower() else "STRING"
            return Token(kind, text[at:end], at), end
        if opening["prefix"] is None:
            # Two quotes are an empty text, where three begin one that does not end.
            if len(opening["quote"]) == 3:
                return Token("STRING", text[at : at + 2], at), at + 2
            return None, -end
    for pattern in (_NUMBER, _WORD, _ESCAPED):
        if match := pattern.match(text, at):
            if pattern is _NUMBER:
                return Token(match.lastgroup or "", match[0], at), match.end()
            word = "ESC_IDENTIFIER" if pattern is _ESCAPED else "IDENTIFIER"
            return Token(match[0] if match[0] in _KEYWORDS else word, match[0], at), match.end()
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token(operator, operator, at), at + len(operator)
    # Half an operator is reported with the character that it was looked at with.
    return None, min(len(text), at + (2 if text[at] in "&|=" else 1))


def _string_end(text: str, opening: re.Match[str]) -> int:
    """Where the text ends; negative: how much was read before an error."""
    quote, raw = opening["quote"], "r" in (opening["prefix"] or "").lower()
    at = opening.end()
    while at < len(text):
        if text.startswith(quote, at):
            return at + len(quote)
        if text[at] == "\\" and not raw:
            escape = _ESCAPE.match(text, at)
            if escape is None:
                return -min(len(text), at + _escape_read(text, at))
            at = escape.end()
        elif text[at] in "\r\n" and len(quote) == 1:
            return -(at + 1)
        else:
            at += 1
    return -len(text)


def _escape_read(text: str, at: int) -> int:
    """The length of an invalid escape, up to the wrong character."""
    digits = {"x": 2, "X": 2, "u": 4, "U": 8}.get(text[at + 1 : at + 2], 0)
    if not digits:
        octal = re.match(r"\\[0-3][0-7]?", text[at:])
        return len(octal[0]) + 1 if octal else 2
    count = 0
    while count < digits and text[at + 2 + count : at + 3 + count] in tuple("0123456789abcdefABCDEF"):
        count += 1
    return 2 + count + 1


_SIMPLE_ESCAPES: Final = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, '"': 34, "'": 39, "\\": 92, "?": 63, "`": 96,
}  # fmt: skip


class BadEscape(Exception):
    """An invalid escape."""


def unquoted(token: Token) -> str | bytes:
    """The value of a STRING or BYTES token. Raises: BadEscape."""
    opening = _OPENING.match(token.text)
    assert opening is not None
    body = token.text[opening.end() : len(token.text) - len(opening["quote"])]
    is_bytes, raw = token.kind == "BYTES", "r" in (opening["prefix"] or "").lower()
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        escape = None if raw or body[at] != "\\" else _ESCAPE.match(body, at)
        if escape is None:
            parts.append(body[at].encode())
            at += 1
            continue
        code, inner = _code(escape[0]), escape[0][1]
        if is_bytes and inner in "uU":
            raise BadEscape("unable to unescape string")
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise BadEscape("invalid unicode code point")
        parts.append(bytes((code,)) if is_bytes else chr(code).encode())
        at = escape.end()
    data = b"".join(parts)
    return data if is_bytes else data.decode()


def _code(escape: str) -> int:
    mark = escape[1]
    if mark in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[mark]
    return int(escape[2:], 16) if mark in "xXuU" else int(escape[1:], 8)
