"""Literal formats with literal lists of arguments, whose types must fit their clauses.

Source: cel-go `ext/formatting.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikube_py.cel.strings import CLAUSES, Unformatted, formatted
from minikube_py.cel.syntax import Call, ListOf, Literal, MapOf, Node

_KINDS: Final = {
    "s": ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"),
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"),
    "o": ("int", "uint"),
}
_NAMES: Final = {
    "any": "google.protobuf.Any", "duration": "google.protobuf.Duration", "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
}  # fmt: skip


def misfit(call: Call) -> tuple[Node, str] | None:
    """What does not fit, and why."""
    text = call.target.value if isinstance(call.target, Literal) else None
    if not isinstance(text, str) or len(call.args) != 1 or not isinstance(call.args[0], ListOf):
        return None
    used = 0
    at: Node = call

    def checked(clause: str, precision: int, argument: Node) -> str:
        nonlocal used, at
        used += 1
        for part in _parts(argument) if clause == "s" else (argument,):
            if part.type.kind != "dyn" and part.type.kind not in _KINDS[clause.lower()]:
                at = part
                name = _NAMES.get(part.type.kind, part.type.name)
                raise Unformatted(f"{CLAUSES[clause.lower()]}, was given {name}")
        return ""

    items = call.args[0].items
    try:
        formatted(text, items, checked)
    except Unformatted as error:
        return at, str(error)
    if used < len(items):
        return call, f"too many arguments supplied to string.format (expected {used}, got {len(items)})"
    return None


def _parts(node: Node) -> Iterator[Node]:
    """The node, and what a literal list or map of it contains."""
    yield node
    inner = node.items if isinstance(node, ListOf) else []
    if isinstance(node, MapOf):
        inner = [part for key, value, _ in node.entries for part in (key, value)]
    for part in inner:
        yield from _parts(part)
