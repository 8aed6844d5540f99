"""Invariants of the members after every step of any of them: one leader per term, one log, nothing that goes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import LogIndex, Message, MessageType, Term
from minikube_py.sim.checkers.convergence import Agreement, LogEnd
from minikube_py.store.member import StoreMember

if TYPE_CHECKING:
    from minikube_py.sim.cluster import Place

SNAPSHOT: Final = int(MessageType.SNAPSHOT)
VOTE: Final = int(MessageType.VOTE)
VOTE_REPLY: Final = int(MessageType.VOTE_REPLY)
BINDING: Final = frozenset((VOTE, VOTE_REPLY, int(MessageType.APPEND_REPLY)))


class Look:
    """How far one run of a member was checked."""

    def __init__(self, member: StoreMember) -> None:
        self.member = member
        self.index = member.raft.log.offset
        self.term = 0
        self.state = member.state
        self.snapshot = member.replica.files.snapshot
        self._seen: tuple[object, ...] = ()

    def changed(self) -> bool:
        """Whether anything relevant to the checks has changed since the last look."""
        raft = self.member.replica.raft
        log = raft.log
        seen = (raft.term, log.committed, log.applied, raft.role, raft.vote)
        if seen == self._seen and self.member.replica.state is self.state:
            return False
        self._seen = seen
        return True


class StepChecks:
    """`problem` is the first violation. `elected` is called with each new leader."""

    def __init__(self, places: Sequence[Place], elected: Callable[[Look], None]) -> None:
        self.agreement = Agreement()
        self.elections = self.snapshots_taken = self.snapshots_sent = self.snapshots_installed = 0
        self._places = places
        self._elected = elected

    @property
    def problem(self) -> str:
        return self.agreement.problem

    def said(self, message: Message) -> None:
        """A member sends a message that it may send only once its basis is durable."""
        if message.type not in BINDING:
            self.snapshots_sent += message.type == SNAPSHOT
            return
        agreement = self.agreement
        agreement.promised(message.sender, message.term)
        if message.type == VOTE:
            agreement.voted(message.sender, message.term, message.sender)
        elif message.type == VOTE_REPLY and not message.reject:
            agreement.voted(message.sender, message.term, message.to)

    def opened(self, member: StoreMember, before: StoreMember | None) -> Look:
        """A run begins. `before`: the run whose disk it continues; None if that is another disk, or damaged."""
        self.agreement.restarted(member.member_id)
        if before is not None and before.member_id == member.member_id:
            had, log = _durable_end(before.raft.log), member.raft.log
            if before.raft.log.in_flight and had[1] == before.raft.log.offset:
                # A snapshot that replaces the log counts a sync too early, but only for the member that took it.
                return Look(member)
            there = log.offset > had[1] or log.matches(LogIndex(had[1]), Term(had[0]))
            self.agreement.keeps(member.member_id, had, (log.last_term, log.last_index), there=there)
        return Look(member)

    def look(self, look: Look) -> None:
        """Something has changed."""
        member, agreement = look.member, self.agreement
        replica, id = member.replica, member.member_id
        raft = replica.raft
        log = raft.log
        if replica.files.snapshot is not look.snapshot:
            look.snapshot = replica.files.snapshot
            self.snapshots_taken += 1
        if replica.state is not look.state:
            look.state = replica.state
            self.snapshots_installed += 1
            self.snapshots_taken -= 1
        led = look.term == raft.term
        if raft.role == "LEADER" and not led:
            look.term = raft.term
            self.elections += 1
            terms = {index: log.term(LogIndex(index)) for index in range(log.offset, log.last_index + 1)}
            agreement.leads(id, raft.term, terms)
            self._elected(look)
        seen = max(look.index, log.offset)
        if log.committed > seen:
            if raft.role == "LEADER":
                self._decided(member, log.committed)
                if led:
                    agreement.counts(id, raft.term, log.committed, log.term(log.committed))
            for entry in log.slice(LogIndex(seen), log.committed):
                agreement.committed(id, entry.index, entry.term, crc32(entry.data))
            look.index = log.committed
        agreement.stands_at(id, raft.term, log.committed, raft.vote)
        agreement.applied(id, log.applied, replica.state.revision)
        agreement.believes(id, replica.refusals.told())

    def _decided(self, leader: StoreMember, index: LogIndex) -> None:
        term = leader.raft.log.term(index)
        configuration = leader.raft.configuration
        groups = [group for group in (configuration.voters, configuration.outgoing) if group]
        logs: dict[int, LogEnd] = {}
        for place in self._places:
            last = place.last
            if last is not None and not place.wiped and any(last.member_id in group for group in groups):
                logs[last.member_id] = _log_end(last.raft.log, index, term, up=place.opened)
        self.agreement.decides(leader.member_id, index, term, logs, groups)


def _durable_end(log: RaftLog) -> tuple[int, int]:
    """Term and index of the last entry that `log` considers durable; term 0 if it has no such entry."""
    return (log.term(log.stable) if log.stable <= log.last_index else 0), log.stable


def _log_end(log: RaftLog, index: LogIndex, term: Term, *, up: bool) -> LogEnd:
    durable = _durable_end(log)
    now = (log.last_term, log.last_index) if up else durable
    there = index < log.offset or (index <= log.last_index and log.term(index) == term)
    return LogEnd(durable, now, there and index <= now[1], there and index <= log.stable)
