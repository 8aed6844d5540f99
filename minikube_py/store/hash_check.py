"""Consistency check of members: the leader regularly compares hashes of all keys at one revision, the revisions that
one entry of the log came to, and hashes of the rest of the state (leases, users, sessions, ...) after that entry.

If a majority of the voters agrees, an alarm names the member that differs and it stops serving. If none does, an alarm
blocks all writes. Both need a second comparison, at a later revision, with the same result. Hashes are taken in slices
beside other work; messages may be lost, and the next comparison asks again."""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from minikube_py.errors import MinikubeError, shown
from minikube_py.mvcc.alarms import CORRUPT
from minikube_py.mvcc.snapshot import rest_hash_steps
from minikube_py.mvcc.types import Command, SetAlarm
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId

if TYPE_CHECKING:
    from minikube_py.mvcc.state import StateMachine
    from minikube_py.store.member import StoreMember

ANSWER_S: Final = 30.0
LOOK_S: Final = 0.25
ASKED, SAID = 1, 2
COUNT_BITS: Final = 20
"""A question's number is the asker's last applied entry, then its count in this many bits. Earlier releases only count:
their questions name entry 0, and are about the revision alone. An answer about the rest of the state has the negated
number, which earlier releases pass over."""
RECORDED_MAX: Final = 8192
"""The latest changes of the revision of which a member knows the entry."""


class Verdict(NamedTuple):
    """`odd`: members that differ from a majority. `split`: members differ, and no majority agrees."""

    odd: tuple[int, ...] = ()
    split: bool = False


class Revisions:
    """Which revision the latest entries came to in `state`; and the hash of the rest after one entry that is wanted,
    which has no history: applying pauses there."""

    def __init__(self) -> None:
        self._wanted = 0
        self._rest: Generator[None, None, int] | None = None
        self._changes: deque[tuple[int, int]] = deque(maxlen=RECORDED_MAX)
        self._state: Callable[[], StateMachine | None] = lambda: None

    def begin(self, state: StateMachine, applied: int) -> None:
        """Before the entry after `applied`; a snapshot may have replaced the state."""
        if self._state() is not state:
            self._state = weakref.ref(state)
            self._changes.clear()
            self.changed(applied, state.revision)

    def changed(self, entry: int, revision: int) -> None:
        self._changes.append((entry, revision))

    def want(self, state: StateMachine, entry: int, applied: int) -> None:
        """The rest after `entry`, which may be applied already: then nobody can tell any more."""
        self._wanted, self._rest = entry, None
        self.reached(state, applied)

    def reached(self, state: StateMachine, applied: int) -> None:
        if applied == self._wanted:
            self._wanted, self._rest = 0, rest_hash_steps(state)

    def before_pause(self, first: int, count: int) -> int:
        """How many of `count` entries from `first` on may be applied before the next `reached`."""
        return min(count, self._wanted - first + 1) if self._wanted >= first else count

    def rest(self) -> Generator[None, None, int] | None:
        """The steps to the hash that was wanted, once. None: the entry was not reached, or before the question."""
        steps, self._rest, self._wanted = self._rest, None, 0
        return steps

    def after(self, state: StateMachine, entry: int) -> int | None:
        """The revision after an applied entry; None: it was too long ago."""
        if self._state() is not state:
            return None
        return next((revision for index, revision in reversed(self._changes) if index <= entry), None)


def judge(hashes: Mapping[int, int], voters: frozenset[NodeId]) -> Verdict:
    """`hashes`: of the members that have answered."""
    votes = Counter(digest for member, digest in hashes.items() if member in voters)
    if not votes or len(set(hashes.values())) == 1:
        return Verdict()
    [(right, count)] = votes.most_common(1)
    if count > len(voters) // 2:
        return Verdict(tuple(sorted(member for member, digest in hashes.items() if digest != right)))
    return Verdict(split=True)


def judge_rest(hashes: Mapping[int, int], voters: frozenset[NodeId]) -> Verdict:
    """As `judge`. Members of earlier releases do not answer, and nobody knows with whom they agree."""
    verdict = judge(hashes, voters)
    return Verdict() if verdict.split and not voters <= hashes.keys() else verdict


class HashCheck:
    """One member's check: compares while it leads, always answers, and at once who leads now."""

    def __init__(self, member: StoreMember, propose: Callable[[Command], None]) -> None:
        self._member = member
        self._propose = propose
        self._number = 0
        self._hashes: dict[int, int] = {}
        self._rests: dict[int, int] = {}
        self._answering: asyncio.Task[None] | None = None
        self.checks = 0
        self.mismatches = 0
        self.difference = ""
        """What the latest comparison of this leader found."""

    async def run(self) -> None:
        member = self._member
        while True:
            await member.clock.sleep(member.config.check_s)
            if not member.replica.leading or member.replica.alone or member.state.version < ALARMS:
                # What was found before may be so no longer, and nobody looks.
                self.difference = ""
                continue
            verdict = await self._compare()
            if verdict != Verdict() and verdict == await self._compare():
                self._act(verdict)

    def stop(self) -> None:
        if self._answering is not None:
            self._answering.cancel()

    def heard(self, sender: NodeId, kind: int, arguments: list[Any]) -> None:
        """Raises: ValueError if it is not a message of this protocol."""
        if kind == SAID:
            number, digest = _two(arguments)
            if abs(number) == self._number and self._member.membership.get(sender) is not None:
                (self._hashes if number > 0 else self._rests)[sender] = digest
            return
        if kind != ASKED:
            raise ValueError(f"{shown(kind)} is no kind of message")
        number, revision = _two(arguments)
        if sender == self._member.raft.leader or self._answering is None or self._answering.done():
            self.stop()
            if entry := number >> COUNT_BITS:
                self._member.replica.revisions.want(self._member.state, entry, self._member.raft.log.applied)
            self._answering = self._member.loop.create_task(self._answer(sender, number, revision))

    async def _compare(self) -> Verdict:
        member = self._member
        self.checks += 1
        self._number = int(member.raft.log.applied) << COUNT_BITS | self.checks % (1 << COUNT_BITS)
        self._hashes, self._rests = {}, {}
        hashes, rests = self._hashes, self._rests
        configuration = member.raft.configuration
        others = {int(each.id) for each in member.membership.members} - {member.member_id}
        revision, entry = member.state.revision, self._number >> COUNT_BITS
        rest = rest_hash_steps(member.state) if entry else None
        for other in others:
            member.tell(NodeId(other), msgpack.packb((ASKED, self._number, revision)))
        own = await self._hash(revision)
        if rest is not None:
            rests[member.member_id] = await member.hash_by(rest)
        until_s = member.clock.monotonic_s() + ANSWER_S
        while others - hashes.keys() and member.clock.monotonic_s() < until_s and member.replica.leading:
            await member.clock.sleep(LOOK_S)
        if not member.replica.leading:
            return Verdict()
        if own is not None:
            hashes[member.member_id] = own
        voters = frozenset(configuration.voters)
        self.difference = "" if own is not None else f"this member has compacted its keys at revision {revision}"
        verdict, found, where = judge(hashes, voters), hashes, f"data at revision {revision}"
        if verdict == Verdict():
            verdict, found = judge_rest(rests, voters), rests
            where = f"leases, users, sessions, alarms, compactions or declared fields after entry {entry}"
        if verdict != Verdict():
            self.mismatches += 1
            said = ", ".join(f"{id:x}: {digest:016x}" for id, digest in sorted(found.items()))
            self.difference = f"members hold different {where}: {said}"
            member.say(self.difference)
        return verdict

    def _act(self, verdict: Verdict) -> None:
        for member in verdict.odd or (0,):
            self._propose(SetAlarm(True, member, CORRUPT))

    async def _answer(self, to: NodeId, number: int, revision: int) -> None:
        """A lagging member answers when it has applied that entry, or that revision."""
        member, entry = self._member, number >> COUNT_BITS
        until_s = member.clock.monotonic_s() + ANSWER_S
        while not self._has(entry, revision) and member.clock.monotonic_s() < until_s:
            await member.clock.sleep(LOOK_S)
        if not self._has(entry, revision):
            return
        rest = member.replica.revisions.rest() if entry else None
        if rest is not None:
            # First: the asker waits for the other hash.
            member.tell(to, msgpack.packb((SAID, -number, await member.hash_by(rest))))
        own = self._after(entry, revision)
        digest = await self._hash(revision) if own == revision else _hash_of_revision(own)
        if digest is not None:
            member.tell(to, msgpack.packb((SAID, number, digest)))

    def _has(self, entry: int, revision: int) -> bool:
        member = self._member
        return bool(member.raft.log.applied >= entry if entry > 0 else member.state.revision >= revision)

    def _after(self, entry: int, revision: int) -> int:
        """The revision that the applied entry came to here; if nobody knows that any more, the asker's, unless this
        member is behind it even now."""
        member = self._member
        if entry <= 0:
            return revision
        own = member.state.revision
        if member.raft.log.applied == entry:
            return own
        known = member.replica.revisions.after(member.state, entry)
        return min(own, revision) if known is None else known

    async def _hash(self, revision: int) -> int | None:
        """None: compacted, or not applied here yet."""
        member = self._member
        try:
            return await member.hash(revision, rows=False)
        except MinikubeError:
            return None


def _hash_of_revision(revision: int) -> int:
    """Of a member whose revision is another: equal for those that are alike, and not for others."""
    return int.from_bytes(hashlib.blake2b(b"%d" % revision, digest_size=8).digest(), "big")


def _two(arguments: list[Any]) -> list[int]:
    """Raises: ValueError."""
    if [type(each) for each in arguments] != [int, int]:
        raise ValueError("two numbers belong to it")
    return arguments
