"""The follower's side of replication: entries, heartbeats and snapshots from the leader (Raft, 5.3, 7)."""

from __future__ import annotations

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import NOBODY, TERM_MAX, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.raft.ready import AcknowledgedLost, ClaimRefused, LogDenied
from minikube_py.raft.state import State


class Following:
    """`agreed`: up to where this log is known to match the leader's, not yet reported to the leader. One reply reports
    it for everything that arrived since, once it is durable. `offered`: a snapshot that is taken over at the next
    write. `denied_by`: a leader, and its term, that says that another entry than this log's is committed; nothing of it
    is believed until entries fit up to the commit."""

    __slots__ = ("_remembered", "_state", "agreed", "denied_by", "offered")

    def __init__(self, state: State) -> None:
        self._state = state
        self.agreed: LogIndex | None = None
        self.offered: SnapshotMeta | None = None
        self.denied_by: tuple[NodeId, Term] | None = None
        self._remembered = Term(TERM_MAX)

    def remembers(self, term: Term) -> None:
        """Whatever this member acknowledged in `term` or later, it did since it started."""
        if term < self._remembered:
            self._remembered = term

    def check(self, message: Message) -> None:
        """A leader's message, before it changes anything. Raises: ClaimRefused; LogDenied; AcknowledgedLost."""
        log, type = self._state.log, message.type
        if type == MessageType.APPEND:
            self._check_append(message)
        elif self.denied_by == (message.sender, message.term):
            raise LogDenied(f"node {message.sender:x} says that it leads with another log than what is committed here")
        elif type == MessageType.HEARTBEAT and message.commit > log.last_index:
            if message.term >= self._remembered:
                raise ClaimRefused(
                    f"node {message.sender:x} says that this member acknowledged entries up to {message.commit} in "
                    f"term {message.term}; it acknowledged none beyond {log.last_index}"
                )
            raise AcknowledgedLost(
                f"this log ends at entry {log.last_index}, and acknowledged those up to {message.commit} to leader "
                f"{message.sender:x}: acknowledged entries are lost"
            )

    def _check_append(self, message: Message) -> None:
        """All that is committed here a leader has too: it is compared as far as the message shows it. Who denied it is
        believed again when entries fit up to the commit; until then it learns what to send. Raises: LogDenied."""
        state, log, index = self._state, self._state.log, message.index
        fits = index if log.matches(index, message.log_term) else None
        if fits is None and log.offset <= index <= log.committed:
            self._deny(message, index, message.log_term)
        for entry in message.entries if index < log.committed else ():
            if log.offset < entry.index <= log.committed:
                if log.term(entry.index) != entry.term:
                    self._deny(message, entry.index, entry.term)
                fits = entry.index
        if self.denied_by != (message.sender, message.term):
            return
        if fits is not None and fits >= log.committed:
            self.denied_by = None
            return
        if fits is None:
            self._refuse(message)
        else:
            place = min(fits, log.stable)
            state.send(MessageType.APPEND_REPLY, message.sender, index=place, hint=state.config.release)
        raise LogDenied(f"node {message.sender:x} says that it leads with another log than what is committed here")

    def _deny(self, message: Message, index: LogIndex, term: Term) -> None:
        self.denied_by = message.sender, message.term
        here = self._state.log.term(index)
        raise LogDenied(
            f"entry {index} of term {here} is committed here, and node {message.sender:x} says that it leads with one "
            f"of term {term} there"
        )

    def _refuse(self, message: Message) -> None:
        """Tells a leader where the logs may agree."""
        place, term = self._state.log.agreement(LogIndex(message.index - 1), message.log_term)
        self._state.send(
            MessageType.APPEND_REPLY, message.sender, index=message.index, reject=True, hint=place, log_term=term
        )

    def append(self, message: Message) -> None:
        log = self._state.log
        if message.index < log.committed:
            self._agree(log.committed)
        elif log.matches(message.index, message.log_term):
            # The leader sends what follows all that it knows to be acknowledged.
            self.remembers(message.term)
            log.accept(message.entries)
            last = LogIndex(message.index + len(message.entries))
            log.committed = max(log.committed, min(message.commit, last))
            self._agree(last)
        else:
            self._refuse(message)

    def heartbeat(self, message: Message) -> None:
        state, log = self._state, self._state.log
        log.committed = max(log.committed, message.commit)
        state.send(MessageType.HEARTBEAT_REPLY, message.sender, hint=state.config.release, context=message.context)

    def snapshot(self, message: Message) -> None:
        """Notes an offered snapshot if it is newer than what is committed here and this member is in its
        configuration; `take_over` decides again once it is on disk."""
        state, log, meta = self._state, self._state.log, message.snapshot
        if meta is None or meta.index <= log.committed or not meta.configuration.contains(state.id):
            self._agree(log.committed)
        elif log.matches(meta.index, meta.term):
            # All of it is already here; restarting from it would only lose the later entries.
            log.committed = meta.index
            self._agree(log.committed)
        else:
            self.offered = meta

    def take_over(self) -> SnapshotMeta | None:
        """The snapshot that the driver must now install; a new log begins after it. Not earlier: until then the applied
        index and the configuration are those of the driver's state."""
        state, log, meta = self._state, self._state.log, self.offered
        self.offered = None
        if meta is None:
            return None
        if meta.index <= log.committed:
            self._agree(log.committed)
            return None
        log.restore(meta.index, meta.term)
        state.latest_snapshot = meta
        state.configuration = meta.configuration
        self.agreed = meta.index
        return meta

    def acknowledge(self) -> None:
        """Queues the due reply, to be sent when everything handed out before is durable."""
        if self.agreed is not None:
            if self._state.leader != NOBODY:
                release = self._state.config.release
                self._state.send(MessageType.APPEND_REPLY, self._state.leader, index=self.agreed, hint=release)
            self.agreed = None

    def _agree(self, index: LogIndex) -> None:
        self.agreed = index if self.agreed is None else max(self.agreed, index)
