"""Semantic equality by Go type: upstream's `equality.Semantic.DeepEqual`.

Of a field that is no pointer, missing, null, zero and empty are the same; a pointer that is null is not the same as one
to an empty value. Quantities and times are compared as such. Values have been decoded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from minikube_py.api.kind import Kind
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.schema import SCHEMA, Type
from minikube_py.fields import quantity


def same(type_: Type, left: Any, right: Any) -> bool:
    if left == right:
        return True
    if type_.pointer and (left is None or right is None):
        return False
    kind = type_.kind
    if kind == "message":
        return same_message(type_.message, left, right)
    if kind == "list":
        pairs = zip(left or (), right or ())
        return len(left or ()) == len(right or ()) and all(same(_element(type_), *pair) for pair in pairs)
    if kind == "map":
        left, right = left or {}, right or {}
        return left.keys() == right.keys() and all(same(_element(type_), left[key], right[key]) for key in left)
    if kind == "quantity":
        return bool(quantity.parse(left or "0").compare(quantity.parse(right or "0")) == 0)
    if kind in ("time", "microtime"):
        return bool(left and right and parse_timestamp(left) == parse_timestamp(right))
    # Zero values equal absent ones; decoded objects have no other empty values.
    return not left and not right


def _element(type_: Type) -> Type:
    assert type_.element is not None, "lists and maps have elements"
    return type_.element


def same_message(name: str, left: Any, right: Any) -> bool:
    """Two structs, neither of them behind a pointer. `name`: as in the schema, `core/v1.PodSpec`."""
    left, right = left or {}, right or {}
    fields = SCHEMA.message(name).fields
    return all(
        left.get(key) == right.get(key) or (key in fields and same(fields[key].type, left.get(key), right.get(key)))
        for key in left.keys() | right.keys()
    )


def same_spec(kind: Kind, left: Any, right: Any) -> bool:
    """The specs of two objects of a kind."""
    return left == right or same(_spec_of(kind), left, right)


@lru_cache(256)
def _spec_of(kind: Kind) -> Type:
    message = SCHEMA.kind(kind.group, kind.version, kind.kind)
    assert message is not None, "kinds that are served have a schema"
    return message.fields["spec"].type
