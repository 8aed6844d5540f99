"""Finds nondeterminism in source code: time, randomness and identity that are not passed in, and undefined orders. It
uses the syntax tree; the digests of virtual time show the rest.

Names are resolved by the module's imports, and reported where they are called or passed on. `shapes` finds sets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from shapes import NUMBERS, SET, Known, Scope, Shape, children, dotted, walk

TIME: Final = "reads the machine's clock"
RANDOM: Final = "draws from a generator that nobody seeded"
IDENTITY: Final = "depends on the process, the host or an address"
THREAD: Final = "runs in a thread"
WAIT: Final = "waits by something else than the Clock"
ORDER: Final = "walks in an order that nothing decides"
TURNS: Final = "takes another number of turns in each Python; see env.ended"
COMPARED: Final = "is sorted by comparisons, which may go round in a circle: each Python's sort makes its own of them"
TIES: Final = "leaves the order of equals to the processor"

MODULES: Final = {
    "time": TIME,
    "secrets": RANDOM,
    "uuid": RANDOM,
    "resource": TIME,
    "threading": THREAD,
    "_thread": THREAD,
    "concurrent.futures": THREAD,
    "multiprocessing": THREAD,
    "tempfile": IDENTITY,
    "getpass": IDENTITY,
    "platform": IDENTITY,
}
"""Forbidden imports, of what is in them too."""
NAMES: Final = {
    "datetime.datetime.now": TIME,
    "datetime.datetime.utcnow": TIME,
    "datetime.datetime.today": TIME,
    "datetime.date.today": TIME,
    "os.times": TIME,
    "os.urandom": RANDOM,
    "os.getrandom": RANDOM,
    "random.SystemRandom": RANDOM,
    "cryptography.x509.random_serial_number": RANDOM,
    "os.environ": IDENTITY,
    "os.environb": IDENTITY,
    "os.getenv": IDENTITY,
    "os.getenvb": IDENTITY,
    "os.getpid": IDENTITY,
    "os.getppid": IDENTITY,
    "os.getlogin": IDENTITY,
    "os.uname": IDENTITY,
    "os.cpu_count": IDENTITY,
    "os.process_cpu_count": IDENTITY,
    "os.sched_getaffinity": IDENTITY,
    "os.getloadavg": IDENTITY,
    "socket.gethostname": IDENTITY,
    "socket.getfqdn": IDENTITY,
    "asyncio.to_thread": THREAD,
    "asyncio.wait_for": WAIT,
    "asyncio.as_completed": ORDER,
    "functools.cmp_to_key": COMPARED,
    "id": IDENTITY,
    "hash": IDENTITY,
}
CALLED: Final = {
    "asyncio.gather": TURNS,
    "asyncio.sleep": WAIT,
    "datetime.datetime.fromtimestamp": IDENTITY,
    "numpy.datetime64": TIME,
    "numpy.random.default_rng": RANDOM,
    "random.Random": RANDOM,
    "minikube_py.env.Rng": RANDOM,
}
"""Reported depending on the arguments; always if passed on without a call."""
TYPES: Final = ("random.Random", "minikube_py.env.Rng")
"""Not reported where they are only named, as in annotations."""
UNIMPORTED: Final = {
    "np": "numpy",
    "datetime": "datetime.datetime",
    "date": "datetime.date",
    "Rng": "minikube_py.env.Rng",
}
"""Meaning of names that the module does not import, as in short pieces of code."""
ATTRIBUTES: Final = {"run_in_executor": THREAD, "__hash__": IDENTITY}
FOLDERS: Final = ("listdir", "scandir", "iterdir", "glob", "iglob", "rglob", "walk")
INDIFFERENT: Final = frozenset(
    ("sorted", "len", "any", "all", "min", "max", "sum", "set", "frozenset", "bool", "isdisjoint", "fsum", "add",
     "discard", "remove", "issubset", "issuperset", "intersection", "difference", "union", "symmetric_difference",
     "update", "difference_update", "intersection_update", "isinstance")
)  # fmt: skip
"""Functions whose result does not depend on the order. `update` only as a method of sets."""
CHOOSING: Final = frozenset(("sorted", "min", "max", "sort", "nlargest", "nsmallest", "groupby"))
"""With a key, items with equal keys keep their order."""
WALKING: Final = frozenset(
    ("list", "tuple", "iter", "next", "enumerate", "map", "filter", "zip", "join", "fromkeys", "str", "repr", "reduce",
     "chain", "deque", "array", "asarray", "fromiter", "Counter", "extend", "appendleft", "extendleft", "writelines",
     "islice", "accumulate", "from_iterable", "starmap", "takewhile", "format", "groupby", "nlargest", "nsmallest")
)  # fmt: skip


class Finding(NamedTuple):
    line: int
    what: str
    text: str


def findings(source: str, known: Known | None = None) -> list[Finding]:
    """In order of lines. `known`: declarations of the other modules of the program."""
    tree = ast.parse(source)
    if known is None:
        known = Known([source])
    return sorted(Hunt(tree, known).found())


class Hunt:
    def __init__(self, tree: ast.Module, known: Known) -> None:
        self._tree = tree
        self._known = known
        self._parents = {child: node for node in walk(tree) for child in children(node)}
        self._imports = dict(imported(tree))
        self._scopes: dict[ast.AST, Scope] = {}

    def found(self) -> Iterator[Finding]:
        for node in walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from self._imported(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                yield from self._named(node)
            elif isinstance(node, ast.Call):
                yield from self._called(node)
            yield from self._walked(node)

    # -- names and calls ----------------------------------------------------------------------------------------------

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            module = node.module or "" if not node.level else ""
            names = [module, *(f"{module}.{each.name}" for each in node.names)]
        rules = {rule for name in names for module, rule in MODULES.items() if f"{name}.".startswith(f"{module}.")}
        yield from (Finding(node.lineno, rule, f"import {names[0]}") for rule in rules)
        for name in names if isinstance(node, ast.ImportFrom) else ():
            if name.startswith("random.") and name not in TYPES:
                yield Finding(node.lineno, RANDOM, f"import {name}")

    def _named(self, node: ast.Name | ast.Attribute) -> Iterator[Finding]:
        """With or without a call."""
        parent = self._parents.get(node)
        name, called = self._full(node), isinstance(parent, ast.Call) and parent.func is node
        if isinstance(node.ctx, ast.Store):
            return
        if rule := NAMES.get(name):
            yield self._finding(parent if called else node, rule)  # type: ignore[arg-type]
        elif isinstance(parent, ast.Attribute):
            return
        elif is_global_generator(name) and name not in CALLED:
            # `from random import choice` is reported at the import.
            if isinstance(node, ast.Attribute):
                yield self._finding(node, RANDOM)
        elif not called and name in CALLED and name not in TYPES:
            yield self._finding(node, CALLED[name])

    def _called(self, node: ast.Call) -> Iterator[Finding]:
        name = self._full(node.func)
        last = name.rpartition(".")[2]
        if name in CALLED and not is_harmless(name, node):
            yield self._finding(node, CALLED[name])
        elif last in FOLDERS and name != "ast.walk" and (isinstance(node.func, ast.Attribute) or name != last):
            if not self._indifferent(node):
                yield self._finding(node, ORDER)
        elif last in ("argsort", "argpartition"):
            if not is_stable(node):
                yield self._finding(node, TIES)
        elif self._adds_a_set(node) or self._chooses_from_a_set(node):
            yield self._finding(node, ORDER)
        elif isinstance(node.func, ast.Attribute):
            yield from self._method(node, node.func)

    def _method(self, node: ast.Call, function: ast.Attribute) -> Iterator[Finding]:
        if function.attr in ATTRIBUTES:
            yield self._finding(node, ATTRIBUTES[function.attr])
        elif function.attr == "time" and not node.args and is_loop(function.value):
            yield self._finding(node, WAIT)
        elif function.attr in ("pop", "__iter__") and not node.args and self._is_set(function.value):
            yield self._finding(node, ORDER)
        elif function.attr == "astimezone" and not node.args and not node.keywords:
            yield self._finding(node, IDENTITY)

    def _full(self, node: ast.expr) -> str:
        """The dotted name with its first part resolved by imports; "" for a local variable."""
        first, dot, rest = dotted(node).partition(".")
        if first in self._imports:
            return self._imports[first] + dot + rest
        if not first or self._scope(node).binds(first):
            return "" if not dot else f"?.{rest}"
        return UNIMPORTED.get(first, first) + dot + rest

    def _adds_a_set(self, node: ast.Call) -> bool:
        """The sum of floats depends on the order, the sum of integers does not."""
        given = node.args[0] if node.args and dotted(node.func).rpartition(".")[2] == "sum" else None
        if isinstance(given, ast.GeneratorExp | ast.ListComp):
            return not self._is_whole(given.elt) and any(self._is_set(each.iter) for each in given.generators)
        return given is not None and self._is_set(given)

    def _is_whole(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self._is_whole(node.body) and self._is_whole(node.orelse)
        return self._shape(node).name in ("int", "bool")

    def _chooses_from_a_set(self, node: ast.Call) -> bool:
        key = next((each.value for each in node.keywords if each.arg == "key"), None)
        if dotted(node.func).rpartition(".")[2] not in CHOOSING or key is None or is_total(key):
            return False
        given = node.args[-1] if node.args else None
        if isinstance(given, ast.GeneratorExp | ast.ListComp):
            return any(self._is_set(each.iter) for each in given.generators)
        return given is not None and self._is_set(given)

    # -- iterations ---------------------------------------------------------------------------------------------------

    def _walked(self, node: ast.AST) -> Iterator[Finding]:
        walked: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            walked = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            walked = [] if self._indifferent(node) else [each.iter for each in node.generators]
        elif isinstance(node, ast.Starred):
            parent = self._parents[node]
            walked = [] if isinstance(parent, ast.Set) or self._indifferent(node) else [node.value]
        elif isinstance(node, ast.YieldFrom | ast.FormattedValue) or takes_apart(node):
            walked = [node.value]  # type: ignore[attr-defined]
        elif isinstance(node, ast.Call) and not self._indifferent(node):
            name = dotted(node.func).rpartition(".")[2]
            walked = list(node.args) if name in WALKING else []
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
        if not isinstance(parent, ast.Call) or dotted(parent.func).rpartition(".")[2] not in INDIFFERENT:
            return False
        if isinstance(parent.func, ast.Attribute) and parent.func.attr == "update":
            return self._shape(parent.func.value) in (SET, NUMBERS)
        return True

    def _is_set(self, node: ast.expr) -> bool:
        return self._shape(node) == SET

    def _shape(self, node: ast.expr) -> Shape:
        return self._scope(node).shape(node)

    def _scope(self, node: ast.AST) -> Scope:
        """Of the function that contains `node`, or of the module."""
        place: ast.AST = node
        while not isinstance(place, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module):
            place = self._parents[place]
        if place not in self._scopes:
            outer = self._scope(self._parents[place]) if not isinstance(place, ast.Module) else None
            self._scopes[place] = Scope(self._known, place, outer, self._class_of(place))
        return self._scopes[place]

    def _class_of(self, node: ast.AST) -> str:
        scope: ast.AST | None = node
        while scope is not None and not isinstance(scope, ast.ClassDef):
            scope = self._parents.get(scope)
        return scope.name if scope is not None else ""

    def _finding(self, node: ast.expr, what: str) -> Finding:
        return Finding(node.lineno, what, ast.unparse(node)[:80])


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local name to full name."""
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.partition(".")[0]
                yield (each.asname, each.name) if each.asname else (first, first)


def is_global_generator(name: str) -> bool:
    """A function of a module's global generator."""
    module, _, function = name.rpartition(".")
    return module in ("random", "numpy.random") and not function[:1].isupper() and function != "default_rng"


def is_harmless(name: str, node: ast.Call) -> bool:
    given = bool(node.args or node.keywords)
    if name == "asyncio.gather":
        return all(map(is_fresh, node.args))
    if name == "asyncio.sleep":
        return given and is_number(node.args[0], 0)
    if name == "datetime.datetime.fromtimestamp":
        return len(node.args) + len(node.keywords) > 1
    if name == "numpy.datetime64":
        return given and not (isinstance(node.args[0], ast.Constant) and node.args[0].value in ("now", "today"))
    return given


def takes_apart(node: ast.AST) -> bool:
    """`one, other = names`, `listed += names`"""
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Tuple | ast.List) for each in node.targets)
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)


def is_number(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number


def is_fresh(node: ast.expr) -> bool:
    """New coroutines, none of which can be done."""
    value = node.value if isinstance(node, ast.Starred) else node
    if isinstance(value, ast.GeneratorExp | ast.ListComp):
        value = value.elt
    return isinstance(value, ast.Call)


def is_loop(node: ast.expr) -> bool:
    return dotted(node.func if isinstance(node, ast.Call) else node).endswith("loop")


def is_stable(node: ast.Call) -> bool:
    """`mergesort` is stable, too, and what numba calls it."""
    return any(
        each.arg == "kind" and isinstance(each.value, ast.Constant) and each.value.value in ("stable", "mergesort")
        for each in node.keywords
    )


def is_total(key: ast.expr) -> bool:
    """`lambda each: (..., each)`: no two keys are equal."""
    if not isinstance(key, ast.Lambda):
        return dotted(key) in ("str", "repr", "int")
    names = {each.arg for each in key.args.args}
    parts = key.body.elts if isinstance(key.body, ast.Tuple) else [key.body]
    return any(isinstance(each, ast.Name) and each.id in names for each in parts)
