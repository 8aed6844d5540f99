"""Reading an object against its message, in two ways that agree.

`Reader` does it thoroughly: over a value with order, repeats and number texts, reporting upstream's errors. `checker`
compiles a message into closures that settle a valid object quickly and raise `Undecided` on anything else. Both give
the object as Go would print it after reading and storing: unknown fields, nulls and zero values that are `omitempty`
are gone, quantities and times are canonical, and what Go always prints (`status: {}`, `rules: null`) is there. An empty
list or map that Go always prints is null, since protobuf, in which upstream stores, has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from minikube_py.api import values
from minikube_py.api.errors import go_quote
from minikube_py.api.json_text import CUT, Members, Number, plain, text_of
from minikube_py.api.schema import SCHEMA, Field, Message, Type
from minikube_py.api.values import BadValue, Mismatch

MAX_STRICT_ERRORS: Final = 100
"""At most this many unknown and repeated fields are reported, as upstream does."""


PROPS: Final = "apiextensions/v1.JSONSchemaProps"
_PROPS_TYPE: Final = Type("message", "v1.JSONSchemaProps", message=PROPS)
_TEXT_TYPE: Final = Type("string", "string")


class DecodeError(Exception):
    """The value does not fit its type; the message is upstream's."""


# --- what Go always prints ------------------------------------------------------------------------------------------

_ZEROS: Final[dict[str, Any]] = {
    "string": "", "bool": False, "int32": 0, "int64": 0, "uint8": 0, "float64": 0, "quantity": "0", "intorstring": 0,
    "duration": "0s", "time": None, "microtime": None,
}  # fmt: skip
_NULLS: Final = frozenset(("time", "microtime"))


def zero(type: Type) -> Any:
    """What Go prints for the zero value of `type`."""
    if type.pointer:
        return None
    if type.kind == "message":
        return zero_object(SCHEMA.message(type.message))
    # Of bytes, a null that was stored: protobuf has none.
    return "" if type.kind == "bytes" else _ZEROS.get(type.kind)


def zero_object(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    fill(always(message), found)
    return found


Always = tuple[tuple[str, Any, "Message | None"], ...]
_always: dict[str, Always] = {}


def always(message: Message) -> Always:
    """The fields that Go prints even when they were never set: name, value, or the message to make one from."""
    found = _always.get(message.name)
    if found is None:
        rows: list[tuple[str, Any, Message | None]] = []
        for field in message.fields.values():
            type = field.type
            if field.left_out_when_zero or field.name in ("kind", "apiVersion"):
                continue
            whole = type.kind == "message" and not type.pointer
            value = None if type.pointer else _ZEROS.get(type.kind)
            rows.append((field.name, value, SCHEMA.message(type.message) if whole else None))
        found = _always[message.name] = tuple(rows)
    return found


def fill(rows: Always, obj: dict[str, Any]) -> None:
    for name, value, message in rows:
        if name not in obj:
            obj[name] = value if message is None else zero_object(message)


# --- the thorough reader --------------------------------------------------------------------------------------------


class Reader:
    """Reads one value. `strict_errors` are the unknown and repeated fields met, in upstream's words.

    `strict` is false if they are not needed."""

    def __init__(self, strict: bool, within: Reader | None = None) -> None:
        """`within`: the reader in whose value this one reads a part, by a custom decoder of Go's."""
        self.strict = strict
        self.strict_errors: list[str] = []
        self._saved: str | None = None
        self._struct = ""
        self._outer: str = within._outer or within._struct if within else ""
        self._stack: list[str] = [*within._stack] if within else []
        self._path: list[str] = []

    def read(self, value: Any, message: Message) -> dict[str, Any]:
        """The object. Raises: DecodeError."""
        try:
            found = self._value(value, Type("message", message.text, message=message.name), None)
        except Mismatch as error:
            raise DecodeError(self._explain(error)) from None
        except BadValue as error:
            raise DecodeError(str(error)) from None
        if self._saved is not None:
            raise DecodeError(self._saved)
        return found if isinstance(found, dict) else zero_object(message)

    def _explain(self, error: Mismatch) -> str:
        if self._struct or self._stack:
            where = f"struct field {self._outer or self._struct}.{'.'.join(self._stack)}"
        else:
            where = "value"
        return f"json: cannot unmarshal {error.value} into Go {where} of type {error.go_type}"

    def _save(self, error: Mismatch) -> None:
        """Keeps the first non-fatal error, which is the one reported."""
        if self._saved is None:
            self._saved = self._explain(error)

    def _strict_error(self, what: str, name: str) -> None:
        path = "".join((*self._path, "." if self._path else "", name))
        text = f"{what} field {go_quote(path)}"
        if len(self.strict_errors) < MAX_STRICT_ERRORS and text not in self.strict_errors:
            self.strict_errors.append(text)

    def _value(self, value: Any, type: Type, old: Any) -> Any:
        """The value to keep, None for null or for what could not be read. `old` is what an earlier repeat gave."""
        if value is None:
            return None
        kind = type.kind
        try:
            if kind == "message":
                return self._object(value, type, old)
            if kind == "list":
                return self._list(value, type)
            if kind == "map":
                return self._map(value, type, old)
            if kind == "bytes":
                return self._bytes(value, type)
            if kind == "schema-or":
                return self.schema_or(value, type)
            scalar = _SCALARS.get(kind)
            if scalar is not None:
                return scalar(value, type)
        except Mismatch as error:
            self._save(error)
            return None
        try:
            return _SPECIALS[kind](value)
        except Mismatch as error:
            # Errors of custom decoders are fatal, whatever the earlier errors.
            raise BadValue(self._explain(error)) from None

    def _object(self, value: Any, type: Type, old: Any) -> dict[str, Any] | None:
        if not isinstance(value, Members):
            raise Mismatch(values.json_type(value), type.text)
        message = SCHEMA.message(type.message)
        found: dict[str, Any] = old if isinstance(old, dict) else {}
        seen: set[str] = set()
        struct, depth, path = self._struct, len(self._stack), len(self._path)
        for key, item in value:
            name = text_of(key)
            field = message.fields.get(name)
            if field is None:
                if self.strict:
                    self._strict_error("unknown", name)
                continue
            if name in seen and self.strict:
                self._strict_error("duplicate", name)
            seen.add(name)
            self._struct = message.go_name
            self._stack += (*field.embedded, name)
            self._push(name)
            _keep(found, field, self._value(item, field.type, found.get(name)))
            self._struct = struct
            del self._stack[depth:]
            del self._path[path:]
        fill(always(message), found)
        return found

    def _push(self, key: str) -> None:
        if self._path:
            self._path.append(".")
        self._path.append(key)

    def _map(self, value: Any, type: Type, old: Any) -> dict[str, Any]:
        if not isinstance(value, Members):
            raise Mismatch(values.json_type(value), type.text)
        assert type.element is not None
        found: dict[str, Any] = old if isinstance(old, dict) else {}
        seen: set[str] = set()
        path = len(self._path)
        for key, item in value:
            name = text_of(key)
            if name in seen and self.strict:
                self._strict_error("duplicate", name)
            seen.add(name)
            self._push(name)
            element = self._value(item, type.element, None)
            found[name] = zero(type.element) if element is None else element
            del self._path[path:]
        return found

    def _list(self, value: Any, type: Type) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, Members):
            raise Mismatch(values.json_type(value), type.text)
        assert type.element is not None
        found: list[Any] = []
        path = len(self._path)
        for index, item in enumerate(value):
            self._path.append(f"[{index}]")
            element = self._value(item, type.element, None)
            found.append(zero(type.element) if element is None else element)
            del self._path[path:]
        return found

    def schema_or(self, value: Any, type: Type) -> Any:
        """A schema, or the other form of the type; None for what Go takes for neither. Go reads it by itself, so
        unknown fields are dropped even if the request is strict, and each error is fatal. Raises: BadValue."""
        reader = Reader(False, self)
        try:
            if isinstance(value, Members):
                found: Any = reader._object(value, _PROPS_TYPE, None)
            elif type.message.endswith("OrBool"):
                if not isinstance(value, bool):
                    raise BadValue("boolean or JSON schema expected")
                return value
            elif isinstance(value, list):
                element = _TEXT_TYPE if type.message.endswith("OrStringArray") else _PROPS_TYPE
                found = reader._list(value, Type("list", f"[]{element.text}", element=element)) or None
            else:
                # What was cut has to be seen, so that it is refused.
                return CUT if values.is_text(value) and text_of(value) == CUT else None
        except Mismatch as error:
            raise BadValue(reader._explain(error)) from None
        if reader._saved is not None:
            raise BadValue(reader._saved)
        return found

    def _bytes(self, value: Any, type: Type) -> str | None:
        if isinstance(value, list) and not isinstance(value, Members):
            numbers = [0 if item is None else values.whole(item, 0, 255, "uint8") for item in value]
            return values.base64_text(bytes(numbers))
        if not values.is_text(value):
            raise Mismatch(values.json_type(value), type.text)
        try:
            return values.base64_bytes(value)
        except BadValue as error:
            if self._saved is None:
                self._saved = str(error)
            return None


def _keep(found: dict[str, Any], field: Field, value: Any) -> None:
    if value is None:
        if field.type.kind in _NULLS and not field.left_out_when_zero:
            found[field.name] = None
        elif field.type.pointer or field.type.kind in ("list", "map", "raw", "any"):
            found.pop(field.name, None)
    elif not value and field.drops_empty:
        found.pop(field.name, None)
    else:
        found[field.name] = value


def _string(value: Any, type: Type) -> str:
    if not values.is_text(value):
        raise Mismatch(values.json_type(value), type.text)
    return text_of(value)


def _bool(value: Any, type: Type) -> bool:
    if not isinstance(value, bool):
        raise Mismatch(values.json_type(value), type.text)
    return value


def _float(value: Any, type: Type) -> float:
    if not isinstance(value, Number):
        raise Mismatch(values.json_type(value), type.text)
    found = float(value)
    if found in (float("inf"), float("-inf")):
        raise Mismatch(f"number {value}", type.text)
    return int(value) if value.lstrip("-").isdigit() and len(value) < 16 else found


def _any(value: Any, type: Type) -> Any:
    try:
        return plain(value)
    except OverflowError as error:
        raise Mismatch(f"number {error}", "float64") from None


_SCALARS: Final[dict[str, Callable[[Any, Type], Any]]] = {
    "string": _string,
    "bool": _bool,
    "int32": lambda value, type: values.whole(value, values.INT32_MIN, values.INT32_MAX, type.text),
    "int64": lambda value, type: values.whole(value, values.INT64_MIN, values.INT64_MAX, type.text),
    "uint8": lambda value, type: values.whole(value, 0, 255, type.text),
    "float64": _float,
    "any": _any,
}


def _raw(value: Any) -> Any:
    """JSON kept as it came; numbers beyond float64 cannot be kept."""
    try:
        return plain(value)
    except OverflowError as error:
        raise BadValue(f"number {error} is out of range") from None


_SPECIALS: Final[dict[str, Callable[[Any], Any]]] = {
    "time": values.time,
    "microtime": values.micro_time,
    "duration": values.duration,
    "quantity": values.quantity,
    "intorstring": values.int_or_string,
    "raw": _raw,
}


# --- the fast checker -----------------------------------------------------------------------------------------------


class Undecided(Exception):
    """The fast path cannot decide: something is unknown, wrong or rare."""


Convert = Callable[[Any], Any]
"""Takes a value; gives its canonical form where that differs, else None (what it holds is made canonical in place)."""

_checkers: dict[str, Convert] = {}


def checker(message: Message) -> Convert:
    """A function that makes a decoded dict canonical in place. It raises Undecided, with the dict half done, on
    anything that needs the thorough reader."""
    found = _checkers.get(message.name)
    if found is None:
        found = _checkers[message.name] = _compile(message)
    return found


def _compile(message: Message) -> Convert:
    rows = {
        field.name: (*_entry(field.type), field.drops_empty)
        for field in message.fields.values()
    }
    texts = frozenset(name for name, (cls, convert, _) in rows.items() if cls is str and convert is None)
    always_rows = always(message)
    always_names = [name for name, _, _ in always_rows]

    def check(obj: Any) -> None:
        drop = None
        for key, value in obj.items():
            if value and value.__class__ is str and key in texts:
                # Most members.
                continue
            try:
                cls, convert, omit = rows[key]
            except KeyError:
                raise Undecided from None
            if value.__class__ is not cls and cls is not None:
                if value is not None:
                    raise Undecided
                drop = [key] if drop is None else [*drop, key]
            elif not value and omit:
                drop = [key] if drop is None else [*drop, key]
            elif convert is not None:
                new = convert(value)
                if new is not None:
                    obj[key] = new
        if drop is not None:
            for key in drop:
                del obj[key]
        for name in always_names:
            if name not in obj:
                fill(always_rows, obj)
                break

    return check


def _entry(type: Type) -> tuple[type[Any] | None, Convert | None]:
    """The Python class a value must have (None: its converter decides), and its converter."""
    kind = type.kind
    if kind == "message":
        return dict, _lazy_member(type.message)
    if kind == "list":
        assert type.element is not None
        return list, _list_checker(type.element)
    if kind == "map":
        assert type.element is not None
        return dict, _map_checker(type.element)
    if kind == "schema-or":
        return None, _schema_checker(type.message.endswith("OrBool"))
    return _FAST.get(kind, (None, _undecidable))


def _undecidable(value: Any) -> None:
    raise Undecided


def _lazy_member(name: str) -> Convert:
    compiled: list[Convert] = []

    def check(value: Any) -> Any:
        if not compiled:
            compiled.append(checker(SCHEMA.message(name)))
        return compiled[0](value)

    return check


def _schema_checker(or_bool: bool) -> Convert:
    of_schema = _lazy_member(PROPS)

    def check(value: Any) -> Any:
        if value.__class__ is dict:
            return of_schema(value)
        if not (or_bool and value.__class__ is bool):
            raise Undecided
        return None

    return check


def _list_checker(element: Type) -> Convert | None:
    cls, convert = _entry(element)
    if convert is None:

        def check_plain(items: list[Any]) -> None:
            for item in items:
                if item.__class__ is not cls:
                    raise Undecided

        return check_plain

    def check(items: list[Any]) -> None:
        for index, item in enumerate(items):
            if item.__class__ is not cls and (cls is not None or item is None):
                raise Undecided
            new = convert(item)
            if new is not None:
                items[index] = new

    return check


def _map_checker(element: Type) -> Convert:
    cls, convert = _entry(element)

    def check_plain(items: dict[str, Any]) -> None:
        for item in items.values():
            if item.__class__ is not cls:
                raise Undecided

    if convert is None:
        return check_plain

    quantities = convert is _fast_quantity

    def check(items: dict[str, Any]) -> None:
        if quantities and _all_canonical(items):
            return
        for key, item in items.items():
            if item.__class__ is not cls and (cls is not None or item is None):
                raise Undecided
            new = convert(item)
            if new is not None:
                items[key] = new

    return check


_quantities: dict[str, str | None] = {}
"""The canonical form of quantities met, None where it is the text itself."""
_canonical_quantities: set[Any] = set()
"""Those that are the text itself."""
_QUANTITIES_MAX: Final = 20_000


def _fast_quantity(value: Any) -> str | None:
    if value.__class__ is not str:
        if value.__class__ is not int:
            raise Undecided
        value = str(value)
        _remember(value)
        return _quantities[value] or str(value)
    if value not in _quantities:
        _remember(value)
    return _quantities[value]


def _all_canonical(quantities: dict[str, Any]) -> bool:
    try:
        return _canonical_quantities.issuperset(quantities.values())
    except TypeError:
        raise Undecided from None


def _remember(text: str) -> None:
    try:
        form = values.quantity(text)
    except BadValue:
        raise Undecided from None
    if len(_quantities) >= _QUANTITIES_MAX:
        _quantities.clear()
        _canonical_quantities.clear()
    _quantities[text] = None if form == text else form
    if form == text:
        _canonical_quantities.add(text)


def _fast_time(value: str) -> None:
    if values.is_canonical_time(value) is None:
        raise Undecided


def _fast_micro_time(value: str) -> None:
    if values.is_canonical_micro_time(value) is None:
        raise Undecided


def _fast_int32(value: int) -> None:
    if not -2147483648 <= value <= 2147483647:
        raise Undecided


def _fast_int64(value: int) -> None:
    if not -9223372036854775808 <= value <= 9223372036854775807:
        raise Undecided


def _fast_int_or_string(value: Any) -> None:
    if value.__class__ is int:
        _fast_int32(value)
    elif value.__class__ is not str:
        raise Undecided


def _fast_bytes(value: str) -> None:
    if not values.is_canonical_base64(value):
        raise Undecided


def _fast_raw(value: Any) -> None:
    """Numbers in raw JSON may print otherwise than written (`1.0`), and it may be deep: both are rare."""
    if value.__class__ is not dict:
        raise Undecided
    try:
        if b"." in orjson.dumps(value):
            _no_floats(value)
    except TypeError:
        raise Undecided from None


def _no_floats(value: Any) -> None:
    if value.__class__ is float:
        raise Undecided
    if value.__class__ is dict:
        for item in value.values():
            _no_floats(item)
    elif value.__class__ is list:
        for item in value:
            _no_floats(item)


_FAST: Final[dict[str, tuple[type[Any] | None, Convert | None]]] = {
    "string": (str, None),
    "bool": (bool, None),
    "int32": (int, _fast_int32),
    "int64": (int, _fast_int64),
    "time": (str, _fast_time),
    "microtime": (str, _fast_micro_time),
    "quantity": (None, _fast_quantity),
    "intorstring": (None, _fast_int_or_string),
    "bytes": (str, _fast_bytes),
    "raw": (None, _fast_raw),
}
