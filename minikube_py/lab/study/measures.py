"""Which function measures the units of which block."""

from __future__ import annotations

from typing import Final

from minikube_py.lab.study import behind, matching, probes, rates, staged

MEASURES: Final[dict[str, matching.Measure]] = {
    "grid": matching.measure,
    "dimensions": matching.measure,
    "bits": matching.measure,
    "repetition": matching.measure,
    "placement": matching.measure,
    "ranges": matching.measure,
    "churn": staged.churn,
    "history": staged.history,
    "stream": staged.stream,
    "rates": rates.measure,
    "probes": probes.measure,
    "behind": behind.measure,
}
