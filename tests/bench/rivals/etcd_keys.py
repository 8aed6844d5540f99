"""Ways to query a real etcd for nodes within bounds: read and decode all, or maintain secondary keys ordered by a
value, in the same Txn as the object; and our mirror with its index on the same etcd.

A secondary key is a prefix, the value in four bytes (big-endian, so that the order of bytes is that of numbers), and
the node's number; it holds the whole row, so that nothing else need be read. The writer knows the old key: an API
server holds the object that it replaces, and the Txn compares that object's revision.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import grpc
import orjson
from rivals.contract import Node, batches, number_of
from rivals.objects import GPU, number_in, stored

from minikube_py.env import SystemClock
from minikube_py.etcd.client import Endpoints
from minikube_py.etcd.messages import pb
from minikube_py.etcd.storage import EtcdStorage
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end

ROW, NUMBER = struct.Struct(">III"), struct.Struct(">I")
END = 1 << 32
"""No value is as large; a bound that ends there is open."""
PAGE = 500
BUCKETS = 64
"""For the second dimension's keys: a Txn may have 128 ranges."""
REQUEST_TIMEOUT_S = 120.0
"""Timeout for reading the mirror of 100,000 nodes, on a busy machine."""
OPTIONS = (("grpc.max_receive_message_length", -1),)


class Bounds(NamedTuple):
    """From `low` to below `high`: `(v, v + 1)` is an equality, `(v, END)` an inequality, `(0, END)` no bound."""

    cpu_milli: tuple[int, int] = (0, END)
    memory_mib: tuple[int, int] = (0, END)
    gpus: tuple[int, int] = (0, END)

    def hold(self, node: Sequence[int]) -> bool:
        return all(low <= value < high for (low, high), value in zip(self, node))


class Way(Protocol):
    """`written`: how many keys an update puts or deletes, on average."""

    name: str

    def load(self, nodes: Sequence[Node]) -> None: ...

    def update(self, number: int, node: Node) -> None: ...

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        """Any `limit` of the nodes within the bounds, or all with 0."""


class Kv:
    """etcd's KV service, one request at a time."""

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url.removeprefix("http://"), OPTIONS)
        self._range = self._method("Range", pb.RangeResponse)
        self._txn = self._method("Txn", pb.TxnResponse)

    def _method(self, name: str, response: Any) -> Any:
        return self._channel.unary_unary(
            f"/etcdserverpb.KV/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )

    def range(self, request: Any) -> Any:
        return self._range(request)

    def ranges(self, requests: Sequence[Any]) -> list[Any]:
        """Of one revision, in one round trip."""
        answer = self._txn(pb.TxnRequest(success=[pb.RequestOp(request_range=each) for each in requests]))
        return [each.response_range for each in answer.responses]

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), compare: Any = None) -> int:
        """Returns the revision. Raises: AssertionError if another writer was first."""
        return self._revision(self._txn(self._request(puts, deletes, compare)))

    def write_soon(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], compare: Any) -> Any:
        return self._txn.future(self._request(puts, deletes, compare))

    def _request(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], compare: Any) -> Any:
        ops = [pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)) for key, value in puts]
        ops += [pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key)) for key in deletes]
        return pb.TxnRequest(compare=[compare] if compare is not None else [], success=ops)

    @staticmethod
    def _revision(answer: Any) -> int:
        assert answer.succeeded
        return int(answer.header.revision)

    def close(self) -> None:
        self._channel.close()


class Scan:
    """No secondary keys: pages are read, decoded and compared, as by kube-apiserver or one of its clients."""

    name = "range, decode, filter"

    def __init__(self, kv: Kv, prefix: str) -> None:
        self._kv, self._objects, self._keys = kv, f"/{prefix}/nodes/".encode(), f"/{prefix}/index/".encode()
        self.rows: dict[int, Node] = {}
        self._revisions: dict[int, int] = {}

    def load(self, nodes: Sequence[Node]) -> None:
        for batch in batches(nodes, 25):
            puts = [(self._object(i), stored(i, node)) for i, node in batch]
            revision = self._kv.write([*puts, *(put for i, node in batch for put in self._puts(i, node))])
            self.rows |= dict(batch)
            self._revisions |= {i: revision for i, _ in batch}

    def update(self, number: int, node: Node) -> None:
        self._revisions[number] = self._kv.write(*self._change(number, node))
        self.rows[number] = node

    def update_soon(self, number: int, node: Node) -> Any:
        """Pass its result to `updated`. A node has one at a time."""
        return self._kv.write_soon(*self._change(number, node))

    def updated(self, number: int, node: Node, answer: Any) -> None:
        assert answer.succeeded
        self._revisions[number] = answer.header.revision
        self.rows[number] = node

    def _change(self, number: int, node: Node) -> tuple[list[tuple[bytes, bytes]], list[bytes], Any]:
        puts = self._puts(number, node)
        kept = {key for key, _ in puts}
        gone = [key for key, _ in self._puts(number, self.rows[number]) if key not in kept]
        key = self._object(number)
        unchanged = pb.Compare(result=0, target=2, key=key, mod_revision=self._revisions[number])
        return [(key, stored(number, node)), *puts], gone, unchanged

    def _object(self, number: int) -> bytes:
        return self._objects + f"node-{number:06d}".encode()

    def _puts(self, number: int, node: Node) -> list[tuple[bytes, bytes]]:
        """The secondary keys of a node."""
        return []

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        found: list[int] = []
        for value in self._pages(self._objects, prefix_end(self._objects), PAGE, PAGE):
            node = orjson.loads(value[1])
            amounts = node["status"]["allocatable"]
            row = (int(amounts["cpu"][:-1]), int(amounts["memory"][:-2]), int(amounts[GPU]))
            if bounds.hold(row):
                found.append(number_in(node))
                if len(found) == limit:
                    break
        return found

    def _pages(
        self, key: bytes, end: bytes, size: int, most: int, keys_only: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, in pages of one revision whose size grows from `size` to `most`."""
        revision = 0
        while True:
            asked = pb.RangeRequest(key=key, range_end=end, limit=size, revision=revision, keys_only=keys_only)
            answer = self._kv.range(asked)
            for kv in answer.kvs:
                yield kv.key, kv.value
            if not answer.more:
                return
            key, revision = answer.kvs[-1].key + b"\0", revision or answer.header.revision
            size = min(4 * size, most)

    def _rows(self, key: bytes, end: bytes, size: int, most: int) -> Iterator[tuple[bytes, bytes]]:
        """Secondary keys and the rows they tell."""
        return self._pages(key, end, size, most)

    def all_keys(self) -> Any:
        """The request for all second keys at once."""
        return pb.RangeRequest(key=self._keys, range_end=prefix_end(self._keys))

    def _within(self, bounds: Bounds, limit: int, key: bytes, end: bytes) -> list[int]:
        """For secondary keys, which end in the node's number."""
        found: list[int] = []
        for place, value in self._rows(key, end, 4 * limit or 10_000, 10_000):
            if bounds.hold(ROW.unpack(value)):
                found.append(NUMBER.unpack(place[-4:])[0])
                if len(found) == limit:
                    break
        return found


class ByCpu(Scan):
    name = "second key by CPU"

    def _puts(self, number: int, node: Node) -> list[tuple[bytes, bytes]]:
        return [(self._keys + NUMBER.pack(node.cpu_milli) + NUMBER.pack(number), ROW.pack(*node))]

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        return self._within(bounds, limit, *ends(self._keys, bounds.cpu_milli))


class KeysByCpu(Scan):
    """The whole row is in the key, and nothing in the value. etcd answers `keys_only` from its tree in memory, without
    bbolt (`FastKeysOnly` in server/etcdserver/txn/range.go of 3.7)."""

    name = "second key by CPU, all numbers in it, keys_only"

    def _puts(self, number: int, node: Node) -> list[tuple[bytes, bytes]]:
        return [(self._keys + ROW.pack(*node) + NUMBER.pack(number), b"")]

    def all_keys(self) -> Any:
        return pb.RangeRequest(key=self._keys, range_end=prefix_end(self._keys), keys_only=True)

    def _rows(self, key: bytes, end: bytes, size: int, most: int) -> Iterator[tuple[bytes, bytes]]:
        for place, _ in self._pages(key, end, size, most, keys_only=True):
            yield place, place[-ROW.size - NUMBER.size : -NUMBER.size]

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        return self._within(bounds, limit, *ends(self._keys, bounds.cpu_milli))


class OfEach(Scan):
    """A key for each of the three; of the bounded ones, the one with the shortest range is read."""

    name = "second keys of all three, the shortest range"

    def _prefix(self, at: int) -> bytes:
        return self._keys + bytes((at,))

    def _puts(self, number: int, node: Node) -> list[tuple[bytes, bytes]]:
        row = ROW.pack(*node)
        return [(self._prefix(at) + NUMBER.pack(value) + NUMBER.pack(number), row) for at, value in enumerate(node)]

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        bounded = [ends(self._prefix(at), each) for at, each in enumerate(bounds) if each != (0, END)]
        if len(bounded) > 1:
            asked = [pb.RangeRequest(key=low, range_end=high, count_only=True) for low, high in bounded]
            counted = self._kv.ranges(asked)
            bounded = [min(zip((each.count for each in counted), bounded))[1]]
        return self._within(bounds, limit, *bounded[0])


class Grid(Scan):
    """Two dimensions in one key: the CPU's bucket, then memory. A query is one range per bucket, all in one Txn.
    Buckets hold equal numbers of nodes when the keys are created."""

    name = "second key by bucket of CPU and by memory"

    def load(self, nodes: Sequence[Node]) -> None:
        ordered = sorted(node.cpu_milli for node in nodes)
        self._limits = sorted({ordered[len(ordered) * at // BUCKETS] for at in range(1, BUCKETS)})
        super().load(nodes)

    def _puts(self, number: int, node: Node) -> list[tuple[bytes, bytes]]:
        bucket = bytes((bisect_right(self._limits, node.cpu_milli),))
        return [(self._keys + bucket + NUMBER.pack(node.memory_mib) + NUMBER.pack(number), ROW.pack(*node))]

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        low, high = bounds.cpu_milli
        buckets = range(bisect_right(self._limits, low), bisect_right(self._limits, high - 1) + 1)
        left = [ends(self._keys + bytes((bucket,)), bounds.memory_mib) for bucket in buckets]
        found: list[int] = []
        size = 2 * limit
        while left:
            asked = [pb.RangeRequest(key=key, range_end=end, limit=size) for key, end in left]
            going_on = []
            for (_, end), answer in zip(left, self._kv.ranges(asked)):
                found += [NUMBER.unpack(kv.key[-4:])[0] for kv in answer.kvs if bounds.hold(ROW.unpack(kv.value))]
                if limit and len(found) >= limit:
                    return found[:limit]
                if answer.more:
                    going_on.append((answer.kvs[-1].key + b"\0", end))
            left, size = going_on, 4 * size
        return found


class Mirrored:
    """Our API server's storage on this etcd: its mirror follows by a watch, and its columns answer queries."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, prefix: str, *, newest: bool = True) -> None:
        self.name = "our index on this etcd" + ("" if newest else ", at the revision it holds")
        self._run, self._newest = loop.run_until_complete, newest
        self._at, self._prefix = url.removeprefix("http://"), prefix
        self._storage: Any = None

    async def _started(self) -> EtcdStorage:
        clock = SystemClock()
        storage = EtcdStorage(Endpoints((self._at,)), clock, prefix=f"/{self._prefix}", compaction_interval_s=0,
                              request_timeout_s=REQUEST_TIMEOUT_S)  # fmt: skip
        await storage.start()
        await storage.declare(NODES)
        return storage

    def load(self, nodes: Sequence[Node]) -> None:
        kv = Kv(self._at)
        for batch in batches(nodes, 25):
            kv.write([(f"/{self._prefix}/nodes/node-{i:06d}".encode(), stored(i, node)) for i, node in batch])
        kv.close()
        self._storage = self._run(self._started())

    def update(self, number: int, node: Node) -> None:
        key = f"/registry/nodes/node-{number:06d}".encode()
        self._run(self._storage.txn((), (Put(key, stored(number, node)),)))

    def ask(self, bounds: Bounds, limit: int) -> Sequence[int]:
        compared = []
        for field, unit, (low, high) in zip(("free.cpu", "free.memory", f"free.{GPU}"), ("m", "Mi", ""), bounds):
            if low + 1 == high:
                compared.append(Comparison(field, "=", (f"{low}{unit}",)))
            elif (low, high) != (0, END):
                compared.append(Comparison(field, ">=", (f"{low}{unit}",)))
        prefix, revision = b"/registry/nodes/", 0 if self._newest else self._storage.feed.mirror.state.revision
        request = RangeRequest(prefix, prefix_end(prefix), limit, revision, where=Where(tuple(compared)), order="ANY")
        return [number_of(kv.key.decode()) for kv in self._run(self._storage.range(request)).kvs]

    def share(self, other: Mirrored) -> None:
        """The storage that another one has loaded."""
        self._storage = other._storage

    def close(self) -> None:
        self._run(self._storage.close())


def ends(prefix: bytes, bound: tuple[int, int]) -> tuple[bytes, bytes]:
    """The first key of a range and the key that ends it."""
    low, high = bound
    return prefix + NUMBER.pack(low), prefix_end(prefix) if high == END else prefix + NUMBER.pack(high)
