"""Go's text/template, parsed: actions, pipelines, variables, if, range and with.

`define`, `block`, `template`, character and complex constants are not supported, nor functions outside the table that
`parse` is given. Source: Go 1.26 `text/template/parse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.stages.errors import NotUnderstood
from minikube_py.stages.go_values import Float, Int

CHARS_MAX: Final = 100_000
DEPTH_MAX: Final = 100
CONTROLS: Final = frozenset(("if", "range", "with", "else", "end", "break", "continue", "define", "block", "template"))
_SPACES: Final = " \t\r\n"
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<raw>`[^`]*`)|(?P<variable>\$\w*)"""
    r"""|(?P<field>\.[^\W\d]\w*)|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+))(?!\w)"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<mark>:=|[=|(),.])"""
)

_ENDED: Final = re.compile(r"[ \t\r\n.,|:()]|\}\}|$")


class Token(NamedTuple):
    """`spaced`: preceded by space."""

    kind: str
    text: str
    line: int
    spaced: bool


class Param(NamedTuple):
    """What a function takes: `any`, `string`, `bool`, `int`, `map`; the last one any number of times if `several`."""

    kinds: tuple[str, ...]
    several: bool = False
    optional: int = 0
    """How many trailing arguments are optional."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Nil:
    pass


@dataclass(frozen=True, slots=True)
class Dot:
    pass


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of a value: of the dot (`base` a Dot), of a variable, or of a pipeline in parentheses."""

    base: Dot | Variable | Pipeline | Call
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its name; `args` None where it is an argument itself."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    args: tuple[Any, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[Command, ...]
    declared: tuple[str, ...]
    assigns: bool
    line: int


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """`kind`: if, with or range."""

    kind: str
    pipeline: Pipeline
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """`kind`: break or continue."""

    kind: str


Nodes = tuple[Any, ...]


def parse(text: str, functions: Mapping[str, Param]) -> Nodes:
    """Raises: NotUnderstood, with the line within the text."""
    if len(text) > CHARS_MAX:
        raise NotUnderstood(f"a template longer than {CHARS_MAX:,} characters")
    return _Parser(list(_tokens(text)), functions).template()


# --- tokens -----------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> Iterator[Token]:
    at = line = 0
    trim = False
    while True:
        start = text.find("{{", at)
        plain = text[at:] if start < 0 else text[at:start]
        shown = plain.lstrip(_SPACES) if trim else plain
        if start >= 0 and _trims_left(text, start + 2):
            shown = shown.rstrip(_SPACES)
        if shown:
            yield Token("text", shown, line + 1, False)
        line += plain.count("\n")
        if start < 0:
            yield Token("end", "", line + 1, False)
            return
        at = start + 2
        if _trims_left(text, at):
            at += 1
        comment = re.compile(r"\s?/\*" if _trims_left(text, start + 2) else r"/\*").match(text, at)
        if comment:
            closed = text.find("*/", comment.end())
            found = re.compile(r"(\s-)?\}\}").match(text, closed + 2) if closed >= 0 else None
            if found is None:
                raise NotUnderstood("a comment that is not closed before }}", line + 1)
            line += text.count("\n", at, found.end())
            at, trim = found.end(), bool(found[1])
            continue
        yield Token("left", "{{", line + 1, False)
        at, line, trim = yield from _action(text, at, line)


def _trims_left(text: str, at: int) -> bool:
    return text[at : at + 1] == "-" and text[at + 1 : at + 2] in tuple(_SPACES)


def _action(text: str, at: int, line: int) -> Generator[Token, None, tuple[int, int, bool]]:
    """The tokens of an action up to its }}; returns its end, the line there, and whether it trims."""
    spaced = False
    while True:
        closing = re.compile(r"[ \t\r\n]-\}\}|\}\}").match(text, at)
        if closing:
            yield Token("right", "}}", line + 1, spaced)
            return closing.end(), line + closing[0].count("\n"), len(closing[0]) > 2
        found = _TOKEN.match(text, at)
        if found is None:
            rest = text[at : at + 20].split("\n")[0]
            raise NotUnderstood(
                f"{rest!r} within {{{{ }}}} is not understood" if rest else "an action without }}", line + 1
            )
        kind = str(found.lastgroup)
        if kind == "space":
            end = found.end()
            # The last space may belong to ` -}}`.
            if text.startswith("-}}", end):
                end -= 1
                if end == at:
                    continue
            line += text.count("\n", at, end)
            at, spaced = end, True
            continue
        if kind in ("word", "variable", "field") and not _ENDED.match(text, found.end()):
            raise NotUnderstood(f"{text[found.end()]!r} cannot follow {found[0]!r}", line + 1)
        yield Token(kind, found[0], line + 1, spaced)
        line += found[0].count("\n")
        at, spaced = found.end(), False


# --- grammar ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parser:
    tokens: list[Token]
    functions: Mapping[str, Param]
    at: int = 0
    variables: list[str] = field(default_factory=lambda: ["$"])
    ranges: int = 0
    depth: int = 0

    def _peek(self) -> Token:
        return self.tokens[self.at]

    def _next(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _wrong(self, why: str, token: Token | None = None) -> NotUnderstood:
        return NotUnderstood(why, (token or self._peek()).line)

    def _keyword(self) -> str:
        """The current action's keyword, or ""."""
        if self._peek().kind != "left":
            return ""
        after = self.tokens[self.at + 1]
        return after.text if after.kind == "word" and after.text in CONTROLS else ""

    def template(self) -> Nodes:
        found = self._nodes()
        if self._peek().kind != "end":
            raise self._wrong(f"{{{{{self._keyword()}}}}} without what it belongs to")
        return found

    def _nodes(self) -> Nodes:
        """Up to an `else`, an `end` or the end of the template."""
        found: list[Any] = []
        while True:
            token = self._peek()
            if token.kind == "end":
                return tuple(found)
            if token.kind == "text":
                found.append(Text(self._next().text))
                continue
            word = self._keyword()
            if word in ("else", "end"):
                return tuple(found)
            self._next()
            if word:
                self._next()
                found.append(self._control(word, token))
            else:
                found.append(Action(self._pipeline("right")))

    def _control(self, word: str, token: Token) -> Any:
        if word in ("define", "block", "template"):
            raise self._wrong(f"{{{{{word}}}}} is not understood: a stage's template is one piece", token)
        if word in ("break", "continue"):
            if not self.ranges:
                raise self._wrong(f"{{{{{word}}}}} outside of a range", token)
            self._close()
            return Jump(word)
        return self._branch(word, token)

    def _close(self) -> None:
        if self._next().kind != "right":
            raise self._wrong("}} is expected", self.tokens[self.at - 1])

    def _branch(self, kind: str, token: Token) -> Branch:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._wrong(f"nested deeper than {DEPTH_MAX} levels", token)
        mark = len(self.variables)
        pipeline = self._pipeline("right", most=2 if kind == "range" else 1)
        self.ranges += kind == "range"
        then = self._nodes()
        self.ranges -= kind == "range"
        otherwise: Nodes = ()
        word = self._keyword()
        if not word:
            raise self._wrong(f"{{{{{kind}}}}} has no {{{{end}}}}", token)
        self._next()
        self._next()
        if word == "else" and self._peek().text == kind and kind != "range" and self._peek().kind == "word":
            self._next()
            otherwise = (self._branch(kind, token),)
        else:
            self._close()
            if word == "else":
                otherwise = self._nodes()
                if self._keyword() != "end":
                    raise self._wrong(f"{{{{{kind}}}}} has no {{{{end}}}}", token)
                self._next()
                self._next()
                self._close()
        del self.variables[mark:]
        self.depth -= 1
        return Branch(kind, pipeline, then, otherwise)

    def _pipeline(self, end: str, most: int = 1) -> Pipeline:
        line = self._peek().line
        declared, assigns = self._declared(most)
        commands: list[Command] = []
        while True:
            commands.append(self._command())
            token = self._next()
            if token.kind == end or (end == ")" and token.text == ")" and token.kind == "mark"):
                break
            if token.text != "|" or token.kind != "mark":
                raise self._wrong(f"unexpected {token.text or 'end'!r}", token)
        for command in commands[1:]:
            if isinstance(command.args[0], Literal | Nil | Dot):
                raise NotUnderstood("a literal cannot follow |: a function is expected", command.line)
        return Pipeline(tuple(commands), declared, assigns, line)

    def _declared(self, most: int) -> tuple[tuple[str, ...], bool]:
        names: list[str] = []
        start = self.at
        while self._peek().kind == "variable":
            name = self._next().text
            mark = self._peek()
            if mark.kind == "mark" and mark.text in (":=", "="):
                self._next()
                names.append(name)
                assigns = mark.text == "="
                if assigns and (unknown := [each for each in names if each not in self.variables]):
                    raise self._wrong(f"undefined variable {unknown[0]!r}", mark)
                if not assigns:
                    self.variables += names
                return tuple(names), assigns
            if mark.kind == "mark" and mark.text == "," and len(names) + 1 < most:
                self._next()
                names.append(name)
                continue
            break
        self.at = start
        return (), False

    def _command(self) -> Command:
        line = self._peek().line
        args = [self._operand()]
        while self._peek().spaced and not self._ends():
            args.append(self._operand())
        if isinstance(args[0], Call):
            self._check(args[0], len(args) - 1)
        elif len(args) > 1:
            raise NotUnderstood("arguments are for functions alone", line)
        return Command(tuple(args), line)

    def _ends(self) -> bool:
        token = self._peek()
        return token.kind in ("right", "end") or (token.kind == "mark" and token.text in ("|", ")"))

    def _check(self, call: Call, given: int) -> None:
        param = self.functions[call.name]
        most = len(param.kinds)
        # The piped value is one more.
        if given > most and not param.several:
            raise NotUnderstood(f"{call.name} takes {most} arguments, not {given}", call.line)

    def _operand(self) -> Any:
        token = self._next()
        found = self._term(token)
        names: list[str] = []
        while self._peek().kind == "field" and not self._peek().spaced:
            names.append(self._next().text[1:])
        if names:
            if isinstance(found, Literal | Nil | Dot):
                raise self._wrong("a field of a literal", token)
            if isinstance(found, Chain):
                return Chain(found.base, found.names + tuple(names))
            return Chain(found, tuple(names))
        if not self._peek().spaced and not self._ends():
            raise self._wrong(f"unexpected {self._peek().text!r}")
        return found

    def _term(self, token: Token) -> Any:
        kind, text = token.kind, token.text
        if kind == "word":
            return self._word(token)
        if kind == "mark" and text == ".":
            return Dot()
        if kind == "mark" and text == "(":
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self._wrong(f"nested deeper than {DEPTH_MAX} levels", token)
            found = self._pipeline(")")
            self.depth -= 1
            return found
        if kind == "field":
            return Chain(Dot(), (text[1:],))
        if kind == "variable":
            if text not in self.variables:
                raise self._wrong(f"undefined variable {text!r}", token)
            return Variable(text)
        if kind == "number":
            return Literal(self._number(token))
        if kind == "string":
            return Literal(self._string(token))
        if kind == "raw":
            return Literal(text[1:-1].replace("\r", ""))
        raise self._wrong(f"unexpected {text or 'end'!r}", token)

    def _word(self, token: Token) -> Any:
        text = token.text
        if text in ("true", "false"):
            return Literal(text == "true")
        if text == "nil":
            return Nil()
        if text in CONTROLS or text not in self.functions:
            known = ", ".join(sorted(self.functions))
            raise self._wrong(f"function {text!r} is not understood; these are: {known}", token)
        return Call(text, token.line)

    def _number(self, token: Token) -> Any:
        text = token.text
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
            raise self._wrong(f"the octal number {text}: write it decimal", token)
        whole = digits.isdigit() or digits[:2] in ("0x", "0X")
        value: Any = Int(int(text, 0)) if whole else Float(float(text))
        if whole and not -(1 << 63) <= value < 1 << 63:
            raise self._wrong(f"{text} overflows int", token)
        return value

    def _string(self, token: Token) -> str:
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self._wrong(
                f"the escapes of {token.text[:40]} are not understood: those of JSON are", token
            ) from None
