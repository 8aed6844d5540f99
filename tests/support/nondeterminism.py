"""Finds nondeterminism in source code: time, randomness and identity that are not passed in, and undefined orders. It
uses the syntax tree; the digests of virtual time show the rest."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

TIME: Final = "reads the machine's clock"
RANDOM: Final = "draws from a generator that nobody seeded"
IDENTITY: Final = "depends on the process, the host or an address"
THREAD: Final = "runs in a thread"
WAIT: Final = "waits by something else than the Clock"
ORDER: Final = "walks in an order that nothing decides"
TURNS: Final = "takes another number of turns in each Python; see env.ended"
TIES: Final = "leaves the order of equals to the processor"

MODULES: Final = {
    "time": TIME,
    "secrets": RANDOM,
    "uuid": RANDOM,
    "threading": THREAD,
    "_thread": THREAD,
    "concurrent.futures": THREAD,
    "multiprocessing": THREAD,
}
"""Forbidden imports."""
CALLS: Final = {
    "datetime.now": TIME,
    "datetime.utcnow": TIME,
    "datetime.today": TIME,
    "date.today": TIME,
    "os.times": TIME,
    "os.urandom": RANDOM,
    "os.getrandom": RANDOM,
    "random.SystemRandom": RANDOM,
    "np.random.default_rng": RANDOM,
    "os.getpid": IDENTITY,
    "socket.gethostname": IDENTITY,
    "platform.node": IDENTITY,
    "tempfile.mkdtemp": IDENTITY,
    "asyncio.to_thread": THREAD,
    "asyncio.wait_for": WAIT,
    "asyncio.as_completed": ORDER,
}
ATTRIBUTES: Final = {"run_in_executor": THREAD}
FOLDERS: Final = ("listdir", "scandir", "iterdir", "glob", "rglob", "walk")
UNORDERED: Final = ("set", "frozenset")
INDIFFERENT: Final = frozenset(
    ("sorted", "len", "any", "all", "min", "max", "sum", "set", "frozenset", "bool", "Counter", "isdisjoint")
)
"""Functions whose result does not depend on the order."""
WALKING: Final = frozenset(("list", "tuple", "iter", "next", "enumerate", "map", "filter", "zip", "join", "fromkeys"))
WALKING_METHODS: Final = frozenset(("extend", "appendleft", "extendleft", "writelines"))


class Finding(NamedTuple):
    line: int
    what: str
    text: str


def findings(source: str) -> list[Finding]:
    """In order of lines."""
    tree = ast.parse(source)
    return sorted(Hunt(tree).found())


class Hunt:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._attributes: dict[str, dict[str, bool]] = {}
        self._declare_attributes()

    def found(self) -> Iterator[Finding]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._imported(node)
            elif isinstance(node, ast.Call):
                yield from self._called(node)
            yield from self._walked(node)

    # -- calls -----------------------------------------------------------------------------------------------

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        for name in names:
            if name in MODULES:
                yield Finding(node.lineno, MODULES[name], f"import {name}")
            if name == "random" and isinstance(node, ast.ImportFrom):
                yield Finding(node.lineno, RANDOM, "from random import")

    def _called(self, node: ast.Call) -> Iterator[Finding]:
        name = dotted(node.func)
        if name in CALLS and not (name == "np.random.default_rng" and node.args):
            yield self._finding(node, CALLS[name])
        elif is_unseeded(name, node):
            yield self._finding(node, RANDOM)
        elif name in ("id", "hash"):
            yield self._finding(node, IDENTITY)
        elif name == "asyncio.gather" and not all(map(is_fresh, node.args)):
            yield self._finding(node, TURNS)
        elif name == "asyncio.sleep" and not is_number(node.args[0], 0):
            yield self._finding(node, WAIT)
        elif isinstance(node.func, ast.Attribute):
            yield from self._method(node, node.func)

    def _method(self, node: ast.Call, function: ast.Attribute) -> Iterator[Finding]:
        if function.attr in ATTRIBUTES:
            yield self._finding(node, ATTRIBUTES[function.attr])
        elif function.attr == "time" and not node.args and is_loop(function.value):
            yield self._finding(node, WAIT)
        elif function.attr in FOLDERS and not self._indifferent(node):
            yield self._finding(node, ORDER)
        elif function.attr in ("argsort", "argpartition") and not is_stable(node):
            yield self._finding(node, TIES)
        elif function.attr == "pop" and not node.args and self._is_set(function.value):
            yield self._finding(node, ORDER)

    # -- iterations -----------------------------------------------------------------------------------------------

    def _walked(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.For | ast.AsyncFor):
            walked = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp) or (
            isinstance(node, ast.GeneratorExp) and not self._indifferent(node)
        ):
            walked = [] if self._indifferent(node) else [each.iter for each in node.generators]
        elif isinstance(node, ast.Starred):
            parent = self._parents[node]
            walked = [] if isinstance(parent, ast.Set) or self._indifferent(node) else [node.value]
        elif isinstance(node, ast.Call) and not self._indifferent(node):
            name = dotted(node.func).rpartition(".")[2]
            walked = node.args if name in WALKING or name in WALKING_METHODS else []
        else:
            return
        for each in walked:
            if self._is_set(each):
                yield self._finding(each, ORDER)

    def _indifferent(self, node: ast.AST) -> bool:
        """Whether the result is used only where order does not matter."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.SetComp | ast.comprehension):
            outer = self._parents[parent] if isinstance(parent, ast.comprehension) else parent
            return isinstance(outer, ast.SetComp) or (
                isinstance(outer, ast.GeneratorExp | ast.ListComp) and self._indifferent(outer)
            )
        if isinstance(parent, ast.Compare):
            return True
        return isinstance(parent, ast.Call) and dotted(parent.func).rpartition(".")[2] in INDIFFERENT

    def _is_set(self, node: ast.expr) -> bool:
        """As far as this module shows."""
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call):
            return dotted(node.func) in UNORDERED or (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in ("union", "difference", "intersection", "symmetric_difference")
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr | ast.BitAnd | ast.BitXor):
            return any(self._is_set(side) or is_keys(side) for side in (node.left, node.right))
        if isinstance(node, ast.Attribute):
            return self._is_set_attribute(node)
        if isinstance(node, ast.Name):
            return node.id in self._sets_of(node)
        return False

    def _sets_of(self, node: ast.AST) -> set[str]:
        """The names that hold sets in the function around `node`, or in the module."""
        scope = node
        while not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            scope = self._parents[scope]
        names = set()
        for each in ast.walk(scope):
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and is_set_type(each.annotation):
                names.add(each.target.id)
            elif isinstance(each, ast.arg) and each.annotation is not None and is_set_type(each.annotation):
                names.add(each.arg)
            elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Set | ast.SetComp | ast.Call | ast.BinOp):
                value = each.value
                plain = not isinstance(value, ast.Call | ast.BinOp)
                if plain or (isinstance(value, ast.Call) and dotted(value.func) in UNORDERED):
                    names.update(target.id for target in each.targets if isinstance(target, ast.Name))
        return names

    def _is_set_attribute(self, node: ast.Attribute) -> bool:
        """For `self`: by its class; for others: if all classes of the module with it agree."""
        if dotted(node.value) == "self":
            return self._attributes.get(self._class_of(node), {}).get(node.attr, False)
        said = [attributes[node.attr] for attributes in self._attributes.values() if node.attr in attributes]
        return bool(said) and all(said)

    def _class_of(self, node: ast.AST) -> str:
        scope: ast.AST | None = node
        while scope is not None and not isinstance(scope, ast.ClassDef):
            scope = self._parents.get(scope)
        return scope.name if scope is not None else ""

    def _declare_attributes(self) -> None:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.AnnAssign):
                is_set = is_set_type(node.annotation)
                targets = [node.target]
            elif isinstance(node, ast.Assign):
                value = node.value
                called = isinstance(value, ast.Call) and dotted(value.func) in UNORDERED
                is_set = called or isinstance(value, ast.Set | ast.SetComp)
                targets = node.targets if is_set else []
            else:
                continue
            for target in targets:
                within_class = isinstance(target, ast.Name) and isinstance(self._parents[node], ast.ClassDef)
                if within_class or (isinstance(target, ast.Attribute) and dotted(target.value) == "self"):
                    name = target.id if isinstance(target, ast.Name) else target.attr
                    self._attributes.setdefault(self._class_of(node), {})[name] = is_set

    def _finding(self, node: ast.expr, what: str) -> Finding:
        return Finding(node.lineno, what, ast.unparse(node)[:80])


def dotted(node: ast.expr) -> str:
    """`a.b.c`; "" if it is not a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def is_number(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number


def is_fresh(node: ast.expr) -> bool:
    """New coroutines, none of which can be done."""
    value = node.value if isinstance(node, ast.Starred) else node
    if isinstance(value, ast.GeneratorExp | ast.ListComp):
        value = value.elt
    return isinstance(value, ast.Call)


def is_unseeded(name: str, node: ast.Call) -> bool:
    """A generator without a seed, or a function of a module's global generator."""
    if name in ("random.Random", "Rng", "Random"):
        return not (node.args or node.keywords)
    module, _, function = name.rpartition(".")
    return module in ("random", "np.random") and function != "default_rng"


def is_loop(node: ast.expr) -> bool:
    return dotted(node.func if isinstance(node, ast.Call) else node).endswith("loop")


def is_keys(node: ast.expr) -> bool:
    """`mapping.keys()`, whose differences are sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def is_stable(node: ast.Call) -> bool:
    return any(
        each.arg == "kind" and isinstance(each.value, ast.Constant) and each.value.value == "stable"
        for each in node.keywords
    )


def is_set_type(node: ast.expr) -> bool:
    """`set[...]`, `frozenset[...]`, or one of these or None. Not of int: numbers hash the same in every process."""
    if isinstance(node, ast.BinOp):
        return is_set_type(node.left) or is_set_type(node.right)
    if isinstance(node, ast.Subscript):
        if dotted(node.slice) == "int":
            return False
        node = node.value
    return isinstance(node, ast.Name) and node.id in UNORDERED
