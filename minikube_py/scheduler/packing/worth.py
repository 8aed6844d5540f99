"""What idle GPU is worth to all expected pods together, by shadow prices (docs/studies/packing-prices.md).

A price is a dual variable of the cutting stock problem: the fewest devices that hold all pods which ask for a device or
a share of one (Gilmore and Gomory, A linear programming approach to the cutting-stock problem, 1961).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.packing.fragmentation import WHOLE, Shape

Floats = NDArray[np.floating[Any]]
MILLION: Final = 10**6
OWN_SIZE: Final = 0.3
"""How much of a pod's price is its own size, which tells apart what the dual prices do not."""
MIXES: Final = 256
MIX: Final = 4
"""Pods in one mix."""
PIVOTS_MAX: Final = 1_000
SIZES_MAX: Final = 64
"""Different requests for a device or a share of one: the prices of 100 take eight seconds, those of 200 no thousand
pivots."""
_IRRATIONAL: Final = (2**0.5, 3**0.5, 5**0.5, 7**0.5)


def shadow_prices(counts: Mapping[int, float]) -> dict[int, float]:
    """In devices, rounded to a millionth, by size in thousandths (1 to 1000), from how many pods there are of each.

    Raises: ValueError with more than SIZES_MAX sizes, or where PIVOTS_MAX are not enough."""
    sizes = sorted(size for size, count in counts.items() if count > 0)
    if not sizes:
        return {}
    if len(sizes) > SIZES_MAX:
        raise ValueError(f"{len(sizes)} different requests for a share of a GPU; at most {SIZES_MAX} have prices")
    demand = np.array([counts[size] for size in sizes], np.float64)
    patterns: Floats = np.zeros((len(sizes), len(sizes)))
    np.fill_diagonal(patterns, [WHOLE // size for size in sizes])
    prices: Floats = np.zeros(len(sizes))
    for _ in range(PIVOTS_MAX):
        prices = np.linalg.solve(patterns.T, np.ones(len(sizes)))
        pattern = _best_pattern(sizes, prices)
        if float(pattern @ prices) <= 1 + 1e-9:
            break
        used, enters = np.linalg.solve(patterns, demand), np.linalg.solve(patterns, pattern)
        ratios = np.where(enters > 1e-9, used / np.maximum(enters, 1e-9), np.inf)
        patterns[:, int(np.argmin(ratios))] = pattern
    else:
        raise ValueError(f"prices were not found in {PIVOTS_MAX:,} steps")
    return {size: max(0.0, round(float(price), 6)) for size, price in zip(sizes, prices, strict=True)}


def best_fills(items: Mapping[int, float]) -> tuple[list[float], list[int]]:
    """By thousandths left: the greatest sum of values of items that fit, each any number of times, and the last item
    taken, 0 for none. `items`: values by size."""
    worth, last = [0.0] * (WHOLE + 1), [0] * (WHOLE + 1)
    for left in range(1, WHOLE + 1):
        worth[left] = worth[left - 1]
        for size, value in items.items():
            if size <= left and worth[left - size] + value > worth[left] + 1e-12:
                worth[left], last[left] = worth[left - size] + value, size
    return worth, last


def _best_pattern(sizes: Sequence[int], prices: Floats) -> Floats:
    """How many of each size fill a device at the greatest price."""
    _, last = best_fills(dict(zip(sizes, prices.tolist(), strict=True)))
    found: Floats = np.zeros(len(sizes))
    left = WHOLE
    while left:
        if last[left]:
            found[sizes.index(last[left])] += 1
        left -= last[left] or 1
    return found


class Worth:
    """`lost`, in millionths of a thousandth, is what is idle minus what it is worth, as of `Fragmentation`.

    `worth` and `fits`, by thousandths left of a device: what it is worth, and whether it is whole."""

    weight: Final = MILLION

    def __init__(self, weights: Mapping[Shape, int]) -> None:
        asking = {shape: weight for shape, weight in weights.items() if shape.gpu_milli and shape.gpus}
        total = max(1, sum(weight * shape.gpus * shape.gpu_milli for shape, weight in asking.items()))
        counts: dict[int, float] = {}
        for shape, weight in asking.items():
            if shape.gpus == 1:
                counts[shape.gpu_milli] = counts.get(shape.gpu_milli, 0) + weight
        prices = shadow_prices(counts)
        items = {size: (1 - OWN_SIZE) * price + OWN_SIZE * size / WHOLE for size, price in prices.items()}
        worth = np.array(best_fills({WHOLE: 1.0, **items})[0])
        self.worth: IntArray = np.rint(worth / worth[WHOLE] * WHOLE * MILLION).astype(np.int64)[:, None]
        self.fits: IntArray = (np.arange(WHOLE + 1) == WHOLE).astype(np.int64)[:, None]
        self._several = [
            (shape.gpus, max(1, shape.cpu_milli), weight * shape.gpus * WHOLE / total)
            for shape, weight in sorted(asking.items())
            if shape.gpus > 1
        ]
        priced = [
            (shape.cpu_milli / price, weight * shape.gpus * shape.gpu_milli)
            for shape, weight in sorted(asking.items())
            if (price := shape.gpus * (prices.get(shape.gpu_milli, 1.0) if shape.gpus == 1 else 1.0))
        ]
        self._knots, self._reach = _reach(priced)

    def model(self, name: str) -> int:
        """All models are one: prices know none."""
        return 0

    def of_devices(self, left: IntArray) -> tuple[IntArray, IntArray]:
        """(worth, whole devices) per node, from rows of the amounts left per device."""
        return self.worth[left].sum(axis=1), self.fits[left].sum(axis=1)

    def lost(self, cpu: IntArray, model: IntArray, idle: IntArray, usable: IntArray, fitting: IntArray) -> IntArray:
        """By node. `idle`: the amount left over all devices."""
        devices = usable[:, 0] / (WHOLE * MILLION)
        each = np.maximum(cpu, 0) / np.maximum(devices, 1e-9)
        value = devices * np.interp(each, self._knots, self._reach)
        for gpus, cpu_milli, share in self._several:
            value = value + share * gpus * np.minimum(fitting[:, 0] // gpus, np.maximum(cpu, 0) // cpu_milli)
        return idle * MILLION - np.rint(value * WHOLE * MILLION).astype(np.int64)


def _reach(priced: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """What part of a node's worth its CPU reaches, as points of a curve: by CPU for a device of worth.

    `priced`: for each kind of pod, its CPU for a device of its price, and its weight. The mixes are evenly spread over
    all that can be drawn (a Kronecker sequence), so nothing is random."""
    kinds = sorted((cpu, weight) for cpu, weight in priced if weight)
    if not kinds:
        return np.array([0.0, 1.0]), np.array([1.0, 1.0])
    upto = np.cumsum([weight for _, weight in kinds])
    points = np.arange(1, MIXES + 1)[:, None] * np.array(_IRRATIONAL[:MIX]) % 1.0
    drawn = np.searchsorted(upto, points * upto[-1], side="right")
    means = np.maximum(1e-3, np.array([cpu for cpu, _ in kinds])[np.minimum(drawn, len(kinds) - 1)].mean(axis=1))
    knots = np.concatenate(([0.0], np.sort(means)))
    return knots, np.minimum(1.0, knots[:, None] / means).mean(axis=1)
