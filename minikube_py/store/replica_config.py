"""Configuration of a replica, and the work that one of its turns leaves to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minikube_py.mvcc.versions import LATEST
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store.membership import Member

REQUEST_BYTES_MAX: Final = 3 << 19
"""1.5 MiB, etcd's default (`--max-request-bytes`)."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How an empty folder starts: as one of the first `members` of a cluster, at `version` of the rules of apply; or,
    with none, as an admitted member that waits for a snapshot from the others."""

    cluster_id: int
    member_id: NodeId
    members: tuple[Member, ...] = ()
    version: int = LATEST


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """`tail_*_max`: how much log stays in memory behind a snapshot, so that a slow follower needs none.
    `snapshot_log_bytes`: the next snapshot is due after this much log, or as much as the last one's size, whichever is
    more; with other members, which hold all of that log in memory, after `log_bytes_max` at most. A read is refused
    after `read_ticks` without a leader; `version`: the rules of apply that this member supports (`mvcc.versions`); for
    the rest see RaftConfig."""

    request_bytes_max: int = REQUEST_BYTES_MAX
    tail_entries_max: int = 20_000
    tail_bytes_max: int = 16 << 20
    snapshot_log_bytes: int = 32 << 20
    log_bytes_max: int = 256 << 20
    election_ticks: int = 10
    heartbeat_ticks: int = 2
    lease_reads: bool = False
    append_bytes_max: int = 1 << 20
    committed_bytes_max: int = 4 << 20
    read_ticks: int = 100
    version: int = LATEST


class Turn(NamedTuple):
    """Work for the driver: `messages` to send at once, and a `sync` to run, on any thread; call `synced` when it has
    ended. Either may be missing. `entries`: how many entries the sync makes durable."""

    messages: Sequence[Message] = ()
    sync: Callable[[], None] | None = None
    entries: int = 0
