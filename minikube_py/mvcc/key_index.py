"""All retained versions of all keys: the present in a dictionary and a sorted list of keys, the past per key.

`current` holds the live keys' newest versions, `history` the older retained ones, oldest first, with a deletion as
version 0 (a tombstone). Deleted keys with a history are `dead`. Reads at a revision bisect one key's history."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from sortedcontainers import SortedList

from minikube_py.mvcc.types import FROM_KEY, Event, KeyValue

KEY_VALUE_BYTES: Final = 200
"""Memory of one version beyond its key and value: tuple, ints, its places in dictionary and list."""

_mod_revision = attrgetter("mod_revision")
_new = tuple.__new__


def end_of(range_end: bytes) -> bytes | None:
    """The upper bound of a non-empty `range_end`; None is unbounded."""
    return None if range_end == FROM_KEY else range_end


def tombstone(key: bytes, revision: int) -> KeyValue:
    return KeyValue(key, b"", 0, revision, 0, 0)


class Endings(NamedTuple):
    """The deletion of `keys`, in order: the events, and for each key its last version with its tombstone."""

    keys: Sequence[bytes]
    events: list[Event]
    histories: list[list[KeyValue]]


class KeyIndex:
    def __init__(self) -> None:
        self.current: dict[bytes, KeyValue] = {}
        self.history: dict[bytes, list[KeyValue]] = {}
        self.live: SortedList = SortedList()
        self.dead: SortedList = SortedList()
        self.size_bytes = 0

    def put(self, key: bytes, value: bytes, revision: int, lease: int) -> Event:
        """Writes a new version; returns it and the one it replaces, for `StateMachine.commit`."""
        previous = self.current.get(key)
        if previous is None:
            kv: KeyValue = _new(KeyValue, (key, value, revision, revision, 1, lease))
            if key in self.history:
                self.dead.remove(key)
            self.live.add(key)
        else:
            kv = _new(KeyValue, (key, value, previous.create_revision, revision, previous.version + 1, lease))
            older = self.history.get(key)
            if older is None:
                self.history[key] = [previous]
            else:
                older.append(previous)
        self.current[key] = kv
        self.size_bytes += len(key) + len(value) + KEY_VALUE_BYTES
        return _new(Event, ("PUT", kv, previous))

    def delete(self, key: bytes, revision: int) -> Event:
        """Deletes a live key; returns its tombstone and its last version."""
        previous = self.current.pop(key)
        end = tombstone(key, revision)
        self.history.setdefault(key, []).extend((previous, end))
        self.live.remove(key)
        self.dead.add(key)
        self.size_bytes += len(key) + KEY_VALUE_BYTES
        return _new(Event, ("DELETE", end, previous))

    def end(self, endings: Endings) -> list[Event]:
        """As `delete` for each of the keys, in one step."""
        keys, events, histories = endings
        low = self.live.bisect_left(keys[0])
        if self.live[low + len(keys) - 1] == keys[-1]:
            del self.live[low : low + len(keys)]
        else:
            for key in keys:
                self.live.remove(key)
        deque(map(self.current.pop, keys), 0)
        for had, added in zip(map(self.history.setdefault, keys, histories), histories):
            if had is not added:
                had += added
        self.dead.update(keys)
        self.size_bytes += sum(map(len, keys)) + len(keys) * KEY_VALUE_BYTES
        return events

    def load(self, versions: Iterable[KeyValue]) -> None:
        """Fills an empty index with live versions, without history."""
        self.current = {kv.key: kv for kv in versions}
        self.live = SortedList(self.current)
        self.size_bytes = sum(len(kv.key) + len(kv.value) + KEY_VALUE_BYTES for kv in self.current.values())

    def load_more(self, versions: Sequence[KeyValue]) -> None:
        """Loads further, new keys in slices: a few microseconds each."""
        self.current.update([(kv.key, kv) for kv in versions])
        self.live.update([kv.key for kv in versions])
        self.size_bytes += sum([len(kv.key) + len(kv.value) + KEY_VALUE_BYTES for kv in versions])

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        """The version of `key` at `revision`."""
        kv = self.current.get(key)
        if kv is not None and kv.mod_revision <= revision:
            return kv
        older = self.history.get(key)
        if older is None:
            return None
        place = bisect_right(older, revision, key=_mod_revision)
        if place == 0:
            return None
        kv = older[place - 1]
        return kv if kv.version else None

    def keys(self, key: bytes, range_end: bytes) -> Iterator[bytes]:
        """The live keys of a range, in order. The index must not change while the iterator is used."""
        if not range_end:
            return iter((key,) if key in self.current else ())
        keys: Iterator[bytes] = self.live.irange(key, end_of(range_end), (True, False))
        return keys

    def count(self, key: bytes, range_end: bytes) -> int:
        if not range_end:
            return 1 if key in self.current else 0
        end = end_of(range_end)
        high = len(self.live) if end is None else self.live.bisect_left(end)
        return max(0, int(high - self.live.bisect_left(key)))

    def range(self, key: bytes, range_end: bytes, limit: int = 0) -> list[KeyValue]:
        """The current keys of a range, at most `limit` (0: all)."""
        if not range_end:
            kv = self.current.get(key)
            return [] if kv is None else [kv]
        keys = self.live.irange(key, end_of(range_end), (True, False))
        return list(map(self.current.__getitem__, islice(keys, limit) if limit else keys))

    def range_at(self, key: bytes, range_end: bytes, revision: int, limit: int = 0) -> list[KeyValue]:
        """The range at `revision`, at most `limit` (0: all)."""
        if not range_end:
            kv = self.at(key, revision)
            return [] if kv is None else [kv]
        end = end_of(range_end)
        found: list[KeyValue] = []
        start, inclusive = key, True
        while True:
            block = limit - len(found) + 64 if limit else 0
            keys, last = self._block(start, inclusive, end, block)
            for name in keys:
                kv = self.at(name, revision)
                if kv is not None:
                    found.append(kv)
                    if len(found) == limit:
                        return found
            if last is None:
                return found
            start, inclusive = last, False

    def page_at(self, start: bytes, range_end: bytes, revision: int, keys: int) -> tuple[list[KeyValue], bytes | None]:
        """The versions at `revision` among about the first `keys` keys of a range, and the start of the next page, None
        after the last."""
        names, last = self._block(start, True, end_of(range_end), keys)
        found = [kv for name in names if (kv := self.at(name, revision)) is not None]
        return found, None if last is None else last + b"\0"

    def _block(self, start: bytes, inclusive: bool, end: bytes | None, size: int) -> tuple[list[bytes], bytes | None]:
        """About `size` (0: all) live and dead keys from `start` on, in order; and the last one if there may be more."""
        live = self.live.irange(start, end, (inclusive, False))
        dead = self.dead.irange(start, end, (inclusive, False))
        if not size:
            return sorted([*live, *dead]), None
        first_live, first_dead = list(islice(live, size)), list(islice(dead, size))
        full = [keys[-1] for keys in (first_live, first_dead) if len(keys) == size]
        keys = sorted(first_live + first_dead)
        if not full:
            return keys, None
        last = min(full)
        return keys[: bisect_right(keys, last)], last

    def trim(self, keys: Iterable[bytes], revision: int) -> None:
        """Drops of `keys` every version that is visible only at revisions below `revision`."""
        for key in keys:
            older = self.history.get(key)
            if older is None:
                continue
            kv = self.current.get(key)
            if kv is not None and kv.mod_revision <= revision:
                drop = len(older)
            else:
                drop = bisect_right(older, revision, key=_mod_revision) - 1
                # A tombstone that is current at `revision` is equivalent to no version.
                if drop >= 0 and older[drop].version == 0:
                    drop += 1
            if drop <= 0:
                continue
            self.size_bytes -= sum(len(old.key) + len(old.value) + KEY_VALUE_BYTES for old in older[:drop])
            del older[:drop]
            if not older:
                del self.history[key]
                if kv is None:
                    self.dead.remove(key)
