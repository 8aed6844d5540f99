"""In which histories can a mutant make a difference? One run of each history without a mutant tells it of many.

A history is the same to the byte each time, so where the changed place is not reached, or what is there would have
come to the same, the mutant's history is the healthy one. A witness is planted at each mutant's place: it computes what
the mutant would have, notes whether that differs, and goes on with what is right. Where the expression around a change
has no effects, all of it is compared: `a < b + 1` for `a < b` differs only where `a == b`. Anything else counts as
different as soon as it is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mutation_operators import Change, Text

Other = Callable[[], Any]
NAME: Final = "__witness__"
PURE_CALLS: Final = frozenset({"abs", "bool", "isinstance", "len", "max", "min"})
_PURE: Final = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Slice, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp,
    ast.IfExp, ast.Tuple, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def witness(seen: set[str], key: str, value: Any = None, other: Other | None = None, truth: bool = False) -> Any:
    """What a planted witness calls: `value`, whatever the mutant would have."""
    if key not in seen and (other is None or _differs(value, other, truth)):
        seen.add(key)
    return value


def _differs(value: Any, other: Other, truth: bool) -> bool:
    try:
        its = other()
        if truth:
            return bool(value) != bool(its)
        plain = type(value) is type(its) and isinstance(value, str | bytes | int | float)
        return value is not its and not (plain and value == its)
    except Exception:
        return True


def planted(source: str, changes: Iterable[Change]) -> tuple[str, set[str]]:
    """The module with witnesses, and the keys of the mutants that have one. The others lie within another's place, or
    at module level."""
    text, module = Text(source), list(ast.walk(ast.parse(source)))
    above = {child: node for node in module for child in ast.iter_child_nodes(node)}
    places: dict[tuple[int, int], ast.expr | ast.stmt] = {}
    for node in module:
        if isinstance(node, ast.expr | ast.stmt):
            places.setdefault(text.span(node), node)
    edits: dict[str, Edit] = {}
    for change in changes:
        edit = _edit(text, places, above, change)
        if edit is not None and not any(edit.start < each.end and each.start < edit.end for each in edits.values()):
            edits[change.key] = edit
    changed = text.bytes
    for edit in sorted(edits.values(), reverse=True):
        changed = changed[: edit.start] + edit.text.encode() + changed[edit.end :]
    return changed.decode(), set(edits)


def _edit(
    text: Text, places: Mapping[tuple[int, int], ast.expr | ast.stmt], above: dict[ast.AST, ast.AST], change: Change
) -> Edit | None:
    """`places`: the outermost node of each span."""
    node = places.get((change.start, change.end))
    if node is None:  # a handler's body
        begin = (each for (start, _), each in places.items() if start == change.start)
        node = next((each for each in begin if isinstance(each, ast.stmt) and _ends_within(text, each, change)), None)
    if node is None or not _in_a_function(node, above):
        return None
    if isinstance(node, ast.stmt):
        return _before(text, node, change)
    place = _whole(node, above)
    start, end = text.span(place)
    old = text.bytes[start:end].decode()
    if not _pure(place):
        return _reached(text, node, change)
    new = (text.bytes[start : change.start] + change.new.encode() + text.bytes[change.end : end]).decode()
    return Edit(start, end, f"{NAME}({change.key!r}, ({old}), lambda: ({new}), {_asked_for_truth(place, above)})")


def _ends_within(text: Text, node: ast.stmt, change: Change) -> bool:
    return text.span(node)[1] <= change.end


def _whole(node: ast.expr, above: dict[ast.AST, ast.AST]) -> ast.expr:
    """The largest expression around it that has no effects. A slice has no value of its own: what it cuts has."""
    place = node
    parent = above[node]
    while isinstance(parent, ast.expr) and (isinstance(parent, ast.Slice) or _pure(parent)):
        if not isinstance(parent, ast.Slice):
            place = parent
        parent = above[parent]
    return place


def _in_a_function(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """In its body: defaults, decorators and annotations are not."""
    while node in above:
        parent = above[node]
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and node in parent.body:
            return True
        if isinstance(parent, ast.Lambda) and node is parent.body:
            return True
        node = parent
    return False


def _before(text: Text, node: ast.stmt, change: Change) -> Edit:
    """A statement of its own before this one."""
    start, _ = text.span(node)
    before = text.bytes[text.bytes.rfind(b"\n", 0, start) + 1 : start]
    between = "; " if before.strip() else f"\n{before.decode()}"
    return Edit(start, start, f"{NAME}({change.key!r}){between}")


def _reached(text: Text, node: ast.expr, change: Change) -> Edit | None:
    """The expression is computed as it is, and noted as soon as that begins."""
    if isinstance(node, ast.Slice | ast.Starred):
        return None
    start, end = text.span(node)
    old = text.bytes[start:end].decode()
    return Edit(start, end, f"({NAME}({change.key!r}), ({old}))[1]")


def _pure(node: ast.AST) -> bool:
    def fine(each: ast.AST) -> bool:
        if isinstance(each, ast.Call):
            return isinstance(each.func, ast.Name) and each.func.id in PURE_CALLS and not each.keywords
        return isinstance(each, _PURE)

    # What is assigned to is no expression.
    stored = any(isinstance(getattr(each, "ctx", None), ast.Store | ast.Del) for each in ast.walk(node))
    return not isinstance(node, ast.Slice) and not stored and all(map(fine, ast.walk(node)))


def _asked_for_truth(node: ast.expr, above: dict[ast.AST, ast.AST]) -> bool:
    parent = above[node]
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return node is parent.test
    if isinstance(parent, ast.comprehension):
        return any(node is each for each in parent.ifs)
    return isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
