"""The one door: an environment says which variables there are, and `compile` what an expression over them is."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from minikube_py.cel.checker import Fields, check
from minikube_py.cel.costs import SizeOf, most_it_costs
from minikube_py.cel.parser import parse
from minikube_py.cel.syntax import Call, Literal, Node, Source, parts_of
from minikube_py.cel.types import Type

FRAMES_MAX: Final = 5_000


def _no_sizes(path: tuple[str, ...]) -> int | None:
    return None


@dataclass(frozen=True)
class Environment:
    """`fields`: those of the structs that variables are. `size_of`: how large what stands below a variable can be."""

    variables: Mapping[str, Type]
    fields: Fields = field(default_factory=dict)
    size_of: SizeOf = _no_sizes


@dataclass(frozen=True)
class Expression:
    """One that compiles. `cost`: the most that an evaluation can cost. `type_text`: its type as errors tell it."""

    text: str
    root: Node
    type: Type
    type_text: str
    cost: int


def compile(expression: str, environment: Environment) -> Expression:
    """Raises: Invalid, with upstream's words."""
    before = sys.getrecursionlimit()
    # An expression may be nested in 250 levels, each of which takes a dozen calls.
    sys.setrecursionlimit(before + FRAMES_MAX)
    try:
        source, root = parse(expression)
        found = check(source, root, environment.variables, environment.fields)
        _check_literals(source, root)
        return Expression(expression, root, found, str(found), most_it_costs(root, environment.size_of))
    finally:
        sys.setrecursionlimit(before)


_UNITS = r"(?:ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"[+-]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+){_UNITS})+)")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.,][0-9]+)?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


def _check_literals(source: Source, root: Node) -> None:
    """Texts that a function is given as they are: regular expressions, durations and times."""
    wrong = []
    pending = [root]
    while pending:
        node = pending.pop()
        pending += parts_of(node)
        if isinstance(node, Call) and node.args and node.function in ("matches", "duration", "timestamp"):
            given = node.args[-1]
            if isinstance(given, Literal) and isinstance(given.value, str) and not _reads(node.function, given.value):
                wrong.append(source.problem(given.at, f"invalid {node.function} argument"))
    if wrong:
        raise source.refusal(wrong)


def _reads(function: str, text: str) -> bool:
    if function == "matches":
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            return False
        # What Python's expressions have and RE2's have not.
        return re.search(r"\(\?(?:[=!>#]|<[=!]|\()|\\[1-9]", text) is None
    return (_DURATION if function == "duration" else _TIMESTAMP).fullmatch(text) is not None
