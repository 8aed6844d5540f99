"""Go template execution: `compile(text)` once, `render(data, doors)` for each object. Bounded in steps and in length.

Source: Go 1.26 `text/template/exec.go`; KWOK 0.8 `pkg/utils/gotpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from minikube_py.api.yaml_text import YamlError, read
from minikube_py.stages import go_values
from minikube_py.stages.errors import NotUnderstood, StageFailed
from minikube_py.stages.functions import FUNCTIONS, Function
from minikube_py.stages.go_values import MISSING, Float, Int, Int64, is_true, shown, type_of
from minikube_py.stages.template_syntax import (
    Action,
    Branch,
    Call,
    Chain,
    Command,
    Dot,
    Jump,
    Literal,
    Nil,
    Nodes,
    Param,
    Pipeline,
    Text,
    Variable,
    parse,
)

STEPS_MAX: Final = 50_000
CHARS_A_STEP: Final = 32
"""Bytes of a function's input and output per step."""
Door = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Template:
    nodes: Nodes
    functions: Mapping[str, Function]

    def render(self, data: Any, doors: Mapping[str, Door]) -> str:
        """`doors`: implementations of caller-supplied functions by name. Raises: StageFailed."""
        run = _Run(self, data, doors)
        try:
            run.execute(data, self.nodes)
        except _Left:
            raise StageFailed("a break or continue outside of its range") from None
        return "".join(run.out)

    def value(self, data: Any, doors: Mapping[str, Door]) -> Any:
        """The rendered text parsed as YAML. Raises: StageFailed."""
        text = self.render(data, doors)
        try:
            return read(text.encode())[0]
        except YamlError as error:
            raise StageFailed(f"it is no YAML: {error}") from None


def compile(text: str, doors: Mapping[str, Param]) -> Template:
    """`doors`: further functions, supplied to `render`. Lines count from the first that is not empty, as KWOK strips a
    template. Raises: NotUnderstood."""
    functions = {**FUNCTIONS, **{name: Function(param, None) for name, param in doors.items()}}
    stripped = text.strip()
    above = text[: len(text) - len(text.lstrip())].count("\n")
    try:
        nodes = parse(stripped, {name: function.param for name, function in functions.items()})
        _check(nodes, functions)
    except NotUnderstood as error:
        raise NotUnderstood(str(error), error.line + above) from None
    return Template(nodes, functions)


def _check(nodes: Any, functions: Mapping[str, Function]) -> None:
    """Checks literal arguments of functions."""
    if isinstance(nodes, tuple):
        for each in nodes:
            _check(each, functions)
    elif isinstance(nodes, Action):
        _check(nodes.pipeline, functions)
    elif isinstance(nodes, Branch):
        _check((nodes.pipeline, nodes.then, nodes.otherwise), functions)
    elif isinstance(nodes, Pipeline):
        _check(nodes.commands, functions)
    elif isinstance(nodes, Chain):
        _check(nodes.base, functions)
    elif isinstance(nodes, Command):
        _check(nodes.args, functions)
        if isinstance(nodes.args[0], Call) and (check := functions[nodes.args[0].name].check) is not None:
            literals = [each.value if isinstance(each, Literal) else MISSING for each in nodes.args[1:]]
            if why := check(literals):
                raise NotUnderstood(why, nodes.line)


class _Left(Exception):
    """A break or continue, caught by its range."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class _Run:
    def __init__(self, template: Template, data: Any, doors: Mapping[str, Door]) -> None:
        self.out: list[str] = []
        self._functions, self._doors = template.functions, doors
        self._variables: list[tuple[str, Any]] = [("$", data)]
        self._steps = STEPS_MAX
        self._chars = go_values.CHARS_MAX

    def _step(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise StageFailed(f"it takes more than {STEPS_MAX:,} steps")

    # --- nodes ------------------------------------------------------------------------------------------------------

    def execute(self, dot: Any, nodes: Nodes) -> None:
        for node in nodes:
            self._step()
            if isinstance(node, Text):
                self._print(node.text)
            elif isinstance(node, Action):
                value = self._pipeline(dot, node.pipeline)
                if not node.pipeline.declared:
                    self._print(shown(value))
            elif isinstance(node, Jump):
                raise _Left(node.kind)
            elif node.kind == "range":
                self._range(dot, node)
            else:
                self._if_or_with(dot, node)

    def _print(self, text: str) -> None:
        self._chars -= len(text)
        if self._chars < 0:
            raise go_values.too_long()
        self.out.append(text)

    def _if_or_with(self, dot: Any, node: Branch) -> None:
        mark = len(self._variables)
        value = self._pipeline(dot, node.pipeline)
        if is_true(value):
            self.execute(value if node.kind == "with" else dot, node.then)
        else:
            self.execute(dot, node.otherwise)
        del self._variables[mark:]

    def _range(self, dot: Any, node: Branch) -> None:
        outer = len(self._variables)
        value = self._pipeline(dot, node.pipeline)
        mark = len(self._variables)
        items = _items(value, len(node.pipeline.declared))
        for key, element in items:
            self._step()
            self._declare_element(node.pipeline, key, element, mark)
            try:
                self.execute(element, node.then)
            except _Left as left:
                if left.kind == "break":
                    break
            finally:
                del self._variables[mark:]
        del self._variables[outer:]
        if not items:
            self.execute(dot, node.otherwise)

    def _declare_element(self, pipeline: Pipeline, key: Any, element: Any, mark: int) -> None:
        names = pipeline.declared
        values = (key, element) if len(names) == 2 else (element,)
        for at, name in enumerate(names):
            if pipeline.assigns:
                self._assign(name, values[at])
            else:
                self._variables[mark - len(names) + at] = (name, values[at])

    def _assign(self, name: str, value: Any) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name:
                self._variables[at] = (name, value)
                return

    # --- values -----------------------------------------------------------------------------------------------------

    def _pipeline(self, dot: Any, pipeline: Pipeline) -> Any:
        self._step()
        value: Any = _NOTHING
        for command in pipeline.commands:
            value = self._command(dot, command, value)
            if value is None:
                # A nil interface is not a value.
                value = MISSING
        for name in pipeline.declared:
            if pipeline.assigns:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _command(self, dot: Any, command: Command, final: Any) -> Any:
        first = command.args[0]
        if isinstance(first, Call):
            return self._call(dot, first, command.args[1:], final)
        if final is not _NOTHING:
            raise StageFailed(f"line {command.line}: can't give argument to non-function")
        if isinstance(first, Nil):
            raise StageFailed(f"line {command.line}: nil is not a command")
        return self._value(dot, first)

    def _value(self, dot: Any, node: Any) -> Any:
        self._step()
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Dot):
            return dot
        if isinstance(node, Variable):
            return self._variable(node.name)
        if isinstance(node, Chain):
            value = self._value(dot, node.base)
            for name in node.names:
                value = _field(value, name)
            return value
        if isinstance(node, Pipeline):
            return self._pipeline(dot, node)
        return self._call(dot, node, (), _NOTHING) if isinstance(node, Call) else None

    def _variable(self, name: str) -> Any:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise StageFailed(f"undefined variable: {name}")

    def _call(self, dot: Any, call: Call, args: tuple[Any, ...], final: Any) -> Any:
        name = call.name
        if name in ("and", "or"):
            return self._and_or(dot, name, args, final)
        function = self._functions[name]
        given = len(args) + (final is not _NOTHING)
        _check_count(name, function.param, given)
        kinds = function.param.kinds
        values = [
            _argument(self._value(dot, each), each, kinds[min(at, len(kinds) - 1)]) for at, each in enumerate(args)
        ]
        if final is not _NOTHING:
            values.append(_argument(final, None, kinds[min(len(args), len(kinds) - 1)]))
        self._step(sum([len(each) for each in values if isinstance(each, str | list | dict)]) // CHARS_A_STEP)
        try:
            run = function.run
            result = run(*values) if run is not None else self._doors[name](*values)
        except StageFailed as error:
            # Same class, so that retryable errors stay retryable.
            raise type(error)(f"line {call.line}: error calling {name}: {error}") from None
        if isinstance(result, str):
            self._step(len(result) // CHARS_A_STEP)
        return result

    def _and_or(self, dot: Any, name: str, args: tuple[Any, ...], final: Any) -> Any:
        if not args and final is _NOTHING:
            raise StageFailed(f"wrong number of args for {name}: want at least 1 got 0")
        value: Any = MISSING
        for each in args:
            value = self._value(dot, each)
            if is_true(value) == (name == "or"):
                return value
        return value if final is _NOTHING else final


class _Nothing:
    pass


_NOTHING: Final = _Nothing()
"""No value comes through |."""


def _check_count(name: str, param: Param, given: int) -> None:
    most = len(param.kinds)
    least = most - 1 if param.several else most - param.optional
    if given < least or (given > most and not param.several):
        raise StageFailed(
            f"wrong number of args for {name}: want {'at least ' if param.several else ''}{least} got {given}"
        )


_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, Int) and not isinstance(value, Int64),
    "map": lambda value: isinstance(value, dict),
}
_GO: Final = {"map": "map[string]interface {}"}


def _argument(value: Any, node: Any, kind: str) -> Any:
    if kind == "any":
        return value
    if kind == "int" and isinstance(node, Literal) and isinstance(value, Float) and value.is_integer():
        # A constant is untyped.
        value = Int(value)
    if isinstance(node, Nil) or (value is MISSING and kind == "map"):
        value = {} if kind == "map" else value
    if _KINDS[kind](value):
        return value
    expected = _GO.get(kind, kind)
    if isinstance(node, Literal):
        raise StageFailed(f"expected {kind}; found {shown(value)}")
    if value is MISSING:
        raise StageFailed(f"invalid value; expected {expected}")
    raise StageFailed(f"wrong type for value; expected {expected}; got {type_of(value)}")


def _field(value: Any, name: str) -> Any:
    if value is MISSING:
        return MISSING
    if value is None:
        raise StageFailed(f"nil pointer evaluating interface {{}}.{name}")
    if not isinstance(value, dict):
        raise StageFailed(f"can't evaluate field {name} in type {type_of(value)}")
    return value.get(name, MISSING)


def _items(value: Any, names: int) -> list[tuple[Any, Any]]:
    if isinstance(value, list):
        return [(Int(at), each) for at, each in enumerate(value)]
    if isinstance(value, dict):
        return [(key, value[key]) for key in sorted(value)]
    if value is MISSING or value is None:
        return []
    if isinstance(value, Int):
        if names > 1:
            raise StageFailed(f"can't use {value} to iterate over more than one variable")
        if value > STEPS_MAX:
            raise StageFailed(f"it takes more than {STEPS_MAX:,} steps")
        return [(MISSING, Int(at)) for at in range(value)]
    raise StageFailed(f"range can't iterate over {shown(value)}")
