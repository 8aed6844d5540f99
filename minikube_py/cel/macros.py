"""Macros: calls that become comprehensions, conditions and bindings while a text is parsed.

Source: cel-go `parser/macro.go`, `ext/{bindings,comprehensions,lists}.go`, `cel/library.go`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from minikube_py.cel.syntax import Call, Comprehension, Ident, ListOf, Literal, MapOf, Node, Select
from minikube_py.cel.types import BOOL, INT

ACCUMULATOR: Final = "__result__"
_SIMPLE: Final = "argument must be a simple name"


class Said(Protocol):
    binds: bool
    """Whether `cel.bind` is a macro."""

    def say(self, at: int, text: str) -> None: ...


def expanded(said: Said, call: Call) -> Node:
    """What the macro of that name, target and number of arguments makes of the call, or the call itself."""
    count = len(call.args)
    if call.target is None:
        return _has(said, call) if call.function == "has" and count == 1 else call
    if said.binds and call.function == "bind" and count == 3:
        return _bind(said, call) if isinstance(call.target, Ident) and call.target.name == "cel" else call
    if call.function in ("optMap", "optFlatMap") and count == 2:
        return _opt_map(said, call)
    if call.function == "sortBy" and count == 2:
        return _sort_by(said, call)
    one = _ONE.get(call.function)
    if one is not None and count in (2, 3) and (count == 2 or call.function == "map"):
        return _one_variable(said, call)
    if (call.function, count) in _TWO:
        return _two_variables(said, call)
    return call


def _has(said: Said, call: Call) -> Node:
    (argument,) = call.args
    if not isinstance(argument, Select):
        said.say(argument.at, "invalid argument to has() macro")
        return call
    return Select(call.at, argument.operand, argument.name, True)


def _name(said: Said, node: Node, text: str = _SIMPLE) -> str:
    if isinstance(node, Ident):
        return node.name
    said.say(node.at, text)
    return "_"


def _bind(said: Said, call: Call) -> Node:
    name = _name(said, call.args[0], "cel.bind() variable names must be simple identifiers")
    return binding(call.at, name, call.args[1], call.args[2])


def binding(at: int, name: str, value: Node, result: Node) -> Node:
    return Comprehension(
        at, ListOf(at, []), "#unused", "", name, value, Literal(at, False, BOOL), Ident(at, name), result
    )


def _opt_map(said: Said, call: Call) -> Node:
    at, target = call.at, call.target
    assert target is not None
    name = _name(said, call.args[0], f"{call.function}() variable name must be a simple identifier")
    bound = binding(at, name, Call(at, "value", target, []), call.args[1])
    some: Node = bound if call.function == "optFlatMap" else _optional(at, "of", [bound])
    return Call(at, "_?_:_", None, [Call(at, "hasValue", target, []), some, _optional(at, "none", [])])


def _optional(at: int, name: str, args: list[Node]) -> Call:
    return Call(at, f"optional.{name}", None, args)


def _sort_by(said: Said, call: Call) -> Node:
    at, target = call.at, call.target
    assert target is not None
    name = _name(said, call.args[0])
    kept = "@__sortBy_input__"
    keys = _loop(at, Ident(at, kept), name, "", "map", None, call.args[1])
    return binding(at, kept, target, Call(at, "@sortByAssociatedKeys", Ident(at, kept), [keys]))


_ONE: Final = {
    "all": "all",
    "exists": "exists",
    "exists_one": "one",
    "existsOne": "one",
    "map": "map",
    "filter": "filter",
}
_TWO: Final[dict[tuple[str, int], str]] = {
    ("all", 3): "all", ("exists", 3): "exists", ("existsOne", 3): "one", ("exists_one", 3): "one",
    ("transformList", 3): "map", ("transformList", 4): "map", ("transformMap", 3): "insert",
    ("transformMap", 4): "insert", ("transformMapEntry", 3): "merge", ("transformMapEntry", 4): "merge",
}  # fmt: skip


def _one_variable(said: Said, call: Call) -> Node:
    assert call.target is not None
    mapped = call.function in ("map", "filter")
    name = _name(said, call.args[0], "argument is not an identifier" if mapped else _SIMPLE)
    what, rest = _ONE[call.function], call.args[1:]
    if what == "filter":
        return _loop(call.at, call.target, name, "", "map", rest[0], Ident(call.args[0].at, name))
    condition = rest[0] if what == "map" and len(rest) == 2 else None
    return _loop(call.at, call.target, name, "", what, condition, rest[-1])


def _two_variables(said: Said, call: Call) -> Node:
    assert call.target is not None
    first, second = (_name(said, argument) for argument in call.args[:2])
    if first == second and first != "_":
        said.say(call.args[1].at, f"duplicate variable name: {first}")
    rest = call.args[2:]
    condition = rest[0] if len(rest) == 2 else None
    what = _TWO[call.function, len(call.args)]
    return _loop(call.at, call.target, first, second, what, condition, rest[-1])


def _loop(at: int, over: Node, var: str, var2: str, what: str, condition: Node | None, each: Node) -> Node:
    def accumulated() -> Ident:
        return Ident(at, ACCUMULATOR)

    def constant(value: Any) -> Literal:
        return Literal(at, value, BOOL if isinstance(value, bool) else INT)

    def call(function: str, *args: Node) -> Call:
        return Call(at, function, None, list(args))

    going: Node = constant(True)
    result: Node = accumulated()
    start: Node
    step: Node
    if what == "all":
        start, going = constant(True), call("@not_strictly_false", accumulated())
        step = call("_&&_", accumulated(), each)
    elif what == "exists":
        start, going = constant(False), call("@not_strictly_false", call("!_", accumulated()))
        step = call("_||_", accumulated(), each)
    elif what == "one":
        start = constant(0)
        step = call("_?_:_", each, call("_+_", accumulated(), constant(1)), accumulated())
        result = call("_==_", accumulated(), constant(1))
    elif what == "map":
        start, step = ListOf(at, []), call("_+_", accumulated(), ListOf(at, [each]))
    elif what == "insert":
        start, step = MapOf(at, []), call("cel.@mapInsert", accumulated(), Ident(at, var), each)
    else:
        start, step = MapOf(at, []), call("cel.@mapInsert", accumulated(), each)
    if condition is not None:
        step = call("_?_:_", condition, step, accumulated())
    return Comprehension(at, over, var, var2, ACCUMULATOR, start, going, step, result)
