"""The arrival order of pods: a list's, shuffled, then more samples, up to 130 % of the GPUs.

As in the simulator behind Weng et al. (USENIX ATC 2023); the random numbers are Python's, so orders per seed differ
from theirs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from minikube_py.lab.pod_lists import Pods
from minikube_py.scheduler.packing.fragmentation import Shape

TUNED_TO: Final = 1.3


class Arrival(NamedTuple):
    shape: Shape
    memory_mib: int

    @property
    def gpu_total_milli(self) -> int:
        return self.shape.gpus * self.shape.gpu_milli


def drawn(pods: Pods, capacity_milli: int, seed: int, ratio: float = TUNED_TO) -> list[Arrival]:
    """In order. Until the GPU requests reach `ratio` of the capacity, pods are drawn again, uniformly; if they exceed
    it, pods are dropped."""
    rng = random.Random(f"packing {seed}")
    known = [Arrival(shape, memory) for (shape, memory), count in pods.items() for _ in range(count)]
    found = list(known)
    rng.shuffle(found)
    limit = ratio * capacity_milli
    asked = sum(arrival.gpu_total_milli for arrival in found)
    if asked > limit:
        while asked > limit:
            asked -= found.pop(rng.randrange(len(found))).gpu_total_milli
        return found
    while any(arrival.gpu_total_milli for arrival in known):
        more = rng.choice(known)
        # The simulator compares the pod's request per device here.
        if asked + more.shape.gpu_milli > limit:
            break
        asked += more.gpu_total_milli
        found.append(more)
    return found


def order_of_nodes(count: int, seed: int) -> Sequence[int]:
    """The order among nodes with equal scores."""
    order = list(range(count))
    random.Random(f"nodes {seed}").shuffle(order)
    return order
