"""Validation of a structure's options."""

from __future__ import annotations

from minikube_py.errors import InvalidRequest

DIMENSIONS_LIMIT = 16
"""The most dimensions of a structure in this package: an index over more fields answers few queries."""
SLOTS_LIMIT = 1 << 24
"""Slots are below this: 16 million rows of three dimensions are half a gigabyte of columns."""


def within(structure: str, option: str, value: int, low: int, high: int) -> int:
    """`value` if it lies in low..high (closed).

    Raises: InvalidRequest, naming structure, option and range."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequest(f"structure {structure}: {option} is {value!r}; it takes {low} to {high}")
    return value


def check_dimensions(structure: str, dimensions: int) -> int:
    return within(structure, "dimensions", dimensions, 1, DIMENSIONS_LIMIT)


def check_slot(slot: int) -> None:
    """Raises: ValueError if `slot` is invalid; called only when a structure grows."""
    if not 0 <= slot < SLOTS_LIMIT:
        raise ValueError(f"slot {slot} is not in 0..{SLOTS_LIMIT - 1}: a new row takes the lowest slot that is free")


def grown(capacity: int, slot: int) -> int:
    """The capacity, a power of two, that includes `slot`; at least twice the old one.

    Raises: as `check_slot`."""
    check_slot(slot)
    return max(capacity * 2, 1 << slot.bit_length())
