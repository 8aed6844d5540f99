"""The traffic of etcd's robustness tests with our generator: its etcd profile and its Kubernetes profile.

Source: etcd tests/robustness/traffic (etcd.go, kubernetes.go): the requests, their frequency, the number of keys. Each
profile draws the requests of one client, as `sim.workload.Workload` does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from minikube_py.env import Rng
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeleteRange,
    LeaseGrant,
    LeaseRevoke,
    Op,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.sim.history import Request
from minikube_py.sim.workload import Memory

KEYS: Final = 10
LEASE_TTL_S: Final = 7200
COMPACTIONS: Final = 0.01
"""Share of the requests; etcd's tests compact by the clock, every 200 ms."""
Drawn = tuple[Request, bool]


class EtcdTraffic:
    """etcd's EtcdPutDeleteLease: ten keys, reads of current and past revisions, txns of several operations, leases."""

    prefix, end = b"key/", b"key0"

    def __init__(self, rng: Rng, client: int) -> None:
        self._rng, self._client, self._drawn = rng, client, 0
        self._soon: deque[Request] = deque()
        self.memory = Memory()
        self.listed: Callable[[int], None] = lambda revision: None

    def draw(self) -> Drawn:
        if self._soon:
            return self._soon.popleft(), False
        if self._rng.random() < COMPACTIONS:
            return self._compact(), False
        request = self._rng.choices(*zip(*_ETCD))[0](self)
        return request, isinstance(request, RangeRequest) and self._rng.random() < 0.1

    def write(self) -> Put:
        return Put(self._key(), self._value())

    def _key(self) -> bytes:
        return self.prefix + b"%d" % self._rng.randrange(KEYS)

    def _value(self) -> bytes:
        self._drawn += 1
        return b"%d.%d" % (self._client, self._drawn)

    def _get(self, stale: bool = False) -> Request:
        return RangeRequest(self._key(), revision=self.memory.revision if stale else 0)

    def _list(self, stale: bool = False, keys_only: bool = False) -> Request:
        return RangeRequest(self.prefix, self.end, 0, self.memory.revision if stale else 0, keys_only=keys_only)

    def _delete(self) -> Request:
        return DeleteRange(self._key())

    def _txn(self) -> Request:
        keys = self._rng.sample(range(KEYS), 3)
        ops: list[Op] = []
        for key in (self.prefix + b"%d" % number for number in keys):
            puts = Put(key, self._value())
            ops.append(self._rng.choices([puts, DeleteRange(key), RangeRequest(key)], [4, 1, 2])[0])
        return Txn((), tuple(ops), ())

    def _leased(self) -> Request:
        leases = self.memory.leases
        if not leases:
            self._drawn += 1
            leases.append(self._client * 100_000 + self._drawn)
            return LeaseGrant(leases[-1], LEASE_TTL_S)
        return Put(self._key(), self._value(), leases[-1])

    def _revoke(self) -> Request:
        return LeaseRevoke(self.memory.leases.pop()) if self.memory.leases else self._leased()

    def _swap(self) -> Request:
        key = self._key()
        return Txn((Compare(key, "MOD", "=", self.memory.mods.get(key, 0)),), (Put(key, self._value()),), ())

    def _compact(self) -> Request:
        """Compacted and future revisions are also requested, and refused."""
        memory = self.memory
        return Compact(self._rng.randint(max(1, memory.compacted), memory.revision + 5))


_ETCD: Final[list[tuple[Callable[[Any], Request], int]]] = [
    (EtcdTraffic._get, 15),
    (EtcdTraffic._list, 8),
    (lambda it: it._list(keys_only=True), 7),
    (lambda it: it._get(stale=True), 10),
    (lambda it: it._list(stale=True), 10),
    (EtcdTraffic._delete, 5),
    (EtcdTraffic._txn, 10),
    (EtcdTraffic._leased, 5),
    (EtcdTraffic._revoke, 5),
    (EtcdTraffic._swap, 5),
    (EtcdTraffic.write, 20),
]
"""Requests and their frequency. A list uses Range or RangeStream, as the access chooses."""


class Following(Memory):
    """Another client records the results."""

    learned: Callable[[Any, Any], None]

    def learn(self, request: Any, result: Any) -> None:
        self.learned(request, result)


class KubernetesTraffic(EtcdTraffic):
    """The requests of API servers: pages of lists, each followed by a watch from there; txns guarded by a revision that
    return the current state on a mismatch; compaction coordinated by a key."""

    prefix, end = b"/registry/pods/", b"/registry/pods0"
    compact_key = b"compact_rev_key"

    def __init__(self, rng: Rng, client: int) -> None:
        super().__init__(rng, client)
        self._known: dict[bytes, int] = {}
        self._pages: dict[bytes, int] = {}
        self._time = self._compact_next = 0
        self.memory = following = Following()
        following.learned = self._learn

    def draw(self) -> Drawn:
        if self._soon:
            return self._soon.popleft(), False
        if self._rng.random() < COMPACTIONS:
            guard = Compare(self.compact_key, "VERSION", "=", self._time)
            put = Put(self.compact_key, b"%d" % self._compact_next)
            return Txn((guard,), (put,), (RangeRequest(self.compact_key),)), False
        return self._read() if self._rng.random() < 0.5 else (self._write(), False)

    def write(self) -> Put:
        return Put(self.prefix + b"default/w%d" % self._client, self._value())

    def _read(self) -> Drawn:
        rng, revision = self._rng, self.memory.revision
        known = list(self._known)
        kind = rng.choices(("get", "stale", "revision", "list stale", "list"), (5, 2, 8, 5, 80))[0]
        if kind == "revision" or (kind in ("get", "stale") and not known):
            return RangeRequest(b"/registry/pods"), False
        if kind in ("get", "stale"):
            return RangeRequest(rng.choice(known), revision=revision if kind == "stale" else 0), False
        return RangeRequest(self.prefix, self.end, KEYS, revision if kind == "list stale" else 0), False

    def _write(self) -> Request:
        rng, known = self._rng, list(self._known)
        kind = rng.choices(("update", "delete", "create"), (90, 5, 5))[0]
        if len(known) < KEYS // 2 or kind == "create":
            self._drawn += 1
            key = self.prefix + b"default/%d-%d" % (self._client, self._drawn)
            return Txn((Compare(key, "MOD", "=", 0),), (Put(key, self._value()),), ())
        key = rng.choice(known)
        guard = (Compare(key, "MOD", "=", self._known[key]),)
        if kind == "delete" or len(known) > KEYS * 3 // 2:
            return Txn(guard, (DeleteRange(key),), (RangeRequest(key),))
        return Txn(guard, (Put(key, self._value()),), (RangeRequest(key),))

    def _learn(self, request: Any, result: Any) -> None:
        memory = self.memory
        if isinstance(request, Compact):
            memory.compacted = max(memory.compacted, request.revision)
        memory.revision = max(memory.revision, result.revision)
        if isinstance(result, TxnResult):
            self._wrote(request, result)
        elif isinstance(result, RangeResult) and request.range_end == self.end:
            self._listed(request, result)

    def _wrote(self, request: Txn, result: TxnResult) -> None:
        key = request.compare[0].key
        if key == self.compact_key:
            self._compaction(result)
        elif not result.succeeded:
            kvs = [kv for each in result.responses if isinstance(each, RangeResult) for kv in each.kvs]
            self._known.pop(key, None)
            self._known.update({kv.key: kv.mod_revision for kv in kvs})
        elif isinstance(request.success[0], Put):
            self._known[key] = result.revision
        else:
            self._known.pop(key, None)

    def _compaction(self, result: TxnResult) -> None:
        """Source: apiserver pkg/storage/etcd3/compact.go: compacts the revision that was current one turn before."""
        if result.succeeded:
            self._time += 1
            if self._compact_next:
                self._soon.append(Compact(self._compact_next))
        else:
            (found,) = (each for each in result.responses if isinstance(each, RangeResult))
            self._time = found.kvs[0].version if found.kvs else 0
        self._compact_next = result.revision

    def _listed(self, request: RangeRequest, result: RangeResult) -> None:
        """The next page, or a watch from there on."""
        revision = request.revision or result.revision
        if request.key == self.prefix:
            self._pages.clear()
        self._pages.update({kv.key: kv.mod_revision for kv in result.kvs})
        if result.more:
            self._soon.append(request._replace(key=result.kvs[-1].key + b"\0", revision=revision))
        elif revision >= self.memory.revision:
            self._known = dict(self._pages)
            self.listed(revision)


PROFILES: Final[dict[str, type[EtcdTraffic]]] = {"etcd": EtcdTraffic, "kubernetes": KubernetesTraffic}
