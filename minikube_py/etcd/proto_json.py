"""JSON bodies of etcd's gateway as messages, and answers as JSON: what Go's protojson accepts, with its error messages.

A body is first checked to be JSON, as encoding/json does before protojson parses it; then it is parsed value by value,
in slices. Source: google.golang.org/protobuf/encoding/protojson, grpc-gateway's runtime/marshal_jsonpb.go."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from minikube_py.api.go_format import go_text
from minikube_py.api.json_text import Scanner, Syntax
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import TOO_MANY_OPS, Refused
from minikube_py.etcd.kv import OPS_MAX
from minikube_py.etcd.messages import BY_NAME

VALUES_MAX: Final = 50_000
"""Values of one body: the check for JSON is one step of the loop."""
EXPLAINED_MAX: Final = 20_000
"""Values of an invalid body that is parsed once more to get Go's message."""
SLICE: Final = 1_000
"""Values parsed in one step."""
WRITTEN: Final = 250
"""Values of a list written in one step, of up to VALUE_BYTES each; larger ones count as several."""
VALUE_BYTES: Final = 1 << 10
NESTED: Final = {"request_txn": "TxnRequest", "response_txn": "TxnResponse"}
"""Fields that are bytes in our table, and messages in etcd's."""
Reading = Generator[None, None, None]
_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\.)*+"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_TOKEN: Final = re.compile(rf"[ \t\r\n,:]*({_STRING}|{_NUMBER}|true|false|null|[\[\]{{}}])")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ENTIRE: Final = re.compile(rf"({_NUMBER})(?![-+._a-zA-Z0-9])")
_PARTS: Final = re.compile(r"(-?)(?:0|([1-9][0-9]*))(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")
_GO_SPACE: Final = "".join(map(chr, (*range(9, 14), *b" \x85\xa0", 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029))) + (
    "\u202f\u205f\u3000"
)
_STANDARD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FOR_URLS: Final = _STANDARD[:-2] + b"-_"
_KINDS: Final = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_STRING: "string",
}
_BOUNDS: Final = {
    "enum": (-(1 << 31), 1 << 31),
    "int32": (-(1 << 31), 1 << 31),
    "int64": (-(1 << 63), 1 << 63),
    "uint32": (0, 1 << 32),
    "uint64": (0, 1 << 64),
}
_DECODER: Final = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=lambda _: _not_json())


class Wrong(Exception):
    """The text is Go's."""


def _not_json() -> Any:
    raise ValueError


class Values:
    """The JSON values of a body in turn. `read` returns None at its end, and needs a message's name."""

    def __init__(self, body: bytes) -> None:
        # Decoded as one character per byte, so positions are those of the body; JSON's syntax is ASCII.
        self._text = body.decode("latin-1")
        self._at = 0
        self._values = sum(map(body.count, (b",", b"[", b"{")))

    def next(self) -> str | None:
        """The text of the next value. Raises: Wrong if it is not JSON; Refused if it is too large."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        start = found.end()
        if start == len(self._text):
            return None
        if self._values > VALUES_MAX:
            raise Refused(StatusCode.RESOURCE_EXHAUSTED, f"the body has more than {VALUES_MAX:,} values")
        try:
            _, self._at = _DECODER.raw_decode(self._text, start)
        except (ValueError, RecursionError):
            self._at = self._explained(start)
        return self._text[start : self._at]

    def _explained(self, start: int) -> int:
        """Where the value ends: Python's parser stops at some depth. Raises: Wrong."""
        if self._values > EXPLAINED_MAX:
            raise Wrong("invalid JSON")
        text = self._text[start:].encode("latin-1")
        scanner = Scanner(text)
        try:
            scanner.value()
        except Syntax as error:
            raise Wrong("unexpected EOF" if scanner.at >= len(text) else str(error)) from None
        return start + scanner.at


def read(name: str, text: str) -> Generator[None, None, Any]:
    """Parses a JSON value as the message of that name, in steps. Raises: Wrong; Refused."""
    message = BY_NAME[name]()
    yield from _Reader(text).message(message)
    return message


class _Token(NamedTuple):
    """`text`: the value of a string."""

    at: int
    raw: str
    text: str | None = None

    @property
    def shown(self) -> str:
        """As shown in errors: bytes that are not valid text are replaced."""
        return go_text(self.raw.encode("latin-1")) if not self.raw.isascii() else self.raw


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps = 0
        self._txns = 0

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _peek(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        assert found is not None, "it was found to be JSON"
        return _Token(found.start(1), found[1])

    def _next(self) -> _Token:
        """Raises: Wrong if Go's strings cannot hold the value."""
        token = self._peek()
        self._at = token.at + len(token.raw)
        self._steps += 1
        return token._replace(text=self._string(token)) if token.raw[0] == '"' else token

    def _wrong(self, at: int, why: str, kind: str = "") -> Wrong:
        before = self._text[:at]
        line = before[before.rfind("\n") + 1 :].encode("latin-1").decode("utf-8", "surrogateescape")
        return Wrong(f"proto: {kind}(line {before.count(chr(10)) + 1}:{len(line) + 1}): {why}")

    def _unexpected(self, token: _Token) -> Wrong:
        return self._wrong(token.at, f"unexpected token {token.shown}", "syntax error ")

    def _string(self, token: _Token) -> str:
        inner = token.raw[1:-1]
        if inner.isascii() and "\\" not in inner:
            return inner
        try:
            found = inner.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise self._wrong(token.at, "invalid UTF-8 in string", "syntax error ") from None
        if "\\" in inner:
            self._check_surrogates(token)
            found = str(json.loads(f'"{found}"'))
        return found

    def _check_surrogates(self, token: _Token) -> None:
        high_ends = -1
        for each in _ESCAPE.finditer(token.raw):
            if not each[1]:
                continue
            code = int(each[1], 16)
            if high_ends >= 0 and (each.start() != high_ends or not 0xDC00 <= code < 0xE000):
                break
            if high_ends >= 0:
                high_ends = -1
            elif 0xD800 <= code < 0xE000:
                high_ends = each.end()
                if code >= 0xDC00:
                    break
        if high_ends < 0:
            return
        rest = self._text[token.at + high_ends :][:6]
        if len(rest) < 6:
            raise Wrong("proto: unexpected EOF")
        shown = json.dumps(go_text(rest.encode("latin-1")), ensure_ascii=False)
        raise self._wrong(token.at, f"invalid escape code {shown} in string", "syntax error ")

    def _skip(self) -> Reading:
        depth = 0
        while True:
            token = self._next()
            if token.raw in ("{", "["):
                depth += 1
            elif token.raw in ("}", "]"):
                depth -= 1
            if not depth:
                return
            if self._pauses():
                yield

    def _pauses(self) -> bool:
        return self._steps % SLICE == 0

    # -- messages ------------------------------------------------------------------------------------------------------

    def message(self, message: Any) -> Reading:
        """Raises: Wrong; Refused if txns are nested too deeply."""
        opening = self._next()
        if opening.raw != "{":
            raise self._unexpected(opening)
        fields, seen, chosen = _fields_of(message.DESCRIPTOR), set[int](), set[str]()
        while (token := self._next()).raw != "}":
            field = fields.get(token.text or "")
            if field is None:
                yield from self._skip()
                continue
            if field.number in seen:
                raise self._wrong(token.at, f"duplicate field {token.shown}")
            seen.add(field.number)
            if self._peek().raw == "null":
                self._next()
            elif field.is_repeated:
                yield from self._list(getattr(message, field.name), field)
            else:
                choice = field.containing_oneof
                if choice is not None:
                    if choice.full_name in chosen:
                        text = f"error parsing {token.shown}, oneof {choice.full_name} is already set"
                        raise self._wrong(token.at, text)
                    chosen.add(choice.full_name)
                if field.message_type is not None:
                    inner = getattr(message, field.name)
                    inner.SetInParent()
                    yield from self.message(inner)
                elif field.name in NESTED:
                    setattr(message, field.name, (yield from self._nested(NESTED[field.name])))
                else:
                    value = self._scalar(field)
                    if value is not None:
                        setattr(message, field.name, value)
            if self._pauses():
                yield

    def _nested(self, name: str) -> Generator[None, None, bytes]:
        self._txns += 1
        if self._txns > OPS_MAX:
            raise Refused(*TOO_MANY_OPS)
        message = BY_NAME[name]()
        yield from self.message(message)
        self._txns -= 1
        return bytes(message.SerializeToString())

    def _list(self, values: Any, field: Any) -> Reading:
        opening = self._next()
        if opening.raw != "[":
            raise self._unexpected(opening)
        while self._peek().raw != "]":
            if field.message_type is not None:
                yield from self.message(values.add())
            elif (value := self._scalar(field)) is not None:
                values.append(value)
            if self._pauses():
                yield
        self._next()

    def _scalar(self, field: Any) -> Any:
        """None: an unknown name of an enum value. Raises: Wrong."""
        token, kind = self._next(), _KINDS[field.type]
        _, raw, text = token
        found: Any = None
        if kind == "bool":
            found = {"true": True, "false": False}.get(raw)
        elif kind == "string":
            found = text
        elif kind == "bytes":
            found = None if text is None else _bytes(text)
        elif kind == "enum" and text is not None:
            known = field.enum_type.values_by_name.get(text)
            return None if known is None else known.number
        elif text is None or text == text.strip(_GO_SPACE):
            found = _whole(raw if text is None else text, kind)
        if found is None:
            raise self._wrong(token.at, f"invalid value for {kind} field {field.json_name}: {token.shown}")
        return found


_FIELDS: Final[dict[str, dict[str, Any]]] = {}


def _fields_of(descriptor: Any) -> dict[str, Any]:
    """By JSON name and by protobuf name."""
    found = _FIELDS.get(descriptor.full_name)
    if found is None:
        found = {each.name: each for each in descriptor.fields} | {each.json_name: each for each in descriptor.fields}
        _FIELDS[descriptor.full_name] = found
    return found


def _bytes(text: str) -> bytes | None:
    """Standard or URL-safe, padded if the length says so; line ends are skipped."""
    for_urls = "-" in text or "_" in text
    padded = len(text) % 4 == 0
    try:
        data = text.encode("ascii").translate(None, b"\r\n")
    except UnicodeEncodeError:
        return None
    digits = data.rstrip(b"=") if padded else data
    pads = len(data) - len(digits)
    if digits.translate(None, _FOR_URLS if for_urls else _STANDARD) or pads > 2 or len(digits) % 4 == 1:
        return None
    if padded and len(data) % 4:
        return None
    return base64.b64decode(digits + b"=" * (-len(digits) % 4), b"-_" if for_urls else b"+/")


def _whole(text: str, kind: str) -> int | None:
    """An integer in any notation, within the bounds of its kind."""
    entire = _ENTIRE.match(text)
    if entire is None:
        return None
    sign, digits, fraction, exponent = _PARTS.fullmatch(entire[1]).groups("")  # type: ignore[union-attr]
    fraction = fraction.rstrip("0")
    shift = 0
    if digits or fraction:
        if len(exponent) > 40 or not -(1 << 31) <= (shift := int(exponent or 0)) < 1 << 31:
            return None
    else:
        sign, digits = "", "0"
    if shift >= 0:
        if len(fraction) > shift or len(digits) + shift > 20:
            return None
        digits += fraction + "0" * (shift - len(fraction))
    else:
        kept = len(digits) + shift
        if fraction or kept <= 0 or digits[kept:].strip("0"):
            return None
        digits = digits[:kept]
    if len(digits) > 25:
        return None
    low, high = _BOUNDS[kind]
    found = -int(digits) if sign else int(digits)
    return found if low <= found < high and (low or not sign) else None


# -- answers -----------------------------------------------------------------------------------------------------------


def write(message: Any) -> Generator[None, None, str]:
    """The JSON of a message, in steps."""
    parts: list[str] = []
    yield from _write(message, parts)
    return "".join(parts)


def _write(message: Any, parts: list[str]) -> Reading:
    before = "{"
    for field, value in message.ListFields():
        parts.append(f'{before}"{field.name}":')
        before = ","
        if not field.is_repeated:
            yield from _write_value(field, value, parts)
            continue
        cost = 0
        for position, each in enumerate(value):
            parts.append("," if position else "[")
            yield from _write_value(field, each, parts)
            cost += 1 + (each.ByteSize() // VALUE_BYTES if field.message_type else 0)
            if cost >= WRITTEN:
                cost = 0
                yield
        parts.append("]")
    parts.append("}" if before == "," else "{}")


def _write_value(field: Any, value: Any, parts: list[str]) -> Reading:
    kind = _KINDS.get(field.type)
    if kind is None:
        yield from _write(value, parts)
    elif field.name in NESTED:
        yield from _write(BY_NAME[NESTED[field.name]].FromString(value), parts)
    elif kind in ("int64", "uint64"):
        parts.append(f'"{value}"')
    elif kind == "bytes":
        parts.append(f'"{base64.b64encode(value).decode()}"')
    elif kind == "enum" and value in field.enum_type.values_by_number:
        parts.append(f'"{field.enum_type.values_by_number[value].name}"')
    else:
        parts.append(json.dumps(value, ensure_ascii=False))
