"""What members count and say when a connection breaks, and when what answers is no member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from patience import until
from peer_world import Talker, heartbeat, talking

from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.store.framing import frame
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.peer_asking import PeerAsker
from minikube_py.store.peer_protocol import Reply

NOT_WHO: list[tuple[Any, ...]] = [
    (Reply.WHO,),
    (Reply.WHO, 1),
    (Reply.WHO, None, None, None, None, None),
    (Reply.WHO, "x", "y", "z", "u", "v"),
    (Reply.WHO, [1, "a", "b"], 7, [], 0, "x"),
    (Reply.DONE, True, ""),
    (99,),
]


NOT_JOINED: list[tuple[Any, ...]] = [(Reply.FAILED,), (Reply.FAILED, 7), (Reply.WHO,), (Reply.NOT_LEADER,), (99, 1)]


class Answering(asyncio.Protocol):
    def __init__(self, answer: tuple[Any, ...]) -> None:
        self.answer: bytes = frame(answer)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(self.answer)
        self.answer = b""


@asynccontextmanager
async def answering(answer: tuple[Any, ...]) -> AsyncIterator[str]:
    """The address of something that gives everybody this answer."""
    server = await asyncio.get_running_loop().create_server(lambda: Answering(answer), "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("answer", NOT_WHO, ids=repr)
async def test_who_answers_nonsense_is_unavailable_by_its_address(answer: tuple[Any, ...]) -> None:
    async with answering(answer) as address:
        with pytest.raises(Unavailable, match=f"^{address}: "):
            await PeerAsker("token").who(address)


@pytest.mark.parametrize("answer", NOT_JOINED, ids=repr)
async def test_a_change_that_is_answered_by_nonsense_may_have_been_made(answer: tuple[Any, ...]) -> None:
    async with answering(answer) as address:
        with pytest.raises(OutcomeUnknown, match=f"^{address}: answered with something other"):
            await PeerAsker("token").join(address, 7, MemberChange(ChangeKind.REMOVE, NodeId(3)))


async def heard(one: Talker, two: Talker) -> None:
    """One more message of `two` has come to `one`; a link that is not up yet drops what is sent."""
    goal = len(one.driver.received) + 1

    def sent_again() -> bool:
        two.send(heartbeat(two.id, one.id, goal))
        return len(one.driver.received) >= goal

    await until(sent_again)


async def test_what_a_connection_received_is_counted_beyond_its_end() -> None:
    async with talking(2) as (one, two):
        name = f'minikube_py_store_peer_received_bytes_total{{peer="{two.member.name}"}}'
        await heard(one, two)
        broken = one.peers._links[two.id]
        before = one.peers.metrics()[name]
        broken.abort("a test breaks it")
        await until(lambda: one.peers._links.get(two.id) is not broken)
        assert one.peers.metrics()[name] >= before
        await heard(one, two)
        assert one.peers.metrics()[name] > before
