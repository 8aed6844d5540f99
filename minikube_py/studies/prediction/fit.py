"""Fits the generator's parameters to one half of a real day, and evaluates them on the other half."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from minikube_py.lab.prediction.generator import BIN_MINUTES, BINS, MINUTES, Parameters, waves
from minikube_py.scheduler.prediction.predictor import FloatArray
from minikube_py.studies.prediction import day
from minikube_py.studies.prediction.day import Day

SOURCE: Final = "alibaba/clusterdata, cluster-trace-v2026-GenAI: GPU duty cycle and memory, one day"
QUANTILES: Final = 11
IDLE: Final = 0.001
"""Containers below this usage count as inactive."""


def fitted(half: Day) -> Parameters:
    duty, memory = (np.array(list(rows.values())) for rows in half)
    bins = duty.mean(axis=0).reshape(BINS, BIN_MINUTES).mean(axis=1)
    roots = np.sqrt(bins)
    shape = np.column_stack([np.ones(BINS), waves()])
    weights, *_ = np.linalg.lstsq(shape, roots, rcond=None)
    left = roots - shape @ weights
    rho = float(np.corrcoef(left[:-1], left[1:])[0, 1])
    start, drift, noise, follows, memory_rho = _of_memory(memory, np.repeat(roots, BIN_MINUTES))
    busy, job, even = _of_pods(duty, np.repeat(bins / bins.mean(), BIN_MINUTES))
    return Parameters(
        mean=_told(duty.mean()),
        root=_told(weights[0]),
        harmonics=[_told(each) for each in weights[1:]],
        rho=_told(rho),
        swing=_told(left.std() * math.sqrt(1 - rho**2)),
        busy=busy,
        job=job,
        shape=even,
        start=start,
        drift=drift,
        noise=noise,
        follows=follows,
        memory_rho=memory_rho,
    )


def _of_pods(duty: FloatArray, intensity: FloatArray) -> list[list[float]]:
    """Pods by activity: work relative to the mean, job size, evenness of sizes; inactive ones are excluded."""
    means = duty.mean(axis=1)
    ranked = duty[np.argsort(means, kind="stable")][int((means < IDLE).sum()) :]
    rows = []
    for row in ranked:
        expected = intensity * row.mean()
        job = _job(expected, float((row == 0).mean()))
        varies = float(((row - expected) ** 2).mean()) / (job * row.mean())
        rows.append((row.mean() / duty.mean(), job, 1 / min(max(varies - 1, 0.02), 20.0)))
    # Each knot is the median of its neighbours by rank: single pods out of 49 say little.
    groups = np.array_split(np.array(rows), QUANTILES)
    return [[_told(np.median(group[:, column])) for group in groups] for column in range(3)]


def _job(intensity: FloatArray, idle: float) -> float:
    """The job size at which a pod is idle for the given share of minutes: exp(-intensity / job) on average."""
    low, high = 1e-4, 1e4
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if np.exp(-intensity / middle).mean() < idle else (low, middle)
    return low


def _of_memory(memory: FloatArray, work: FloatArray) -> tuple[list[float], list[float], list[float], float, float]:
    """Quantiles, the share of noise that follows the work, and the autoregression of the rest."""
    time = np.arange(MINUTES) / MINUTES
    first, last = memory[:, :60].mean(axis=1), memory[:, -60:].mean(axis=1)
    drift = (last - first) * MINUTES / (MINUTES - 60)
    left = memory - first[:, None] - drift[:, None] * (time - 30 / MINUTES)
    left -= left.mean(axis=1, keepdims=True)
    noise = left.std(axis=1)
    moving = left[noise > 1e-3]
    follows = max(0.0, float(np.median([np.corrcoef(row, work)[0, 1] for row in moving])))
    rest = [row / row.std() - follows * (work - work.mean()) / work.std() for row in moving]
    rho = float(np.median([np.corrcoef(row[:-1], row[1:])[0, 1] for row in rest]))
    tables = [
        [_told(each) for each in np.quantile(values, np.linspace(0, 1, QUANTILES))] for values in (first, drift, noise)
    ]
    return tables[0], tables[1], tables[2], _told(follows), _told(rho)


def _told(value: Any) -> float:
    return float(f"{float(value):.4g}")


Figure = Callable[[FloatArray], float]


def _five(rows: FloatArray) -> FloatArray:
    means: FloatArray = rows.reshape(len(rows), -1, BIN_MINUTES).mean(axis=2)
    return means


def _neighbours(rows: FloatArray) -> float:
    moving = rows[rows.std(axis=1) > 1e-9]
    return float(np.median([np.corrcoef(row[:-1], row[1:])[0, 1] for row in moving]))


def _together(rows: FloatArray) -> float:
    moving = rows[rows.std(axis=1) > 1e-9]
    return float(np.median(np.corrcoef(moving)[np.triu_indices(len(moving), 1)]))


FIGURES: Final[Mapping[str, Mapping[str, Figure]]] = {
    "duty": {
        "mean": lambda rows: float(rows.mean()),
        "deviation": lambda rows: float(rows.std()),
        "idle minutes": lambda rows: float((rows == 0).mean()),
        "99th percentile": lambda rows: float(np.percentile(rows, 99)),
        "peak of a pod": lambda rows: float(np.median(rows.max(axis=1))),
        "correlation with the next minute": _neighbours,
        "correlation of two pods": _together,
        "peak of all together, five minutes": lambda rows: float(_five(rows).mean(axis=0).max()),
    },
    "memory": {
        "mean": lambda rows: float(rows.mean()),
        "deviation between pods": lambda rows: float(rows.mean(axis=1).std()),
        "range of a pod in the day, median": lambda rows: float(np.median(np.ptp(rows, axis=1))),
        "range of a pod in the day, 90th percentile": lambda rows: float(np.percentile(np.ptp(rows, axis=1), 90)),
        "pods that rise by more than 0.01": lambda rows: float(
            (rows[:, -60:].mean(axis=1) - rows[:, :60].mean(axis=1) > 0.01).mean()
        ),
    },
}


def figures(duty: FloatArray, memory: FloatArray) -> dict[str, dict[str, float]]:
    return {
        name: {figure: _told(of(rows)) for figure, of in FIGURES[name].items()}
        for name, rows in (("duty", duty), ("memory", memory))
    }


def convert(source: Path) -> bytes:
    """The packaged table: parameters of the even half, figures of both. Raises: TraceError."""
    whole = day.read(source)
    halves = {name: whole.half(odd) for name, odd in (("fitted", False), ("heldOut", True))}
    document = {
        "source": SOURCE,
        "pods": {name: {"duty": len(half.duty), "memory": len(half.memory)} for name, half in halves.items()},
        "parameters": fitted(halves["fitted"]).as_dict(),
        "figures": {name: figures(*(np.array(list(rows.values())) for rows in half)) for name, half in halves.items()},
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
