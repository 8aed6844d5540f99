"""Consistency check of members: the leader regularly compares hashes of all keys at one revision.

If a majority of the voters agrees, an alarm names the member that differs and it stops serving. If none does, an alarm
blocks all writes. Both need a second comparison, at a later revision, with the same result. Hashes are taken in slices
beside other work; messages may be lost, and the next comparison asks again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from minikube_py.errors import MinikubeError, shown
from minikube_py.mvcc.alarms import CORRUPT
from minikube_py.mvcc.types import Command, SetAlarm
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

ANSWER_S: Final = 30.0
LOOK_S: Final = 0.25
ASKED, SAID = 1, 2


class Verdict(NamedTuple):
    """`odd`: members that differ from a majority. `split`: members differ, and no majority agrees."""

    odd: tuple[int, ...] = ()
    split: bool = False


def judge(hashes: Mapping[int, int], voters: frozenset[NodeId]) -> Verdict:
    """`hashes`: of the members that have answered."""
    votes = Counter(digest for member, digest in hashes.items() if member in voters)
    if not votes or len(set(hashes.values())) == 1:
        return Verdict()
    [(right, count)] = votes.most_common(1)
    if count > len(voters) // 2:
        return Verdict(tuple(sorted(member for member, digest in hashes.items() if digest != right)))
    return Verdict(split=True)


class HashCheck:
    """One member's check: compares while it leads, always answers, and at once who leads now."""

    def __init__(self, member: StoreMember, propose: Callable[[Command], None]) -> None:
        self._member = member
        self._propose = propose
        self._number = 0
        self._hashes: dict[int, int] = {}
        self._answering: asyncio.Task[None] | None = None
        self.checks = 0
        self.mismatches = 0

    async def run(self) -> None:
        member = self._member
        while True:
            await member.clock.sleep(member.config.check_s)
            if not member.replica.leading or member.replica.alone or member.state.version < ALARMS:
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
            if number == self._number and self._member.membership.get(sender) is not None:
                self._hashes[sender] = digest
            return
        if kind != ASKED:
            raise ValueError(f"{shown(kind)} is no kind of message")
        number, revision = _two(arguments)
        if sender == self._member.raft.leader or self._answering is None or self._answering.done():
            self.stop()
            self._answering = self._member.loop.create_task(self._answer(sender, number, revision))

    async def _compare(self) -> Verdict:
        member = self._member
        self.checks += 1
        self._number += 1
        hashes: dict[int, int] = {}
        self._hashes = hashes
        configuration = member.raft.configuration
        others = {int(each.id) for each in member.membership.members} - {member.member_id}
        revision = member.state.revision
        for other in others:
            member.tell(NodeId(other), msgpack.packb((ASKED, self._number, revision)))
        own = await self._hash(revision)
        until_s = member.clock.monotonic_s() + ANSWER_S
        while others - hashes.keys() and member.clock.monotonic_s() < until_s and member.replica.leading:
            await member.clock.sleep(LOOK_S)
        if own is None or not member.replica.leading:
            return Verdict()
        hashes[member.member_id] = own
        verdict = judge(hashes, frozenset(configuration.voters))
        if verdict != Verdict():
            self.mismatches += 1
            said = ", ".join(f"{id:x}: {digest:016x}" for id, digest in sorted(hashes.items()))
            member.say(f"members hold different data at revision {revision}: {said}")
        return verdict

    def _act(self, verdict: Verdict) -> None:
        for member in verdict.odd or (0,):
            self._propose(SetAlarm(True, member, CORRUPT))

    async def _answer(self, to: NodeId, number: int, revision: int) -> None:
        """A lagging member answers when it has applied that revision."""
        member = self._member
        until_s = member.clock.monotonic_s() + ANSWER_S
        while member.state.revision < revision and member.clock.monotonic_s() < until_s:
            await member.clock.sleep(LOOK_S)
        if (digest := await self._hash(revision)) is not None:
            member.tell(to, msgpack.packb((SAID, number, digest)))

    async def _hash(self, revision: int) -> int | None:
        """None: compacted, or not applied here yet."""
        member = self._member
        try:
            return await member.hash(revision, rows=False)
        except MinikubeError:
            return None


def _two(arguments: list[Any]) -> list[int]:
    """Raises: ValueError."""
    if [type(each) for each in arguments] != [int, int]:
        raise ValueError("two numbers belong to it")
    return arguments
