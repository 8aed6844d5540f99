"""A sample of a host's rows, to estimate the share that passes a comparison."""

from __future__ import annotations

from typing import Final

import numpy as np

from minikube_py.fields.where import Test
from minikube_py.index.cells import Cells, Mask, evaluate
from minikube_py.index.columns import ColumnIndex

SAMPLE_ROWS: Final = 1024
_ALL: Final = slice(None)
STALE_AFTER: Final = 1024
"""Changed rows after which a new sample is taken; fewer if there are few rows."""


class Sample:
    """Current rows, evenly spread over the slots; deterministic for the same changes."""

    def __init__(self, host: ColumnIndex) -> None:
        self._host = host
        self._cells: Cells = np.empty((0, 0), dtype=np.int64)
        self._changes = -1

    def passing(self, tests: tuple[Test, ...]) -> list[Mask]:
        """For each test, which of the rows pass it."""
        host = self._host
        if not 0 <= host.changes - self._changes < min(STALE_AFTER, 16 + host.live // 4) or self._changes < 0:
            self._take()
        cells, rows = self._cells, _ALL
        return [evaluate(cells, rows, [one]) for one in host.bound(tests)]

    def _take(self) -> None:
        host = self._host
        self._changes = host.changes
        step = max(1, host.slot_end // SAMPLE_ROWS)
        self._cells = host.rows_at(np.arange(0, host.slot_end, step, dtype=np.int64))
