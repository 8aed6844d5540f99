"""A member's keys, history and leases as an etcd database, for `etcdctl snapshot save`.

etcdutl reads it and restores it into an etcd. Sessions, declared fields and alarms are not included; indexes are keys.
Source: etcd 3.7, server/storage/schema and mvcc/kvstore.go (what a start reads), v3rpc/maintenance.go."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from minikube_py.etcd.bbolt import SLICE, Bucket, File
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.snapshot import standing
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import KeyValue

REVISION: Final = struct.Struct(">qcq")
NUMBER: Final = struct.Struct(">q")
EMPTY: Final = (b"alarm", b"auth", b"authRoles", b"authUsers", b"cluster", b"members", b"members_removed", b"test")


class Version(NamedTuple):
    """One key at one revision; `position` among the changes of that revision."""

    revision: int
    position: int
    kv: KeyValue
    deleted: bool = False


class Backup:
    """Of `state` as of this call; later applies do not affect it. `applied`, `term`: of the last applied entry."""

    def __init__(self, state: StateMachine, applied: int, term: int, storage_version: str) -> None:
        log, compacted = state.log, state.compact_revision
        base = max(compacted, 1)
        self._later = log.between(base, log.last)
        boundary = log.at(compacted) if log.first <= compacted <= log.last else ()
        self._positions = {event.kv.key: position for position, event in enumerate(boundary)}
        # etcd keeps a deletion at the compacted revision, because a watch may still begin there.
        self._deleted = [
            Version(compacted, position, event.kv, True)
            for position, event in enumerate(boundary)
            if event.type == "DELETE"
        ]
        self._boundary = compacted
        self._standing = standing(list(state.index.current.values()), self._later, base)
        self._base: list[Version] = []
        meta = [(b"consistent_index", NUMBER.pack(applied)), (b"storageVersion", storage_version.encode())]
        meta.append((b"term", NUMBER.pack(term)))
        if compacted > 0:
            done = REVISION.pack(compacted, b"_", 0)
            meta += [(b"finishedCompactRev", done), (b"scheduledCompactRev", done)]
        leases = [
            (NUMBER.pack(each.id), _bytes(pb.StoredLease(ID=each.id, TTL=each.ttl_s)))
            for each in state.lessor.by_id.values()
        ]
        buckets = {b"key": self._versions, b"meta": lambda: sorted(meta), b"lease": lambda: sorted(leases)}
        self.file = File([Bucket(name, items) for name, items in (*buckets.items(), *((name, list) for name in EMPTY))])

    def plan(self) -> Iterator[None]:
        """Runs in steps, before the file has a size and pages."""
        chunks, chunk = list[list[Version]](), list[Version]()
        for kv in self._standing:
            if kv is not None:
                position = self._positions.get(kv.key, 0) if kv.mod_revision == self._boundary else 0
                chunk.append(Version(kv.mod_revision, position, kv))
            if kv is None or len(chunk) == SLICE:
                chunks.append(sorted(chunk, key=_order))
                chunk = []
                yield
        chunks += [sorted(chunk, key=_order), self._deleted]
        before = Version(0, 0, KeyValue(b"", b"", 0, 0, 0, 0))
        for count, each in enumerate(heapq.merge(*chunks, key=_order)):
            # The order within an older revision is unknown by now: use key order.
            if each.revision == before.revision and each.revision != self._boundary:
                each = each._replace(position=before.position + 1)
            self._base.append(each)
            before = each
            if count % SLICE == SLICE - 1:
                yield
        yield from self.file.plan()

    def _versions(self) -> Iterator[tuple[bytes, bytes]]:
        later = (
            Version(event.kv.mod_revision, position, event.kv, event.type == "DELETE")
            for events in self._later
            for position, event in enumerate(events)
        )
        for revision, position, kv, deleted in chain(self._base, later):
            key = REVISION.pack(revision, b"_", position)
            if deleted:
                yield key + b"t", _bytes(pb.KeyValue(key=kv.key))
            else:
                yield key, _bytes(pb.KeyValue(**kv._asdict()))


def _order(version: Version) -> tuple[int, int, bytes]:
    return version.revision, version.position, version.kv.key


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
