"""The kind of a field in a resource's schema, for indexes over paths.

The schema is that of upstream's Go types; for an unknown path, the error suggests the nearest valid one.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from minikube_py.api.kind import Kind
from minikube_py.api.schema import SCHEMA, Type
from minikube_py.api.schema import Kind as SchemaKind
from minikube_py.errors import InvalidRequest
from minikube_py.fields.paths import Path, path_text
from minikube_py.fields.spec import Kind as FieldKind

_KINDS: Final[dict[SchemaKind, FieldKind]] = {
    "string": "string",
    "bool": "string",
    "int32": "int",
    "int64": "int",
    "uint8": "int",
    "time": "time",
    "microtime": "time",
    "quantity": "quantity",
    "intorstring": "string",
}
_WHOLES: Final[dict[SchemaKind, str]] = {"message": "an object", "map": "a map", "list": "a list"}
_ELSE: Final = "cannot be compared"
_NOT_STORED: Final = frozenset((("kind",), ("apiVersion",), ("metadata", "resourceVersion")))
"""Fields in every response but not in stored objects."""


def kind_at(resource: Kind, path: Path) -> FieldKind:
    """Raises: InvalidRequest if `resource` has no such field, or its values cannot be compared."""
    if path in _NOT_STORED:
        raise InvalidRequest(f"{resource.plural}: {path_text(path)} is not stored with the objects, and {_ELSE}")
    message = SCHEMA.kind(resource.group, resource.version, resource.kind)
    if message is None:
        raise InvalidRequest(f"{resource.plural} are custom resources: what they hold is not declared as fields")
    at = Type("message", message.text, message=message.name)
    for position, part in enumerate(path):
        at = _step(resource, path, position, part, at)
    kind = _KINDS.get(at.kind)
    if kind is not None:
        return kind
    text = path_text(path)
    whole = _WHOLES.get(at.kind)
    if whole is None:
        raise InvalidRequest(f"{resource.plural}: {text} is of the type {at.text}, which {_ELSE}")
    raise InvalidRequest(f"{resource.plural}: {text} is {whole}, which {_ELSE}; name a part of it{_example(text, at)}")


def _step(resource: Kind, path: Path, position: int, part: str | int, at: Type) -> Type:
    here = path_text(path[:position]) if position else ""
    if at.kind == "list" and at.element is not None:
        if isinstance(part, int):
            return at.element
        raise InvalidRequest(f"{resource.plural}: {here} is a list: write which, as {here}[0]")
    if isinstance(part, int):
        raise InvalidRequest(f"{resource.plural}: {here} is not a list: it has no [{part}]")
    if at.kind == "map" and at.element is not None:
        return at.element
    if at.kind != "message":
        raise InvalidRequest(f"{resource.plural}: {here} is a {at.kind}: it has no {part!r}")
    fields = SCHEMA.message(at.message).fields
    found = fields.get(part)
    if found is not None:
        return found.type
    near = get_close_matches(part, fields, 1)
    whole = path_text((*path[:position], part))
    hint = f", did you mean {path_text((*path[:position], near[0]))}?" if near else ""
    raise InvalidRequest(f"{resource.plural} have no {whole}{hint}")


def _example(text: str, at: Type) -> str:
    if at.kind == "map":
        return f', as {text}["key"]'
    if at.kind == "list":
        return f", as {text}[0]"
    names = list(SCHEMA.message(at.message).fields)[:1]
    return f", as {text}.{names[0]}" if names else ""
