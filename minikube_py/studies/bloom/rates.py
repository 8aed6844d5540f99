"""False positives of the range filters by bits per key and length, uniform and correlated, beside the bounds.

The setting of the published benches (Grafite, Memento), smaller: uniform 62-bit keys, empty ranges of L values;
correlated ones start at a key + U[1, 2^6]. The minimum for b bits per key and ranges up to L: eps = L / 2^b, from the
bound n lg(L/eps) - O(n) of Goswami et al., SODA 2015 (the constant left out).
"""

from __future__ import annotations

from time import thread_time_ns
from typing import Any

import numpy as np

from minikube_py.errors import MinikubeError
from minikube_py.index.filters.catalogue import filter_of
from minikube_py.index.filters.contract import Bounded
from minikube_py.index.structure import IntArray
from minikube_py.lab.study.design import Design, Unit
from minikube_py.studies.bloom.candidates import fitted
from minikube_py.studies.bloom.matching import Report

UNIVERSE = 1 << 62
QUERIES = 20_000
CLOSE = 1 << 6
TIME_LIMIT_S = {"quick": 0.5, "medium": 2.0, "full": 20.0}
SCALAR_QUERIES = 200


def measure(design: Design, unit: Unit) -> Report:
    levels = dict(unit.levels)
    rng = np.random.default_rng([unit.seed, 11, int(levels["keys"])])
    keys = rng.integers(UNIVERSE, size=int(levels["keys"]))
    lows, highs = empty_ranges(rng, keys, int(levels["length"]), str(levels["queries"]) == "correlated")
    found: dict[str, Report] = {}
    absent: dict[str, str] = {}
    for name in design.blocks["rates"]["filters"]:
        try:
            began_ns = thread_time_ns()
            options = fitted(name, int(levels["length"]))
            made = filter_of(name, keys, int(levels["bits_per_key"]), **options)
            build_us = (thread_time_ns() - began_ns) / 1000 / len(keys)
            found[name] = {**_one(made, keys, lows, highs, TIME_LIMIT_S[design.mode]), "build_us_per_key": build_us}
        except (MinikubeError, ImportError, KeyError, AttributeError, TypeError) as error:
            absent[name] = f"{name}: {' '.join(str(error).split())}"
    return {"candidates": found, "absent": absent}


def empty_ranges(rng: np.random.Generator, keys: IntArray, length: int, correlated: bool) -> tuple[IntArray, IntArray]:
    """Closed ranges of `length` values without keys."""
    ordered = np.sort(keys)
    lows = rng.integers(UNIVERSE - length, size=QUERIES)
    if correlated:
        lows = rng.choice(keys, size=QUERIES) + rng.integers(1, CLOSE, size=QUERIES, endpoint=True)
    highs = lows + (length - 1)
    empty = np.searchsorted(ordered, lows, side="left") == np.searchsorted(ordered, highs, side="right")
    return lows[empty], highs[empty]


def _one(made: Any, keys: IntArray, lows: IntArray, highs: IntArray, limit_s: float) -> Report:
    """In slices, until all are queried or the time is up."""
    asked = hits = 0
    step = 500
    began_ns = thread_time_ns()
    for start in range(0, len(lows), step):
        answers = np.asarray(made.may_contain_many(lows[start : start + step], highs[start : start + step]))
        asked, hits = asked + len(answers), hits + int(np.count_nonzero(answers))
        if thread_time_ns() - began_ns > limit_s * 1e9:
            break
    many_us = (thread_time_ns() - began_ns) / 1000 / max(1, asked)
    scalar_us, scalar_asked = _scalar(made, lows, highs, limit_s)
    missed = int(np.count_nonzero(~np.asarray(made.may_contain_many(keys[:2000], keys[:2000]))))
    length = int(highs[0] - lows[0]) + 1 if len(lows) else 1
    return {
        "asked": asked,
        "false_positives": hits,
        "bits_per_key": made.size_bits() / len(keys),
        "probe_many_us": many_us,
        "probe_us": scalar_us,
        "probe_asked": scalar_asked,
        "bound": float(made.bound(length)) if isinstance(made, Bounded) else None,
        "wrong": missed,
    }


def _scalar(made: Any, lows: IntArray, highs: IntArray, limit_s: float) -> tuple[float, int]:
    asked = 0
    ranges = list(zip(lows[:SCALAR_QUERIES].tolist(), highs[:SCALAR_QUERIES].tolist()))
    began_ns = thread_time_ns()
    for low, high in ranges:
        made.may_contain(low, high)
        asked += 1
        if thread_time_ns() - began_ns > limit_s * 1e9:
            break
    return (thread_time_ns() - began_ns) / 1000 / max(1, asked), asked
