"""Deletions of many keys, prepared in slices before they are applied, so that applying is one short step.

An entry is applied atomically. What it creates - an event, a tombstone and a history for each key, and the changes of
rows and sums - can be made before, while reads and messages continue, because nothing else is applied in between."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from minikube_py.env import at_once
from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.auth import Auth
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.key_index import Endings, tombstone
from minikube_py.mvcc.lease import Leases
from minikube_py.mvcc.tables import RowsEnded, Tables
from minikube_py.mvcc.types import Command, DeleteRange, Event, KeyValue, LeaseRevoke, Txn, bare

LARGE_KEYS = 2_000
"""Deletions of at least this many keys are prepared."""
KEYS_PER_SLICE = 1_000

Asked = tuple[int, bytes | int, bytes]
"""The revision that a deletion will have; its range, or its lease and no range end."""


class Ahead:
    """`ready`: what `prepare` made for the deletion that is applied next, and for which."""

    def __init__(self, view: View, lessor: Leases, tables: Tables, auth: Auth) -> None:
        self.ready: tuple[Asked, Endings, RowsEnded] | None = None
        self._view = view
        self._lessor = lessor
        self._tables = tables
        self._auth = auth

    def prepare(self, command: Command) -> Iterator[None] | None:
        """Prepares `command` in slices; None if there is little to prepare, or it was done already. Nothing else must
        be applied until then. The slices change nothing visible."""
        if type(command) is Txn:
            return None
        inner = bare(command)
        revision = self._view.revision + 1
        if type(inner) is DeleteRange:
            if not inner.range_end or self._view.index.count(inner.key, inner.range_end) < LARGE_KEYS:
                return None
            asked: Asked = (revision, inner.key, inner.range_end)
        elif type(inner) is LeaseRevoke:
            lease = self._lessor.by_id.get(inner.id)
            if lease is None or len(lease.keys) < LARGE_KEYS:
                return None
            asked = (revision, inner.id, b"")
        else:
            return None
        if self.ready is not None and self.ready[0] == asked:
            return None
        try:
            self._auth.require(command, self._lessor)
        except InvalidRequest:
            # Apply refuses it at once.
            return None
        return self._prepared(asked)

    def rows(self, asked: Asked) -> RowsEnded | None:
        """The prepared rows for a deletion outside a txn; `endings` uses up the rest."""
        return self.ready[2] if self.ready is not None and self.ready[0] == asked else None

    def endings(self, asked: Asked) -> Endings:
        """The prepared endings, or else endings made now."""
        ready, self.ready = self.ready, None
        if ready is not None and ready[0] == asked:
            return ready[1]
        return at_once(self._slices(asked))

    def _prepared(self, asked: Asked) -> Iterator[None]:
        made = yield from self._slices(asked)
        rows = yield from self._tables.prepare(asked[0], made.keys)
        self.ready = asked, made, rows

    def _slices(self, asked: Asked) -> Generator[None, None, Endings]:
        revision, of, range_end = asked
        index = self._view.index
        keys = sorted(self._lessor.by_id[of].keys) if isinstance(of, int) else list(index.keys(of, range_end))
        events: list[Event] = []
        histories: list[list[KeyValue]] = []
        for start in range(0, len(keys), KEYS_PER_SLICE):
            if start:
                yield
            last = [index.current[key] for key in keys[start : start + KEYS_PER_SLICE]]
            made = [[kv, tombstone(kv[0], revision)] for kv in last]
            histories += made
            events += [Event("DELETE", end, kv) for kv, end in made]
        return Endings(keys, events, histories)
