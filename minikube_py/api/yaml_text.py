"""YAML as upstream reads it (sigs.k8s.io/yaml on go-yaml v2): the first document, as JSON.

Plain scalars are resolved by go-yaml's rules, which differ from PyYAML's (`y` is true, `0o7` is 7, `1:20` a string).
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from minikube_py.api.go_format import go_float
from minikube_py.api.go_numbers import reread

MAX_NODES: Final = 200_000
"""Maximum nodes of a document, counting each use of an alias."""
MAX_ALIASED: Final = 1000
"""Beyond this many nodes, no more than 99 in 100 may come from aliases (as go-yaml)."""
MAX_DEPTH: Final = 200
INT_CHARS_MAX: Final = 1000
FILE_DEPTH_MAX: Final = 500
FILE_NODES_MAX: Final = 10_000_000
"""Of a whole number: longer ones do not fit an integer, and Python reads no more than 4,300 digits."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR: Final = "tag:yaml.org,2002:str"
_FLOAT_TAG: Final = "tag:yaml.org,2002:float"
_IMPLICIT: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null", "timestamp", "merge", "value")
)


class YamlError(ValueError):
    """Invalid YAML; the message is upstream's."""


_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INT = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "0123456789+-.":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise YamlError(f"json: unsupported value: {_go_float(text)}")
    plain = text.replace("_", "") if text[0] != "." else text
    if len(plain) <= INT_CHARS_MAX and _INT.fullmatch(plain):
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        whole = int(digits, 8) if octal else int(digits, 0)
        whole = -whole if plain.startswith("-") else whole
        if -(1 << 63) <= whole < 1 << 64:
            return whole
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if number not in (float("inf"), float("-inf")):
            return reread(number)
    return text


def _go_float(text: str) -> str:
    lowered = text.lower()
    return "NaN" if "nan" in lowered else "-Inf" if lowered.startswith("-") else "+Inf"


def documents(text: bytes) -> list[Any]:
    """All of a file, by YAML 1.1. PyYAML's composer in C recurses without bound and would end the process, so possibly
    deep documents are checked by events first. Raises: yaml.YAMLError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    flows = text.count(b"[") + text.count(b"{")
    if flows > FILE_DEPTH_MAX or any(_indented(line) > FILE_DEPTH_MAX for line in text.splitlines()):
        depth = 0
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > FILE_DEPTH_MAX:
                raise yaml.YAMLError(f"nested deeper than {FILE_DEPTH_MAX} levels")
    try:
        found = list(yaml.load_all(text, loader))
        if b"*" in text and _weight(found, {}) > FILE_NODES_MAX:
            raise yaml.YAMLError(f"its aliases stand for more than {FILE_NODES_MAX} values")
        return found
    except (ValueError, TypeError, RecursionError) as error:
        # Errors of values: an invalid date, a number of thousands of digits, a list as a key.
        raise yaml.YAMLError(f"a value that cannot be read: {str(error)[:200]}") from None


def _weight(value: Any, known: dict[int, int]) -> int:
    """The number of values with aliases expanded; recursive aliases are infinite."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = FILE_NODES_MAX
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum([_weight(each, known) for each in items])
    return known[id(value)]


def _indented(line: bytes) -> int:
    """At least as much as block collections are open within the line."""
    return len(line) - len(line.lstrip()) + line.count(b"- ") + line.count(b"? ") + line.count(b"\t")


def read(body: bytes) -> tuple[Any, str]:
    """The first document as JSON values, its mappings sorted by key; and, where keys repeat, upstream's complaint
    about them, else "". The last of repeated keys counts.

    Raises: YamlError.
    """
    try:
        loader = _Loader(body)
        try:
            reader = _Reader(loader)
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

    def __init__(self, loader: Any) -> None:
        self.repeats: list[str] = []
        self._next = loader.get_event
        self._count = 0
        self._aliased = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._open: set[str] = set()

    def document(self) -> Any:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
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
        if self._count > MAX_NODES:
            raise YamlError(f"yaml: document has more than {MAX_NODES} nodes")
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
            key = _key(self._value(event, depth + 1))
            if key in found:
                self.repeats.append(f'  line {line}: key "{key}" already set in map')
            found[key] = self._value(self._next(), depth + 1)
        return dict(sorted({**merged, **found}.items()))

    def _merge(self, value: Any, merged: dict[str, Any]) -> None:
        for source in reversed(value if isinstance(value, list) else [value]):
            if not isinstance(source, dict):
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            merged.update(source)


def _scalar(event: Any) -> Any:
    """Quoted scalars and those tagged as strings are text; the tags of other plain types change nothing."""
    tag = event.tag
    if event.style or tag == _STR or (tag is not None and tag not in _IMPLICIT and tag != "!"):
        return event.value
    return event.value if tag == "!" else resolve(event.value)


def _key(value: Any) -> str:
    if isinstance(value, dict | list):
        kind = "map[interface {}]interface {}" if isinstance(value, dict) else "[]interface {}"
        raise YamlError(f"yaml: invalid map key: {kind}")
    if value is None:
        raise YamlError("unsupported map key of type: %!s(<nil>), key: <nil>")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


# --- writing ----------------------------------------------------------------------------------------------------------


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """With floats as Go writes them."""


_Dumper.add_representer(float, lambda dumper, value: dumper.represent_scalar(_FLOAT_TAG, go_float(value)))


def write(value: Any) -> bytes:
    """JSON values as YAML."""
    found: bytes = yaml.dump(value, Dumper=_Dumper, encoding="utf-8", allow_unicode=True, width=1 << 20)
    return found
