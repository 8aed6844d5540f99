"""Type checker: types of expressions and overloads of calls. Source: cel-go `checker/checker.go`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from minikube_py.cel.declarations import Overload, functions
from minikube_py.cel.syntax import (
    RESERVED,
    Call,
    Comprehension,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Problem,
    Select,
    Source,
    StructOf,
    parts_of,
    qualified,
)
from minikube_py.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Substitutions,
    Type,
    is_optional,
    list_of,
    map_of,
    more_general,
    optional_of,
    param,
    renamed,
    struct,
    type_of,
)

Fields = Mapping[str, Mapping[str, Type]]
"""The fields of structs by name."""
Messages = Callable[[str], "Mapping[str, Type] | None"]
"""The fields of a message that expressions may construct; None: unknown message."""
_OF_PATCHES: Final = "jsonpatch.escapeKey"
"""A function available for patches only."""

TYPE_NAMES: Final = {
    "bool": BOOL, "bytes": BYTES, "double": DOUBLE, "int": INT, "string": STRING, "uint": UINT, "null_type": NULL,
    "google.protobuf.Duration": DURATION, "google.protobuf.Timestamp": TIMESTAMP,
    "list": list_of(DYN), "map": map_of(DYN, DYN), "type": type_of(DYN), "optional_type": optional_of(param("V")),
    "net.IP": Type("opaque", "net.IP"), "net.CIDR": Type("opaque", "net.CIDR"),
}  # fmt: skip


def check(
    source: Source, root: Node, variables: Mapping[str, Type], fields: Fields, messages: Messages | None = None
) -> Type:
    """Sets the types of all nodes; returns the root's. Raises: Invalid."""
    checker = _Checker(source, variables, fields, messages)
    checker.check(root)
    if checker.wrong:
        raise source.refusal(checker.wrong)
    _settle(root, checker.known)
    return root.type


class _Checker:
    def __init__(
        self, source: Source, variables: Mapping[str, Type], fields: Fields, messages: Messages | None
    ) -> None:
        self._source = source
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._fields = fields
        self._messages = messages
        self._functions = functions()
        self.known = Substitutions()
        self.wrong: list[Problem] = []

    def _say(self, node: Node, text: str) -> None:
        self._say_at(node.at, text)

    def _say_at(self, at: int, text: str) -> None:
        problem = self._source.problem(at, text)
        if problem not in self.wrong:
            self.wrong.append(problem)

    def check(self, node: Node) -> Type:
        node.type = _CHECKS[type(node)](self, node)
        return node.type

    def _variable(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        found = TYPE_NAMES.get(name)
        if found is None and self._message(name) is not None:
            found = struct(name)
        return None if found is None else type_of(found)

    def _message(self, name: str) -> Mapping[str, Type] | None:
        return self._messages(name) if self._messages is not None else None

    def _undeclared(self, node: Node, name: str) -> Type:
        self._say(node, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    # --- by kind of node --------------------------------------------------------------------------------------------

    def _literal(self, node: Literal) -> Type:
        return node.of

    def _ident(self, node: Ident) -> Type:
        found = self._variable(node.name)
        return self._undeclared(node, node.name) if found is None else found

    def _select(self, node: Select) -> Type:
        if not node.has and (name := qualified(node)):
            found = self._variable(name)
            if found is not None:
                node.whole = name
                return found
        result = self._field(node, node.operand, node.name)
        return BOOL if node.has else self.known.resolve(result)

    def _field(self, node: Node, operand: Node, name: str, optional: bool = False) -> Type:
        whole = self.known.resolve(self.check(operand))
        wrapped = is_optional(whole)
        target = whole.params[0] if wrapped else whole
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            fields = self._fields.get(target.name)
            # Fields are declared by their names as identifiers.
            if fields is not None and name not in fields and name in RESERVED:
                name = f"__{name}__" if f"__{name}__" in fields else name
            if fields is None and (fields := self._message(target.name)) is None:
                self._say(node, f"unexpected failed resolution of '{target.name}'")
            elif name not in fields:
                self._say(node, f"undefined field '{name}'")
            else:
                result = fields[name]
        elif target.kind == "param":
            self.known.fits((DYN,), (target,))
            result = DYN
        else:
            if not target.is_wild:
                self._say(node, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if wrapped or optional else result

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            name = node.args[1]
            assert isinstance(name, Literal), "the parser puts a text here"
            result = self._field(node, node.args[0], str(name.value), optional=True)
            node.overloads = ("select_optional_field",)
            name.type = STRING
            return self.known.resolve(result)
        for argument in node.args:
            self.check(argument)
        if node.target is not None and (prefix := qualified(node.target)):
            name_of_all = f"{prefix}.{node.function}"
            if self._overloads(name_of_all) is not None:
                node.function, node.target = name_of_all, None
        if node.target is not None:
            self.check(node.target)
        overloads = self._overloads(node.function)
        if overloads is None:
            return self._undeclared(node, node.function)
        return self._resolve(node, overloads)

    def _overloads(self, function: str) -> Sequence[Overload] | None:
        return None if function == _OF_PATCHES and self._messages is None else self._functions.get(function)

    def _resolve(self, node: Call, overloads: Sequence[Overload]) -> Type:
        # A macro may use the node several times in its expansion.
        node.overloads = ()
        parts = [*([] if node.target is None else [node.target]), *node.args]
        given = [part.type for part in parts]
        if node.function in ("_&&_", "_||_"):
            node.overloads = (overloads[0].id,)
            wrong = [part for part in parts if not self.known.fits((part.type,), (BOOL,))]
            for part in wrong:
                self._say(part, f"expected type 'bool' but found '{part.type}'")
            return ERROR if wrong else BOOL
        result: Type | None = None
        for overload in overloads:
            if overload.member != (node.target is not None):
                continue
            names = {name: self.known.fresh() for name in overload.parameters}
            wanted = [renamed(each, names) for each in overload.arguments]
            if not self.known.fits(given, wanted):
                continue
            node.overloads = (*node.overloads, overload.id)
            found = self.known.resolve(renamed(overload.result, names))
            if result is None:
                result = found
            elif not result.is_dyn and found != result:
                result = DYN
        if result is not None:
            return result
        shown = [str(self.known.resolve(each, open_to_dyn=True)) for each in given]
        applied = f"({', '.join(shown)})" if node.target is None else f"{shown[0]}.({', '.join(shown[1:])})"
        self._say(node, f"found no matching overload for '{node.function}' applied to '{applied}'")
        return ERROR

    def _joined(self, before: Type | None, type_: Type) -> Type:
        """`environment` reports mixed item types, and allows them in format calls."""
        if before is None:
            return type_
        return more_general(before, type_) if self.known.fits((before,), (type_,)) else DYN

    def _optional_item(self, node: Node, optional: bool) -> Type:
        found = node.type
        if not optional:
            return found
        if is_optional(found):
            return found.params[0]
        if not found.is_dyn:
            self._say(node, f"expected type '{optional_of(found)}' but found '{found}'")
        return found

    def _list(self, node: ListOf) -> Type:
        element: Type | None = None
        for i, item in enumerate(node.items):
            self.check(item)
            element = self._joined(element, self._optional_item(item, i in node.optional))
        return list_of(self.known.fresh() if element is None else element)

    def _map(self, node: MapOf) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, optional in node.entries:
            self.check(key)
            key_type = self._joined(key_type, key.type)
            self.check(value)
            value_type = self._joined(value_type, self._optional_item(value, optional))
        if key_type is None or value_type is None:
            return map_of(self.known.fresh(), self.known.fresh())
        return map_of(key_type, value_type)

    def _struct(self, node: StructOf) -> Type:
        known, result, fields = self._variable(node.name), ERROR, self._message(node.name)
        if known is None:
            for entry in node.entries:
                self.check(entry.value)
            return self._undeclared(node, node.name)
        if known.kind != "type":
            self._say(node, f"'{known}' is not a type")
        elif known.params[0].kind == "struct":
            result = known.params[0]
        else:
            self._say(node, f"'{known.params[0]}' is not a message type")
        for entry in node.entries:
            self.check(entry.value)
            given = self._optional_item(entry.value, entry.optional)
            if fields is None:
                continue
            if entry.name not in fields:
                self._say_at(entry.at, f"undefined field '{entry.name}'")
            elif not self.known.fits((fields[entry.name],), (given,)):
                wanted = f"'{fields[entry.name]}' but provided type is '{given}'"
                self._say_at(entry.at, f"expected type of field '{entry.name}' is {wanted}")
        return result

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.range)
        accumulated = self.check(node.start)
        over = self.known.resolve(node.range.type)
        first, second = self._items_of(node, over)
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append({node.var: first, **({node.var2: second} if node.var2 else {})})
        for part, wanted in ((node.condition, BOOL), (node.step, accumulated)):
            self.check(part)
            if not self.known.fits((wanted,), (part.type,)):
                self._say(part, f"expected type '{wanted}' but found '{part.type}'")
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self.known.resolve(node.result.type)

    def _items_of(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """The types of a loop's variables: item or key, and a second one if present."""
        if over.kind == "list":
            return (INT, over.params[0]) if node.var2 else (over.params[0], DYN)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self.known.fits((DYN,), (over,))
            return DYN, DYN
        self._say(
            node.range,
            f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return ERROR, ERROR


_CHECKS: Final[Mapping[type[Node], Callable[..., Type]]] = {
    Literal: _Checker._literal,
    Ident: _Checker._ident,
    Select: _Checker._select,
    Call: _Checker._call,
    ListOf: _Checker._list,
    MapOf: _Checker._map,
    StructOf: _Checker._struct,
    Comprehension: _Checker._comprehension,
}


def _settle(root: Node, known: Substitutions) -> None:
    """Unresolved types match anything."""
    pending = [root]
    while pending:
        node = pending.pop()
        node.type = known.resolve(node.type, open_to_dyn=True)
        pending += parts_of(node)
