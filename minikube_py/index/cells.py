"""Columns of int64, the comparisons over them, and the log of what each change of a row replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from minikube_py.index.structure import MISSING

Cells = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EXISTS = 0
"""The column that says whether the row exists."""
CHUNK_ENTRIES = 2048


class Changed(NamedTuple):
    """The rows changed since a revision: their `slots`, each once, and whether each passed then."""

    slots: Cells
    held: Mask


class Chunk:
    """A piece of the log: entry i says that until `revisions[i]` the row in `slots[i]` was `cells[:, i]`."""

    __slots__ = ("cells", "length", "revisions", "slots")

    def __init__(self, columns: int) -> None:
        self.cells: Cells = np.full((columns, CHUNK_ENTRIES), MISSING, dtype=np.int64)
        self.revisions: Cells = np.empty(CHUNK_ENTRIES, dtype=np.int64)
        self.slots: Cells = np.empty(CHUNK_ENTRIES, dtype=np.int64)
        self.length = 0

    def after(self, revision: int) -> int:
        """The first entry with a greater revision."""
        return int(np.searchsorted(self.revisions[: self.length], revision, side="right"))


Bound = list[tuple[int | None, str, Any]]
"""Tests as (column, operator, operand). Column None: no row has had that field yet. In addition to those of `Where`
there is the operator "table": a truth table by code."""


class ChangesAt:
    """The row changes of one revision, readable in slices while later ones are applied. `mask`: by slot, whether the
    row passed after it; `bound` gives the current tests."""

    def __init__(
        self,
        revision: int,
        chunks: Sequence[Chunk],
        mask: Mask,
        slots: Mapping[bytes, int],
        keys: Sequence[bytes],
        bound: Callable[[], Bound],
    ) -> None:
        self._revision, self._chunks, self._mask = revision, chunks, mask
        self._slots, self._keys, self._bound = slots, keys, bound

    def __iter__(self) -> Iterator[list[tuple[bytes, bool, bool]]]:
        """Yields them in slices: the key, whether its row passed before, whether after."""
        for chunk in self._chunks:
            entries = slice(chunk.after(self._revision - 1), chunk.after(self._revision))
            slots = chunk.slots[entries]
            before = evaluate(chunk.cells, entries, self._bound()).tolist()
            yield list(zip(map(self._keys.__getitem__, slots.tolist()), before, self._mask[slots].tolist()))

    def passes(self, keys: Iterable[bytes]) -> list[bool]:
        """Whether each row passed after it."""
        mask, slots = self._mask, self._slots
        return [(slot := slots.get(key)) is not None and slot < len(mask) and bool(mask[slot]) for key in keys]


def evaluate(cells: Cells, rows: slice | Cells, bound: Bound) -> Mask:
    """The conjunction over `rows` of `cells` (columns x rows); a row that does not exist fails."""
    mask: Mask | None = None
    for column, op, operand in bound:
        if column is None or column >= len(cells):
            if op != "!=":
                return np.zeros(cells[EXISTS, rows].shape, dtype=np.bool_)
            continue
        one = test(cells[column, rows], op, operand)
        if mask is None:
            mask = one
        else:
            mask &= one
    if mask is None or all(op == "!=" for _, op, _ in bound):
        exists: Mask = cells[EXISTS, rows] != MISSING
        if mask is not None:
            exists &= mask
        return exists
    return mask


def test(values: Cells, op: str, operand: Any) -> Mask:
    result: Any
    if op == ">=":
        result = values >= operand
    elif op == ">":
        result = values > operand
    elif op == "=":
        result = values == operand
    elif op == "!=":
        result = values != operand
    elif op == "<":
        result = (values < operand) & (values != MISSING)
    elif op == "<=":
        result = (values <= operand) & (values != MISSING)
    elif op == "exists":
        result = values != MISSING
    elif op == "in":
        result = np.isin(values, operand)
    else:
        # A truth table by code; its last entry, at index -1, is that of a missing value.
        table: Mask = operand
        return table[np.where(values == MISSING, -1, values)]
    mask: Mask = result
    return mask
