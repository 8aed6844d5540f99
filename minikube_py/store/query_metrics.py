"""Costs of indexed queries."""

from __future__ import annotations

from collections import Counter
from typing import Final

from minikube_py.mvcc.types import RangeResult

COUNTED: Final = ("rows_examined", "objects_decoded", "shards_examined", "false_positives")


class QueryMetrics:
    """`by_index`: the queries that each declared index answered; "" counts those answered without one."""

    __slots__ = ("by_index", "queries", "sums", "taken_us")

    def __init__(self) -> None:
        self.queries = 0
        self.sums = Counter[str]()
        self.taken_us = 0.0
        self.by_index = Counter[str]()

    def observe(self, result: RangeResult) -> None:
        stats = result.stats
        if stats is None:
            return
        self.queries += 1
        for name in COUNTED:
            self.sums[name] += getattr(stats, name)
        self.taken_us += stats.taken_us
        self.by_index[stats.index] += 1

    def samples(self, prefix: str) -> dict[str, float]:
        named = {name: count for name, count in sorted(self.by_index.items()) if name}
        return {
            prefix + "index_queries_total": self.queries,
            **{f"{prefix}index_{name}_total": self.sums[name] for name in COUNTED},
            prefix + "index_query_seconds_total": self.taken_us / 1e6,
            prefix + "index_hits_total": sum(named.values()),
            **{f'{prefix}index_hits_by_name_total{{index="{name}"}}': count for name, count in named.items()},
        }
