"""The templates of workload objects: YAML with `{{ .Index }}`, `{{ .Count }}` and numeric functions.

That is the subset of Go's templates in upstream's files; anything else in braces is an error that names it.
Source: `getTemplateFuncs` in test/integration/scheduler_perf/operations.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from minikube_py.api import yaml_text
from minikube_py.errors import InvalidRequest

Number = int | float
Scope = dict[str, int]
Term = Callable[[Scope], Number]

_ACTION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_TOKEN: Final = re.compile(r"\s*([()]|[+-]?\.?\d(?:[eE][+-]|[\w.])*|\.\w*|\w+|\S)")
_INT: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def _divide(a: Number, b: Number) -> float:
    if b == 0:
        raise InvalidRequest("division by zero")
    return a / b


def _mod(a: Number, b: Number) -> int:
    if not int(b):
        raise InvalidRequest("division by zero")
    # Go's remainder has the sign of the dividend.
    return int(math.fmod(int(a), int(b)))


def _product(*numbers: Number) -> float:
    return math.prod(map(float, numbers))


def _total(*numbers: Number) -> float:
    return float(sum(map(float, numbers)))


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Number], bool]]] = {
    "AddFloat": (_total, False),
    "AddInt": (lambda *numbers: int(_total(*numbers)), False),
    "DivideFloat": (_divide, True),
    "DivideInt": (lambda a, b: int(_divide(a, b)), True),
    "Mod": (_mod, True),
    "MultiplyFloat": (_product, False),
    "MultiplyInt": (lambda *numbers: int(_product(*numbers)), False),
    "SubtractFloat": (lambda a, b: float(a) - float(b), True),
    "SubtractInt": (lambda a, b: int(float(a) - float(b)), True),
}
"""By name; whether it takes exactly two arguments."""
_SCOPE: Final = ("Index", "Count")


def go_number(value: Number) -> str:
    """As Go's fmt prints it. Raises: InvalidRequest from 1e21 on, where upstream's HTML escaping would corrupt it."""
    if abs(value) >= 1e21:
        raise InvalidRequest(f"{value} is too large for a template")
    if isinstance(value, float) and (value.is_integer() or abs(value) >= 1e16):
        return str(int(value))
    return str(value)


class Template:
    """A file's text. `render` gives the object for one index out of a count."""

    def __init__(self, text: str, place: str) -> None:
        self._place = place
        self._parts: list[str | Term] = []
        end = 0
        for action in _ACTION.finditer(text):
            self._parts += [text[end : action.start()], self._action(action[1])]
            end = action.end()
        self._parts.append(text[end:])
        if any("{{" in part for part in self._parts if isinstance(part, str)):
            raise InvalidRequest(f"{place}: an action that begins with {{{{ does not end")

    @property
    def is_fixed(self) -> bool:
        """Whether the object is the same for all indexes."""
        return len(self._parts) == 1

    def text(self, index: int = 0, count: int = 1) -> str:
        scope = {"Index": index, "Count": count}
        try:
            return "".join(part if isinstance(part, str) else go_number(part(scope)) for part in self._parts)
        except (InvalidRequest, OverflowError) as error:
            raise InvalidRequest(f"{self._place}: {error}") from None

    def render(self, index: int = 0, count: int = 1) -> dict[str, Any]:
        """A new object each time. Raises: InvalidRequest."""
        return read_object(self.text(index, count), self._place)

    # --- inside braces ------------------------------------------------------------------------------------------------

    def _action(self, inner: str) -> Term:
        tokens = _TOKEN.findall(inner)
        if inner[:1] == "-" or inner[-1:] == "-":
            raise self._refused(inner, "trimmed spaces are")
        if not tokens:
            raise InvalidRequest(f"{self._place}: {{{{{inner}}}}}: missing value for command")
        term = self._call(tokens, inner)
        if tokens:
            raise self._refused(inner, f"{tokens[0]} is")
        return term

    def _refused(self, inner: str, what: str) -> InvalidRequest:
        known = ", ".join(_FUNCTIONS)
        return InvalidRequest(
            f"{self._place}: {{{{{inner}}}}}: {what} not read here; there are .Index, .Count, numbers, parentheses "
            f"and {known}"
        )

    def _call(self, tokens: list[str], inner: str) -> Term:
        if tokens[0] not in _FUNCTIONS:
            return self._value(tokens, inner)
        name = tokens.pop(0)
        function, is_binary = _FUNCTIONS[name]
        arguments = []
        while tokens and tokens[0] not in (")", "|"):
            arguments.append(self._value(tokens, inner))
        if is_binary and len(arguments) != 2:
            raise InvalidRequest(
                f"{self._place}: {{{{{inner}}}}}: wrong number of args for {name}: want 2 got {len(arguments)}"
            )
        return lambda scope: function(*(argument(scope) for argument in arguments))

    def _value(self, tokens: list[str], inner: str) -> Term:
        token = tokens.pop(0)
        if token == "(":
            term = self._call(tokens, inner) if tokens else None
            if term is None or not tokens or tokens.pop(0) != ")":
                raise InvalidRequest(f"{self._place}: {{{{{inner}}}}}: unclosed left paren")
            return term
        if token[:1] == "." and token[1:] in _SCOPE:
            name = token[1:]
            return lambda scope: scope[name]
        if _INT.fullmatch(token):
            whole = int(token)
            return lambda _: whole
        if _FLOAT.fullmatch(token):
            number = float(token)
            return lambda _: number
        raise self._refused(inner, f"{token} is")


def read_yaml(text: str, place: str) -> Any:
    """One YAML document without duplicate keys. Raises: InvalidRequest."""
    try:
        found, repeats = yaml_text.read(text.encode())
    except yaml_text.YamlError as error:
        raise InvalidRequest(f"{place}: {error}") from None
    if repeats:
        raise InvalidRequest(f"{place}: {repeats}")
    return found


def read_object(text: str, place: str) -> dict[str, Any]:
    """A document that is a mapping. Raises: InvalidRequest."""
    found = read_yaml(text, place)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{place}: this is no object")
    return found


@lru_cache(maxsize=256)
def _parsed(path: Path, text: str) -> Template:
    return Template(text, str(path))


def read_text(path: Path) -> str:
    """Raises: InvalidRequest."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def template(path: Path) -> Template:
    """Raises: InvalidRequest."""
    return _parsed(path, read_text(path))
