"""A leader's duties beyond replication: its clock, reads, leadership transfer, one change at a time.

An instance lives as long as one leadership, so no state leaks into the next."""

from __future__ import annotations

from collections import deque

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import NOBODY, LogIndex, Message, MessageType
from minikube_py.raft.reads import LeaderReads, Read
from minikube_py.raft.ready import ProposalDropped, ReadState
from minikube_py.raft.replication import Replication
from minikube_py.raft.state import State


class Leadership:
    """`opened`: an entry of this term is committed; only then is the commit index known to be current (Raft, 8).
    `transferee`: the designated next leader, or NOBODY. `change_index`: the highest possible index of the last
    configuration change."""

    __slots__ = (
        "_called",
        "_check_ticks",
        "_heard_tick",
        "_heartbeat_ticks",
        "_heartbeats",
        "_now",
        "_state",
        "_transfer_ticks",
        "change_index",
        "opened",
        "reads",
        "replication",
        "transferee",
        "uncommitted_bytes",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self.replication = Replication(state)
        self.reads = LeaderReads(state.id)
        self.transferee: NodeId = NOBODY
        # A previous leader may have proposed one: that is known when the entry that opens this term is applied.
        self.change_index = LogIndex(state.log.last_index + 1)
        self.opened = False
        self.uncommitted_bytes = 0
        self._now = self._check_ticks = self._heartbeat_ticks = self._transfer_ticks = 0
        self._called = False
        self._heard_tick = 0
        self._heartbeats: deque[tuple[int, int]] = deque()

    def tick(self) -> bool:
        """One unit of time. False: no contact with a majority for an election timeout, so this leadership must end (the
        thesis, 6.2)."""
        config = self._state.config
        self._now += 1
        self._check_ticks += 1
        self._heartbeat_ticks += 1
        if self.transferee != NOBODY:
            self._transfer_ticks += 1
            if self._transfer_ticks >= config.election_ticks:
                self.transferee = NOBODY
        if self._check_ticks >= config.election_ticks:
            self._check_ticks = 0
            if config.check_quorum and not self.replication.quorum_active():
                return False
        if self._heartbeat_ticks >= config.heartbeat_ticks:
            self._heartbeat_ticks = 0
            self._heartbeat()
        return True

    def work(self) -> None:
        """Queues the messages to send now."""
        if self.replication.peers:
            self.replication.replicate()
        if self.opened and self.reads.waiting:
            context = self.reads.begin(self._state.log.committed)
            if context is not None and not self.replication.alone:
                self.replication.heartbeat(context, tick=False)
            self._release_reads()

    def replied(self, message: Message) -> bool:
        """An APPEND_REPLY; True if it moved the commit index."""
        if not self.replication.replied(message):
            return False
        if message.sender == self.transferee:
            self._call_transferee()
        return self.commit()

    def heartbeat_answered(self, message: Message) -> None:
        self.replication.heartbeat_answered(message.sender)
        if message.context:
            self.reads.answered(message.sender, message.context)
            self._release_reads()

    def commit(self) -> bool:
        """Commits the entries a majority has. Those of earlier terms commit only below one of this term (Raft,
        5.4.2)."""
        state = self._state
        log, term = state.log, state.term
        index = self.replication.agreed()
        if index <= log.committed or log.term(index) != term:
            return False
        newly = log.slice(log.committed, index)
        self.uncommitted_bytes -= sum([len(entry[2]) for entry in newly if entry[0] == term])
        log.committed = index
        self.opened = True
        return True

    def read(self, read: Read) -> None:
        """Raises: ProposalDropped if too many wait."""
        state = self._state
        if self.opened and (self.replication.alone or self._leased()):
            self._answer(read, state.log.committed)
        elif len(self.reads) >= state.config.reads_max:
            raise ProposalDropped(f"over {state.config.reads_max} reads wait already", state.id)
        else:
            self.reads.waiting.append(read)

    def transfer(self, to: NodeId) -> None:
        """Refuses proposals until `to` leads, or an election timeout has passed (the thesis, 3.10)."""
        if to in (self._state.id, self.transferee):
            return
        self.transferee = to
        self._transfer_ticks = 0
        self._call_transferee()

    def configured(self) -> None:
        """Another configuration is in force."""
        self.replication.configure()
        if self.transferee not in self._state.configuration.voters:
            self.transferee = NOBODY
        self.commit()
        self._release_reads()

    def ended(self) -> list[ReadState]:
        """This member's reads that will not be answered."""
        return [ReadState(None, read.context) for read in self.reads.all() if read.asker == self._state.id]

    def _heartbeat(self) -> None:
        context = b""
        if self.reads.under_way or self._state.config.lease_reads:
            # A new id for each attempt: an answer proves that its sender was a follower after this one was sent.
            context = self.reads.fresh()
            if self._state.config.lease_reads:
                self._heartbeats.append((self.reads.last_id, self._now))
        self.replication.heartbeat(context, tick=True)

    def _leased(self) -> bool:
        """Whether a majority heard from this leader so recently that it cannot vote for another yet. Called once
        opened: an acknowledgement by then was sent after this leadership began, at tick 0.

        Half an election timeout, because ticks vary in length between members; and never once TIMEOUT_NOW was sent,
        because the transferee's vote requests ignore leases."""
        config = self._state.config
        if not config.lease_reads or self._called:
            return False
        confirmed = self.reads.confirmed(self._state.configuration)
        while self._heartbeats and self._heartbeats[0][0] <= confirmed:
            self._heard_tick = self._heartbeats.popleft()[1]
        return self._now - self._heard_tick < config.election_ticks // 2

    def _call_transferee(self) -> None:
        """Tells the transferee to start an election once it has the whole log."""
        state = self._state
        if self.replication.peers[self.transferee].match == state.log.last_index:
            self._called = True
            state.send(MessageType.TIMEOUT_NOW, self.transferee)

    def _release_reads(self) -> None:
        done = self.reads.release(self._state.configuration)
        if done is not None:
            for read in done.reads:
                self._answer(read, done.index)

    def _answer(self, read: Read, index: LogIndex) -> None:
        state = self._state
        if read.asker == state.id:
            state.read_states.append(ReadState(index, read.context))
        else:
            state.send(MessageType.READ_INDEX_REPLY, read.asker, index=index, context=read.context)
