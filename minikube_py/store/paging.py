"""Large ranges: read, filtered and sorted in pages, all at one revision, between the loop's other work."""

from __future__ import annotations

import asyncio
from heapq import merge
from itertools import islice
from typing import Final, Protocol

from minikube_py.errors import Compacted
from minikube_py.mvcc.reads import SORT_KEY, fetch_limit, finish
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import KeyValue, RangeRequest, RangeResult

PAGE: Final = 5_000
"""Keys that one step reads, filters or sorts."""


class Readable(Protocol):
    @property
    def state(self) -> StateMachine: ...

    def read(self, request: RangeRequest) -> RangeResult: ...


def is_small(state: StateMachine, asked: RangeRequest) -> bool:
    """Whether one step can answer it. Index queries are not paged."""
    index = state.index
    if not asked.range_end or asked.where is not None or asked.fields:
        return True
    few = asked.count_only or 0 < fetch_limit(asked) <= PAGE
    if 0 < asked.revision < state.revision:
        # Counting at an old revision looks at everything written since.
        return len(index.live) + len(index.dead) <= PAGE or (few and state.revision - asked.revision <= PAGE)
    return few or index.count(asked.key, asked.range_end) <= PAGE


async def read(member: Readable, asked: RangeRequest) -> RangeResult:
    """As `member.read`. Raises: the same; Compacted if its revision is compacted meanwhile."""
    state = member.state
    if is_small(state, asked):
        return member.read(asked)
    now = member.read(asked._replace(key=asked.key or b"\0", range_end=b"", limit=0)).revision
    at = asked.revision if asked.revision > 0 else now
    counted, limit = at == now, fetch_limit(asked)
    count = state.index.count(asked.key, asked.range_end) if counted else 0
    pages: list[list[KeyValue]] = []
    kept, start = 0, asked.key
    while not (counted and 0 < limit <= kept):
        if at < state.compact_revision:
            raise Compacted(at, state.compact_revision)
        found, following = state.index.page_at(start, asked.range_end, at, PAGE)
        if not counted:
            count += len(found)
        if not asked.count_only and not 0 < limit <= kept:
            # A limit without an order or filters counts in key order, whatever the sort field.
            found = found[: limit - kept] if limit else found
            pages.append(finish(asked._replace(limit=0, keys_only=False), found)[0])
            kept += len(pages[-1])
        if following is None:
            break
        start = following
        await asyncio.sleep(0)
    if asked.count_only:
        return RangeResult([], count, False, now)
    kvs = await _in_order(asked, pages)
    more = 0 < asked.limit < len(kvs)
    if more:
        del kvs[asked.limit :]
    if asked.keys_only:
        whole, kvs = kvs, []
        for first in range(0, len(whole), PAGE):
            kvs += finish(asked._replace(limit=0), whole[first : first + PAGE])[0]
            await asyncio.sleep(0)
    return RangeResult(kvs, count, more, now)


async def _in_order(asked: RangeRequest, pages: list[list[KeyValue]]) -> list[KeyValue]:
    """Merges sorted pages, up to one more than the limit."""
    kvs: list[KeyValue] = []
    descending = asked.sort_order == "DESCEND"
    if asked.sort_target == "KEY":
        for page in reversed(pages) if descending else pages:
            kvs += page
        return kvs
    merged = merge(*pages, key=SORT_KEY[asked.sort_target], reverse=descending)
    while part := list(islice(merged, PAGE)):
        kvs += part
        if 0 < asked.limit < len(kvs):
            break
        await asyncio.sleep(0)
    return kvs
