"""A message as upstream prints its internal type: Go's names, every field, and `null` for what is not set."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.schema import SCHEMA, Field, Type, ordered

_ZERO: Final[dict[str, Any]] = {
    "string": "", "bool": False, "int32": 0, "int64": 0, "uint8": 0, "float64": 0, "quantity": "0",
}  # fmt: skip


def go_view(name: str, value: Any) -> dict[str, Any]:
    """`name`: as in the schema, `resource/v1.DeviceAttribute`."""
    shown: dict[str, Any] = {}
    for field in SCHEMA.message(name).declared:
        if field.name == "metadata":
            # Embedded, with JSON names of its own.
            shown |= ordered((value or {}).get("metadata") or {}, field.type.message)
        elif field.inline:
            shown |= go_view(field.type.message, value)
        else:
            shown[_go_name(field)] = _part(field.type, (value or {}).get(field.name))
    return shown


def _go_name(field: Field) -> str:
    return "UID" if field.name == "uid" else field.go_name


def _part(type_: Type, value: Any) -> Any:
    if value is None and (type_.pointer or type_.kind not in ("message", *_ZERO)):
        return None
    if type_.kind == "message":
        return go_view(type_.message, value)
    if type_.kind == "list" and type_.element is not None:
        return [_part(type_.element, item) for item in value]
    if type_.kind == "map" and type_.element is not None:
        return {key: _part(type_.element, value[key]) for key in sorted(value)}
    return _ZERO[type_.kind] if value is None else value
