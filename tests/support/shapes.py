"""Infers where values are sets: variables, attributes of classes of other modules, values of mappings, results of
functions. It uses annotations, displays, constructors and calls.

Numbers hash the same in every process: a set of them, or of tuples of them, has the shape NUMBERS.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple


class Shape(NamedTuple):
    """`name`: "set", "numbers" (a set of them), "map" (of values), "row" (of items, in order), "rows" (a tuple, item by
    item), a number's type or a class's name, or "" for anything else."""

    name: str
    inside: tuple[Shape, ...] = ()


ANY: Final = Shape("")
SET: Final = Shape("set")
NUMBERS: Final = Shape("numbers")
NUMBER_TYPES: Final = frozenset(("int", "float", "bool"))
SETS: Final = frozenset(("set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet", "WeakSet", "KeysView"))
MAPS: Final = frozenset(("dict", "defaultdict", "Mapping", "MutableMapping", "OrderedDict", "Dict", "MappingProxyType"))
ROWS: Final = frozenset(
    ("list", "deque", "Sequence", "MutableSequence", "Iterable", "Iterator", "Collection", "List", "AsyncIterator",
     "AsyncIterable", "Generator", "AsyncGenerator", "ValuesView")
)  # fmt: skip
THROUGH: Final = frozenset(("Final", "ClassVar", "Optional", "Awaitable", "Coroutine", "Annotated", "Required"))
"""Types that stand for their last argument."""
NUMBER_CALLS: Final = {"int": "int", "float": "float", "bool": "bool", "len": "int", "ord": "int", "round": "float"}
PLAIN: Final = frozenset(("None", "Any", "str", "bytes", "object"))
JOINING: Final = frozenset(("union", "difference", "intersection", "symmetric_difference"))
KEEPING: Final = frozenset(("list", "tuple", "iter", "reversed", "sorted", "deque"))


class Known:
    """Declarations of all modules of a program. Classes are found by their unqualified names. The attribute of a value
    of unknown class has a shape if all classes with that attribute agree."""

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self.numbers = {each: Shape(each) for each in NUMBER_TYPES}
        self.classes: dict[str, dict[str, Shape]] = {}
        self.bases: dict[str, list[str]] = {}
        self.functions: dict[str, Shape | None] = {}
        self.constants: dict[str, Shape | None] = {}
        self._said: dict[str, set[Shape]] = {}
        trees = [ast.parse(source) for source in sources]
        for tree in trees:
            self._numbers_of(tree)
        for tree in trees:
            self.learn(tree)

    def _numbers_of(self, tree: ast.Module) -> None:
        """Types that are numbers: `NodeId = NewType("NodeId", int)`."""
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            value = node.value
            if isinstance(value, ast.Call) and dotted(value.func) == "NewType" and len(value.args) == 2:
                value = value.args[1]
            if number := self.numbers.get(dotted(value)):
                self.numbers[node.targets[0].id] = number

    def learn(self, tree: ast.Module) -> None:
        for node in walk(tree):
            if isinstance(node, ast.ClassDef):
                members = self.classes.setdefault(node.name, {})
                self.bases.setdefault(node.name, []).extend(dotted(base).rpartition(".")[2] for base in node.bases)
                for name, shape in self._members(node):
                    # Several assignments, or classes of one name: an unknown shape does not replace a known one.
                    if members.get(name, ANY) == ANY:
                        members[name] = shape
                    self._said.setdefault(name, set()).add(shape)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                shape = self.annotated(node.returns)
                other = self.functions.get(node.name, shape)
                self.functions[node.name] = shape if other == shape else None
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                shape = self.declared(node)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        other = self.constants.get(target.id, shape)
                        self.constants[target.id] = shape if other == shape else None

    def _members(self, of: ast.ClassDef) -> Iterator[tuple[str, Shape]]:
        for node in of.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id, self.declared(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, self.annotated(node.returns)
                given = {each.arg: self.annotated(each.annotation) for each in arguments_of(node)}
                for each in walk(node):
                    if isinstance(each, ast.AnnAssign) and is_own(each.target):
                        yield each.target.attr, self.declared(each)  # type: ignore[union-attr]
                    elif isinstance(each, ast.Assign):
                        shape = given.get(dotted(each.value)) or self.made(each.value)
                        yield from ((target.attr, shape) for target in each.targets if is_own(target) and shape != ANY)  # type: ignore[attr-defined]

    def declared(self, node: ast.Assign | ast.AnnAssign) -> Shape:
        shape = self.annotated(node.annotation) if isinstance(node, ast.AnnAssign) else ANY
        return shape if shape != ANY or node.value is None else self.made(node.value)

    def made(self, value: ast.expr) -> Shape:
        """Of an expression that needs no context."""
        if isinstance(value, ast.Constant):
            return Shape(type(value.value).__name__) if isinstance(value.value, int | float) else ANY
        if isinstance(value, ast.Compare):
            return Shape("bool")
        if isinstance(value, ast.Set):
            return NUMBERS if all(is_number(self.made(each)) for each in value.elts) else SET
        if isinstance(value, ast.SetComp):
            return SET
        if isinstance(value, ast.Call):
            name = dotted(value.func).rpartition(".")[2]
            if name in SETS:
                given = value.args[0] if value.args else None
                are_numbers = isinstance(given, ast.Tuple | ast.List) and all(
                    is_number(self.made(each)) for each in given.elts
                )
                return NUMBERS if are_numbers else SET
            if name in NUMBER_CALLS:
                return Shape(NUMBER_CALLS[name])
            if name == "range":
                return Shape("row", (Shape("int"),))
            if name == "defaultdict" and value.args and dotted(value.args[0]) in SETS:
                return Shape("map", (SET,))
            if name in self.classes or name[:1].isupper():
                return Shape(name)
        return ANY

    def annotated(self, node: ast.expr | None) -> Shape:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return ANY
        if isinstance(node, ast.BinOp):
            left, right = self.annotated(node.left), self.annotated(node.right)
            return left if left != ANY else right
        if isinstance(node, ast.Subscript):
            name = dotted(node.value).rpartition(".")[2]
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if name in SETS:
                return NUMBERS if self._is_number(node.slice) else SET
            if name in MAPS:
                return Shape("map", (self.annotated(inside[-1]),))
            if name == "tuple" and not is_dots(inside[-1]):
                return Shape("rows", tuple(map(self.annotated, inside)))
            if name in ROWS or name == "tuple":
                return Shape("row", (self.annotated(inside[0]),))
            if name in THROUGH:
                return self.annotated(inside[-1])
            return Shape(name)
        if isinstance(node, ast.Name | ast.Attribute):
            name = dotted(node).rpartition(".")[2]
            if name in SETS:
                return SET
            if number := self.numbers.get(name):
                return number
            return ANY if name in THROUGH or name in PLAIN else Shape(name)
        return ANY

    def _is_number(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript) and dotted(node.value) == "tuple":
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return all(self._is_number(each) or is_dots(each) for each in inside)
        return dotted(node).rpartition(".")[2] in self.numbers

    def attribute(self, of: Shape, name: str) -> Shape:
        """Of `value.name`, or of the result of `value.name()`."""
        seen: set[str] = set()
        waiting = [of.name]
        while waiting:
            each = waiting.pop()
            if each in seen or each not in self.classes:
                continue
            seen.add(each)
            if name in self.classes[each]:
                return self.classes[each][name]
            waiting.extend(self.bases[each])
        if seen:
            return ANY
        said = self._said.get(name, set())
        return next(iter(said)) if len(said) == 1 else ANY


_EMPTY_FIELDS = frozenset(("ctx", "op", "ops"))
_BINDING = (
    ast.AnnAssign, ast.Assign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem, ast.FunctionDef,
    ast.AsyncFunctionDef,
)  # fmt: skip


class Scope:
    """The variables of one function, and of the functions that contain it."""

    def __init__(self, known: Known, node: ast.AST, outer: Scope | None, owner: str) -> None:
        self._known = known
        self._outer = outer
        self._owner = owner
        self._names: dict[str, Shape] = {}
        self.bound: set[str] = set()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for each in arguments_of(node):
                self.bound.add(each.arg)
                self._names[each.arg] = known.annotated(each.annotation)
        binding = [within for within in inner(node) if isinstance(within, _BINDING)]
        # Twice: in a loop, an assignment may follow its use.
        for within in (*binding, *binding):
            self._assigned(within)

    def _assigned(self, node: ast.AST) -> None:
        if isinstance(node, ast.AnnAssign):
            shape = self._known.annotated(node.annotation)
            self._bind(node.target, shape if shape != ANY or node.value is None else self.shape(node.value))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, self.shape(node.value))
        elif isinstance(node, ast.NamedExpr):
            self._bind(node.target, self.shape(node.value))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, self.item(self.shape(node.iter)))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, self.shape(node.context_expr))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.bound.add(node.name)

    def _bind(self, target: ast.expr, shape: Shape) -> None:
        if isinstance(target, ast.Name):
            self.bound.add(target.id)
            if self._names.get(target.id, ANY) == ANY:
                self._names[target.id] = shape
        elif isinstance(target, ast.Tuple | ast.List):
            inside = shape.inside if shape.name == "rows" else shape.inside[:1] * len(target.elts)
            for each, within in zip(target.elts, inside or (ANY,) * len(target.elts)):
                self._bind(each, within)

    def binds(self, name: str) -> bool:
        return name in self.bound or (self._outer is not None and self._outer.binds(name))

    def name(self, name: str) -> Shape:
        if name in self.bound:
            return self._names.get(name, ANY)
        return self._outer.name(name) if self._outer is not None else self._known.constants.get(name) or ANY

    def item(self, shape: Shape) -> Shape:
        """Of each item in an iteration. (A mapping gives its keys, which are not sets.)"""
        if shape.name == "rows":
            return shape.inside[0] if len({*shape.inside}) == 1 else ANY
        return shape.inside[0] if shape.name == "row" and shape.inside else ANY

    def shape(self, node: ast.expr) -> Shape:
        if isinstance(node, ast.Set):
            return NUMBERS if node.elts and all(is_number(self.shape(each)) for each in node.elts) else SET
        if isinstance(node, ast.SetComp):
            return NUMBERS if is_number(self.shape(node.elt)) else SET
        if isinstance(node, ast.Constant | ast.Compare):
            return self._known.made(node)
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            return self._known.attribute(self._receiver(node.value), node.attr)
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Starred):
            return self.shape(node.value)
        if isinstance(node, ast.IfExp):
            return self._either(node.body, node.orelse)
        if isinstance(node, ast.BoolOp):
            return self._either(*node.values)
        if isinstance(node, ast.BinOp):
            return self._combined(node)
        if isinstance(node, ast.Subscript):
            return self._part(self.shape(node.value), node.slice)
        if isinstance(node, ast.List | ast.Tuple):
            return Shape("rows", tuple(map(self.shape, node.elts)))
        if isinstance(node, ast.Dict):
            return Shape("map", (self._either(*node.values),)) if node.values else ANY
        if isinstance(node, ast.DictComp):
            return Shape("map", (self.shape(node.value),))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return Shape("row", (self.shape(node.elt),))
        if isinstance(node, ast.Call):
            return self._called(node)
        return ANY

    def _combined(self, node: ast.BinOp) -> Shape:
        left, right = (SET if is_view(side) else self.shape(side) for side in (node.left, node.right))
        if is_number(left) and is_number(right):
            return Shape("float") if isinstance(node.op, ast.Div) else (left if left.name == "float" else right)
        if SET not in (left, right) and NUMBERS not in (left, right):
            return ANY
        is_within = isinstance(node.op, ast.Sub | ast.BitAnd) and left == NUMBERS
        if is_within or (isinstance(node.op, ast.BitAnd) and right == NUMBERS) or left == right == NUMBERS:
            return NUMBERS
        return SET

    def _either(self, *nodes: ast.expr) -> Shape:
        shapes = [self.shape(each) for each in nodes]
        return next((each for each in shapes if each != ANY), ANY)

    def _receiver(self, node: ast.expr) -> Shape:
        return Shape(self._owner) if dotted(node) in ("self", "cls") else self.shape(node)

    def _part(self, shape: Shape, at: ast.expr) -> Shape:
        if isinstance(at, ast.Slice):
            return shape
        if shape.name in ("map", "row") and shape.inside:
            return shape.inside[0]
        if shape.name == "rows" and isinstance(at, ast.Constant) and isinstance(at.value, int):
            return shape.inside[at.value] if -len(shape.inside) <= at.value < len(shape.inside) else ANY
        return ANY

    def _called(self, node: ast.Call) -> Shape:
        name = dotted(node.func)
        if name == "asyncio.wait":
            return Shape("rows", (SET, SET))
        if name == "asyncio.all_tasks":
            return SET
        if isinstance(node.func, ast.Name):
            if name in KEEPING and node.args:
                inside = self.shape(node.args[0])
                return inside if inside.name == "row" else ANY
            if name in SETS and node.args:
                given = self.shape(node.args[0])
                return NUMBERS if given == NUMBERS or is_number(self.item(given)) else SET
            returned = self._known.functions.get(name)
            return returned if returned is not None else self._known.made(node)
        if not isinstance(node.func, ast.Attribute):
            return ANY
        method, receiver = node.func.attr, self._receiver(node.func.value)
        if method in JOINING or (method == "copy" and receiver in (SET, NUMBERS)):
            return NUMBERS if receiver == NUMBERS else SET
        if receiver.name == "map" and receiver.inside:
            if method in ("get", "pop", "setdefault"):
                given = self.shape(node.args[1]) if len(node.args) > 1 else ANY
                return receiver.inside[0] if receiver.inside[0] != ANY else given
            if method == "values":
                return Shape("row", receiver.inside)
            if method == "items":
                return Shape("row", (Shape("rows", (ANY, receiver.inside[0])),))
            if method == "copy":
                return receiver
        if receiver.name == "row" and method in ("pop", "popleft") and receiver.inside:
            return receiver.inside[0]
        if receiver == ANY and (made := self._known.made(node)) != ANY:
            return made
        if receiver == ANY and method in self._known.functions and isinstance(node.func.value, ast.Name):
            # `module.function()`
            said = self._known.attribute(ANY, method)
            return said if said != ANY else self._known.functions[method] or ANY
        return self._known.attribute(receiver, method)


# -- the syntax tree ---------------------------------------------------------------------------------------------------


def dotted(node: ast.expr | None) -> str:
    """`a.b.c`; "" if it is not a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, without contexts and operators: two nodes in five, and nothing is within them."""
    found: list[ast.AST] = []
    for name in node._fields:
        if name in _EMPTY_FIELDS:
            continue
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """In the order of `ast.walk`."""
    found = [node]
    for each in found:
        found += children(each)
    return found


def inner(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function or module, without those of functions inside it."""
    pending = children(node)[::-1]
    while pending:
        each = pending.pop()
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += reversed(children(each))


def arguments_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.arg]:
    given = node.args
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    for each in (given.vararg, given.kwarg):
        if each is not None:
            yield ast.arg(each.arg)


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and dotted(node.value) == "self"


def is_number(shape: Shape) -> bool:
    return shape.name in NUMBER_TYPES or (shape.name in ("row", "rows") and all(map(is_number, shape.inside)))


def is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def is_view(node: ast.expr) -> bool:
    """`mapping.keys()` or `.items()`: their differences are sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")
