"""How much idle GPU is useless to the expected pods: the measure of Weng et al., Beware of Fragmentation (USENIX ATC
2023), section 4.

For each typical pod, a node loses all its idle GPU if the pod does not fit or requests none, otherwise what is idle on
devices with too little left for it. A node's loss is the weighted mean over the typical pods. All figures are integers
(weight times thousandths), so that equal states have exactly equal losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from minikube_py.scheduler.framework import IntArray

WHOLE: Final = 1000
"""Thousandths of one device."""
POPULAR: Final = 0.95


class Shape(NamedTuple):
    """A pod's request: `gpu_milli` of each of its `gpus`. `models`: those it accepts, empty for any."""

    cpu_milli: int
    gpu_milli: int
    gpus: int
    models: tuple[str, ...] = ()


def typical(counts: Mapping[Shape, int], share: float = POPULAR) -> dict[Shape, int]:
    """The most frequent shapes that make up `share` of all pods, with their counts; of equally frequent ones the larger
    first."""
    wanted = share * sum(counts.values())
    found: dict[Shape, int] = {}
    reached = 0
    for shape in sorted(counts, key=lambda each: (counts[each], each), reverse=True):
        if reached >= wanted:
            break
        found[shape] = counts[shape]
        reached += counts[shape]
    return found


class Fragmentation:
    """`weight`: the sum of all weights; `lost` returns this times thousandths.

    Typical pods that differ only in cpu form a group: the weight that fits is a step function of the node's free cpu.
    For each amount that a typical pod requests per device, `usable` and `fitting` are the total left on devices with
    that much left, and the number of these devices."""

    def __init__(self, weights: Mapping[Shape, int]) -> None:
        self.weight = sum(weights.values())
        asking = {shape: weight for shape, weight in weights.items() if shape.gpu_milli and shape.gpus}
        amounts = sorted({shape.gpu_milli for shape in asking})
        left = np.arange(WHOLE + 1, dtype=np.int64)[:, None]
        enough = left >= np.array(amounts, np.int64)[None, :]
        self.fits: IntArray = enough.astype(np.int64)
        """By the amount left of a device, for each requested amount whether it suffices."""
        self.worth: IntArray = self.fits * left
        """The same, times the amount left."""
        groups = sorted({shape._replace(cpu_milli=0) for shape in asking})
        self._amount: IntArray = np.array([amounts.index(group.gpu_milli) for group in groups], np.int64)
        self._gpus: IntArray = np.array([group.gpus for group in groups], np.int64)
        self._accepted = [frozenset(group.models) for group in groups]
        self._steps: IntArray = np.array(sorted({shape.cpu_milli for shape in asking}), np.int64)
        self._by_cpu: IntArray = np.zeros((len(self._steps) + 1, len(groups)), np.int64)
        for shape, weight in asking.items():
            group = groups.index(shape._replace(cpu_milli=0))
            self._by_cpu[int(np.searchsorted(self._steps, shape.cpu_milli)) + 1 :, group] += weight
        self._models: dict[str, int] = {}
        self._takes: IntArray = np.zeros((0, len(groups)), np.int64)

    def model(self, name: str) -> int:
        """The model's number, for `lost`."""
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = len(self._models)
            row = [int(not accepted or name in accepted) for accepted in self._accepted]
            self._takes = np.vstack((self._takes, np.array([row], np.int64).reshape(1, -1)))
        return found

    def of_devices(self, left: IntArray) -> tuple[IntArray, IntArray]:
        """(usable, fitting) per node, from rows of the amounts left per device."""
        return self.worth[left].sum(axis=1), self.fits[left].sum(axis=1)

    def lost(self, cpu: IntArray, model: IntArray, idle: IntArray, usable: IntArray, fitting: IntArray) -> IntArray:
        """By node. `idle`: the amount left over all devices."""
        weights = self._by_cpu[np.searchsorted(self._steps, cpu, side="right")]
        hosts = (fitting[:, self._amount] >= self._gpus) * self._takes[model]
        of_use = usable[:, self._amount]
        used: IntArray = (of_use * weights * hosts).sum(axis=1)
        return idle * self.weight - used

    def share(self, free: Iterable[tuple[int, str, Sequence[int]]]) -> float:
        """Thousandths lost on nodes given as (free cpu, model, amount left per device)."""
        nodes = list(free)
        width = max((len(left) for _, _, left in nodes), default=0)
        rows = np.zeros((len(nodes), width), np.int64)
        for row, (_, _, left) in zip(rows, nodes, strict=True):
            row[: len(left)] = left
        cpu = np.array([node[0] for node in nodes], np.int64)
        model = np.array([self.model(node[1]) for node in nodes], np.int64)
        return float(self.lost(cpu, model, rows.sum(axis=1), *self.of_devices(rows)).sum()) / max(self.weight, 1)
