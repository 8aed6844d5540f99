"""Parses a server's /metrics, and computes latencies from its histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from minikube_py.client.transport import ApiTransport
from minikube_py.errors import Unavailable

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})?\s+(\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

G = TypeVar("G")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and sorted labels."""


def parse(text: str) -> Samples:
    """The Prometheus text format 0.0.4; comments and timestamps are ignored."""
    samples: Samples = {}
    for line in text.splitlines():
        if line.startswith("#") or not (match := _SAMPLE.match(line)):
            continue
        name, labels, value = match.groups()
        samples[name, tuple(sorted(_LABEL.findall(labels or "")))] = float(value)
    return samples


async def scrape(transport: ApiTransport) -> Samples:
    """Raises: Unavailable."""
    answer = await transport.request("GET", "/metrics")
    if answer.status != 200:
        raise Unavailable(f"GET /metrics answered {answer.status}")
    return parse(answer.body.decode())


def total_of_suffix(samples: Samples, suffix: str) -> float:
    """The sum over all samples with this name suffix; 0 if there are none."""
    return sum(value for (name, _), value in samples.items() if name.endswith(suffix))


def histogram_quantile(buckets: Mapping[float, float], quantile: float) -> float:
    """Like Prometheus' histogram_quantile: linear within the bucket, or the highest bound if above; nan if empty.

    `buckets`: cumulative counts by upper bound, inf included.
    """
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]]:
        return math.nan
    rank = quantile * buckets[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if math.isinf(bound):
                return lower
            inside = buckets[bound] - below
            return lower + (bound - lower) * ((rank - below) / inside if inside else 1.0)
        lower, below = bound, buckets[bound]
    return lower


def grown_buckets(
    name: str, before: Samples, after: Samples, group_of: Callable[[Mapping[str, str]], G | None]
) -> dict[G, dict[float, float]]:
    """What a histogram's buckets counted between two scrapes, by upper bound; by group, without those of None."""
    found: dict[G, dict[float, float]] = {}
    for (series, pairs), value in after.items():
        labels = dict(pairs)
        if series == f"{name}_bucket" and (group := group_of(labels)) is not None:
            counts, bound = found.setdefault(group, {}), float(labels["le"])
            counts[bound] = counts.get(bound, 0.0) + value - before.get((series, pairs), 0.0)
    return found


FIRST_BOUND_MS = 50
SLI = "apiserver_request_sli_duration_seconds"


def api_call_slis(before: Samples, after: Samples) -> dict[str, dict[str, float]]:
    """Per `verb resource scope` of the calls between two scrapes: count and p50, p90, p99 in ms, by the server's
    histogram (request received to last byte sent).

    Upstream's first bucket ends at 50 ms; a percentile within it is reported as that bound.
    """

    def called(labels: Mapping[str, str]) -> str:
        return " ".join(filter(None, (labels.get("verb"), _resource(labels), labels.get("scope"))))

    figures = {}
    for what, group in sorted(grown_buckets(SLI, before, after, called).items()):
        if count := group.get(math.inf, 0.0):
            first_s = min(group)
            quantiles_s = {p: max(first_s, histogram_quantile(group, p / 100)) for p in (50, 90, 99)}
            figures[what] = {"count": count, **{f"p{p}_ms": round(s * 1000, 3) for p, s in quantiles_s.items()}}
    return figures


def _resource(labels: Mapping[str, str]) -> str:
    resource, subresource = labels.get("resource", ""), labels.get("subresource", "")
    return f"{resource}/{subresource}" if subresource else resource
