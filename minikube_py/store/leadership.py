"""Administrative requests through a member: changes of members, leadership transfer, and the handover when it stops."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from minikube_py.errors import InvalidRequest, NotLeader, Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.store.embedded import settle
from minikube_py.store.membership import MemberChange
from minikube_py.store.membership_checks import check_timely, heir

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

HAND_OVER_S: Final = 2.0
"""How long a stopping leader waits for a successor."""
TRANSFER_S: Final = 2.0
CHANGE_S: Final = 5.0


async def change_members(member: StoreMember, change: MemberChange) -> None:
    """Returns when the change is applied here. Waits for a change in progress, CHANGE_S at most.

    Raises: InvalidRequest if it does not fit the members at some moment after this call; NotLeader, Unavailable;
    OutcomeUnknown."""
    done: asyncio.Future[None] = member.loop.create_future()
    until_s = member.clock.monotonic_s() + CHANGE_S
    confirmed = False
    while True:
        member.check_running()
        try:
            if member.replica.leading:
                check_timely(change, member.membership, member.raft.status())
            member.propose_change(change, partial(settle, done))
            break
        except InvalidRequest:
            if confirmed:
                raise
            # A new leader may not have applied what was committed before its term, and a deposed one may not know of
            # it.
            await member.confirmed()
            confirmed = True
            continue
        except NotLeader:
            raise
        except Unavailable:
            if member.clock.monotonic_s() >= until_s:
                raise
        await member.clock.sleep(member.config.tick_s)
    await done


async def transfer(member: StoreMember, to: NodeId) -> None:
    """Returns when `to` leads. Raises: Unavailable if it does not within TRANSFER_S."""
    member.check_running()
    until_s = member.clock.monotonic_s() + TRANSFER_S
    member.replica.transfer(to)
    member.turn_soon()
    while member.raft.leader != to:
        if member.clock.monotonic_s() >= until_s:
            raise Unavailable(f"member {to:x} did not take over within {TRANSFER_S:g} s; the leader stays")
        await member.clock.sleep(member.config.tick_s / 2)
        member.check_running()


async def hand_over(member: StoreMember) -> None:
    """Waits for pending proposals, then briefly for another leader; not if the member has failed."""
    until_s = member.clock.monotonic_s() + HAND_OVER_S
    asked = False
    while member.replica.leading and not member.failed and member.clock.monotonic_s() < until_s:
        if not member.replica.waiting and not asked:
            asked = True
            successor = heir(member.raft.status())
            if successor is None:
                return
            member.replica.transfer(successor)
            member.turn_soon()
        await member.clock.sleep(member.config.tick_s / 2)
