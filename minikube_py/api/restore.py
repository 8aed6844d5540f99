"""An object from plain values, with the messages of upstream's converter.

Upstream reads a strategically merged object not from JSON text but from values in memory, by other code with other
words (apimachinery pkg/runtime/converter.go). This is used when the fast checker of `typed` does not settle the object.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from minikube_py.api import json_text, values
from minikube_py.api.go_format import go_kind
from minikube_py.api.schema import SCHEMA, Message, Type
from minikube_py.api.typed import DecodeError, Reader, always, fill, zero
from minikube_py.api.values import BadValue, Mismatch


class Restorer:
    """Restores one object. `unknown`: unknown fields, as strict errors."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def restore(self, value: dict[str, Any], message: Message) -> dict[str, Any]:
        """The object, in the form of `typed`. Raises: DecodeError."""
        try:
            found = self._message(value, message, "")
        except Mismatch as error:
            raise DecodeError(
                f"json: cannot unmarshal {error.value} into Go value of type {error.go_type}"
            ) from None
        except BadValue as error:
            raise DecodeError(str(error)) from None
        self.unknown.sort()
        return found

    def _message(self, value: Any, message: Message, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore struct from: {go_kind(value)}")
        found: dict[str, Any] = {}
        for name, field in message.fields.items():
            item = value.get(name)
            if item is None:
                continue
            kept = self._value(item, field.type, f"{path}.{name}" if path else name)
            if kept or not field.drops_empty:
                found[name] = kept
        for name in value:
            if name not in message.fields:
                self.unknown.append(f'unknown field "{path}.{name}"' if path else f'unknown field "{name}"')
        fill(always(message), found)
        return found

    def _value(self, value: Any, type: Type, path: str) -> Any:
        kind = type.kind
        if kind == "message":
            return self._message(value, SCHEMA.message(type.message), path)
        if kind in ("list", "map"):
            return self._many(value, type, path)
        if kind == "bytes":
            return _bytes(value)
        if kind in _SPECIALS:
            return _SPECIALS[kind](value)
        if kind in ("raw", "any"):
            return value
        if kind == "schema-or":
            return _schema_or(value, type)
        return _scalar(value, type)

    def _many(self, value: Any, type: Type, path: str) -> Any:
        element = type.element
        assert element is not None
        if type.kind == "list":
            if not isinstance(value, list):
                raise DecodeError(f"cannot restore slice from {go_kind(value)}")
            return [
                zero(element) if item is None else self._value(item, element, f"{path}[{index}]")
                for index, item in enumerate(value)
            ]
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore map from {go_kind(value)}")
        return {
            key: zero(element) if item is None else self._value(item, element, path) for key, item in value.items()
        }


def _schema_or(value: Any, type: Type) -> Any:
    """Go writes it as JSON and reads that again. Raises: DecodeError."""
    try:
        return Reader(False).schema_or(json_text.read(orjson.dumps(value)), type)
    except BadValue as error:
        raise DecodeError(f"error decoding from json: {error}") from None


def _bytes(value: Any) -> str:
    if not isinstance(value, str):
        if isinstance(value, list):
            return values.base64_text(bytes(values.whole(item, 0, 255, "uint8") for item in value))
        raise DecodeError(f"cannot restore slice from {go_kind(value)}")
    try:
        return values.base64_bytes(value)
    except BadValue as error:
        raise DecodeError(f"error decoding from json: {error}") from None


_SPECIALS: Final = {
    "time": values.time,
    "microtime": values.micro_time,
    "duration": values.duration,
    "quantity": values.quantity,
    "intorstring": values.int_or_string,
}
_WHOLE: Final = {
    "int32": (values.INT32_MIN, values.INT32_MAX),
    "int64": (values.INT64_MIN, values.INT64_MAX),
    "uint8": (0, 255),
}


def _scalar(value: Any, type: Type) -> Any:
    source = go_kind(value)
    kind = type.kind
    if source == kind or (source, kind) == ("float64", "float64"):
        if kind in _WHOLE and not _WHOLE[kind][0] <= value <= _WHOLE[kind][1]:
            raise DecodeError(f"cannot convert {source} to {type.text}")
        return value
    if source == "int64" and kind in _WHOLE:
        low, high = _WHOLE[kind]
        # Upstream truncates here. An error is better than a wrong number.
        if low <= value <= high:
            return value
        raise DecodeError(f"cannot convert int64 to {type.text}")
    if source == "int64" and kind == "float64":
        return value
    if source == "float64" and kind in _WHOLE and float(value).is_integer():
        return _scalar(int(value), type)
    numbers = source in ("int64", "float64") and kind in (*_WHOLE, "float64")
    if numbers or (source, kind) == ("int64", "string"):
        raise DecodeError(f"cannot convert {source} to {type.text}")
    raise DecodeError(f"unrecognized type: {kind}")
