"""Ratios of paired costs with bootstrap intervals, and the criterion for a win.

Two levels are resampled, seeds and batches within them, so that an interval covers other clusters, not only other
moments of the same ones. Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8 and 13.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Verdict = Literal["win", "loss", "tie", "undecided"]
SEED: Final = 20260101


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


@lru_cache(maxsize=64)
def weights(seeds: int, batches: int, resamples: int) -> Floats:
    """How often each (seed, batch) is drawn in each resample, as shares: resamples x (seeds * batches)."""
    rng = np.random.default_rng([SEED, seeds, batches])
    drawn = rng.integers(seeds, size=(resamples, seeds, 1))
    within = rng.integers(batches, size=(resamples, seeds, batches))
    places = (drawn * batches + within).reshape(resamples, -1)
    counts = np.zeros((resamples, seeds * batches))
    np.add.at(counts, (np.arange(resamples)[:, None], places), 1.0)
    return counts / (seeds * batches)


def ratios(costs: Floats, rivals: Floats, resamples: int, confidence: float) -> list[Interval]:
    """Mean of `costs` (seeds x batches) relative to that of each of `rivals` (rivals x seeds x batches)."""
    share = weights(*costs.shape, resamples)
    ours = share @ costs.reshape(-1)
    theirs = share @ rivals.reshape(len(rivals), -1).T
    drawn = ours[:, None] / np.maximum(theirs, 1e-12)
    edges = (1.0 - confidence) / 2.0
    lows, highs = np.quantile(drawn, [edges, 1.0 - edges], axis=0)
    values = costs.mean() / np.maximum(rivals.reshape(len(rivals), -1).mean(axis=1), 1e-12)
    return [Interval(*each) for each in zip(values.tolist(), lows.tolist(), highs.tolist())]


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


def verdict(ratio: Interval, margin: float) -> Verdict:
    """A win is a ratio significantly below 1 - margin, a loss one significantly above its reciprocal."""
    least, most = 1.0 - margin, 1.0 / (1.0 - margin)
    if ratio.high < least:
        return "win"
    if ratio.low > most:
        return "loss"
    return "tie" if least <= ratio.low and ratio.high <= most else "undecided"


def against_all(intervals: list[Interval], margin: float) -> Verdict:
    """A win only against every rival; a loss if any rival wins."""
    found = {verdict(each, margin) for each in intervals}
    if "loss" in found:
        return "loss"
    for each in ("undecided", "tie"):
        if each in found:
            return each  # type: ignore[return-value]
    return "win" if found else "undecided"


def share_interval(hits: int, total: int) -> Interval:
    """Of a share with `hits` of `total`, 95 %. Source: Wilson, JASA 1927."""
    if not total:
        return Interval(float("nan"), 0.0, 1.0)
    z, p = 1.96, hits / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z * ((p * (1 - p) + z * z / (4 * total)) / total) ** 0.5 / (1 + z * z / total)
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half))
