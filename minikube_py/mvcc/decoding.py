"""Stored values as objects, for the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from minikube_py.index.table import GONE, Change
from minikube_py.mvcc.types import Event


def decode(value: bytes) -> Any:
    """The object in a stored value; a value that is not JSON has no fields."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def changes_of(events: Sequence[Event], prefixes: tuple[bytes, ...]) -> list[Change]:
    """The last state of every key under `prefixes` touched by `events`, which are of one revision."""
    changes: dict[bytes, Any] = {}
    for kind, kv, _ in events:
        if kv.key.startswith(prefixes):
            changes[kv.key] = decode(kv.value) if kind == "PUT" else GONE
    return list(changes.items())
