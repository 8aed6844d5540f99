"""CEL admission policies: compilation, and evaluation for one write. Pure: the caller has matched it.

Source: apiserver `pkg/admission/plugin/cel`, `pkg/admission/plugin/policy/validating/validator.go`,
`pkg/cel/mutation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.admission_expressions import AUTHORIZER, FIELDS, FUNCTIONS, VARIABLES, Matched, compiled, match
from minikube_py.api.errors import Json, go_quote
from minikube_py.cel.checker import Messages
from minikube_py.cel.environment import Environment, Expression
from minikube_py.cel.messages import PATCH
from minikube_py.cel.types import BOOL, DYN, NULL, STRING, Type, list_of, map_of, struct
from minikube_py.cel.values import EvaluationError

COST_MAX: Final = 10_000_000
"""For all validations and messages of one policy, and for all its annotations."""
MESSAGE_BYTES_MAX: Final = 5 * 1024
PATCHES: Final = ("ApplyConfiguration", "JSONPatch")
COMPOSED: Final = "kubernetes.variables"
_SIMPLE: Final = frozenset(("any", "bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"))
NO_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_Found = Expression | str


class Compiler:
    """`composed`: expressions may use variables declared earlier. `known` caches compiled expressions of the same
    policy."""

    def __init__(self, params: bool, composed: bool, known: dict[object, _Found]) -> None:
        self._names: Mapping[str, Type] = {**VARIABLES, **({"params": DYN} if params else {})}
        self._fields: dict[str, Type] = {}
        self._known = known
        self.variables: dict[str, _Found] = {}
        if composed:
            self._names = {**self._names, "variables": struct(COMPOSED)}

    def compile(
        self, expression: str, wanted: Sequence[Type], authorizer: bool = True, messages: Messages | None = None
    ) -> _Found:
        """The compiled expression, or why it is invalid."""
        key = (expression, tuple(wanted), authorizer, len(self._fields))
        found = self._known.get(key)
        if found is None:
            names = {**self._names, **AUTHORIZER} if authorizer else self._names
            fields = {**FIELDS, COMPOSED: dict(self._fields)}
            environment = Environment(names, fields, messages=messages, functions=FUNCTIONS)
            found = self._known[key] = compiled(expression, environment, wanted)
        return found

    def declare(self, name: str, expression: str) -> _Found:
        found = self.variables[name] = self.compile(expression, ())
        self._fields[name] = DYN if isinstance(found, str) else plain_type(found.type)
        return found

    def validation(self, expression: str) -> _Found:
        return self.compile(expression, (BOOL,))

    def message(self, expression: str) -> _Found:
        return self.compile(expression, (STRING,), authorizer=False)

    def annotation(self, expression: str) -> _Found:
        return self.compile(expression, (STRING, NULL))

    def mutation(self, patch_type: str, expression: str) -> _Found:
        """`patch_type`: one of PATCHES."""
        wanted = struct("Object") if patch_type == PATCHES[0] else list_of(struct(PATCH))
        return self.compile(expression, (wanted,), messages=_messages)


class _AnyField(dict[str, Type]):
    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Type:
        return DYN


_OPERATION: Final = {"op": STRING, "from": STRING, "path": STRING, "value": DYN}


def _messages(name: str) -> Mapping[str, Type] | None:
    """`Object.spec.template` and the like are untyped parts of the object."""
    if name == PATCH:
        return _OPERATION
    return _AnyField() if name == "Object" or name.startswith("Object.") else None


def plain_type(type_: Type) -> Type:
    """The type of a variable with such a value: what it holds of objects is unknown."""
    if type_.kind == "list":
        return list_of(plain_type(type_.params[0]))
    if type_.kind == "map":
        return map_of(*map(plain_type, type_.params))
    return type_ if type_.kind in _SIMPLE else DYN


class Decision(NamedTuple):
    """A denying validation, and its position."""

    message: str
    reason: str = ""
    at: int = 0


class Denials(NamedTuple):
    """`errors`: of audit annotations, which deny regardless of a binding's actions. `notes`: these annotations."""

    decisions: list[Decision]
    errors: list[str]
    notes: list[tuple[str, str]]


class NoBudget(Exception):
    """Evaluation exceeded its cost budget."""


class _Variables(dict[str, Any]):
    """Evaluated lazily; `cost` is the cost since the last reset."""

    def __init__(self, found: Mapping[str, _Found], bindings: Mapping[str, object]) -> None:
        super().__init__()
        self._found = found
        self._bindings = {**bindings, "variables": self}
        self.cost = 0

    def __missing__(self, name: str) -> Any:
        found = self._found[name]
        value: Any
        if isinstance(found, str):
            value = EvaluationError(f"composited variable {go_quote(name)} fails to compile: {found}")
        else:
            value, cost = found.outcome(self._bindings)
            self.cost += cost
            if type(value) is EvaluationError:
                value = EvaluationError(f"composited variable {go_quote(name)} fails to evaluate: {value}")
        self[name] = value
        return value


class Policy:
    """Compiled lazily; partial results survive a step limit."""

    def __init__(self, spec: Json) -> None:
        self._spec = spec
        self._fails = spec.get("failurePolicy") != "Ignore"
        self._known: dict[object, _Found] = {}

    @cached_property
    def text(self) -> bytes:
        """Data to rebuild the policy in another process."""
        return orjson.dumps(self._spec)

    @cached_property
    def compiler(self) -> Compiler:
        """With the policy's variables."""
        compiler = Compiler(self._spec.get("paramKind") is not None, True, self._known)
        for each in self._spec.get("variables") or ():
            compiler.declare(each["name"], each["expression"])
        return compiler

    def matched(self, bindings: Mapping[str, object]) -> Matched:
        """Whether its conditions hold; they do not see the namespace."""
        conditions = self._spec.get("matchConditions") or ()
        return match(conditions, {**bindings, "namespaceObject": None}, self._fails)

    def evaluate(
        self, expressions: Sequence[_Found | None], bindings: Mapping[str, object], left: int
    ) -> tuple[list[Any], int]:
        """Values or errors, and the remaining budget. Raises: NoBudget."""
        variables = _Variables(self.compiler.variables, bindings)
        scope = {**bindings, "variables": variables}
        values: list[Any] = []
        for found in expressions:
            if found is None or isinstance(found, str):
                values.append(None if found is None else EvaluationError(f"compilation error: {found}"))
                continue
            value, cost = found.outcome(scope)
            left -= cost + variables.cost
            variables.cost = 0
            if left < 0:
                raise NoBudget(NO_BUDGET)
            if type(value) is EvaluationError:
                value = EvaluationError(f"expression '{found.text}' resulted in error: {value}")
            values.append(value)
        return values, left


class _Compiled(NamedTuple):
    validations: list[_Found]
    messages: list[_Found | None]
    annotations: list[_Found]


class ValidatingPolicy(Policy):
    def __init__(self, spec: Json) -> None:
        super().__init__(spec)
        self._rules: Sequence[Json] = spec.get("validations") or ()

    @cached_property
    def _compiled(self) -> _Compiled:
        compiler = self.compiler
        validations = [compiler.validation(each["expression"]) for each in self._rules]
        told = [each.get("messageExpression") for each in self._rules]
        messages = [compiler.message(each) if each else None for each in told]
        given = self._spec.get("auditAnnotations") or ()
        return _Compiled(validations, messages, [compiler.annotation(each["valueExpression"]) for each in given])

    def denials(self, bindings: Mapping[str, object], namespace: Json | None) -> Denials:
        matched = self.matched(bindings)
        if matched.error:
            return Denials([Decision(matched.error)], [], [])
        if not matched.holds:
            return Denials([], [], [])
        bindings = {**bindings, "namespaceObject": namespace}
        try:
            values, left = self.evaluate(self._compiled.validations, bindings, COST_MAX)
        except NoBudget:
            return Denials(self._errors([NO_BUDGET]), [], [])
        try:
            shown = {name: value for name, value in bindings.items() if name not in AUTHORIZER}
            messages, _ = self.evaluate(self._compiled.messages, shown, left)
        except NoBudget:
            why = f"failed messageExpression: {NO_BUDGET}"
            texts = [str(value) if type(value) is EvaluationError else why for value in values]
            return Denials(self._errors(texts), *self._annotations(bindings))
        found: list[Decision] = []
        for at, (rule, value, message) in enumerate(zip(self._rules, values, messages)):
            if type(value) is EvaluationError:
                found += self._errors([str(value)], at)
            elif value is not True:
                found.append(Decision(_message(rule, message), rule.get("reason") or "Invalid", at))
        try:
            return Denials(found, *self._annotations(bindings))
        except NoBudget:
            return Denials(self._errors([NO_BUDGET]), [], [])

    def _errors(self, texts: Iterable[str], first: int = 0) -> list[Decision]:
        return [Decision(text, "", at) for at, text in enumerate(texts, first)] if self._fails else []

    def _annotations(self, bindings: Mapping[str, object]) -> tuple[list[str], list[tuple[str, str]]]:
        """Errors and notes. Raises: NoBudget."""
        values, _ = self.evaluate(self._compiled.annotations, bindings, COST_MAX)
        errors = [str(value) for value in values if self._fails and type(value) is EvaluationError]
        keys = (each["key"] for each in self._spec.get("auditAnnotations") or ())
        told = [(key, value.strip()) for key, value in zip(keys, values) if isinstance(value, str)]
        return errors, [(key, text) for key, text in told if text]


def _message(rule: Json, found: Any) -> str:
    if isinstance(found, str):
        text = found.strip()
        if text and len(text.encode()) <= MESSAGE_BYTES_MAX and "\n" not in text:
            return text
    told: str = (rule.get("message") or "").strip()
    return told or f"failed expression: {rule['expression'].strip()}"
