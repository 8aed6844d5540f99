"""The selection of a list or watch, and the cost of matching.

Work per event loop turn is bounded by counted steps, not objects: selectors with many terms, or objects with many
labels or bytes, cost more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import PODS
from minikube_py.api.selectors import FieldSelector, LabelSelector
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.fields.evaluate import where_of
from minikube_py.fields.where import Predicate

STEPS_OF_OBJECT: Final = 16
STEPS_OF_FIELD: Final = 4
DECODED_BYTES_SHIFT: Final = 2
"""One step per four decoded bytes."""
SelectionKey = tuple[str, str, str, str]


class Selection:
    """Scope and selectors of a list or watch, compiled once. `declared_since`: the revision since which the declared
    fields have their current meaning; earlier lists and watches cannot continue."""

    __slots__ = (
        "_by_fields", "_by_labels", "_fixed_steps", "_where", "declared_since", "fields", "labels", "labels_alone",
        "name", "namespace", "node", "prefix", "resource", "selective", "usual_steps",
    )  # fmt: skip

    def __init__(
        self,
        resource: Kind,
        namespace: str,
        labels: LabelSelector,
        fields: FieldSelector,
        declared_since: int = 0,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.labels = labels
        self.fields = fields
        self.declared_since = declared_since
        self.prefix = resource.collection_prefix(namespace)
        self.name = fields.exact("metadata.name")
        self.node = fields.exact("spec.nodeName") if resource is PODS else None
        self._where: Predicate | None = None
        if fields.where and not self.needs_store():
            assert fields.declared is not None, "a where names declared fields"
            self._where = where_of(fields.declared, fields.where)
        self._by_labels = labels.matches if labels else None
        self._by_fields = fields.matches_attributes if fields.requirements else None
        self.selective = bool(labels or fields.requirements or self._where)
        self.labels_alone = None if fields.requirements or self._where is not None else self._by_labels
        """What `matches` compares, if it compares labels alone."""
        looked_at = len({each.field for each in fields.requirements}) + len(fields.where.comparisons)
        self._fixed_steps = STEPS_OF_OBJECT + STEPS_OF_FIELD * looked_at
        self.usual_steps = 0 if labels.keys > 1 or self._where is not None else self._fixed_steps
        """What `matches` costs for any decoded entry; 0 if that depends on the entry."""

    def needs_store(self) -> bool:
        """True if a declared field depends on other objects, so only the store can answer."""
        declared = self.fields.declared
        return declared is not None and any(
            declared.depends_on_others(comparison.field) for comparison in self.fields.where.comparisons
        )

    def has_index(self) -> bool:
        """True if a store index covers it and no cache index is better."""
        return self.fields.has_index and not self.name and not self.node

    def matches(self, entry: Entry) -> bool:
        """Selectors only; the scope is the prefix's. Store-only fields are ignored."""
        if self._by_labels is not None and not self._by_labels(entry.labels):
            return False
        if self._by_fields is not None and not self._by_fields(entry.fields):
            return False
        return self._where is None or self._where(entry.row_by(self.fields.declared))

    def key(self) -> SelectionKey:
        """Equal for equal selections: same text, and fields of the same meaning."""
        return self.namespace, str(self.labels), str(self.fields), str(self.fields.asked()) if self._where else ""

    def steps(self, entry: Entry) -> int:
        """What `matches` costs: a step is some 0.1 us."""
        steps = self._fixed_steps
        if entry.known_labels is not None:
            if self.labels.keys > 1:
                steps += min(self.labels.keys, len(entry.labels))
            if self._where is None or entry.has_row(self.fields.declared):
                return steps
        return steps + (len(entry.value) >> DECODED_BYTES_SHIFT)


def pick(found: list[Entry], entries: Iterator[Entry], selection: Selection, limit: int, steps: int) -> bool:
    """Adds matches to `found` until it has `limit` (0: no limit) or used up the steps. False: there may be more."""
    matches, cost, usual, by_labels = selection.matches, selection.steps, selection.usual_steps, selection.labels_alone
    for entry in entries:
        labels = entry.known_labels
        steps -= usual if usual and labels is not None else cost(entry)
        if matches(entry) if by_labels is None or labels is None else by_labels(labels):
            found.append(entry)
            if len(found) == limit:
                return True
        if steps <= 0:
            return False
    return True


async def pick_all(found: list[Entry], entries: Iterator[Entry], selection: Selection, limit: int, steps: int) -> None:
    """As `pick`, to the end, yielding to the event loop after that many steps."""
    done = pick(found, entries, selection, limit, steps)
    while not done:
        await asyncio.sleep(0)
        done = pick(found, entries, selection, limit, steps)
