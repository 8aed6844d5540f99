"""Types of expressions and assignability. Source: cel-go `checker/{types,mapping,format}.go`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "dyn", "any", "error", "null", "bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp",
    "list", "map", "struct", "opaque", "type", "param",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """`name` is that of a struct, of an opaque type or of a type parameter; else the kind's."""

    kind: Kind
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        """The name in errors."""
        if self.kind == "error":
            return "!error!"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "any")

    @property
    def is_wild(self) -> bool:
        return self.kind in ("dyn", "any", "error")


DYN: Final = Type("dyn", "dyn")
ANY: Final = Type("any", "any")
ERROR: Final = Type("error", "error")
NULL: Final = Type("null", "null")
BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
DURATION: Final = Type("duration", "duration")
TIMESTAMP: Final = Type("timestamp", "timestamp")
_SIMPLE: Final = (DYN, ANY, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, DURATION, TIMESTAMP)
SCALARS: Final = frozenset(("bool", "int", "uint", "double", "duration", "timestamp"))
"""Kinds whose values have one size."""


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def type_of(type_: Type) -> Type:
    return Type("type", "type", (type_,))


def optional_of(type_: Type) -> Type:
    return Type("opaque", "optional_type", (type_,))


def struct(name: str) -> Type:
    return Type("struct", name)


def param(name: str) -> Type:
    return Type("param", name)


def is_optional(type_: Type) -> bool:
    return type_.kind == "opaque" and type_.name == "optional_type"


_NAMED: Final = {type_.name: type_ for type_ in _SIMPLE} | {
    "Quantity": struct("kubernetes.Quantity"),
    "Semver": struct("kubernetes.Semver"),
    "URL": struct("kubernetes.URL"),
    "Format": struct("kubernetes.NamedFormat"),
    "IP": Type("opaque", "net.IP"),
    "CIDR": Type("opaque", "net.CIDR"),
    **{
        name: struct(f"kubernetes.authorization.{name}")
        for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
    },
    **{name: param(name) for name in "ABTV"},
}


def parse_type(text: str) -> Type:
    """A type as declarations write it: `list(A)`, `map(string, dyn)`, `optional(V)`, `Quantity`."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return _NAMED[name]
    params = tuple(parse_type(part) for part in split_top(rest[:-1]))
    if name == "optional":
        return optional_of(*params)
    kinds: dict[str, Kind] = {"list": "list", "map": "map", "type": "type"}
    return Type(kinds[name], name, params)


def split_top(text: str) -> list[str]:
    """`text` at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]] if text.strip() else []


class Substitutions:
    """Bindings of type parameters. A failed check leaves them unchanged."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        self._fresh += 1
        return param(f"_var{self._fresh - 1}")

    def fits(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        before = dict(self._known)
        if self._all_fit(given, wanted):
            return True
        self._known = before
        return False

    def resolve(self, type_: Type, open_to_dyn: bool = False) -> Type:
        """With all parameters substituted; unbound ones by `dyn` if requested."""
        if type_.kind == "param":
            known = self._known.get(type_.name)
            if known is not None:
                return self.resolve(known, open_to_dyn)
            return DYN if open_to_dyn else type_
        if not type_.params:
            return type_
        return Type(type_.kind, type_.name, tuple(self.resolve(each, open_to_dyn) for each in type_.params))

    def _all_fit(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        return len(given) == len(wanted) and all(self._fit(a, b) for a, b in zip(given, wanted))

    def _fit(self, a: Type, b: Type) -> bool:
        if b.kind == "param":
            valid, known = self._stands_for(a, b)
            if valid:
                return True
            if known:
                return False
        if a.kind == "param":
            return self._stands_for(b, a)[0]
        if a.is_wild or b.is_wild:
            return True
        if a.kind == "null":
            return _nullable(b)
        if b.kind == "null":
            return _nullable(a)
        if a.kind == "type":
            return b.kind == "type"
        if a.kind in ("opaque", "list", "map"):
            return a.kind == b.kind and a.name == b.name and self._all_fit(a.params, b.params)
        return a == b

    def _stands_for(self, type_: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter can be bound to the type, and whether it already was."""
        if type_ == parameter:
            return True, True
        known = self._known.get(parameter.name)
        if known is None:
            if not self._free_of(parameter, type_):
                return False, False
            self._known[parameter.name] = type_
            return True, False
        if known == type_:
            return True, True
        if not self._fit(type_, known):
            return False, True
        general = more_general(type_, known)
        if self._free_of(parameter, general):
            self._known[parameter.name] = general
        return True, True

    def _free_of(self, parameter: Type, type_: Type) -> bool:
        if parameter == type_:
            return False
        if type_.kind == "param":
            known = self._known.get(type_.name)
            return known is None or self._free_of(parameter, known)
        return all(self._free_of(parameter, each) for each in type_.params)


def _nullable(type_: Type) -> bool:
    return type_.kind in ("opaque", "struct", "any", "duration", "timestamp", "null")


def more_general(a: Type, b: Type) -> Type:
    return a if _no_more_special(a, b) else b


def _no_more_special(a: Type, b: Type) -> bool:
    if a.is_dyn or a.kind == "param":
        return True
    if b.is_dyn or b.kind == "param" or a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    if a.kind in ("opaque", "list", "map"):
        return a.name == b.name and len(a.params) == len(b.params) and all(map(_no_more_special, a.params, b.params))
    return a == b


def parameters_of(types: Iterable[Type]) -> set[str]:
    found: set[str] = set()
    for type_ in types:
        found |= {type_.name} if type_.kind == "param" else parameters_of(type_.params)
    return found


def renamed(type_: Type, names: dict[str, Type]) -> Type:
    if type_.kind == "param":
        return names[type_.name]
    return Type(type_.kind, type_.name, tuple(renamed(each, names) for each in type_.params)) if type_.params else type_
