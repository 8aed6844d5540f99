"""Sets of fields, as tries, and their JSON form (FieldsV1).

An element of a path is a tuple whose order is upstream's: a field's name, the keys of a list's item, the value of a
set's item, or an index. Numbers compare by value, so 1 and 1.0 are one item.

Source: structured-merge-diff `fieldpath/{element,set,serialize,serialize-pe}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from minikube_py.api import go_json, go_numbers
from minikube_py.api.apply.types import Ref
from minikube_py.api.errors import go_quote
from minikube_py.api.go_format import go_format
from minikube_py.fields.digits import whole_number

FIELD, KEY, VALUE, INDEX = range(4)
_PREFIX: Final = ("f:", "k:", "v:", "i:")

Element = tuple[int, Any]
Path = tuple[Element, ...]
Json = dict[str, Any]


def field(name: str) -> Element:
    return FIELD, name


def key(items: dict[str, Any]) -> Element:
    return KEY, tuple((name, _ranked(items[name])) for name in sorted(items))


def value(item: Any) -> Element:
    return VALUE, _ranked(item)


def _ranked(item: Any) -> tuple[int, Any]:
    """A value that sorts and compares as upstream's do: numbers, text, booleans, lists, maps, null."""
    if isinstance(item, bool):
        return 2, item
    if isinstance(item, int | float):
        return 0, item
    if isinstance(item, str):
        return 1, item
    if isinstance(item, list):
        return 3, tuple(map(_ranked, item))
    if isinstance(item, dict):
        return 4, tuple((name, _ranked(item[name])) for name in sorted(item))
    return 5, 0


def _plain(ranked: tuple[int, Any]) -> Any:
    rank, item = ranked
    if rank == 3:
        return [_plain(each) for each in item]
    if rank == 4:
        return {name: _plain(each) for name, each in item}
    return None if rank == 5 else item


def written(element: Element) -> str:
    """An element as FieldsV1 has it."""
    kind, content = element
    if kind == FIELD:
        return f"f:{content}"
    if kind == INDEX:
        return f"i:{content}"
    plain = {name: _plain(each) for name, each in content} if kind == KEY else _plain(content)
    return _PREFIX[kind] + go_json.dumps(go_numbers.written(plain)).decode()


def read(text: str) -> Element | None:
    """The inverse of `written`; None for unknown kinds of elements. Raises: ValueError."""
    if len(text) < 2:
        raise ValueError("key must be 2 characters long:")
    if text[1] != ":":
        raise ValueError(f"missing colon: {text}")
    rest = text[2:]
    match text[0]:
        case "f":
            return field(rest)
        case "v":
            return value(orjson.loads(rest))
        case "k":
            items = orjson.loads(rest)
            if not isinstance(items, dict):
                raise ValueError(f"not an object: {rest}")
            return key(items)
        case "i":
            return INDEX, whole_number(rest)
    return None


def shown(path: Path) -> str:
    """A path as messages name it: `.spec.ports[port=80,protocol="TCP"].name`."""
    parts = []
    for kind, content in path:
        if kind == FIELD:
            parts.append(f".{content}")
        elif kind == KEY:
            parts.append(f"[{','.join(f'{name}={_shown(_plain(each))}' for name, each in content)}]")
        elif kind == VALUE:
            parts.append(f"[={_shown(_plain(content))}]")
        else:
            parts.append(f"[{content}]")
    return "".join(parts)


def _shown(item: Any) -> str:
    if isinstance(item, str):
        return go_quote(item)
    if isinstance(item, list):
        return f"[{','.join(map(_shown, item))}]"
    if isinstance(item, dict):
        return "".join(f"{name}={_shown(each)}" for name, each in item.items())
    return "null" if item is None else go_format(item)


class PathSet:
    """Paths. A member's prefixes need not be members. No child is empty."""

    __slots__ = ("children", "members")

    def __init__(self, *paths: Path) -> None:
        self.members: set[Element] = set()
        self.children: dict[Element, PathSet] = {}
        for path in paths:
            self.insert(path)

    def insert(self, path: Path) -> None:
        """The empty path, the object as a whole, has no owner."""
        if not path:
            return
        at = self
        for element in path[:-1]:
            child = at.children.get(element)
            if child is None:
                child = at.children[element] = PathSet()
            at = child
        at.members.add(path[-1])

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __contains__(self, path: Path) -> bool:
        at: PathSet | None = self
        for element in path[:-1]:
            at = at.children.get(element) if at is not None else None
        return bool(path) and at is not None and path[-1] in at.members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathSet) and self.members == other.members and self.children == other.children

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Path]:
        """Members before what is below them, each in order."""
        for element in sorted(self.members):
            yield (element,)
        for element in sorted(self.children):
            for rest in self.children[element]:
                yield (element, *rest)

    def __len__(self) -> int:
        return len(self.members) + sum(map(len, self.children.values()))

    def __repr__(self) -> str:
        return f"<PathSet {' '.join(map(shown, self))}>"

    def _made(self, members: set[Element], children: dict[Element, PathSet]) -> PathSet:
        found = PathSet()
        found.members, found.children = members, children
        return found

    def under(self, element: Element) -> PathSet:
        """The paths below `element`, relative to it."""
        return self.children.get(element) or PathSet()

    def __or__(self, other: PathSet) -> PathSet:
        children = dict(self.children)
        for element, child in other.children.items():
            mine = children.get(element)
            children[element] = child if mine is None else mine | child
        return self._made(self.members | other.members, children)

    def __and__(self, other: PathSet) -> PathSet:
        children = {}
        for element, child in self.children.items():
            if (theirs := other.children.get(element)) is not None and (both := child & theirs):
                children[element] = both
        return self._made(self.members & other.members, children)

    def __sub__(self, other: PathSet) -> PathSet:
        """Without the members of `other`; paths below these stay."""
        children = {}
        for element, child in self.children.items():
            theirs = other.children.get(element)
            if left := child if theirs is None else child - theirs:
                children[element] = left
        return self._made(self.members - other.members, children)

    def without(self, other: PathSet) -> PathSet:
        """Without the members of `other` and all paths below these."""
        children = {}
        for element, child in self.children.items():
            if element in other.members:
                continue
            theirs = other.children.get(element)
            if left := child if theirs is None else child.without(theirs):
                children[element] = left
        return self._made(self.members - other.members, children)

    def with_named_fields(self, ref: Ref | None) -> PathSet:
        """Adds the declared fields that lead to members: `a` of `a.b.c`, but not `a.b` where that is a map's key."""
        atom = ref.atom if ref is not None else None
        map_of = atom.map if atom is not None else None
        list_of = atom.list if atom is not None else None
        members, children = set(self.members), {}
        for element, child in self.children.items():
            below: Ref | None = None
            if element[0] == FIELD and map_of is not None:
                declared = map_of.fields.get(element[1])
                below = map_of.element if declared is None else declared.type
                if declared is not None:
                    members.add(element)
            elif element[0] == KEY and list_of is not None:
                below = list_of.element
            children[element] = child.with_named_fields(below)
        return self._made(members, children)

    def to_json(self, is_member: bool = False) -> Json:
        """FieldsV1. `is_member`: the set is below a path that is itself a member."""
        found: Json = {".": {}} if is_member else {}
        for element in sorted(self.members | self.children.keys()):
            child = self.children.get(element)
            found[written(element)] = {} if child is None else child.to_json(element in self.members)
        return found

    @classmethod
    def from_json(cls, tree: Any) -> PathSet:
        """Raises: ValueError."""
        return cls._read(tree)[0]

    @classmethod
    def _read(cls, tree: Any) -> tuple[PathSet, bool]:
        found, is_member = cls(), False
        if not isinstance(tree, dict):
            raise ValueError(f"not an object: {tree!r}")
        for name, below in tree.items():
            if name == ".":
                is_member = True
                continue
            element = read(name)
            if element is None:
                # Perhaps from a later release; keeping an unknown element would be worse.
                continue
            child, member = cls._read(below)
            if member:
                found.members.add(element)
            if child:
                found.children[element] = child
        return found, is_member or not found
