"""Expression trees and syntax errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from minikube_py.cel.allowance import spend
from minikube_py.cel.types import ERROR, Type

DEPTH_MAX: Final = 250
RESERVED: Final = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
     "package", "namespace", "null", "return", "true", "var", "void", "while")
)  # fmt: skip
"""Words that are no identifiers."""


class Invalid(Exception):
    """An expression that does not compile. The message is upstream's."""


@dataclass(slots=True, eq=False)
class Node:
    """`at` is an offset into the text. The checker sets `type` and `overloads`."""

    at: int
    type: Type = field(default=ERROR, init=False)
    overloads: tuple[str, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    value: Any
    of: Type


@dataclass(slots=True, eq=False)
class Ident(Node):
    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """`has` asks whether the field is there. `whole`: the variable or type that it names, if it selects nothing."""

    operand: Node
    name: str
    has: bool = False
    whole: str = ""


@dataclass(slots=True, eq=False)
class Call(Node):
    function: str
    target: Node | None
    args: list[Node]


@dataclass(slots=True, eq=False)
class ListOf(Node):
    items: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapOf(Node):
    """Key, value and whether the entry is optional."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Entry:
    """Of a message: `at` is where its colon is."""

    at: int
    name: str
    value: Node
    optional: bool


@dataclass(slots=True, eq=False)
class StructOf(Node):
    name: str
    entries: list[Entry]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """What macros become: `step` computes the next accumulator from an item, while `condition` holds."""

    range: Node
    var: str
    var2: str
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node


def qualified(node: Node) -> str:
    """`a.b` for an identifier with selectors; empty for anything else."""
    names: list[str] = []
    while isinstance(node, Select) and not node.has:
        names.append(node.name)
        node = node.operand
    return ".".join([node.name, *reversed(names)]) if isinstance(node, Ident) else ""


def parts_of(node: Node) -> list[Node]:
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return [*([] if node.target is None else [node.target]), *node.args]
    if isinstance(node, ListOf):
        return node.items
    if isinstance(node, MapOf):
        return [part for key, value, _ in node.entries for part in (key, value)]
    if isinstance(node, StructOf):
        return [entry.value for entry in node.entries]
    if isinstance(node, Comprehension):
        return [node.range, node.start, node.condition, node.step, node.result]
    return []


@dataclass(frozen=True, slots=True)
class Problem:
    """`line` and `column` from 1 and 0, as cel-go counts them."""

    line: int
    column: int
    text: str


class Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(i + 1 for i, char in enumerate(text) if char == "\n")]

    def problem(self, at: int, text: str) -> Problem:
        if not self.text:
            return Problem(1, -1, text)
        line = sum(start <= at for start in self._starts)
        return Problem(line, at - self._starts[line - 1], text)

    def refusal(self, problems: list[Problem]) -> Invalid:
        """In the order of their places."""
        in_order = sorted(problems, key=lambda problem: (problem.line, problem.column))
        return Invalid("\n".join(map(self._shown, in_order)))

    def _shown(self, problem: Problem) -> str:
        spend(len(self.text) >> 4)
        told = f"ERROR: <input>:{problem.line}:{problem.column + 1}: {problem.text}"
        if problem.column < 0:
            return told
        line = self.text.split("\n")[problem.line - 1].replace("\t", " ")
        before = "".join("." if char.isascii() else "．" for char in line[: problem.column])
        here = line[problem.column : problem.column + 1]
        return f"{told}\n | {line}\n | {before}{'^' if here.isascii() else '＾'}"


def too_deep(text: str) -> Invalid:
    return Invalid(f"ERROR: <input>:-1:0: {text}")
