"""Intervals over clusters and their outcomes."""

from __future__ import annotations

import pytest
from scipy import stats

from minikube_py.lab import statistics


@pytest.mark.parametrize("freedom", [1, 2, 7, 30])
def test_quantiles_are_students(freedom: int) -> None:
    assert statistics.student_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)


def test_an_interval_knows_how_many_clusters_there_are() -> None:
    few, many = (statistics.of_clusters([1.0, 3.0] * times, 0.95) for times in (1, 20))
    assert few.value == many.value == 2.0
    assert few.low < -5 and 1.6 < many.low < many.high < 2.4
    assert statistics.of_clusters([5.0], 0.95).high == float("inf")
    ratio = statistics.of_clusters([0.5, 0.5, 0.5], 0.95, ratio=True)
    assert ratio == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("low", "high", "below", "expected"),
    [
        (0.1, 0.4, True, "held"),
        (0.4, 0.6, True, "undecided"),
        (0.6, 0.9, True, "falsified"),
        (0.6, 0.9, False, "held"),
        (0.1, 0.4, False, "falsified"),
        (0.5, 0.5, True, "falsified"),
        (0.5, 0.5, False, "falsified"),
    ],
)
def test_outcomes(low: float, high: float, below: bool, expected: str) -> None:
    assert statistics.Interval((low + high) / 2, low, high).outcome(below, 0.5) == expected
