"""Objects as rows of a `meta.k8s.io/v1` Table: what `kubectl get` prints.

The server always fills all columns, and the client leaves out those of priority 1 without `-o wide`. Nodes may get
further columns, `free.cpu` and the like, from field values that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.printing import NONE, UNKNOWN, column, human_duration


def columns(kind: Kind, fields: Sequence[str] = ()) -> list[Json]:
    """The column definitions; `fields` names further ones, of priority 1."""
    own = kind.printer.columns
    extra = (column(name, "Declared field, as the index holds it.", 1) for name in fields)
    return [column.definition() for column in (*own, *extra)]


class TablePrinter:
    """Prints the rows of one table. Ages are worked out once for each second at which objects were created.

    `include_object` is None, Metadata or Object: what each row carries besides its cells. `fields` names the extra
    columns, whose values each row is handed as text."""

    def __init__(self, kind: Kind, now_s: float, include_object: str = "Metadata", fields: Sequence[str] = ()) -> None:
        self._kind = kind
        self._now_s = now_s
        self._include = include_object or "Metadata"
        self._fields = tuple(fields)
        self._cells = kind.printer.cells
        self._ages: dict[str, str] = {}

    def columns(self) -> list[Json]:
        return columns(self._kind, self._fields)

    def age(self, text: Any) -> str:
        """Time since a timestamp; `<unknown>` if missing or invalid."""
        if not text:
            return UNKNOWN
        found = self._ages.get(text)
        if found is None:
            try:
                found = human_duration(self._now_s - parse_timestamp(text))
            except ValueError:
                found = UNKNOWN
            self._ages[text] = found
        return found

    def cells(self, obj: Json, values: Mapping[str, str] | None = None) -> list[Any]:
        """`values` are the field values of this object; a missing one is `<none>`."""
        cells = self._cells(obj, self.age)
        if self._fields:
            given = values or {}
            cells += [given.get(name, NONE) for name in self._fields]
        return cells

    def row(self, obj: Json, values: Mapping[str, str] | None = None) -> Json:
        """`obj` is complete: kind, apiVersion and resourceVersion in place. It is shared, not copied."""
        row: Json = {"cells": self.cells(obj, values)}
        if (conditions := self._kind.printer.conditions(obj)) is not None:
            row["conditions"] = conditions
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        else:
            row["object"] = None
        return row

    def row_bytes(self, value: bytes, resource_version: str, values: Mapping[str, str] | None = None) -> bytes:
        """The row of an object as the store holds it: JSON without kind, apiVersion and resourceVersion.

        Without Go's escapes (`go_json.escaped`), which cost the less the more rows are escaped at once."""
        obj = orjson.loads(value)
        if resource_version:
            obj["metadata"]["resourceVersion"] = resource_version
        if self._include == "Object":
            obj = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, **obj}
        return orjson.dumps(self.row(obj, values))


def cells(kind: Kind, obj: Json, now_s: float, fields: Mapping[str, str] | None = None) -> list[Any]:
    """The cells of one object; `fields` adds one for each of its entries, in their order."""
    return TablePrinter(kind, now_s, "None", tuple(fields or ())).cells(obj, fields)


def table_head(kind: Kind, list_metadata: Json, fields: Sequence[str] = ()) -> bytes:
    """Everything of a Table up to its rows; the caller adds the rows, joined by commas, and `]}`."""
    head = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": columns(kind, fields),
    }
    return orjson.dumps(head)[:-1] + b',"rows":['
