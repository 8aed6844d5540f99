"""What a front of many shards is: asked for all of them at once, it says which may hold a node that fits.

A front may say "perhaps" in vain, and never "no" in vain. It stands before shards of nodes, each a point of what is
free (0 or more); a request is the least value of each dimension, MISSING where nothing is asked. Node i is in shard i
modulo their number.

    class MyFront:
        front = "mine"
        bound = 1.0
        def __init__(self, points: IntArray, shards: int) -> None: ...
        def passing(self, asked: IntArray) -> Bools: ...
        def put(self, slot: int, point: Point) -> None: ...
        def size_bytes(self) -> int: ...

A distribution adds its own by an entry point of the group `minikube_py.fronts`.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from minikube_py.index.structure import IntArray, Point

GROUP: Final = "minikube_py.fronts"
Bools = npt.NDArray[np.bool_]


@runtime_checkable
class Front(Protocol):
    """See the module. Built as `Front(points, shards, **options)`."""

    front: str
    """Its name among the others."""

    bound: float
    """The most of the full shards, in which no node has room, that it lets through, as a share; 1.0: no promise."""

    def passing(self, asked: IntArray) -> Bools:
        """Requests x shards: False only where no node of the shard has all that the request asks for."""

    def put(self, slot: int, point: Point) -> None:
        """What is free of the node in `slot` is now `point`, whatever it was."""

    def size_bytes(self) -> int:
        """What has to be at hand in order to ask: what a cell would publish of itself."""


@runtime_checkable
class Counting(Front, Protocol):
    """A front that counts its upkeep."""

    rows_read: int
    """Nodes of its shards that it has looked at again since it was built."""

    def held_bytes(self) -> int:
        """With what it keeps for its upkeep alone."""


def holding(points: IntArray, shards: int, asked: IntArray) -> Bools:
    """The truth, by brute force: requests x shards."""
    truth: Bools = np.zeros((len(asked), shards), dtype=np.bool_)
    for row, request in enumerate(asked):
        truth[row, np.flatnonzero((points >= request).all(axis=1)) % shards] = True
    return truth
