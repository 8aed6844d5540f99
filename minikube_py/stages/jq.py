"""The part of jq that selects values: paths, pipes, `select`, comparisons, `and`, `or`, `not`, `//`, `?` and more.

`compile(text)` gives a `Query`; its `values(data)` equal gojq's output without nulls; any error gives None, as in KWOK.
Evaluation cost is bounded.

Source: jq 1.7 manual; gojq, which KWOK uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from minikube_py.stages.errors import NotUnderstood

CHARS_MAX: Final = 10_000
DEPTH_MAX: Final = 50
STEPS_MAX: Final = 20_000
UNDERSTOOD: Final = (
    'understood are paths (.a.b, .a["b"], .[0], .[]), |, a comma, ==, !=, <, <=, >, >=, and, or, not, //, ?, literals, '
    "select, map, any, all, has, startswith, endswith, length, keys, type and empty"
)


class Whole(int):
    """An integer literal or count. Numbers from JSON are floats in KWOK's gojq."""


class _Wrong(Exception):
    """A jq error, which `?` catches."""


class _TooMuch(Exception):
    pass


class _Token(NamedTuple):
    kind: str
    text: str


_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"""
    r"""|(?P<field>\.[A-Za-z_]\w*)|(?P<word>[A-Za-z_]\w*)|(?P<mark>//|==|!=|<=|>=|[][(){}<>|,.?:$+\-*/%=;])|(?P<end>$))""",
    re.ASCII,
)
_COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
Evaluate = Callable[[Any, "_Budget"], Iterator[Any]]


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooMuch


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    _evaluate: Evaluate

    def values(self, data: Any) -> list[Any] | None:
        """All non-null results in order; None after an error or too many steps."""
        try:
            return [value for value in self._evaluate(data, _Budget()) if value is not None]
        except (_Wrong, _TooMuch, RecursionError):
            return None


def compile(text: str) -> Query:
    """Raises: NotUnderstood."""
    if len(text) > CHARS_MAX:
        raise NotUnderstood(f"longer than {CHARS_MAX:,} characters")
    parser = _Parser(text)
    found = parser.pipe(0)
    parser.finish()
    return Query(text, found)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._token = self._scan()

    # --- tokens -----------------------------------------------------------------------------------------------------

    def _scan(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()[:20]
            raise self._wrong(f"{rest!r} cannot be read")
        self._at = found.end()
        kind = found.lastgroup or "end"
        return _Token(kind, found[kind])

    def _next(self) -> _Token:
        token, self._token = self._token, self._scan()
        return token

    def _take(self, *texts: str) -> str:
        if self._token.kind in ("mark", "word") and self._token.text in texts:
            return self._next().text
        return ""

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(f"{text!r} is expected instead of {self._token.text or 'the end'!r}")

    def _wrong(self, why: str) -> NotUnderstood:
        return NotUnderstood(f"{why} in {self._text[:120]!r}: {UNDERSTOOD}", self._text.count("\n", 0, self._at) + 1)

    def finish(self) -> None:
        if self._token.kind != "end":
            raise self._wrong(f"{self._token.text!r} is not understood")

    # --- grammar, loosest first -------------------------------------------------------------------------------------

    def pipe(self, depth: int) -> Evaluate:
        if depth > DEPTH_MAX:
            raise self._wrong(f"nested deeper than {DEPTH_MAX} levels")
        stages = [self._comma(depth)]
        while self._take("|"):
            stages.append(self._comma(depth))
        return _chained(stages)

    def _comma(self, depth: int) -> Evaluate:
        parts = [self._alternative(depth)]
        while self._take(","):
            parts.append(self._alternative(depth))
        return parts[0] if len(parts) == 1 else _each_of(parts)

    def _alternative(self, depth: int) -> Evaluate:
        parts = [self._either(depth)]
        while self._take("//"):
            parts.append(self._either(depth))
        found = parts.pop()
        while parts:
            found = _or_else(parts.pop(), found)
        return found

    def _either(self, depth: int) -> Evaluate:
        left = self._both(depth)
        while self._take("or"):
            left = _logic(left, self._both(depth), True)
        return left

    def _both(self, depth: int) -> Evaluate:
        left = self._compared(depth)
        while self._take("and"):
            left = _logic(left, self._compared(depth), False)
        return left

    def _compared(self, depth: int) -> Evaluate:
        left = self._term(depth)
        sign = self._take(*_COMPARISONS)
        if not sign:
            return left
        found = _comparison(left, self._term(depth), sign)
        if self._token.text in _COMPARISONS and self._token.kind == "mark":
            raise self._wrong("a comparison of a comparison needs parentheses")
        return found

    def _term(self, depth: int) -> Evaluate:
        first = self._token
        found = self._primary(depth)
        if self._token.kind == "field" and (first.kind == "number" or found is _identity):
            raise self._wrong(f"{self._token.text!r} is not understood behind {first.text!r}")
        while True:
            if self._token.kind == "field":
                found = _chained([found, _field(self._next().text[1:])])
            elif self._take("?"):
                found = _quiet(found)
            elif self._take("["):
                found = _chained([found, self._bracket()])
            elif self._token == _Token("mark", ".") and self._text[self._at : self._at + 1] in ("[", '"'):
                self._next()
                found = _chained([found, self._after_dot()])
            else:
                return found

    def _primary(self, depth: int) -> Evaluate:
        token = self._next()
        if token.kind == "field":
            return _field(token.text[1:])
        if token.kind == "string":
            return _constant(self._string(token))
        if token.kind == "number":
            return _constant(_number(token.text))
        if token == _Token("mark", "-") and self._token.kind == "number":
            return _constant(_number(f"-{self._next().text}"))
        if token == _Token("mark", "."):
            if self._token.kind == "mark" and self._token.text == ".":
                raise self._wrong("'..' is not understood")
            return self._after_dot() if self._token.kind == "string" or self._token.text == "[" else _identity
        if token == _Token("mark", "("):
            found = self.pipe(depth + 1)
            self._expect(")")
            return found
        if token.kind == "word":
            return self._word(token.text, depth)
        raise self._wrong(f"{token.text or 'the end'!r} is not understood")

    def _after_dot(self) -> Evaluate:
        if self._token.kind == "string":
            return _field(self._string(self._next()))
        self._expect("[")
        return self._bracket()

    def _bracket(self) -> Evaluate:
        if self._take("]"):
            return _iterate
        minus = self._take("-")
        token = self._next()
        self._expect("]")
        if token.kind == "string" and not minus:
            return _field(self._string(token))
        if token.kind == "number" and token.text.isdigit():
            return _index(int(minus + token.text))
        raise self._wrong(f"{minus}{token.text!r} is no key and no index")

    def _word(self, word: str, depth: int) -> Evaluate:
        if word in _WORDS and self._token.text != "(":
            return _WORDS[word]
        if word in _CALLS:
            self._expect("(")
            argument = self.pipe(depth + 1)
            self._expect(")")
            return _CALLS[word](argument)
        raise self._wrong(f"{word!r} is not understood")

    def _string(self, token: _Token) -> str:
        if "\\(" in token.text:
            raise self._wrong("an interpolated string is not understood")
        try:
            return str(json.loads(token.text, strict=False))
        except ValueError:
            raise self._wrong(f"{token.text!r} is no string") from None


def _number(text: str) -> Any:
    return Whole(text) if text.lstrip("-").isdigit() and len(text) < 19 else float(text)


# --- evaluation -------------------------------------------------------------------------------------------------------


def _identity(data: Any, budget: _Budget) -> Iterator[Any]:
    budget.step()
    yield data


def _constant(value: Any) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        budget.step()
        yield value

    return evaluate


def _chained(stages: list[Evaluate]) -> Evaluate:
    if len(stages) == 1:
        return stages[0]
    first, rest = stages[0], _chained(stages[1:])

    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        for value in first(data, budget):
            yield from rest(value, budget)

    return evaluate


def _each_of(parts: list[Evaluate]) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        for part in parts:
            yield from part(data, budget)

    return evaluate


def _field(name: str) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        budget.step()
        if data is None:
            yield None
        elif isinstance(data, dict):
            yield data.get(name)
        else:
            raise _Wrong

    return evaluate


def _index(at: int) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        budget.step()
        if data is None:
            yield None
        elif isinstance(data, list):
            yield data[at] if -len(data) <= at < len(data) else None
        else:
            raise _Wrong

    return evaluate


def _iterate(data: Any, budget: _Budget) -> Iterator[Any]:
    if isinstance(data, dict):
        data = [data[key] for key in sorted(data)]
    if not isinstance(data, list):
        raise _Wrong
    for value in data:
        budget.step()
        yield value


def _quiet(inner: Evaluate) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        try:
            yield from inner(data, budget)
        except _Wrong:
            return

    return evaluate


def _or_else(first: Evaluate, other: Evaluate) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        # Unlike jq, in gojq an error on the left fails the whole.
        found = False
        for value in first(data, budget):
            if _true(value):
                found = True
                yield value
        if not found:
            yield from other(data, budget)

    return evaluate


def _logic(left: Evaluate, right: Evaluate, decides: bool) -> Evaluate:
    """`or` short-circuits on true, `and` on false."""

    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        for one in left(data, budget):
            budget.step()
            if _true(one) is decides:
                yield decides
                continue
            for other in right(data, budget):
                yield _true(other)

    return evaluate


def _comparison(left: Evaluate, right: Evaluate, sign: str) -> Evaluate:
    holds = _HOLDS[sign]

    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        # The right side is the outer loop, as in jq.
        for other in right(data, budget):
            for one in left(data, budget):
                budget.step()
                yield holds(_ordered(one, budget, 0), _ordered(other, budget, 0))

    return evaluate


_HOLDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def _ordered(value: Any, budget: _Budget, depth: int) -> Any:
    """In jq's order: null, false, true, numbers, strings, arrays, objects (by their keys first)."""
    budget.step()
    if depth > DEPTH_MAX:
        raise _TooMuch
    if value is None or isinstance(value, bool):
        return (0 if value is None else 1 + value, 0)
    if isinstance(value, int | float):
        return (3, value)
    if isinstance(value, str):
        return (4, value)
    if isinstance(value, list):
        return (5, [_ordered(each, budget, depth + 1) for each in value])
    keys = sorted(value)
    return (6, (keys, [_ordered(value[key], budget, depth + 1) for key in keys]))


def _true(value: Any) -> bool:
    return value is not None and value is not False


def _select(condition: Evaluate) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        for value in condition(data, budget):
            if _true(value):
                yield data

    return evaluate


def _map(inner: Evaluate) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        yield [found for value in _iterate(data, budget) for found in inner(value, budget)]

    return evaluate


def _any_or_all(decides: bool) -> Callable[[Evaluate], Evaluate]:
    def call(condition: Evaluate) -> Evaluate:
        def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
            for value in _iterate(data, budget):
                for found in condition(value, budget):
                    if _true(found) is decides:
                        yield decides
                        return
            yield not decides

        return evaluate

    return call


def _with_argument(function: Callable[[Any, Any], Any]) -> Callable[[Evaluate], Evaluate]:
    def call(argument: Evaluate) -> Evaluate:
        def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
            for value in argument(data, budget):
                budget.step()
                yield function(data, value)

        return evaluate

    return call


def _simple(function: Callable[[Any], Any]) -> Evaluate:
    def evaluate(data: Any, budget: _Budget) -> Iterator[Any]:
        budget.step()
        yield function(data)

    return evaluate


def _has(data: Any, key: Any) -> bool:
    if data is None:
        return False
    if isinstance(data, dict) and isinstance(key, str):
        return key in data
    if isinstance(data, list) and isinstance(key, int | float) and not isinstance(key, bool):
        return 0 <= key < len(data)
    raise _Wrong


def _texts(function: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def call(data: Any, argument: Any) -> bool:
        if not isinstance(data, str) or not isinstance(argument, str):
            raise _Wrong
        return function(data, argument)

    return call


def _length(data: Any) -> Any:
    if data is None:
        return Whole(0)
    if isinstance(data, bool):
        raise _Wrong
    if isinstance(data, str | list | dict):
        return Whole(len(data))
    return Whole(abs(data)) if isinstance(data, Whole) else abs(data)


def _keys(data: Any) -> Any:
    if isinstance(data, dict):
        return sorted(data)
    if isinstance(data, list):
        return [Whole(at) for at in range(len(data))]
    raise _Wrong


def _type(data: Any) -> str:
    if data is None or isinstance(data, bool):
        return "null" if data is None else "boolean"
    if isinstance(data, int | float):
        return "number"
    return "string" if isinstance(data, str) else "array" if isinstance(data, list) else "object"


def _empty(data: Any, budget: _Budget) -> Iterator[Any]:
    yield from ()


_WORDS: Final[dict[str, Evaluate]] = {
    "true": _constant(True),
    "false": _constant(False),
    "null": _constant(None),
    "not": _simple(lambda data: not _true(data)),
    "empty": _empty,
    "length": _simple(_length),
    "keys": _simple(_keys),
    "type": _simple(_type),
    "any": _any_or_all(True)(_identity),
    "all": _any_or_all(False)(_identity),
}
_CALLS: Final[dict[str, Callable[[Evaluate], Evaluate]]] = {
    "select": _select,
    "map": _map,
    "any": _any_or_all(True),
    "all": _any_or_all(False),
    "has": _with_argument(_has),
    "startswith": _with_argument(_texts(str.startswith)),
    "endswith": _with_argument(_texts(str.endswith)),
}
