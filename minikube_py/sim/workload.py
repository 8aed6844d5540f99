"""Requests of clients in a simulated run: all kinds, on few keys, so that they conflict.

    /r/*                  registers: put, get, compare-and-swap by value, create, delete; single keys only
    /m/*                  several keys in one txn, guarded by revisions; ranges, pages, reads of the past
    /l/*                  keys with leases
    /registry/nodes, pods objects with declared fields: `where` on what is free, which pods and their ends change;
                          indexes over them, declared and dropped, under names of the client's own, and `where` on
                          fields that these declare

Values are unique, so that a read's result identifies the write it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from minikube_py.env import Rng
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Op,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.sim import declared_fields
from minikube_py.sim.edges import EDGE_BYTES, Edges
from minikube_py.sim.history import KeepAlive, Request
from minikube_py.sim.indexing import drawn_spec

REGISTERS: Final = 4
TOGETHER: Final = 8
LEASED: Final = 5
NODE_NAMES: Final = tuple(f"n{number}" for number in range(6))
PODS: Final = 16
TTLS_S: Final = (2, 3)
EDGES_SHARE: Final = 0.06
"""Share of a request's values that are at the edges of their type."""
ODD_KEYS: Final = tuple([b"/m/7" + edge for edge in EDGE_BYTES if edge])
INDEXES: Final = 2
"""The most indexes one client has declared at once."""
TARGETS: Final[tuple[Literal["VERSION", "CREATE", "MOD"], ...]] = ("VERSION", "CREATE", "MOD")
ORDERS: Final[tuple[Literal["NONE", "ASCEND", "DESCEND"], ...]] = ("NONE", "ASCEND", "DESCEND")
POD_PREFIX: Final = b"/registry/pods/"
NODE_RANGE: Final = (NODES.prefix, b"/registry/nodes0")
ALL: Final = b"\0"
WHERES: Final = (
    Where((Comparison("free.cpu", ">=", ("2",)),)),
    Where((Comparison("free.cpu", "<", ("1500m",)), Comparison("spec.unschedulable", "=", ("false",)))),
    Where((Comparison("requested.cpu", ">", ("0",)), Comparison("free.memory", ">=", ("1Gi",)))),
    Where((Comparison("free.cpu", "<", ("-1",)),)),
    Where((Comparison("allocatable.memory", ">=", ("7Ei",)), Comparison("requested.cpu", ">=", ("9P",)))),
    Where((Comparison("metadata.name", "in", ("n1", "n3", "n4")), Comparison("free.cpu", "!=", ("4",)))),
)


@dataclass(slots=True)
class Memory:
    """One client's knowledge: the last state it saw of each key (revision 0: none), its leases, its indexes, and the
    latest meaning of the fields they declare."""

    mods: dict[bytes, int] = field(default_factory=dict)
    values: dict[bytes, bytes] = field(default_factory=dict)
    leases: list[int] = field(default_factory=list)
    indexes: dict[str, IndexSpec] = field(default_factory=dict)
    fields: dict[str, frozenset[str]] = field(default_factory=dict)
    revision: int = 1
    compacted: int = 0

    def learn(self, request: Any, result: Any) -> None:
        """Records the answer to a request that was done."""
        if isinstance(request, Compact):
            self.compacted = max(self.compacted, request.revision)
        if isinstance(result, LeaseResult):
            if isinstance(request, KeepAlive) and not result.ttl_s and request.id in self.leases:
                self.leases.remove(request.id)
            return
        self.revision = max(self.revision, result.revision)
        if isinstance(request, DeclareIndex) and request.spec.name in self.indexes:
            self.fields[request.spec.name] = frozenset([each.name for each in request.spec.declares])
        if isinstance(result, TxnResult):
            ops = request.success if result.succeeded else request.failure
            for op, response in zip(ops, result.responses):
                self.learn(op, response)
        elif isinstance(result, RangeResult) and not request.revision and not request.keys_only:
            self._read(request, result)
        elif isinstance(request, Put):
            self.mods[request.key], self.values[request.key] = result.revision, request.value

    def _read(self, request: RangeRequest, result: RangeResult) -> None:
        if not request.range_end and not result.kvs:
            self.mods.pop(request.key, None)
            self.values.pop(request.key, None)
        for kv in result.kvs:
            self.mods[kv.key], self.values[kv.key] = kv.mod_revision, kv.value


class Workload:
    """Draws the requests of one client. `client` makes its values and lease ids unique."""

    def __init__(self, rng: Rng, client: int) -> None:
        self._rng = rng
        self._client = client
        self._edges = Edges(rng, EDGES_SHARE)
        self._drawn = 0
        self._soon: Callable[[Workload], Request] | None = None
        self._dropped: IndexSpec | None = None
        self.memory = Memory()

    def draw(self) -> tuple[Request, bool]:
        """The next request, and whether it is a serializable read."""
        maker = self._rng.choices(_MAKERS, _SHARES)[0]
        if self._soon is not None and self._rng.random() < 0.5:
            maker, self._soon = self._soon, None
        request = maker(self)
        serializable = isinstance(request, RangeRequest) and self._rng.random() < 0.15
        return request, serializable

    def write(self) -> Put:
        """Writes to a register, whatever its content."""
        return Put(b"/r/%d" % self._rng.randrange(REGISTERS), self._value())

    def _value(self) -> bytes:
        self._drawn += 1
        return self._edges.behind(b"%d.%d" % (self._client, self._drawn))

    # -- registers -----------------------------------------------------------------------------------------------------

    def _register(self) -> Request:
        rng, memory = self._rng, self.memory
        key = b"/r/%d" % rng.randrange(REGISTERS)
        kind = rng.random()
        if kind < 0.45:
            return RangeRequest(key)
        if kind < 0.65:
            return Put(key, self._value())
        if kind < 0.73:
            return DeleteRange(key)
        known = memory.values.get(key)
        if kind < 0.93 and known is not None:
            return Txn((Compare(key, "VALUE", "=", known),), (Put(key, self._value()),), (RangeRequest(key),))
        return Txn((Compare(key, "VERSION", "=", 0),), (Put(key, self._value()),), (RangeRequest(key),))

    # -- several keys --------------------------------------------------------------------------------------------------

    def _together_key(self) -> bytes:
        return self._edges.one(b"/m/%d" % self._rng.randrange(TOGETHER), ODD_KEYS)

    def _txn(self) -> Request:
        rng = self._rng
        keys = list(dict.fromkeys(self._together_key() for _ in range(rng.randint(1, 3))))
        guard = keys[0]
        success: list[Op] = [Put(key, self._value(), prev_kv=rng.random() < 0.2) for key in keys]
        if rng.random() < 0.25:
            gone = self._together_key()
            success = [op for op in success if op.key != gone]  # type: ignore[union-attr]
            success.append(DeleteRange(gone, prev_kv=True))
        if rng.random() < 0.3:
            success.append(RangeRequest(b"/m/", b"/m0", limit=rng.choice((0, 2))))
        if rng.random() < 0.15:
            inner = Compare(self._together_key(), "VERSION", ">", 1)
            success.append(Txn((inner,), (Put(b"/m/nested", self._value()),), (RangeRequest(b"/m/nested"),)))
        compares = [Compare(guard, "MOD", "=", self.memory.mods.get(guard, 0))]
        if self._edges.now():
            compares.append(Compare(guard, rng.choice(TARGETS), rng.choice((">", "<", "!=")), self._edges.int64(0)))
        if rng.random() < 0.1:
            compares.append(Compare(b"/m/", "MOD", "<", self.memory.revision + 1, b"/m0"))
        return Txn(tuple(compares), tuple(success), (RangeRequest(guard),))

    def _plain_write(self) -> Request:
        rng = self._rng
        if rng.random() < 0.2:
            first = rng.randrange(TOGETHER)
            return DeleteRange(b"/m/%d" % first, b"/m/%d" % (first + rng.randint(1, 2)), prev_kv=rng.random() < 0.5)
        key = self._together_key()
        if rng.random() < 0.1:
            return Put(key, b"", prev_kv=True, ignore_value=True)
        return Put(key, self._value(), prev_kv=rng.random() < 0.3)

    def _range(self) -> Request:
        rng, memory = self._rng, self.memory
        key, end = rng.choice(((b"/m/", b"/m0"), (b"/", b"0"), (ALL, ALL), (b"/r/", b"/r0"), (POD_PREFIX, ALL)))
        past = 0
        if rng.random() < 0.3:
            past = rng.randint(max(1, memory.compacted - 2), memory.revision + rng.choice((0, 0, 1)))
            past = self._edges.count(past)
        limit = self._edges.count(rng.choice((0, 0, 1, 3)))
        keys_only, count_only = rng.random() < 0.1, rng.random() < 0.1
        request = RangeRequest(key, end, limit, past, keys_only=keys_only, count_only=count_only)
        if rng.random() < 0.1:
            request = request._replace(sort_target=rng.choice(TARGETS), sort_order=rng.choice(ORDERS))
        if rng.random() < 0.1:
            high, low = self._edges.count(memory.revision), self._edges.count(rng.choice((0, 5)))
            request = request._replace(max_mod_revision=high, min_create_revision=low)
        return request

    # -- objects -------------------------------------------------------------------------------------------------------

    def _node(self) -> Request:
        rng = self._rng
        name = rng.choice(NODE_NAMES)
        key = NODES.prefix + name.encode()
        if rng.random() < 0.1:
            return DeleteRange(key)
        spec = {"unschedulable": True} if rng.random() < 0.2 else {}
        quantity = self._edges.quantity
        memory, cpu = rng.choice(("1Gi", "2Gi", "512Mi")), rng.choice(("1", "2", "4", "1500m"))
        allocatable = {"memory": quantity(memory), "cpu": quantity(cpu)}
        metadata, status = declared_fields.drawn_parts(rng, self._edges)
        node = {"metadata": {"name": name} | metadata, "spec": spec, "status": {"allocatable": allocatable} | status}
        return Put(key, self._edges.stored(orjson.dumps(node)))

    def _pod(self) -> Request:
        """Created, bound to another node, finished, deleted: each changes the free amounts of one node or two."""
        rng = self._rng
        key = POD_PREFIX + b"p%d" % rng.randrange(PODS)
        if rng.random() < 0.15:
            return DeleteRange(key)
        phase = rng.choice(("Pending", "Running", "Running", "Succeeded", "Failed"))
        quantity = self._edges.quantity
        cpu, memory = f"{rng.choice((100, 500, 700))}m", f"{rng.choice((128, 300))}Mi"
        spec: dict[str, Any] = {"nodeName": self._edges.text(rng.choice(NODE_NAMES))} if rng.random() < 0.85 else {}
        spec["containers"] = [{"resources": {"requests": {"cpu": quantity(cpu), "memory": quantity(memory)}}}]
        self._drawn += 1
        pod = {"metadata": {"uid": f"{self._client}.{self._drawn}"}, "spec": spec, "status": {"phase": phase}}
        guard = Compare(key, "MOD", "=", self.memory.mods.get(key, 0))
        return Txn((guard,), (Put(key, self._edges.stored(orjson.dumps(pod))),), (RangeRequest(key),))

    def _where(self) -> Request:
        rng, memory = self._rng, self.memory
        past = rng.randint(max(1, memory.compacted), memory.revision) if rng.random() < 0.4 else 0
        where = rng.choice(WHERES)
        fields: tuple[str, ...] = ("free.cpu", "requested.memory")
        known = frozenset[str]().union(*memory.fields.values())
        # Sometimes also by fields that another client, or none, has declared.
        asking = declared_fields.asking(declared_fields.NAMES if rng.random() < 0.25 else known)
        if asking and rng.random() < 0.7:
            where = rng.choice(asking)
            fields = ("free.cpu", *sorted(declared_fields.declared_in(where)))
        if rng.random() < 0.15:
            return RangeRequest(*NODE_RANGE, 2, past, where=where, order="ANY")
        fields = fields if rng.random() < 0.5 else ()
        return RangeRequest(*NODE_RANGE, rng.choice((0, 0, 2)), past, where=where, fields=fields)

    def _index(self) -> Request:
        rng, indexes, fields = self._rng, self.memory.indexes, self.memory.fields
        # After dropping an index a client still queries by its fields.
        for gone in [name for name in fields if name not in indexes]:
            del fields[gone]
        if len(indexes) == INDEXES or (indexes and rng.random() < 0.3):
            # The structure of a dropped index may still exist at the next query or declaration.
            self._soon = rng.choice((Workload._index, Workload._where))
            name = rng.choice(list(indexes))
            self._dropped = indexes.pop(name)
            return DropIndex(name)
        self._soon = Workload._where
        self._drawn += 1
        # Unique: the answer states the revision at which it was made.
        spec = drawn_spec(rng, f"i{self._client}.{self._drawn}", self._dropped)
        indexes[spec.name], self._dropped = spec, None
        return DeclareIndex(spec)

    # -- leases, compaction --------------------------------------------------------------------------------------------

    def _lease(self) -> Request:
        rng, leases = self._rng, self.memory.leases
        if not leases or (len(leases) < 3 and rng.random() < 0.3):
            self._drawn += 1
            leases.append(self._client * 1000 + self._drawn)
            return LeaseGrant(leases[-1], rng.choice(TTLS_S))
        lease = rng.choice(leases)
        kind = rng.random()
        key = b"/l/%d" % rng.randrange(LEASED)
        if kind < 0.4:
            return Put(key, self._value(), lease)
        if kind < 0.5:
            # Keys of a revoked lease are deleted.
            return Put(key, self._value()) if rng.random() < 0.7 else DeleteRange(key)
        if kind < 0.85:
            return KeepAlive(lease)
        if kind < 0.92:
            return RangeRequest(b"/l/", b"/l0")
        if rng.random() < 0.5:
            leases.remove(lease)
        return LeaseRevoke(lease)

    def _compact(self) -> Request:
        memory = self.memory
        return Compact(max(1, memory.revision - self._rng.choice((0, 5, 20, 60))))


_MAKERS: Final[tuple[Callable[[Workload], Request], ...]] = (
    Workload._register,
    Workload._txn,
    Workload._plain_write,
    Workload._range,
    Workload._node,
    Workload._pod,
    Workload._where,
    Workload._lease,
    Workload._compact,
    Workload._index,
)
_SHARES: Final = (30, 14, 8, 12, 5, 10, 9, 12, 2, 4)
