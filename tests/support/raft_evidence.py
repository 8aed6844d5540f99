"""Checks that a member concludes only what its input justifies: majorities are those it has heard from.

The invariants of `raft_laws` check facts, which a lucky guess does not violate. These check reasons: votes,
acknowledgements and heartbeat answers count once delivered to the member, in their term."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from raft_rules import is_change, is_quorum, require

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import Entry, Message, MessageType

if TYPE_CHECKING:
    from raft_world import Member

OF_A_PEER = {MessageType.APPEND_REPLY, MessageType.HEARTBEAT_REPLY}


class Before(NamedTuple):
    """A member just before a message is stepped."""

    term: int
    vote: int
    commit: int
    offset: int
    entries: list[Entry]


class Question(NamedTuple):
    """When a read was requested, and in which term its member led; 0: it did not."""

    time: int
    term: int


class Evidence:
    """`time` counts events, to order them."""

    def __init__(self) -> None:
        self.time = 0
        self._votes: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._pre_votes: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._called: set[tuple[int, int]] = set()
        self._acknowledged: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._sent: dict[tuple[int, int, bytes], int] = {}
        self._heard: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._questions: dict[tuple[int, int, int, bytes], int] = {}
        self._configurations: dict[int, list[tuple[int, Configuration]]] = defaultdict(list)
        self._ticks: dict[int, int] = defaultdict(int)
        self._steady: dict[int, tuple[int, Configuration, int]] = {}
        self._last_heard: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._before: Before | None = None

    # What reaches a member

    def delivering(self, member: Member, message: Message) -> None:
        raft = member.up
        self.time += 1
        log = raft.log
        self._before = Before(
            raft.term, raft.vote, log.committed, log.offset, list(log.slice(log.offset, log.last_index))
        )
        kind, key = message.type, (message.term, member.id)
        if kind == MessageType.VOTE_REPLY and not message.reject:
            self._votes[key].add(message.sender)
        elif kind == MessageType.PRE_VOTE_REPLY and not message.reject:
            self._pre_votes[key].add(message.sender)
        elif kind == MessageType.TIMEOUT_NOW:
            self._called.add(key)
        elif kind == MessageType.APPEND_REPLY and not message.reject:
            known = self._acknowledged[key]
            known[message.sender] = max(known.get(message.sender, 0), message.index)
        elif kind == MessageType.HEARTBEAT_REPLY and message.context:
            sent = self._sent.get((*key, message.context))
            if sent is not None:
                heard = self._heard[key]
                heard[message.sender] = max(heard.get(message.sender, 0), sent)
        elif kind == MessageType.READ_INDEX:
            self._questions.setdefault((*key, message.sender, message.context), self.time)
        if kind in OF_A_PEER:
            self._last_heard[key][message.sender] = self._ticks[member.id]

    def delivered(self, member: Member, message: Message) -> None:
        assert self._before is not None
        raft, before = member.up, self._before
        kind = MessageType(message.type)
        if kind == MessageType.PRE_VOTE:
            now = (raft.term, raft.vote)
            require(now == before[:2], "being asked whether one would vote changes nothing (thesis, 9.6)", message)
        if kind == MessageType.VOTE and raft.term == message.term and raft.vote == message.sender:
            self._check_vote(member, message, before)
        if raft.role != "LEADER":
            self._check_commit_told(member, message, before)
        if kind == MessageType.APPEND:
            self._check_accepted(member, message, before)
        elif kind != MessageType.SNAPSHOT and before.entries and raft.log.last_index >= before.entries[-1].index:
            after = raft.log.term(before.entries[-1].index)
            require(after == before.entries[-1].term, "nothing but an append changes a log's entries", message)

    def _check_vote(self, member: Member, message: Message, before: Before) -> None:
        if (before.term, before.vote) == (raft_term := member.up.term, message.sender):
            return
        log = member.up.log
        own, theirs = (log.last_term, log.last_index), (message.log_term, message.index)
        require(theirs >= own, "no vote for a log that is behind (5.4.1)", member.id, raft_term, own, message)

    def _check_commit_told(self, member: Member, message: Message, before: Before) -> None:
        """Figure 2: min(leaderCommit, index of last new entry); or what a later change in the log implies."""
        log = member.up.log
        if log.committed == before.commit:
            return
        told = 0
        if message.type == MessageType.APPEND:
            told = min(message.commit, message.index + len(message.entries))
            changes = [entry.index for entry in message.entries if is_change(entry)]
            changes = [entry.index for entry in before.entries if is_change(entry)] + changes
            told = max(told, sorted(changes)[-2] if len(changes) > 1 else 0)
        elif message.type == MessageType.SNAPSHOT and message.snapshot is not None:
            told = message.snapshot.index
        else:
            told = message.commit
        require(log.committed <= told, "a follower commits only what it was sent", member.id, log.committed, message)

    def _check_accepted(self, member: Member, message: Message, before: Before) -> None:
        """Figure 2, AppendEntries: conflicting entries are removed, with all after them; matching ones stay."""
        log = member.up.log
        if log.offset != before.offset or message.term < before.term:
            return
        expected = list(before.entries)
        index = message.index - before.offset
        terms = {entry.index: entry.term for entry in before.entries}
        agrees = message.index == log.offset or terms.get(message.index) == message.log_term
        if message.index == log.offset and index == 0:
            agrees = message.log_term == log.offset_term
        if agrees and message.index >= before.offset:
            for entry in message.entries:
                place = entry.index - before.offset - 1
                if place < len(expected) and expected[place].term != entry.term:
                    del expected[place:]
                if place == len(expected):
                    expected.append(entry)
        now = list(log.slice(log.offset, log.last_index))
        require(now in (expected, before.entries), "an append does what figure 2 says", member.id, message, now)

    # What a member does

    def ticked(self, member: Member) -> None:
        """6.2: a leader that checks its quorum steps down soon without it."""
        raft = member.up
        self._ticks[member.id] += 1
        now = self._ticks[member.id]
        known = self._steady.get(member.id)
        if raft.role != "LEADER" or not member.config.check_quorum:
            self._steady.pop(member.id, None)
            return
        if known is None or known[:2] != (raft.term, raft.configuration):
            self._steady[member.id] = (raft.term, raft.configuration, now)
            return
        span = 2 * member.config.election_ticks
        if now - known[2] > span:
            heard = {node for node, tick in self._last_heard[raft.term, raft.id].items() if now - tick <= span}
            require(
                is_quorum(raft.configuration, heard | {raft.id}), "a leader without its majority steps down (6.2)",
                member.id, raft.configuration, heard,
            )  # fmt: skip

    def configured(self, member: Member) -> None:
        history = self._configurations[member.id]
        if not history or history[-1][1] != member.up.configuration:
            history.append((self.time, member.up.configuration))

    def stands(self, member: Member) -> None:
        """It has just become a (pre-)candidate."""
        raft = member.up
        waiting = sum(entry.index > raft.log.applied and is_change(entry) for entry in _entries(member))
        require(waiting <= 1, "who stands goes by a configuration at most one change old (4.1)", member.id, waiting)
        require(raft.configuration.votes(raft.id), "only voters stand (4.2.1)", member.id, raft.configuration)
        if raft.role == "CANDIDATE" and member.config.pre_vote and (raft.term - 1, raft.id) not in self._called:
            votes = self._pre_votes[raft.term, raft.id] | {raft.id}
            require(
                is_quorum(raft.configuration, votes), "no term begins without a majority that would vote (9.6)",
                member.id, raft.configuration, votes,
            )  # fmt: skip

    def elected(self, member: Member) -> None:
        raft = member.up
        votes = self._votes[raft.term, raft.id] | {raft.id}
        require(
            is_quorum(raft.configuration, votes), "a leader has heard from a majority (5.2)", member.id, votes,
            raft.configuration,
        )  # fmt: skip

    def committed(self, member: Member, index: int) -> None:
        """A leader has advanced its commit index to `index` by itself."""
        raft = member.up
        have = {node for node, known in self._acknowledged[raft.term, raft.id].items() if known >= index}
        if member.disk.holds(index, raft.log.term(index)):
            have.add(raft.id)
        require(
            is_quorum(raft.configuration, have), "what is committed was acknowledged by a majority (5.3)", member.id,
            index, have, raft.configuration,
        )  # fmt: skip

    def sends(self, member: Member, message: Message) -> None:
        raft = member.up
        key = (message.term, member.id)
        if message.type == MessageType.HEARTBEAT and message.context:
            sent = self._sent.setdefault((*key, message.context), self.time)
            require(sent == self.time, "each attempt has an id of its own (etcd#20418)", message)
        if message.type == MessageType.READ_INDEX_REPLY and not message.reject and raft.role == "LEADER":
            asked = self._questions.get((*key, message.to, message.context))
            require(asked is not None, "a read is answered where it was asked", message)
            self._check_confirmed(member, message.term, asked or 0, message)

    def read_answered(self, member: Member, question: Question, about: object) -> None:
        if question.term:
            self._check_confirmed(member, question.term, question.time, about)

    def _check_confirmed(self, member: Member, term: int, asked: int, about: object) -> None:
        """6.4: a majority has answered a heartbeat sent after the read was requested, in one of the configurations in
        force since then."""
        own = member.id
        heard = {node for node, sent in self._heard[term, own].items() if sent > asked} | {own}
        history = self._configurations[member.id]
        first = max((n for n, (time, _) in enumerate(history) if time <= asked), default=0)
        require(
            any(is_quorum(configuration, heard) for _, configuration in history[first:]),
            "a read is confirmed by a majority, after it was asked for (thesis, 6.4)", member.id, heard, about,
        )  # fmt: skip


def _entries(member: Member) -> list[Entry]:
    log = member.up.log
    return list(log.slice(log.offset, log.last_index))
