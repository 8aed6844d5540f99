"""How a replica begins and what it is bounded by, and what a turn of it leaves to be done outside."""

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
    """How an empty folder begins: as one of the first `members` of a cluster, at `version` of the rules of apply; or,
    with none, as one that has been let in and waits for a snapshot from the others."""

    cluster_id: int
    member_id: NodeId
    members: tuple[Member, ...] = ()
    version: int = LATEST


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """`tail_*_max`: how much of the log is kept in memory behind a snapshot, so that a slow follower needs none.
    `snapshot_log_bytes`: log written since the last snapshot before the next is due, or as much as that one was large,
    whichever is more; with other members, who hold all of that log in memory, `log_bytes_max` at most. A read is
    refused after `read_ticks` without a leader; `version`: the rules of apply that this member knows (`mvcc.versions`);
    for the others see RaftConfig."""

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
    """What is to be done outside: `messages` to be sent at once, and a `sync` to be run, wherever; when it has ended,
    `synced` is to be called. Either may be missing. `entries`: how many the sync makes durable."""

    messages: Sequence[Message] = ()
    sync: Callable[[], None] | None = None
    entries: int = 0
