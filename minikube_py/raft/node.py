"""Raft (Ongaro and Ousterhout, 2014; Ongaro's thesis), by the contract of etcd-io/raft: no IO, no clock, no threads.

The core: terms and roles change only here. The behaviour of a role is in `elections`, `leadership`, `replication`,
`reads` and `following`; they report, and this module acts on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minikube_py.env import Rng
from minikube_py.raft.codec import decode_change, encode_change
from minikube_py.raft.configuration import ConfChange, Configuration, NodeId, changed
from minikube_py.raft.elections import Elections
from minikube_py.raft.following import Following
from minikube_py.raft.leadership import Leadership
from minikube_py.raft.log import START, RaftLog, Write
from minikube_py.raft.message import (
    NOBODY,
    Entry,
    HardState,
    LogIndex,
    Message,
    MessageType,
    SnapshotMeta,
    Term,
    believable,
)
from minikube_py.raft.reads import ForwardedReads, Read
from minikube_py.raft.ready import ClaimRefused, LogDenied, ProposalDropped, Ready, TermUnbelievable, UnknownPeer
from minikube_py.raft.state import TRANSFER, RaftConfig, State
from minikube_py.raft.status import PeerStatus, Status

__all__ = ["Raft", "RaftConfig"]

_new = tuple.__new__
FROM_LEADER = frozenset((MessageType.APPEND, MessageType.HEARTBEAT, MessageType.SNAPSHOT))
FROM_MEMBERS = frozenset(
    (MessageType.APPEND_REPLY, MessageType.HEARTBEAT_REPLY, MessageType.READ_INDEX, MessageType.TRANSFER)
)
"""Accepted only from members. Other messages may come from a member unknown here: this member's configuration may be
old (the thesis, 4.1)."""


class Raft(State):
    """One member's view. The driver's loop: step, tick, propose; then ready(), and do what `Ready` says.

    `log`, `hard_state` and `configuration` are the durable state at the start; `configuration` is the one in force at
    the log's offset. Read `term`, `role`, `leader`, `configuration` and `log` at will; only this class changes them."""

    __slots__ = (
        "_elections", "_following", "_forwarded", "_handlers", "_leader_term", "_leading", "_saved", "apart",
        "leaders_seen",
    )  # fmt: skip

    def __init__(
        self, config: RaftConfig, log: RaftLog, hard_state: HardState, configuration: Configuration, rng: Rng
    ) -> None:
        if hard_state.commit > log.last_index:
            raise ValueError(f"commit {hard_state.commit} is beyond the log's last entry {log.last_index}")
        super().__init__(config, log, hard_state, configuration, rng)
        log.committed = max(log.committed, hard_state.commit)
        log.noted = max(log.noted, hard_state.commit)
        self._saved = (hard_state.term, hard_state.vote)
        self._elections = Elections(self)
        self._following = Following(self)
        self._forwarded = ForwardedReads(rng.getrandbits(64).to_bytes(8, "big"))
        self._leading: Leadership | None = None
        self._leader_term = self.leaders_seen = 0
        self.apart: dict[NodeId, Term] = {}
        """Members whose last message was not believed, with its term."""
        self._handlers: dict[int, Callable[[Message], None]] = {
            MessageType.PRE_VOTE: self._vote_asked,
            MessageType.PRE_VOTE_REPLY: self._vote_answered,
            MessageType.VOTE: self._vote_asked,
            MessageType.VOTE_REPLY: self._vote_answered,
            MessageType.APPEND: self._following.append,
            MessageType.APPEND_REPLY: self._append_answered,
            MessageType.HEARTBEAT: self._following.heartbeat,
            MessageType.HEARTBEAT_REPLY: self._heartbeat_answered,
            MessageType.SNAPSHOT: self._following.snapshot,
            MessageType.READ_INDEX: self._read_asked,
            MessageType.READ_INDEX_REPLY: self._read_answered,
            MessageType.TRANSFER: self._transfer_asked,
            MessageType.TIMEOUT_NOW: self._called,
        }

    # Input

    def step(self, message: Message) -> None:
        """Handles one message. Raises: UnknownPeer, TermUnbelievable, ClaimRefused: it changed nothing;
        AcknowledgedLost; ValueError for drivers' messages, such as TELL."""
        type = message.type
        if type == MessageType.HUP:
            if self._leading is None:
                self._stand(transfer=False)
            return
        if message.to != self.id or message.sender == self.id:
            raise UnknownPeer(f"a message from node {message.sender:x} to node {message.to:x} reached node {self.id:x}")
        if type in FROM_MEMBERS and not self.configuration.contains(message.sender):
            raise UnknownPeer(f"node {message.sender:x} is not a member")
        if type not in self._handlers:
            raise ValueError(f"a message of type {type} does not belong to Raft")
        if not believable(message.term, self.term):
            if self.configuration.contains(message.sender):
                self.apart[message.sender] = message.term
            raise TermUnbelievable(f"node {message.sender:x} is in term {message.term}, this one in term {self.term}")
        if self.apart:
            self.apart.pop(message.sender, None)
        if type in FROM_LEADER:
            self._check_claim(message)
        if message.term != self.term and not self._compare_terms(message):
            return
        if type in FROM_LEADER:
            self._follow(message.sender)
        self._handlers[type](message)

    def tick(self) -> None:
        """One unit of time passes."""
        leading = self._leading
        if leading is not None:
            if not leading.tick():
                self._become_follower(self.term, NOBODY)
            return
        self.read_states += self._forwarded.tick()
        if self._elections.tick():
            # If an election is not permitted yet the clock keeps its state, so that it starts as soon as it is.
            self._stand(transfer=False)
        elif self.role != "FOLLOWER":
            # A voter that heard from the leader slightly later ignores the first request, a lost link loses it, and
            # waiting for the next timeout would double the time without a leader. Asked again, a voter answers as
            # before.
            self._elections.ask()

    def propose(self, data: bytes) -> LogIndex:
        """The index the entry will have if it commits. Raises: ProposalDropped."""
        leading = self._leading
        if leading is None or leading.transferee:
            raise self._not_now()
        size_bytes = leading.uncommitted_bytes + len(data)
        if size_bytes > self.config.uncommitted_bytes_max and leading.uncommitted_bytes:
            raise ProposalDropped(f"over {self.config.uncommitted_bytes_max} bytes wait to be committed", self.id)
        leading.uncommitted_bytes = size_bytes
        return self.log.append(self.term, data)

    def propose_change(self, change: ConfChange) -> LogIndex:
        """The index of an entry that changes the configuration once it is applied. Raises: ProposalDropped;
        ChangeRefused if the change is invalid."""
        leading = self._leading
        if leading is None or leading.transferee:
            raise self._not_now()
        if leading.change_index > self.log.applied:
            raise ProposalDropped("the previous change is not applied yet; changes are made one at a time", self.id)
        if self.configuration.joint and not change.leave_joint:
            raise ProposalDropped("the previous change is not complete: its joint configuration must be left", self.id)
        changed(self.configuration, change)
        return self._append_change(leading, change)

    def read_index(self, context: bytes) -> None:
        """Asks for a ReadState: how far to apply before a read that begins now is linearizable (Raft, 8). A follower
        asks the leader. Raises: ProposalDropped without a leader, or if too many wait."""
        if self._leading is not None:
            self._leading.read(Read(self.id, context))
        elif self.leader == NOBODY:
            raise self.no_leader()
        elif len(self._forwarded) >= self.config.reads_max:
            raise ProposalDropped(f"over {self.config.reads_max} reads wait already", self.leader)
        else:
            self._forwarded.add(context)

    def transfer(self, to: NodeId) -> None:
        """Asks the leader to transfer leadership to `to`, a voter. Aborted after an election timeout.

        Raises: ProposalDropped."""
        if to not in self.configuration.voters:
            raise ProposalDropped(f"node {to:x} is not a voter, and cannot lead", self.leader)
        if self._leading is not None:
            self._leading.transfer(to)
        elif self.leader == NOBODY:
            raise self.no_leader()
        else:
            self.send(MessageType.TRANSFER, self.leader, hint=to)

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """`reachable` False: messages to `to` may be lost. `snapshot`: whether the one it was sent arrived."""
        if self._leading is not None:
            self._leading.replication.report(to, reachable, snapshot)

    def gone(self, node: NodeId) -> None:
        """The process of `node` seems to have ended: its machine refuses connections to it. If it led, it is waited for
        until a heartbeat of it would have come, which it does if connections alone were lost."""
        if node == self.leader and self._leading is None:
            self._elections.gone(still_ticks=self.config.heartbeat_ticks + 1)

    # Output

    def ready(self, can_write: bool = True) -> Ready:
        """The work since the last call, each item once; see `Ready` for the order.

        `can_write` False: a sync is in progress; only work without writing is returned."""
        log, following = self.log, self._following
        hard_state: HardState | None = None
        entries: Sequence[Entry] = []
        snapshot: SnapshotMeta | None = None
        unsaved = self._saved[0] != self.term or self._saved[1] != self.vote
        if can_write:
            if following.offered is not None:
                snapshot = following.take_over()
            if unsaved or self._change_to_note():
                # Otherwise a new commit index alone is not worth a write: the next one includes it. After a restart it
                # is committed again.
                hard_state = self.hard_state()
                self._saved = (self.term, self.vote)
            if log.handed < log.last_index:
                entries = log.hand_out()
            writes = hard_state is not None or bool(entries) or snapshot is not None
            owed = writes or bool(log.in_flight)
        else:
            writes = False
            owed = bool(unsaved or log.in_flight or log.handed < log.last_index or following.offered)
        if self._leading is not None:
            self._leading.work()
        elif self.leader:
            self._ask_leader()
        after: list[Message] = []
        if can_write or not owed:
            following.acknowledge()
            if self.messages_after:
                after, self.messages_after = self.messages_after, []
                if not owed:
                    self.messages += after
                    after = []
        if writes or after:
            log.in_flight.append(Write(self.term, log.handed, hard_state.commit if hard_state else START))
        messages, self.messages = self.messages, []
        reads, self.read_states = self.read_states, []
        committed = log.deliver(self.config.committed_bytes_max)
        return _new(Ready, (hard_state, entries, messages, after, committed, reads, snapshot))

    def _change_to_note(self) -> bool:
        """A configuration change waits for its commit to be durable, and no write in flight covers it."""
        change = self.log.unnoted_change()
        return change is not None and all(write.commit < change for write in self.log.in_flight)

    def hard_state(self) -> HardState:
        """The current one, to be saved with another write. It never covers entries that are not durable: a torn write
        must not leave a commit beyond the log."""
        return HardState(self.term, self.vote, min(self.log.committed, self.log.stable))

    def persisted(self, term: Term, index: LogIndex) -> None:
        """The oldest Ready that needed a sync is durable: its hard state of `term`, its entries up to `index`.

        Raises: ValueError if there is no such Ready."""
        log = self.log
        if not log.in_flight:
            raise ValueError(f"term {term} and entry {index} are said to be durable, and nothing was handed out")
        write = log.in_flight[0]
        if write.term != term or index > write.last:
            raise ValueError(
                f"term {term} and entry {index} are said to be durable; what was handed out first is term "
                f"{write.term} and entry {write.last}"
            )
        log.in_flight.popleft()
        log.persisted(write)
        if self._leading is not None:
            self._leading.commit()
        elif self.role == "CANDIDATE" and term == self.term:
            # Only now is this member's own vote final.
            self._count_vote(self.id, True)

    def applied(self, index: LogIndex) -> None:
        """Entries up to `index` are applied; changes of the configuration among them are in force from now on."""
        log = self.log
        if index > log.delivered:
            raise ValueError(f"entry {index} is said to be applied, and {log.delivered} was the last one given out")
        if index <= log.applied:
            return
        log.applied = index
        while log.changes and log.changes[0] <= index:
            self._configure(log.changes.pop(0))
        leading = self._leading
        if leading is not None and self.configuration.auto_leave and leading.change_index <= index:
            self._append_change(leading, ConfChange(leave_joint=True))

    def skip_change(self, index: LogIndex) -> None:
        """The change at `index`, which is about to be applied, changes nothing: the driver cannot apply it."""
        self.log.changes.remove(index)

    def compact(self, index: LogIndex) -> None:
        """Drops applied entries up to `index`. A peer that still needs them is sent the latest snapshot."""
        if index > self.log.applied:
            raise ValueError(f"entry {index} is not applied yet, only up to {self.log.applied}; it cannot be discarded")
        self.log.compact(index)

    def snapshot_taken(self, meta: SnapshotMeta) -> None:
        """There is a durable snapshot to send to peers."""
        if self.latest_snapshot is None or meta.index > self.latest_snapshot.index:
            self.latest_snapshot = meta
            if self._leading is not None:
                self._leading.replication.snapshot_wanted = False

    @property
    def accepted_snapshot(self) -> SnapshotMeta | None:
        """A stepped snapshot not handed out yet: the driver must be able to install it."""
        return self._following.offered

    @property
    def snapshot_wanted(self) -> bool:
        """Whether a peer waits for a newer snapshot than the latest: one that the log reaches back to, and whose
        configuration includes the peer."""
        return self._leading is not None and self._leading.replication.snapshot_wanted

    def status(self) -> Status:
        """For display and tests."""
        log, leading = self.log, self._leading
        peers = leading.replication.peers.items() if leading is not None else ()
        return Status(
            self.id, self.term, self.vote, self.role, self.leader, log.committed, log.applied, log.last_index,
            self.configuration, leading.transferee if leading is not None else NOBODY,
            tuple(
                PeerStatus(
                    node, progress.match, progress.next, progress.state.value, progress.active,
                    node in self.configuration.learners, len(progress.inflights), progress.snapshot_index,
                    not (progress.active or progress.recent),
                )
                for node, progress in peers
            ),
        )

    # Terms and roles

    def _compare_terms(self, message: Message) -> bool:
        """A message of another term than this member's. True: handle it, in the now current term."""
        type, term = message.type, message.term
        if term > self.term:
            pre = type == MessageType.PRE_VOTE
            asked = pre or type == MessageType.VOTE
            if asked and message.context != TRANSFER and self._elections.in_lease(message):
                return False
            if pre:
                return True
            if type == MessageType.PRE_VOTE_REPLY and not message.reject:
                # For the term that this member asked about but has not entered.
                return term == self.term + 1
            self._become_follower(term, message.sender if type in FROM_LEADER else NOBODY)
            return True
        if type in FROM_LEADER:
            # A stale leader. It must learn of the term, or a member that reached a higher term while disconnected could
            # never rejoin: it ignores older leaders, and they would not grant it votes.
            self.send(MessageType.APPEND_REPLY, message.sender, reject=True)
        elif type in (MessageType.PRE_VOTE, MessageType.VOTE):
            self._elections.refuse(message)
        return False

    def _check_claim(self, message: Message) -> None:
        """A message that only the leader of its term sends. Raises: ClaimRefused, AcknowledgedLost."""
        sender, term = message.sender, message.term
        if term < self.term:
            return
        if term == self.term and self.leader not in (NOBODY, sender):
            raise ClaimRefused(f"node {sender:x} claims to lead term {term}, which node {self.leader:x} leads")
        try:
            self._following.check(message)
        except LogDenied:
            if self.leader == sender:
                # What it confirms to readers is true of another log than this one.
                self._become_follower(self.term, NOBODY)
            self._elections.heard()
            raise

    def _follow(self, leader: NodeId) -> None:
        """A message of this term from its leader."""
        if self.leader == NOBODY:
            self._become_follower(self.term, leader)
        self._elections.heard()

    def _become_follower(self, term: Term, leader: NodeId) -> None:
        if term != self.term:
            self.term = term
            self.vote = NOBODY
            self._following.agreed = None
        self._end_office()
        stood, self.role = self.role != "FOLLOWER", "FOLLOWER"
        if stood or leader != NOBODY:
            # Otherwise the clock continues: a candidate refused here must not keep this member from starting an
            # election.
            self._elections.reset()
        self.leader = leader
        self._note_leader()

    def _note_leader(self) -> None:
        """Counts leaders by term: one lost and found again is the same."""
        if self.leader != NOBODY and self._leader_term != self.term:
            self._leader_term = self.term
            self.leaders_seen += 1
            self._following.remembers(Term(self.term + 1))

    def _end_office(self) -> None:
        """Requests sent to or through the old leader get no answer."""
        if self._leading is not None:
            self.read_states += self._leading.ended()
            self._leading = None
        self.read_states += self._forwarded.give_up()

    def _stand(self, *, transfer: bool) -> None:
        """Starts an election if permitted, first with a pre-vote (the thesis, 9.6)."""
        self._following.denied_by = None
        if not self._elections.may_stand(called=transfer) or self._following.offered is not None:
            if self.leader != NOBODY and self.id in self.configuration.learners:
                # It was silent for too long; who really leads the term is heard again.
                self._become_follower(self.term, NOBODY)
            return
        self._end_office()
        self.leader = NOBODY
        if self.config.pre_vote and not transfer:
            self.role = "PRE_CANDIDATE"
            self._elections.begin(transfer=False)
            self._count_vote(self.id, True)
        else:
            self._become_candidate(transfer=transfer)

    def _become_candidate(self, *, transfer: bool) -> None:
        self.role = "CANDIDATE"
        self.leader = NOBODY
        self.term = Term(self.term + 1)
        self.vote = self.id
        self._following.agreed = None
        self._elections.begin(transfer=transfer)

    def _become_leader(self) -> None:
        self.role = "LEADER"
        self.leader = self.id
        self._note_leader()
        self._elections.reset()
        self._leading = Leadership(self)
        # Entries of earlier terms commit only below one of this term (Raft, 5.4.2).
        self.log.append(self.term, b"")

    def _count_vote(self, voter: NodeId, granted: bool) -> None:
        result = self._elections.count(voter, granted)
        if result == "LOST":
            split = self.role == "CANDIDATE" and self.config.pre_vote
            self._become_follower(self.term, NOBODY)
            if split:
                # Who lost after a pre-vote met another candidate: nobody leads, so there is nobody to wait for.
                self._elections.gone()
        elif result == "WON" and self.role == "PRE_CANDIDATE":
            self._become_candidate(transfer=False)
        elif result == "WON":
            self._become_leader()

    def _configure(self, index: LogIndex) -> None:
        """The change at `index` is applied."""
        change = decode_change(self.log.slice(LogIndex(index - 1), index)[0].data)
        self.configuration = changed(self.configuration, change)
        self.apart = {id: term for id, term in self.apart.items() if self.configuration.contains(id)}
        votes = self.configuration.votes(self.id)
        if self._leading is not None:
            self._leading.configured()
            if not votes:
                # It led until its own removal was committed, and not beyond (the thesis, 4.2.2).
                self._leading.replication.tell_commit()
                self._become_follower(self.term, NOBODY)
        elif not votes and self.role != "FOLLOWER":
            self._become_follower(self.term, NOBODY)

    def _append_change(self, leading: Leadership, change: ConfChange) -> LogIndex:
        data = encode_change(change)
        leading.uncommitted_bytes += len(data)
        leading.change_index = self.log.append_change(self.term, data)
        return leading.change_index

    def _not_now(self) -> ProposalDropped:
        if self._leading is None:
            return self.no_leader()
        to = self._leading.transferee
        return ProposalDropped(f"leadership is being transferred to node {to:x}; the transfer must end first")

    # Messages of this term

    def _vote_asked(self, message: Message) -> None:
        self._learn_commit(message)
        if self._elections.promised(message):
            return
        if self._elections.answer(message):
            if self.role != "FOLLOWER":
                self._become_follower(self.term, NOBODY)
            self.vote = message.sender
            self._elections.reset()

    def _vote_answered(self, message: Message) -> None:
        self._learn_commit(message)
        poll = message.type == MessageType.PRE_VOTE_REPLY
        if poll and not message.reject and message.term == self.term:
            return  # It answers an earlier poll, for the term that has since begun.
        if self.role == ("PRE_CANDIDATE" if poll else "CANDIDATE"):
            self._count_vote(message.sender, not message.reject)

    def _learn_commit(self, message: Message) -> None:
        if self._leading is not None or not self._elections.learn_commit(message):
            return
        if self.role != "FOLLOWER" and not self._elections.may_stand(called=True):
            # It was started under a configuration that is no longer in force.
            self._become_follower(self.term, NOBODY)

    def _append_answered(self, message: Message) -> None:
        if self._leading is not None:
            self._leading.replied(message)

    def _heartbeat_answered(self, message: Message) -> None:
        if self._leading is not None:
            self._leading.heartbeat_answered(message)

    def _ask_leader(self) -> None:
        """Asks the leader on behalf of all reads since the last time."""
        question = self._forwarded.ask(self.config.election_ticks)
        if question is not None:
            self.send(MessageType.READ_INDEX, self.leader, context=question)

    def _read_asked(self, message: Message) -> None:
        try:
            if self._leading is None:
                raise self.no_leader()
            self._leading.read(Read(message.sender, message.context))
        except ProposalDropped:
            self.send(MessageType.READ_INDEX_REPLY, message.sender, context=message.context, reject=True)

    def _read_answered(self, message: Message) -> None:
        if message.sender == self.leader:
            index = None if message.reject else message.index
            self.read_states += self._forwarded.answered(message.context, index)

    def _transfer_asked(self, message: Message) -> None:
        target = NodeId(message.hint)
        if self._leading is not None and target in self.configuration.voters:
            self._leading.transfer(target)

    def _called(self, message: Message) -> None:
        if self.role == "FOLLOWER":
            self._stand(transfer=True)
