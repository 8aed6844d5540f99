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
    that much left, and the number of these devices. `by_cpu`: no groups."""

    def __init__(self, weights: Mapping[Shape, int], by_cpu: bool = False) -> None:
        self.weight = sum(weights.values())
        asking = {shape: weight for shape, weight in weights.items() if shape.gpu_milli and shape.gpus}
        amounts = sorted({shape.gpu_milli for shape in asking})
        left = np.arange(WHOLE + 1, dtype=np.int64)[:, None]
        enough = left >= np.array(amounts, np.int64)[None, :]
        self.fits: IntArray = enough.astype(np.int64)
        """By the amount left of a device, for each requested amount whether it suffices."""
        self.worth: IntArray = self.fits * left
        """The same, times the amount left."""
        groups = sorted(asking if by_cpu else {shape._replace(cpu_milli=0) for shape in asking})
        self._amount: IntArray = np.array([amounts.index(group.gpu_milli) for group in groups], np.int64)
        self._gpus: IntArray = np.array([group.gpus for group in groups], np.int64)
        self._accepted = [frozenset(group.models) for group in groups]
        self._steps: IntArray = np.array(sorted({shape.cpu_milli for shape in asking}), np.int64)
        self._by_cpu: IntArray = np.zeros((len(self._steps) + 1, len(groups)), np.int64)
        for shape, weight in asking.items():
            group = groups.index(shape if by_cpu else shape._replace(cpu_milli=0))
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
        used: IntArray = (self._of_use(cpu, usable) * weights * hosts).sum(axis=1)
        return idle * self.weight - used

    def _of_use(self, cpu: IntArray, usable: IntArray) -> IntArray:
        """By node and group."""
        found: IntArray = usable[:, self._amount]
        return found

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


class Filling(Fragmentation):
    """Values what is left by what many pods could use, where Fragmentation asks for the next one alone.

    `device`: what a device that a pod fits is worth to it: what is `left`; what `copies` of the pod would take; what it
    is `expected` to hold if typical pods for one device are drawn until none fits. `cpu_limit`: a node is worth no more
    to a pod than what copies of it would take for which there is CPU. `by_gpus`: weights are times the GPU requests."""

    def __init__(self, weights: Mapping[Shape, int], device: str, cpu_limit: bool, by_gpus: bool) -> None:
        size = {shape: shape.gpus * shape.gpu_milli if by_gpus else 1 for shape in weights}
        super().__init__({shape: weight * size[shape] for shape, weight in weights.items()}, by_cpu=cpu_limit)
        asking = sorted(shape for shape in weights if shape.gpu_milli and shape.gpus)
        if device == "copies":
            amounts: IntArray = np.array(sorted({shape.gpu_milli for shape in asking}), np.int64)
            self.worth = np.arange(WHOLE + 1, dtype=np.int64)[:, None] // amounts * amounts
        elif device == "expected":
            self.worth = self.fits * expected_fill(weights)[:, None]
        self._cpu_limit = cpu_limit
        self._cpu: IntArray = np.array([shape.cpu_milli for shape in asking], np.int64)
        self._total: IntArray = np.array([shape.gpus * shape.gpu_milli for shape in asking], np.int64)

    def _of_use(self, cpu: IntArray, usable: IntArray) -> IntArray:
        found = super()._of_use(cpu, usable)
        if not self._cpu_limit:
            return found
        copies = cpu[:, None] // np.maximum(self._cpu, 1)
        limited: IntArray = np.where(self._cpu == 0, found, np.minimum(found, copies * self._total))
        return limited


def expected_fill(weights: Mapping[Shape, int]) -> IntArray:
    """By the thousandths left on a device, how many of them pods for one device take in the end, drawn by weight until
    none fits; rounded."""
    found = np.zeros(WHOLE + 1)
    single = [(shape.gpu_milli, weight) for shape, weight in weights.items() if shape.gpu_milli and shape.gpus == 1]
    for left in range(1, WHOLE + 1):
        fitting = [(milli, weight) for milli, weight in single if milli <= left]
        if fitting:
            taken = sum(weight * (milli + found[left - milli]) for milli, weight in fitting)
            found[left] = taken / sum(weight for _, weight in fitting)
    rounded: IntArray = np.rint(found).astype(np.int64)
    return rounded
