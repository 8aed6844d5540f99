"""Parses expressions by cel-go's grammar, with its error messages.

After an error it recovers like ANTLR from one extra or missing token; further errors that upstream would report are
omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from minikube_py.cel.macros import expanded
from minikube_py.cel.syntax import (
    DEPTH_MAX,
    RESERVED,
    Call,
    Entry,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
    Source,
    StructOf,
    qualified,
    too_deep,
)
from minikube_py.cel.tokens import BadEscape, Token, tokens, unquoted
from minikube_py.cel.types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, Type
from minikube_py.fields.digits import whole_number

_RELATIONS: Final = ("<", "<=", ">=", ">", "==", "!=", "in")
_CONSTANTS: Final = ("true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES")
_STARTS: Final = ("[", "{", "(", ".", "-", "!", *_CONSTANTS, "IDENTIFIER")
_CLOSING: Final = ("<EOF>", ")", "]", "}", ",", ":", "?", "&&", "||", "+", "-", "*", "/", "%", ".", "[", *_RELATIONS)
"""Tokens that can follow a bracketed expression."""


def _wanted(kinds: tuple[str, ...]) -> str:
    named = [kind if kind.isupper() and kind.isascii() and kind[0].isalpha() else f"'{kind}'" for kind in kinds]
    return named[0] if len(named) == 1 else "{" + ", ".join(named) + "}"


_EXPRESSION: Final = _wanted(_STARTS)
_ARGUMENT: Final = _wanted((*_STARTS[:3], ")", *_STARTS[3:]))
_INDEX: Final = _wanted((*_STARTS[:6], "?", *_STARTS[6:]))


class _Stop(Exception):
    """No further error can be reported."""


def parse(text: str, binds: bool = False) -> tuple[Source, Node]:
    """`binds`: see `macros.Said`. Raises: Invalid."""
    source = Source(text)
    parser = _Parser(source, binds)
    try:
        root = parser.whole()
    except _Stop:
        root = None
    except RecursionError:
        raise too_deep(f"expression recursion limit exceeded: {DEPTH_MAX}") from None
    if parser.wrong or root is None:
        raise source.refusal(parser.wrong)
    return source, root


class _Parser:
    def __init__(self, source: Source, binds: bool) -> None:
        self._source = source
        self.binds = binds
        self._tokens, self.wrong = tokens(source)
        self._next = 0
        self._recovering = False
        self._depth = 0

    # --- tokens and errors -------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _after(self) -> Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _is(self, *kinds: str) -> bool:
        return self._token.kind in kinds

    def _take(self) -> Token:
        token = self._token
        self._next = min(self._next + 1, len(self._tokens) - 1)
        self._recovering = False
        return token

    def say(self, at: int, text: str) -> None:
        self.wrong.append(self._source.problem(at, text))

    def _syntax(self, text: str) -> None:
        if not self._recovering:
            self.say(self._token.at, f"Syntax error: {text}")
        self._recovering = True

    def _stop(self, text: str) -> NoReturn:
        self._syntax(text)
        raise _Stop

    def _skip_one(self, wanted: str) -> None:
        self._syntax(f"extraneous input '{self._token.text}' expecting {wanted}")
        self._next += 1

    def _expect(self, kind: str, *, or_comma: bool = False) -> Token:
        if self._is(kind):
            return self._take()
        wanted = _wanted((kind, ",")) if or_comma else _wanted((kind,))
        if self._after().kind == kind:
            self._skip_one(wanted)
            return self._take()
        if (kind == ")" or (kind == "]" and not or_comma)) and self._token.kind in _CLOSING:
            self._syntax(f"missing '{kind}' at '{self._token.text}'")
            return self._token
        self._stop(f"mismatched input '{self._token.text}' expecting {wanted}")

    # --- the grammar ------------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        found = self._expression()
        if not self._is("<EOF>"):
            word = "extraneous" if self._after().kind == "<EOF>" else "mismatched"
            self._stop(f"{word} input '{self._token.text}' expecting <EOF>")
        return found

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise too_deep(f"expression recursion limit exceeded: {DEPTH_MAX}")
        found = self._or()
        if self._is("?"):
            at = self._take().at
            yes = self._or()
            self._expect(":")
            found = Call(at, "_?_:_", None, [found, yes, self._expression()])
        self._depth -= 1
        return found

    def _or(self) -> Node:
        terms, places = [self._and()], []
        while self._is("||"):
            places.append(self._take().at)
            terms.append(self._and())
        return _balanced("_||_", terms, places)

    def _and(self) -> Node:
        terms, places = [self._relation()], []
        while self._is("&&"):
            places.append(self._take().at)
            terms.append(self._relation())
        return _balanced("_&&_", terms, places)

    def _relation(self) -> Node:
        return self._chain(_RELATIONS, self._sum)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*", "/", "%"), self._unary)

    def _chain(self, operators: tuple[str, ...], inner: Callable[[], Node]) -> Node:
        found: Node = inner()
        count = 0
        while self._is(*operators):
            token = self._take()
            count += 1
            if count > DEPTH_MAX:
                raise too_deep("max recursion depth exceeded")
            name = "@in" if token.kind == "in" else f"_{token.kind}_"
            found = Call(token.at, name, None, [found, inner()])
        return found

    def _unary(self) -> Node:
        if not self._is("!", "-"):
            return self._member()
        first, signs = self._token, 0
        if first.kind == "-" and self._after().kind in ("NUM_INT", "NUM_FLOAT"):
            return self._member()
        while self._is(first.kind):
            self._take()
            signs += 1
        if not self._is(*_STARTS) and first.kind == "!":
            self._stop(f"extraneous input '{self._token.text}' expecting {_EXPRESSION}")
        if first.kind == "-" and not self._is(*_STARTS[:4], "-", *_STARTS[6:]):
            self._no_number(first)
        operand = self._member()
        return operand if signs % 2 == 0 else Call(first.at, f"{first.kind}_", None, [operand])

    def _no_number(self, sign: Token) -> NoReturn:
        """After a sign that must belong to a number."""
        text = "" if self._is("<EOF>") else self._source.text[sign.at + 1 : self._token.at] + self._token.text
        self.say(self._token.at, f"Syntax error: no viable alternative at input '-{text}'")
        if not text:
            self._syntax(f"mismatched input '<EOF>' expecting {_EXPRESSION}")
        raise _Stop

    def _member(self) -> Node:
        found = self._primary()
        count = 0
        while self._is(".", "["):
            count += 1
            if count > DEPTH_MAX:
                raise too_deep("max recursion depth exceeded")
            found = self._selected(found) if self._is(".") else self._indexed(found)
        return found

    def _selected(self, operand: Node) -> Node:
        dot = self._take()
        optional = self._is("?")
        if optional:
            self._take()
        token = self._token
        if token.kind == "ESC_IDENTIFIER":
            self.say(token.at, "unsupported syntax: '`'")
            raise _Stop
        if token.kind in ("true", "false", "null"):
            self._stop(f"mismatched input '{token.text}' expecting IDENTIFIER")
        if token.kind != "IDENTIFIER":
            text = "" if token.kind == "<EOF>" else token.text
            self._syntax(f"no viable alternative at input '.{text}'")
            if token.kind not in _RELATIONS:
                raise _Stop
            return operand
        self._take()
        if self._is("{") and not optional and (name := qualified(operand)):
            return self._struct(f"{name}.{token.text}")
        if not self._is("(") or optional:
            if optional:
                return Call(dot.at, "_?._", None, [operand, Literal(token.at, token.text, STRING)])
            return Select(dot.at, operand, token.text)
        opened = self._take()
        return expanded(self, Call(opened.at, token.text, operand, self._arguments(")")))

    def _indexed(self, operand: Node) -> Node:
        opened = self._take()
        optional = self._is("?")
        if optional:
            self._take()
        elif not self._is(*_STARTS) and self._after().kind not in _STARTS:
            self._stop(f"mismatched input '{self._token.text}' expecting {_INDEX}")
        index = self._expression()
        self._expect("]")
        return Call(opened.at, "_[?_]" if optional else "_[_]", None, [operand, index])

    def _arguments(self, closing: str) -> list[Node]:
        if not self._is(closing, *_STARTS):
            if self._after().kind == closing:
                self._skip_one(_ARGUMENT)
            elif self._after().kind not in _STARTS:
                self._stop(f"mismatched input '{self._token.text}' expecting {_ARGUMENT}")
        found: list[Node] = []
        if not self._is(closing):
            found.append(self._expression())
            while self._is(","):
                self._take()
                found.append(self._expression())
        self._expect(closing)
        return found

    def _primary(self) -> Node:
        if not self._is(*_STARTS[:4], "-", *_CONSTANTS, "IDENTIFIER"):
            if self._after().kind in _STARTS and self._token.kind != ":":
                self._skip_one(_EXPRESSION)
                return self._unary()
            self._syntax(f"mismatched input '{self._token.text}' expecting {_EXPRESSION}")
            if self._is("<EOF>") or self._token.kind not in _CLOSING:
                raise _Stop
            return Literal(self._token.at, None, NULL)
        token = self._take()
        if token.kind == "(":
            found = self._expression()
            self._expect(")")
            return found
        if token.kind == "[":
            return self._list(token)
        if token.kind == "{":
            return self._map(token)
        if token.kind in ("IDENTIFIER", "."):
            return self._named(token)
        return self._constant(token)

    def _named(self, token: Token) -> Node:
        name = token
        if token.kind == ".":
            name = self._token
            if name.kind != "IDENTIFIER":
                text = "" if name.kind == "<EOF>" else name.text
                self._stop(f"no viable alternative at input '.{text}'")
            self._take()
        if name.text in RESERVED:
            self.say(name.at, f"reserved identifier: {name.text}")
        full = f".{name.text}" if token.kind == "." else name.text
        if self._is("("):
            opened = self._take()
            return expanded(self, Call(opened.at, full.lstrip("."), None, self._arguments(")")))
        return self._struct(full) if self._is("{") else Ident(name.at, full.lstrip("."))

    def _constant(self, token: Token) -> Node:
        sign = ""
        at = token.at
        if token.kind == "-":
            if not self._is("NUM_INT", "NUM_FLOAT"):
                self._no_number(token)
            sign, token = "-", self._take()
        if token.kind in ("NUM_INT", "NUM_UINT"):
            digits = token.text.rstrip("uU") if token.kind == "NUM_UINT" else token.text
            value = int(sign + digits, 16) if digits.startswith("0x") else whole_number(sign + digits)
            if token.kind == "NUM_UINT":
                return self._number(at, value, 0 <= value < 1 << 64, UINT)
            return self._number(at, value, -(1 << 63) <= value < 1 << 63, INT)
        if token.kind == "NUM_FLOAT":
            number = float(sign + token.text)
            return self._number(at, number, abs(number) != float("inf"), DOUBLE)
        if token.kind in ("STRING", "BYTES"):
            text: str | bytes = ""
            try:
                text = unquoted(token)
            except BadEscape as error:
                self.say(at, str(error))
            return Literal(at, text, STRING if token.kind == "STRING" else BYTES)
        return Literal(
            at, {"true": True, "false": False, "null": None}[token.kind], NULL if token.kind == "null" else BOOL
        )

    def _number(self, at: int, value: float, fits: bool, of: Type) -> Node:
        if not fits:
            self.say(at, f"invalid {of} literal")
        return Literal(at, value, of)

    def _list(self, opened: Token) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        while not self._is("]", ","):
            if self._is("?"):
                self._take()
                optional.add(len(items))
            items.append(self._expression())
            if not self._is(","):
                break
            self._take()
            if self._is("<EOF>"):
                self._expect("]")
                return ListOf(opened.at, items, frozenset(optional))
        if not items and self._is(","):
            self._take()
        self._expect("]", or_comma=bool(items) and self._tokens[self._next - 1].kind != ",")
        return ListOf(opened.at, items, frozenset(optional))

    def _map(self, opened: Token) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._is("}", ","):
            optional = self._is("?")
            if optional:
                self._take()
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._is(","):
                break
            self._take()
        if not entries and self._is(","):
            self._take()
        self._expect("}", or_comma=True)
        return MapOf(opened.at, entries)

    def _struct(self, name: str) -> Node:
        opened = self._take()
        entries: list[Entry] = []
        while not self._is("}", ","):
            optional = self._is("?")
            if optional:
                self._take()
            if not self._is("IDENTIFIER"):
                self._stop(
                    f"mismatched input '{self._token.text}' expecting {{'}}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}}"
                )
            field, colon = self._take().text, self._expect(":")
            entries.append(Entry(colon.at, field, self._expression(), optional))
            if not self._is(","):
                break
            self._take()
        self._expect("}", or_comma=True)
        return StructOf(opened.at, name.lstrip("."), entries)


def _balanced(function: str, terms: list[Node], places: list[int]) -> Node:
    if not places:
        return terms[0]
    middle = (len(places) - 1) // 2 if len(places) % 2 else len(places) // 2
    left = _balanced(function, terms[: middle + 1], places[:middle])
    right = _balanced(function, terms[middle + 1 :], places[middle + 1 :])
    return Call(places[middle], function, None, [left, right])
