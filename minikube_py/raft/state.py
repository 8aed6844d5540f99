"""State shared by the parts of one member's Raft, and the queues of its messages."""

from __future__ import annotations

from dataclasses import dataclass

from minikube_py.env import Rng
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.log import BEFORE_ALL, START, RaftLog
from minikube_py.raft.message import NOBODY, HardState, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.raft.ready import ProposalDropped, ReadState, Role

TRANSFER = b"transfer"
"""The context of a vote in an election that the leader requested."""

ELECTION_TICKS_MIN = 3
"""With 2 a follower's timeout, drawn from `election_ticks` to two fifths more, would be constant."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """The settings of a member; they must be equal on all.

    An election starts after `election_ticks` (at least ELECTION_TICKS_MIN, and above `heartbeat_ticks`) to two fifths
    more without a leader. `lease_reads`: a leader that a majority heard within the last half election timeout answers
    reads without asking again, which relies on all members' ticks lasting about the same. One APPEND carries up to
    `append_bytes_max`; unacknowledged ones are bounded per peer in number and bytes. Proposals beyond
    `uncommitted_bytes_max` are dropped, reads beyond `reads_max` too. One Ready hands out up to `committed_bytes_max`
    to apply. A snapshot transfer without progress for `snapshot_ticks` is given up. `release`: a number of the driver,
    which may differ between members; a follower's replies report it to the leader."""

    id: NodeId
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    check_quorum: bool = True
    lease_reads: bool = False
    append_bytes_max: int = 1 << 20
    inflight_messages_max: int = 64
    inflight_bytes_max: int = 16 << 20
    uncommitted_bytes_max: int = 64 << 20
    committed_bytes_max: int = 64 << 20
    reads_max: int = 100_000
    snapshot_ticks: int = 1200
    release: int = 0

    def __post_init__(self) -> None:
        if self.id <= 0:
            raise ValueError(f"a member's id is above 0, not {self.id}")
        for name in self.__slots__:
            if name not in ("id", "pre_vote", "check_quorum", "lease_reads", "release") and getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if self.election_ticks < ELECTION_TICKS_MIN:
            raise ValueError(
                f"election_ticks is at least {ELECTION_TICKS_MIN}, not {self.election_ticks}: below that, election "
                "timeouts have no random part"
            )
        if self.heartbeat_ticks >= self.election_ticks:
            raise ValueError(
                f"heartbeat_ticks must be below election_ticks: {self.heartbeat_ticks} >= {self.election_ticks}"
            )
        if self.lease_reads and not self.check_quorum:
            raise ValueError(
                "lease_reads needs check_quorum: without it a leader cut off from the others keeps answering"
            )


class State:
    """Owned by one `Raft`: term, vote, role and leader change only there.

    `latest_snapshot`: sent to a peer that needs compacted entries. `messages` may be sent at once, `messages_after`
    once everything that was pending when they were made is durable."""

    __slots__ = (
        "config",
        "configuration",
        "id",
        "latest_snapshot",
        "leader",
        "log",
        "messages",
        "messages_after",
        "read_states",
        "rng",
        "role",
        "term",
        "vote",
    )

    def __init__(
        self, config: RaftConfig, log: RaftLog, hard_state: HardState, configuration: Configuration, rng: Rng
    ) -> None:
        self.config = config
        self.id = config.id
        self.log = log
        self.rng = rng
        self.configuration = configuration
        self.role: Role = "FOLLOWER"
        self.term: Term = hard_state.term
        self.vote: NodeId = hard_state.vote
        self.leader: NodeId = NOBODY
        self.latest_snapshot: SnapshotMeta | None = None
        self.messages: list[Message] = []
        self.messages_after: list[Message] = []
        self.read_states: list[ReadState] = []

    def send(
        self,
        type: MessageType,
        to: NodeId,
        *,
        term: Term | None = None,
        index: LogIndex = START,
        log_term: Term = BEFORE_ALL,
        commit: LogIndex = START,
        reject: bool = False,
        hint: int = 0,
        context: bytes = b"",
        snapshot: SnapshotMeta | None = None,
    ) -> None:
        """Queues a message without entries: if it is a promise, until its basis is durable."""
        term = self.term if term is None else term
        message = Message(
            type, self.id, to, term, log_term, index, commit, (), reject, hint, context, snapshot
        )
        after = type in (MessageType.VOTE, MessageType.VOTE_REPLY, MessageType.APPEND_REPLY)
        (self.messages_after if after else self.messages).append(message)

    def no_leader(self) -> ProposalDropped:
        if self.leader == NOBODY:
            return ProposalDropped("there is no leader at the moment; try again")
        return ProposalDropped(f"node {self.leader:x} leads, not this one", self.leader)
