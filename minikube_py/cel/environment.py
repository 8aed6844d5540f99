"""The public interface: an environment declares variables, and `compile` compiles an expression over them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from minikube_py.cel.allowance import spend
from minikube_py.cel.calls import Function
from minikube_py.cel.checker import Fields, Messages, check
from minikube_py.cel.costs import SizeOf, most_it_costs
from minikube_py.cel.evaluation import Program, Run, program_of
from minikube_py.cel.format_literals import misfit
from minikube_py.cel.operators import to_duration, to_timestamp
from minikube_py.cel.parser import parse
from minikube_py.cel.regex import BadPattern, compiled
from minikube_py.cel.syntax import Call, Comprehension, ListOf, Literal, MapOf, Node, Select, Source, parts_of
from minikube_py.cel.types import Type
from minikube_py.cel.values import EvaluationError, Unfit

FRAMES_MAX: Final = 5_000
FRAMES_OF_NODE: Final = 8
FRAMES_FREE: Final = 400
"""Stack frames (of the interpreter's thousand) always available to an evaluation."""
COST_MAX: Final = 1_000_000
"""Kubernetes' default cost limit of one call."""
STEPS_OF_CHARACTER: Final = 40
"""To compile it."""


Rewrite = Callable[[Node], Node]


def _no_sizes(path: tuple[str, ...]) -> int | None:
    return None


@dataclass(frozen=True)
class Environment:
    """`fields`: of struct variables. `size_of`: maximum sizes below variables. `rewrite`: translates calls of another
    dialect, bottom-up. `messages`: types it may construct. `binds`: with `cel.bind`, as upstream has it for devices
    alone. `functions`: by overload, those whose rules the caller knows."""

    variables: Mapping[str, Type]
    fields: Fields = field(default_factory=dict)
    size_of: SizeOf = _no_sizes
    rewrite: Rewrite | None = None
    messages: Messages | None = None
    binds: bool = False
    functions: Mapping[str, Function] = field(default_factory=dict)


class Outcome(NamedTuple):
    """`value` is an EvaluationError on failure. `cost`: the actual cost, also on failure."""

    value: Any
    cost: int


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `cost`: the maximum evaluation cost. `type_text`: its type in errors."""

    text: str
    root: Node
    type: Type
    type_text: str
    cost: int
    functions: Mapping[str, Function]

    def evaluate(self, bindings: Mapping[str, object], cost_limit: int = COST_MAX) -> Any:
        """Its value for these variables. Raises: EvaluationError, in upstream's words."""
        value = self.outcome(bindings, cost_limit).value
        if type(value) is EvaluationError:
            raise value
        return value

    def outcome(self, bindings: Mapping[str, object], cost_limit: int = COST_MAX) -> Outcome:
        """The same with its cost; raises nothing."""
        program = self._program
        if isinstance(program, str):
            return Outcome(EvaluationError(program), 0)
        spend(program.nodes)
        run = Run(bindings, program.slots, cost_limit)
        before = sys.getrecursionlimit()
        needed = program.depth * FRAMES_OF_NODE
        if needed > FRAMES_FREE:
            sys.setrecursionlimit(before + needed)
        try:
            value = program.step(run)
        except EvaluationError as error:
            value = error
        finally:
            if needed > FRAMES_FREE:
                sys.setrecursionlimit(before)
        return Outcome(value, run.cost)

    @property
    def unfit(self) -> str | None:
        """The error if every evaluation must fail, as with `int('a')`."""
        program = self._program
        return program if isinstance(program, str) else None

    @cached_property
    def _program(self) -> Program | str:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + FRAMES_MAX)
        try:
            return program_of(self.root, self.functions)
        except (Unfit, BadPattern) as error:
            return str(error)
        finally:
            sys.setrecursionlimit(before)


def compile(expression: str, environment: Environment) -> Expression:
    """Raises: Invalid, with upstream's words."""
    spend(len(expression) * STEPS_OF_CHARACTER)
    before = sys.getrecursionlimit()
    # An expression may nest 250 levels, with a dozen calls each.
    sys.setrecursionlimit(before + FRAMES_MAX)
    try:
        source, root = parse(expression, environment.binds)
        if environment.rewrite is not None:
            root = _rewritten(root, environment.rewrite)
        found = check(source, root, environment.variables, environment.fields, environment.messages)
        _check_literals(source, root)
        cost = most_it_costs(root, environment.size_of)
        return Expression(expression, root, found, str(found), cost, environment.functions)
    finally:
        sys.setrecursionlimit(before)


def _rewritten(node: Node, rewrite: Rewrite) -> Node:
    if isinstance(node, Select):
        node.operand = _rewritten(node.operand, rewrite)
    elif isinstance(node, Call):
        node.target = node.target and _rewritten(node.target, rewrite)
        node.args = [_rewritten(each, rewrite) for each in node.args]
    elif isinstance(node, ListOf):
        node.items = [_rewritten(each, rewrite) for each in node.items]
    elif isinstance(node, MapOf):
        node.entries = [(_rewritten(k, rewrite), _rewritten(v, rewrite), maybe) for k, v, maybe in node.entries]
    elif isinstance(node, Comprehension):
        for part in ("range", "start", "condition", "step", "result"):
            setattr(node, part, _rewritten(getattr(node, part), rewrite))
    return rewrite(node)


def _check_literals(source: Source, root: Node) -> None:
    """Checks literal arguments of functions, and list and map literals of mixed types."""
    wrong = []
    pending = [(root, False)]
    while pending:
        node, formatted = pending.pop()
        if isinstance(node, ListOf | MapOf) and not formatted:
            wrong += [
                source.problem(at.at, f"expected type '{wanted}' but found '{at.type}'") for at, wanted in _odd(node)
            ]
        if isinstance(node, Call) and node.function == "format":
            formatted = True
            if (found := misfit(node)) is not None:
                wrong.append(source.problem(found[0].at, found[1]))
        pending += [(part, formatted) for part in parts_of(node)]
        if isinstance(node, Call) and node.args and node.function in _READ:
            given = node.args[-1]
            if isinstance(given, Literal) and not _READ[node.function](given.value):
                wrong.append(source.problem(given.at, f"invalid {node.function} argument"))
    if wrong:
        raise source.refusal(wrong)


def _odd(node: ListOf | MapOf) -> Iterator[tuple[Node, Type]]:
    """The first item, or key and value, whose type differs from the first one's, with that type."""
    if isinstance(node, ListOf):
        types = [_item_type(item, i in node.optional) for i, item in enumerate(node.items)]
        yield from [(item, types[0]) for item, each in zip(node.items, types) if each != types[0]][:1]
    elif node.entries:
        values = [_item_type(value, optional) for _, value, optional in node.entries]
        for (key, value, _), of_value in zip(node.entries, values):
            if key.type != node.entries[0][0].type:
                yield key, node.entries[0][0].type
            if of_value != values[0]:
                yield value, values[0]


def _item_type(item: Node, optional: bool) -> Type:
    return item.type.params[0] if optional and item.type.params else item.type


def _is_pattern(text: Any) -> bool:
    try:
        if isinstance(text, str):
            compiled(text)
    except BadPattern:
        return False
    return True


_READ: Final[Mapping[str, Callable[[Any], bool]]] = {
    "matches": _is_pattern,
    "duration": lambda value: type(to_duration(value)) is not EvaluationError,
    "timestamp": lambda value: type(to_timestamp(value)) is not EvaluationError,
}
