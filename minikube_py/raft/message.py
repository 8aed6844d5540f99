"""Raft's types: terms, indexes, entries, messages. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, NewType

from minikube_py.raft.configuration import Configuration, NodeId

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)

NOBODY = NodeId(0)

TERM_MAX = 1 << 62
"""The highest term that is believed at all, of a file or a frame: there must be a next one."""
TERMS_APART_MAX = 1 << 32
"""Between two members of one cluster: at two elections a second, 68 years of them."""


def believable(term: int, own: int) -> bool:
    """Whether a member of term `own` (0: it has only begun, and knows none) takes a message's `term` for one that
    elections led to. Both members say no: no single frame or file leads the others out of the range of terms."""
    return term <= TERM_MAX and (abs(term - own) <= TERMS_APART_MAX or not own)


class EntryKind(IntEnum):
    """Stored in logs on disk: never change a number. CHANGE: `data` is a packed `ConfChange`."""

    NORMAL = 0
    CHANGE = 1


class Entry(NamedTuple):
    """`data` empty: the entry with which a leader opens its term (Raft, 8); it changes nothing."""

    term: Term
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    data: bytes
    kind: int = EntryKind.NORMAL


class HardState(NamedTuple):
    """What must survive a restart. `vote` NOBODY: none given in this term. `commit` may lag behind."""

    term: Term = Term(0)
    vote: NodeId = NOBODY
    commit: LogIndex = LogIndex(0)


class SnapshotMeta(NamedTuple):
    """A snapshot of the state after entry `index` of `term`; `configuration` is the one in force then."""

    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    term: Term
    configuration: Configuration


class MessageType(IntEnum):
    """Sent between members: never change a number. HUP is never sent: it makes this node start an election."""

    HUP = 0
    PRE_VOTE = 1
    PRE_VOTE_REPLY = 2
    VOTE = 3
    VOTE_REPLY = 4
    APPEND = 5
    APPEND_REPLY = 6
    HEARTBEAT = 7
    HEARTBEAT_REPLY = 8
    SNAPSHOT = 9
    READ_INDEX = 10
    READ_INDEX_REPLY = 11
    TRANSFER = 12
    TIMEOUT_NOW = 13
    TELL = 14


class Message(NamedTuple):
    """A message to send, or the input of a step. The fields used depend on `type`:

    - PRE_VOTE, VOTE: `index`, `log_term` of the sender's last entry; `context` b"transfer" if the leader requested
      this election. Their replies: `reject`. Both ways `commit` and, as `hint`, the term of the entry there.
    - APPEND: `index`, `log_term` of the entry before `entries`; `commit`. Its reply: `index` up to which the sender's
      log is durable and agrees with the leader's, `hint` the sender's `release`; with `reject`, `index` is the one
      refused, and (`hint`, `log_term`) the place where the logs may still agree (the thesis, 5.3; etcd-io/raft's fast
      backtracking).
    - HEARTBEAT: `commit`, `context` (a read's id, or empty). Its reply: the same `context`; `hint` as above.
    - SNAPSHOT: `snapshot`; the data is sent separately, and the receiver steps the message when it is complete.
    - READ_INDEX (follower to leader): `context`. Its reply: `context`, `index`; `reject` if the leader cannot tell.
    - TRANSFER (to the leader): make `hint` the leader. TIMEOUT_NOW (from the leader): stand for election at once.
    - TELL: `context`, a message from the sender's driver to the receiver's. Raft itself ignores it."""

    type: int
    sender: NodeId
    to: NodeId
    term: Term = Term(0)
    log_term: Term = Term(0)
    index: LogIndex = LogIndex(0)  # type: ignore[assignment]  # hides tuple.index
    commit: LogIndex = LogIndex(0)
    entries: Sequence[Entry] = ()
    reject: bool = False
    hint: int = 0
    context: bytes = b""
    snapshot: SnapshotMeta | None = None
