"""Deletions of many keys, prepared in slices before they are applied, so that applying is one short step.

An entry is applied atomically. What it creates - an event, a tombstone and a history for each key, and the changes of
rows and sums - can be made before, while reads and messages continue, because nothing else is applied in between."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.key_index import tombstone
from minikube_py.mvcc.types import Command, DeleteRange, Event, KeyValue, LeaseRevoke, Txn, bare

if TYPE_CHECKING:
    from minikube_py.mvcc.state import StateMachine
    from minikube_py.mvcc.tables import RowsEnded

LARGE_KEYS = 2_000
"""Deletions of at least this many keys are prepared."""
KEYS_PER_SLICE = 1_000

Asked = tuple[int, bytes | int, bytes]
"""The revision that a deletion will have; its range, or its lease and no range end."""


class Endings(NamedTuple):
    """The prepared deletion of `keys`, in order: their deletion events, and for each its last version with its
    tombstone; `rows`: the changes of tables."""

    asked: Asked
    keys: Sequence[bytes]
    events: list[Event]
    histories: list[list[KeyValue]]
    rows: RowsEnded | None = None


def prepare(state: StateMachine, command: Command) -> Iterator[None] | None:
    """Prepares `command` in slices; None if there is little to prepare, or it was done already. Nothing else must be
    applied until then. The slices change nothing visible."""
    if type(command) is Txn:
        return None
    inner = bare(command)
    if type(inner) is DeleteRange:
        if not inner.range_end or state.index.count(inner.key, inner.range_end) < LARGE_KEYS:
            return None
        asked: Asked = (state.revision + 1, inner.key, inner.range_end)
    elif type(inner) is LeaseRevoke:
        lease = state.lessor.by_id.get(inner.id)
        if lease is None or len(lease.keys) < LARGE_KEYS:
            return None
        asked = (state.revision + 1, inner.id, b"")
    else:
        return None
    if state.endings is not None and state.endings.asked == asked:
        return None
    try:
        state.auth.require(command, state.lessor)
    except InvalidRequest:
        # Apply refuses it at once.
        return None
    return _ready(state, asked)


def rows_ready(state: StateMachine, asked: Asked) -> RowsEnded | None:
    """The prepared rows for a deletion outside a txn; `endings` uses up the rest."""
    ready = state.endings
    return ready.rows if ready is not None and ready.asked == asked else None


def endings(state: StateMachine, asked: Asked) -> Endings:
    """The prepared endings, or else endings made now."""
    ready, state.endings = state.endings, None
    if ready is not None and ready.asked == asked:
        return ready
    slices = _slices(state, asked)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return cast(Endings, end.value)


def _ready(state: StateMachine, asked: Asked) -> Iterator[None]:
    made = yield from _slices(state, asked)
    state.endings = made._replace(rows=(yield from state.tables.prepare(asked[0], made.keys)))


def _slices(state: StateMachine, asked: Asked) -> Generator[None, None, Endings]:
    revision, of, range_end = asked
    keys = sorted(state.lessor.by_id[of].keys) if isinstance(of, int) else list(state.index.keys(of, range_end))
    current = state.index.current
    events: list[Event] = []
    histories: list[list[KeyValue]] = []
    for start in range(0, len(keys), KEYS_PER_SLICE):
        if start:
            yield
        last = [current[key] for key in keys[start : start + KEYS_PER_SLICE]]
        made = [[kv, tombstone(kv[0], revision)] for kv in last]
        histories += made
        events += [Event("DELETE", end, kv) for kv, end in made]
    return Endings(asked, keys, events, histories)
