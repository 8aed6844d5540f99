"""Writes of kinds that are described as data: values are drawn by the schema, field by field, at the edges of each type.

A kind is drawn by its lines in `worlds`: its creates, updates, status writes and patches follow from its message. Drawn
values are mostly of the right type: bodies of any other shape are drawn by `drawn`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from asking import JSON, Ask
from edges import EDGE_QUANTITIES, as_json, one_of_these
from expression_cases import EXPRESSIONS
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from worlds import BY_SCHEMA, CORE, DRAWN, OTHERS, WORLD

from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Field, Message, Type

VERSION = "@@version@@"
"""Stands for the version of the object that a request is about, which is another one on each server."""
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"



def message_of(plural: str) -> Message:
    path = WORLD[plural][0]
    group, version = ("", "v1") if path.startswith(CORE) else path.split("/")[2:4]
    kind = REGISTRY.resource(group, version, path.rpartition("/")[2])
    found = kind and SCHEMA.kind(group, version, kind.kind)
    assert found is not None, f"the schema has no {plural}"
    return found


_TEXTS = (
    "", "a", "one", "fast", "grows", "x.io/y", "A_b", "a" * 63, "a" * 64, "a" * 254, "a.b", "kubernetes.io/x", "..", "/", "/a/../b", "/a", "a:1",
    "10.1.2.3", "010.1.1.1", "127.0.0.1", "fd00::1", "FD00:0::1", "::ffff:1.2.3.4", "10.0.0.0/8", "10.2.0.0/16", "10.0.0.1/08", "FD00::/8", "*.a.b", "*a",
    "/x//y", "/x/..", "[::1]:2", "10%", "-", "é", "iqn.2001-04.com.example:s", "eui.0123456789abcdef", "naa.x", "storage", "PersistentVolumeClaim", "true",
)  # fmt: skip
_KEYS = ("a", "storage", "cpu", "x.io/y", "", "kubernetes.io/x", "requests.x", "a" * 64, "zone", "csi.example.com")
_NUMBERS = (0, 1, -1, 2, 3, 100, 101, 255, 256, 599, 600, 1000, 1001, 65535, 65536, (1 << 31) - 1, -(1 << 31))
_TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01+01:00")
_PERCENTS = (0, 1, -1, "0%", "10%", "100%", "101%", "x", "", "1", "-1%", "1.5%", 2147483647)
_QUANTITIES = ("0", "1", "-1", "500m", "1Gi", "1.5Gi", "500Mi", "2Gi", "1e3", "100G", "1n")
_UNTOUCHED = frozenset(("managedFields", "kind", "apiVersion", "resourceVersion", "uid", "name", "generateName", "namespace", "selfLink", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"))


@st.composite
def typed(draw: st.DrawFn, type_: Type, depth: int = 3) -> Any:
    """A value of the type, or now and then null."""
    if draw(st.integers(0, 24)) == 0:
        return None
    if type_.kind == "message" or (type_.message and SCHEMA.has(type_.message) and type_.kind == "raw"):
        return draw(_message(type_.message, depth))
    if type_.kind == "list":
        assert type_.element is not None
        items = draw(st.lists(typed(type_.element, depth - 1), max_size=2 if depth > 0 else 0))
        return items + items[:1] if draw(st.integers(0, 9)) == 0 else items
    if type_.kind == "map":
        assert type_.element is not None
        return draw(st.dictionaries(st.sampled_from(_KEYS), typed(type_.element, depth - 1), max_size=2))
    if type_.kind == "string":
        enum = SCHEMA.enum(type_.named) if type_.named else ()
        return draw(st.sampled_from((*enum, *enum, "Nope", "")) if enum else st.sampled_from(_TEXTS))
    return draw(_SCALARS.get(type_.kind, st.sampled_from(_TEXTS)))


_SCALARS: dict[str, SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.sampled_from(_NUMBERS),
    "int64": st.sampled_from((*_NUMBERS, (1 << 32) + 1, (1 << 63) - 1, -(1 << 63))),
    "time": st.sampled_from(_TIMES),
    "microtime": st.sampled_from(_TIMES),
    "quantity": st.one_of(st.sampled_from(_QUANTITIES), one_of_these(EDGE_QUANTITIES)),
    "intorstring": st.sampled_from(_PERCENTS),
}


@st.composite
def _message(draw: st.DrawFn, name: str, depth: int) -> dict[str, Any]:
    fields = [field for field in SCHEMA.message(name).fields.values() if field.name not in _UNTOUCHED - {"name", "kind", "namespace"}]
    if depth <= 0 or not fields:
        return {}
    chosen = draw(st.lists(st.sampled_from(fields), max_size=min(3, len(fields)), unique_by=lambda field: field.name))
    return {field.name: draw(_value(field, depth - 1)) for field in chosen}


@st.composite
def message_fields(draw: st.DrawFn, message: Message) -> dict[str, Any]:
    """The parts of an object beside its metadata: of its right types, mostly at their edges."""
    parts = [field for field in message.fields.values() if field.name not in ("kind", "apiVersion", "metadata")]
    chosen = draw(st.lists(st.sampled_from(parts), max_size=3, unique_by=lambda field: field.name)) if parts else []
    return {field.name: draw(_value(field)) for field in chosen}


def _value(field: Field, depth: int = 3) -> SearchStrategy[Any]:
    """Expressions are drawn from those of `expression_cases`; all else by its type."""
    return st.sampled_from(EXPRESSIONS) if field.name == "expression" else typed(field.type, depth)


class Change(NamedTuple):
    path: tuple[str | int, ...]
    value: Any


@st.composite
def changes(draw: st.DrawFn, message: Message, obj: dict[str, Any]) -> Change:
    """A field of the kind, somewhere along what stands or what the schema allows, and what to put there."""
    fields = [field for field in message.fields.values() if field.name not in _UNTOUCHED]
    # What is asked for matters more than what is reported of it, and both more than the metadata that all kinds share.
    weighted = [field for field in fields for _ in range({"metadata": 1, "status": 2}.get(field.name, 6))]
    return draw(_below(weighted, obj, ()))


@st.composite
def _below(draw: st.DrawFn, fields: list[Field], holder: Any, path: tuple[str | int, ...]) -> Change:
    field = draw(st.sampled_from(fields))
    here, value, type_ = (*path, field.name), (holder or {}).get(field.name), field.type
    if type_.kind == "list" and isinstance(value, list) and value and type_.element is not None and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        here, value, type_ = (*here, at), value[at], type_.element
    deeper = type_.kind == "message" and (value is not None or len(here) < 3)
    if deeper and (field.name == "metadata" or draw(st.integers(0, 3))):
        inner = [each for each in SCHEMA.message(type_.message).fields.values() if each.name not in _UNTOUCHED]
        known = [each for each in inner if isinstance(value, dict) and each.name in value]
        if inner:
            return draw(_below(inner + known * 2, value, here))
    return Change(here, draw(_value(field) if type_ is field.type else typed(type_)))


def put(obj: dict[str, Any], change: Change) -> dict[str, Any]:
    """`obj` with the change made, and what leads there."""
    made = copy.deepcopy(obj)
    at: Any = made
    for key, following in zip(change.path, change.path[1:]):
        if (at.get(key) if isinstance(at, dict) else at[key]) is None:
            at[key] = [] if isinstance(following, int) else {}
        at = at[key]
    at[change.path[-1]] = change.value
    return made


Named = Callable[[str, str], dict[str, Any]]
"""The object of a plural and a name as the world's setup sends it."""
Place = Callable[[str, str], str]
"""Its path."""


def writes(named: Named, place: Place) -> SearchStrategy[Ask]:
    plurals = st.sampled_from(sorted(BY_SCHEMA & set(DRAWN)))

    @st.composite
    def creates(draw: st.DrawFn) -> Ask:
        plural = draw(plurals)
        obj = _changed(draw, plural, named(plural, draw(st.sampled_from(("one", *OTHERS.get(plural, ()))))), 3)
        obj["metadata"]["name"] = draw(st.sampled_from(("new", "new", "new", "one", "", "a.b", "A")))
        return Ask(f"create {plural}", "POST", f"{WORLD[plural][0]}?dryRun=All", as_json(obj), JSON)

    @st.composite
    def updates(draw: st.DrawFn) -> Ask:
        plural = draw(plurals)
        name = draw(st.sampled_from(("one", "two", "two", *OTHERS.get(plural, ()))))
        sub = draw(st.sampled_from(("", "", "/status")))
        obj = _changed(draw, plural, named(plural, name), 2)
        if draw(st.integers(0, 9)):
            obj["metadata"]["resourceVersion"] = VERSION
        return Ask(f"update {plural}{sub}", "PUT", f"{place(plural, name)}{sub}?dryRun=All", as_json(obj), JSON)

    @st.composite
    def patches(draw: st.DrawFn) -> Ask:
        plural = draw(plurals)
        name = draw(st.sampled_from(("one", "two", *OTHERS.get(plural, ()))))
        sub = draw(st.sampled_from(("", "", "/status")))
        kind = draw(st.sampled_from((MERGE, MERGE, STRATEGIC, JSON_PATCH)))
        body: Any
        obj, change = named(plural, name), draw(changes(message_of(plural), named(plural, name)))
        if kind == JSON_PATCH:
            path = "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in change.path)
            body = [{"op": draw(st.sampled_from(("add", "replace", "remove"))), "path": path, "value": change.value}]
        else:
            whole = put(obj, change)
            top = change.path[0]
            body = {top: _along(whole[top], change.path[1:])}
        return Ask(f"patch {plural}{sub}", "PATCH", f"{place(plural, name)}{sub}?dryRun=All", as_json(body), kind)

    return st.one_of(creates(), updates(), patches())


def _along(value: Any, path: tuple[str | int, ...]) -> Any:
    """Only what leads to the change; lists are whole."""
    if not path or not isinstance(value, dict):
        return value
    return {path[0]: _along(value.get(path[0]), path[1:])}


def _changed(draw: st.DrawFn, plural: str, obj: dict[str, Any], most: int) -> dict[str, Any]:
    for _ in range(draw(st.integers(0, most))):
        obj = put(obj, draw(changes(message_of(plural), obj)))
    return obj
