"""Kubernetes' protobuf bodies, read into JSON form by the schema's table. A reader only: answers go out as JSON.

A body is the magic `k8s\\0` and a `runtime.Unknown` that names the kind and holds the object's bytes. What is read
looks as if it had come as JSON and been read by `typed`: zero values are dropped where Go drops them.

Source: apimachinery pkg/runtime/serializer/protobuf; protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import json_text, values
from minikube_py.api.go_format import go_text
from minikube_py.api.schema import SCHEMA, Field, Message, Type
from minikube_py.api.typed import always, fill, zero

MAGIC: Final = b"k8s\x00"
MAX_DEPTH: Final = 200
_MASK: Final = (1 << 64) - 1


class ProtobufError(ValueError):
    """Invalid bytes; the text is upstream's."""


class Envelope(NamedTuple):
    api_version: str
    kind: str
    raw: bytes
    content_encoding: str
    content_type: str


def open_envelope(body: bytes) -> Envelope:
    """The envelope's fields, and the object's bytes. Raises: ProtobufError."""
    if not body:
        raise ProtobufError("empty data")
    if not body.startswith(MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    if len(body) == len(MAGIC):
        raise ProtobufError("empty body")
    texts = {3: b"", 4: b""}
    api_version = kind = b""
    raw = b""
    for number, wire, value in _fields(body, len(MAGIC), len(body), "Unknown"):
        if number == 1:
            for inner, inner_wire, inner_value in _fields(*_length_delimited(value, wire, "TypeMeta")):
                if inner == 1:
                    api_version = _bytes(inner_value, inner_wire, "APIVersion")
                elif inner == 2:
                    kind = _bytes(inner_value, inner_wire, "Kind")
        elif number == 2:
            raw = _bytes(value, wire, "Raw")
        elif number in texts:
            texts[number] = _bytes(value, wire, "ContentEncoding")
    return Envelope(go_text(api_version), go_text(kind), raw, go_text(texts[3]), go_text(texts[4]))


def decode_message(message: Message, raw: bytes) -> dict[str, Any]:
    """The object that `raw` holds, in JSON form. Raises: ProtobufError."""
    return _read(message, raw, 0, len(raw), 0)


# --- the wire -------------------------------------------------------------------------------------------------------

_Value = tuple[bytes, int, int] | int
"""What a field holds: bytes with start and end for length-delimited ones, else the number."""


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if shift >= 64:
            raise ProtobufError("proto: integer overflow")
        if at >= end:
            raise ProtobufError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
        shift += 7


def _fields(data: bytes, at: int, end: int, message: str = "") -> list[tuple[int, int, _Value]]:
    """Every field of a message: number, wire type, value."""
    found: list[tuple[int, int, _Value]] = []
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = (tag & 0xFFFFFFFF) >> 3, tag & 7
        if wire == 4:
            raise ProtobufError(f"proto: {message}: wiretype end group for non-group")
        if number <= 0:
            raise ProtobufError(f"proto: {message}: illegal tag {number} (wire type {tag})")
        if wire == 0:
            value, at = _varint(data, at, end)
            found.append((number, wire, value))
        elif wire == 2:
            size, at = _varint(data, at, end)
            if size >= 1 << 63:
                raise ProtobufError("proto: negative length found during unmarshaling")
            if at + size > end:
                raise ProtobufError("unexpected EOF")
            found.append((number, wire, (data, at, at + size)))
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if at + size > end:
                raise ProtobufError("unexpected EOF")
            found.append((number, wire, int.from_bytes(data[at : at + size], "little")))
            at += size
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
    return found


def _wrong_wire(wire: int, name: str) -> ProtobufError:
    return ProtobufError(f"proto: wrong wireType = {wire} for field {name}")


def _length_delimited(value: _Value, wire: int, name: str) -> tuple[bytes, int, int]:
    if wire != 2 or isinstance(value, int):
        raise _wrong_wire(wire, name)
    return value


def _bytes(value: _Value, wire: int, name: str) -> bytes:
    data, start, end = _length_delimited(value, wire, name)
    return data[start:end]


def _number(value: _Value, wire: int, expected: int, name: str) -> int:
    if wire != expected or not isinstance(value, int):
        raise _wrong_wire(wire, name)
    return value


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# --- messages -------------------------------------------------------------------------------------------------------


def _read(message: Message, data: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _read_into(found, message, data, start, end, depth)
    _drop_zeros(found, message)
    fill(always(message), found)
    return found


def _read_into(found: dict[str, Any], message: Message, data: bytes, start: int, end: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ProtobufError(f"exceeded max depth ({MAX_DEPTH})")
    numbers = message.numbers
    for number, wire, value in _fields(data, start, end, message.go_name):
        field = numbers.get(number)
        if field is None:
            continue
        kind = field.type.kind
        name = field.name
        if field.inline:
            inner = SCHEMA.message(field.type.message)
            _read_into(found, inner, *_length_delimited(value, wire, field.name), depth + 1)
        elif kind == "list" and not _is_wrapped(field.type):
            _append(found.setdefault(name, []), field, value, wire, depth)
        elif kind == "map" and not _is_wrapped(field.type):
            _put(found.setdefault(name, {}), field, value, wire, depth)
        else:
            found[name] = _value(field.type, value, wire, field.go_name, depth)


def _is_wrapped(type: Type) -> bool:
    """Whether a named list travels as a message of its own, with one field `items` (`ExtraValue`, `Verbs`)."""
    return type.kind == "list" and bool(type.named) and type.named in _WRAPPED


_WRAPPED: Final = frozenset(
    f"{package}.ExtraValue"
    for package in (
        "authentication/v1", "authentication/v1beta1", "authorization/v1", "authorization/v1beta1", "certificates/v1",
        "certificates/v1beta1", "certificates/v1alpha1",
    )
) | {"meta/v1.Verbs"}  # fmt: skip


def _append(items: list[Any], field: Field, value: _Value, wire: int, depth: int) -> None:
    element = field.type.element
    assert element is not None
    if wire == 2 and element.kind in ("int32", "int64", "bool"):
        data, at, end = _length_delimited(value, wire, field.name)
        while at < end:
            number, at = _varint(data, at, end)
            items.append(_value(element, number, 0, field.go_name, depth))
        return
    items.append(_value(element, value, wire, field.go_name, depth))


def _put(found: dict[str, Any], field: Field, value: _Value, wire: int, depth: int) -> None:
    element = field.type.element
    assert element is not None
    key = ""
    item = zero(element)
    for number, inner_wire, inner in _fields(*_length_delimited(value, wire, field.go_name)):
        if number == 1:
            key = go_text(_bytes(inner, inner_wire, field.go_name))
        elif number == 2:
            item = _value(element, inner, inner_wire, field.go_name, depth)
    found[key] = item


def _value(type: Type, value: _Value, wire: int, name: str, depth: int) -> Any:
    kind = type.kind
    if kind == "string":
        return go_text(_bytes(value, wire, name))
    if kind == "bool":
        return _number(value, wire, 0, name) != 0
    if kind == "int32":
        return _signed(_number(value, wire, 0, name), 32)
    if kind == "int64":
        return _signed(_number(value, wire, 0, name), 64)
    if kind == "bytes":
        return base64.b64encode(_bytes(value, wire, name)).decode()
    if kind == "message":
        return _read(SCHEMA.message(type.message), *_length_delimited(value, wire, name), depth + 1)
    if kind == "float64":
        return struct.unpack("<d", _number(value, wire, 1, name).to_bytes(8, "little"))[0]
    fields = _fields(*_length_delimited(value, wire, name))
    if kind == "list":
        element = type.element
        assert element is not None
        return [_value(element, item, item_wire, name, depth + 1) for number, item_wire, item in fields if number == 1]
    return _special(type, fields, name, depth)


def _special(type: Type, fields: list[tuple[int, int, _Value]], name: str, depth: int) -> Any:
    found = {number: (value, wire) for number, wire, value in fields}

    def number_of(at: int, bits: int) -> int:
        return _signed(_number(*found[at], 0, name), bits) if at in found else 0

    def bytes_of(at: int) -> bytes:
        return _bytes(*found[at], name) if at in found else b""

    kind = type.kind
    if kind in ("time", "microtime"):
        return _moment(number_of(1, 64), number_of(2, 32), kind) if found else None
    if kind == "quantity":
        try:
            return values.quantity(go_text(bytes_of(1)))
        except values.BadValue as error:
            raise ProtobufError(str(error)) from None
    if kind == "intorstring":
        return go_text(bytes_of(3)) if number_of(1, 64) == 1 else number_of(2, 32)
    if kind == "duration":
        return values.duration_text(number_of(1, 64))
    if kind == "raw":
        return _json(bytes_of(1))
    return _schema_or(type, found, name, depth)


def _schema_or(type: Type, found: dict[int, tuple[_Value, int]], name: str, depth: int) -> Any:
    """`JSONSchemaPropsOrBool`, `...OrArray`, `...OrStringArray`: one of two forms, JSON shows the one that is set."""
    message = SCHEMA.message(type.message)
    bare = message.go_name
    props = SCHEMA.message("apiextensions/v1.JSONSchemaProps")
    schema_number = 2 if bare.endswith("OrBool") else 1
    if schema_number in found:
        value, wire = found[schema_number]
        return _read(props, *_length_delimited(value, wire, name), depth + 1)
    if bare.endswith("OrBool"):
        return 1 in found and _number(*found[1], 0, name) != 0
    return []


def _json(raw: bytes) -> Any:
    """JSON that travelled as bytes."""
    if not raw:
        return None
    try:
        orjson.loads(raw)
        return json_text.plain(json_text.read(raw))
    except (ValueError, OverflowError) as error:
        raise ProtobufError(str(error)) from None


def _moment(seconds: int, nanos: int, kind: str) -> str | None:
    """As JSON prints it. Go leaves out the zero moment, of the year 1."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ProtobufError("Time.MarshalJSON: year outside of range [0,9999]") from None
    if (moment.year, moment.month, moment.day) == (1, 1, 1) and moment.second == 0 == moment.microsecond:
        return None
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond:06d}Z" if kind == "microtime" else f"{text}Z"


def _drop_zeros(found: dict[str, Any], message: Message) -> None:
    drop = []
    for name, value in found.items():
        if value is None or (not value and message.fields[name].drops_empty):
            drop.append(name)
    for name in drop:
        del found[name]
