"""An upper bound of an expression's cost from the possible input sizes.

Source: cel-go `checker/cost.go`, `ext/{lists,sets}.go`, apiserver `pkg/cel/library/cost.go`. Only the upper bounds of
upstream's estimates are kept: lower ones only where a result's size depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from minikube_py.cel.syntax import Call, Comprehension, Ident, ListOf, Literal, MapOf, Node, Select, StructOf
from minikube_py.cel.types import SCALARS, Type, is_optional

UNBOUNDED: Final = (1 << 64) - 1
TRAVERSAL: Final = 0.1
REGEX: Final = 0.25
_LIST, _MAP, _STRUCT = 10, 30, 40
_FORMAT_REGEX_SIZE: Final = 128
_FORMAT_SIZE: Final = 64
_CHECK: Final = 350_000


class Size(NamedTuple):
    low: int
    high: int

    def plus(self, other: Size) -> Size:
        return Size(_sum(self.low, other.low), _sum(self.high, other.high))

    def union(self, other: Size) -> Size:
        return Size(min(self.low, other.low), max(self.high, other.high))


_UNKNOWN: Final = Size(0, UNBOUNDED)
_ONE: Final = Size(1, 1)

Path = tuple[str, ...]
SizeOf = Callable[[Path], int | None]
"""The maximum size of the value at a path below a variable; None if unknown."""


class _Entries(NamedTuple):
    """Key and value sizes of a list or map literal."""

    kind: str
    key: Size
    value: Size

    def union(self, other: _Entries | None) -> _Entries | None:
        return None if other is None else _Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    path: Path
    size: Size | None
    entries: _Entries | None


class _Estimate(NamedTuple):
    cost: int
    result: Size | None = None


def _sum(a: int, b: int) -> int:
    return min(a + b, UNBOUNDED)


def _times(a: int, b: int) -> int:
    return min(a * b, UNBOUNDED)


def _scaled(size: int, factor: float) -> int:
    return min(math.ceil(float(size) * factor), UNBOUNDED)


def most_it_costs(root: Node, size_of: SizeOf) -> int:
    return _Coster(size_of).cost(root)


class _Coster:
    def __init__(self, size_of: SizeOf) -> None:
        self._size_of = size_of
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Size] = {}
        self._entries: dict[Node, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> int:
        if isinstance(node, Ident):
            local = self._local(node.name)
            self._paths[node] = (node.name,) if local is None else local.path
            return 1
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListOf):
            return self._list(node)
        if isinstance(node, MapOf):
            return self._map(node)
        if isinstance(node, StructOf):
            return _STRUCT + sum(self.cost(entry.value) for entry in node.entries)
        if isinstance(node, Comprehension):
            return self._bind(node) if node.var == "#unused" else self._loop(node)
        return 0

    # --- sizes ------------------------------------------------------------------------------------------------------

    def _local(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(node, ())

    def _size(self, node: Node) -> Size | None:
        known = self._sizes.get(node)
        if known is not None:
            return known
        if (size := _written_size(node)) is not None:
            return size
        if (found := self._sized(self._path(node))) is not None:
            self._sizes[node] = found
            return found
        if _is_scalar(node.type):
            return _ONE
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def _sized(self, path: Path) -> Size | None:
        if not path or path[0].startswith("__result"):
            return None
        high = self._size_of(path)
        return None if high is None else Size(0, high)

    def _size_or_unknown(self, node: Node) -> Size:
        return self._size(node) or _UNKNOWN

    def _known_entries(self, node: Node) -> _Entries | None:
        known = self._entries.get(node)
        if known is None and isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entries
        return known

    # --- by kind of node --------------------------------------------------------------------------------------------

    def _select(self, node: Select) -> int:
        if node.whole:
            self._paths[node] = (node.whole,)
            return 1
        cost = self.cost(node.operand)
        if node.has:
            return cost
        if node.operand.type.kind in ("map", "struct", "param"):
            cost = _sum(cost, 1)
        self._paths[node] = (*self._path(node.operand), node.name)
        return cost

    def _list(self, node: ListOf) -> int:
        cost = _LIST
        items = Size(UNBOUNDED if node.items else 0, 0)
        for item in node.items:
            cost = _sum(cost, self.cost(item))
            items = items.union(self._size_or_unknown(item))
        self._entries[node] = _Entries("list", _ONE, items)
        return cost

    def _map(self, node: MapOf) -> int:
        cost = _MAP
        keys = values = Size(UNBOUNDED if node.entries else 0, 0)
        for key, value, _ in node.entries:
            cost = _sum(_sum(cost, self.cost(key)), self.cost(value))
            keys, values = keys.union(self._size_or_unknown(key)), values.union(self._size_or_unknown(value))
        self._entries[node] = _Entries("map", keys, values)
        return cost

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _bind(self, node: Comprehension) -> int:
        cost = _sum(self.cost(node.range), self.cost(node.start))
        self._push(
            node.accumulator, _Local(self._path(node.start), self._size(node.start), self._known_entries(node.start))
        )
        cost = _sum(cost, self.cost(node.result))
        size, entries = self._size(node.result), self._known_entries(node.result)
        self._locals[node.accumulator].pop()
        if size is not None:
            self._sizes[node] = size
        if entries is not None:
            self._entries[node] = entries
        return cost

    def _loop(self, node: Comprehension) -> int:
        cost = _sum(self.cost(node.range), self.cost(node.start))
        self._push(
            node.accumulator, _Local(self._path(node.start), self._size(node.start), self._known_entries(node.start))
        )
        entries, path = self._known_entries(node.range), self._path(node.range)
        is_list = (entries.kind if entries else node.range.type.kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if node.var2:
            self._push(node.var, _Local((*path, "@indices" if is_list else "@keys"), key, None))
            self._push(node.var2, _Local((*path, "@items" if is_list else "@values"), value, None))
        else:
            self._push(node.var, _Local((*path, "@items" if is_list else "@keys"), value if is_list else key, None))
        each = _sum(self.cost(node.condition), self.cost(node.step))
        for name in (node.var, node.var2):
            if name:
                self._locals[name].pop()
        cost = _sum(cost, self.cost(node.result))
        self._locals[node.accumulator].pop()
        count = self._size_or_unknown(node.range)
        cost = _sum(cost, _times(count.high, each))
        if isinstance(node.start, Literal):
            size = self._size(node.start)
            if size is not None:
                self._sizes[node] = size
        elif isinstance(node.start, ListOf | MapOf):
            self._sizes[node] = count
            if (made := self._known_entries(node.step)) is not None:
                self._entries[node] = made
        return cost

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = _sum(1, self.cost(node.args[0]))
            self._copy(node, node.args[0])
            return cost
        costs = [self.cost(argument) for argument in node.args]
        if not node.overloads:
            return 0
        before = 0 if node.target is None else self.cost(node.target)
        cost = 0
        result: Size | None = None
        for overload in node.overloads:
            estimate = self._overload(node, overload, costs)
            cost = max(cost, estimate.cost)
            if estimate.result is not None:
                result = estimate.result if result is None else result.union(estimate.result)
            if overload in ("index_list", "index_map"):
                entries = self._known_entries(node.args[0])
                result = entries.value if entries else None
                below = "@items" if overload == "index_list" else "@values"
                self._paths[node] = (*self._path(node.args[0]), below)
            if result is None:
                result = self._size(node)
        if result is not None:
            self._sizes[node] = result
        return _sum(before, cost)

    def _copy(self, to: Node, of: Node) -> None:
        size, entries = self._size(of), self._known_entries(of)
        if size is not None:
            self._sizes[to] = size
        if entries is not None:
            self._entries[to] = entries

    # --- by function ------------------------------------------------------------------------------------------------

    def _overload(self, node: Call, overload: str, costs: list[int]) -> _Estimate:
        arguments = min(sum(costs), UNBOUNDED)
        found = self._of_lists(node, overload) or self._of_kubernetes(node, overload)
        if found is None:
            if node.function in ("_&&_", "_||_"):
                return _Estimate(arguments)
            if overload == "conditional":
                return self._conditional(node, costs)
            found = self._of_cel(node, overload)
        return _Estimate(_sum(found.cost, arguments), found.result)

    def _conditional(self, node: Call, costs: list[int]) -> _Estimate:
        _, yes, no = node.args
        entries = self._known_entries(yes)
        if entries is not None and (both := entries.union(self._known_entries(no))) is not None:
            self._entries[node] = both
        size = self._size_or_unknown(yes).union(self._size_or_unknown(no))
        return _Estimate(_sum(costs[0], max(costs[1], costs[2])), size)

    def _of_lists(self, node: Call, overload: str) -> _Estimate | None:
        """Functions that make a list or compare all items of two. Their costs and sizes are of uint64, which wraps."""
        name, target, args = node.function, node.target, node.args
        if name in _COMPARED_SETS:
            pairs = _times(self._size_or_unknown(args[0]).high, self._size_or_unknown(args[1]).high)
            return _Estimate(_sum(_scaled(pairs, _COMPARED_SETS[name]), 1))
        if name == "lists.range":
            return _made_list(1, Size(*(_written_int(args[0], UNBOUNDED),) * 2))
        if target is None:
            return None
        if name == "slice":
            end = _written_int(args[1], self._size_or_unknown(target).high)
            return _made_list(1, Size(*((end - _written_int(args[0], 0)) & UNBOUNDED,) * 2))
        if name in ("distinct", "sort", "@sortByAssociatedKeys"):
            compared = args[0] if args else target
            size = self._size_or_unknown(compared)
            of_texts = overload.startswith(("list_string_", "list_bytes_"))
            return _made_list(2 + TRAVERSAL * of_texts, Size(_times(size.low, size.low), _times(size.high, size.high)))
        if name in ("flatten", "reverse"):
            return _made_list(_written_int(args[0], UNBOUNDED) if args else 1, self._size_or_unknown(target))
        return None

    def _of_kubernetes(self, node: Call, overload: str) -> _Estimate | None:
        name, target, args = node.function, node.target, node.args
        if name in _UNIT or overload == "cidr_ip":
            return _Estimate(1)
        if target is None and name in _PARSED and args:
            size = self._size_or_unknown(args[0])
            keeps = name in ("url", "jsonpatch.escapeKey")
            return _Estimate(_scaled(size.high, TRAVERSAL * _PARSED[name]), size if keeps else None)
        if name == "_==_":
            return self._equality(node)
        if name == "check":
            return _Estimate(_CHECK)
        if name in ("fieldSelector", "labelSelector"):
            length = self._size_or_unknown(args[0]).high
            requirements = _scaled(_scaled(length, 0.5), _LIST + _STRUCT)
            return _Estimate(_sum(_LIST + _scaled(length, TRAVERSAL), requirements))
        if target is None:
            return None
        size = self._size_or_unknown(target)
        if name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"):
            return self._over_list(target, size)
        if name in ("lowerAscii", "upperAscii", "substring", "trim"):
            return _Estimate(_scaled(size.high, TRAVERSAL), size)
        if name == "replace":
            return _Estimate(_scaled(size.high, 2 * TRAVERSAL), self._replaced(size, args))
        if name == "split":
            limit = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else None
            most = limit % (1 << 64) if isinstance(limit, int) else size.high
            return _Estimate(_scaled(size.high, 2 * TRAVERSAL), Size(0, most))
        if name == "join":
            return self._joined(target, size, args)
        if name in ("find", "findAll"):
            text = _scaled(_sum(size.high, 1), TRAVERSAL)
            cost = _times(text, _scaled(self._size_or_unknown(args[0]).high, REGEX))
            return _Estimate(cost, Size(0, size.high))
        if name in ("containsIP", "containsCIDR"):
            cost = 4 if name == "containsIP" else 4 + 2 + 1
            if overload.endswith("_string"):
                cost = _sum(cost, _scaled(self._size_or_unknown(args[0]).high, TRAVERSAL))
            return _Estimate(cost)
        if name == "validate":
            text = _scaled(self._size_or_unknown(args[0]).high, TRAVERSAL)
            return _Estimate(_scaled(text, _FORMAT_REGEX_SIZE * REGEX))
        return None

    def _element(self, target: Node) -> Size | None:
        """The size of a list's items; None if it is not a list."""
        if not target.type.params:
            return None
        path = self._path(target)
        return (self._sized((*path, "@items")) if path else None) or _UNKNOWN

    def _over_list(self, target: Node, size: Size) -> _Estimate:
        element = self._element(target)
        if element is None:
            return _Estimate(_scaled(size.high, TRAVERSAL))
        text = target.type.params[0].kind in ("string", "bytes")
        each = _sum(1, _scaled(element.high, TRAVERSAL)) if text else 1
        return _Estimate(_times(size.high, each))

    def _joined(self, target: Node, size: Size, args: list[Node]) -> _Estimate:
        element = self._element(target) or Size(0, 0)
        made = Size(_times(size.low, element.low), _times(size.high, element.high))
        if args:
            between = self._size_or_unknown(args[0])
            low, high = max(size.low - 1, 0), max(size.high - 1, 0)
            made = made.plus(Size(_times(between.low, low), _times(between.high, high)))
        return _Estimate(_scaled(made.high, TRAVERSAL), made)

    def _replaced(self, size: Size, args: list[Node]) -> Size:
        old, new = self._size_or_unknown(args[0]), self._size_or_unknown(args[1])
        kept_high = kept_low = 0
        if old.low == 0:
            count_high, kept_high = _sum(size.high, 1), size.high
        elif new.high <= old.low:
            count_high, kept_high = 0, size.high
        else:
            count_high = math.ceil(size.high / old.low)
        if old.high == 0:
            count_low, kept_low = _sum(size.low, 1), size.low
        elif old.high <= new.low:
            count_low, kept_low = 0, size.low
        else:
            count_low = math.ceil(size.low / old.high)
        return Size(_sum(_times(count_low, new.low), kept_low), _sum(_times(count_high, new.high), kept_high))

    def _equality(self, node: Call) -> _Estimate | None:
        left, right = node.args
        if left.type != right.type:
            return None
        if left.type.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
            return _Estimate(1)
        if left.type.name == "kubernetes.NamedFormat":
            return _Estimate(_scaled(_FORMAT_SIZE, TRAVERSAL))
        if left.type.name == "kubernetes.URL":
            size = self._size(right)
            return _Estimate(_scaled(1 if size is None else size.high, TRAVERSAL))
        return None

    def _of_cel(self, node: Call, overload: str) -> _Estimate:
        target, args = node.target, node.args
        sizes = [self._size_or_unknown(argument) for argument in args]
        on = _UNKNOWN if target is None else self._size_or_unknown(target)
        if overload == "string_format":
            return _Estimate(_scaled(on.high, TRAVERSAL))
        if overload in _CONVERTED:
            shrunk, grown, more = _CONVERTED[overload]
            # Upstream's sum is of uint64, and wraps where the size is unknown.
            size = Size(sizes[0].low // shrunk + more, (sizes[0].high * grown + more) & UNBOUNDED)
            return _Estimate(_scaled(sizes[0].high, TRAVERSAL), size)
        if overload in ("starts_with_string", "ends_with_string"):
            return _Estimate(_scaled(sizes[0].high, TRAVERSAL))
        if overload == "in_list":
            return _Estimate(sizes[1].high)
        if overload == "matches_string":
            text = _scaled(_sum(on.high, 1), TRAVERSAL)
            return _Estimate(_times(text, _scaled(sizes[0].high, REGEX)))
        if overload == "contains_string":
            return _Estimate(_times(_scaled(on.high, TRAVERSAL), _scaled(sizes[0].high, TRAVERSAL)))
        if overload in ("add_string", "add_bytes", "add_list"):
            return self._concatenated(node, overload, sizes)
        if overload in _COMPARED:
            return _Estimate(_scaled(min(sizes[0].high, sizes[1].high), TRAVERSAL))
        return _Estimate(1)

    def _concatenated(self, node: Call, overload: str, sizes: list[Size]) -> _Estimate:
        left, right = node.args
        entries = self._known_entries(left)
        if entries is not None and (both := entries.union(self._known_entries(right))) is not None:
            self._entries[node] = both
        size = sizes[0].plus(sizes[1])
        return _Estimate(1 if overload == "add_list" else _scaled(size.high, TRAVERSAL), size)


_COMPARED_SETS: Final = {"sets.contains": 1, "sets.intersects": 1, "sets.equivalent": 2}
_UNIT: Final = frozenset((
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
    "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery", "masked",
    "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast",
    "isGlobalUnicast", "format.named", "serviceAccount", "path", "group", "resource", "subresource", "namespace",
    "name", "allowed", "reason", "error", "errored",
))  # fmt: skip
_PARSED: Final = {
    "url": 1, "cidr": 1, "isIP": 1, "isCIDR": 1, "ip": 1, "ip.isCanonical": 2, "quantity": 1, "isQuantity": 1,
    "semver": 1, "isSemver": 1, "jsonpatch.escapeKey": 1,
}  # fmt: skip
"""Functions that read a text, and how many times."""
_CONVERTED: Final = {"string_to_bytes": (1, 4, 0), "bytes_to_string": (4, 1, 0), "strings_quote": (1, 2, 2)}
_COMPARED: Final = frozenset((
    "equals", "not_equals", *(f"{name}_{of}" for name in ("less", "less_equals", "greater", "greater_equals")
                              for of in ("string", "bytes")),
))  # fmt: skip


def _written_size(node: Node) -> Size | None:
    """The size of a literal."""
    if isinstance(node, Literal):
        count = len(node.value) if isinstance(node.value, str | bytes) else 1
    elif isinstance(node, ListOf):
        count = len(node.items)
    elif isinstance(node, MapOf):
        count = len(node.entries)
    else:
        return None
    return Size(count, count)


def _written_int(node: Node, otherwise: int) -> int:
    """The value of a literal int; one below 0 counts as 0."""
    is_int = isinstance(node, Literal) and type(node.value) is int and node.of.kind == "int"
    return max(node.value, 0) if is_int and isinstance(node, Literal) else otherwise


def _made_list(factor: float, size: Size) -> _Estimate:
    return _Estimate(_sum(_scaled(size.high, factor), 1 + _LIST), size)


def _is_scalar(type_: Type) -> bool:
    return type_.kind in SCALARS or (is_optional(type_) and _is_scalar(type_.params[0]))
