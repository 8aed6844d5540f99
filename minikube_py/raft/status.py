"""A member's status, for display and tests."""

from __future__ import annotations

from typing import NamedTuple

from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex, Term
from minikube_py.raft.ready import Role


class PeerStatus(NamedTuple):
    """The leader's view of a peer. `state`: "probe", "replicate" or "snapshot"; `active`: heard from recently;
    `silent`: for an election timeout or more, so that its process has ended or is cut off."""

    id: NodeId
    match: LogIndex
    next: LogIndex
    state: str
    active: bool
    learner: bool
    inflight_messages: int
    snapshot_index: LogIndex
    silent: bool = False


class Status(NamedTuple):
    """`peers` is empty except on the leader. `transferee` 0: no transfer in progress."""

    id: NodeId
    term: Term
    vote: NodeId
    role: Role
    leader: NodeId
    commit: LogIndex
    applied: LogIndex
    last_index: LogIndex
    configuration: Configuration
    transferee: NodeId
    peers: tuple[PeerStatus, ...]
