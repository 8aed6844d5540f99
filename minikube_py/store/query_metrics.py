"""What indexed queries have cost so far."""

from __future__ import annotations

from minikube_py.mvcc.types import RangeResult


class QueryMetrics:
    """`by_index`: the queries that each declared index answered; "" stands for those that none did."""

    __slots__ = (
        "by_index",
        "false_positives",
        "objects_decoded",
        "queries",
        "rows_examined",
        "shards_examined",
        "taken_us",
    )

    def __init__(self) -> None:
        self.queries = 0
        self.rows_examined = 0
        self.objects_decoded = 0
        self.shards_examined = 0
        self.false_positives = 0
        self.taken_us = 0.0
        self.by_index: dict[str, int] = {}

    def observe(self, result: RangeResult) -> None:
        stats = result.stats
        if stats is None:
            return
        self.queries += 1
        self.rows_examined += stats.rows_examined
        self.objects_decoded += stats.objects_decoded
        self.shards_examined += stats.shards_examined
        self.false_positives += stats.false_positives
        self.taken_us += stats.taken_us
        self.by_index[stats.index] = self.by_index.get(stats.index, 0) + 1

    def samples(self, prefix: str) -> dict[str, float]:
        named = sum(count for name, count in self.by_index.items() if name)
        return {
            prefix + "index_queries_total": self.queries,
            prefix + "index_rows_examined_total": self.rows_examined,
            prefix + "index_objects_decoded_total": self.objects_decoded,
            prefix + "index_shards_examined_total": self.shards_examined,
            prefix + "index_false_positives_total": self.false_positives,
            prefix + "index_query_seconds_total": self.taken_us / 1e6,
            prefix + "index_hits_total": named,
            **{
                f'{prefix}index_hits_by_name_total{{index="{name}"}}': count
                for name, count in sorted(self.by_index.items())
                if name
            },
        }
