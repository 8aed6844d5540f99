"""The declared FieldSets of a store: which keys they watch over, and which of them answers a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from minikube_py.errors import InvalidRequest
from minikube_py.fields.spec import FieldSet
from minikube_py.index.table import GONE, Change, Table
from minikube_py.mvcc.key_index import end_of
from minikube_py.mvcc.types import Event, RangeRequest, prefix_end

MAX_FIELD_SETS = 64

RowChanged = tuple[str, bytes]
"""A FieldSet's name and the key of a row of it that changed."""


def decode(value: bytes) -> Any:
    """The object in a stored value; what is no JSON has no fields."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def changes_of(events: Sequence[Event], prefixes: tuple[bytes, ...]) -> list[Change]:
    """The last state of every key under `prefixes` that `events`, those of one revision, touch."""
    changes: dict[bytes, Any] = {}
    for kind, kv, _ in events:
        if kv.key.startswith(prefixes):
            changes[kv.key] = decode(kv.value) if kind == "PUT" else GONE
    return list(changes.items())


class Tables:
    def __init__(self) -> None:
        self.by_name: dict[str, Table] = {}
        self._prefixes: tuple[bytes, ...] = ()

    def add(self, table: Table) -> None:
        """Raises: InvalidRequest beyond the limit."""
        name = table.field_set.name
        if name not in self.by_name and len(self.by_name) >= MAX_FIELD_SETS:
            raise InvalidRequest(f"at most {MAX_FIELD_SETS} field sets can be declared")
        self.by_name[name] = table
        self._prefixes = tuple(dict.fromkeys(prefix for each in self.by_name.values() for prefix in each.prefixes))

    def apply(self, revision: int, events: Sequence[Event]) -> list[RowChanged]:
        """Brings all tables to `revision`; each object's bytes are decoded once."""
        changes = changes_of(events, self._prefixes)
        if not changes:
            return []
        changed: list[RowChanged] = []
        for name, table in self.by_name.items():
            changed += [(name, key) for key in table.apply(revision, changes)]
        return changed

    def compact(self, revision: int) -> None:
        for table in self.by_name.values():
            table.index.compact(revision)

    def find(self, request: RangeRequest) -> Table:
        """The table that covers the request's keys and declares its fields. Raises: InvalidRequest."""
        wanted = [comparison.field for comparison in request.where.comparisons] if request.where else []
        return self.covering(request.key, request.range_end, [*wanted, *request.fields])

    def covering(self, key: bytes, range_end: bytes, fields: Sequence[str]) -> Table:
        missing = None
        for table in self.by_name.values():
            field_set = table.field_set
            if not _within(key, range_end, field_set.prefix):
                continue
            missing = next((field for field in fields if field_set.find(field) is None), None)
            if missing is None:
                return table
        if missing is not None:
            raise InvalidRequest(f"field {missing!r} is not declared for keys under {key.decode('utf-8', 'replace')}")
        raise InvalidRequest(f"no fields are declared for keys under {key.decode('utf-8', 'replace')}")

    def field_sets(self) -> list[FieldSet]:
        return [table.field_set for table in self.by_name.values()]

    def size_bytes(self) -> int:
        return sum(table.index.stats().size_bytes for table in self.by_name.values())


def _within(key: bytes, range_end: bytes, prefix: bytes) -> bool:
    if not key.startswith(prefix):
        return False
    end = end_of(range_end) if range_end else key
    # All keys of the prefix come before its successor; `end` may be that successor itself.
    return end is not None and (end.startswith(prefix) or end <= prefix_end(prefix))

