"""Invariants of Raft at every step, whatever the schedule; checked from outside, against separate records.

Sources: the paper's figure 3 (election safety, leader append-only, log matching, leader completeness, state machine
safety), 5.1-5.4, 6 and 8; the thesis, 4.1-4.3, 6.4 and 9.6; and the contract of `Ready`. A broken law is a `Broken`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from raft_evidence import Evidence, Question
from raft_rules import is_change, is_quorum, require

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import Entry, EntryKind, HardState, Message, MessageType
from minikube_py.raft.ready import ReadState, Ready

if TYPE_CHECKING:
    from raft_world import Member, Snapshot, World

PROMISES = {MessageType.VOTE, MessageType.VOTE_REPLY, MessageType.APPEND_REPLY}
"""Messages that a crash must not undo: sent once durable, or at once if already durable."""


class Seen(NamedTuple):
    """A member's state when it was last observed."""

    term: int
    role: str
    commit: int
    offset: int
    last_index: int
    last: Entry | None


class Laws:
    def __init__(self, world: World) -> None:
        self._world = world
        self.leaders: dict[int, int] = {}
        self.granted: dict[tuple[int, int], int] = {}
        self.lineage: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self.committed: dict[int, Entry] = {}
        self.commit_terms: dict[int, int] = {}
        self.commit = 0
        self.configurations: dict[int, Configuration] = {}
        self.led_to: dict[tuple[int, int], int] = {}
        self._seen: dict[int, Seen] = {}
        self._asked: dict[tuple[int, bytes], tuple[int, Question]] = {}
        self.evidence = Evidence()
        self.counts: dict[str, int] = {"elections": 0, "changes": 0, "restarts": 0, "snapshots": 0, "reads": 0}

    # Lives

    def born(self, member: Member) -> None:
        """A member's initial state counts as committed up to its snapshot and hard state."""
        meta = member.disk.snapshot.meta
        self.commit = max(self.commit, meta.index, member.disk.hard_state.commit)
        self.configurations.setdefault(meta.index, meta.configuration)
        for entry in member.disk.entries:
            if entry.index <= member.disk.hard_state.commit:
                self.committed[entry.index] = entry
                self.commit_terms[entry.index] = entry.term
        if member.disk.hard_state.vote:
            self.granted[member.disk.hard_state.term, member.id] = member.disk.hard_state.vote

    def started(self, member: Member) -> None:
        raft = member.up
        require(raft.term >= member.disk.hard_state.term, "a term survives a restart", member.id, raft.term)
        if raft.term == member.disk.hard_state.term:
            require(raft.vote == member.disk.hard_state.vote, "a vote survives a restart", member.id, raft.vote)
        require(raft.role == "FOLLOWER", "servers start as followers (5.2)", member.id, raft.role)
        self._seen.pop(member.id, None)
        self._asked = {key: bound for key, bound in self._asked.items() if key[0] != member.id}
        self.counts["restarts"] += member.lives > 1
        self.observe(member)

    # After anything that may have changed a member

    def observe(self, member: Member) -> None:
        raft = member.up
        log = raft.log
        last = log.slice(log.last_index - 1, log.last_index)[0] if log.last_index > log.offset else None
        now = Seen(raft.term, raft.role, log.committed, log.offset, log.last_index, last)
        before = self._seen.get(member.id)
        self._seen[member.id] = now
        self.evidence.configured(member)
        if before == now:
            return
        if before is not None:
            require(now.term >= before.term, "terms never go back (5.1)", member.id, before, now)
            require(now.commit >= before.commit, "commit never goes back", member.id, before, now)
            if before.role == "LEADER" and now.role == "LEADER" and before.term == now.term:
                require(now.last_index >= before.last_index, "a leader only appends (figure 3)", before, now)
        if before is None or (before.offset, before.last_index, before.last) != (now.offset, now.last_index, last):
            self._check_lineage(member)
        if before is None or (before.role, before.term) != (now.role, now.term):
            if now.role in ("PRE_CANDIDATE", "CANDIDATE"):
                self.evidence.stands(member)
            elif now.role == "LEADER":
                self._elected(member)
        led = before is not None and (before.role, before.term) == ("LEADER", now.term)
        self._check_commit(member, before.commit if before is not None else log.offset, led=led)

    def _check_lineage(self, member: Member) -> None:
        """Log matching (5.3): an entry's index and term fix its content and all before it, over all logs and times."""
        log = member.up.log
        entries = log.slice(log.offset, log.last_index)
        previous = log.offset_term
        changes = 0
        for position, entry in enumerate(entries, start=log.offset + 1):
            require(entry.index == position, "a log has no holes", member.id, entry, position)
            require(entry.term >= previous, "terms in a log only grow", member.id, entry, previous)
            mine = (entry.kind, entry.data, previous)
            first = self.lineage.setdefault((entry.index, entry.term), mine)
            require(first == mine, "log matching (5.3)", member.id, entry, first)
            changes += entry.index > self.commit and is_change(entry)
            previous = entry.term
        require(changes <= 1, "configurations change one at a time (thesis, 4.1)", member.id, changes)

    def _elected(self, member: Member) -> None:
        raft, disk = member.up, member.disk
        first = self.leaders.setdefault(raft.term, member.id)
        require(first == member.id, "one leader a term (5.2)", raft.term, first, member.id)
        self.counts["elections"] += 1
        own = disk.hard_state
        require((own.term, own.vote) == (raft.term, raft.id), "a leader's own vote is durable", member.id, own)
        votes = {voter for (term, voter), to in self.granted.items() if term == raft.term and to == raft.id}
        votes.add(raft.id)
        require(is_quorum(raft.configuration, votes), "a majority has voted (5.2)", raft.configuration, votes)
        self.evidence.elected(member)
        for index in self.committed:
            self._check_complete(member, index)

    def _check_complete(self, member: Member, index: int) -> None:
        raft = member.up
        if index < raft.log.offset or raft.term < self.commit_terms[index]:
            return
        has = raft.log.term(index) if index <= raft.log.last_index else None
        require(has == self.committed[index].term, "leader completeness (5.4)", member.id, self.committed[index], has)

    def _check_commit(self, member: Member, before: int, *, led: bool) -> None:
        """`led`: a moment ago. A leader removed by a change commits once more, by the new majority."""
        raft = member.up
        log = raft.log
        require(log.applied <= log.delivered <= log.committed <= log.last_index, "applied <= committed <= last")
        if log.stable > log.offset:
            term = log.term(log.stable)
            require(member.disk.holds(log.stable, term), "what is said to be durable is", member.id, log.stable, term)
        if log.committed > self.commit:
            require(led or raft.role == "LEADER", "only a leader commits first (5.3)", member.id, log.committed)
            term = log.term(log.committed)
            require(term == raft.term, "a leader commits by counting only in its own term (5.4.2)", member.id, term)
            index = log.committed
            self.evidence.committed(member, index)
            have = {id for id, other in self._world.members.items() if other.disk.holds(index, term)}
            require(
                is_quorum(raft.configuration, have), "what is committed is durable on a majority", member.id,
                f"entry {index} of term {term} is on {sorted(have)}", raft.configuration,
            )  # fmt: skip
            for entry in log.slice(max(self.commit, log.offset), index):
                self.committed[entry.index] = entry
                self.commit_terms[entry.index] = raft.term
            self.commit = index
            for other in self._world.up():
                if other.up.role == "LEADER":
                    self._check_complete(other, index)
        for entry in log.slice(max(before, log.offset), log.committed):
            require(self.committed.get(entry.index, entry) == entry, "state machine safety (5.4.3)", member.id, entry)

    # What Ready hands out

    def handed(self, member: Member, ready: Ready, *, can_write: bool) -> None:
        raft, disk = member.up, member.disk
        if raft.role == "LEADER":
            self.led_to[member.id, raft.term] = raft.log.handed
        if not can_write:
            held = not (ready.hard_state or ready.entries or ready.messages_after or ready.snapshot)
            require(held and not ready.must_sync, "while it may not write, Ready has nothing to be written", ready)
        for before, after in pairwise(ready.entries):
            require(after.index == before.index + 1, "entries come without holes", before, after)
        expected = member.applied if ready.snapshot is None else ready.snapshot.index
        if ready.snapshot is not None:
            require(ready.snapshot.index > member.applied, "no snapshot over newer state (7)", ready.snapshot)
            known = self.configurations[max(i for i in self.configurations if i <= ready.snapshot.index)]
            require(known == ready.snapshot.configuration, "a snapshot's configuration", known, ready.snapshot)
            self.counts["snapshots"] += 1
        for entry in ready.committed:
            require(entry.index == expected + 1, "what is to be applied comes in order, once", expected, entry)
            require(disk.holds(entry.index, entry.term), "what is applied is durable here", member.id, entry)
            expected = entry.index
        require(raft.log.delivered >= expected, "delivered", raft.log.delivered, expected)

    def applying(self, member: Member, entry: Entry) -> None:
        require(self.committed.get(entry.index) == entry, "state machine safety (5.4.3)", member.id, entry)

    def applied(self, member: Member) -> None:
        """The configuration in force is a function of the log, and two consecutive ones have no disjoint majorities
        (6)."""
        self.observe(member)
        now = member.up.configuration
        leads = member.up.role == "LEADER"
        require(not leads or now.votes(member.id), "a leader that votes no more steps down (thesis, 4.2.2)", member.id)
        last_change = next((entry.index for entry in reversed(member.state) if entry.kind == EntryKind.CHANGE), 0)
        noted = max(member.disk.hard_state.commit, member.disk.snapshot.meta.index)
        require(last_change <= noted, "who changes the members knows it after a restart", member.id, last_change, noted)
        if last_change <= max(self.configurations):
            known = self.configuration_at(member.applied)
            require(known == now, "the configuration follows from the log", member.id, member.applied, known, now)
            return
        before = self.configuration_at(member.applied)
        self.configurations[last_change] = now
        self.counts["changes"] += now != before
        require(now.voters, "somebody votes", now)
        if not before.voters:
            require(not now.outgoing, "the first configuration is not joint", now)
        elif not before.outgoing and not now.outgoing:
            require(len(before.voters ^ now.voters) <= 1, "one voter at a time, or joint (thesis, 4.1)", before, now)
        elif now.outgoing and not before.outgoing:
            require(now.outgoing == before.voters, "joint consensus keeps the old majority (6)", before, now)
        elif before.outgoing and not now.outgoing:
            require(now.voters == before.voters, "leaving joint consensus keeps the new majority (6)", before, now)
        else:
            require(now == before, "a joint configuration is left before the next change (6)", before, now)
        halves = (now.voters, now.outgoing)
        require(not any(now.learners & half for half in halves), "who votes is no learner", now)

    def configuration_at(self, index: int) -> Configuration:
        return self.configurations[max(i for i in self.configurations if i <= index)]

    def durable(self, member: Member, record: HardState | Entry | Snapshot) -> None:
        """Before a record reaches the disk."""
        if not isinstance(record, HardState):
            if not isinstance(record, Entry):
                meta = record.meta
                kept = member.disk.last_index <= meta.index or not member.disk.holds(meta.index, meta.term)
                require(kept, "what follows a snapshot that the log agrees with stays (7)", member.id, meta)
            return
        old = member.disk.hard_state
        require(record.term >= old.term, "a durable term never goes back", member.id, old, record)
        require(record.commit >= old.commit, "a durable commit never goes back", member.id, old, record)
        if record.term == old.term:
            require(old.vote in (0, record.vote), "a durable vote is kept", member.id, old, record)
        require(
            record.commit <= member.disk.last_index, "a durable commit is not beyond the durable log", member.id, record
        )
        if record.vote:
            first = self.granted.setdefault((record.term, member.id), record.vote)
            require(first == record.vote, "one vote a term (5.2)", member.id, first, record)

    # Messages

    def sending(self, member: Member, message: Message) -> None:
        raft, own = member.up, member.disk.hard_state
        require(message.sender == member.id != message.to, "who sends is who it says", message)
        kind = MessageType(message.type)
        self.evidence.sends(member, message)
        if kind in PROMISES:
            require(own.term >= message.term, "a term is durable before it is sent", member.id, own, message)
        if kind == MessageType.VOTE and own.term == message.term:
            require(own.vote == member.id, "a candidate's vote is durable before it asks others", own, message)
        if kind == MessageType.VOTE_REPLY and not message.reject:
            require(own.term > message.term or own.vote == message.to, "a vote is durable before it is sent", own)
            first = self.granted.setdefault((message.term, member.id), message.to)
            require(first == message.to, "one vote a term (5.2)", member.id, message, first)
        if kind == MessageType.APPEND_REPLY and not message.reject and own.term == message.term:
            self._check_acknowledged(member, message)
        if kind == MessageType.APPEND:
            self._check_append(member, message)
        if kind in (MessageType.APPEND, MessageType.HEARTBEAT, MessageType.SNAPSHOT):
            require(self.leaders.get(message.term) == member.id, "only the term's leader leads", message)
            require(message.commit <= raft.log.committed, "no more is announced as committed than is", message)
        if kind == MessageType.SNAPSHOT:
            require(message.snapshot.index <= self.commit, "a snapshot holds what is committed", message)

    def _check_acknowledged(self, member: Member, message: Message) -> None:
        disk = member.disk
        require(disk.last_index >= message.index, "entries are durable before they are acknowledged", message)
        leader = self._world.members[message.to].raft
        if leader is None or (leader.role, leader.term) != ("LEADER", message.term):
            return
        if leader.log.offset <= message.index:
            require(disk.holds(message.index, leader.log.term(message.index)), "who acknowledges agrees", message)

    def _check_append(self, member: Member, message: Message) -> None:
        raft = member.up
        log, limit = raft.log, member.config.append_bytes_max
        for entry, index in zip(message.entries, range(message.index + 1, log.last_index + 2)):
            require(entry.index == index, "entries are sent without holes", message)
        until = message.index + len(message.entries)
        # Of the term it led in: messages queued then may leave after a newer leader has truncated its log.
        handed = self.led_to.get((member.id, message.term), 0)
        require(until <= handed, "entries are sent when they are handed out for writing", handed, message)
        size = sum(len(entry.data) for entry in message.entries)
        require(len(message.entries) <= 1 or size <= limit, "a message's bytes are limited", size, limit)
        if raft.role == "LEADER" and raft.term == message.term and message.index >= log.offset:
            require(log.term(message.index) == message.log_term, "the entry before is named rightly", message)
            require(list(log.slice(message.index, until)) == list(message.entries), "what is sent is the log", message)

    # Reads

    def asked(self, member: Member, context: bytes) -> None:
        """Everything that any member knows to be committed may already have been acknowledged."""
        question = Question(self.evidence.time, member.up.term if member.up.role == "LEADER" else 0)
        self.evidence.time += 1
        self._asked[member.id, context] = (self.commit, question)

    def answered(self, member: Member, state: ReadState) -> None:
        known = self._asked.pop((member.id, state.context), None)
        require(known is not None, "a read is answered once, and only where it was asked", member.id, state)
        if state.index is not None and known is not None:
            bound, question = known
            self.counts["reads"] += 1
            require(state.index >= bound, "a read sees what was acknowledged before it (thesis, 6.4)", state, bound)
            require(state.index <= self.commit, "a read waits for nothing uncommitted", state, self.commit)
            self.evidence.read_answered(member, question, state)
