"""Configuration of a member: what it keeps, when it takes a snapshot, and its unit of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikube_py.store.fsync import FsyncMode
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.store.room import QUOTA_BYTES, SEGMENTS_RESERVED
from minikube_py.wal.segment import SEGMENT_BYTES

TICK_S: Final = 0.05
CHECK_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class MemberConfig(ReplicaConfig):
    """History is compacted when older than `retain_s` or, oldest first, when its writes exceed `retain_bytes`; 0 means
    no limit. `fsync` "auto": in a thread while it leads others, otherwise depending on the disk's speed. `tick_s`:
    Raft's unit of time; an election starts after 1 to 1.4 times `election_ticks` without a leader, so a killed leader
    costs less than a second. `quota_bytes`, `reserve_bytes`: see Room; None: a few segments. `own_gc`:
    the Collector takes over the process, which must be this member's alone. `check_s`: how often a leader compares the
    members' hashes. The rest: see ReplicaConfig."""

    segment_bytes: int = SEGMENT_BYTES
    retain_s: float = 300.0
    retain_bytes: int = 64 << 20
    fsync: FsyncMode = "auto"
    own_gc: bool = False
    tick_s: float = TICK_S
    quota_bytes: int = QUOTA_BYTES
    reserve_bytes: int | None = None
    check_s: float = CHECK_S

    @property
    def reserved_bytes(self) -> int:
        return SEGMENTS_RESERVED * self.segment_bytes if self.reserve_bytes is None else self.reserve_bytes
