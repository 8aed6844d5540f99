"""The content of an etcd in a state machine that follows it: the same objects at the same revisions, except index
declarations that are invalid at the start; the log names them.

So everything our store offers beyond etcd works here, by the same code: watches with a `where`, sums, indexes, the
past. It holds the revisions from the one at which it was read to the last one reported by etcd's watch, and compacts
when etcd does. It sends etcd no requests: `feed` supplies it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from minikube_py.errors import MinikubeError, RequestError
from minikube_py.fields.spec import FieldSet
from minikube_py.index.declared import INDEXES_PREFIX, parse
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.event_log import EventLog
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.successor import Successor
from minikube_py.mvcc.types import Compact, DeclareFields, Event, KeyValue, prefix_end
from minikube_py.mvcc.versions import LATEST

log = logging.getLogger(__name__)
KEYS_PER_STEP: Final = 1_000
OBJECTS_PER_STEP: Final = 128
REVISIONS_PER_STEP: Final = 8_192
FIELDS_PREFIX: Final = b"/minikube-py/fields/"
"""Fields of an index, for servers that do not know their kind."""


class Change(NamedTuple):
    """`value` None: the key was deleted."""

    key: bytes
    revision: int
    value: bytes | None
    lease: int


class Mirror:
    """`state` answers; never apply a write to it."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.last: Change | None = None
        """The last change since it was loaded."""

    @classmethod
    def loading(
        cls, kvs: Sequence[KeyValue], revision: int, field_sets: Iterable[FieldSet]
    ) -> Generator[None, None, Mirror]:
        """Loads etcd's content at `revision` and the fields that this server declares, in slices of a few
        milliseconds."""
        mirror = cls()
        state = mirror.state
        for start in range(0, len(kvs), KEYS_PER_STEP):
            state.index.load_more(list(filter(_readable, kvs[start : start + KEYS_PER_STEP])))
            yield
        state.log = EventLog(revision + 1)
        state.load(revision, revision, ())
        declared = {each.name: each for each in field_sets}
        own = len(declared)
        for kv in state.index.range(FIELDS_PREFIX, prefix_end(FIELDS_PREFIX)):
            if (found := _fields_of(kv)) is not None:
                declared.setdefault(found.name, found)
        for position, each in enumerate(declared.values()):
            try:
                yield from mirror._declaring(each)
            except RequestError as error:
                if position < own:
                    raise
                _leave_out(each, error)
        return mirror

    def disposing(self) -> Generator[None, None, None]:
        """Frees it in slices: at once would take a second. It must not be used any more."""
        index, tables, log = self.state.index, self.state.tables, self.state.log
        tables.version += 1  # callers that try plans in several steps check it
        for table in tables.by_name.values():
            while not table.dispose(KEYS_PER_STEP):
                yield
        for revision in range(log.first, log.last + KEYS_PER_STEP, KEYS_PER_STEP):
            log.trim(revision)
            yield
        for held in (index.history, index.current):
            while held:
                for _ in range(min(KEYS_PER_STEP, len(held))):
                    held.popitem()
                yield
        while index.live:
            del index.live[-KEYS_PER_STEP:]
            yield

    def _declaring(self, field_set: FieldSet) -> Generator[None, None, None]:
        """As `state.load_fields`."""
        state = self.state
        successor = Successor(state, state.tables.whole(field_set))
        try:
            while not successor.step(state, OBJECTS_PER_STEP):
                yield
        except (MinikubeError, MemoryError):
            raise
        except Exception:
            # It records why the fields are degraded.
            state.load_fields(field_set)
        else:
            state.tables.declare(field_set, successor.table)

    @property
    def revision(self) -> int:
        return self.state.revision

    def applying(self, changes: Sequence[Change]) -> Generator[None, None, None]:
        """Applies whole revisions, in order, all after its own, in slices as `advancing`."""
        for revision, group in groupby(changes, lambda change: change.revision):
            yield from self.advancing(revision - 1)
            self._commit(revision, list(group))

    def advancing(self, revision: int) -> Generator[None, None, bool]:
        """No key of ours changed up to `revision`. Others may have raised it by 100,000s. False: that was known."""
        state = self.state
        known = state.revision >= revision
        while state.revision < revision:
            state.commit(state.revision + 1, [])
            if state.revision % REVISIONS_PER_STEP == 0 and state.revision < revision:
                yield
        return not known

    def _commit(self, revision: int, changes: list[Change]) -> None:
        state = self.state
        self.last = changes[-1]
        events = []
        for key, _, value, lease in changes:
            if value is not None:
                events.append(state.index.put(key, value, revision, lease))
            elif key in state.index.current:
                events.append(state.index.delete(key, revision))
        state.commit(revision, events)
        for event in events:
            if event.kv.key.startswith(INDEXES_PREFIX):
                self._declared(event)
            elif event.kv.key.startswith(FIELDS_PREFIX) and event.type == "PUT":
                found = _fields_of(event.kv)
                if found is not None and found.name not in state.tables.declared:
                    try:
                        self.declare(found)
                    except RequestError as error:
                        _leave_out(found, error)

    def declare(self, field_set: FieldSet) -> None:
        """Raises: InvalidRequest."""
        self.state.apply(DeclareFields(field_set))

    def _declared(self, event: Event) -> None:
        tables, name = self.state.tables, event.kv.key.removeprefix(INDEXES_PREFIX).decode("utf-8", "replace")
        try:
            if name in tables.specs:
                tables.drop_index(name)
            if event.type == "PUT":
                spec = parse(event.kv.value)
                if tables.check_index(spec, LATEST):
                    tables.declare_index(spec)
        except RequestError as error:
            # Possibly from a later release. Its fields cannot be queried here.
            log.error("index %s cannot be built here and is left out: %s", name, error)

    def compact(self, revision: int) -> None:
        """etcd has compacted everything visible only below `revision`."""
        revision = min(revision, self.revision)
        if revision > self.state.compact_revision:
            self.state.apply(Compact(revision))


def _readable(kv: KeyValue) -> bool:
    if kv.key.startswith(INDEXES_PREFIX):
        try:
            parse(kv.value)
        except RequestError as error:
            log.error("%s cannot be read and is left out: %s", kv.key, error)
            return False
    return True


def fields_key(name: str) -> bytes:
    return FIELDS_PREFIX + name.encode()


def fields_value(field_set: FieldSet) -> bytes:
    return pack(DeclareFields(field_set))


def _leave_out(field_set: FieldSet, error: RequestError) -> None:
    log.error("the fields %.40r in etcd cannot be declared and are left out: %s", field_set.name, error)


def _fields_of(kv: KeyValue) -> FieldSet | None:
    try:
        command = unpack(kv.value)
    except (MinikubeError, ValueError, TypeError, LookupError):
        command = None
    if type(command) is DeclareFields:
        return command.field_set
    log.error("the fields under %s cannot be read and are left out", kv.key)
    return None
