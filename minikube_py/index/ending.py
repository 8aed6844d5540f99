"""The end of many objects, made ready for a table in slices: what is left of it is one short step.

Rows go, and those of the objects that they were summed for change. Each slice works out what will stand in the cells,
in the log and in the totals, and changes nothing of the table: it is sound as long as the table stays as it is.
"""

from __future__ import annotations

from typing import Final

from minikube_py.index.cells import CHUNK_ENTRIES, Cells, Chunk
from minikube_py.index.contract import Row

ROWS_PER_SLICE: Final = 500
GONE: Final = -1
"""Stands for all columns: the row came or went."""


class RowsAhead:
    """Changes of rows that exist, all at `revision`; `ColumnIndex.prepare` adds to them, `finish` has them take effect.

    `by_columns`: the slots by the columns that change, a bit each; `gone` those whose row goes, as the index keeps
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
        """`cells` (columns x slots) are what the log will say of these rows."""
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
        """`cells` and `rows` are what will stand in the slots, and `columns` those of each that change."""
        self.cells.append((slots, cells))
        self.rows += rows
        self.slots += slots.tolist()
        for slot, changed in zip(slots.tolist(), columns):
            self.by_columns.setdefault(changed, []).append(slot)
            if changed == GONE:
                self.gone.append((self.revision, slot))
                self.gone_at[slot] = self.revision


class SumAhead:
    """What the end of objects makes of one sum: `keys` add nothing any more, `totals` are those of their targets."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.totals: dict[bytes, dict[str, int]] = {}


class Ending:
    """What the end of many objects makes of one table. `keys`: its own objects among them; `rewritten`: the rows of
    others. What goes is kept in `remains`, for to free it takes as long as to make it."""

    def __init__(self, revision: int, sums: int) -> None:
        self.rows = RowsAhead(revision)
        self.sums = [SumAhead() for _ in range(sums)]
        self.keys: dict[bytes, None] = {}
        self.rewritten: dict[bytes, dict[str, int | str]] = {}
        self.remains: list[list[object]] = []

    def dispose(self, rows: int) -> bool:
        """Frees about `rows` of what is gone; True once nothing is left."""
        for each in self.remains:
            del each[-rows:]
        return not any(self.remains)
