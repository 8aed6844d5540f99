"""The basic index: int64 columns of the current rows, and a log of what each change replaced.

Rows live in slots; `cells[column, slot]` is a value, MISSING where the row has none; column 0 says whether the object
exists. Before a row changes, its old cells go to the log with revision and slot. The state at a revision is the current
one with the logged cells restored, newest first, so that the oldest change after the revision wins; only rows changed
since are touched, vectorised. Strings are codes into a table per column.

A query costs one numpy pass per comparison (about 20 us per 100,000 rows); ANY stops at the first blocks that hold
enough. Memory: 8 bytes per cell and per logged cell; `compact` frees the log in chunks."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Test, Where
from minikube_py.index.cells import CHUNK_ENTRIES, EXISTS, Bound, Cells, Changed, ChangesAt, Chunk, Mask, evaluate
from minikube_py.index.contract import Answering, Follower, IndexStats, Matches, Order, Row, RowChange, Value
from minikube_py.index.ending import GONE, RowsAhead
from minikube_py.index.key_order import KeyOrder
from minikube_py.index.strings import UNKNOWN, StringTable
from minikube_py.index.structure import MISSING

BLOCK_ROWS = 4096
COLUMNS_MAX = 256
"""Limit of columns: each costs 8 bytes for every row and every logged change, whether or not the row has the field."""
FORGET_PER_COMPACT = 2000
FORGET_PER_APPLY = 32
"""Rows whose slots a compaction frees at once, and those that each later change frees of the rest."""


NARROW_SHARE = 8
"""If the keys in the range are fewer than one in this many, their rows are looked up one by one."""


class ColumnIndex(Answering):
    """An `Index` (see the contract) over the objects of one FieldSet, complete from `oldest_revision` on."""

    def __init__(self, field_set: FieldSet, oldest_revision: int = 0, rows: Iterable[RowChange] = ()) -> None:
        self.field_set = field_set
        self.revision = oldest_revision
        self.oldest_revision = oldest_revision
        self._columns: dict[str, int] = {}
        self._names: list[str] = [""]
        self._strings: dict[int, StringTable] = {}
        self._cells: Cells = np.full((8, 64), MISSING, dtype=np.int64)
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._rows: list[Row | None] = []
        self._free: list[int] = []
        self._gone: list[tuple[int, int]] = []
        self._gone_at: dict[int, int] = {}
        self._chunks: list[Chunk] = []
        self._live = 0
        self.key_order = KeyOrder(self._slots, self._keys)
        """For callers that assign slots by key."""
        self._followers: list[Follower] = []
        self.full = False
        """Rows have more fields than there are columns: those without a column are answered without this index."""
        self.changes = 0
        """Row changes since its creation."""
        self.load(rows)

    # -- writing ---------------------------------------------------------------------------------------------------

    def load(self, rows: Iterable[RowChange]) -> None:
        """Loads more rows of the oldest revision, or replaces them; before the first `apply`."""
        for key, row in rows:
            if row is None:
                continue
            slot = self._slots.get(key)
            old = None if slot is None else self._rows[slot]
            if slot is None:
                slot = self._slot_for(key)
                self._cells[EXISTS, slot] = 1
                self._live += 1
            self._write(slot, old or {}, row)
            self._rows[slot] = row

    def dispose(self, rows: int) -> None:
        """Frees about `rows` of its rows; it must not be used any more."""
        del self._rows[-rows:], self._keys[-rows:]
        self.key_order.dispose(rows)
        for _ in range(min(rows, len(self._slots))):
            self._slots.popitem()

    def follow(self, follower: Follower) -> None:
        """Notifies `follower` of the existing columns and of all later changes."""
        self._followers.append(follower)
        for name, column in self._columns.items():
            follower.column_added(name, column)

    def unfollow(self, follower: Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)

    def apply(self, revision: int, changes: Iterable[RowChange]) -> list[bytes]:
        if revision < self.revision:
            raise ValueError(f"revision {revision} after {self.revision}")
        self.revision = revision
        changed = []
        for key, row in changes:
            slot = self._slots.get(key)
            old = None if slot is None else self._rows[slot]
            if old is row or old == row:
                continue
            if slot is None:
                slot = self._slot_for(key)
            self._remember(revision, slot)
            if row is None:
                self._cells[:, slot] = MISSING
                self._gone.append((revision, slot))
                self._gone_at[slot] = revision
                self._live -= 1
                columns = -1
            else:
                columns = self._write(slot, old or {}, row)
                if old is None:
                    self._cells[EXISTS, slot] = 1
                    self._gone_at.pop(slot, None)
                    self._live += 1
                    columns = -1
            self._rows[slot] = row
            changed.append(key)
            for follower in self._followers:
                follower.row_changed(slot, columns)
        if self._gone:
            self._forget(FORGET_PER_APPLY)
        if changed:
            self._applied(len(changed))
        return changed

    def _applied(self, rows: int) -> None:
        self.changes += rows
        # A follower that fails is dropped.
        for follower in tuple(self._followers):
            follower.revision_applied(self.revision)

    def prepare(self, ahead: RowsAhead, changes: Iterable[RowChange]) -> None:
        """Adds a slice of changes to `ahead`, with no visible effect. Each is of another, existing row, and adds no new
        column."""
        found = [(slot, row) for key, row in changes if self._rows[slot := self._slots[key]] != row]
        slots = np.array([slot for slot, _ in found], dtype=np.int64)
        cells = self._cells[: len(self._names), slots]
        ahead.replaced(slots, cells)
        cells[:, [place for place, (_, row) in enumerate(found) if row is None]] = MISSING
        written = []
        for place, (slot, row) in enumerate(found):
            columns, old = (0, self._rows[slot] or {}) if row is not None else (GONE, {})
            for name, value in (row or {}).items():
                column = self._columns.get(name)
                if column is not None and old[name] != value:
                    cells[column, place] = value
                    columns |= 1 << column
            written.append(columns)
        ahead.written(slots, cells, [row for _, row in found], written)

    def finish(self, ahead: RowsAhead) -> None:
        """Makes the prepared changes take effect, as if by `apply`; nothing else may have been applied since."""
        self.revision = ahead.revision
        self._chunks += ahead.chunks
        for slots, cells in ahead.cells:
            self._cells[: len(cells), slots] = cells
        self._gone += ahead.gone
        self._gone_at.update(ahead.gone_at)
        self._live -= len(ahead.gone)
        deque(map(self._rows.__setitem__, ahead.slots, ahead.rows), 0)
        for follower in self._followers:
            for columns, changed in ahead.by_columns.items():
                follower.rows_changed(changed, columns)
        if ahead.slots:
            self._applied(len(ahead.slots))

    def _write(self, slot: int, old: Row, row: Row) -> int:
        """Returns the changed columns as a bit set."""
        columns = 0
        for name, value in row.items():
            before = old.get(name)
            if before is value or before == value:
                continue
            column = self._columns.get(name)
            if column is None:
                column = self._add_column(name)
                if column is None:
                    continue
            table = self._strings.get(column) if type(value) is str else None
            self._cells[column, slot] = value if table is None else table.code(value)  # type: ignore[arg-type]
            columns |= 1 << column
        if old:
            for name in [each for each in old if each not in row]:
                gone = self._columns.get(name)
                if gone is not None:
                    self._cells[gone, slot] = MISSING
                    columns |= 1 << gone
        return columns

    def has_column(self, name: str) -> bool:
        """False: some row has the field, but it has no column."""
        return not self.full or name in self._columns

    def _add_column(self, name: str) -> int | None:
        column = len(self._names)
        if column >= COLUMNS_MAX:
            self.full = True
            return None
        if column == self._cells.shape[0]:
            wider = np.full((column * 2, self._cells.shape[1]), MISSING, dtype=np.int64)
            wider[:column] = self._cells
            self._cells = wider
        self._names.append(name)
        self._columns[name] = column
        spec = self.field_set.find(name)
        if spec is not None and spec.kind == "string":
            self._strings[column] = StringTable()
        for follower in self._followers:
            follower.column_added(name, column)
        return column

    def _slot_for(self, key: bytes) -> int:
        slot = self._free.pop() if self._free else len(self._keys)
        if slot == len(self._keys):
            if slot == self._cells.shape[1]:
                longer = np.full((self._cells.shape[0], slot * 2), MISSING, dtype=np.int64)
                longer[:, :slot] = self._cells
                self._cells = longer
            self._keys.append(key)
            self._rows.append(None)
        else:
            self._keys[slot] = key
        self._slots[key] = slot
        self.key_order.added.append(key)
        return slot

    def _remember(self, revision: int, slot: int) -> None:
        columns = len(self._names)
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or chunk.length == CHUNK_ENTRIES or chunk.cells.shape[0] < columns:
            chunk = Chunk(columns + max(2, columns // 4))
            self._chunks.append(chunk)
        entry = chunk.length
        chunk.cells[:columns, entry] = self._cells[:columns, slot]
        chunk.revisions[entry] = revision
        chunk.slots[entry] = slot
        chunk.length = entry + 1

    # -- reading ---------------------------------------------------------------------------------------------------

    def answer(
        self,
        tests: tuple[Test, ...],
        revision: int,
        limit: int,
        order: Order,
        first: bytes = b"",
        end: bytes | None = None,
    ) -> Matches:
        bounded = bool(first) or end is not None
        if order == "ANY" and limit and not bounded and revision >= self._last_change():
            return self._any(tests, limit)
        if bounded and revision >= self._last_change():
            within = self.key_order.between(first, end)
            if len(within) * NARROW_SHARE < len(self._keys):
                return self._narrow(tests, within, limit)
        mask = self._mask(tests, revision)
        if order == "ANY" and not bounded:
            slots = np.flatnonzero(mask)
            count = len(slots)
            slots = slots[:limit] if limit else slots
        else:
            slots, count = self.key_order.of_mask(mask, first, end, limit)
        keys = self._keys
        found = [keys[slot] for slot in slots.tolist()]
        return Matches(found, count, count > len(found), len(self._keys))

    def _narrow(self, tests: tuple[Test, ...], within: Cells, limit: int) -> Matches:
        """Searches only the rows in `within`, which are in key order."""
        slots = within[evaluate(self._cells, within, self.bound(tests))]
        found = self.keys_of(slots[:limit] if limit else slots)
        return Matches(found, len(slots), len(slots) > len(found), len(within))

    def _any(self, tests: tuple[Test, ...], limit: int) -> Matches:
        """The first `limit` matches by slot, block by block. Counted only if all rows were examined."""
        total = len(self._keys)
        bound = self.bound(tests)
        found: list[bytes] = []
        start, block = 0, BLOCK_ROWS
        while start < total:
            stop = min(start + block, total)
            slots = np.flatnonzero(evaluate(self._cells, slice(start, stop), bound))
            room = limit - len(found)
            found += [self._keys[start + slot] for slot in slots[:room].tolist()]
            if len(slots) > room:
                return Matches(found, -1, True, stop)
            # The rarer the matches, the larger the blocks, to save numpy calls.
            start, block = stop, block * 4
        return Matches(found, len(found), False, total)

    def require_retained(self, revision: int) -> None:
        """Raises: Compacted or FutureRevision if `revision` cannot be answered."""
        if revision < self.oldest_revision:
            raise Compacted(revision, self.oldest_revision)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    def row(self, key: bytes, revision: int) -> Row | None:
        self.require_retained(revision)
        slot = self._slots.get(key)
        if slot is None:
            return None
        for chunk in self._chunks_after(revision):
            start = chunk.after(revision)
            hits = np.flatnonzero(chunk.slots[start : chunk.length] == slot)
            if len(hits):
                return self._decode(chunk.cells[:, start + int(hits[0])])
        return self._rows[slot]

    def rows(self, keys: Sequence[bytes], revision: int) -> list[Row | None]:
        """As `row`, for many keys: one pass over the changes since."""
        self.require_retained(revision)
        slots = self._slots
        found = [None if (slot := slots.get(key)) is None else self._rows[slot] for key in keys]
        if revision < self._last_change():
            places = {slot: place for place, key in enumerate(keys) if (slot := slots.get(key)) is not None}
            for chunk in reversed(self._chunks_after(revision)):
                start = chunk.after(revision)
                for entry in range(chunk.length - 1, start - 1, -1):
                    place = places.get(int(chunk.slots[entry]))
                    if place is not None:
                        found[place] = self._decode(chunk.cells[:, entry])
        return found

    def matching(self, where: Where, revision: int, keys: list[bytes]) -> list[bool]:
        """Whether `where` held for each of `keys` at `revision`; False if the object did not exist."""
        compiled = self._compiled(where, revision)
        if revision >= self._last_change() or len(keys) < 8:
            return [row is not None and compiled.matches(row) for row in self.rows(keys, revision)]
        mask = self._mask(compiled.tests, revision)
        slots = self._slots
        return [(slot := slots.get(key)) is not None and bool(mask[slot]) for key in keys]

    def changed(self, after: int, until: int) -> list[tuple[int, bytes]]:
        self._check_window(after)
        found: list[tuple[int, bytes]] = []
        keys = self._keys
        for chunk in self._chunks_after(after):
            start, stop = chunk.after(after), chunk.after(until)
            slots = chunk.slots[start:stop].tolist()
            found.extend((revision, keys[slot]) for revision, slot in zip(chunk.revisions[start:stop].tolist(), slots))
        return found

    def transitions(self, where: Where, after: int, until: int) -> list[tuple[int, bytes, bool, bool]]:
        """(revision, key, held before, holds after) of every row change in (after, until], in order of revision."""
        self._check_window(after)
        tests = self._compiled(where, min(until, self.revision)).tests
        revisions: list[int] = []
        slots: list[int] = []
        before: list[bool] = []
        for chunk in self._chunks_after(after):
            start, stop = chunk.after(after), chunk.after(until)
            if start < stop:
                revisions.extend(chunk.revisions[start:stop].tolist())
                slots.extend(chunk.slots[start:stop].tolist())
                before.extend(evaluate(chunk.cells, slice(start, stop), self.bound(tests)).tolist())
        if not slots:
            return []
        touched = list(dict.fromkeys(slots))
        keys = self._keys
        state = dict(zip(touched, self.matching(where, min(until, self.revision), [keys[slot] for slot in touched])))
        found = []
        for revision, slot, held in zip(reversed(revisions), reversed(slots), reversed(before)):
            found.append((revision, keys[slot], held, state[slot]))
            state[slot] = held
        found.reverse()
        return found

    def changes_at(self, where: Where, revision: int) -> ChangesAt:
        """The row changes of `revision`. The revision before it and later ones must not be compacted while it is
        read."""
        self._check_window(revision - 1)
        tests = self._compiled(where, min(revision, self.revision)).tests
        mask, chunks = self._mask(tests, min(revision, self.revision)), self._chunks_after(revision - 1)
        return ChangesAt(revision, chunks, mask, self._slots, self._keys, lambda: self.bound(tests))

    # -- for structures over these rows --------------------------------------------------------------------------------

    @property
    def slot_end(self) -> int:
        """Above every slot with a row now or at a retained revision."""
        return len(self._keys)

    @property
    def live(self) -> int:
        """How many objects exist."""
        return self._live

    @property
    def column_count(self) -> int:
        return len(self._names)

    def exists(self, slot: int) -> bool:
        return self._rows[slot] is not None

    def live_slots(self, start: int, stop: int) -> Cells:
        """The slots of [start, stop) with an existing object."""
        found: Cells = np.flatnonzero(self._cells[EXISTS, start : min(stop, len(self._keys))] != MISSING) + start
        return found

    def point(self, slot: int, columns: Sequence[int]) -> tuple[int, ...]:
        """The cells of a row; column -1, for a field that no row has had, is MISSING."""
        item = self._cells.item
        return tuple([item(column, slot) if column >= 0 else MISSING for column in columns])

    def points(self, slots: Cells, columns: Sequence[int]) -> Cells:
        """The same for many rows."""
        found: Cells = np.full((len(slots), len(columns)), MISSING, dtype=np.int64)
        for place, column in enumerate(columns):
            if column >= 0:
                found[:, place] = self._cells[column, slots]
        return found

    def rows_at(self, slots: Cells) -> Cells:
        """The cells of the rows in `slots`, including slots that never had a row."""
        return self._cells[: len(self._names), slots]

    def code_of(self, name: str, text: str) -> int:
        """The code of `text` in the column of field `name`; UNKNOWN if no row has it."""
        column = self._columns.get(name)
        table = None if column is None else self._strings.get(column)
        return UNKNOWN if table is None else table.code_of(text)

    def passing(self, tests: tuple[Test, ...], slots: Cells) -> Mask:
        """The rows in `slots` that pass `tests` now."""
        return evaluate(self._cells, slots, self.bound(tests))

    def changed_since(self, revision: int, tests: tuple[Test, ...]) -> Changed | None:
        """The rows changed since `revision`; None if there are none."""
        if revision >= self._last_change():
            return None
        bound = self.bound(tests)
        slots, held = [], []
        for chunk in self._chunks_after(revision):
            entries = slice(chunk.after(revision), chunk.length)
            slots.append(chunk.slots[entries])
            held.append(evaluate(chunk.cells, entries, bound))
        # The first entry of each slot is its oldest change, which holds the cells at `revision`.
        distinct, first = np.unique(np.concatenate(slots), return_index=True)
        return Changed(distinct, np.concatenate(held)[first])

    def unchanged_since(self, revision: int) -> bool:
        return revision >= self._last_change()

    def keys_of(self, slots: Cells) -> list[bytes]:
        keys = self._keys
        return [keys[slot] for slot in slots.tolist()]

    def may_match(self, where: Where, revision: int) -> bool:
        compiled = self._compiled(where, revision)
        if revision >= self._last_change():
            return bool(self._any(compiled.tests, 1).keys)
        return bool(self._mask(compiled.tests, revision).any())

    def hash(self, revision: int, field_set: FieldSet | None = None) -> int:
        """A 64-bit digest of all rows at `revision`: equal rows, equal digest, whatever the history. Restricted to the
        fields of `field_set`, if given."""
        digest = hashlib.blake2b(digest_size=8)
        keys = self.keys_at(revision)
        only = None
        if field_set is not None and field_set != self.field_set:
            only = {name for name in self._columns if field_set.find(name) is not None}
        for key, row in zip(keys, self.rows(keys, revision)):
            items = (row or {}).items()
            digest.update(
                repr((key, sorted(items if only is None else [(k, v) for k, v in items if k in only]))).encode()
            )
        return int.from_bytes(digest.digest(), "big")

    def keys_at(self, revision: int) -> list[bytes]:
        """All objects that existed at `revision`, in key order."""
        return self.query(Where(), revision).keys

    # -- the past --------------------------------------------------------------------------------------------------

    def compact(self, revision: int) -> None:
        if revision <= self.oldest_revision:
            return
        self.oldest_revision = revision
        self.revision = max(self.revision, revision)
        keep = 0
        while keep < len(self._chunks) and self._chunks[keep].after(revision) == self._chunks[keep].length:
            keep += 1
        # The first remaining chunk may begin with entries up to `revision`; they are never read again.
        del self._chunks[:keep]
        self._forget(FORGET_PER_COMPACT)
        for follower in self._followers:
            follower.rows_compacted(revision)
        self._forget_strings()

    def _forget(self, rows: int) -> None:
        """Frees the slots of about `rows` objects that are deleted at every retained revision; no answer depends on
        it."""
        done = 0
        for gone_revision, slot in islice(self._gone, rows):
            if gone_revision > self.oldest_revision:
                break
            done += 1
            # Otherwise the object was created again, and may have been deleted again later.
            if self._gone_at.get(slot) == gone_revision:
                del self._gone_at[slot]
                del self._slots[self._keys[slot]]
                self.key_order.removed.append(self._keys[slot])
                self._free.append(slot)
        if done:
            del self._gone[:done]

    def _forget_strings(self) -> None:
        for column, table in self._strings.items():
            if len(table) > 2 * self._live + 4096:
                arrays = [self._cells[column, : len(self._keys)]]
                arrays += [chunk.cells[column, : chunk.length] for chunk in self._chunks if column < len(chunk.cells)]
                table.keep_only(arrays, MISSING)

    def stats(self) -> IndexStats:
        logged = sum(chunk.length for chunk in self._chunks)
        size = self._cells.nbytes + sum(chunk.cells.nbytes + 16 * CHUNK_ENTRIES for chunk in self._chunks)
        size += sum(len(table) * 100 for table in self._strings.values())
        size += len(self._keys) * (200 + 50 * len(self._names))
        return IndexStats("columns", self._live, logged, size, self.oldest_revision, self.revision)

    # -- inner -----------------------------------------------------------------------------------------------------

    def _check_window(self, after: int) -> None:
        if after < self.oldest_revision:
            raise Compacted(after, self.oldest_revision)

    def _last_change(self) -> int:
        """The revision of the newest logged change; from it on the current columns are the answer."""
        if not self._chunks:
            return self.oldest_revision
        chunk = self._chunks[-1]
        return int(chunk.revisions[chunk.length - 1])

    def _chunks_after(self, revision: int) -> list[Chunk]:
        """The chunks with changes after `revision`, oldest first."""
        first = len(self._chunks)
        while first > 0:
            chunk = self._chunks[first - 1]
            if chunk.revisions[chunk.length - 1] <= revision:
                break
            first -= 1
        return self._chunks[first:]

    def _mask(self, tests: tuple[Test, ...], revision: int) -> Mask:
        """Per slot: whether the row at `revision` exists and passes all tests."""
        bound = self.bound(tests)
        mask = evaluate(self._cells, slice(0, len(self._keys)), bound)
        for chunk in reversed(self._chunks_after(revision)):
            start = chunk.after(revision)
            held = evaluate(chunk.cells, slice(start, chunk.length), bound)
            # Reversed, so that of several changes of one row the oldest is written last and wins.
            mask[chunk.slots[start : chunk.length][::-1]] = held[::-1]
        return mask

    def bound(self, tests: tuple[Test, ...]) -> Bound:
        """Tests as (column, operator, operand), with comparisons of texts converted to comparisons of codes."""
        bound: Bound = []
        for name, kind, op, values in tests:
            column = self._columns.get(name)
            if column is None or kind != "string" or op == "exists":
                bound.append((column, op, values[0] if len(values) == 1 else values))
                continue
            table = self._strings[column]
            if op in ("=", "!="):
                bound.append((column, op, table.code_of(str(values[0]))))
            elif op == "in":
                bound.append((column, op, tuple(table.code_of(str(value)) for value in values)))
            else:
                bound.append((column, "table", table.truth(op, str(values[0]))))
        return bound

    def _decode(self, cells: npt.NDArray[np.int64]) -> Row | None:
        values = cells.tolist()
        if values[EXISTS] == MISSING:
            return None
        row: dict[str, Value] = {}
        for column in range(1, min(len(self._names), len(values))):
            value = values[column]
            if value != MISSING:
                table = self._strings.get(column)
                row[self._names[column]] = value if table is None else table.text(value)
        return row
