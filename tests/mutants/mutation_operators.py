"""The mutation operators: what is changed in a module's source, one place at a time.

`OPERATORS` is the table. An operator looks at one node of the syntax tree and says what may stand instead. The change
is made in the text, so line numbers and all other characters stay as they are.

Not mutated: docstrings, annotations, decorators, imports, f-strings, what an exception is constructed from (its words
are the business of other tests), and declarations at module and class level except their numbers and flags.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

Replacement = tuple[ast.AST, ast.AST | None, str]
"""Node, what stands instead (None: `pass`), and a word that tells apart several changes of one node."""


class Operator(NamedTuple):
    name: str
    what: str
    at: Callable[[ast.AST, bool], Iterator[Replacement]]
    """The second argument: whether the node lies in a function."""


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant. `start` and `end` are offsets in the module's UTF-8 bytes; `path` lies below `minikube_py/`."""

    path: str
    operator: str
    function: str
    line: int
    end_line: int
    start: int
    end: int
    old: str
    new: str
    nth: int = 0

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @property
    def key(self) -> str:
        """The same for the same change as long as its function has it: line numbers play no part."""
        parts = (self.path, self.function, self.operator, self.old, self.new, str(self.nth))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def row(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.key}  {self.path}:{self.line} {self.function}: {self.operator}: {old[:70]}  ->  {new[:70]}"


# --- the operators ----------------------------------------------------------------------------------------------------

_SWAPPED_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SWAPPED_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_UNORDERED: Final = frozenset({"min", "max", "isinstance", "issubclass", "cast", "set", "frozenset", "getattr"})
"""Calls whose arguments are not swapped: nothing would change, or nothing but a TypeError would come of it."""


def _comparison(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.Compare):
        for at, comparator in enumerate(node.ops):
            swapped = list(node.ops)
            swapped[at] = _SWAPPED_COMPARISONS[type(comparator)]()
            yield node, ast.Compare(node.left, swapped, node.comparators), str(at)


def _boundary(node: ast.AST, _: bool) -> Iterator[Replacement]:
    """One more or one less, where `comparison` would not come to the same: `a < b` is `a < b - 1`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if type(node.ops[0]) in (ast.Lt, ast.GtE):
            yield node.comparators[0], _plus(node.comparators[0], -1), "-1"
        elif type(node.ops[0]) in (ast.LtE, ast.Gt):
            yield node.comparators[0], _plus(node.comparators[0], 1), "+1"
    elif isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield bound, _plus(bound, 1), "+1"
                yield bound, _plus(bound, -1), "-1"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        for argument in node.args[:2]:
            yield argument, _plus(argument, 1), "+1"
            yield argument, _plus(argument, -1), "-1"


def _negation(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        yield node.test, ast.UnaryOp(ast.Not(), node.test), "not"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand, "no not"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, ast.BoolOp(other, node.values), "and or"
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield test, ast.UnaryOp(ast.Not(), test), "not"


def _constant(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield node, ast.Constant(not node.value), "flag"
        elif isinstance(node.value, int | float):
            yield node, ast.Constant(node.value + 1), "number"
        elif isinstance(node.value, bytes):
            yield node, ast.Constant(node.value + b"\0"), "bytes"


def _deletion(node: ast.AST, inside: bool) -> Iterator[Replacement]:
    if not inside:
        return
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await | ast.YieldFrom)
    declared = isinstance(node, ast.AnnAssign) and node.value is not None
    if call or declared or isinstance(node, ast.Assign | ast.AugAssign | ast.Delete | ast.Raise):
        yield node, None, "statement"


def _arguments(node: ast.AST, inside: bool) -> Iterator[Replacement]:
    if not (inside and isinstance(node, ast.Call)):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if plain and name not in _UNORDERED:
        for at in range(len(node.args) - 1):
            swapped = list(node.args)
            swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
            yield node, ast.Call(node.func, swapped, node.keywords), f"swap {at}"
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            kept = node.keywords[:at] + node.keywords[at + 1 :]
            yield node, ast.Call(node.func, node.args, kept), f"drop {keyword.arg}"


def _return(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.Return) and node.value is not None and not _is_none_or_false(node.value):
        yield node.value, ast.Constant(None), "None"


def _loop(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.Break):
        yield node, ast.Continue(), "continue"
    elif isinstance(node, ast.Continue):
        yield node, ast.Break(), "break"


def _swallow(node: ast.AST, _: bool) -> Iterator[Replacement]:
    if isinstance(node, ast.ExceptHandler):
        block = ast.Module(node.body, [])
        if not all(isinstance(statement, ast.Pass) for statement in node.body):
            yield block, None, "handler"


def _arithmetic(node: ast.AST, inside: bool) -> Iterator[Replacement]:
    """Outside of functions `|` joins types."""
    types = not inside and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED_ARITHMETIC and not types:
        yield node, ast.BinOp(node.left, _SWAPPED_ARITHMETIC[type(node.op)](), node.right), ""
    elif isinstance(node, ast.AugAssign) and type(node.op) in _SWAPPED_ARITHMETIC:
        yield node, ast.AugAssign(node.target, _SWAPPED_ARITHMETIC[type(node.op)](), node.value), ""
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        other = ast.Name("max" if node.func.id == "min" else "min")
        yield node.func, other, ""


OPERATORS: Final = (
    Operator("comparison", "< and <=, > and >=, == and !=, is and is not, in and not in change places", _comparison),
    Operator("boundary", "one more or one less in a comparison, a slice or a range", _boundary),
    Operator("negation", "a condition is negated, a `not` left out, `and` and `or` change places", _negation),
    Operator("constant", "another number, the other flag, one byte more", _constant),
    Operator("deletion", "a call, an assignment, a `del` or a `raise` is left out", _deletion),
    Operator("arguments", "two arguments change places, a named one is left out", _arguments),
    Operator("return", "None is returned", _return),
    Operator("loop", "`break` and `continue` change places", _loop),
    Operator("swallow", "an exception is caught, and nothing is done about it", _swallow),
    Operator("arithmetic", "+ and -, * and +, // and *, << and >>, & and |, min and max change places", _arithmetic),
)


def _is_none_or_false(node: ast.expr) -> bool:
    """Whose callers cannot tell it from None; the other flag is an operator of its own."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _plus(node: ast.expr, amount: int) -> ast.expr:
    return ast.BinOp(node, ast.Add() if amount > 0 else ast.Sub(), ast.Constant(abs(amount)))


# --- where they apply -------------------------------------------------------------------------------------------------


def changes(path: str, source: str) -> list[Change]:
    """Every change that the operators can make in a module, in the order of the text and of the table."""
    text = Text(source)
    found: list[Change] = []
    counted: Counter[str] = Counter()
    for node, function, inside in _nodes(ast.parse(source), "", False):
        for operator in OPERATORS:
            for target, instead, _word in operator.at(node, inside):
                start, end = text.span(target)
                old, new = source_slice(text.bytes, start, end), _rendered(instead)
                change = Change(path, operator.name, function, *_lines(target), start, end, old, new)
                nth = counted[change.key]
                counted[change.key] += 1
                found.append(Change(path, operator.name, function, *_lines(target), start, end, old, new, nth))
    return found


def source_slice(source: bytes, start: int, end: int) -> str:
    return source[start:end].decode()


def _rendered(node: ast.AST | None) -> str:
    if node is None:
        return "pass"
    text = ast.unparse(ast.fix_missing_locations(node))
    atom = isinstance(node, ast.stmt | ast.Name | ast.Constant | ast.Attribute)
    return text if atom else f"({text})"


def _lines(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.Module):
        return node.body[0].lineno, node.body[-1].end_lineno or 0
    assert isinstance(node, ast.expr | ast.stmt)
    return node.lineno, node.end_lineno or node.lineno


class Text:
    """From lines and columns to offsets in bytes."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        self._starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        first, last = (node.body[0], node.body[-1]) if isinstance(node, ast.Module) else (node, node)
        assert isinstance(first, ast.expr | ast.stmt) and isinstance(last, ast.expr | ast.stmt)
        assert last.end_lineno is not None and last.end_col_offset is not None
        start, end = self._starts[first.lineno - 1], self._starts[last.end_lineno - 1]
        return start + first.col_offset, end + last.end_col_offset


def _nodes(node: ast.AST, function: str, inside: bool) -> Iterator[tuple[ast.AST, str, bool]]:
    """Every node that may be mutated, with its function's qualified name."""
    for child in _children(node):
        name, within = function, inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{function}.{child.name}" if function else child.name
            within = inside or not isinstance(child, ast.ClassDef)
        yield child, name, within
        yield from _nodes(child, name, within)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    skipped: list[object] = []
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        skipped += [*node.decorator_list, node.returns]
    elif isinstance(node, ast.ClassDef):
        skipped += [*node.decorator_list, *node.bases, *node.keywords]
    elif isinstance(node, ast.AnnAssign | ast.arg):
        skipped.append(node.annotation)
    elif isinstance(node, ast.Raise):
        skipped += [node.exc, node.cause]
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    kept = {id(each) for each in skipped if each is not None}
    for child in ast.iter_child_nodes(node):
        if id(child) not in kept:
            yield child
