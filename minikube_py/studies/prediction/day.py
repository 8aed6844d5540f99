"""A real day of usage by minute: containers of Alibaba's cluster-trace-v2026-GenAI, from the published files.

The files are not packaged. `GPU duty cycle` is the busy share of a container's GPUs, `memory` the share of its memory
limit. Their 1,441 timestamps are 57 s apart: they count as minutes of one day.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from minikube_py.lab.prediction.generator import MINUTES
from minikube_py.lab.trace import TraceError
from minikube_py.scheduler.prediction.predictor import FloatArray

DUTY_CYCLE: Final = "pod_gpu_duty_cycle_anon.csv"
MEMORY: Final = "pod_memory_util_anon.csv"
HEAD: Final = "value,timestamp_anon,container_ip"
STAMP_S: Final = 57.0
LEAST_MINUTES: Final = 1200
"""Containers observed for less of the day are excluded."""


class Day(NamedTuple):
    """By container, 1,440 shares from 0 to 1; gaps repeat the last value."""

    duty: Mapping[str, FloatArray]
    memory: Mapping[str, FloatArray]

    def half(self, odd: bool) -> Day:
        """Each container belongs to one half, by its name."""
        duty, memory = (
            {name: row for name, row in rows.items() if (int(name[:8], 16) % 2 == 1) is odd} for rows in self
        )
        return Day(duty, memory)


def read(folder: Path) -> Day:
    """Of `folder`, or its folder `alibaba`; files may be .xz. Raises: TraceError."""
    place = folder / "alibaba" if (folder / "alibaba").is_dir() else folder
    return Day(_read(place, DUTY_CYCLE, 100.0), _read(place, MEMORY, 1.0))


def _read(folder: Path, name: str, whole: float) -> dict[str, FloatArray]:
    path = next((each for each in (folder / name, folder / f"{name}.xz") if each.is_file()), None)
    if path is None:
        raise TraceError(f"{folder}: no {name}; name the folder of the published files of cluster-trace-v2026-GenAI")
    try:
        text = (lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()).decode()
        head, *lines = text.splitlines()
        if head != HEAD:
            raise ValueError(f"the first line is {head!r}; {HEAD!r} is expected")
        rows = [(name, float(at), float(value)) for value, at, name in (line.split(",") for line in lines)]
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from error
    start = min((stamp for _, stamp, _ in rows), default=0.0)
    found: dict[str, FloatArray] = {}
    for container, stamp, value in rows:
        minute = round((stamp - start) / STAMP_S)
        if 0 <= minute < MINUTES:
            row = found.get(container)
            if row is None:
                row = found[container] = np.full(MINUTES, np.nan)
            row[minute] = min(max(value / whole, 0.0), 1.0)
    kept = {name: row for name, row in sorted(found.items()) if np.isfinite(row).sum() >= LEAST_MINUTES}
    return {name: _filled(row) for name, row in kept.items()}


def _filled(row: FloatArray) -> FloatArray:
    known = np.flatnonzero(np.isfinite(row))
    # The last value; before the first one, the first.
    return row[known[np.maximum(np.searchsorted(known, np.arange(len(row)), side="right") - 1, 0)]]
