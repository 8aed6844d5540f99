"""Compacts an etcd's history older than one or two intervals, coordinated with all API servers on it.

Source: apiserver pkg/storage/etcd3/compact.go: the server that first raises the version of one key in an interval
compacts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from minikube_py.env import Clock
from minikube_py.errors import MinikubeError
from minikube_py.etcd.client import EtcdClient
from minikube_py.etcd.feed import COMPACT_KEY
from minikube_py.etcd.messages import pb

log = logging.getLogger(__name__)


class Compactor:
    """`compacted` is called with each revision that this one compacted."""

    def __init__(
        self, client: EtcdClient, clock: Clock, interval_s: float, compacted: Callable[[int], None]
    ) -> None:
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
