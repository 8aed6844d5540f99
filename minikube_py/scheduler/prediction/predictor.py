"""The predictor interface: predicts the peak of the total usage of one node's pods.

A predictor sees one resource of one node: each pod's reservation (its request, which Borg calls a limit), and its usage
so far, in samples of five minutes. Source of the idea and of the built-in predictors: Bashir et al., Take It to the
Limit: Peak Prediction-driven Resource Overcommitment in Datacenters (EuroSys 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minikube_py.own_code import BadCode, find_class, load, name_of, raised, require_one, told
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import Kind, anything, number, read_args, whole

GROUP: Final = "minikube_py.predictors"
STEP_MINUTES: Final = 5
"""A sample is the mean over this many minutes."""
SAMPLES_MAX: Final = 2016
"""A week."""
FloatArray = npt.NDArray[np.float64]


class PredictionError(Exception):
    """A predictor or usage source failed or returned an invalid amount; the message names it and where."""


class Past:
    """`reserved`: per pod, in milli-cores or bytes; 0 without a request. `usage`: a row per pod, a column per sample,
    latest last; NaN before the pod ran, and where a minute was not reported. `ahead`: rows of future usage by sample,
    0 once the pod is gone; None except for an oracle. Arrays are read-only."""

    def __init__(self, reserved: FloatArray, usage: FloatArray, ahead: FloatArray | None = None) -> None:
        self.reserved = reserved
        self.usage = usage
        self.ahead = ahead
        for array in (reserved, usage) if ahead is None else (reserved, usage, ahead):
            array.flags.writeable = False

    @property
    def samples(self) -> int:
        return int(self.usage.shape[1])

    @cached_property
    def limit(self) -> float:
        """The sum of all reservations."""
        return float(self.reserved.sum())

    @cached_property
    def total(self) -> FloatArray:
        """The pods' total usage by sample; a pod that did not run yet counts 0."""
        total: FloatArray = np.nansum(self.usage, axis=0)
        total.flags.writeable = False
        return total

    def known(self, samples: int) -> tuple[Past, float]:
        """The last `samples` of pods that have that many, and the reservations of the others."""
        if self.samples < samples:
            return Past(self.reserved[:0], self.usage[:0]), self.limit
        usage = self.usage[:, self.samples - samples :]
        warm = ~np.isnan(usage).any(axis=1)
        if warm.all():
            return Past(self.reserved, usage), 0.0
        return Past(self.reserved[warm], usage[warm]), float(self.reserved[~warm].sum())


class Predictor:
    """Subclass this, or write any class with `peak`.

    `args`: from the configuration, over `defaults`; unknown ones are errors. `samples`: the maximum kept.
    `looks_ahead`: the predictor is an oracle, and cannot run in a cluster."""

    name = ""
    defaults: Mapping[str, Any] = {}
    samples: int = 24
    looks_ahead = False

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        given = read_args(f"predictor {self.name}", args or {}, dict.fromkeys(self.defaults, anything))
        self.args = {**self.defaults, **given}

    def read(self, name: str, kind: Kind) -> Any:
        """An argument of that kind (`scheduler.configuration.own_args`). Raises: ConfigError."""
        try:
            return kind(self.args[name], name)
        except ConfigError as error:
            raise ConfigError(f"predictor {self.name}: {error}") from None

    def number(self, name: str, low: float, high: float) -> float:
        """An argument from `low` to `high`. Raises: ConfigError."""
        return float(self.read(name, number(low, high)))

    def count(self, name: str, low: int, high: int) -> int:
        """An integer argument. Raises: ConfigError."""
        return int(self.read(name, whole(low, high)))

    def peak(self, past: Past) -> float:
        """The predicted peak of these pods' total usage while they run."""
        raise NotImplementedError


def asked(predictor: Any, past: Past, where: str = "") -> float:
    """Its prediction. `where`: names the resource and node. Raises: PredictionError."""
    what = f"predictor {predictor.name}: peak{where and f' of {where}'}"
    try:
        found = predictor.peak(past)
        if isinstance(found, bool) or not isinstance(found, int | float | np.integer | np.floating):
            shown = f"a {type(found).__name__}"
        elif 0 <= found < math.inf:
            return float(found)
        else:
            shown = f"{found:g}"
    except PredictionError as error:
        # Of one of its parts.
        raise PredictionError(f"{what}: {error}") from error
    except raised() as error:
        raise PredictionError(f"{what}: {told(error)}") from error
    raise PredictionError(f"{what} is {shown}; a number not below 0 is expected")


class Own(NamedTuple):
    """A predictor of others, and what it says of itself: its object may be frozen, and is not written to."""

    name: str
    samples: int
    looks_ahead: bool
    peak: Callable[[Past], float]


def predictor_named(target: str, args: Mapping[str, Any] | None = None, besides: Sequence[str] = ()) -> Any:
    """One of `PREDICTORS`, `FILE.py:CLASS`, `MODULE:CLASS`, or the name of an entry point of `minikube_py.predictors`.
    `besides`: names that the caller knows, for the message.

    Raises: ConfigError, with the location and a remedy."""
    from minikube_py.scheduler.prediction.predictors import PREDICTORS

    kind: Any = PREDICTORS.get(target)
    try:
        if kind is not None:
            return kind(args)
        if ":" in target:
            kind = find_class(target, "peak")
        else:
            installed = {point.name: point for point in entry_points(group=GROUP)}
            if target not in installed:
                names = ", ".join((*besides, *PREDICTORS, *installed))
                raise ConfigError(f"there is no predictor {target!r}; the predictors are: {names}; or FILE.py:CLASS")
            kind = load(installed[target])
        predictor = kind(args) if args or (isinstance(kind, type) and issubclass(kind, Predictor)) else kind()
        require_one(predictor, ("peak",), f"predictor {target}")
        samples, ahead = getattr(predictor, "samples", Predictor.samples), getattr(predictor, "looks_ahead", False)
        own = Own(name_of(predictor, target, "name"), samples, bool(ahead), predictor.peak)
        if not isinstance(samples, int) or not 1 <= samples <= SAMPLES_MAX:
            text = f"samples is {samples!r}; a whole number from 1 to {SAMPLES_MAX} is expected"
            raise ConfigError(f"predictor {target}: {text}")
    except (ConfigError, BadCode) as error:
        raise ConfigError(str(error)) from error
    except raised() as error:
        raise ConfigError(f"predictor {target}: {told(error)}") from error
    return own
