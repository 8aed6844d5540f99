"""The deletion of many objects, prepared for a table in slices, so that applying it is one short step.

Rows are removed, and rows with sums over them change. Each slice computes the new cells, log entries and totals without
changing the table: the result is valid as long as the table does not change."""

from __future__ import annotations

from typing import Final

from minikube_py.index.cells import CHUNK_ENTRIES, Cells, Chunk
from minikube_py.index.contract import Row

ROWS_PER_SLICE: Final = 500
GONE: Final = -1
"""All columns: the row is created or deleted."""


class RowsAhead:
    """Changes of existing rows, all at `revision`; `ColumnIndex.prepare` adds to them, `finish` makes them take effect.

    `by_columns`: the slots by the changed columns, a bit set; `gone`: those whose row is deleted, as the index keeps
    them."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.slots: list[int] = []
        self.rows: list[Row | None] = []
        self.chunks: list[Chunk] = []
        self.cells: list[tuple[Cells, Cells]] = []
        self.by_columns: dict[int, list[int]] = {}
        self.gone: list[tuple[int, int]] = []
        self.gone_at: dict[int, int] = {}

    def replaced(self, slots: Cells, cells: Cells) -> None:
        """`cells` (columns x slots) are the log entries of these rows."""
        columns, done = len(cells), 0
        while done < len(slots):
            if not self.chunks or self.chunks[-1].length == CHUNK_ENTRIES:
                self.chunks.append(Chunk(columns + max(2, columns // 4)))
            chunk = self.chunks[-1]
            start, stop = chunk.length, min(chunk.length + len(slots) - done, CHUNK_ENTRIES)
            taken = slice(done, done + stop - start)
            chunk.cells[:columns, start:stop] = cells[:, taken]
            chunk.revisions[start:stop] = self.revision
            chunk.slots[start:stop] = slots[taken]
            chunk.length = stop
            done = taken.stop

    def written(self, slots: Cells, cells: Cells, rows: list[Row | None], columns: list[int]) -> None:
        """`cells` and `rows` are the new content of the slots, and `columns` the changed ones of each."""
        self.cells.append((slots, cells))
        self.rows += rows
        self.slots += slots.tolist()
        for slot, changed in zip(slots.tolist(), columns):
            self.by_columns.setdefault(changed, []).append(slot)
            if changed == GONE:
                self.gone.append((self.revision, slot))
                self.gone_at[slot] = self.revision


class SumAhead:
    """The effect of deletions on one sum: `keys` no longer contribute, `totals` are the new ones of their targets."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.totals: dict[bytes, dict[str, int]] = {}


class Ending:
    """The effect of deleting many objects on one table. `keys`: its own objects among them; `rewritten`: the rows of
    others; `unreadable`: those of `Table.unreadable`. `remains` holds what is removed, because freeing it takes as long
    as making it."""

    def __init__(self, revision: int, sums: int) -> None:
        self.rows = RowsAhead(revision)
        self.sums = [SumAhead() for _ in range(sums)]
        self.keys: dict[bytes, None] = {}
        self.unreadable: list[bytes] = []
        self.rewritten: dict[bytes, dict[str, int | str]] = {}
        self.remains: list[list[object]] = []

    def dispose(self, rows: int) -> bool:
        """Frees about `rows` of the removed data; True once nothing is left."""
        for each in self.remains:
            del each[-rows:]
        return not any(self.remains)
