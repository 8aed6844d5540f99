"""How much of the idle GPU is of no use to the pods that are expected: the measure of Weng et al., Beware of
Fragmentation (USENIX ATC 2023), section 4.

A node loses, for each typical pod, all its idle GPU where the pod does not fit or asks for none, and what is idle on
devices that have too little left for it where it does. What a node loses is the mean over the typical pods, by weight.
All figures are integers (weight times thousandths), so that equal states lose exactly as much.
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
    """What a pod asks for: of each of its `gpus`, `gpu_milli`. `models`: those it accepts, empty for any."""

    cpu_milli: int
    gpu_milli: int
    gpus: int
    models: tuple[str, ...] = ()


def typical(counts: Mapping[Shape, int], share: float = POPULAR) -> dict[Shape, int]:
    """The most frequent shapes that come to `share` of all pods, with how often they come; of equally frequent ones
    the larger first."""
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
    """`weight`: the sum of all weights; what `lost` returns is this times thousandths.

    Typical pods that differ in cpu alone are one group: how much of its weight fits is a step function of the node's
    free cpu. `usable` and `fitting` of a node say, for each amount that a typical pod asks of a device, what the
    devices with as much left have together, and how many they are."""

    def __init__(self, weights: Mapping[Shape, int]) -> None:
        self.weight = sum(weights.values())
        asking = {shape: weight for shape, weight in weights.items() if shape.gpu_milli and shape.gpus}
        amounts = sorted({shape.gpu_milli for shape in asking})
        left = np.arange(WHOLE + 1, dtype=np.int64)[:, None]
        enough = left >= np.array(amounts, np.int64)[None, :]
        self.fits: IntArray = enough.astype(np.int64)
        """By what is left of a device, for each amount whether it is enough."""
        self.worth: IntArray = self.fits * left
        """The same, times what is left."""
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
        """Its number, for `lost`."""
        found = self._models.get(name)
        if found is None:
            found = self._models[name] = len(self._models)
            row = [int(not accepted or name in accepted) for accepted in self._accepted]
            self._takes = np.vstack((self._takes, np.array([row], np.int64).reshape(1, -1)))
        return found

    def of_devices(self, left: IntArray) -> tuple[IntArray, IntArray]:
        """(usable, fitting) of nodes, a row each, by what is left of each device."""
        return self.worth[left].sum(axis=1), self.fits[left].sum(axis=1)

    def lost(self, cpu: IntArray, model: IntArray, idle: IntArray, usable: IntArray, fitting: IntArray) -> IntArray:
        """By node. `idle`: what is left of all devices together."""
        weights = self._by_cpu[np.searchsorted(self._steps, cpu, side="right")]
        hosts = (fitting[:, self._amount] >= self._gpus) * self._takes[model]
        used: IntArray = (usable[:, self._amount] * weights * hosts).sum(axis=1)
        return idle * self.weight - used

    def share(self, free: Iterable[tuple[int, str, Sequence[int]]]) -> float:
        """Thousandths lost on nodes given as (free cpu, model, what is left of each device)."""
        nodes = list(free)
        width = max((len(left) for _, _, left in nodes), default=0)
        rows = np.zeros((len(nodes), width), np.int64)
        for row, (_, _, left) in zip(rows, nodes, strict=True):
            row[: len(left)] = left
        cpu = np.array([node[0] for node in nodes], np.int64)
        model = np.array([self.model(node[1]) for node in nodes], np.int64)
        return float(self.lost(cpu, model, rows.sum(axis=1), *self.of_devices(rows)).sum()) / max(self.weight, 1)
