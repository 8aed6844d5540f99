"""Asks the other members until `store.bootstrap` has decided, and reports what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from minikube_py.env import Clock, Rng
from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.raft.configuration import NodeId
from minikube_py.store.bootstrap import Answer, Enter, Form, Intent, Join, Refuse, Wait, decide, view_of
from minikube_py.store.identity import id_text
from minikube_py.store.membership import MemberChange

Say = Callable[[str], None]
ROUND_S_MIN, ROUND_S_MAX = 0.1, 1.0


class BootstrapRefused(MinikubeError):
    """This member is refused as it was started; the message says what to do."""


QUESTION_S = 3.0
"""How long a member that would lead alone waits for answers of others."""


class Asker(Protocol):
    """One question to the peer port at `address`, each over a new connection."""

    async def who(self, address: str) -> Answer:
        """Raises: MinikubeError: no answer, or we are refused."""

    async def join(self, address: str, cluster_id: int, change: MemberChange) -> None:
        """Returns when the change is applied there.

        Raises: InvalidRequest: the leader refuses it; other MinikubeErrors: the outcome is unknown."""


class Discovery:
    """`who` is this member's own answer meanwhile, `run` the discovery."""

    def __init__(self, intent: Intent, asker: Asker, clock: Clock, rng: Rng, say: Say) -> None:
        self._intent = intent
        self._asker = asker
        self._clock, self._rng, self._say = clock, rng, say
        self._answers: dict[str, Answer] = {}
        self._failures: dict[str, str] = {}
        self._knows_cluster = False
        self._said = ""

    def who(self) -> Answer:
        # A member that knows a cluster may be about to enter it: no other may count on it for forming a new one.
        seen = () if self._knows_cluster else view_of(self._intent, self._answers)
        return Answer(self._intent.me, initial=self._intent.initial, seen=seen)

    async def run(self) -> Form | Enter:
        """After the decision `who` stays the same until it is replaced.

        Raises: BootstrapRefused."""
        pause_s = ROUND_S_MIN
        while True:
            await self._ask_all()
            decision = decide(self._intent, self._answers)
            if isinstance(decision, Form | Enter):
                return decision
            if isinstance(decision, Refuse):
                raise BootstrapRefused(decision.why)
            if isinstance(decision, Wait):
                self._tell(decision.why)
            elif await self._join(decision):
                continue
            await self._clock.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(ROUND_S_MAX, pause_s * 1.5)

    async def _ask_all(self) -> None:
        """Asks each member once; the next round begins when all have answered or failed. So knowledge of a member never
        goes back in time, which the rule of forming relies on."""
        await asyncio.gather(*[self._ask(address) for address in self._addresses()])

    def _addresses(self) -> list[str]:
        known = [address for _, address in self._intent.initial]
        for answer in self._answers.values():
            known += [member.peer for member in answer.membership.members]
        return [address for address in dict.fromkeys(known) if address and address != self._intent.me.peer]

    async def _ask(self, address: str) -> None:
        try:
            answer = await self._asker.who(address)
        except MinikubeError as error:
            self._answers.pop(address, None)
            self._failures[address] = str(error)
            return
        self._failures.pop(address, None)
        self._answers[address] = answer
        self._knows_cluster = self._knows_cluster or bool(answer.cluster_id)

    async def _join(self, decision: Join) -> bool:
        """True: joined."""
        me, leader = self._intent.me, decision.leader
        cluster = id_text(decision.cluster_id)
        self._tell(f"asking {leader.name} ({leader.peer}), which leads, to let {me.name} join cluster {cluster}")
        try:
            await self._asker.join(leader.peer, decision.cluster_id, decision.change)
        except InvalidRequest as error:
            raise BootstrapRefused(f"cluster {cluster}: {error}") from None
        except MinikubeError as error:
            self._failures[leader.peer] = str(error)
            return False
        return True

    def _tell(self, why: str) -> None:
        text = "; ".join([why, *self._failures.values()])
        if text != self._said:
            self._said = text
            self._say(text)


@dataclass(frozen=True, slots=True)
class Alone:
    """Member `id` of a cluster, the only voter by its files, whose log is committed up to `committed` at least."""

    id: NodeId
    cluster_id: int
    committed: int

    def others(self, answer: Answer) -> tuple[str, ...]:
        """The other voters that a member of the same cluster knows."""
        if answer.cluster_id != self.cluster_id or answer.member.id == self.id:
            return ()
        return tuple([each.name for each in answer.membership.members if each.id != self.id and not each.learner])

    async def refuted(self, addresses: Iterable[str], asker: Asker, clock: Clock) -> Answer | None:
        """The answer of somebody who knows other voters although its log reaches as far: then these files are not what
        this member wrote, because it alone commits what changes the voters. Who knows others and is behind may not have
        heard of their removal; who does not answer may have been removed. None after QUESTION_S at most."""
        found: list[Answer] = []

        async def ask(address: str) -> None:
            while not found:
                with contextlib.suppress(MinikubeError):
                    answer = await asker.who(address)
                    if not self.others(answer):
                        return
                    if answer.applied >= self.committed:
                        found.append(answer)
                        return
                await clock.sleep(ROUND_S_MIN)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUESTION_S):
                await asyncio.gather(*[ask(address) for address in addresses])
        return found[0] if found else None
