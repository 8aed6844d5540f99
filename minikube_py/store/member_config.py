"""How a member is set up: what it keeps, when it takes a snapshot, and its unit of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikube_py.store.fsync import FsyncMode
from minikube_py.store.replica import REQUEST_BYTES_MAX, ReplicaConfig
from minikube_py.store.room import QUOTA_BYTES, SEGMENTS_RESERVED
from minikube_py.wal.segment import SEGMENT_BYTES

TICK_S: Final = 0.05
CHECK_S: Final = 600.0
COMMITTED_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """`snapshot_log_bytes`: log written since the last snapshot before the next is taken (or as much as that snapshot
    was large, whichever is more). `tail_entries_max`: entries behind it that are kept in memory for slow followers.
    History is compacted when older than `retain_s` or, oldest first, when its writes sum up to more than
    `retain_bytes`; 0 keeps without that bound. `fsync` "auto": in a thread with other members, alone as the disk is
    fast. `tick_s`: Raft's unit of time; an election begins after one to one and a half times `election_ticks` of
    them without a leader, so that one that was killed costs less than a second. `quota_bytes`, `reserve_bytes`: see
    Room; None: a few segments. `check_s`: how often a leader compares what the members hold. The rest: see
    ReplicaConfig."""

    request_bytes_max: int = REQUEST_BYTES_MAX
    segment_bytes: int = SEGMENT_BYTES
    snapshot_log_bytes: int = 32 << 20
    tail_entries_max: int = 20_000
    tail_bytes_max: int = 16 << 20
    log_bytes_max: int = 256 << 20
    append_bytes_max: int = 1 << 20
    retain_s: float = 300.0
    retain_bytes: int = 64 << 20
    fsync: FsyncMode = "auto"
    own_gc: bool = True
    tick_s: float = TICK_S
    quota_bytes: int = QUOTA_BYTES
    reserve_bytes: int | None = None
    check_s: float = CHECK_S
    election_ticks: int = 10
    heartbeat_ticks: int = 2
    lease_reads: bool = False

    @property
    def reserved_bytes(self) -> int:
        return SEGMENTS_RESERVED * self.segment_bytes if self.reserve_bytes is None else self.reserve_bytes

    def replica(self) -> ReplicaConfig:
        return ReplicaConfig(
            request_bytes_max=self.request_bytes_max,
            snapshot_log_bytes=self.snapshot_log_bytes,
            tail_entries_max=self.tail_entries_max,
            tail_bytes_max=self.tail_bytes_max,
            log_bytes_max=self.log_bytes_max,
            append_bytes_max=self.append_bytes_max,
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
            lease_reads=self.lease_reads,
            committed_bytes_max=COMMITTED_BYTES_MAX,
        )
