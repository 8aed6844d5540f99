"""Counters and histograms in Prometheus' text format, cheap enough to update on each request.

Names and buckets are upstream's (`apiserver_request_sli_duration_seconds`: the SLI of API call latency).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from minikube_py.apiserver.routes import ResourcePath
from minikube_py.ports.metric_lines import lines_of

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

SLI_BUCKETS: Final = (
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
REQUEST_BUCKETS: Final = (0.005, 0.025, *SLI_BUCKETS)
_BEFORE_SLI: Final = len(REQUEST_BUCKETS) - len(SLI_BUCKETS)
_VERBS: Final = {
    "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
    "get": "GET", "list": "LIST", "watch": "WATCH",
}  # fmt: skip
_NO_RESOURCE: Final = ("", "", "", "", "")


class Series:
    """One combination of labels: request counts by code, and latency buckets."""

    __slots__ = ("by_code", "counts", "sum_s")

    def __init__(self) -> None:
        self.by_code: dict[int, int] = {}
        self.counts = [0] * (len(REQUEST_BUCKETS) + 1)
        self.sum_s = 0.0

    def observe(self, code: int, duration_s: float, count: int = 1) -> None:
        self.by_code[code] = self.by_code.get(code, 0) + count
        self.counts[bisect_left(REQUEST_BUCKETS, duration_s)] += count
        self.sum_s += duration_s * count

    @property
    def sli_counts(self) -> list[int]:
        return [sum(self.counts[: _BEFORE_SLI + 1]), *self.counts[_BEFORE_SLI + 1 :]]


SeriesKey = tuple[str, str, str, str, str, str]


class RequestMetrics:
    def __init__(self) -> None:
        self._series: dict[SeriesKey, Series] = {}

    def reset(self) -> None:
        self._series.clear()

    def observe(self, path: ResourcePath | None, verb: str, code: int, duration_s: float, count: int = 1) -> None:
        """`count` requests alike."""
        if path is None or path.resource is None:
            key: SeriesKey = (_VERBS.get(verb, "GET"), *_NO_RESOURCE)
        else:
            scope = "resource" if path.name or verb == "create" else "namespace" if path.namespace else "cluster"
            known = path.found.name if path.found is not None else ""
            key = (_VERBS.get(verb, "other"), path.group, path.version, path.plural, known, scope)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
        series.observe(code, duration_s, count)

    def lines(self) -> Iterable[str]:
        yield "# TYPE apiserver_request_total counter"
        for key, series in self._series.items():
            labels = _labels(key)
            for code, count in series.by_code.items():
                yield f'apiserver_request_total{{{labels},code="{code}"}} {count}'
        yield from self._histogram("apiserver_request_duration_seconds", REQUEST_BUCKETS, False)
        yield from self._histogram("apiserver_request_sli_duration_seconds", SLI_BUCKETS, True)

    def _histogram(self, name: str, buckets: tuple[float, ...], sli: bool) -> Iterable[str]:
        yield f"# TYPE {name} histogram"
        for key, series in self._series.items():
            if key[0] == "WATCH":
                continue
            labels, total = _labels(key), 0
            for limit, count in zip((*buckets, None), series.sli_counts if sli else series.counts):
                total += count
                yield f'{name}_bucket{{{labels},le="{"+Inf" if limit is None else f"{limit:g}"}"}} {total}'
            yield f"{name}_sum{{{labels}}} {series.sum_s:.6f}"
            yield f"{name}_count{{{labels}}} {total}"


def _labels(key: SeriesKey) -> str:
    names = ("verb", "group", "version", "resource", "subresource", "scope")
    pairs = ",".join(f'{name}="{value}"' for name, value in zip(names, key))
    return f'{pairs},component="apiserver"'


def render(requests: RequestMetrics, gauges: Mapping[str, float]) -> bytes:
    """The text of `/metrics`. Names in `gauges` may carry labels in braces."""
    return ("\n".join((*requests.lines(), *lines_of(gauges))) + "\n").encode()


def gauges(server: ApiServer, requests: int) -> dict[str, float]:
    """Counters and gauges by Prometheus name: of the API server, which handles so many `requests`, and of its store."""
    found: dict[str, float] = {"apiserver_current_inflight_requests": requests}
    for resource, cache in server.cache.caches.items():
        if resource.converts is not None:
            continue
        labels = f'{{group="{resource.group}",resource="{resource.plural}"}}'
        found[f"apiserver_resource_objects{labels}"] = cache.count()
    found["apiserver_unreadable_objects"] = len(server.cache.reading.why)
    found["apiserver_unserved_definitions"] = server.custom.unserved
    for resource, broadcaster in server.watching.broadcasters.items():
        labels = f'{{group="{resource.group}",version="{resource.version}",kind="{resource.kind}"}}'
        found[f"apiserver_registered_watchers{labels}"] = broadcaster.streams
    found["apiserver_watch_cache_resource_version"] = server.cache.revision
    found |= {**server.in_flight.metrics(), **server.connection_metrics()}
    found.update(server.component_metrics())
    found.update(server.watching.metrics())
    if server.auditor is not None:
        found.update(server.auditor.metrics())
    return found | server.storage.metrics()
