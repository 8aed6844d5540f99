"""Texts as small integers, so that a column of strings is a column of int64 like any other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

UNKNOWN = -2
"""The code of a text that no row has."""


class StringTable:
    """Codes from 0, in order of first use; reused after `keep_only` dropped their text."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._texts: list[str | None] = []
        self._free: list[int] = []
        self._sorted: list[str] | None = None

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, text: str) -> int:
        """The code of `text`, a new one if it has none."""
        code = self._codes.get(text)
        if code is None:
            if self._free:
                code = self._free.pop()
                self._texts[code] = text
            else:
                code = len(self._texts)
                self._texts.append(text)
            self._codes[text] = code
            self._sorted = None
        return code

    def code_of(self, text: str) -> int:
        return self._codes.get(text, UNKNOWN)

    def text(self, code: int) -> str:
        text = self._texts[code]
        assert text is not None
        return text

    def truth(self, op: str, bound: str) -> npt.NDArray[np.bool_]:
        """For each code whether its text compares so with `bound`; plus one entry, False, for a missing value."""
        if self._sorted is None:
            self._sorted = sorted(self._codes)
        low, high = 0, len(self._sorted)
        if op == "<":
            high = bisect_left(self._sorted, bound)
        elif op == "<=":
            high = bisect_right(self._sorted, bound)
        elif op == ">":
            low = bisect_right(self._sorted, bound)
        else:
            low = bisect_left(self._sorted, bound)
        table = np.zeros(len(self._texts) + 1, dtype=np.bool_)
        codes = self._codes
        table[[codes[text] for text in self._sorted[low:high]]] = True
        return table

    def keep_only(self, columns: list[npt.NDArray[np.int64]], missing: int) -> None:
        """Drops every text whose code is in none of `columns`."""
        used: set[Any] = set()
        for column in columns:
            used.update(np.unique(column).tolist())
        used.discard(missing)
        for text, code in list(self._codes.items()):
            if code not in used:
                del self._codes[text]
                self._texts[code] = None
                self._free.append(code)
        self._sorted = None
