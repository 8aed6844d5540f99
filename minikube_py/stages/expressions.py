"""Selectors and value expressions of stages, in jq or CEL.

Source: KWOK 0.8 `pkg/utils/expression/selector.go`, `pkg/utils/lifecycle/value_*_from.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from minikube_py.cel.environment import Environment, Expression
from minikube_py.cel.environment import compile as compile_cel
from minikube_py.cel.syntax import Invalid
from minikube_py.cel.types import DYN
from minikube_py.cel.values import Duration, EvaluationError
from minikube_py.stages import jq
from minikube_py.stages.errors import NotUnderstood, StageFailed
from minikube_py.stages.functions import parse_int
from minikube_py.stages.jq import Query, Whole

Json = dict[str, Any]
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_ENVIRONMENT: Final = Environment({"self": DYN})
_NANOS: Final = 10**9


class Condition(Protocol):
    def holds(self, obj: Json) -> bool:
        """Raises: StageFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Requirement:
    """Of `matchExpressions`, in jq."""

    query: Query
    operator: str
    values: frozenset[str]

    def holds(self, obj: Json) -> bool:
        found = self.query.values(obj)
        if self.operator in ("In", "Exists"):
            return found is not None and self._has(found)
        return found is None or not self._has(found)

    def _has(self, found: list[Any]) -> bool:
        if self.operator in ("Exists", "DoesNotExist"):
            return bool(found)
        return any(_text(value) in self.values for value in found)


def _text(value: Any) -> str | None:
    """As KWOK compares it; numbers of the object are floats there, and equal to nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Whole):
        return str(int(value))
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """Of `matchExpressions`, in CEL."""

    expression: Expression

    def holds(self, obj: Json) -> bool:
        found = evaluated(self.expression, obj)
        if not isinstance(found, bool):
            raise StageFailed(f"the rule gives {type(found).__name__}, not a bool")
        return found


def cel(text: str) -> Expression:
    """Raises: NotUnderstood."""
    try:
        return compile_cel(text, _ENVIRONMENT)
    except Invalid as error:
        raise NotUnderstood(f"CEL: {error}") from None


def requirement(key: str, operator: str, values: list[str]) -> Requirement:
    """Raises: NotUnderstood."""
    if operator not in OPERATORS:
        raise NotUnderstood(f"operator {operator!r} is none of {', '.join(OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        raise NotUnderstood(f"{operator} needs values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise NotUnderstood(f"{operator} takes no values")
    return Requirement(jq.compile(key), operator, frozenset(values))


def evaluated(expression: Expression, obj: Json) -> Any:
    """Raises: StageFailed."""
    try:
        return expression.evaluate({"self": obj})
    except EvaluationError as error:
        raise StageFailed(f"CEL: {error}") from None


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a value; with neither, the stage itself."""

    query: Query | None = None
    expression: Expression | None = None


NOWHERE: Final = Source()


def whole(source: Source, otherwise: int, obj: Json) -> int | None:
    """A weight; None if it is not a number. Raises: StageFailed."""
    if source.expression is not None:
        found = evaluated(source.expression, obj)
        if not isinstance(found, int) or isinstance(found, bool):
            raise StageFailed(f"the weight is {type(found).__name__}, not an int")
        return found
    values = source.query.values(obj) if source.query is not None else None
    if not values:
        return otherwise
    first = values[0]
    if isinstance(first, str):
        return parse_int(first)
    if isinstance(first, int | float) and not isinstance(first, bool | Whole):
        return int(first)
    return otherwise


def seconds(source: Source, otherwise_s: float | None, obj: Json, now_s: float) -> float | None:
    """A delay, from a duration or a future time; None without one. Raises: StageFailed."""
    if source.expression is not None:
        found = evaluated(source.expression, obj)
        if isinstance(found, Duration):
            return found.ns / _NANOS
        raise StageFailed(f"the delay is {type(found).__name__}, not a duration")
    values = source.query.values(obj) if source.query is not None else None
    if not values or not isinstance(values[0], str):
        return otherwise_s
    if not values[0]:
        return None
    at_s = _time_s(values[0])
    if at_s is not None:
        return at_s - now_s
    duration_s = parse_duration_s(values[0])
    return otherwise_s if duration_s is None else duration_s


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[-+]\d\d:\d\d)", re.ASCII)


def _time_s(text: str) -> float | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        whole_s = datetime.fromisoformat(text.replace(found[1], "") if found[1] else text).timestamp()
    except ValueError:
        return None
    return whole_s + (float("0." + found[1][1:18]) if found[1] else 0.0)


_UNITS_NS: Final[Mapping[str, int]] = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _NANOS, "m": 60 * _NANOS, "h": 3600 * _NANOS,
}  # fmt: skip
_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def parse_duration_s(text: str) -> float | None:
    """time.ParseDuration; None if invalid."""
    plain = text[1:] if text[:1] in ("-", "+") else text
    if plain == "0":
        return 0.0
    at, total = 0, 0.0
    while at < len(plain):
        part = _PART.match(plain, at)
        if part is None or not (part[1] or part[2]) or len(part[0]) > 40:
            return None
        total += (int(part[1] or 0) + float(f"0.{part[2] or 0}")) * _UNITS_NS[part[3]]
        at = part.end()
    if not at or total >= 1 << 63:
        return None
    return (-total if text[0] == "-" else total) / _NANOS
