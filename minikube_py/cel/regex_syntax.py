"""Patterns of RE2 and Go as trees. Source: Go `regexp/syntax`."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.cel.characters import LAST, CharSet, Range, folded, merged, named, outside

REPEATS_MAX: Final = 1000
DEPTH_MAX: Final = 250


class BadPattern(Exception):
    """The message is Go's."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {what}: `{where}`")


Tree = tuple[Any, ...]
"""("set", CharSet), ("cat", trees), ("alt", trees), ("rep", tree, least, most or None, greedy), ("at", where)."""

_DIGIT: Final = ((48, 57),)
_SPACE: Final = ((9, 10), (12, 13), (32, 32))
_WORD: Final = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL: Final = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: Final[dict[str, tuple[Range, ...]]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)), "digit": _DIGIT, "graph": ((33, 126),),
    "lower": ((97, 122),), "print": ((32, 126),), "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)), "upper": ((65, 90),), "word": _WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
_CONTROL: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEXADECIMAL: Final = "0123456789abcdef"


class Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags: frozenset[str] = frozenset()

    def _wrong(self, what: str, start: int, end: int | None = None) -> BadPattern:
        return BadPattern(what, self._text[start : self._at if end is None else end])

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def whole(self) -> Tree:
        tree = self._either()
        if self._at < len(self._text):
            raise self._wrong("unexpected )", 0, len(self._text))
        return tree

    def _either(self) -> Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong("expression nests too deeply", 0, len(self._text))
        options = [self._sequence()]
        while self._peek("|"):
            self._at += 1
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else ("alt", options)

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        repeated = -1
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            start = self._at
            times = self._times()
            if times is None:
                parts += self._atom()
                repeated = -1
                continue
            if repeated >= 0:
                raise self._wrong("invalid nested repetition operator", repeated)
            if not parts:
                raise self._wrong("missing argument to repetition operator", start)
            least, most, greedy = times
            if most is not None or least:
                _check_repeats(parts[-1], max(least, most or 0), self._text[start : self._at])
            parts[-1] = ("rep", parts[-1], least, most, greedy)
            repeated = start
        return parts[0] if len(parts) == 1 else ("cat", parts)

    def _times(self) -> tuple[int, int | None, bool] | None:
        """The repetition operator here, if any."""
        start, char = self._at, self._text[self._at]
        least: int
        most: int | None
        if char in "*+?":
            self._at += 1
            least, most = int(char == "+"), 1 if char == "?" else None
        elif char == "{":
            end = self._text.find("}", start)
            low, comma, high = self._text[start + 1 : end].partition(",") if end > 0 else ("", "", "")
            if not _is_count(low) or not (high == "" or _is_count(high)):
                return None
            self._at = end + 1
            least, most = int(low[:9]), (int(high[:9]) if high else None) if comma else int(low[:9])
            if least > REPEATS_MAX or (most is not None and not least <= most <= REPEATS_MAX):
                raise self._wrong("invalid repeat count", start)
        else:
            return None
        lazy = self._peek("?")
        self._at += lazy
        return least, most, lazy == ("U" in self._flags)

    def _atom(self) -> list[Tree]:
        start, char = self._at, self._take()
        if char == "(":
            group = self._group(start)
            return [] if group is None else [group]
        if char == "[":
            return [("set", self._brackets(start))]
        if char == ".":
            return [("set", outside(CharSet(() if "s" in self._flags else ((10, 10),))))]
        if char == "^":
            return [("at", "line start" if "m" in self._flags else "start")]
        if char == "$":
            return [("at", "line end" if "m" in self._flags else "end")]
        if char != "\\":
            return [self._char(ord(char))]
        if self._at == len(self._text):
            raise BadPattern("trailing backslash at end of expression", "")
        known = {"A": "start", "z": "end", "b": "edge", "B": "no edge"}.get(self._text[self._at])
        if known:
            self._at += 1
            return [("at", known)]
        if self._peek("Q"):
            quoted, _, _ = self._text[self._at + 1 :].partition("\\E")
            self._at = min(len(self._text), self._at + 1 + len(quoted) + 2)
            return [self._char(ord(each)) for each in quoted]
        known_class = self._class()
        return [self._char(self._escape(start)) if known_class is None else ("set", known_class)]

    def _cased(self, found: CharSet, but: bool = False) -> CharSet:
        found = folded(found) if "i" in self._flags else found
        return outside(found) if but else found

    def _char(self, code: int) -> Tree:
        return "set", self._cased(CharSet(((code, code),)))

    def _group(self, start: int) -> Tree | None:
        """None: it only sets flags, and what repeats it repeats what stands before."""
        before = self._flags
        if self._peek("?"):
            self._at += 1
            if self._peek("P<") or self._peek("<"):
                self._name(start)
            elif self._set_flags(start):
                return None
        inner = self._either()
        if not self._peek(")"):
            raise self._wrong("missing closing )", 0, len(self._text))
        self._at += 1
        self._flags = before
        return inner if inner[0] != "cat" or inner[1] else ("alt", [inner])

    def _name(self, start: int) -> None:
        opened = self._text.index("<", self._at)
        end = self._text.find(">", opened)
        if end < 0:
            raise self._wrong("invalid named capture", start, len(self._text))
        name = self._text[opened + 1 : end]
        if not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
            raise self._wrong("invalid named capture", start, end + 1)
        self._at = end + 1

    def _set_flags(self, start: int) -> bool:
        """Whether the group consists of that alone."""
        flags, adds, any_after = set(self._flags), True, False
        while self._at < len(self._text):
            char = self._take()
            if char in "imsU":
                (flags.add if adds else flags.discard)(char)
                any_after = True
            elif char == "-" and adds:
                adds, any_after = False, False
            elif char in ":)" and (adds or any_after):
                self._flags = frozenset(flags)
                return char == ")"
            else:
                break
        raise self._wrong("invalid or unsupported Perl syntax", start)

    def _class(self) -> CharSet | None:
        """`\\d`, `\\pL`, ... after the backslash, if one is here."""
        start, char = self._at - 1, self._text[self._at]
        if char.lower() in _PERL:
            self._at += 1
            return self._cased(CharSet(_PERL[char.lower()]), char.isupper())
        if char not in "pP":
            return None
        self._at += 1
        if self._at == len(self._text):
            raise self._wrong("invalid character class range", start)
        name = self._take()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise self._wrong("invalid character class range", start, len(self._text))
            name, self._at = self._text[self._at : end], end + 1
        but = char == "P"
        if name.startswith("^"):
            name, but = name[1:], not but
        found = named(name)
        if found is None:
            raise self._wrong("invalid character class range", start)
        return self._cased(found, but)

    def _escape(self, start: int) -> int:
        char = self._take()
        if char in "01234567":
            if char == "0" or (self._at < len(self._text) and self._text[self._at] in "01234567"):
                digits = char
                while self._at < len(self._text) and len(digits) < 3 and self._text[self._at] in "01234567":
                    digits += self._take()
                return int(digits, 8)
        elif char == "x":
            code = self._hexadecimal()
            if code is not None:
                return code
        elif char in _CONTROL:
            return _CONTROL[char]
        elif char.isascii() and not char.isalnum():
            return ord(char)
        raise self._wrong("invalid escape sequence", start)

    def _hexadecimal(self) -> int | None:
        """None: no code point. It has then read as far as Go, which shows that."""
        braced = self._peek("{")
        self._at += braced
        code, digits = 0, 0
        while self._at < len(self._text) and (braced or digits < 2):
            char = self._take()
            if braced and char == "}":
                return code if digits else None
            value = _HEXADECIMAL.find(char.lower())
            code = code * 16 + value if value >= 0 <= code else -1
            digits += 1
            if braced and not 0 <= code <= LAST:
                return None
        return code if not braced and digits == 2 and code >= 0 else None

    def _brackets(self, start: int) -> CharSet:
        but = self._peek("^")
        self._at += but
        ranges: list[Range] = []
        first = True
        while first or not self._peek("]"):
            if self._at >= len(self._text):
                raise self._wrong("missing closing ]", start, len(self._text))
            begin, first = self._at, False
            known = self._posix() or (self._escaped_class() if self._peek("\\") else None)
            if known is not None:
                ranges += known.ranges
                continue
            low = high = self._one(start)
            if self._peek("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._one(start)
                if high < low:
                    raise self._wrong("invalid character class range", begin)
            ranges += self._cased(CharSet(((low, high),))).ranges
        self._at += 1
        found = merged(ranges)
        return outside(found) if but else found

    def _escaped_class(self) -> CharSet | None:
        if self._at + 1 >= len(self._text):
            raise BadPattern("trailing backslash at end of expression", "")
        self._at += 1
        found = self._class()
        self._at -= found is None
        return found

    def _posix(self) -> CharSet | None:
        end = self._text.find(":]", self._at + 2) if self._peek("[:") else -1
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        begin, self._at = self._at, end + 2
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise self._wrong("invalid character class range", begin)
        return self._cased(CharSet(found), name.startswith("^"))

    def _one(self, start: int) -> int:
        if self._at >= len(self._text):
            raise self._wrong("missing closing ]", start, len(self._text))
        begin, char = self._at, self._take()
        if char != "\\":
            return ord(char)
        if self._at >= len(self._text):
            raise BadPattern("trailing backslash at end of expression", "")
        return self._escape(begin)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and (len(text) == 1 or not text.startswith("0"))


def _check_repeats(tree: Tree, times: int, where: str) -> None:
    """Repeats within repeats are at most a thousand together."""

    def within(tree: Tree) -> int:
        if tree[0] in ("cat", "alt"):
            return max(map(within, tree[1]), default=1)
        if tree[0] != "rep":
            return 1
        return within(tree[1]) * int(max(tree[2], tree[3] or 0, 1))

    if times > 1 and within(tree) * times > REPEATS_MAX:
        raise BadPattern("invalid repeat count", where)
