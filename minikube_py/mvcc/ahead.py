"""Deletions of many keys, made ready in slices before they are applied: what is left is one short step.

An entry is applied whole, so that nobody sees half of it. What it creates - an event, a tombstone and a history for
each key - can be made before, while reads and messages go on, because nothing else is applied in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.key_index import tombstone
from minikube_py.mvcc.types import Command, DeleteRange, Event, KeyValue, LeaseRevoke, bare

if TYPE_CHECKING:
    from minikube_py.mvcc.state import StateMachine

LARGE_KEYS = 2_000
"""From so many keys on a deletion is made ready before."""
KEYS_PER_SLICE = 1_000

Asked = tuple[int, bytes | int, bytes]
"""The revision that a deletion will have; its range, or its lease and no range end."""


class Endings(NamedTuple):
    """The end of `keys`, which are in order: their deletions, and for each its last version with its tombstone."""

    asked: Asked
    keys: Sequence[bytes]
    events: list[Event]
    histories: list[list[KeyValue]]


def prepare(state: StateMachine, command: Command) -> Iterator[None] | None:
    """What can be done before `command` is applied, in slices; None where that is little, or done already. Nothing else
    must be applied until then. The slices change nothing that can be seen."""
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
    return _slices(state, asked)


def endings(state: StateMachine, asked: Asked) -> Endings:
    """Those that were made ready, or else made now."""
    ready, state.endings = state.endings, None
    if ready is None or ready.asked != asked:
        for _ in _slices(state, asked):
            pass
        ready, state.endings = state.endings, None
        assert ready is not None
    return ready


def _slices(state: StateMachine, asked: Asked) -> Iterator[None]:
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
    state.endings = Endings(asked, keys, events, histories)
