"""An etcd in memory behind a `Feed`: our own server's methods without gRPC, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
from virtual_time import LoopClock

from minikube_py.errors import Compacted, InvalidRequest
from minikube_py.etcd.errors import COMPACTED
from minikube_py.etcd.feed import Feed
from minikube_py.etcd.keys import Keys
from minikube_py.etcd.kv import KV
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.etcd.pieces import message_of
from minikube_py.etcd.watch import WatchStream
from minikube_py.etcd.wording import Wording
from minikube_py.sim.disk import SimDisk
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig


class FakeStream:
    """`rate`: bytes a second; 0: no limit."""

    def __init__(self, node: Node, rate: float) -> None:
        self._stream, self._rate = WatchStream(node), rate

    async def write(self, request: Any) -> None:
        await self._stream.take(request)

    async def read(self) -> Any:
        try:
            answer = await self._stream.next_message()
        except Exception:
            return grpc.aio.EOF
        if self._rate:
            await asyncio.sleep(answer.ByteSize() / self._rate)
        return answer

    def cancel(self) -> None:
        self._stream.close()


class FakeEtcd:
    """Takes the place of an `EtcdClient` as well; `feed` is what it feeds."""

    place = "fake"

    def __init__(self, member: StoreMember) -> None:
        self.node = Node(member)
        self.watch_rate = 0.0
        """Bytes of a watch that arrive in a second; 0: no limit."""
        self._kv = KV(self.node)

    def feed(self) -> Feed:
        return Feed(self, Wording(Keys()), LoopClock())  # type: ignore[arg-type]

    async def read(self, name: str, request: Any, once_s: float | None = None) -> Any:
        assert name == "KV/Range"
        try:
            return await message_of("RangeResponse", await self._kv.range(request))
        except Compacted:
            raise InvalidRequest(COMPACTED[1]) from None

    def stream(self, name: str) -> FakeStream:
        return FakeStream(self.node, self.watch_rate)

    def pass_over(self, place: str) -> None:
        pass

    async def put(self, key: bytes, value: bytes) -> int:
        answer = await self._kv.put(pb.PutRequest(key=key, value=value))
        return int(answer.header.revision)

    async def delete(self, key: bytes) -> int:
        return int((await self._kv.delete_range(pb.DeleteRangeRequest(key=key))).header.revision)

    async def delete_all(self, key: bytes, range_end: bytes) -> int:
        asked = pb.DeleteRangeRequest(key=key, range_end=range_end)
        return int((await self._kv.delete_range(asked)).header.revision)

    async def compact(self, revision: int) -> None:
        await self._kv.compact(pb.CompactionRequest(revision=revision))


@contextlib.asynccontextmanager
async def fake_etcd() -> AsyncIterator[FakeEtcd]:
    member = StoreMember(SimDisk(random.Random(1)), LoopClock(), random.Random(2), MemberConfig(fsync="inline"))
    await member.start()
    try:
        yield FakeEtcd(member)
    finally:
        await member.stop()
