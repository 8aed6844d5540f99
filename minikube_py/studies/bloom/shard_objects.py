"""A shard's row as an object of realistic size, for shards that hold objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import orjson

from minikube_py.index.structure import MISSING, IntArray

OBJECT_BYTES: Final = 320


def field_name(dimension: int) -> str:
    return f"field{dimension}"


def object_of(slot: int, point: Sequence[int]) -> bytes:
    """JSON, padded to the size of a stored object."""
    values = {field_name(dimension): value for dimension, value in enumerate(point) if value != MISSING}
    plain = orjson.dumps({"slot": slot, "values": values, "about": ""})
    return plain[:-2] + b"x" * (OBJECT_BYTES - len(plain)) + plain[-2:]


def points_of(objects: Iterable[bytes], dimensions: int) -> tuple[IntArray, IntArray]:
    """Slots and points, a row each."""
    rows: list[dict[str, Any]] = [orjson.loads(each) for each in objects]
    names = [field_name(dimension) for dimension in range(dimensions)]
    slots = np.array([row["slot"] for row in rows], dtype=np.int64)
    points = np.array([[row["values"].get(name, MISSING) for name in names] for row in rows], dtype=np.int64)
    return slots, points.reshape(-1, dimensions)
