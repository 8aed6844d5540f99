"""Fields set by the server, which therefore have no owner.

Upstream computes owners before admission, strategies and allocation change the object. If tracking starts with the
first apply, these fields are removed from the existing object instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikube_py.api.errors import Json

EACH = "*"
"""In a path, all items of a list."""

Path = tuple[str, ...]
Assigned = tuple[tuple[Path, Callable[[Any], bool] | None], ...]
"""Paths, and for those that senders may also set, how to recognize the server's values."""


def always(*paths: str) -> Assigned:
    return tuple((tuple(path.split(".")), None) for path in paths)


def when(path: str, *values: Any) -> Assigned:
    return ((tuple(path.split(".")), lambda value: value in values),)


def without(obj: Json, assigned: Assigned) -> Json:
    """A copy with what senders may have set; parts left empty are removed."""
    found: Any = obj
    for path, is_servers in assigned:
        found = _without(found, path, is_servers)
    return {**found, "status": _said(found["status"])} if isinstance(found.get("status"), dict) else dict(found)


def _without(value: Any, path: Path, is_servers: Callable[[Any], bool] | None) -> Any:
    if not path:
        return None if is_servers is None or is_servers(value) else value
    if path[0] == EACH:
        items = value if isinstance(value, list) else ()
        return [left for item in items if (left := _without(item, path[1:], is_servers)) is not None] or None
    if not isinstance(value, dict) or path[0] not in value:
        return value
    left = _without(value[path[0]], path[1:], is_servers)
    rest = {name: item for name, item in value.items() if name != path[0]}
    return {**rest, path[0]: left} if left is not None else rest or None


def _said(status: Json) -> Json:
    """Without empty fields, such as a new status."""
    said = {name: _said(item) if isinstance(item, dict) else item for name, item in status.items()}
    return {name: item for name, item in said.items() if item not in (None, "", 0, [], {})}
