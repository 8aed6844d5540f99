"""Integers of any size, and their representation in a row of int64.

Objects hold numbers without limit (`cpu: 10P`, `1e300`); rows, columns and indexes hold int64. One rule everywhere:

- An extractor of version 2 reads exact values up to 2**127 in size, and clamps larger ones.
- Sums and differences are exact; only the value that a row holds is clamped, to EDGE = 2**63 - 1 and to -EDGE. -2**63
  stands for a missing value.
- An edge therefore means "this or beyond". Comparisons without a definite answer for it are refused: with EDGE only
  `>=` and `<` are allowed, with -EDGE only `<=` and `>`, and beyond them nothing. So no inequality is answered wrongly.

Extractors of version 1 omit values that do not fit int64."""

from __future__ import annotations

from typing import Final

EDGE: Final = (1 << 63) - 1
WIDE: Final = 1 << 127


def clamp(value: int) -> int:
    """The nearest value that fits a row."""
    return -EDGE if value < -EDGE else EDGE if value > EDGE else value


def wide(value: int) -> int:
    """The nearest value that may be added up."""
    return -WIDE if value < -WIDE else WIDE if value > WIDE else value


def answerable(op: str, value: int) -> bool:
    """Whether `op value` has the same result for a clamped value as for the exact one."""
    if -EDGE < value < EDGE:
        return True
    return (value == EDGE and op in (">=", "<")) or (value == -EDGE and op in ("<=", ">"))
