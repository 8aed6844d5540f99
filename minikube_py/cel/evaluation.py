"""Compiles checked expressions to closures: each node becomes a function from a `Run` to the node's value.

Costs are counted as cel-go's tracker counts them, and in the same places: an identifier with its selectors is one step
with qualifiers, a constant is free, a branch of a condition is free if it is just an identifier. Source: cel-go
`interpreter/{planner,attributes,interpretable,optimizations,runtimecost}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minikube_py.cel.allowance import spend
from minikube_py.cel.calls import CONVERSIONS, Function, function_of, is_dispatched
from minikube_py.cel.checker import TYPE_NAMES
from minikube_py.cel.messages import PATCH, Message, made
from minikube_py.cel.runtime_costs import OF_RESULTS, CallCost, cost_of
from minikube_py.cel.syntax import Call, Comprehension, Ident, ListOf, Literal, MapOf, Node, Select, StructOf
from minikube_py.cel.values import (
    EXCEEDED,
    INT_MAX,
    NONE,
    EvaluationError,
    Growing,
    Optional,
    TypeValue,
    UInt,
    Unfit,
    alike,
    as_key,
    find,
    go_name,
    no_overload,
    of_key,
    pairs,
    put_optional,
    shown,
    type_name,
)


class Run:
    """One evaluation: variables, loop variables by slot, and the cost so far."""

    __slots__ = ("bindings", "cost", "limit", "slots")

    def __init__(self, bindings: Mapping[str, object], slots: int, limit: int) -> None:
        self.bindings = bindings
        self.slots: list[Any] = [None] * slots
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise EvaluationError(EXCEEDED)

    def pay(self, cost: int) -> None:
        """Adds a call's cost, which also spends steps."""
        self.charge(cost)
        if cost > 8:
            spend(cost >> 3)


Step = Callable[[Run], Any]
Qualify = Callable[[Run, Any, bool], tuple[Any, bool]]
"""The value at a key, and whether it exists; with True, a missing key is no error."""


@dataclass(slots=True)
class Qualifier:
    qualify: Qualify
    optional: bool


@dataclass(slots=True)
class Attribute:
    """The operand of qualifiers; for a condition, its two branches."""

    base: Step
    qualifiers: tuple[Qualifier, ...] = ()
    branches: tuple[Attribute, Attribute] | None = None

    def qualified(self, qualifier: Qualifier) -> Attribute:
        if self.branches is not None:
            yes, no = self.branches
            return Attribute(self.base, (), (yes.qualified(qualifier), no.qualified(qualifier)))
        return Attribute(self.base, (*self.qualifiers, qualifier))

    def resolver(self) -> Step:
        """Without the cost of the attribute itself."""
        base = self.base
        if self.branches is not None:
            yes, no = (branch.resolver() for branch in self.branches)

            def either(run: Run) -> Any:
                chosen = base(run)
                if chosen is True:
                    return yes(run)
                if chosen is False:
                    return no(run)
                return chosen if type(chosen) is EvaluationError else no_overload()

            return either
        return _applied(base, self.qualifiers) if self.qualifiers else base


def _applied(base: Step, qualifiers: Sequence[Qualifier]) -> Step:
    if len(qualifiers) == 1 and not qualifiers[0].optional:
        only = qualifiers[0].qualify

        def selected(run: Run) -> Any:
            value = base(run)
            if type(value) is EvaluationError:
                return value
            return all_of(run, value) if type(value) is Optional else only(run, value, False)[0]

    def all_of(run: Run, value: Any) -> Any:
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return value
            value = value.value
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            value, found = qualifier.qualify(run, value, optional)
            if type(value) is EvaluationError:
                return value
            if not found:
                return NONE
        return Optional(value) if optional else value

    def chain(run: Run) -> Any:
        value = base(run)
        return value if type(value) is EvaluationError else all_of(run, value)

    return selected if len(qualifiers) == 1 and not qualifiers[0].optional else chain


def qualify(value: Any, key: Any, optional: bool) -> tuple[Any, bool]:
    if isinstance(value, dict):
        found, there = find(value, key)
        if there or optional:
            return found, there
    elif isinstance(value, list):
        index = _index(key)
        if type(index) is EvaluationError:
            return index, False
        if 0 <= index < len(value):
            return value[index], True
        return (None, False) if optional else (EvaluationError(f"index out of bounds: {shown(key)}"), False)
    elif type(value) is Message and value.of == PATCH:
        return value.fields.get(key, ""), True
    elif optional:
        return None, False
    return EvaluationError(f"no such key: {shown(key)}"), False


def _index(key: Any) -> Any:
    kind = type(key)
    if kind is int:
        return key
    if kind is float or kind is UInt:
        if key == key and abs(key) < INT_MAX and key == int(key):
            return int(key)
        return EvaluationError(f"unsupported index value {shown(key)} in list")
    return EvaluationError(f"unsupported index type '{type_name(key)}' in list")


_KEYS: Final = frozenset((str, int, UInt, float, bool))


def _fixed(key: Any, optional: bool) -> Qualifier:
    def at_key(run: Run, value: Any, lenient: bool) -> tuple[Any, bool]:
        found, there = qualify(value, key, lenient)
        if there or not lenient:
            run.charge(1)
        return found, there

    return Qualifier(at_key, optional)


def _computed(key: Step, optional: bool) -> Qualifier:
    def at_key(run: Run, value: Any, lenient: bool) -> tuple[Any, bool]:
        wanted = key(run)
        if type(wanted) is EvaluationError:
            result = wanted, False
        elif type(wanted) not in _KEYS:
            result = EvaluationError(f"invalid qualifier type: {go_name(wanted)}"), False
        else:
            result = qualify(value, wanted, lenient)
        if result[1] or not lenient:
            run.charge(1)
        return result

    return Qualifier(at_key, optional)


def _tested(key: str) -> Qualifier:
    """Whether it exists, instead of its value."""

    def is_there(run: Run, value: Any, lenient: bool) -> tuple[Any, bool]:
        found, there = qualify(value, key, True)
        if there or not lenient:
            run.charge(1)
        there = key in value.fields if type(value) is Message else there
        return (found, False) if type(found) is EvaluationError and not there else (there, there or not lenient)

    return Qualifier(is_there, False)


@dataclass(slots=True)
class Plan:
    """A compiled node: its closure, and alternatives for its parent."""

    step: Step
    attribute: Attribute | None = None
    is_constant: bool = False
    value: Any = None


def _constant(value: Any) -> Plan:
    return Plan(lambda run: value, is_constant=True, value=value)


def _attribute(attribute: Attribute) -> Plan:
    resolve = attribute.resolver()
    if attribute.branches is not None:
        return Plan(resolve, attribute)

    def whole(run: Run) -> Any:
        value = resolve(run)
        run.charge(1)
        return value

    return Plan(whole, attribute)


@dataclass(frozen=True, slots=True)
class Program:
    step: Step
    slots: int
    depth: int
    nodes: int


def program_of(root: Node, functions: Mapping[str, Function]) -> Program:
    """Raises: Unfit."""
    planner = _Planner(functions)
    return Program(planner.plan(root).step, planner.slots, planner.depth, planner.nodes)


_UNSET: Final = object()


class _Planner:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self.slots = self.depth = self.nodes = self._level = 0
        self._scope: dict[str, Step] = {}

    def plan(self, node: Node) -> Plan:
        self._level += 1
        self.nodes += 1
        self.depth = max(self.depth, self._level)
        found: Plan
        if isinstance(node, Literal):
            found = _constant(UInt(node.value) if node.of.kind == "uint" else node.value)
        elif isinstance(node, Ident):
            found = self._named(node, node.name)
        elif isinstance(node, Select):
            found = self._select(node)
        elif isinstance(node, Call):
            found = self._call(node)
        elif isinstance(node, ListOf):
            found = self._list(node)
        elif isinstance(node, MapOf):
            found = self._map(node)
        elif isinstance(node, StructOf):
            found = self._message(node)
        else:
            assert isinstance(node, Comprehension), "the checker lets no other pass"
            found = self._loop(node)
        self._level -= 1
        return found

    # --- names and what is selected of them -------------------------------------------------------------------------

    def _named(self, node: Node, name: str) -> Plan:
        local = self._scope.get(name)
        if local is not None:
            return _attribute(Attribute(local))
        if _is_type(node, name):
            return _constant(TypeValue(name))

        def bound(run: Run) -> Any:
            try:
                return run.bindings[name]
            except KeyError:
                return EvaluationError(f"no such attribute(s): {name}")

        return _attribute(Attribute(bound))

    def _as_attribute(self, node: Node) -> Attribute:
        plan = self.plan(node)
        return plan.attribute or Attribute(plan.step)

    def _select(self, node: Select) -> Plan:
        if node.whole:
            return self._named(node, node.whole)
        attribute = self._as_attribute(node.operand)
        if not node.has:
            return _attribute(attribute.qualified(_fixed(node.name, False)))
        resolve = attribute.qualified(_tested(node.name)).resolver()

        def test(run: Run) -> Any:
            found = resolve(run)
            return found.present if type(found) is Optional else found

        return Plan(test, Attribute(test))

    def _indexed(self, node: Call, optional: bool) -> Plan:
        operand, index = node.args
        attribute, key = self._as_attribute(operand), self.plan(index)
        if key.is_constant:
            if type(key.value) not in _KEYS:
                raise Unfit(f"invalid qualifier type: {go_name(key.value)}")
            return _attribute(attribute.qualified(_fixed(key.value, optional)))
        step = key.step if key.attribute is None else key.attribute.resolver()
        return _attribute(attribute.qualified(_computed(step, optional)))

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Plan:
        name = node.function
        if name in ("_[_]", "_[?_]", "_?._"):
            return self._indexed(node, name != "_[_]")
        args = [self.plan(part) for part in ([] if node.target is None else [node.target]) + node.args]
        if name in ("_&&_", "_||_"):
            return Plan(_either(args[0].step, args[1].step, name == "_||_"))
        if name == "_?_:_":
            yes, no = (plan.attribute or Attribute(plan.step) for plan in args[1:])
            return _attribute(Attribute(args[0].step, (), (yes, no)))
        if name in ("or", "orValue"):
            return Plan(_or(args[0].step, args[1].step, name == "orValue"))
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if overload == "in_list" and args[1].is_constant and (member := _membership(args[0].step, args[1].value)):
            return member
        if name == "@not_strictly_false":
            return Plan(_not_strictly_false(args[0].step))
        function = function_of(name, overload, [(plan.is_constant, plan.value) for plan in args], self._functions)
        if name in CONVERSIONS and len(args) == 1 and args[0].is_constant:
            value = function(args[0].value)
            if type(value) is EvaluationError:
                raise Unfit(str(value))
            return _constant(value)
        in_turn = is_dispatched(name, overload) or (name in ("matches", "find", "findAll") and args[1].is_constant)
        steps = [plan.step for plan in args]
        return Plan(_called(function, cost_of(name, overload), steps, in_turn, name in OF_RESULTS))

    def _list(self, node: ListOf) -> Plan:
        items = [self.plan(item) for item in node.items]
        steps = [(plan.step, i in node.optional) for i, plan in enumerate(items)]

        def made(run: Run) -> Any:
            values = []
            for step, optional in steps:
                value = step(run)
                if type(value) is EvaluationError:
                    return value
                if optional:
                    if type(value) is not Optional:
                        text = f"cannot initialize optional list element from non-optional value {shown(value)}"
                        return EvaluationError(text)
                    if not value.present:
                        continue
                    value = value.value
                values.append(value)
            return values

        return _literal(made, items, 10)

    def _map(self, node: MapOf) -> Plan:
        entries = [(self.plan(key), self.plan(value), optional) for key, value, optional in node.entries]
        steps = [(key.step, value.step, optional) for key, value, optional in entries]

        def made(run: Run) -> Any:
            values: dict[Any, Any] = {}
            for key_step, value_step, optional in steps:
                key = key_step(run)
                if type(key) is EvaluationError:
                    return key
                value = value_step(run)
                if type(value) is EvaluationError:
                    return value
                if not optional:
                    values[as_key(key)] = value
                elif (wrong := put_optional(values, as_key(key), key, value)) is not None:
                    return wrong
            return values

        return _literal(made, [plan for key, value, _ in entries for plan in (key, value)], 30)

    def _message(self, node: StructOf) -> Plan:
        steps = [(each.name, self.plan(each.value).step, each.optional) for each in node.entries]
        return Plan(made(node.name, steps))

    # --- loops ------------------------------------------------------------------------------------------------------

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _loop(self, node: Comprehension) -> Plan:
        start, over = self.plan(node.start).step, self.plan(node.range).step
        made, first, second = self._slot(), self._slot(), self._slot()

        def accumulated(run: Run) -> Any:
            """Lazy: an unused binding costs nothing and cannot fail."""
            value = run.slots[made]
            if value is _UNSET:
                value = start(run)
                if (type(value) is list or type(value) is dict) and not value:
                    value = Growing() if type(value) is list else {}
                run.slots[made] = value
            return value

        outer = self._scope
        self._scope = {**outer, node.accumulator: accumulated, node.var: lambda run: run.slots[first]}
        if node.var2:
            self._scope[node.var2] = lambda run: run.slots[second]
        before = self.nodes
        condition, step = self.plan(node.condition), self.plan(node.step).step
        each = self.nodes - before
        self._scope = {**outer, node.accumulator: accumulated}
        result = self.plan(node.result).step
        self._scope = outer
        goes_on = None if condition.is_constant and condition.value is True else condition.step
        two = bool(node.var2)

        def loop(run: Run) -> Any:
            whole = over(run)
            if type(whole) is EvaluationError:
                return whole
            if not isinstance(whole, list | dict):
                kind = go_name(whole)
                wrong = (
                    f"unsupported comprehension range type: {kind}" if two else f"got '{kind}', expected iterable type"
                )
                return EvaluationError(wrong)
            slots = run.slots
            slots[made] = _UNSET
            for item in _items(whole, two):
                spend(each)
                if two:
                    slots[first], slots[second] = item
                else:
                    slots[first] = item
                if goes_on is not None and goes_on(run) is False:
                    break
                slots[made] = step(run)
            value = result(run)
            return list(value) if type(value) is Growing else value

        return Plan(loop)


def _is_type(node: Node, name: str) -> bool:
    return node.type.kind == "type" and (name in TYPE_NAMES or node.type.params[0].kind == "struct")


def _items(whole: Any, two: bool) -> Any:
    if isinstance(whole, list):
        return enumerate(whole) if two else whole
    return pairs(whole) if two else map(of_key, whole)


def _literal(made: Step, parts: Sequence[Plan], cost: int) -> Plan:
    """A list or a map; one of constants is a constant."""
    if all(plan.is_constant for plan in parts):
        return _constant(made(Run({}, 0, 0)))

    def charged(run: Run) -> Any:
        value = made(run)
        run.charge(cost)
        return value

    return Plan(charged)


def _either(left: Step, right: Step, decided: bool) -> Step:
    """`||` where `decided` is True, `&&` where it is False: a deciding side overrides the other's error."""

    def either(run: Run) -> Any:
        first = left(run)
        if first is decided:
            return decided
        second = right(run)
        if second is decided:
            return decided
        for value in (first, second):
            if type(value) is not bool:
                return value if type(value) is EvaluationError else no_overload()
        return not decided

    return either


def _or(left: Step, right: Step, unwraps: bool) -> Step:
    def chosen(run: Run) -> Any:
        value = left(run)
        # As upstream, which takes a value of another type as it is.
        if type(value) is not Optional:
            return value
        if value.present:
            return value.value if unwraps else value
        return right(run)

    return chosen


def _not_strictly_false(argument: Step) -> Step:
    def holds(run: Run) -> Any:
        value = argument(run)
        run.charge(1)
        return value if type(value) is bool else True

    return holds


_PRIMITIVE: Final = frozenset((bool, int, UInt, float, str))


def _membership(argument: Step, items: list[Any]) -> Plan | None:
    """`x in [1, 2]` as a set, which costs nothing."""
    if not items:
        return _constant(False)
    if any(type(item) not in _PRIMITIVE for item in items):
        return None
    known: set[Any] = set()
    for item in items:
        known |= {as_key(other) for other in alike(item)}

    def member(run: Run) -> Any:
        value = argument(run)
        if type(value) is EvaluationError:
            return value
        return type(value) in _PRIMITIVE and value == value and as_key(value) in known

    return Plan(member)


def _called(function: Function, cost: CallCost, steps: Sequence[Step], in_turn: bool, late: bool) -> Step:
    """`in_turn`: after a failed argument, the next is not evaluated and the call is free. `late`: the cost depends on
    the result; else a too expensive call does not start."""
    if len(steps) == 1 and not late:
        (only,) = steps

        def unary(run: Run) -> Any:
            value = only(run)
            run.pay(cost((value,), None))
            return value if type(value) is EvaluationError else function(value)

        return unary
    if len(steps) == 2 and not in_turn and not late:
        left, right = steps

        def binary(run: Run) -> Any:
            first, second = left(run), right(run)
            run.pay(cost((first, second), None))
            if type(first) is EvaluationError:
                return first
            return second if type(second) is EvaluationError else function(first, second)

        return binary

    def many(run: Run) -> Any:
        values: list[Any] = []
        for step in steps:
            value = step(run)
            values.append(value)
            if type(value) is EvaluationError:
                # All arguments are available for counting.
                if len(values) == len(steps):
                    run.pay(cost(values, value))
                return value
        if not late:
            run.pay(cost(values, None))
        result = function(*values)
        if late:
            run.pay(cost(values, result))
        return result

    return many
