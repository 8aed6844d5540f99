"""CEL rules (`x-kubernetes-validations`): their validation and evaluation.

Source: apiextensions-apiserver `pkg/apiserver/schema/cel/{compilation,validation}.go`,
`pkg/apis/apiextensions/validation/{validation,cel_validation}.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.api.custom.values import Correlated, items_named_as
from minikube_py.api.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
    Json,
    forbidden_value,
    go_quote,
    internal_value,
    invalid_value,
    not_supported,
    omitted,
    required,
)
from minikube_py.api.named_formats import FORMATS
from minikube_py.cel.allowance import keep, spend
from minikube_py.cel.environment import Environment, Expression, compile
from minikube_py.cel.schemas import Declared, as_resource, declared, escaped, member, seen
from minikube_py.cel.syntax import Ident, Invalid, Node, parts_of
from minikube_py.cel.types import BOOL, STRING, Type, optional_of
from minikube_py.cel.values import EXCEEDED, NONE, EvaluationError, Optional

RULES: Final = "x-kubernetes-validations"
CALL_COST_MAX: Final = 1_000_000
OBJECT_COST_MAX: Final = 10_000_000
"""Cost limit of all rules for one object."""
RULE_COST_MAX: Final = 10_000_000
DEFINITION_COST_MAX: Final = 100_000_000
"""Estimated cost limits of one rule and of a definition."""
MESSAGE_BYTES_MAX: Final = 5 * 1024
_UNBOUNDED: Final = (1 << 64) - 1
_REASONS: Final = (DUPLICATE, FORBIDDEN, INVALID, REQUIRED)
_BLOCKING: Final = frozenset((NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID))
_NOWHERE: Final = "<nil>"

# --- paths ------------------------------------------------------------------------------------------------------------

_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
_TOKEN: Final = re.compile(r"[.\[\]]|'(?:[^'\\]|\\.)*'|[^.\[\]]+", re.DOTALL)


def field_path(text: str, schema: Any) -> str | None:
    """The path as errors show it; None if it is not in the schema."""
    found = ""
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        name = next(tokens, None)
        if token not in (".", "[") or name is None or not isinstance(schema, dict):
            return None
        if token == "[":
            if len(name) < 2 or name[0] != "'" or name[-1] != "'" or next(tokens, None) != "]":
                return None
            if any(each not in _ESCAPED for each in re.findall(r"\\(.)", name[1:-1])):
                return None
            name = re.sub(r"\\(.)", lambda match: _ESCAPED[match[1]], name[1:-1])
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                return None
            found, schema = inside(found, name), properties[name]
        elif additional is not None:
            found, schema = f"{found}[{name}]", additional if isinstance(additional, dict) else None
        else:
            return None
    return found


def inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# --- compiling --------------------------------------------------------------------------------------------------------


class Compiled(NamedTuple):
    """`wrong` and `message_wrong`: why an expression is invalid."""

    rule: Json
    expression: Expression | None = None
    wrong: str = ""
    uses_old: bool = False
    message: Expression | None = None
    message_wrong: str = ""
    field_path: str = ""

    @property
    def told(self) -> str:
        return str(self.rule.get("message") or self.rule.get("rule") or "").strip()


def compile_rules(schema: Json, of: Declared, found: list[Compiled]) -> None:
    """Adds missing ones to `found`. Raises: OutOfSteps, after making progress."""
    structs: dict[str, Mapping[str, Type]] = {}
    type_ = of.typed("selfType", structs)
    plain, lenient = (
        Environment({"self": type_, "oldSelf": old}, structs, of.size_of, functions=FORMATS)
        for old in (type_, optional_of(type_))
    )
    rules = schema.get(RULES) or ()
    while len(found) < len(rules):
        rule = rules[len(found)]
        found.append(_compiled(schema, rule, lenient if rule.get("optionalOldSelf") else plain))
        keep()


def _compiled(schema: Json, rule: Json, environment: Environment) -> Compiled:
    found = Compiled(rule)
    text = rule.get("rule") or ""
    if not text.strip():
        return found
    expression = _expression(text, environment, "", BOOL, "cel expression must evaluate to a bool")
    if isinstance(expression, str):
        return found._replace(wrong=expression)
    found = found._replace(expression=expression, uses_old=_names_old(expression.root))
    if text := rule.get("messageExpression"):
        wrong = "messageExpression must evaluate to a string"
        message = _expression(text, environment, "messageExpression ", STRING, wrong)
        if isinstance(message, str):
            return found._replace(message_wrong=message)
        found = found._replace(message=message)
    return found._replace(field_path=field_path(rule.get("fieldPath") or "", schema) or "")


def _expression(text: str, environment: Environment, what: str, wanted: Type, wrong: str) -> Expression | str:
    try:
        found = compile(text, environment)
    except Invalid as error:
        return f"{what}compilation failed: {error}"
    if found.type != wanted:
        return wrong
    if found.unfit is not None:
        return f"{what or 'program '}instantiation failed: {found.unfit}"
    return found


def _names_old(root: Node) -> bool:
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Ident) and node.name == "oldSelf":
            return True
        pending += parts_of(node)
    return False


# --- definitions ------------------------------------------------------------------------------------------------------


class Scope:
    """A schema's position in a definition, for rules."""

    def __init__(self, schema: Any, parent: Scope | None = None) -> None:
        self._schema = schema if isinstance(schema, dict) else {}
        self._parent = parent
        self._in_rules: bool = bool(self._schema.get(RULES)) or (parent is not None and parent._in_rules)
        self.total: Total = parent.total if parent is not None else Total()
        self._times = 1 if parent is None else parent._times_below

    def below(self, schema: Any) -> Scope:
        return Scope(schema, self)

    @property
    def _times_below(self) -> int:
        """How many values of a schema within this one an object can have; 0: unbounded."""
        type_ = self._schema.get("type")
        most: int | None = 1
        if type_ == "array":
            most = self._schema.get("maxItems")
        elif type_ == "object" and self._schema.get("additionalProperties") is not None:
            most = self._schema.get("maxProperties")
        return _UNBOUNDED_TIMES if most is None or self._times == _UNBOUNDED_TIMES else self._times * max(most, 0)

    @property
    def _declared(self) -> Declared | None:
        parent = self._parent
        if parent is not None and parent._in_rules and parent._declared is None:
            return None
        return declared(self._schema, parent is None or bool(self._schema.get("x-kubernetes-embedded-resource")))

    def errors(self, path: str, no_old: str) -> list[FieldError]:
        """Errors in its rules' expressions. `no_old`: where the part without known old values begins."""
        of = self._declared
        path = f"{path}.{RULES}"
        if of is None:
            why = "unable to convert structural schema to CEL declarations"
            told = f"internal error: failed to construct type information for {RULES} rules: {why}"
            return [internal_value(path, told)]
        errors: list[FieldError] = []
        rules: list[Compiled] = []
        compile_rules(self._schema, of, rules)
        for index, found in enumerate(rules):
            times = of.times_at_most if self._times == _UNBOUNDED_TIMES else self._times
            errors += self._rule_errors(found, f"{path}[{index}]", times, no_old)
        return errors

    def _rule_errors(self, found: Compiled, path: str, times: int, no_old: str) -> list[FieldError]:
        errors: list[FieldError] = []
        rule = found.rule
        cost = min(found.expression.cost * times, _UNBOUNDED) if found.expression is not None else 0
        errors += self._cost_errors("rule", cost, path)
        if found.wrong:
            errors.append(invalid_value(f"{path}.rule", _go_rule(rule), found.wrong))
        if found.message_wrong:
            errors.append(invalid_value(f"{path}.messageExpression", _go_rule(rule), found.message_wrong))
        elif found.message is not None:
            errors += self._cost_errors("messageExpression", found.message.cost, path)
        if found.uses_old and no_old:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {no_old}"
            errors.append(invalid_value(f"{path}.rule", rule["rule"], why))
        elif not found.uses_old and rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            errors.append(invalid_value(f"{path}.optionalOldSelf", rule["optionalOldSelf"], why))
        return errors

    def _cost_errors(self, name: str, cost: int, path: str) -> list[FieldError]:
        self.total.add(f"{path}.{name}", cost)
        if cost <= RULE_COST_MAX:
            return []
        return [forbidden_value(f"{path}.{name}", _too_dear(f"estimated {name} cost", cost, RULE_COST_MAX))]


_UNBOUNDED_TIMES: Final = -1


class Total:
    """The estimated cost of a definition's rules, and the four most expensive ones."""

    def __init__(self) -> None:
        self._cost = 0
        self._greatest: list[tuple[int, str]] = []

    def add(self, path: str, cost: int) -> None:
        self._cost = min(self._cost + cost, _UNBOUNDED)
        if cost >= DEFINITION_COST_MAX // 100:
            self._greatest = sorted([*self._greatest, (cost, path)], key=lambda each: -each[0])[:4]

    def errors(self, path: str) -> list[FieldError]:
        if self._cost <= DEFINITION_COST_MAX:
            return []
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors = [forbidden_value(each, why) for _, each in self._greatest]
        what = f"{RULES} estimated rule cost total for entire OpenAPIv3 schema"
        return [*errors, forbidden_value(path, _too_dear(what, self._cost, DEFINITION_COST_MAX))]


def _too_dear(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    advice = (
        "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and"
    )
    return f"{what} exceeds budget by factor of {shown} ({advice} strings are declared)"


def _go_rule(rule: Json) -> Json:
    """As upstream prints its internal type."""
    texts = {name: rule.get(name[:1].lower() + name[1:]) or "" for name in ("Rule", "Message", "MessageExpression")}
    return {
        **texts, "Reason": rule.get("reason"), "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }  # fmt: skip


def form_errors(schema: Json, path: str) -> list[FieldError]:
    """Errors in a schema's rules, except expressions."""
    errors: list[FieldError] = []
    for index, rule in enumerate(schema.get(RULES) or ()):
        errors += _form_errors(rule, f"{path}.{RULES}[{index}]", schema)
    return errors


def _form_errors(rule: Json, path: str, schema: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    why = "must be non-empty if specified"
    if not text:
        errors.append(required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errors.append(invalid_value(f"{path}.message", message, why))
    elif _BREAK.search(message.strip()):
        errors.append(invalid_value(f"{path}.message", message, "must not contain line breaks"))
    elif _BREAK.search(text) and not message.strip():
        errors.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        errors.append(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        errors.append(not_supported(f"{path}.reason", rule["reason"], _REASONS))
    told = rule.get("fieldPath") or ""
    if told and not told.strip():
        errors.append(invalid_value(f"{path}.fieldPath", told, why))
    if _BREAK.search(told):
        errors.append(invalid_value(f"{path}.fieldPath", told, "must not contain line breaks"))
    if told and field_path(told, schema) is None:
        errors.append(invalid_value(f"{path}.fieldPath", told, "must be a valid path"))
    return errors


_BREAK: Final = re.compile(r"[\n\r]")

# --- objects ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Ruled:
    """A schema with rules in it: `wrong`: why they cannot be evaluated. `seen_as`: the schema they see."""

    schema: Json
    seen_as: Mapping[str, Any]
    of: Declared | None
    wrong: str
    items: Ruled | None
    properties: dict[str, Ruled]
    additional: Ruled | None
    _compiled: list[Compiled] = field(default_factory=list)

    @property
    def rules(self) -> list[Compiled]:
        """Compiled with the first value; partial results survive a step limit."""
        if self.of is not None and len(self._compiled) < len(self.schema.get(RULES) or ()):
            compile_rules(self.schema, self.of, self._compiled)
        return self._compiled


def ruled(schema: Json, resource: bool) -> Ruled | None:
    """None without rules."""
    return _ruled(schema, resource, declared(schema, resource)) if _has_rules(schema) else None


def _has_rules(schema: Any) -> bool:
    spend(1)
    if not isinstance(schema, dict):
        return False
    below = (schema.get("items"), schema.get("additionalProperties"), *(schema.get("properties") or {}).values())
    return bool(schema.get(RULES)) or any(map(_has_rules, below))


def _is_embedded(schema: Json) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _ruled(schema: Any, resource: bool, of: Declared | None) -> Ruled | None:
    spend(5)
    if not _has_rules(schema):
        return None
    element = of.element if of is not None else None
    below = [
        _ruled(inner, _is_embedded(inner), element) if isinstance(inner, dict) else None
        for inner in (schema.get("items"), schema.get("additionalProperties"))
    ]
    properties = {}
    for name, inner in (schema.get("properties") or {}).items():
        known = escaped(name)
        if known is None:
            field = declared(inner, _is_embedded(inner))
        else:
            field = (of.fields or {}).get(known) if of is not None else None
        # Fields of unknown types are skipped.
        if field is not None and (found := _ruled(inner, _is_embedded(inner), field)) is not None:
            properties[name] = found
    wrong = "failed to convert to declType for CEL validation rules" if of is None and schema.get(RULES) else ""
    return Ruled(schema, as_resource(schema) if resource else schema, of, wrong, below[0], properties, below[1])


class _Spent(Exception):
    """Evaluation stops here."""


class Verdict(NamedTuple):
    """`warnings`: violations that existed before. `left`: remaining budget; negative if exceeded."""

    errors: list[FieldError]
    warnings: list[str]
    left: int


def judged(
    node: Ruled, value: Any, path: str = "", old: Any = None, ratchets: bool = False, budget: int = OBJECT_COST_MAX
) -> Verdict:
    """The rules' errors for a value. `ratchets`: unchanged violations of `old` are tolerated."""
    looked = _Looking(budget)
    try:
        looked.at(node, path, value, old, Correlated(old, value, node.schema) if ratchets else None, None)
    except _Spent:
        looked.left = -1
    return Verdict(looked.errors, looked.warnings, looked.left)


def is_blocked(errors: list[FieldError]) -> bool:
    """Whether an object is too invalid for rules to be useful."""
    return any(error.reason in _BLOCKING for error in errors)


BLOCKED: Final = invalid_value(
    _NOWHERE, None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)  # fmt: skip


class _Looking:
    def __init__(self, budget: int) -> None:
        self.left = budget
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []

    def at(
        self,
        node: Ruled,
        path: str,
        value: Any,
        old: Any,
        correlated: Correlated | None,
        parent: Correlated | None,
        known: Any = None,
    ) -> None:
        """`known`: the value as expressions see it, if its parent was evaluated. Raises: _Spent."""
        if value is None:
            return
        spend(10)
        if known is None and node.rules:
            known = seen(value, node.seen_as, node.seen_as is not node.schema)
        self._rules(node, path, value, old, known, correlated if correlated is not None else parent)
        if isinstance(value, list) and node.items is not None:
            keys = node.schema.get("x-kubernetes-list-map-keys") or ()
            stood = old if isinstance(old, list) and node.schema.get("x-kubernetes-list-type") == "map" else ()
            before_items = items_named_as(value, stood, keys)
            inner_items = correlated.items() if correlated is not None else [None] * len(value)
            for index, item in enumerate(value):
                told = known[index] if isinstance(known, list) else None
                where, before, inner = f"{path}[{index}]", before_items[index], inner_items[index]
                self.at(node.items, where, item, before, inner, correlated or parent, told)
        elif isinstance(value, dict):
            for below, name, where in self._members(node, value, path):
                before = old.get(name) if isinstance(old, dict) else None
                inner = correlated.member(name) if correlated is not None else None
                nearest = correlated or parent
                if correlated is not None and parent is None and name in ("apiVersion", "kind"):
                    inner = nearest = None
                self.at(below, where, value[name], before, inner, nearest, member(known, name))

    def _members(self, node: Ruled, value: Json, path: str) -> Iterator[tuple[Ruled, str, str]]:
        for name in value:
            if node.additional is not None:
                yield node.additional, name, f"{path}[{name}]"
            if name in node.properties:
                yield node.properties[name], name, inside(path, name)

    def _wrong(self, node: Ruled, path: str, why: str) -> None:
        self.errors.append(invalid_value(path or _NOWHERE, node.schema.get("type") or "", why))

    def _rules(
        self, node: Ruled, path: str, value: Any, old: Any, known: Any, nearest: Correlated | None
    ) -> None:
        if node.wrong:
            self._wrong(node, path, f"rule compiler initialization error: {node.wrong}")
        if not node.rules:
            return
        no_more = "validation failed due to running out of cost budget, no further validation rules will be run"
        if self.left <= 0:
            self._wrong(node, path, no_more)
            raise _Spent
        plain: Json = {"self": known}
        lenient = dict(plain)
        if any(each.uses_old for each in node.rules):
            lenient["oldSelf"] = NONE
            if old is not None:
                plain["oldSelf"] = seen(old, node.seen_as, node.seen_as is not node.schema)
                lenient["oldSelf"] = Optional(plain["oldSelf"])
        for each in node.rules:
            if each.wrong:
                self._wrong(node, path, f"rule compile error: {each.wrong}")
            if each.expression is None:
                continue
            optional = bool(each.rule.get("optionalOldSelf"))
            if each.uses_old and old is None and not optional:
                continue
            result, cost = each.expression.outcome(lenient if optional else plain, CALL_COST_MAX)
            if cost > self.left:
                self._wrong(node, path, no_more)
                raise _Spent
            self.left -= cost
            if isinstance(result, EvaluationError):
                self._failed(node, path, each, str(result))
            elif result is not True:
                self._refused(node, path, each, value, plain, nearest)

    def _failed(self, node: Ruled, path: str, each: Compiled, why: str) -> None:
        if why.startswith("no such overload"):
            told = "call arguments did not match a supported operator, function or macro signature for rule"
            self._wrong(node, path, f"'{why}': {told}: {each.told}")
        elif why.startswith(EXCEEDED):
            told = "no further validation rules will be run due to call cost exceeds limit for rule"
            self._wrong(node, path, f"'{why}': {told}: {each.told}")
            raise _Spent
        else:
            self._wrong(node, path, f"{why} evaluating rule: {each.told}")

    def _refused(
        self, node: Ruled, path: str, each: Compiled, value: Any, variables: Json, nearest: Correlated | None
    ) -> None:
        where = inside(path, each.field_path) if each.field_path else path
        lets_be = not each.uses_old and nearest is not None and nearest.unchanged
        detail, fatal = self._message(each, variables)
        if fatal:
            error = invalid_value(where or _NOWHERE, node.schema.get("type") or "", detail)
        else:
            plain = str(each.rule.get("message") or f"failed rule: {each.told}").strip()
            error = _error(each.rule.get("reason"), where or _NOWHERE, node.schema, value, detail or plain)
        if lets_be:
            self.warnings.append(str(error))
        else:
            self.errors.append(error)
        if fatal:
            raise _Spent

    def _message(self, each: Compiled, variables: Json) -> tuple[str, bool]:
        """The result of messageExpression, or ""; and whether evaluation must stop."""
        if each.message is None:
            return "", False
        result, cost = each.message.outcome(variables, CALL_COST_MAX)
        ends = "no further validation rules will be run"
        if cost > self.left:
            return f"messageExpression evaluation failed due to running out of cost budget, {ends}", True
        if isinstance(result, EvaluationError) and str(result).startswith(EXCEEDED):
            told = go_quote(each.rule["messageExpression"])
            return f"{ends} due to call cost exceeds limit for messageExpression: {told}", True
        self.left -= cost
        text = result.strip() if isinstance(result, str) else ""
        return ("", False) if len(text.encode()) > MESSAGE_BYTES_MAX or "\n" in text else (text, False)


def _error(reason: str | None, path: str, schema: Json, value: Any, detail: str) -> FieldError:
    whole = schema.get("type") in ("object", "array")
    if reason == FORBIDDEN:
        return forbidden_value(path, detail)
    if reason == REQUIRED:
        return required(path, detail)
    if reason == DUPLICATE:
        return FieldError(DUPLICATE, path, omitted(path, "").value if whole else value)
    return omitted(path, detail) if whole else invalid_value(path, value, detail)
