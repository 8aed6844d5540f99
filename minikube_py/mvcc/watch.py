"""Watchers of a state machine: synced ones, and those that catch up with a budget per call.

`notify`, called after applies, sends each synced watcher the events since the last call. A watcher that starts in the
past is behind; `catch_up` reads the log for it until it is synced. No event is lost or doubled at the switch, because
both use the same `revision`: the last one that `notify` has sent.

The effect of a large change on a `where` is computed in slices, once for all watchers with the same one; until then
they are behind."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from itertools import chain, islice
from operator import le
from typing import Any, Final, NamedTuple

from minikube_py.errors import Compacted, FieldsRedeclared, InvalidRequest, MinikubeError, Unavailable
from minikube_py.fields.asked import Asked
from minikube_py.fields.where import Where, compile_where
from minikube_py.index.table import Table
from minikube_py.mvcc.ahead import LARGE_KEYS
from minikube_py.mvcc.state import ERROR_CHARS_MAX, StateMachine, select, unanswerable
from minikube_py.mvcc.transitions import where_events, where_slices
from minikube_py.mvcc.types import FROM_KEY, Event, WatchBatch
from minikube_py.mvcc.validate import require_int64, validate_where

Sink = Callable[[WatchBatch], None]
CATCH_UP_BUDGET: Final = 5000
"""Default number of events that one call of `catch_up` examines."""
STEP_COST: Final = 2
"""Cost in such events of each row that a slice examines."""
REDECLARED: Final = "the watched fields have been declared again; watch again"

Group = tuple[bytes, bytes, Where | None]


class Watched(NamedTuple):
    """The FieldSet that a `where` is about, and the fields it names with their declarations."""

    field_set: str
    asked: Asked


class Watcher:
    """One watch. `cancel()` ends it; nothing is sent after that."""

    __slots__ = ("_hub", "cancelled", "group", "next_revision", "sink", "synced", "table", "watched")

    def __init__(
        self, hub: WatchHub, group: Group, watched: Watched | None, table: Table | None, next_revision: int, sink: Sink
    ) -> None:
        self._hub = hub
        self.group = group
        self.watched = watched
        self.table = table
        self.next_revision = next_revision
        self.sink = sink
        self.synced = False
        self.cancelled = False

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._hub.remove(self)


class Cohort:
    """Watchers of one group, with a `where`, that advance together. They were sent everything up to `after`; `steps`
    computes the next revision, a large one, from `table`."""

    __slots__ = ("after", "group", "members", "steps", "table")

    def __init__(self, group: Group, members: dict[Watcher, None], after: int) -> None:
        self.group = group
        self.members = members
        self.after = after
        self.table: Table | None = None
        self.steps: Generator[int, None, list[Event]] | None = None
        for watcher in members:
            watcher.synced = False
            watcher.next_revision = max(watcher.next_revision, after + 1)


class WatchHub:
    """Pure: it runs when called, and calls sinks in turn. A sink must not block; it may cancel. Only a watch whose sink
    raises, or whose `where` can no longer be answered, ends: `in_vain` counts these, `last_in_vain` is the latest
    error."""

    def __init__(self, state: StateMachine) -> None:
        self._state = state
        self.revision = state.revision
        """The revision sent to the synced watchers."""
        self._synced: dict[Group, dict[Watcher, None]] = {}
        """Those of ranges, and with a `where`: each write is compared with each of these."""
        self._on_keys: dict[bytes, dict[Watcher, None]] = {}
        """Those of single keys, which a write finds by its key."""
        self._untold: list[Watcher] = []
        """Those that a round of `progress_some` has not told yet."""
        self._behind: dict[Watcher, None] = {}
        self._cohorts: dict[Cohort, None] = {}
        self._unserved: dict[Watcher, None] = {}
        """Watches on fields without a table: they are behind once there is one."""
        self.in_vain = 0
        self.last_in_vain = ""
        self._version = state.tables.version
        # Events freed by a compaction must have been sent before.
        state.before_compact.append(self._before_compact)

    def __len__(self) -> int:
        return len(self._everyone())

    def _everyone(self) -> list[Watcher]:
        return [*self._behind, *self._late(), *self._unserved, *self._all_synced()]

    def _all_synced(self) -> list[Watcher]:
        return list(chain.from_iterable([*self._synced.values(), *self._on_keys.values()]))

    def _late(self) -> list[Watcher]:
        return [watcher for cohort in self._cohorts for watcher in cohort.members]

    @property
    def behind(self) -> int:
        """How many watchers still catch up."""
        return len(self._behind) + (len(self._late()) if self._cohorts else 0)

    def add(self, key: bytes, range_end: bytes, start_revision: int, sink: Sink, where: Where | None = None) -> Watcher:
        """Watches the range from `start_revision` on (0: from now; a future one: silent until then).

        In the next `catch_up` a start below the compacted revision ends the watch with Compacted; one below the
        declaration of the index that gave the fields their meaning ends it with FieldsRedeclared, because their earlier
        values had another meaning.

        Raises: InvalidRequest for a range that holds no key or a `where` that cannot be answered; Unavailable for
        fields that no table can hold (`Tables.degraded`)."""
        require_int64("start revision", start_revision)
        if where:
            validate_where(where)
        if range_end and range_end != FROM_KEY and key >= range_end:
            raise InvalidRequest("etcdserver: mvcc: watcher range is empty")
        self.refresh()
        watched = self._watched(key, range_end, where) if where else None
        next_revision = start_revision if start_revision else self._state.revision + 1
        table = self._state.tables.serving(*watched) if watched else None
        watcher = Watcher(self, (key, range_end, where or None), watched, table, next_revision, sink)
        if watched is not None and table is None:
            if watched.field_set in self._state.tables.degraded:
                raise Unavailable(_degraded(self._state, watched))
            self._unserved[watcher] = None
        elif next_revision > self.revision:
            self._join(watcher)
        else:
            self._behind[watcher] = None
        return watcher

    def _watched(self, key: bytes, range_end: bytes, where: Where) -> Watched:
        fields = [comparison.field for comparison in where.comparisons]
        field_set, asked = self._state.tables.covering(key, range_end, fields)
        # Reads the values once, so that an invalid one is refused here and not in every notify.
        compile_where(field_set, where)
        return Watched(field_set.name, asked)

    def _join(self, watcher: Watcher) -> None:
        watcher.synced = True
        key, range_end, where = watcher.group
        if range_end or where is not None:
            self._synced.setdefault(watcher.group, {})[watcher] = None
        else:
            self._on_keys.setdefault(key, {})[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self._behind.pop(watcher, None)
        self._unserved.pop(watcher, None)
        for cohort in self._cohorts:
            cohort.members.pop(watcher, None)
        _drop(self._synced, watcher.group, watcher)
        if not watcher.group[1]:
            _drop(self._on_keys, watcher.group[0], watcher)

    def notify(self) -> None:
        """Sends the events applied since the last call."""
        self.refresh()
        after, until = self.revision, self._state.revision
        if after == until:
            return
        self.revision = until
        if not self._synced and not self._on_keys:
            return
        events = self._state.log.flat(after, until)
        for key, selected in _by_key(events).items() if self._on_keys else ():
            if members := self._on_keys.get(key):
                self._send(members, selected, after, until)
        names = _in_order(events)
        for group, members in list(self._synced.items()):
            key, range_end, where = group
            if not members:
                # A sink that was just called has cancelled the watches of this group.
                continue
            if where is not None and len(events) >= LARGE_KEYS:
                del self._synced[group]
                self._cohorts[Cohort(group, members, after)] = None
                continue
            if where is not None:
                found = self._where_or_end(next(iter(members)), members, after, until)
                if found is None:
                    continue
                selected = found
            else:
                selected = _between(events, names, key, range_end) if names else select(events, key, range_end)
            if selected:
                self._send(members, selected, after, until)

    def refresh(self) -> None:
        """Applies new declarations and tables: ends the watches on fields that were declared again, and moves the
        others to the table that now holds their fields."""
        tables = self._state.tables
        if self._version == tables.version:
            return
        self._version = tables.version
        for watcher in self._everyone():
            watched = watcher.watched
            if watched is None or watcher.cancelled:
                continue
            if not tables.stands(*watched):
                self._end(watcher, FieldsRedeclared(REDECLARED))
                continue
            watcher.table = tables.serving(*watched)
            if watcher.table is None and watched.field_set in tables.degraded:
                self._end(watcher, Unavailable(_degraded(self._state, watched)))
            elif watcher.table is None:
                self._leave_unserved(watcher)
            elif watcher in self._unserved:
                del self._unserved[watcher]
                self._behind[watcher] = None

    def _leave_unserved(self, watcher: Watcher) -> None:
        if watcher.synced:
            watcher.synced = False
            watcher.next_revision = max(watcher.next_revision, self.revision + 1)
        self.remove(watcher)
        self._unserved[watcher] = None

    def _send(self, members: dict[Watcher, None], events: list[Event], after: int, until: int) -> None:
        batch = WatchBatch(events, until)
        for watcher in list(members):
            if watcher.cancelled or watcher.next_revision > until:
                continue
            if watcher.next_revision <= after + 1:
                self._tell(watcher, batch)
                continue
            # It was added with a start ahead of the hub, and needs only a part.
            if watcher.group[2] is None:
                later = [event for event in events if event.kv.mod_revision >= watcher.next_revision]
            else:
                later = self._where_or_end(watcher, (watcher,), watcher.next_revision - 1, until) or []
            if later:
                self._tell(watcher, WatchBatch(later, until))

    def _tell(self, watcher: Watcher, batch: WatchBatch) -> None:
        try:
            watcher.sink(batch)
        except Exception as error:
            self._note(error)
            self._end(watcher, Unavailable(f"the watch ended: its receiver failed with {type(error).__name__}"))

    def _note(self, error: Exception) -> None:
        self.in_vain += 1
        self.last_in_vain = f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]

    def _where_or_end(self, watcher: Watcher, members: Iterable[Watcher], after: int, until: int) -> list[Event] | None:
        """None: it cannot be answered, and the watches of `members` have ended."""
        try:
            return self._where(watcher, after, until)
        except Exception as error:
            self._unanswerable(members, error)
            return None

    def _unanswerable(self, members: Iterable[Watcher], error: Exception) -> None:
        self._note(error)
        for each in list(members):
            self._end(each, unanswerable(error))

    def _slices(self, watcher: Watcher, revision: int) -> Generator[int, None, list[Event]]:
        key, range_end, where = watcher.group
        assert where is not None and watcher.table is not None
        state = self._state
        return where_slices(state.index, state.log, watcher.table, where, revision, (key, range_end))

    def _where(self, watcher: Watcher, after: int, until: int) -> list[Event]:
        key, range_end, where = watcher.group
        assert where is not None and watcher.table is not None
        state = self._state
        return where_events(state.index, state.log, watcher.table, where, after, until, (key, range_end))

    def catch_up(self, budget: int = CATCH_UP_BUDGET) -> int:
        """Advances watchers that are behind by about `budget` events in total; returns how many still are."""
        self.refresh()
        share = left = budget // 2 if self._behind else budget
        for cohort in list(self._cohorts):
            left = self._go_on(cohort, left)
        budget -= share - left
        for watcher in list(self._behind):
            if budget <= 0:
                break
            if watcher.cancelled:
                continue
            if watcher.next_revision > self.revision:
                del self._behind[watcher]
                self._join(watcher)
                # It has seen everything without being notified: only synced watchers get progress.
                self.progress(watcher)
                continue
            compacted = max(self._state.compact_revision, 1)
            # A `where` needs the state before its first event too.
            if watcher.next_revision < compacted + (watcher.table is not None and compacted > 1):
                self._end(watcher, Compacted(watcher.next_revision, self._state.compact_revision))
                continue
            if watcher.watched and watcher.next_revision <= self._state.declared_since(*watcher.watched):
                self._end(watcher, FieldsRedeclared(REDECLARED))
                continue
            after = max(watcher.next_revision - 1, 1)
            if watcher.table is not None and self._size(after + 1) >= LARGE_KEYS:
                del self._behind[watcher]
                self._cohorts[Cohort(watcher.group, {watcher: None}, after)] = None
                continue
            until, budget = self._window(after, budget, where=watcher.table is not None)
            self._advance(watcher, after, until)
        return self.behind

    def _size(self, revision: int) -> int:
        log = self._state.log
        return len(log.at(revision)) if revision >= log.first else 1

    def _window(self, after: int, budget: int, *, where: bool) -> tuple[int, int]:
        """How far to go in one step, and the rest of `budget`. Watches with a `where` leave large revisions to
        cohorts."""
        until = after
        while until < self.revision and budget > 0:
            size = self._size(until + 1)
            if where and size >= LARGE_KEYS:
                break
            until += 1
            budget -= size
        return until, budget

    def _go_on(self, cohort: Cohort, budget: int) -> int:
        """Returns the rest of `budget`."""
        members = cohort.members
        while budget > 0 and members and cohort.after < self.revision:
            watcher = next(iter(members))
            if cohort.table is not watcher.table:
                cohort.table, cohort.steps = watcher.table, None
            until, left = self._window(cohort.after, budget, where=True)
            try:
                if until > cohort.after:
                    budget, found = left, self._where(watcher, cohort.after, until)
                else:
                    until = cohort.after + 1
                    steps = cohort.steps = cohort.steps or self._slices(watcher, until)
                    while True:
                        budget -= STEP_COST * next(steps)
                        if budget <= 0:
                            return 0
            except StopIteration as end:
                cohort.steps, found = None, end.value
            except Exception as error:
                self._unanswerable(members, error)
                break
            self._hand_out(cohort, found, until)
        if not members or cohort.after >= self.revision:
            del self._cohorts[cohort]
        return budget

    def _hand_out(self, cohort: Cohort, events: list[Event], until: int) -> None:
        after, cohort.after = cohort.after, until
        if events:
            self._send(cohort.members, events, after, until)
        for watcher in list(cohort.members):
            watcher.next_revision = max(watcher.next_revision, until + 1)
            if until == self.revision:
                self._join(watcher)
                if not events:
                    self.progress(watcher)

    def _before_compact(self, revision: int) -> None:
        """Watchers that were synced must not miss the events of large changes."""
        self.notify()
        for cohort in list(self._cohorts):
            while cohort in self._cohorts and cohort.after < revision:
                self._go_on(cohort, CATCH_UP_BUDGET)

    def _advance(self, watcher: Watcher, after: int, until: int) -> None:
        key, range_end, where = watcher.group
        if where is None:
            events = select(self._state.log.flat(after, until), key, range_end)
        else:
            found = self._where_or_end(watcher, (watcher,), after, until)
            if found is None:
                return
            events = found
        watcher.next_revision = until + 1
        if until == self.revision:
            del self._behind[watcher]
            self._join(watcher)
        if events or until == self.revision:
            self._tell(watcher, WatchBatch(events, until))

    def progress(self, watcher: Watcher | None = None) -> bool:
        """Notifies `watcher` (None: all synced ones) that it has seen everything up to `revision`. False if it has not,
        or starts later."""
        if watcher is None:
            watchers = self._all_synced()
        else:
            watchers = [watcher] if watcher.synced and not watcher.cancelled else []
        sent = False
        for each in watchers:
            if not each.cancelled and each.next_revision <= self.revision + 1:
                self._tell(each, WatchBatch((), self.revision))
                sent = True
        return sent

    def progress_some(self, limit: int) -> bool:
        """Goes on telling all synced watchers their progress, `limit` at a time; True while some of a round are
        left."""
        left = self._untold or self._all_synced()
        now, self._untold = left[:limit], left[limit:]
        for watcher in now:
            self.progress(watcher)
        return bool(self._untold)

    def replace(self, state: StateMachine) -> None:
        """Switches the hub to `state`, the same store at a later revision, whose steps since then were not observed.
        All watches catch up from its log, each from its position; one that needs events no longer in this log ends with
        Compacted."""
        self.notify()
        assert state.revision >= self.revision, "a state older than what was delivered"
        for watcher in self._all_synced():
            watcher.synced = False
            watcher.next_revision = max(watcher.next_revision, self.revision + 1)
            self._behind[watcher] = None
        self._behind.update(dict.fromkeys(self._late()))
        self._synced, self._on_keys, self._cohorts = {}, {}, {}
        self._state.before_compact.remove(self._before_compact)
        self._state = state
        state.before_compact.append(self._before_compact)
        self.revision = state.revision
        self._version = -1
        self.refresh()

    def close(self, error: MinikubeError) -> None:
        """Ends all watches with `error`."""
        for watcher in self._everyone():
            self._end(watcher, error)

    def _end(self, watcher: Watcher, error: MinikubeError) -> None:
        if not watcher.cancelled:
            watcher.cancel()
            seen = self.revision if watcher.synced else min(watcher.next_revision - 1, self.revision)
            try:
                watcher.sink(WatchBatch((), seen, error))
            except Exception as raised:
                self._note(raised)


def _drop(groups: dict[Any, dict[Watcher, None]], group: Group | bytes, watcher: Watcher) -> None:
    members = groups.get(group)
    if members is not None:
        members.pop(watcher, None)
        if not members:
            del groups[group]


def _degraded(state: StateMachine, watched: Watched) -> str:
    why = state.tables.degraded[watched.field_set]
    return f"the fields of {watched.field_set} cannot be watched: {why}"


def _in_order(events: list[Event]) -> list[bytes]:
    """Their keys, if a large deletion produced them; empty if they are few, or in another order."""
    if len(events) < LARGE_KEYS:
        return []
    names = [event[1][0] for event in events]
    return names if all(map(le, names, islice(names, 1, None))) else []


def _between(events: list[Event], names: list[bytes], key: bytes, range_end: bytes) -> list[Event]:
    end = len(names) if range_end == FROM_KEY else bisect_left(names, range_end)
    return events[bisect_left(names, key) : end]


def _by_key(events: list[Event]) -> dict[bytes, list[Event]]:
    found: dict[bytes, list[Event]] = {}
    for event in events:
        found.setdefault(event.kv.key, []).append(event)
    return found
