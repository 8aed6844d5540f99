"""What Raft hands to its driver, and what the driver must do with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from minikube_py.errors import Corruption
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import NOBODY, Entry, HardState, LogIndex, Message, SnapshotMeta

Role = Literal["FOLLOWER", "PRE_CANDIDATE", "CANDIDATE", "LEADER"]


class ReadState(NamedTuple):
    """A read with `context` may be served once `index` is applied. `index` None: it cannot be served because the leader
    changed; ask again."""

    index: LogIndex | None  # type: ignore[assignment]  # hides tuple.index
    context: bytes


class Ready(NamedTuple):
    """One turn's work.

    1. `messages` may be sent at once, also while the disk is still busy with this turn or an earlier one. A vote or an
       acknowledgement is among them only if all that it promises is durable already.
    2. `snapshot` (one that was stepped, or None) must be durable and in force before anything below.
    3. `hard_state` (None: unchanged) and `entries` must be durable BEFORE `messages_after` are sent; entries at indexes
       that were given before replace those and all after them. Then say `persisted(term, index)`, once for each Ready
       in which `must_sync` holds, in their order.
    4. `committed` entries are to be applied, in order; then say `applied(index)`. They are durable here already.
    5. `read_states` may be answered once their index is applied.
    """

    hard_state: HardState | None = None
    entries: Sequence[Entry] = ()
    messages: Sequence[Message] = ()
    messages_after: Sequence[Message] = ()
    committed: Sequence[Entry] = ()
    read_states: Sequence[ReadState] = ()
    snapshot: SnapshotMeta | None = None

    @property
    def must_sync(self) -> bool:
        return bool(self.hard_state or self.entries or self.snapshot or self.messages_after)


class ProposalDropped(Exception):
    """Refused: no leader here, or too much is uncommitted. Nothing changed. `leader`: where to retry."""

    def __init__(self, why: str, leader: NodeId = NOBODY) -> None:
        super().__init__(why)
        self.leader = leader


class UnknownPeer(Exception):
    """A message from a non-member, or addressed to another node."""


class TermUnbelievable(UnknownPeer):
    """A member's message of a term that no election led to; nothing changed."""


class ClaimRefused(UnknownPeer):
    """A member's message says what cannot be: that it leads a term that another member leads, or that somebody
    acknowledged what it never had. Nothing changed."""


class LogDenied(ClaimRefused):
    """A member says that it leads, and what is committed here it does not have. This member follows it no more until
    its entries fit up to the commit."""


class SafetyViolated(Corruption):
    """A peer's message contradicts settled state: a log was lost. The receiver must stop."""


class AcknowledgedLost(SafetyViolated):
    """This member's own log lacks entries it acknowledged: its files are outdated."""
