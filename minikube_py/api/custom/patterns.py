"""Regular expressions of schemas: RE2's, as Go reads them, by Python's `re`.

What RE2 refuses is refused in Go's words. What `re` cannot express is refused by name, never matched otherwise.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7F", "blank": r"\t ", "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PARTS: Final = re.compile(
    r"(?P<escape>\\.)|(?P<posix>\[:(?P<not>\^?)(?P<name>\w*):\])|(?P<group>\(\?[^)]?)|(?P<sign>[\[\]$])|(?P<twice>[*+?}][*+])",
    re.DOTALL,
)


_MESSAGES: Final = (
    ("missing )", "missing closing )"),
    ("unbalanced parenthesis", "unexpected )"),
    ("unterminated character set", "missing closing ]"),
    ("bad character range", "invalid character class range"),
)


class BadPattern(ValueError):
    """The message is Go's, or says what is not supported here."""


def _escape(text: str, pattern: str) -> str:
    letter = text[1]
    if letter == "z":
        return r"\Z"
    if letter in "pPCQ":
        raise BadPattern(f"`{text}` is not supported by this server")
    if letter.isdigit() and letter != "0":
        raise BadPattern(f"error parsing regexp: invalid escape sequence: `{text}`")
    if letter.isalpha() and letter not in "AabBdDfnrsStvwWx":
        raise BadPattern(f"error parsing regexp: invalid escape sequence: `{text}`")
    return {r"\s": r"[\t\n\f\r ]", r"\S": r"[^\t\n\f\r ]"}.get(text, text)


def _translated(pattern: str) -> str:
    inside = False
    multiline = re.match(r"\(\?[a-z]*m[a-z]*\)", pattern) is not None

    def piece(match: re.Match[str]) -> str:
        nonlocal inside
        if text := match["escape"]:
            if inside and text in (r"\s", r"\S"):
                if text == r"\S":
                    raise BadPattern("`\\S` within a class is not supported by this server")
                return r"\t\n\f\r "
            return _escape(text, pattern)
        if match["posix"]:
            if not inside:
                return match[0]
            if match["name"] not in _CLASSES:
                raise BadPattern(f"error parsing regexp: invalid character class range: `{match[0]}`")
            if match["not"]:
                raise BadPattern(f"`{match[0]}` is not supported by this server")
            return _CLASSES[match["name"]]
        if text := match["group"]:
            if inside or text[-1] in ":P":
                return text
            if text[-1] in "=!#>(":
                raise BadPattern(f"error parsing regexp: invalid or unsupported Perl syntax: `{text}`")
            if text[-1] == "<" or match.start():
                raise BadPattern(f"`{text}` within a pattern is not supported by this server")
            return text
        if match["twice"]:
            if inside:
                return match[0]
            raise BadPattern(f"error parsing regexp: invalid nested repetition operator: `{match[0]}`")
        if match[0] == "[":
            opened, inside = not inside, True
            return "[" if opened else r"\["
        if match[0] == "]":
            inside = False
            return "]"
        return "$" if inside or multiline else r"\Z"

    return _PARTS.sub(piece, pattern)


@lru_cache(1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Raises: BadPattern."""
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"error parsing regexp: {_in_go(str(error))}: `{pattern}`") from None


def _in_go(message: str) -> str:
    return next((text for begins, text in _MESSAGES if message.startswith(begins)), message)
