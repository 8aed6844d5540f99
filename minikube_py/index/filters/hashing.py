"""Keys as unsigned numbers in the same order, and hashing them: one by one as Python ints, and many at once in numpy.

Both forms give the same values. Hashes are `splitmix64`'s finalizer (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minikube_py.errors import InvalidRequest
from minikube_py.index.structure import IntArray

Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

MASK = (1 << 64) - 1
SIGN = 1 << 63
GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def unsigned(keys: IntArray) -> Words:
    """int64 keys as uint64, in the same order: the least int64 becomes 0. A single one is `key + SIGN`."""
    array = np.ascontiguousarray(keys, dtype=np.int64)
    words: Words = array.view(np.uint64) ^ np.uint64(SIGN)
    return words


def mix(value: int) -> int:
    """64 bits to 64 bits, one to one."""
    value = (value ^ (value >> 30)) * _FIRST & MASK
    value = (value ^ (value >> 27)) * _SECOND & MASK
    return value ^ (value >> 31)


def mix_many(values: Words) -> Words:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    mixed: Words = values ^ (values >> np.uint64(31))
    return mixed


def salt(seed: int) -> int:
    """Added to a value before `mix`, so that each seed gives another hash."""
    return mix(seed * GOLDEN + GOLDEN & MASK)


def as_keys(keys: object) -> IntArray:
    """A flat int64 array. Raises InvalidRequest for anything else."""
    array = np.asarray(keys)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.signedinteger):
        raise InvalidRequest(
            f"a filter is built from a flat int64 array, not from {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64, copy=False)


def within(name: str, value: float, least: float, most: float) -> None:
    """Raises InvalidRequest if an option is outside [least, most]."""
    if not least <= value <= most:
        raise InvalidRequest(f"{name} is {value:g}: it must be from {least:g} to {most:g}")
