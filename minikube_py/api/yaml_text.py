"""YAML as upstream reads it (sigs.k8s.io/yaml on go-yaml v2), as JSON values.

Plain scalars are resolved by go-yaml's rules, which differ from PyYAML's (`y` is true, `0o7` is 7, `1:20` a string).
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any, Final

import yaml

from minikube_py.api.go_format import go_float, go_text
from minikube_py.api.go_numbers import reread

MAX_NODES: Final = 200_000
"""Maximum nodes of a document, counting each use of an alias."""
MAX_ALIASED: Final = 1000
"""Beyond this many nodes, no more than 99 in 100 may come from aliases (as go-yaml)."""
MAX_DEPTH: Final = 200
FILE_NODES_MAX: Final = 10_000_000
INT_CHARS_MAX: Final = 1000
"""Of a whole number: longer ones do not fit an integer, and Python reads no more than 4,300 digits."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BINARY: Final = "tag:yaml.org,2002:binary"
_FLOAT_TAG: Final = "tag:yaml.org,2002:float"
_RESOLVED: Final = {
    f"tag:yaml.org,2002:{name}": name for name in ("str", "bool", "int", "float", "null", "timestamp")
}


class YamlError(ValueError):
    """Invalid YAML; the message is upstream's."""


_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INT = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_TIMESTAMP = re.compile(r"\d{4}-\d\d?-\d\d?([Tt][\d:.]+(Z|[-+]\d\d:\d\d)| [\d:.]+)?")
_NOT_BETWEEN = re.compile(r"(?<![0-9])_|_(?![0-9])")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(text: str) -> Any:
    """The value of an unquoted scalar. Raises: YamlError."""
    return _resolved(text)[1]


def _resolved(text: str) -> tuple[str, Any]:
    """The value with the tag that go-yaml finds for it. Raises: YamlError."""
    if text in _WORDS:
        value = _WORDS[text]
        return "null" if value is None else "bool", value
    if not text or text[0] not in "0123456789+-.":
        return "str", text
    if _NOT_FINITE.fullmatch(text):
        raise YamlError(f"json: unsupported value: {_go_float(text)}")
    # Behind a point Go's own rule holds: between digits.
    plain = text if text[0] == "." and _NOT_BETWEEN.search(text) else text.replace("_", "")
    if len(plain) <= INT_CHARS_MAX and _INT.fullmatch(plain):
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        whole = int(digits, 8) if octal else int(digits, 0)
        whole = -whole if plain.startswith("-") else whole
        if -(1 << 63) <= whole < 1 << 64:
            return "int", whole
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if number not in (float("inf"), float("-inf")):
            return "float", reread(number)
    return "str", text


def _tagged(tag: str, text: str) -> Any:
    if tag == "str" or (tag == "timestamp" and _TIMESTAMP.fullmatch(text)):
        return text
    found, value = _resolved(text)
    if tag == found or (tag == "float" and found == "int" and value < 1 << 63):
        return value
    raise YamlError(f"yaml: cannot decode !!{found} `{text}` as a !!{tag}")


def _go_float(text: str) -> str:
    lowered = text.lower()
    return "NaN" if "nan" in lowered else "-Inf" if lowered.startswith("-") else "+Inf"


def documents(text: bytes) -> list[Any]:
    """Those of a file that are not null, as kubectl reads manifests: JSON objects in a row, or YAML between lines of
    `---`. Mappings keep their order. Raises: YamlError.

    Source: apimachinery pkg/util/yaml/decoder.go."""
    try:
        plain = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"yaml: {error}") from None
    found, rest, broken = _json_objects(plain) if plain.lstrip().startswith("{") else ([], plain, "")
    try:
        return found + [each for each in map(_document, _parted(rest)) if each is not None]
    except YamlError as error:
        raise (YamlError(broken) if broken else error) from None


def _json_objects(text: str) -> tuple[list[Any], str, str]:
    """Those that JSON's decoder reads, what remains for YAML, and what was wrong with it as JSON. Raises: YamlError if
    more than one was read: then it is no YAML."""
    found: list[Any] = []
    end = 0
    while (at := _SPACE.match(text, end).end()) < len(text):  # type: ignore[union-attr]
        try:
            value, end = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            broken = f"json: offset {getattr(error, 'pos', at)}: {getattr(error, 'msg', error)}"
            if len(found) > 1:
                raise YamlError(broken) from None
            return found, text[at:], broken
        found.append(value)
    return found, "", ""


def _json_whole(text: str) -> int | float:
    whole = int(text) if len(text) <= INT_CHARS_MAX else math.inf
    return whole if -(1 << 63) <= whole < 1 << 63 else float(text)


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_SPACE = re.compile(r"\s*")
_JSON = json.JSONDecoder(parse_int=_json_whole, parse_constant=_not_json)


def _parted(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("---"):
            lines.append(line)
            continue
        after = line[3:].strip()
        if after and not after.startswith("#"):
            raise YamlError(f"invalid Yaml document separator: {after}")
        yield "\n".join(lines)
        lines = []
    yield "\n".join(lines)


def _document(text: str) -> Any:
    return _read(text.encode(), FILE_NODES_MAX, in_order=True)[0]


def read(body: bytes) -> tuple[Any, str]:
    """The first document as JSON values, its mappings sorted by key; and, where keys repeat, upstream's complaint
    about them, else "". The last of repeated keys counts.

    Raises: YamlError.
    """
    return _read(body, MAX_NODES, in_order=False)


def _read(body: bytes, nodes_max: int, *, in_order: bool) -> tuple[Any, str]:
    try:
        loader = _Loader(body)
        try:
            reader = _Reader(loader, nodes_max, in_order=in_order)
            value = reader.document()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlError(_explain(error)) from None
    except UnicodeDecodeError as error:
        raise YamlError(f"yaml: {error}") from None
    if reader.repeats:
        return value, "yaml: unmarshal errors:\n" + "\n".join(reader.repeats)
    return value, ""


def _explain(error: yaml.YAMLError) -> str:
    """Names the line that go-yaml would: that of the context if there is one, and never the first line."""
    problem = getattr(error, "problem", None)
    if problem is None:
        return f"yaml: {getattr(error, 'reason', None) or str(error).splitlines()[0]}"
    scanner = isinstance(error, yaml.scanner.ScannerError)
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if mark is not None and mark.line != 0:
            return f"yaml: line {mark.line + (1 if scanner else 0)}: {problem}"
    return f"yaml: {problem}"


class _Reader:
    """Makes values from the parser's events. PyYAML's own composer recurses without bound, and in C: not used.

    Every node is counted, those an alias stands for at each of its uses."""

    def __init__(self, loader: Any, nodes_max: int, *, in_order: bool) -> None:
        self.repeats: list[str] = []
        self._nodes_max, self._in_order = nodes_max, in_order
        self._next = loader.get_event
        self._count = 0
        self._aliased = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open: set[str] = set()

    def document(self) -> Any:
        self._next()
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            return None
        if start.version not in (None, (1, 1)):
            line = start.start_mark.line
            raise YamlError(f"yaml: {f'line {line}: ' if line else ''}found incompatible YAML document")
        value = self._value(self._next(), 0)
        # What follows the value without being part of it is no YAML.
        self._next()
        return value

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor))
        self._enter(1, 0, depth)
        before = self._count - 1
        anchor = event.anchor
        if anchor is not None:
            self._anchors.pop(anchor, None)
            self._open.add(anchor)
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth)
        else:
            value = self._mapping(depth)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = (value, self._count - before)
        return value

    def _alias(self, anchor: str) -> Any:
        if anchor in self._open:
            raise YamlError(f"yaml: anchor '{anchor}' value contains itself")
        if anchor not in self._anchors:
            raise YamlError(f"yaml: unknown anchor '{anchor}' referenced")
        value, nodes = self._anchors[anchor]
        self._enter(nodes, nodes, 0)
        return value

    def _enter(self, nodes: int, aliased: int, depth: int) -> None:
        self._count += nodes
        self._aliased += aliased
        if self._count > MAX_ALIASED and self._aliased > 0.99 * self._count:
            raise YamlError("yaml: document contains excessive aliasing")
        if self._count > self._nodes_max:
            raise YamlError(f"yaml: document has more than {self._nodes_max} nodes")
        if depth > MAX_DEPTH:
            raise YamlError(f"yaml: exceeded max depth ({MAX_DEPTH})")

    def _sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and not event.style:
                self._merge(self._value(self._next(), depth + 1), merged)
                continue
            key = _not_finite_key(event) or _key(event, self._value(event, depth + 1))
            if key in found:
                self.repeats.append(f'  line {line}: key "{key}" already set in map')
            found[key] = self._value(self._next(), depth + 1)
        both = {**merged, **found}
        return both if self._in_order else dict(sorted(both.items()))

    def _merge(self, value: Any, merged: dict[str, Any]) -> None:
        for source in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(source, dict):
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            merged.update(source)


def _scalar(event: Any) -> Any:
    """Quoted scalars are text, unless a tag says what they are."""
    tag = event.tag
    if tag == _BINARY:
        try:
            return go_text(base64.b64decode("".join(event.value.splitlines()), validate=True))
        except ValueError:
            raise YamlError("yaml: !!binary value contains invalid base64 data") from None
    if tag in _RESOLVED:
        return _tagged(_RESOLVED[tag], event.value)
    return event.value if tag or event.style else resolve(event.value)


def _not_finite_key(event: Any) -> str:
    plain = isinstance(event, yaml.ScalarEvent) and not event.style and event.tag in (None, _FLOAT_TAG)
    found = _NOT_FINITE.fullmatch(event.value) if plain else None
    return {"NaN": ".nan", "+Inf": ".inf", "-Inf": "-.inf"}[_go_float(event.value)] if found else ""


def _key(event: Any, value: Any) -> str:
    """Of a mapping in JSON. Floats are written as 32-bit ones."""
    if isinstance(value, dict | list):
        kind = "map[interface {}]interface {}" if isinstance(value, dict) else "[]interface {}"
        raise YamlError(f"yaml: invalid map key: {kind}")
    if value is None:
        raise YamlError("unsupported map key of type: %!s(<nil>), key: <nil>")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(event, yaml.ScalarEvent) and _resolved(event.value)[0] == "float":
        return _float_key(float(event.value.replace("_", "")))
    if isinstance(value, int) and value >= 1 << 63:
        raise YamlError(f"unsupported map key of type: uint64, key: {value:#x}")
    return str(value)


def _float_key(value: float) -> str:
    """The fewest digits that a 32-bit float is read from."""
    try:
        stored = struct.pack("<f", value)
    except OverflowError:
        return "-.inf" if value < 0 else ".inf"
    shown = (float(f"{value:.{digits}g}") for digits in range(1, 18))
    return next(go_float(each) for each in shown if struct.pack("<f", each) == stored)


# --- writing ----------------------------------------------------------------------------------------------------------


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """With floats as Go writes them."""


_Dumper.add_representer(float, lambda dumper, value: dumper.represent_scalar(_FLOAT_TAG, go_float(value)))


def write(value: Any) -> bytes:
    """JSON values as YAML."""
    found: bytes = yaml.dump(value, Dumper=_Dumper, encoding="utf-8", allow_unicode=True, width=1 << 20)
    return found
