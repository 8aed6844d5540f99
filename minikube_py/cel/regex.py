"""Regular expressions as RE2 and Go understand them, in time linear in the text.

Python's `re` goes back and tries again, for longer than anyone waits; this never does. A pattern is a program of
threads that run in step over the text. For `matches`, a set of threads is a state, and where it goes with a character
is remembered. Source: Go `regexp/syntax`. Scripts (`\\p{Greek}`) are refused, as Python knows categories alone, and
programs of over 20,000 steps, where Go takes some more.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

REPEATS_MAX: Final = 1000
STEPS_MAX: Final = 20_000
DEPTH_MAX: Final = 250
FRAMES_MAX: Final = 8 * DEPTH_MAX
STATES_MAX: Final = 2_000
"""Remembered states; with more, all are forgotten and learned again."""
REMEMBERED_STEPS_MAX: Final = 200_000
"""The same for all steps of remembered states together."""
WALKED_MAX: Final = 400_000
"""Steps walked to match one text, or to find parts of it. What `matches` remembers costs none."""


class TooDear(Exception):
    """A pattern and a text that would take longer than others can wait."""

    def __init__(self) -> None:
        super().__init__(f"matching takes more than {WALKED_MAX} steps, which is the limit")


class BadPattern(Exception):
    """The message is Go's."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {what}: `{where}`")


Range = tuple[int, int]


class _Set(NamedTuple):
    """Characters in the ranges, or of the categories; `but`: those that are not."""

    ranges: tuple[Range, ...]
    categories: tuple[tuple[str, bool], ...] = ()
    but: bool = False
    folded: bool = False

    def has(self, char: str) -> bool:
        found = any(self._plainly(each) for each in (_folded(char) if self.folded else (char,)))
        return found is not self.but

    def _plainly(self, char: str) -> bool:
        code = ord(char)
        if any(low <= code <= high for low, high in self.ranges):
            return True
        return any(unicodedata.category(char).startswith(name) is not but for name, but in self.categories)


_ORBITS: Final = (
    "kK\u212a",
    "sS\u017f",
    "å\u212bÅ",
    "µμΜ",
    "θΘϑϴ",
    "βΒϐ",
    "εΕϵ",
    "κΚϰ",
    "πΠϖ",
    "ρΡϱ",
    "σςΣ",
    "φΦϕ",
    "ωΩΩ",
)


def _folded(char: str) -> set[str]:
    found = {char} | {each for each in (char.lower(), char.upper(), char.title()) if len(each) == 1}
    return found.union(*(orbit for orbit in _ORBITS if char in orbit))


# --- patterns as trees ----------------------------------------------------------------------------------------------

Tree = tuple[Any, ...]
"""("set", _Set), ("cat", trees), ("alt", trees), ("rep", tree, least, most or None, greedy), ("at", where)."""

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
_CATEGORIES: Final = frozenset(
    ("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
     "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs")
)  # fmt: skip


class _Reader:
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
        """How often what stands before is repeated, if an operator stands here."""
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
            return [self._group(start)]
        if char == "[":
            return [("set", self._brackets(start))]
        if char == ".":
            return [("set", _Set((), but=True) if "s" in self._flags else _Set(((10, 10),), but=True))]
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
        named = self._class()
        return [("set", named)] if named else [self._char(self._escape(start))]

    def _char(self, code: int) -> Tree:
        return "set", _Set(((code, code),), folded="i" in self._flags)

    def _group(self, start: int) -> Tree:
        before = self._flags
        if self._peek("?"):
            self._at += 1
            if self._peek("P<") or self._peek("<"):
                self._name(start)
            elif self._set_flags(start):
                return "cat", []
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
        """Whether that is all that the group is."""
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
                raise self._wrong("invalid or unsupported Perl syntax", start)
        raise self._wrong("missing closing )", 0, len(self._text))

    def _class(self) -> _Set | None:
        """`\\d`, `\\pL`, ... after the backslash, if one stands here."""
        start, char = self._at - 1, self._text[self._at]
        if char.lower() in _PERL:
            self._at += 1
            return _Set(_PERL[char.lower()], but=char.isupper())
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
        if name == "Any":
            return _Set(((0, 0x10FFFF),), but=but)
        if name not in _CATEGORIES:
            raise self._wrong("invalid character class range", start)
        return _Set((), ((name, False),), but, "i" in self._flags)

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
        if self._peek("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at + 1 : end] if end > 0 else ""
            if _is_hexadecimal(digits) and int(digits, 16) <= 0x10FFFF:
                self._at = end + 1
                return int(digits, 16)
        else:
            digits = self._text[self._at : self._at + 2]
            if len(digits) == 2 and _is_hexadecimal(digits):
                self._at += 2
                return int(digits, 16)
        self._at = min(len(self._text), self._at + 1)
        return None

    def _brackets(self, start: int) -> _Set:
        but = self._peek("^")
        self._at += but
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or not self._peek("]"):
            if self._at >= len(self._text):
                raise self._wrong("missing closing ]", start, len(self._text))
            begin = self._at
            if self._peek("-") and not first and self._text[self._at + 1 : self._at + 2] != "]":
                raise self._wrong("invalid character class range", begin, begin + 2)
            first = False
            named = self._posix() or (self._escaped_class() if self._peek("\\") else None)
            if named is not None:
                ranges += _outside(named.ranges) if named.but and named.ranges else named.ranges
                categories += [(name, named.but) for name, _ in named.categories]
                continue
            low = high = self._one(start)
            if self._peek("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._one(start)
                if high < low:
                    raise self._wrong("invalid character class range", begin)
            ranges.append((low, high))
        self._at += 1
        return _Set(tuple(ranges), tuple(categories), but, "i" in self._flags)

    def _escaped_class(self) -> _Set | None:
        if self._at + 1 >= len(self._text):
            raise BadPattern("trailing backslash at end of expression", "")
        self._at += 1
        named = self._class()
        self._at -= named is None
        return named

    def _posix(self) -> _Set | None:
        end = self._text.find(":]", self._at + 2) if self._peek("[:") else -1
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        begin, self._at = self._at, end + 2
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise self._wrong("invalid character class range", begin)
        return _Set(found, but=name.startswith("^"))

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


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and len(text) < 9 and all(char in "0123456789abcdefABCDEF" for char in text)


def _outside(ranges: tuple[Range, ...]) -> list[Range]:
    found, low = [], 0
    for first, last in sorted(ranges):
        if low < first:
            found.append((low, first - 1))
        low = last + 1
    return [*found, (low, 0x10FFFF)]


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


# --- programs -------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """`what`: a set of characters to take one of; where the text must be; or None, for a fork that goes on at both."""

    what: _Set | str | None
    then: int = 0
    otherwise: int = -1


_MATCH: Final = "match"


class _Program:
    def __init__(self, tree: Tree, pattern: str) -> None:
        self._pattern = pattern
        self.steps: list[_Step] = [_Step(_MATCH)]
        self.start = self._add(tree, 0)

    def _put(self, step: _Step) -> int:
        if len(self.steps) > STEPS_MAX:
            raise BadPattern("expression too large", self._pattern)
        self.steps.append(step)
        return len(self.steps) - 1

    def _add(self, tree: Tree, then: int) -> int:
        """The step that a tree begins with, where `then` is what comes after."""
        kind = tree[0]
        if kind in ("set", "at"):
            return self._put(_Step(tree[1], then))
        if kind == "cat":
            for part in reversed(tree[1]):
                then = self._add(part, then)
            return then
        if kind == "alt":
            start = self._add(tree[1][-1], then)
            for option in reversed(tree[1][:-1]):
                start = self._put(_Step(None, self._add(option, then), start))
            return start
        _, inner, least, most, greedy = tree
        if most is None:
            fork = self._put(_Step(None))
            again = self._add(inner, fork)
            self.steps[fork] = _Step(None, again, then) if greedy else _Step(None, then, again)
            start = fork
        else:
            start = then
            for _ in range(most - least):
                taken = self._add(inner, start)
                start = self._put(_Step(None, taken, then) if greedy else _Step(None, then, taken))
        for _ in range(least):
            start = self._add(inner, start)
        return start


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


_HOLDS: Final[dict[str, Callable[[str, str], bool]]] = {
    "start": lambda before, after: not before,
    "end": lambda before, after: not after,
    "line start": lambda before, after: before in ("", "\n"),
    "line end": lambda before, after: after in ("", "\n"),
    "edge": lambda before, after: _is_word(before) != _is_word(after),
    "no edge": lambda before, after: _is_word(before) == _is_word(after),
}
"""By the characters before and after, which are empty where the text ends."""

State = tuple[tuple[int, ...], str]


class Regex:
    def __init__(self, pattern: str) -> None:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + FRAMES_MAX)
        try:
            program = _Program(_Reader(pattern).whole(), pattern)
        finally:
            sys.setrecursionlimit(before)
        self._steps, self._start = program.steps, program.start
        self._looks = any(step.what in _HOLDS for step in self._steps if isinstance(step.what, str))
        self._taken: list[dict[str, bool]] = [{} for _ in self._steps]
        self._next: dict[State, dict[str, State | None]] = {}
        self._remembered = 0
        self._walked = 0

    def _takes(self, at: int, char: str) -> bool:
        known = self._taken[at]
        found = known.get(char)
        if found is None:
            self._remembered += 1
            what = self._steps[at].what
            found = known[char] = isinstance(what, _Set) and what.has(char)
        return found

    def _reached(self, start: int, before: str, after: str, seen: set[int]) -> Iterator[int]:
        """The steps that take a character, or end, in the order in which they are preferred."""
        pending = [start]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            step = self._steps[at]
            if step.what is None:
                pending += (step.otherwise, step.then)
            elif isinstance(step.what, str) and step.what != _MATCH:
                if _HOLDS[step.what](before, after):
                    pending.append(step.then)
            else:
                yield at

    def matches(self, text: str) -> bool:
        """Whether any part of the text matches. Raises: TooDear."""
        state: State | None = ((), "")
        self._walked = 0
        for char in (*text, ""):
            assert state is not None
            ways = self._next.get(state)
            if ways is None:
                self._make_room()
                self._remembered += len(state[0]) + 1
                ways = self._next[state] = {}
            if char not in ways:
                seen: set[int] = set()
                ways[char] = self._after(state, char, seen)
                self._remembered += 1
                self._walk(len(seen))
            state = ways[char]
            if state is None:
                return True
        return False

    def _walk(self, steps: int) -> None:
        self._walked += steps
        if self._walked > WALKED_MAX:
            raise TooDear

    def _make_room(self) -> None:
        if len(self._next) > STATES_MAX or self._remembered > REMEMBERED_STEPS_MAX:
            self._next.clear()
            for known in self._taken:
                known.clear()
            self._remembered = 0

    def _after(self, state: State, char: str, seen: set[int]) -> State | None:
        """None where the pattern has matched before the character. Adds the steps that it walks to `seen`."""
        following: dict[int, None] = {}
        for start in (*state[0], self._start):
            for at in self._reached(start, state[1], char, seen):
                if self._steps[at].what == _MATCH:
                    return None
                if char and self._takes(at, char):
                    following[self._steps[at].then] = None
        return tuple(sorted(following)), self._seen_as(char)

    def _seen_as(self, char: str) -> str:
        """All that the steps ask of a character that is past."""
        return ("\n" if char == "\n" else "w" if _is_word(char) else " ") if self._looks else " "

    def find(self, text: str) -> tuple[int, int] | None:
        """The first match, and of those that begin there the one that the pattern prefers. Raises: TooDear."""
        self._walked = 0
        return self._find(text, 0)

    def _find(self, text: str, start: int) -> tuple[int, int] | None:
        self._make_room()
        found: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []
        for i in range(start, len(text) + 1):
            before, after = text[i - 1 : i] if i else "", text[i : i + 1]
            if found is None:
                threads.append((self._start, i))
            seen: set[int] = set()
            following: list[tuple[int, int]] = []
            ended = False
            for thread, begun in threads:
                for at in self._reached(thread, before, after, seen):
                    if self._steps[at].what == _MATCH:
                        found, ended = (begun, i), True
                        break
                    if after and self._takes(at, after):
                        following.append((self._steps[at].then, begun))
                if ended:
                    break
            threads = following
            self._walk(len(seen))
            if not threads and found is not None:
                break
        return found

    def find_all(self, text: str, most: int) -> list[str]:
        """As Go's FindAllString: an empty match right after another match is none. Raises: TooDear, for all of them."""
        self._walked = 0
        found: list[str] = []
        at, last = 0, -1
        while at <= len(text) and (most < 0 or len(found) < most):
            match = self._find(text, at)
            if match is None:
                break
            begin, end = match
            if end > begin or begin != last:
                found.append(text[begin:end])
            at = end if end > at else at + 1
            if end == begin and end > at - 1:
                at = end + 1
            last = end
        return found


@lru_cache(256)
def compiled(pattern: str) -> Regex:
    """Raises: BadPattern."""
    return Regex(pattern)
