"""A front of many shards: queried for all of them at once, it returns those that may hold a node that fits.

False positives are permitted, false negatives are not. It is in front of shards of nodes, each a point of free amounts
(0 or more); a request is the least value of each dimension, MISSING if unconstrained. Node i is in shard i modulo their
number.

    class MyFront:
        front = "mine"
        bound = 1.0
        def __init__(self, points: IntArray, shards: int) -> None: ...
        def passing(self, asked: IntArray) -> Bools: ...
        def put(self, slot: int, point: Point) -> None: ...
        def size_bytes(self) -> int: ...

If it has a method `in_vain(shard, asked)`, whoever opened a shard for a request, of dimensions, and found no node with
room for it tells it so, and it may read the shard's nodes again at that occasion.

A distribution adds its own by an entry point of the group `minikube_py.fronts`."""

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
    """Its unique name."""

    bound: float
    """The maximum share of full shards, which have no node with space, that it lets through; 1.0: no guarantee."""

    def passing(self, asked: IntArray) -> Bools:
        """Requests x shards: False only if no node of the shard has everything the request needs."""

    def put(self, slot: int, point: Point) -> None:
        """The free amounts of the node in `slot` are now `point`."""

    def size_bytes(self) -> int:
        """Bytes needed to query it: what a cell would publish about itself."""


@runtime_checkable
class Counting(Front, Protocol):
    """A front that counts its maintenance."""

    rows_read: int
    """Nodes of its shards examined again since it was built."""

    def held_bytes(self) -> int:
        """Including what it keeps only for maintenance."""


def holding(points: IntArray, shards: int, asked: IntArray) -> Bools:
    """The exact answer, by brute force: requests x shards."""
    truth: Bools = np.zeros((len(asked), shards), dtype=np.bool_)
    for row, request in enumerate(asked):
        truth[row, np.flatnonzero((points >= request).all(axis=1)) % shards] = True
    return truth
