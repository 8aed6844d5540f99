"""Requests to etcd's API, good ones and bad ones, drawn so that keys, leases, watches and revisions often meet, with
numbers at the edges of int64 and enums that nobody knows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from minikube_py.etcd.messages import pb
from minikube_py.sim.edges import EDGE_BYTES, INT64_EDGES

T = TypeVar("T")
KEYS = (b"a", b"b", b"b\0", b"bb", b"c", b"d/1", b"d/2", b"e", b"\xff", b"\xff\xff", b"\0")
ENDS = (b"", b"", b"", b"\0", b"b", b"c", b"d0", b"e", b"\xff\xff\xff")
VALUES = (b"x", b"y", b"longer value", *EDGE_BYTES)
LEASES = (7001, 7002, 7003, -5, (1 << 63) - 1)
ODD_ENUMS = (5, 99, -1, -(1 << 31))
UNARY = {
    "RangeRequest": "KV/Range", "PutRequest": "KV/Put", "DeleteRangeRequest": "KV/DeleteRange",
    "TxnRequest": "KV/Txn", "CompactionRequest": "KV/Compact", "LeaseGrantRequest": "Lease/LeaseGrant",
    "LeaseRevokeRequest": "Lease/LeaseRevoke", "LeaseTimeToLiveRequest": "Lease/LeaseTimeToLive",
    "LeaseLeasesRequest": "Lease/LeaseLeases",
}  # fmt: skip


EDGES = {
    "TYPE_INT64": (0, 1, 2, -1, -2, 1 << 31, INT64_EDGES[0], INT64_EDGES[-1]),
    "TYPE_UINT64": (0, 1, 1 << 63, (1 << 64) - 1),
    "TYPE_ENUM": (0, 1, 2, 3, 4, *ODD_ENUMS),
    "TYPE_BOOL": (False, True),
}
NUMBERED = (
    ("KV/Range", pb.RangeRequest(key=b"a", range_end=b"c")),
    ("KV/Range", pb.RangeRequest(key=b"a", range_end=b"c", count_only=True)),
    ("KV/Range", pb.RangeRequest(key=b"a", range_end=b"c", sort_order=2, sort_target=3)),
    ("KV/Put", pb.PutRequest(key=b"a", value=b"v")),
    ("KV/DeleteRange", pb.DeleteRangeRequest(key=b"c")),
    ("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=77, TTL=600)),
    ("Lease/LeaseRevoke", pb.LeaseRevokeRequest()),
    ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest()),
    ("Maintenance/HashKV", pb.HashKVRequest()),
    ("Maintenance/MoveLeader", pb.MoveLeaderRequest()),
    ("Cluster/MemberRemove", pb.MemberRemoveRequest()),
    ("Cluster/MemberUpdate", pb.MemberUpdateRequest(peerURLs=["http://127.0.0.1:1"])),
    ("Cluster/MemberPromote", pb.MemberPromoteRequest()),
    ("Maintenance/Alarm", pb.AlarmRequest()),
    ("KV/Compact", pb.CompactionRequest()),
)


ODD_BYTES = (b"\xff" * 9 + b"\x7f", b"\x80" * 11, b"\0", b"\x0b", b"\x0b\x0c", b"\xff\xff", b"\x9a\x06\x01x")
NOT_ALIKE = (("Lease/LeaseGrant", "ID", 0), ("KV/Compact", "revision", 1), ("KV/Compact", "revision", 0))
"""An id that the server chooses; what ends the past."""


def at_edges() -> Iterator[tuple[str, Any]]:
    """Each number of each request at the edges of its type; what may be part of a txn as one, too."""
    for name, base in NUMBERED:
        for field in base.DESCRIPTOR.fields:
            for value in next((EDGES[kind] for kind in EDGES if field.type == getattr(field, kind)), ()):
                # An action that it does not know ends a member of etcd.
                if (name, field.name, value) in NOT_ALIKE or (field.name == "action" and value not in (0, 2)):
                    continue
                request = type(base).FromString(base.SerializeToString())
                setattr(request, field.name, value)
                yield name, request
                if name == "Lease/LeaseGrant" and (request.ID or request.TTL):
                    yield "Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=request.ID or 77)
                op = {"KV/Range": "request_range", "KV/Put": "request_put"}.get(name)
                if op is not None and base.ByteSize() == 6:
                    read = pb.RequestOp(**{op: request})
                    yield "KV/Txn", pb.TxnRequest(success=[read])
                    yield "KV/Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"z")), read])


class Draws:
    """Whoever asks sets `revision` and `compacted`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.revision = 1
        self.compacted = 0

    def pick(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def number(self, usual: Sequence[int], odd: float = 0.04) -> int:
        return self.pick(INT64_EDGES) if self.chance(odd) else self.pick(usual)

    def key(self) -> bytes:
        if self.chance(0.02):
            return b""
        return self.pick(EDGE_BYTES) if self.chance(0.03) else self.pick(KEYS)

    def enum(self, known: int, odd: float = 0.03) -> int:
        return self.pick(ODD_ENUMS) if self.chance(odd) else self.random.randrange(known)

    def put(self) -> Any:
        return pb.PutRequest(
            key=self.key(), value=self.pick(VALUES), lease=self.number([0, 0, 0, 0, *LEASES, 9999], 0.02),
            prev_kv=self.chance(0.3), ignore_value=self.chance(0.1), ignore_lease=self.chance(0.1),
        )  # fmt: skip

    def delete(self) -> Any:
        return pb.DeleteRangeRequest(key=self.key(), range_end=self.pick(ENDS), prev_kv=self.chance(0.5))

    def range(self) -> Any:
        now = self.revision
        revisions = [0, 0, 0, 0, now, now - 1, now - 3, now // 2, now + 1, self.compacted, self.compacted - 1, 1]
        low_high = [self.number([0] * 12 + [now, now - 2, now // 2], 0.02) for _ in range(4)]
        return pb.RangeRequest(
            key=self.key(), range_end=self.pick(ENDS), limit=self.number([0, 0, 0, 1, 2, 5]),
            revision=self.number(revisions), sort_order=0 if self.chance(0.5) else self.enum(3),
            sort_target=0 if self.chance(0.5) else self.enum(5), serializable=self.chance(0.3),
            keys_only=self.chance(0.1), count_only=self.chance(0.1), min_mod_revision=low_high[0],
            max_mod_revision=low_high[1], min_create_revision=low_high[2], max_create_revision=low_high[3],
        )  # fmt: skip

    def compare(self) -> Any:
        compare = pb.Compare(
            result=self.enum(4), target=self.enum(5), key=self.key(), range_end=self.pick([b""] * 5 + list(ENDS))
        )
        # Nine of ten compare what the target names.
        fields = ("version", "create_revision", "mod_revision", "value", "lease")
        target = compare.target if 0 <= compare.target < 5 and self.chance(0.9) else self.random.randrange(5)
        if fields[target] == "value":
            compare.value = self.pick(VALUES)
        elif self.chance(0.95):
            setattr(compare, fields[target], self.number([0, 1, 2, self.revision, self.revision - 1, *LEASES]))
        return compare

    def txn(self, depth: int = 0) -> Any:
        return pb.TxnRequest(
            compare=[self.compare() for _ in range(self.pick([0, 1, 1, 2]))],
            success=self.ops(depth), failure=self.ops(depth),
        )  # fmt: skip

    def ops(self, depth: int) -> list[Any]:
        ops = []
        for _ in range(self.pick([0, 1, 1, 2, 3])):
            kind = self.random.random()
            if kind < 0.02:
                ops.append(pb.RequestOp())
            elif kind < 0.45:
                ops.append(pb.RequestOp(request_put=self.put()))
            elif kind < 0.6:
                ops.append(pb.RequestOp(request_delete_range=self.delete()))
            elif kind < 0.85 or depth == 2:
                ops.append(pb.RequestOp(request_range=self.range()))
            else:
                ops.append(pb.RequestOp(request_txn=self.txn(depth + 1).SerializeToString()))
        return ops

    def reads_only(self) -> Any:
        ops = [pb.RequestOp(request_range=self.range()) for _ in range(self.pick([0, 1, 2]))]
        return pb.TxnRequest(compare=[self.compare()], success=ops, failure=ops[:1])

    def grant(self) -> Any:
        return pb.LeaseGrantRequest(
            ID=self.number([*LEASES, 7004], 0.02) or 7004,
            TTL=self.pick([600, 300, 9_000_000_000, 9_000_000_001, 1 << 62]),
        )

    def watch(self) -> Any:
        now = self.revision
        starts = [0, 0, now, now + 1, now + 3, now // 2, self.compacted, self.compacted - 1, -1, 1]
        return pb.WatchCreateRequest(
            key=self.key(), range_end=self.pick(ENDS), start_revision=self.number(starts, 0.03),
            progress_notify=self.chance(0.2), filters=[self.enum(2, 0.1)] if self.chance(0.3) else [],
            prev_kv=self.chance(0.5), watch_id=self.pick([0, 0, 0, 0, 1, 2, 5, 1 << 40, -7]), fragment=self.chance(0.2),
        )  # fmt: skip

    def garbage(self) -> tuple[str, bytes]:
        """A request to KV whose bytes have been tampered with."""
        request = self.pick([self.put, self.delete, self.range, self.txn])()
        data = bytearray(request.SerializeToString())
        for _ in range(self.pick([1, 1, 2, 5])):
            at = self.random.randrange(len(data) + 1)
            kind = self.random.randrange(4)
            if kind == 0:
                del data[at:]
            elif kind == 1 and at < len(data):
                data[at] ^= 1 << self.random.randrange(8)
            elif kind == 2:
                data[at:at] = self.pick(ODD_BYTES)
            else:
                del data[at : at + 1]
        return f"/etcdserverpb.{UNARY[request.DESCRIPTOR.name]}", bytes(data)

    def request(self) -> Any:
        kind = self.random.random()
        if kind < 0.22:
            return self.put()
        if kind < 0.32:
            return self.delete()
        if kind < 0.55:
            return self.range()
        if kind < 0.75:
            return self.txn()
        if kind < 0.8:
            return self.reads_only()
        if kind < 0.84:
            return self.grant()
        if kind < 0.87:
            return pb.LeaseRevokeRequest(ID=self.number([*LEASES, 12345, 0]))
        if kind < 0.89:
            return pb.LeaseTimeToLiveRequest(ID=self.number([*LEASES, 12345, 0]), keys=self.chance(0.7))
        if kind < 0.9:
            return pb.LeaseLeasesRequest()
        if kind < 0.92:
            # Seldom near the present: there is to be a past to read.
            usual = [max(self.revision - 40, 0)] * 6 + [self.revision - 5, self.revision + 1, self.compacted, 0]
            return pb.CompactionRequest(revision=self.number(usual), physical=self.chance(0.5))
        if kind < 0.97:
            return pb.WatchRequest(create_request=self.watch())
        return pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=self.number([0, 1, 2, 3, 5, 9, 1 << 40])))
