"""What Raft hands to its driver, and what the driver owes it in return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, NewType

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)
NodeId = NewType("NodeId", int)

NOBODY = NodeId(0)
Role = Literal["FOLLOWER", "CANDIDATE", "LEADER"]
MessageType = Literal["HUP", "VOTE_REPLY", "APPEND_REPLY"]


class Entry(NamedTuple):
    """`data` empty: the entry a leader opens its term with (Raft, 8); it changes nothing."""

    term: Term
    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    data: bytes


class HardState(NamedTuple):
    """What must survive a restart. `vote` NOBODY: none given in this term. `commit` may lag behind."""

    term: Term = Term(0)
    vote: NodeId = NOBODY
    commit: LogIndex = LogIndex(0)


class Message(NamedTuple):
    """One step's input or one thing to send. HUP: start an election. VOTE_REPLY: a vote granted or not in `term`.
    APPEND_REPLY: the sender's log is durable up to `index`."""

    type: MessageType
    sender: NodeId
    to: NodeId
    term: Term = Term(0)
    index: LogIndex = LogIndex(0)  # type: ignore[assignment]  # hides tuple.index
    granted: bool = False


class ReadState(NamedTuple):
    """A read asked for with `context` may be served once `index` is applied."""

    index: LogIndex  # type: ignore[assignment]  # hides tuple.index
    context: bytes


class Ready(NamedTuple):
    """One turn's work.

    1. `hard_state` (None: unchanged) and `entries` must be durable BEFORE `messages` are sent; then say
       `persisted(term, index)` with the last of them.
    2. `committed` entries are to be applied, in order; then say `applied(index)`. They are durable here already.
    3. `read_states` may be answered once their index is applied.
    """

    hard_state: HardState | None
    entries: Sequence[Entry]
    messages: Sequence[Message]
    committed: Sequence[Entry]
    read_states: Sequence[ReadState]


class ProposalDropped(Exception):
    """Not taken: no leader here, or too much waits uncommitted. Nothing changed."""


class UnknownPeer(Exception):
    """A message from someone who is not a voter."""
