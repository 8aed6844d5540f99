"""Intervals over clusters (seeds), and a paired test of differences. Pure and deterministic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from operator import itemgetter
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
SEED: Final = 20260101
CONFIDENCE: Final = 0.95
EXACT_MAX: Final = 14
"""Up to this many pairs all sign combinations are tried, above it a sample."""
ALPHA: Final = 0.05
SIDES: Final = ("first", "second")
NOT_THE_SAME: Final = "not the same pods"
PLACES_LESS: Final = ("first places less", "second places less")


class Interval(NamedTuple):
    """An estimate with its interval at the design's confidence."""

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def text(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def outcome(self, below: bool, bound: float) -> Literal["held", "falsified", "undecided"]:
        """Held or falsified if the whole interval agrees."""
        if self.high < bound:
            return "held" if below else "falsified"
        if self.low > bound:
            return "falsified" if below else "held"
        # A zero-width interval at the bound itself.
        return "falsified" if self.low == self.high else "undecided"


def of_clusters(values: Sequence[float], confidence: float, ratio: bool = False) -> Interval:
    """For the mean of one value per cluster, by Student's t; for ratios the geometric mean. A single cluster has an
    infinite interval."""
    made = np.log(np.array(values)) if ratio else np.array(values, dtype=np.float64)
    if len(made) < 2 or not np.isfinite(made).all():
        value = float(values[0]) if len(values) else math.nan
        return Interval(value, 0.0 if ratio else -math.inf, math.inf)
    mean = float(made.mean())
    half = student_quantile(0.5 + confidence / 2, len(made) - 1) * float(made.std(ddof=1)) / math.sqrt(len(made))
    edges = (mean, mean - half, mean + half)
    return Interval(*(map(math.exp, edges) if ratio else edges))


@lru_cache(maxsize=64)
def student_quantile(share: float, freedom: int) -> float:
    """By x = sqrt(freedom) tan(angle), whose density is cos(angle)^(freedom - 1)."""
    angles = np.linspace(-math.pi / 2, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(share, below / below[-1], angles)))


class Compared(NamedTuple):
    """One measure: both means, the mean difference (second minus first, per seed), and the probability of one as large
    if the schedulers do not differ. `p` is None below two pairs. `first`, `second`: by seed.

    `p_corrected`: for the number of measures that are compared at once."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    mean_first: Interval
    mean_second: Interval
    difference: Interval
    p: float | None
    p_corrected: float | None
    left_out: tuple[int, int] = (0, 0)
    """Pods of all seeds that have no such figure, of each."""
    same_pods: bool = True
    less: tuple[bool, bool] = (False, False)
    """Whether it has less of this because it places less than the other: fewer pods, CPU or GPUs over all seeds."""

    @property
    def can_differ(self) -> bool:
        """Whether one of the two can be the better one. Exchanging them in any seed does not change that."""
        return self.same_pods and self.first != self.second

    def better(self, sign: int) -> str:
        """The better one: "first", "second", "equal" if no seed differs, "undecided", "not the same pods" where the
        two left out different ones, since a scheduler that leaves slow pods pending is not faster, or one of
        PLACES_LESS where that may be why it would be the better one."""
        if not self.same_pods:
            return NOT_THE_SAME
        if not self.can_differ:
            return "equal"
        if self.p_corrected is None or self.p_corrected > ALPHA:
            return "undecided"
        second = self.difference.value * sign > 0
        return (PLACES_LESS if self.less[second] else SIDES)[second]


def compared(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Compared:
    """One pair per seed."""
    differences = [other - one for one, other in zip(first, second, strict=True)]
    mean, other, between = (of_clusters(each, confidence) for each in (first, second, differences))
    p = sign_flip_p(differences)
    return Compared(tuple(first), tuple(second), mean, other, between, p, p)


def corrected(rows: Mapping[T, Compared]) -> dict[T, Compared]:
    """With `p_corrected`: without any effect, that some row is called better is at most ALPHA likely. Rows in which
    nothing can be better are not counted.

    Source: Holm, A simple sequentially rejective multiple test procedure, 1979."""
    tested = {key: each.p for key, each in rows.items() if each.p is not None and each.can_differ}
    found = {key: each._replace(p_corrected=each.p if each.same_pods else None) for key, each in rows.items()}
    largest = 0.0
    for before, (key, p) in enumerate(sorted(tested.items(), key=itemgetter(1))):
        largest = max(largest, min(1.0, (len(tested) - before) * p))
        found[key] = rows[key]._replace(p_corrected=largest)
    return found


def p_min(count: int) -> float:
    """The smallest probability that a paired test of that many seeds can show."""
    return float(2.0 ** (1 - count))


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """The two-sided share of sign combinations whose mean is as far from 0.

    Under the null hypothesis each difference is as likely as its negative: Fisher's randomization test."""
    count = len(differences)
    if count < 2:
        return None
    values = np.array(differences, np.float64)
    if count <= EXACT_MAX:
        signs = np.array(list(product((-1.0, 1.0), repeat=count)))
    else:
        signs = np.random.default_rng([SEED, count]).choice((-1.0, 1.0), size=(1 << EXACT_MAX, count))
        signs[0] = 1.0
    sums = np.abs(signs @ values)
    # Sums of the same numbers in another order differ by rounding, relative to their size.
    return float(np.mean(sums >= abs(float(values.sum())) - 1e-12 * float(np.abs(values).sum())))
