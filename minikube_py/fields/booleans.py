"""Booleans as text. Source: Go's `strconv.ParseBool`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Go's spellings of true and of false; others are invalid."""
