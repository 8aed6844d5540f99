"""Range requests: at a revision, counted, limited, filtered and sorted as etcd does, or found through an index.

Source: etcd server/etcdserver/txn/range.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.index.contract import Row
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.key_index import end_of
from minikube_py.mvcc.queries import Explained as Explained
from minikube_py.mvcc.queries import Queries
from minikube_py.mvcc.tables import Tables
from minikube_py.mvcc.types import Event, KeyValue, QueryStats, RangeRequest, RangeResult

LIMIT_REACHABLE: Final = 1 << 40
"""No store holds this many keys: a larger limit means none."""
SORT_KEY: Final = {
    "KEY": attrgetter("key"),
    "VERSION": attrgetter("version"),
    "CREATE": attrgetter("create_revision"),
    "MOD": attrgetter("mod_revision"),
    "VALUE": attrgetter("value"),
}


class Reads:
    """Answers range requests over the parts of one state machine."""

    def __init__(self, view: View, tables: Tables) -> None:
        self._view = view
        self._queries = Queries(view, tables)

    def range(self, request: RangeRequest, now: int, pending: Sequence[Event]) -> RangeResult:
        """`now` is the revision of the key index; `pending` are its events not yet in the log.

        Raises: Compacted, FutureRevision; InvalidRequest for a `where` or `fields` that cannot be answered."""
        at = request.revision
        if not 0 <= request.limit < LIMIT_REACHABLE:
            request = request._replace(limit=0)
        if at <= 0:
            at = now
        elif at > now:
            raise FutureRevision(at, now)
        elif at < self._view.compact_revision:
            raise Compacted(at, self._view.compact_revision)
        if request.where is not None or request.fields:
            return self._indexed(request, at, now)
        index = self._view.index
        key, range_end = request.key, request.range_end
        if request.count_only:
            return RangeResult([], self._count(key, range_end, at, now, pending), False, now)
        limit = fetch_limit(request)
        if at == now:
            kvs = index.range(key, range_end, limit)
            count = len(kvs) if not limit or len(kvs) < limit else index.count(key, range_end)
        else:
            kvs = index.range_at(key, range_end, at, limit)
            count = len(kvs) if not limit or len(kvs) < limit else self._count(key, range_end, at, now, pending)
        kvs, more = finish(request, kvs)
        return RangeResult(kvs, count, more, now)

    def _count(self, key: bytes, range_end: bytes, at: int, now: int, pending: Sequence[Event]) -> int:
        """How many keys of the range existed at `at`: the current ones, minus those created since, plus those
        deleted."""
        index = self._view.index
        if not range_end:
            return len(index.range_at(key, range_end, at))
        count = index.count(key, range_end)
        if at == now:
            return count
        log = self._view.log
        since = min(now, log.last) - at
        if since > len(index.live) + len(index.dead):
            return len(index.range_at(key, range_end, at))
        end = end_of(range_end)
        for events in (*log.between(at, log.last), pending):
            for kind, kv, _ in events:
                if key <= kv.key and (end is None or kv.key < end):
                    if kind == "DELETE":
                        count += 1
                    elif kv.version == 1:
                        count -= 1
        return count

    def _indexed(self, request: RangeRequest, at: int, now: int) -> RangeResult:
        index = self._view.index
        query, tests = self._queries.read(request)
        if request.where is not None:
            # A filter or a custom order needs all keys; the limit is applied at the end.
            asked = request
            if request.count_only:
                asked = request._replace(limit=1, order="KEY")
            elif not fetch_limit(request):
                asked = request._replace(limit=0)
            matches, stats = self._queries.answer(query, tests, asked, at)
            if at == now:
                kvs = [kv for key in matches.keys if (kv := index.current.get(key)) is not None]
            else:
                kvs = [kv for key in matches.keys if (kv := index.at(key, at)) is not None]
            count, more_matches = matches.count, matches.more
        else:
            kvs = index.range_at(request.key, request.range_end, at, fetch_limit(request))
            count, more_matches = self._count(request.key, request.range_end, at, now, ()), False
            stats = QueryStats("columns", 0, 0)
        if request.count_only:
            return RangeResult([], count, False, now, None, stats)
        kvs, more = finish(request, kvs)
        fields: list[tuple[int | str | None, ...]] | None = None
        if request.fields:
            table, keys = query.table, [kv.key for kv in kvs]
            if table is None:
                standing = [kv for key in keys if (kv := index.at(key, at)) is not None]
                scanned = self._queries.scanned(query, standing, at)
                stats = stats._replace(structure="scan", objects_decoded=stats.objects_decoded + scanned.decoded)
                rows: Sequence[Row | None] = [scanned.rows.get(key) for key in keys]
            else:
                rows = table.index.rows(keys, min(at, table.index.revision))
            fields = [tuple([(row or {}).get(name) for name in request.fields]) for row in rows]
        return RangeResult(kvs, count, more or more_matches, now, fields, stats)

    def explain(self, request: RangeRequest, now: int) -> Explained:
        """Raises: as `range`."""
        at = request.revision if request.revision > 0 else now
        if at > now:
            raise FutureRevision(at, now)
        if at < self._view.compact_revision:
            raise Compacted(at, self._view.compact_revision)
        if not 0 <= request.limit < LIMIT_REACHABLE:
            request = request._replace(limit=0)
        return self._queries.explain(request, at)


def fetch_limit(request: RangeRequest) -> int:
    """How many to fetch before filters and order: one more than the limit if neither applies, else all (0)."""
    if request.limit <= 0 or _filters(request) or not _default_order(request):
        return 0
    return request.limit + 1


def _default_order(request: RangeRequest) -> bool:
    return request.sort_order == "NONE" or (request.sort_target == "KEY" and request.sort_order == "ASCEND")


def _filters(request: RangeRequest) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def finish(request: RangeRequest, kvs: list[KeyValue]) -> tuple[list[KeyValue], bool]:
    """Filters, sorts, limits and strips `kvs`; also whether the limit cut any off."""
    if _filters(request):
        low, high = request.min_mod_revision, request.max_mod_revision
        low_create, high_create = request.min_create_revision, request.max_create_revision
        kvs = [
            kv
            for kv in kvs
            if (not high or kv.mod_revision <= high)
            and (not low or kv.mod_revision >= low)
            and (not high_create or kv.create_revision <= high_create)
            and (not low_create or kv.create_revision >= low_create)
        ]
    descending = request.sort_order == "DESCEND"
    if descending or request.sort_target != "KEY":
        kvs = sorted(kvs, key=SORT_KEY[request.sort_target], reverse=descending)
    more = 0 < request.limit < len(kvs)
    if more:
        kvs = kvs[: request.limit]
    if request.keys_only:
        # Upstream answers such a request from its key index, which has no leases; by VALUE it cannot.
        lease = request.sort_target == "VALUE"
        kvs = [KeyValue(kv[0], b"", kv[2], kv[3], kv[4], kv[5] if lease else 0) for kv in kvs]
    return kvs, more
