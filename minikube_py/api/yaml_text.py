"""YAML as the original reads it (sigs.k8s.io/yaml on go-yaml v2): the first document, as JSON.

Plain scalars are resolved by go-yaml's rules, which differ from PyYAML's (`y` is true, `0o7` is 7, `1:20` a string).
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

MAX_NODES: Final = 1_000_000
"""Nodes that a document may unfold into, aliases counted at each use."""
MAX_ALIASED: Final = 1000
"""Beyond this many nodes, no more than 99 in 100 may come from aliases (as go-yaml)."""
MAX_DEPTH: Final = 200

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR: Final = "tag:yaml.org,2002:str"
_IMPLICIT: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "null", "timestamp", "merge", "value")
)


class YamlError(ValueError):
    """No YAML; the message is the original's."""


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
    if _INT.fullmatch(plain):
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        whole = int(digits, 8) if octal else int(digits, 0)
        whole = -whole if plain.startswith("-") else whole
        if -(1 << 63) <= whole < 1 << 64:
            return whole
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if number not in (float("inf"), float("-inf")):
            return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return text


def _go_float(text: str) -> str:
    lowered = text.lower()
    return "NaN" if "nan" in lowered else "-Inf" if lowered.startswith("-") else "+Inf"


def read(body: bytes) -> tuple[Any, str]:
    """The first document as JSON values, its mappings sorted by key; and, where keys repeat, the original's complaint
    about them, else "". The last of repeated keys counts.

    Raises: YamlError.
    """
    try:
        loader = _Loader(body)
        try:
            node = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlError(_explain(error, body)) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise YamlError(f"yaml: {error}") from None
    if node is None:
        return None, ""
    reader = _Unfolder()
    value = reader.value(node, 0)
    if reader.repeats:
        return value, "yaml: unmarshal errors:\n" + "\n".join(reader.repeats)
    return value, ""


_ALIAS = re.compile(r"\*([^\s,\[\]{}]+)")


def _explain(error: yaml.YAMLError, body: bytes) -> str:
    """The line is told as go-yaml tells it: that of the context where there is one, and never the first."""
    problem = getattr(error, "problem", None)
    if problem is None:
        return f"yaml: {getattr(error, 'reason', None) or str(error).splitlines()[0]}"
    if problem.startswith("found undefined alias"):
        mark = error.problem_mark  # type: ignore[attr-defined]
        alias = _ALIAS.match(body.decode("utf-8", "replace"), mark.index)
        return f"yaml: unknown anchor '{alias[1] if alias else ''}' referenced"
    scanner = isinstance(error, yaml.scanner.ScannerError)
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if mark is not None and mark.line != 0:
            return f"yaml: line {mark.line + (1 if scanner else 0)}: {problem}"
    return f"yaml: {problem}"


class _Unfolder:
    """Turns nodes into values, counting what aliases unfold into."""

    def __init__(self) -> None:
        self.repeats: list[str] = []
        self._count = 0
        self._seen: set[int] = set()
        self._distinct = 0
        self._open: set[int] = set()

    def value(self, node: Any, depth: int) -> Any:
        self._enter(node, depth)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise YamlError("yaml: anchor value contains itself")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, depth + 1) for item in node.value]
            return self._mapping(node, depth)
        finally:
            self._open.discard(id(node))

    def _enter(self, node: Any, depth: int) -> None:
        self._count += 1
        if id(node) not in self._seen:
            self._seen.add(id(node))
            self._distinct += 1
        aliased = self._count - self._distinct
        if self._count > MAX_NODES or (self._count > MAX_ALIASED and aliased > 0.99 * self._count):
            raise YamlError("yaml: document contains excessive aliasing")
        if depth > MAX_DEPTH:
            raise YamlError(f"yaml: exceeded max depth ({MAX_DEPTH})")

    def _scalar(self, node: Any) -> Any:
        if not node.style and (node.tag in _IMPLICIT or node.tag == _STR):
            return resolve(node.value)
        return node.value

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.value == "<<" and not key_node.style:
                self._merge(value_node, merged, depth)
                continue
            key = self._key(key_node)
            if key in found:
                self.repeats.append(f'  line {key_node.start_mark.line + 1}: key "{key}" already set in map')
            found[key] = self.value(value_node, depth + 1)
        return dict(sorted({**merged, **found}.items()))

    def _key(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode):
            kind = "map[interface {}]interface {}" if isinstance(node, yaml.MappingNode) else "[]interface {}"
            raise YamlError(f"yaml: invalid map key: {kind}")
        value = self._scalar(node)
        if value is None:
            raise YamlError('unsupported map key of type: %!s(<nil>), key: <nil>')
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)

    def _merge(self, node: Any, merged: dict[str, Any], depth: int) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode):
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            merged.update(self.value(source, depth + 1))
