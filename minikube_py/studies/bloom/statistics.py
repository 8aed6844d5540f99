"""Ratios of paired costs with bootstrap intervals, and the criterion for a win.

Two levels are resampled, seeds and batches within them, so that an interval covers other clusters, not only other
moments of the same ones. Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8 and 13.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from minikube_py.lab.statistics import SEED, Floats, Interval

Verdict = Literal["win", "loss", "tie", "undecided"]


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
