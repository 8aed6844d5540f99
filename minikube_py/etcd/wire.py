"""Protobuf's wire format as Go parses it: invalid messages are refused with etcd's code and text.

The runtime reports only that a message is invalid, and accepts numbers that Go does not; where either matters, the
bytes are walked once more."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused

UNARY: Final = "grpc: error unmarshalling request"
STREAM: Final = "grpc: failed to unmarshal the received message"
MALFORMED: Final = "proto: cannot parse invalid wire-format data"
NOT_UTF8: Final = "string field contains invalid UTF-8"
_HIGH: Final = bytes([byte >> 7 for byte in range(256)])
_LONG: Final = b"\1" * 5
"""Candidates of `_HIGH`: a number of more than 64 bits, or a tag of more than 32. The runtime truncates them."""
FIELDS_MAX: Final = 2_000
"""Limit of walked fields: a message may consist of small ones."""
NUMBER_MAX: Final = (1 << 29) - 1
VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)


class Malformed(Exception):
    """The text is Go's."""


def read(kind: Any, data: bytes, where: str = UNARY) -> Any:
    """The message of class `kind`. Raises: Refused."""
    try:
        if _LONG in data.translate(_HIGH):
            _walk(kind.DESCRIPTOR, data)
        return kind.FromString(data)
    except Malformed as malformed:
        why = str(malformed)
    except DecodeError:
        why = _why(kind.DESCRIPTOR, data)
    raise Refused(StatusCode.INTERNAL, f"{where}: {why}")


def _why(descriptor: Any, data: bytes) -> str:
    try:
        _walk(descriptor, data)
    except Malformed as malformed:
        return str(malformed)
    return MALFORMED


def _walk(descriptor: Any, data: bytes) -> None:
    """Only the first fields: the runtime checks the rest. Raises: Malformed."""
    at, open_groups, count = 0, list[int](), 0
    while at < len(data) and count < FIELDS_MAX:
        count += 1
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= NUMBER_MAX:
            raise Malformed(MALFORMED)
        if wire == VARINT:
            _, at = _varint(data, at)
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        elif wire == BYTES:
            size, start = _varint(data, at)
            at = start + size
            if at <= len(data) and not open_groups:
                _look_into(descriptor.fields_by_number.get(number), data[start:at])
        elif wire == GROUP:
            open_groups.append(number)
        elif wire != GROUP_END or not open_groups or open_groups.pop() != number:
            raise Malformed(MALFORMED)
        if at > len(data):
            raise Malformed(MALFORMED)
    if open_groups and at == len(data):
        raise Malformed(MALFORMED)


def _look_into(field: Any, part: bytes) -> None:
    if field is None:
        return
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _walk(field.message_type, part)
    elif field.type == FieldDescriptor.TYPE_STRING:
        try:
            part.decode()
        except UnicodeDecodeError:
            raise Malformed(NOT_UTF8) from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    found = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        found |= (byte & 0x7F) << 7 * (position - at)
        if byte < 0x80:
            if found >> 64:
                break
            return found, position + 1
    raise Malformed(MALFORMED)
