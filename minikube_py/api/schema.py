"""The shapes of Kubernetes' messages: which fields there are, of which type, and how they are written and merged.

The table (`schema_data.json`) is made by `tools/extract_schema.py` from the Go modules. It is read at the first
question, and messages are built one by one as they are asked for. They are named by the folder of their Go package,
as `core/v1.Pod` or `meta/v1.ObjectMeta`; protobuf's names (`k8s.io.api.core.v1.Pod`) are understood too.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import orjson

Kind = Literal[
    "string", "bool", "int32", "int64", "uint8", "float64", "bytes", "list", "map", "message", "any",
    "time", "microtime", "duration", "quantity", "intorstring", "raw", "schema-or",
]  # fmt: skip

_SCALARS: Final[dict[str, Kind]] = {
    "string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "int": "int64", "uint32": "int64",
    "uint64": "int64", "uint8": "uint8", "byte": "uint8", "float32": "float64", "float64": "float64", "any": "any",
    "interface{}": "any",
}  # fmt: skip

_SPECIAL: Final[dict[str, Kind]] = {
    "meta/v1.Time": "time",
    "meta/v1.MicroTime": "microtime",
    "meta/v1.Duration": "duration",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "raw",
    "meta/v1.FieldsV1": "raw",
    "apiextensions/v1.JSON": "raw",
    "apiextensions/v1.JSONSchemaPropsOrBool": "schema-or",
    "apiextensions/v1.JSONSchemaPropsOrArray": "schema-or",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "schema-or",
}
"""Types with custom JSON encoding."""

META_KINDS: Final = frozenset(
    ("DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "GetOptions", "ListOptions", "WatchEvent")
)
"""Kinds in every group and version."""

_QUALIFIED = re.compile(r"[a-z][\w/]*/(?=\w+\.)")


@dataclass(frozen=True, slots=True)
class Type:
    """A Go type. `element` is that of a list, or of a map's values; `message` names a message or special type.

    `text` is how Go prints the type without its pointer (`v1.PodSpec`, `[]v1.Container`)."""

    kind: Kind
    text: str
    pointer: bool = False
    element: Type | None = None
    message: str = ""
    named: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    `name` is its JSON name, `embedded` the Go names of the embedded structs around it (its JSON is in the outer
    object), `number` its protobuf number in the message that declares it (0: none).
    """

    name: str
    type: Type
    number: int
    omitempty: bool
    omitzero: bool
    inline: bool
    required: bool
    embedded: tuple[str, ...] = ()
    patch_strategies: tuple[str, ...] = ()
    merge_key: str = ""
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    struct_type: str = ""
    default: Any = None
    go_name: str = ""

    @property
    def left_out_when_zero(self) -> bool:
        """Whether Go omits the field's zero value from JSON."""
        return self.omitzero or (self.omitempty and (self.type.pointer or self.type.kind in _EMPTY_KINDS))

    @property
    def drops_empty(self) -> bool:
        """Whether an empty value is the same as none: it is left out, or null where Go always prints the field."""
        of = self.type
        if of.pointer or of.kind in ("message", "time") or (of.element and of.element.message in _SEEN_EMPTY):
            return False
        return self.left_out_when_zero or of.kind in ("list", "map")


_SEEN_EMPTY: Final = frozenset(("resource/v1.CounterSet", "resource/v1.Device"))
"""Of lists of these, validation tells an empty one from none, and leaves it out."""
_EMPTY_KINDS: Final = frozenset(("string", "bool", "int32", "int64", "uint8", "float64", "bytes", "list", "map", "any"))


class Message:
    """A struct: its fields as declared, and as they are in JSON."""

    __slots__ = ("declared", "fields", "go_name", "name", "numbers", "package", "text")

    def __init__(self, name: str, declared: tuple[Field, ...], fields: Mapping[str, Field]) -> None:
        self.name = name
        self.package, _, self.go_name = name.rpartition(".")
        self.text = f"{self.package.rsplit('/', 1)[-1]}.{self.go_name}"
        self.declared = declared
        self.fields = fields
        self.numbers = {field.number: field for field in declared if field.number}

    @property
    def proto_name(self) -> str:
        return proto_name(self.name)

    def __repr__(self) -> str:
        return f"<Message {self.name}>"


_API: Final = "k8s.io.api"
_ROOTS: Final = {
    package: f"k8s.io.{module}.pkg.apis"
    for package, module in (
        ("apiextensions", "apiextensions-apiserver"), ("meta", "apimachinery"), ("apiregistration", "kube-aggregator"),
        ("metrics", "metrics"),
    )
}  # fmt: skip


def proto_name(name: str) -> str:
    """`core/v1.Pod` as `k8s.io.api.core.v1.Pod`."""
    package, _, bare = name.rpartition(".")
    root = _ROOTS.get(package.partition("/")[0], _API)
    return f"{root}.{package.replace('/', '.')}.{bare}"


def table_name(name: str) -> str:
    """The inverse of `proto_name`; a table's name stays as it is."""
    for root in (*_ROOTS.values(), _API):
        if name.startswith(f"{root}."):
            return name[len(root) + 1 :].replace(".", "/", 1)
    return name


class Schema:
    """All messages. Reads its table once, at the first question (about 2 ms)."""

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}
        self._types: dict[str, Type] = {}
        self._added: dict[str, list[list[Any]]] = {}

    def extend(self, messages: Mapping[str, list[list[Any]]]) -> None:
        """Adds messages that are no part of the API: configurations, which are read by the same rules."""
        self._added.update(messages)

    @cached_property
    def _table(self) -> dict[str, Any]:
        data = pkgutil.get_data(__package__, "schema_data.json")
        if data is None:
            raise FileNotFoundError("schema_data.json is missing from the installed package")
        table: dict[str, Any] = orjson.loads(data)
        return table

    @cached_property
    def _package_of(self) -> dict[tuple[str, str], str]:
        packages = self._table["packages"]
        found = {(p["group"], p["version"]): name for name, p in packages.items() if name != "meta/v1"}
        return found

    @cached_property
    def _registered(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(package["kinds"]) for name, package in self._table["packages"].items()}

    @property
    def versions(self) -> Mapping[str, str]:
        """The Go modules the table was made from."""
        versions: Mapping[str, str] = self._table["versions"]
        return versions

    @property
    def names(self) -> list[str]:
        return list(self._table["messages"])

    def has(self, name: str) -> bool:
        return name in self._table["messages"]

    def is_atomic(self, name: str) -> bool:
        """Whether a struct is written by one owner as a whole."""
        return name in self._table["atomic"]

    def kinds_of(self, name: str) -> list[dict[str, str]]:
        """Group, version and kind under which a message is registered."""
        package, _, kind = name.rpartition(".")
        known = self._table["packages"].get(package)
        if known is None or (kind not in self._registered[package] and kind not in META_KINDS):
            return []
        return [{"group": known["group"], "kind": kind, "version": known["version"]}]

    def message(self, name: str) -> Message:
        """The message of that name. Raises: KeyError."""
        found = self._messages.get(name)
        if found is None:
            known = table_name(name)
            found = self._messages[name] = self._build(known) if known == name else self.message(known)
        return found

    def kind(self, group: str, version: str, kind: str) -> Message | None:
        """The message of a kind, or None where no such kind is known."""
        package = self._package_of.get((group, version))
        if package is None:
            return None
        if kind in self._registered[package]:
            return self.message(f"{package}.{kind}")
        if kind in META_KINDS or (not group and kind in self._registered["meta/v1"]):
            return self.message(f"meta/v1.{kind}")
        return None

    def package(self, group: str, version: str) -> str | None:
        """The Go package that holds a group and version."""
        return self._package_of.get((group, version))

    def enum(self, named: str) -> tuple[str, ...]:
        """The values of a named string type that is marked as an enumeration, sorted; else none."""
        entry = self._table["named"].get(named)
        return tuple(entry[1]) if entry else ()

    def _build(self, name: str) -> Message:
        rows = self._added[name] if name in self._added else self._table["messages"][name]
        declared = tuple(self._field(row) for row in rows)
        flat: dict[str, Field] = {}
        for field in declared:
            if field.inline:
                inner = self.message(field.type.message)
                for sub in inner.fields.values():
                    flat.setdefault(sub.name, _embed(sub, field.name))
        # What a struct declares itself goes before what it embeds.
        own = {field.name: field for field in declared if not field.inline}
        return Message(name, declared, _in_order(declared, own, flat))

    def _field(self, row: list[Any]) -> Field:
        name, go_type, number, flags = row[:4]
        extra = row[4] if len(row) > 4 else {}
        return Field(
            name,
            self.type(go_type),
            number,
            "e" in flags,
            "z" in flags,
            "i" in flags,
            "r" in flags,
            (),
            tuple(extra.get("ps", ())),
            extra.get("mk", ""),
            extra.get("lt", ""),
            tuple(extra.get("lk", ())),
            extra.get("mt", ""),
            extra.get("st", ""),
            extra.get("d"),
            extra.get("g") or name[:1].upper() + name[1:],
        )

    def type(self, go_type: str) -> Type:
        """A type by the table's way of writing it."""
        found = self._types.get(go_type)
        if found is None:
            found = self._types[go_type] = self._parse(go_type)
        return found

    def _parse(self, go_type: str) -> Type:
        if go_type.startswith("*"):
            inner = self.type(go_type[1:])
            return Type(inner.kind, inner.text, True, inner.element, inner.message, inner.named)
        text = _QUALIFIED.sub("", go_type).replace("byte", "uint8")
        if go_type in ("[]byte", "[]uint8"):
            return Type("bytes", text)
        if go_type.startswith("[]"):
            return Type("list", text, element=self.type(go_type[2:]))
        if go_type.startswith("map["):
            return Type("map", text, element=self.type(go_type[go_type.index("]") + 1 :]))
        if go_type in _SCALARS:
            return Type(_SCALARS[go_type], text)
        if go_type in _SPECIAL:
            return Type(_SPECIAL[go_type], text, message=go_type)
        if go_type in self._added or go_type in self._table["messages"]:
            return Type("message", text, message=go_type)
        base = self.type(self._table["named"][go_type][0])
        return Type(base.kind, text, False, base.element, base.message, go_type)


def _embed(field: Field, outer: str) -> Field:
    values = {name: getattr(field, name) for name in Field.__slots__}
    values["embedded"] = (outer, *field.embedded)
    return Field(**values)


def _in_order(declared: tuple[Field, ...], own: Mapping[str, Field], flat: Mapping[str, Field]) -> dict[str, Field]:
    """JSON fields in the order in which Go writes them."""
    ordered: dict[str, Field] = {}
    for field in declared:
        if field.inline:
            for name, sub in flat.items():
                if name not in own and sub.embedded[0] == field.name:
                    ordered.setdefault(name, sub)
        else:
            ordered[field.name] = field
    return ordered


SCHEMA: Final = Schema()


def ordered(value: Any, name: str) -> Any:
    """A message with its members in the order in which Go writes them."""
    if not isinstance(value, dict):
        return value
    fields = SCHEMA.message(name).fields
    return {key: _ordered(value[key], field.type) for key, field in fields.items() if key in value}


def _ordered(value: Any, type_: Type) -> Any:
    if type_.kind == "message":
        return ordered(value, type_.message)
    if type_.kind == "list" and type_.element is not None and isinstance(value, list):
        return [_ordered(item, type_.element) for item in value]
    return dict(sorted(value.items())) if type_.kind == "map" and isinstance(value, dict) else value


LABEL_SELECTOR: Final = "meta/v1.LabelSelector"
