"""Raft (Ongaro and Ousterhout, 2014), by the contract of etcd-io/raft: no IO, no clock, no threads.

This node runs with one voter, itself: an election of one at start, and commit when its own disk has an entry. It goes
the way of any cluster: a vote counts once it is durable, progress is kept per voter, the quorum decides. What travels
between members is a `Message`; those a voter sends to itself are due when `persisted` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from minikube_py.env import Rng
from minikube_py.raft import quorum
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import NOBODY, HardState, LogIndex, Message, MessageType, Term
from minikube_py.raft.ready import ProposalDropped, ReadState, Ready, Role, UnknownPeer

UNCOMMITTED_BYTES_MAX = 64 << 20
UNBORN = HardState()


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Proposals above `uncommitted_bytes_max` are dropped."""

    id: NodeId
    election_ticks: int = 10
    uncommitted_bytes_max: int = UNCOMMITTED_BYTES_MAX


class Raft:
    """One member's view. The driver's loop: step, tick, propose; then ready(), and do what `Ready` says."""

    def __init__(
        self, config: RaftConfig, log: RaftLog, hard_state: HardState, configuration: Configuration, rng: Rng
    ) -> None:
        if hard_state.commit > log.last_index:
            raise ValueError(f"commit {hard_state.commit} is beyond the log's last entry {log.last_index}")
        self.config = config
        self.id = config.id
        self.configuration = configuration
        self.rng = rng
        self.log = log
        self.role: Role = "FOLLOWER"
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.leader: NodeId = NOBODY
        log.committed = LogIndex(max(log.committed, hard_state.commit))
        self._saved = hard_state
        self._ticks_elapsed = 0
        self._votes: dict[NodeId, bool] = {}
        self._match: dict[NodeId, LogIndex] = {}
        self._messages: list[Message] = []
        self._own_vote_due: Term | None = None
        self._reads_waiting: list[bytes] = []
        self._read_states: list[ReadState] = []
        self._uncommitted_bytes = 0

    def step(self, message: Message) -> None:
        """Takes one message. Raises: UnknownPeer for one from outside the voters."""
        if message.sender not in self.configuration.voters:
            raise UnknownPeer(f"node {message.sender} is not a voter")
        if message.type == MessageType.HUP:
            if self.role != "LEADER":
                self._campaign()
        elif message.term != self.term:
            return
        elif message.type == MessageType.VOTE_REPLY and self.role == "CANDIDATE":
            self._count_vote(message.sender, not message.reject)
        elif message.type == MessageType.APPEND_REPLY and self.role == "LEADER":
            self._advance(message.sender, message.index)

    def tick(self) -> None:
        """One unit of time: who hears of no leader for `election_ticks` stands for election."""
        if self.role == "LEADER":
            return
        self._ticks_elapsed += 1
        if self._ticks_elapsed >= self.config.election_ticks:
            self._campaign()

    def propose(self, data: bytes) -> LogIndex:
        """The index the entry will have if it commits. Raises: ProposalDropped."""
        if self.role != "LEADER":
            raise ProposalDropped("no leader here yet")
        if self._uncommitted_bytes + len(data) > self.config.uncommitted_bytes_max and self._uncommitted_bytes:
            raise ProposalDropped(f"over {self.config.uncommitted_bytes_max} bytes wait to be committed")
        self._uncommitted_bytes += len(data)
        return self.log.append(self.term, data)

    def read_index(self, context: bytes) -> None:
        """Asks for a ReadState: how far to apply before a read that began now is linearizable (Raft, 8).

        It comes once this leader has committed an entry of its own term. Raises: ProposalDropped without a leader."""
        if self.role != "LEADER":
            raise ProposalDropped("no leader here yet")
        self._reads_waiting.append(context)
        self._release_reads()

    def ready(self) -> Ready:
        """What is to be done since the last call; see `Ready` for the order. Never the same thing twice."""
        log = self.log
        hard_state = HardState(self.term, self.vote, log.committed)
        changed = hard_state[:2] != self._saved[:2]
        entries = log.slice(log.handed, log.last_index)
        log.handed = log.last_index
        # Commit alone is not worth a write: it rides on the next one. A restart that knows less of it commits again.
        self._saved = hard_state if changed else self._saved
        committed = log.slice(log.delivered, log.committed)
        log.delivered = log.committed
        messages, self._messages = self._messages, []
        reads, self._read_states = self._read_states, []
        return Ready(hard_state if changed else None, entries, messages, (), committed, reads)

    def hard_state(self) -> HardState:
        """As of now, to be saved beside something that is written anyway."""
        return HardState(self.term, self.vote, self.log.committed)

    def persisted(self, term: Term, index: LogIndex) -> None:
        """All that `ready` handed out before is durable: the hard state of `term`, and entries up to `index`."""
        if self._own_vote_due is not None and self._own_vote_due <= term:
            self._own_vote_due = None
            self.step(Message(MessageType.VOTE_REPLY, self.id, self.id, term))
        self.log.stable = LogIndex(max(self.log.stable, index))
        self.step(Message(MessageType.APPEND_REPLY, self.id, self.id, term, index=self.log.stable))

    def applied(self, index: LogIndex) -> None:
        """Entries up to `index` are applied."""
        assert self.log.applied <= index <= self.log.delivered
        self.log.applied = index

    def compact(self, index: LogIndex) -> None:
        """Forgets the entries up to `index`, which are applied."""
        self.log.compact(index)

    def _campaign(self) -> None:
        self._ticks_elapsed = 0
        self.role = "CANDIDATE"
        self.leader = NOBODY
        self.term = Term(self.term + 1)
        self.vote = self.id
        self._votes = {}
        self._own_vote_due = self.term

    def _count_vote(self, voter: NodeId, granted: bool) -> None:
        self._votes.setdefault(voter, granted)
        if quorum.vote_result(self.configuration.voters, self._votes) == "WON":
            self._become_leader()

    def _become_leader(self) -> None:
        self.role = "LEADER"
        self.leader = self.id
        self._match = {self.id: self.log.stable}
        # Entries of former terms commit only beneath one of this term (Raft, 5.4.2).
        self.log.append(self.term, b"")

    def _advance(self, voter: NodeId, index: LogIndex) -> None:
        self._match[voter] = LogIndex(max(self._match.get(voter, LogIndex(0)), index))
        candidate = quorum.committed_index(self.configuration.voters, self._match)
        log = self.log
        if candidate > log.committed and log.term(candidate) == self.term:
            newly = log.slice(log.committed, candidate)
            self._uncommitted_bytes -= sum(len(entry.data) for entry in newly if entry.term == self.term)
            log.committed = candidate
            self._release_reads()

    def _release_reads(self) -> None:
        log = self.log
        if self._reads_waiting and log.term(log.committed) == self.term:
            self._read_states.extend(ReadState(log.committed, context) for context in self._reads_waiting)
            self._reads_waiting = []
