# ruff: noqa: E501
"""What Go always prints, sent as nothing, as null and empty: at each place of each kind where a field is that it does not
leave out. For the world of `drawn`, all as dry runs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

from asking import Ask
from drawn import named_in_world, place
from drawn_objects import MERGE, message_of
from worlds import DRAWN, WORLD

from minikube_py.api.schema import SCHEMA, Field, Message

Json = dict[str, Any]
Path = tuple[str | int, ...]
_EMPTY: dict[str, tuple[Any, ...]] = {"list": ([],), "map": ({},)}
_DEPTH = 9


def is_null_when_zero(field: Field) -> bool:
    """Whether Go prints its zero value as null."""
    nil = field.type.pointer or field.type.kind in ("list", "map", "bytes", "any", "raw")
    return nil and not field.left_out_when_zero and field.name not in ("kind", "apiVersion")


def _places(message: Message, holder: Any, path: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Such fields of what is there, and of what may be there: an object of a list, or one that is missing."""
    for field in message.fields.values():
        if is_null_when_zero(field):
            yield (*path, field.name), field
        inner, value = field.type, holder.get(field.name) if isinstance(holder, dict) else None
        here: Path = (*path, field.name)
        while inner.kind in ("list", "map") and inner.element is not None:
            if inner.kind == "map" and not (isinstance(value, dict) and value):
                break
            step: str | int = next(iter(value)) if inner.kind == "map" else 0
            value, inner, here = value[step] if value else None, inner.element, (*here, step)
        if inner.kind == "message" and len(here) < _DEPTH and path.count(field.name) < 2:
            yield from _places(SCHEMA.message(inner.message), value, here)


def _with(obj: Json, path: Path, value: Any) -> Json:
    """`value` ... takes the field out."""
    made = copy.deepcopy(obj)
    at: Any = made
    for step, following in itertools.pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            if step >= len(at):
                at.append(empty)
        elif at.get(step) is None:
            at[step] = empty
        at = at[step]
    at.pop(path[-1], None)
    if value is not ...:
        at[path[-1]] = value
    return made


def cases() -> Iterator[Ask]:
    for plural in DRAWN:
        base, at, number = named_in_world(plural, "one"), WORLD[plural][0], 0
        for path, field in _places(message_of(plural), base):
            told = ".".join(map(str, path))
            for value in (..., None, *_EMPTY.get(field.type.kind, ())):
                number += 1
                body = _with(base, path, value)
                if path[0] == "status":
                    yield Ask(f"{plural} {told}", "PATCH", f"{place(plural, 'one')}/status?dryRun=All", {"status": body["status"]}, MERGE)
                body["metadata"] = {"name": f"null-{number}"}
                yield Ask(f"{plural} {told}", "POST", f"{at}?dryRun=All", body)
