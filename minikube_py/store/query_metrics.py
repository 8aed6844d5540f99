"""What indexed queries have cost so far."""

from __future__ import annotations

from minikube_py.mvcc.types import RangeResult


class QueryMetrics:
    __slots__ = ("objects_decoded", "queries", "rows_examined")

    def __init__(self) -> None:
        self.queries = 0
        self.rows_examined = 0
        self.objects_decoded = 0

    def observe(self, result: RangeResult) -> None:
        if result.stats is not None:
            self.queries += 1
            self.rows_examined += result.stats.rows_examined
            self.objects_decoded += result.stats.objects_decoded

    def samples(self, prefix: str) -> dict[str, float]:
        return {
            prefix + "index_queries_total": self.queries,
            prefix + "index_rows_examined_total": self.rows_examined,
            prefix + "index_objects_decoded_total": self.objects_decoded,
        }
