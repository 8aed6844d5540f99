"""The templates of workload objects: Go's templates, by the engine of KWOK's stages, with upstream's functions.

Source: `getTemplateFuncs` in test/integration/scheduler_perf/operations.go.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from minikube_py.api import yaml_text
from minikube_py.errors import InvalidRequest
from minikube_py.stages.errors import NotUnderstood, StageFailed
from minikube_py.stages.go_values import Float, Int
from minikube_py.stages.template import compile
from minikube_py.stages.template_syntax import Param, Text


def _divide(a: float, b: float) -> float:
    if b == 0:
        raise StageFailed("division by zero")
    return a / b


def _mod(a: float, b: float) -> float:
    if not int(b):
        raise StageFailed("division by zero")
    # Go's remainder has the sign of the dividend.
    return math.fmod(int(a), int(b))


_TWO, _ANY = Param(("any", "any")), Param(("any",), several=True)
_FUNCTIONS: Final[dict[str, tuple[Callable[..., float], Param]]] = {
    "Add": (lambda *numbers: sum(numbers), _ANY),
    "Divide": (_divide, _TWO),
    "Multiply": (lambda *numbers: math.prod(numbers), _ANY),
    "Subtract": (operator.sub, _TWO),
}


def _called(function: Callable[..., float], kind: type[Int | Float], *given: Any) -> Int | Float:
    """In floats, as upstream. Raises: StageFailed, also from 1e21 on, which upstream's HTML escaping would corrupt."""
    if not all(isinstance(each, int | float) for each in given):
        raise StageFailed(f"numbers are expected, not {list(given)}")
    value = function(*map(float, given))
    if abs(value) >= 1e21:
        raise StageFailed(f"{value} is too large for a template")
    return kind(value)


_DOORS: Final = {
    f"{name}{kind.__name__}": (partial(_called, function, kind), param)
    for name, (function, param) in _FUNCTIONS.items()
    for kind in (Float, Int)
} | {"Mod": (partial(_called, _mod, Int), _TWO)}


class _Data(dict[str, Any]):
    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            raise StageFailed(f".{name} is not there; there are .Index and .Count")
        return self[name]


class Template:
    """A file's text. `render` gives the object for one index out of a count."""

    def __init__(self, text: str, place: str) -> None:
        """Raises: InvalidRequest."""
        self._place = place
        try:
            self._template = compile(text, {name: param for name, (_, param) in _DOORS.items()})
        except NotUnderstood as error:
            raise InvalidRequest(f"{place}: line {error.line}: {error}") from None

    @property
    def is_fixed(self) -> bool:
        """Whether the object is the same for all indexes."""
        return all(isinstance(each, Text) for each in self._template.nodes)

    def text(self, index: int = 0, count: int = 1) -> str:
        """Raises: InvalidRequest."""
        data = _Data(Index=Int(index), Count=Int(count))
        try:
            return self._template.render(data, {name: door for name, (door, _) in _DOORS.items()})
        except (StageFailed, OverflowError) as error:
            raise InvalidRequest(f"{self._place}: {error}") from None

    def render(self, index: int = 0, count: int = 1) -> dict[str, Any]:
        """A new object each time. Raises: InvalidRequest."""
        return read_object(self.text(index, count), self._place)


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
