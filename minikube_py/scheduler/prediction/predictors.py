"""The built-in predictors, by their published formulas.

`limits`, `n-sigma`, `max` and `oracle`, and a pod at its reservation until it is known: Bashir et al., EuroSys 2021.
`percentile`: their RC-like predictor, after Cortez et al., Resource Central (SOSP 2017). `ewma`: the moving mean and
variance of RiskMetrics (1996). `holt-winters`: Gardner's damped trend and an additive season (Hyndman, Athanasopoulos,
Forecasting: Principles and Practice, 8.4), by recursions that agree with statsmodels to the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.scheduler.configuration.own_args import anything, fields, listed, mapped, text
from minikube_py.scheduler.prediction.predictor import SAMPLES_MAX, FloatArray, Past, Predictor, asked, predictor_named

SIGMAS_MAX: Final = 1000.0


class Limits(Predictor):
    """`phi` of all reservations: Borg's default."""

    name = "limits"
    defaults = {"phi": 0.9}
    samples = 1

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.phi = self.number("phi", 0, 1)

    def peak(self, past: Past) -> float:
        return self.phi * past.limit


class Known(Predictor):
    """Predicts pods that have `samples` samples; others count `unknown` of their reservation. Never more than
    reserved."""

    defaults: Mapping[str, Any] = {"samples": 24, "unknown": 1}

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.samples = self.count("samples", 1, SAMPLES_MAX)
        self.unknown = self.number("unknown", 0, 1)

    def peak(self, past: Past) -> float:
        known, others = past.known(self.samples)
        return self.unknown * others + (min(self.of_known(known), known.limit) if known.limit else 0.0)

    def of_known(self, past: Past) -> float:
        raise NotImplementedError


class NSigma(Known):
    """Mean plus `sigmas` standard deviations of the total usage."""

    name = "n-sigma"
    defaults = {**Known.defaults, "sigmas": 5}

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.sigmas = self.number("sigmas", 0, SIGMAS_MAX)

    def of_known(self, past: Past) -> float:
        return float(past.total.mean() + self.sigmas * past.total.std())


class Percentile(Known):
    """The sum of each pod's percentile, as if all peaked at once."""

    name = "percentile"
    defaults = {**Known.defaults, "percent": 99}

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.percent = self.number("percent", 0, 100)

    def of_known(self, past: Past) -> float:
        return float(np.percentile(past.usage, self.percent, axis=1).sum())


class Ewma(Known):
    """The exponentially weighted mean of the total usage, plus `sigmas` deviations with the same weights."""

    name = "ewma"
    defaults = {**Known.defaults, "alpha": 0.1, "sigmas": 5}

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.alpha, self.sigmas = self.number("alpha", 0.0001, 1), self.number("sigmas", 0, SIGMAS_MAX)

    def of_known(self, past: Past) -> float:
        mean, variance = weighted(past.total, self.alpha)
        return mean + self.sigmas * math.sqrt(variance)


def weighted(values: FloatArray, alpha: float) -> tuple[float, float]:
    """The latest value weighs `alpha`, each earlier one 1 - alpha times as much, the first the remainder."""
    age = np.arange(len(values) - 1, -1, -1, dtype=np.float64)
    weights = alpha * (1 - alpha) ** age
    weights[0] = (1 - alpha) ** age[0]
    mean = float(weights @ values)
    return mean, float(weights @ (values - mean) ** 2)


class Smoothed(NamedTuple):
    """The Holt-Winters state after the last value. `season`: next value first. `errors`: of the one-step forecasts."""

    level: float
    trend: float
    season: Sequence[float]
    errors: Sequence[float]

    def forecast(self, steps: int, phi: float) -> list[float]:
        found, damped, factor = [], 0.0, 1.0
        for step in range(steps):
            factor *= phi
            damped += factor
            season = self.season[step % len(self.season)] if self.season else 0.0
            found.append(self.level + damped * self.trend + season)
        return found


def smoothed(values: Sequence[float], alpha: float, beta: float, gamma: float, phi: float, season: int = 0) -> Smoothed:
    """Starts with the first value and no trend; with a season, with its first mean and the deviations from it."""
    level, trend = (math.fsum(values[:season]) / season if season else values[0]), 0.0
    seasons = [value - level for value in values[:season]]
    errors = []
    for value in values:
        expected, about = level + phi * trend, seasons.pop(0) if season else 0.0
        errors.append(value - expected - about)
        before = level
        level = alpha * (value - about) + (1 - alpha) * expected
        trend = beta * (level - before) + (1 - beta) * phi * trend
        if season:
            seasons.append(gamma * (value - expected) + (1 - gamma) * about)
    return Smoothed(level, trend, seasons, errors)


class HoltWinters(Known):
    """The highest forecast within `horizon` samples, plus `sigmas` deviations of past forecasts. With `season` samples
    per season (288 are a day), it needs two seasons of samples."""

    name = "holt-winters"
    defaults = {
        **Known.defaults,
        "alpha": 0.3,
        "beta": 0.1,
        "gamma": 0.1,
        "phi": 0.9,
        "sigmas": 5,
        "season": 0,
        "horizon": 288,
    }

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        self.shares = [self.number(name, 0, 1) for name in ("alpha", "beta", "gamma", "phi")]
        self.sigmas, self.season = self.number("sigmas", 0, SIGMAS_MAX), self.count("season", 0, SAMPLES_MAX // 2)
        self.horizon = self.count("horizon", 1, SAMPLES_MAX)
        self.samples = max(self.samples, 2 * self.season)

    def of_known(self, past: Past) -> float:
        alpha, beta, gamma, phi = self.shares
        kept = smoothed(past.total.tolist(), alpha, beta, gamma, phi, self.season)
        deviation = math.sqrt(math.fsum(error * error for error in kept.errors) / len(kept.errors))
        highest = max(kept.forecast(self.horizon, phi))
        return max(0.0, highest + self.sigmas * deviation)


def _part(value: Any, path: str) -> dict[str, Any]:
    given = {"predictor": value} if isinstance(value, str) else value
    found: dict[str, Any] = fields({"predictor": text, "args": mapped(anything)}, needed=("predictor",))(given, path)
    return found


class MaxOf(Predictor):
    """The highest of several predictors: `of`, each a name, or `{predictor, args}`."""

    name = "max"
    defaults = {"of": ("n-sigma", "percentile")}

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        super().__init__(args)
        given = self.read("of", listed(_part, least=1, most=20))
        self.parts = [predictor_named(each["predictor"], each.get("args", {})) for each in given]
        self.samples = max(part.samples for part in self.parts)
        self.looks_ahead = any(part.looks_ahead for part in self.parts)

    def peak(self, past: Past) -> float:
        return max(asked(part, past) for part in self.parts)


class Oracle(Predictor):
    """The true peak of the total usage. Only if the future is known."""

    name = "oracle"
    looks_ahead = True
    samples = 1

    def peak(self, past: Past) -> float:
        if past.ahead is None:
            raise ValueError("an oracle needs to know the future, which only an experiment does")
        return float(past.ahead.sum(axis=0).max(initial=0.0))


PREDICTORS: Final[Mapping[str, type[Predictor]]] = {
    each.name: each for each in (Limits, NSigma, Percentile, Ewma, HoltWinters, MaxOf, Oracle)
}
