"""Regular expressions as RE2 and Go understand them, in time linear in the text.

Python's `re` backtracks, possibly exponentially; this does not. A pattern is a program whose threads run in lockstep
over the text. For `matches`, thread sets are states of a cached DFA. Source: Go `regexp/syntax`. Programs of over
20,000 steps are refused, where Go takes some more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from minikube_py.cel.allowance import spend
from minikube_py.cel.characters import CharSet
from minikube_py.cel.regex_syntax import DEPTH_MAX, BadPattern, Reader, Tree

__all__ = ["BadPattern", "Regex", "TooDear", "compiled"]

STEPS_MAX: Final = 20_000
FRAMES_MAX: Final = 8 * DEPTH_MAX
STATES_MAX: Final = 2_000
"""Cached states; beyond that the cache is cleared."""
REMEMBERED_STEPS_MAX: Final = 200_000
"""The same for the total steps of cached states."""
WALKED_MAX: Final = 10_000_000
"""Step limit of one match or find: seconds. Cached states cost nothing."""
KEPT_STEPS_MAX: Final = 200_000
"""Size of the cache of compiled patterns."""
_STEPS_OF_CHARACTER: Final = 10
"""To read one of a pattern."""


class TooDear(Exception):
    """Matching this pattern and text would take too long."""

    def __init__(self) -> None:
        super().__init__(f"matching takes more than {WALKED_MAX} steps, which is the limit")


class _Step(NamedTuple):
    """`what`: a set of characters to take one of; a position assertion; or None, for a fork."""

    what: CharSet | str | None
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
        spend(2)
        self.steps.append(step)
        return len(self.steps) - 1

    def _add(self, tree: Tree, then: int) -> int:
        """The first step of a tree that continues with `then`."""
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


class _State:
    """Steps that wait for a character, and their conditions on the previous one. `ways`: known transitions; None: the
    pattern has matched."""

    __slots__ = ("before", "steps", "ways")

    def __init__(self, steps: tuple[int, ...], before: str) -> None:
        self.steps = steps
        self.before = before
        self.ways: dict[str, _State | None] = {}


_UNKNOWN: Final = _State((), "")


class Regex:
    def __init__(self, pattern: str) -> None:
        spend(len(pattern) * _STEPS_OF_CHARACTER)
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + FRAMES_MAX)
        try:
            program = _Program(Reader(pattern).whole(), pattern)
        finally:
            sys.setrecursionlimit(before)
        self._steps, self._start = program.steps, program.start
        self._looks = any(step.what in _HOLDS for step in self._steps if isinstance(step.what, str))
        self._taken: dict[tuple[int, str], bool] = {}
        self._states: dict[tuple[tuple[int, ...], str], _State] = {}
        self._remembered = 0
        self._walked = 0

    @property
    def size(self) -> int:
        return len(self._steps)

    def _takes(self, at: int, char: str) -> bool:
        found = self._taken.get((at, char))
        if found is None:
            self._remembered += 1
            what = self._steps[at].what
            assert isinstance(what, CharSet)
            spend(len(what.ranges).bit_length() >> 2)
            found = self._taken[at, char] = what.has(char)
        return found

    def _reached(self, start: int, before: str, after: str, seen: set[int]) -> Iterator[int]:
        """The steps that take a character, or end, in order of preference."""
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
        self._walked = 0
        spend(len(text) >> 1)
        self._make_room()
        state: _State | None = self._state((), "")
        for char in text:
            assert state is not None
            following = state.ways.get(char, _UNKNOWN)
            state = self._learned(state, char) if following is _UNKNOWN else following
            if state is None:
                return True
        assert state is not None
        return (self._learned(state, "") if "" not in state.ways else state.ways[""]) is None

    def _state(self, steps: tuple[int, ...], before: str) -> _State:
        found = self._states.get((steps, before))
        if found is None:
            self._remembered += len(steps) + 1
            found = self._states[steps, before] = _State(steps, before)
        return found

    def _learned(self, state: _State, char: str) -> _State | None:
        seen: set[int] = set()
        following = self._after(state, char, seen)
        self._walk(len(seen))
        self._remembered += 1
        self._make_room()
        found = state.ways[char] = None if following is None else self._state(following, self._seen_as(char))
        return found

    def _walk(self, steps: int) -> None:
        self._walked += steps
        spend(2 * steps + 2)
        if self._walked > WALKED_MAX:
            raise TooDear

    def _make_room(self) -> None:
        if len(self._states) > STATES_MAX or self._remembered > REMEMBERED_STEPS_MAX:
            for state in self._states.values():
                state.ways.clear()
            self._states.clear()
            self._taken.clear()
            self._remembered = 0

    def _after(self, state: _State, char: str, seen: set[int]) -> tuple[int, ...] | None:
        """None where the pattern has matched before the character. Adds the steps that it walks to `seen`."""
        following: dict[int, None] = {}
        for start in (*state.steps, self._start):
            for at in self._reached(start, state.before, char, seen):
                if self._steps[at].what == _MATCH:
                    return None
                if char and self._takes(at, char):
                    following[self._steps[at].then] = None
        return tuple(sorted(following))

    def _seen_as(self, char: str) -> str:
        """All conditions of the steps on the previous character."""
        return ("\n" if char == "\n" else "w" if _is_word(char) else " ") if self._looks else " "

    def find(self, text: str) -> tuple[int, int] | None:
        """The leftmost match, by the pattern's preference. Raises: TooDear."""
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


_kept: dict[str, Regex] = {}
_kept_steps = 0


def compiled(pattern: str) -> Regex:
    """Raises: BadPattern."""
    global _kept_steps
    found = _kept.pop(pattern, None)
    if found is None:
        found = Regex(pattern)
        _kept_steps += found.size + len(pattern)
        while _kept and _kept_steps > KEPT_STEPS_MAX:
            oldest = next(iter(_kept))
            _kept_steps -= _kept.pop(oldest).size + len(oldest)
    _kept[pattern] = found
    return found
