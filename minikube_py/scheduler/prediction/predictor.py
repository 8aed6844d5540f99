"""What a predictor is asked and what it may answer: the most that the pods of one node will use together.

A predictor sees one resource of one node: what each pod has reserved (its request, which is what Borg calls a limit),
and what it used until now, in samples of five minutes. Source of the idea and of the built-in ones: Bashir et al.,
Take It to the Limit: Peak Prediction-driven Resource Overcommitment in Datacenters (EuroSys 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from minikube_py.own_code import BadCode, find_class, name_of, told
from minikube_py.scheduler.configuration.merging import ConfigError

GROUP: Final = "minikube_py.predictors"
STEP_MINUTES: Final = 5
"""A sample is the mean of so many minutes."""
FloatArray = npt.NDArray[np.float64]


class PredictionError(Exception):
    """A predictor or a source of usage failed, or answered what is no amount; the message names it and where."""


class Past:
    """`reserved`: of each pod, in milli-cores or bytes. `usage`: a row for each pod, a column for each sample, the last
    being the latest; NaN where the pod did not run yet. `ahead`: rows of what they will use, sample by sample, 0 once
    they are gone; None but for an oracle. Arrays cannot be written to."""

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
        """All that is reserved."""
        return float(self.reserved.sum())

    @cached_property
    def total(self) -> FloatArray:
        """What the pods used together, by sample; a pod that did not run yet counts nothing."""
        total: FloatArray = np.nansum(self.usage, axis=0)
        return total

    def known(self, samples: int) -> tuple[Past, float]:
        """The last `samples` of the pods that have as many, and what the others have reserved."""
        if self.samples < samples:
            return Past(self.reserved[:0], self.usage[:0]), self.limit
        usage = self.usage[:, self.samples - samples :]
        warm = ~np.isnan(usage).any(axis=1)
        if warm.all():
            return Past(self.reserved, usage), 0.0
        return Past(self.reserved[warm], usage[warm]), float(self.reserved[~warm].sum())


class Predictor:
    """Subclass this, or write any class with `peak`.

    `args`: those of the configuration, over `defaults`; others are refused. `samples`: how many the past holds at most.
    `looks_ahead`: it is an oracle, and cannot run in a cluster."""

    name = ""
    defaults: Mapping[str, Any] = {}
    samples: int = 24
    looks_ahead = False

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        unknown = sorted(set(args or ()) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise ConfigError(f"predictor {self.name} has no argument {unknown[0]!r}; it has: {known}")
        self.args = {**self.defaults, **(args or {})}

    def number(self, name: str, low: float, high: float) -> float:
        """An argument from `low` to `high`. Raises: ConfigError."""
        value = self.args[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigError(
                f"predictor {self.name}: {name} is {value!r}; a number from {low:g} to {high:g} is wanted"
            )
        return float(value)

    def count(self, name: str, low: int, high: int) -> int:
        """A whole number. Raises: ConfigError."""
        value = self.number(name, low, high)
        if value != int(value):
            raise ConfigError(f"predictor {self.name}: {name} is {value!r}; a whole number is wanted")
        return int(value)

    def peak(self, past: Past) -> float:
        """The most that these pods will use together, as long as they run."""
        raise NotImplementedError


def asked(predictor: Any, past: Past, where: str) -> float:
    """What it predicts. `where`: of which resource and node. Raises: PredictionError."""
    try:
        found = predictor.peak(past)
    except Exception as error:
        raise PredictionError(f"predictor {predictor.name}: peak of {where}: {told(error)}") from error
    if isinstance(found, bool) or not isinstance(found, int | float | np.integer | np.floating):
        shown = f"a {type(found).__name__}"
    elif math.isfinite(found) and found >= 0:
        return float(found)
    else:
        shown = f"{float(found):g}"
    raise PredictionError(f"predictor {predictor.name}: peak of {where} is {shown}; a number not below 0 is wanted")


def predictor_named(target: str, args: Mapping[str, Any] | None = None) -> Any:
    """One of `PREDICTORS`, `FILE.py:CLASS`, `MODULE:CLASS`, or the name of an entry point of `minikube_py.predictors`.

    Raises: ConfigError, which says where and what to do."""
    from minikube_py.scheduler.prediction.predictors import PREDICTORS

    kind: Any = PREDICTORS.get(target)
    try:
        if kind is None and ":" in target:
            kind = find_class(target, "peak")
        elif kind is None:
            installed = {point.name: point for point in entry_points(group=GROUP)}
            if target not in installed:
                names = ", ".join((*PREDICTORS, *installed))
                raise ConfigError(f"there is no predictor {target!r}; there are: {names}; or FILE.py:CLASS")
            kind = installed[target].load()
        predictor = kind(args) if args or (isinstance(kind, type) and issubclass(kind, Predictor)) else kind()
    except (ConfigError, BadCode) as error:
        raise ConfigError(str(error)) from error
    except Exception as error:
        raise ConfigError(f"predictor {target}: {told(error)}") from error
    if not callable(getattr(predictor, "peak", None)):
        raise ConfigError(f"predictor {target} has no method peak(past)")
    predictor.name = name_of(kind, target, "name")
    for attribute, usual in (("samples", Predictor.samples), ("looks_ahead", False)):
        if not hasattr(predictor, attribute):
            setattr(predictor, attribute, usual)
    return predictor
