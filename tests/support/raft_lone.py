"""One Raft member whose peers are simulated by the test: it steps their messages and checks the member's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from raft_world import FixedRng

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, HardState, Message, MessageType
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import ReadState, Ready

ME = 1
PLAIN = {"pre_vote": False, "check_quorum": False}
"""As in the paper, without the thesis' refinements."""


def entries(terms: Iterable[int], *, after: int = 0) -> list[Entry]:
    """Entries with these terms, and distinct data."""
    return [Entry(term, index, f"{index}@{term}".encode()) for index, term in enumerate(terms, start=after + 1)]


class Lone:
    """`log`: the terms of its entries after `offset`. All of it is durable; `commit` is the commit index."""

    def __init__(
        self,
        voters: Iterable[int] = (1, 2, 3),
        *,
        learners: Iterable[int] = (),
        outgoing: Iterable[int] = (),
        log: Sequence[int] = (),
        offset: int = 0,
        offset_term: int = 0,
        term: int | None = None,
        vote: int = 0,
        commit: int = 0,
        id: int = ME,
        rng: random.Random | None = None,
        **knobs: object,
    ) -> None:
        configuration = Configuration(frozenset(voters), frozenset(outgoing), frozenset(learners))
        own = entries(log, after=offset)
        last_term = own[-1].term if own else offset_term
        hard_state = HardState(last_term if term is None else term, vote, max(commit, offset))
        self.config = RaftConfig(id=id, **knobs)
        raft_log = RaftLog(offset, offset_term, own)
        self.raft = Raft(self.config, raft_log, hard_state, configuration, rng or FixedRng(0))
        self.applied: list[Entry] = []
        self.reads: list[ReadState] = []
        self.readies: list[Ready] = []
        self.sent: list[Message] = []
        self.run()
        self.sent.clear()

    # The driver

    def ready(self, *, can_write: bool = True) -> Ready:
        """Handles one Ready except the write."""
        ready = self.raft.ready(can_write)
        self.readies.append(ready)
        if ready.committed:
            self.applied.extend(ready.committed)
            self.raft.applied(ready.committed[-1].index)
        self.reads.extend(ready.read_states)
        return ready

    def persist(self, ready: Ready) -> None:
        if ready.must_sync:
            index = ready.entries[-1].index if ready.entries else ready.snapshot.index if ready.snapshot else 0
            self.raft.persisted(self.raft.term, index)

    def run(self) -> list[Message]:
        """Handles all Readys; returns the messages sent."""
        sent: list[Message] = []
        for _ in range(100):
            ready = self.ready()
            sent += [*ready.messages, *ready.messages_after]
            if not (ready.must_sync or ready.messages or ready.committed or ready.read_states):
                self.sent += sent
                return sent
            self.persist(ready)
        raise AssertionError("it is never done")

    # Messages to it

    def step(self, type: MessageType, sender: int, **fields: object) -> list[Message]:
        """Steps one message and handles the result; returns the messages sent. `term` is its own unless given."""
        fields.setdefault("term", self.raft.term)
        self.raft.step(Message(type, sender, self.raft.id, **fields))
        return self.run()

    def tick(self, count: int = 1) -> list[Message]:
        sent: list[Message] = []
        for _ in range(count):
            self.raft.tick()
            sent += self.run()
        return sent

    def campaign(self) -> list[Message]:
        return self.step(MessageType.HUP, self.raft.id, term=0)

    def elect(self) -> list[Message]:
        """All others vote for it."""
        sent = self.campaign()
        others = sorted((self.raft.configuration.voters | self.raft.configuration.outgoing) - {self.raft.id})
        for kind in (MessageType.PRE_VOTE_REPLY, MessageType.VOTE_REPLY):
            if self.raft.role == "LEADER" or (kind == MessageType.PRE_VOTE_REPLY and not self.config.pre_vote):
                continue
            term = self.raft.term + 1 if kind == MessageType.PRE_VOTE_REPLY else self.raft.term
            for other in others:
                if self.raft.role in ("CANDIDATE", "PRE_CANDIDATE"):
                    sent += self.step(kind, other, term=term)
        assert self.raft.role == "LEADER", self.raft.role
        return sent

    def lead(self) -> Lone:
        """Elected, with its opening entry replicated and committed."""
        self.elect()
        self.acknowledge()
        return self

    def acknowledge(self, *who: int, index: int | None = None) -> list[Message]:
        """These (or all others) report that they have the log up to `index` (or all of it)."""
        configuration = self.raft.configuration
        everyone = configuration.voters | configuration.outgoing | configuration.learners
        sent: list[Message] = []
        for sender in who or sorted(everyone - {self.raft.id}):
            sent += self.step(
                MessageType.APPEND_REPLY, sender, index=self.raft.log.last_index if index is None else index
            )
        return sent

    @property
    def log(self) -> list[Entry]:
        log = self.raft.log
        return list(log.slice(log.offset, log.last_index))

    @property
    def terms(self) -> list[int]:
        return [entry.term for entry in self.log]


def of(messages: Iterable[Message], *types: MessageType) -> list[Message]:
    return [message for message in messages if message.type in types]


def to(messages: Iterable[Message], *ids: int) -> list[Message]:
    return [message for message in messages if message.to in ids]
