"""Compacts an etcd's history older than one or two intervals, coordinated with all API servers on it; and lets a mirror
forget what others have compacted.

Source: apiserver pkg/storage/etcd3/compact.go: the server that first raises the version of one key in an interval
compacts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from minikube_py.env import Clock
from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.etcd.client import EtcdClient
from minikube_py.etcd.errors import COMPACTED
from minikube_py.etcd.feed import COMPACT_KEY, Feed
from minikube_py.etcd.messages import pb

log = logging.getLogger(__name__)
FORGOTTEN_S: Final = 300.0
"""As often as API servers compact by default."""


class Compactor:
    """`compacted` is called with each revision that this one compacted."""

    def __init__(self, client: EtcdClient, clock: Clock, interval_s: float, compacted: Callable[[int], None]) -> None:
        self._client, self._clock, self._interval_s, self._compacted = client, clock, interval_s, compacted
        self._version = 0
        self._revision = 0

    async def run(self) -> None:
        """Runs until cancelled; idle forever with an interval of 0."""
        while self._interval_s:
            await self._clock.sleep(self._interval_s)
            try:
                await self.step()
            except Exception as error:
                log.warning("etcd was not compacted: %s", error, exc_info=not isinstance(error, MinikubeError))

    async def step(self) -> None:
        """Raises: MinikubeError."""
        revision = self._revision
        compare = pb.Compare(key=COMPACT_KEY, target=0, result=0, version=self._version)
        put = pb.RequestOp(request_put=pb.PutRequest(key=COMPACT_KEY, value=b"%d" % revision))
        get = pb.RequestOp(request_range=pb.RangeRequest(key=COMPACT_KEY))
        request = pb.TxnRequest(compare=[compare], success=[put], failure=[get])
        answer = await self._client.write("KV/Txn", request)
        self._revision = answer.header.revision
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            self._version = found[0].version if found else 0
            return
        self._version += 1
        if revision:
            await self._client.write("KV/Compact", pb.CompactionRequest(revision=revision))
            self._compacted(revision)


class Forgetting:
    """etcd compacts itself (`--auto-compaction-retention`), or an operator does, and tells only who asks for less. What
    the mirror has learned in the last interval it keeps, so that no watch that runs loses its place."""

    def __init__(self, client: EtcdClient, clock: Clock, feed: Feed) -> None:
        self._client, self._clock, self._feed = client, clock, feed
        self._before = 0

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._clock.sleep(FORGOTTEN_S)
            try:
                await self.step()
            except Exception as error:
                log.warning(
                    "what etcd has compacted is unknown: %s", error, exc_info=not isinstance(error, MinikubeError)
                )

    async def step(self) -> None:
        """Raises: MinikubeError."""
        mirror = self._feed.mirror
        low, high = mirror.state.compact_revision, min(self._before, mirror.revision)
        self._before = mirror.revision
        if low >= high or not await self._gone(low):
            return
        while low < high:
            middle = (low + high + 1) // 2
            if await self._gone(middle - 1):
                low = middle
            else:
                high = middle - 1
        if self._feed.mirror is mirror:
            mirror.compact(low)

    async def _gone(self, revision: int) -> bool:
        """Whether etcd was compacted at a later one."""
        try:
            await self._client.read("KV/Range", pb.RangeRequest(key=COMPACT_KEY, revision=revision, count_only=True))
        except InvalidRequest as error:
            if str(error) != COMPACTED[1]:
                raise
            return True
        return False
