"""What idle GPU is worth by shadow prices: the dual optimum beside HiGHS, and the definition read plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from minikube_py.scheduler.packing.fragmentation import Shape
from minikube_py.scheduler.packing.worth import MILLION, Worth, best_fills, shadow_prices

SIZES = st.one_of(st.integers(60, 1000), st.sampled_from((1, 60, 333, 334, 499, 500, 501, 999, 1000)))
COUNTS = st.dictionaries(SIZES, st.integers(1, 10_000), min_size=1, max_size=6)
CPUS = st.sampled_from((0, 1, 100, 3999, 4000, 64000, 10**9))


def patterns(sizes: Sequence[int], left: int = 1000) -> list[tuple[int, ...]]:
    """All ways to fill a device as far as it goes."""
    if not sizes:
        return [()]
    most = left // sizes[0]
    least = most if len(sizes) == 1 else 0
    return [
        (n, *rest) for n in range(least, most + 1) for rest in patterns(sizes[1:], left - n * sizes[0])
    ]


@given(COUNTS)
def test_prices_are_an_optimum_of_the_dual_problem(counts: Mapping[int, int]) -> None:
    prices = shadow_prices(counts)
    worth, _ = best_fills(prices)
    assert worth[1000] <= 1 + 1e-3, "no device holds pods for more than one device"
    sizes = sorted(counts, reverse=True)
    if sizes[-1] < 60:
        return
    ways = patterns(sizes)
    packed = linprog(np.ones(len(ways)), -np.array(ways).T, [-counts[size] for size in sizes])
    assert sum(prices[size] * count for size, count in counts.items()) == pytest.approx(packed.fun, rel=1e-4)


@given(COUNTS, st.integers(0, 1000))
def test_the_best_fill_is_the_best(values: Mapping[int, int], left: int) -> None:
    sizes = [size for size in sorted(values) if size >= 60]
    fits = [Fraction(sum(n * values[s] for n, s in zip(way, sizes, strict=True))) for way in patterns(sizes, left)]
    assert best_fills({size: values[size] for size in sizes})[0][left] == max(fits)


WEIGHTS = st.dictionaries(
    st.builds(
        lambda cpu, milli, gpus: Shape(cpu, milli if gpus == 1 else 1000 if gpus else 0, gpus),
        CPUS, SIZES, st.sampled_from((0, 1, 1, 1, 2, 8)),
    ),
    st.integers(1, 1_000_000),
    min_size=1,
    max_size=6,
)


def plain(weights: Mapping[Shape, int], cpu: int, left: Sequence[int]) -> float:
    """What a node is worth, in GPUs, as the registration says it."""
    asking = {shape: weight for shape, weight in sorted(weights.items()) if shape.gpus}
    alone: dict[int, int] = {}
    for shape, weight in asking.items():
        if shape.gpus == 1:
            alone[shape.gpu_milli] = alone.get(shape.gpu_milli, 0) + weight
    prices = shadow_prices(alone)
    fills = best_fills({1000: 1.0, **{s: 0.7 * price + 0.3 * s / 1000 for s, price in prices.items()}})[0]
    devices = sum(fills[have] / fills[1000] for have in left)
    kinds = []
    for shape, weight in asking.items():
        price = shape.gpus * (prices[shape.gpu_milli] if shape.gpus == 1 else 1)
        if price:
            kinds.append((shape.cpu_milli / price, weight * shape.gpus * shape.gpu_milli))
    value = devices
    if kinds and devices:
        kinds.sort()
        upto = list(accumulate(weight for _, weight in kinds))
        part = 0.0
        for point in range(1, 257):
            mix = []
            for root in (2, 3, 5, 7):
                mark = point * root**0.5 % 1 * upto[-1]
                mix.append(kinds[next((i for i, end in enumerate(upto) if mark < end), len(kinds) - 1)][0])
            part += min(1.0, max(0, cpu) / devices / max(1e-3, sum(mix) / 4)) / 256
        value *= part
    total = sum(weight * shape.gpus * shape.gpu_milli for shape, weight in asking.items())
    for shape, weight in asking.items():
        if shape.gpus > 1:
            copies = min(sum(have == 1000 for have in left) // shape.gpus, max(0, cpu) // max(1, shape.cpu_milli))
            value += weight * shape.gpus * 1000 / total * shape.gpus * copies
    return value


@given(WEIGHTS, st.integers(-5, 128_000), st.lists(st.one_of(st.just(1000), st.integers(0, 1000)), max_size=8))
def test_a_node_is_worth_what_the_registration_says(weights: Mapping[Shape, int], cpu: int, left: list[int]) -> None:
    worth = Worth(weights)
    row = np.array([left], np.int64).reshape(1, -1)
    lost = worth.lost(np.array([cpu]), np.zeros(1, np.int64), row.sum(axis=1), *worth.of_devices(row))
    found = (sum(left) * MILLION - int(lost[0])) / (1000 * MILLION)
    assert found == pytest.approx(plain(weights, cpu, left), rel=1e-6, abs=1e-6)
