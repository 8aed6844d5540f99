"""The fields that selectors can compare: built-in ones and those that indexes declare.

Declarations are keys in the store and arrive through the cache's watch, so every API server applies them at the same
revision. No event says that an index has been built: the server asks for its status.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from minikube_py.api.kind import Kind
from minikube_py.api.selectors import Askable, FieldSelector, built_in
from minikube_py.errors import InvalidRequest
from minikube_py.fields.asked import parts_of
from minikube_py.fields.evaluate import check_field_set
from minikube_py.fields.spec import FieldSet
from minikube_py.index.declared import INDEXES_PREFIX, IndexSpec, declared_since, extended, parse
from minikube_py.index.reports import IndexReport
from minikube_py.mvcc.types import Event, KeyValue

log = logging.getLogger(__name__)
_NOTHING: Final = Askable(None)


class Declarations:
    """`specs`: the declared indexes by name. `version` grows with each change."""

    def __init__(self, resources: Iterable[Kind]) -> None:
        self.resources = {each.plural: each for each in resources if each.stored and each.converts is None}
        self.specs: dict[str, IndexSpec] = {}
        self.version = 0
        self._declared_at: dict[str, int] = {}
        self._built: set[str] = set()
        self._askable: dict[str, Askable] = {}

    def of(self, resource: Kind) -> Askable:
        """The same object until a change, so results can be cached by identity."""
        plural = resource.plural
        if self.resources.get(plural) is not resource:
            # Built at run time or not stored: it has no indexes.
            return built_in(resource)
        found = self._askable.get(plural)
        if found is None:
            found = self._askable[plural] = self._read(resource) if resource.stored else _NOTHING
        return found

    def base(self, resource: Kind) -> FieldSet:
        """A resource's built-in declarations, by its name in indexes."""
        return resource.field_set or FieldSet(resource.plural, resource.prefix, ())

    def since(self, resource: Kind, fields: FieldSelector) -> int:
        """The revision since which a selector's declared fields have had their current meaning; 0: always."""
        if not fields.where:
            return 0
        specs = [(spec, self._declared_at[name]) for name, spec in self.specs.items() if spec.on == resource.plural]
        return declared_since(self.base(resource), specs, parts_of(fields.asked()))

    def _read(self, resource: Kind) -> Askable:
        specs = [spec for spec in self.specs.values() if spec.on == resource.plural]
        # During a build the store must decode objects, which this cache already holds decoded.
        indexed = frozenset(name for spec in specs if spec.name in self._built for name in spec.fields)
        whole = extended(self.base(resource), specs)
        try:
            check_field_set(whole)
        except InvalidRequest as error:
            log.error("the declarations of indexes on %s are skipped: %s", resource.plural, error)
            return Askable(resource.field_set)
        return Askable(whole if whole.fields else None, indexed)

    def load(self, kvs: Iterable[KeyValue]) -> None:
        """Restarts from the store's contents."""
        self.specs = {}
        self._declared_at = {}
        self._built = set()
        self._askable = {}
        self.version += 1
        for kv in kvs:
            self._put(kv)

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kv.key.startswith(INDEXES_PREFIX):
                if event.type == "PUT":
                    self._put(event.kv)
                else:
                    self._forget(event.kv.key)

    def _put(self, kv: KeyValue) -> None:
        try:
            spec = parse(kv.value)
        except InvalidRequest as error:
            # Perhaps of a later version; unknown fields cannot be served.
            log.error("the declaration %s cannot be read and is skipped: %s", kv.key, error)
            self._forget(kv.key)
            return
        there = self.specs.get(spec.name)
        if there != spec:
            self._built.discard(spec.name)
            self._changed(there, spec)
            self.specs[spec.name] = spec
            self._declared_at[spec.name] = kv.create_revision

    def _forget(self, key: bytes) -> None:
        name = key.removeprefix(INDEXES_PREFIX).decode("utf-8", "replace")
        self._built.discard(name)
        self._declared_at.pop(name, None)
        self._changed(self.specs.pop(name, None))

    @property
    def building(self) -> bool:
        """Whether there are indexes that are not known to be complete."""
        return len(self._built) < len(self.specs)

    def told(self, reports: Iterable[IndexReport]) -> None:
        """Updates the status of indexes. One that was once complete stays usable."""
        for report in reports:
            spec = report.spec
            if report.state == "ready" and spec.name not in self._built and self.specs.get(spec.name) == spec:
                self._built.add(spec.name)
                self._askable.pop(spec.on, None)

    def _changed(self, *specs: IndexSpec | None) -> None:
        self.version += 1
        for spec in specs:
            if spec is not None:
                self._askable.pop(spec.on, None)
