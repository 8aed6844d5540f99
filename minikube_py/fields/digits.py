"""Whole numbers in texts that anyone may have written: `int` raises ValueError for more than 4,300 digits."""

from __future__ import annotations

from typing import Final

DIGITS_MAX: Final = 40
BEYOND: Final = 10**DIGITS_MAX
"""Stands for every number of more digits: larger than any type in use."""


def whole_number(text: str) -> int:
    """As `int`, of digits with or without a sign; beyond DIGITS_MAX digits it is BEYOND with that sign.

    Raises: ValueError where that is not what the text is."""
    if len(text) <= DIGITS_MAX:
        return int(text)
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"invalid literal for a whole number: {text[:DIGITS_MAX]!r}...")
    kept = digits.lstrip("0")
    number = BEYOND if len(kept) > DIGITS_MAX else int(kept or "0")
    return -number if text[0] == "-" else number
