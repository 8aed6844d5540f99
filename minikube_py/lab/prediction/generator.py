"""Generated usage: diurnal, bursty, and with memory that only grows in some pods. The parameters were fitted to one
half of a real day (`minikube_py.studies.prediction.fit`).

CPU. All pods serve one stream of work, whose intensity follows the day: its root is three harmonics of 24 hours plus a
first-order autoregression in steps of five minutes (diurnal). Each minute a pod gets a Poisson number of jobs with
gamma-distributed sizes (bursty), and its usage is capped at 1; its share of work, job size and evenness are drawn by
one rank. Memory. A start, a drift over the day and noise, each drawn from quantiles of the real pods; the noise partly
follows the work. A pod that rises by more than `rising` in a day releases nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import orjson

from minikube_py.lab.trace import TraceError
from minikube_py.scheduler.objects import CPU, MEMORY, PodInfo
from minikube_py.scheduler.prediction.predictor import FloatArray

TABLE: Final = "usage_fit.json"
MINUTES: Final = 1440
"""Of a day."""
BIN_MINUTES: Final = 5
BINS: Final = MINUTES // BIN_MINUTES
HARMONICS: Final = 3
LEAST_ROOT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Parameters:
    """`mean`: the average used share of a reservation. `root`: mean root of the intensity; `harmonics`: cosine, sine,
    cosine and so on. `rho`, `swing`: the autoregression between bins, and the deviation of its steps. `busy`, `job`,
    `shape`: of pods by rank, evenly spaced from 0 to 1: work relative to the mean, mean job size, and evenness of jobs.
    `start`, `drift`, `noise`: quantiles of memory; `follows`: the share of noise that follows the work, 0 to 1;
    `memory_rho`: of the rest. `widest`: the noise limit in deviations."""

    mean: float
    root: float
    harmonics: Sequence[float]
    rho: float
    swing: float
    busy: Sequence[float]
    job: Sequence[float]
    shape: Sequence[float]
    start: Sequence[float]
    drift: Sequence[float]
    noise: Sequence[float]
    follows: float
    memory_rho: float
    rising: float = 0.01
    widest: float = 2.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@lru_cache(maxsize=1)
def packaged() -> Parameters:
    """The fitted parameters."""
    text = resources.files("minikube_py.lab.traces").joinpath(TABLE).read_bytes()
    return Parameters(**orjson.loads(text)["parameters"])


def waves() -> FloatArray:
    """A row per bin, a column per cosine and sine."""
    angle = 2 * np.pi * np.arange(BINS) / BINS
    columns = [wave(k * angle) for k in range(1, HARMONICS + 1) for wave in (np.cos, np.sin)]
    return np.array(columns).T


class Generator:
    """One day of one service. `mean`: replaces the fitted one, before values are capped at 1. `alone`: each pod has its
    own stream of work, so that pods share only the time of day."""

    def __init__(
        self, seed: object, parameters: Parameters | None = None, mean: float = 0.0, alone: bool = False
    ) -> None:
        given = parameters or packaged()
        # Equal burstiness: a busier pod has larger jobs.
        grown = mean / given.mean if mean else 1.0
        self.parameters = replace(given, mean=given.mean * grown, job=[each * grown for each in given.job])
        self.seed = seed
        self._alone = alone
        self._common = self._intensity(self._rng("day"))

    def _rng(self, of: str) -> np.random.Generator:
        digest = hashlib.sha256(f"{self.seed}/{of}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def _intensity(self, rng: np.random.Generator) -> FloatArray:
        """By minute, about 1 on average."""
        p = self.parameters
        roots = p.root + waves() @ np.array(p.harmonics)
        steps, value = rng.standard_normal(BINS) * p.swing, 0.0
        for i, step in enumerate(steps):
            value = p.rho * value + step if i else step / max(1e-9, 1 - p.rho**2) ** 0.5
            roots[i] += value
        intensity = np.maximum(roots, LEAST_ROOT) ** 2
        return np.repeat(intensity / intensity.mean(), BIN_MINUTES)

    def cpu(self, pod: str) -> FloatArray:
        """By minute, the used share of the pod's reservation."""
        p, rng = self.parameters, self._rng(f"cpu {pod}")
        intensity = self._intensity(rng) if self._alone else self._common
        rank = rng.random()
        busy, job, shape = (_quantile(each, rank) for each in (p.busy, p.job, p.shape))
        jobs = rng.poisson(intensity * p.mean * busy / job)
        work = rng.standard_gamma(np.maximum(jobs, 1) * shape) * (job / shape)
        return np.minimum(np.where(jobs > 0, work, 0.0), 1.0)

    def memory(self, pod: str) -> FloatArray:
        p, rng = self.parameters, self._rng(f"memory {pod}")
        start, drift, noise = (_quantile(each, rng.random()) for each in (p.start, p.drift, p.noise))
        rest, value, by_bin = np.empty(BINS), 0.0, p.memory_rho**BIN_MINUTES
        for i, shock in enumerate(rng.standard_normal(BINS).tolist()):
            value = by_bin * value + (1 - by_bin**2) ** 0.5 * shock
            rest[i] = value
        common = np.sqrt(self._common)
        common = (common - common.mean()) / max(float(common.std()), 1e-9)
        wave = p.follows * common + (1 - p.follows**2) ** 0.5 * rest.repeat(BIN_MINUTES)
        used = start + drift * np.arange(MINUTES) / MINUTES + noise * np.clip(wave, -p.widest, p.widest)
        if drift > p.rising:
            used = np.maximum.accumulate(used)
        within: FloatArray = np.clip(used, 0.0, 1.0)
        return within


def _quantile(table: Sequence[float], share: float) -> float:
    return float(np.interp(share, np.linspace(0, 1, len(table)), table))


class Generated:
    """A usage source for a cluster: each pod has its own repeating day, by its uid.

    `seed`: of the day; `mean`: the average used share of a request, 0 for the fitted one; `alone`: without a common
    stream of work."""

    name = "Generated"

    def __init__(self, seed: int = 0, mean: float = 0.0, alone: bool = False) -> None:
        if not 0 <= mean <= 1:
            raise TraceError(f"mean is {mean!r}; a share from 0 to 1 is expected")
        self._generator = Generator(seed, mean=mean, alone=alone)
        self._day = lru_cache(maxsize=20_000)(self._made)

    def _made(self, uid: str) -> tuple[list[float], list[float]]:
        return self._generator.cpu(uid).tolist(), self._generator.memory(uid).tolist()

    def usage(self, pod: PodInfo, minute: int) -> Mapping[str, float]:
        cpu, memory = self._day(pod.uid)
        at = minute % MINUTES
        return {CPU: cpu[at] * pod.spec.request(CPU), MEMORY: memory[at] * pod.spec.request(MEMORY)}
