"""Links between members over real sockets: who is let in, what waits, what comes back, snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S, patience, until
from peer_world import (
    CLUSTER,
    FAST,
    TOKEN,
    MemorySource,
    Talker,
    append,
    entries_from,
    heartbeat,
    linked,
    listening,
    snapshot_message,
    talking,
)
from ports import free_ports

from minikube_py.control_plane.certificates import ensure_authority
from minikube_py.control_plane.tls import peer_client_context, peer_server_context
from minikube_py.errors import InvalidRequest, MinikubeError, Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import MessageType
from minikube_py.store.bootstrap import Answer
from minikube_py.store.framing import FrameReader, frame
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership
from minikube_py.store.peer_asking import PeerAsker
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peer_protocol import (
    PEER_GREETING,
    PEER_VERSION,
    Ask,
    Refusal,
    Refused,
    Reply,
    Say,
    offer_frame,
    refused,
)

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


def contexts(folder: Path, *, client: bool = True) -> Contexts:
    folder.mkdir(exist_ok=True)
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key")
    files = (folder / f"peer-{client}.crt", folder / f"peer-{client}.key")
    authority.ensure_leaf(*files, ["localhost", "127.0.0.1"], client=client)
    return peer_server_context(*files, authority.pem), peer_client_context(*files, authority.pem)


@pytest.fixture(scope="module")
def tls(tmp_path_factory) -> Contexts:
    return contexts(tmp_path_factory.mktemp("pki"))


async def ended(*talkers: Talker) -> None:
    for talker in talkers:
        await talker.peers.stop()


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_three_members_exchange(tls):
    async with talking(3, tls=tls) as talkers:
        one, two, three = talkers
        for number in range(300):
            entries = entries_from(number * 3 + 1, 3)
            one.send(append(1, 2, entries), append(1, 3, entries), heartbeat(1, 2, number), heartbeat(1, 3, number))
            two.send(heartbeat(2, 1, number))
            three.send(heartbeat(3, 2, number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(two.driver.received) == 900 and len(three.driver.received) == 600)
        await until(lambda: len(one.driver.received) == 300)
        for each in (two, three):
            found = [m for m in each.driver.received if m.type == MessageType.APPEND]
            assert [m.index for m in found] == [number * 3 for number in range(300)]
            assert [list(m.entries) for m in found] == [entries_from(number * 3 + 1, 3) for number in range(300)]
        assert all((to, True, None) in one.driver.reports for to in (2, 3)) and not one.words
        metrics = one.peers.metrics()
        assert metrics['minikube_py_store_peer_connected{peer="store-2"}'] == 1
        assert metrics['minikube_py_store_peer_sent_messages_total{peer="store-2"}'] == 600
        assert metrics['minikube_py_store_peer_received_messages_total{peer="store-2"}'] == 300
        await until(lambda: one.peers.metrics()['minikube_py_store_peer_round_trip_seconds{peer="store-3"}'] > 0)


async def test_a_large_append_arrives_whole(tls):
    async with talking(2, tls=tls) as (one, two):
        entries = entries_from(1, 4, 1_500_000)
        one.send(append(1, 2, entries), heartbeat(1, 2))
        await until(lambda: len(two.driver.received) == 2)
        assert list(two.driver.received[0].entries) == entries


async def test_who_is_unknown_gets_nothing_and_nobody_waits(tls):
    async with talking(2, tls=tls) as (one, _):
        one.send(heartbeat(1, 77))
        assert 77 not in one.peers.metrics()


# -- who is let in ----------------------------------------------------------------------------------------------------


async def refusal_of(address: tuple[str, int], *frames: bytes, tls: ssl.SSLContext | None = None) -> list[tuple]:
    """What a connection that sends `frames` receives until it is closed; nothing if it is reset."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname="localhost" if tls else None)
    heard = b""
    try:
        writer.write(b"".join(frames))
        with contextlib.suppress(ConnectionResetError):
            heard = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
        found = list(FrameReader(1 << 20).feed(heard))
        return [each for each in found if each[0] != Reply.ALIVE]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def link(cluster_id=CLUSTER, sender=2, to=1, address="localhost:1", applied=0, token=TOKEN) -> bytes:
    return PEER_GREETING.hello(token, Ask.LINK, cluster_id, sender, to, address, applied)


HELLOS = [
    ("of another protocol", b"GET / HTTP/1.1\r\n\r\n", Refusal.GARBLED, "over the limit"),
    ("of a client", frame(("minikube-py-store", 1, TOKEN, 0)), Refusal.GARBLED, "for the store's own members"),
    ("a later version", PEER_GREETING._replace(version=9).hello(TOKEN, 1), Refusal.VERSION, "version 9 is not"),
    ("wrong token", link(token="guessed"), Refusal.TOKEN, "the token is wrong"),
    ("no token", frame((PEER_GREETING.magic, PEER_VERSION, None, Ask.LINK)), Refusal.TOKEN, "the token is wrong"),
    ("another cluster", link(cluster_id=7), Refusal.CLUSTER, "this is a member of cluster c1, not of 7"),
    ("another member meant", link(to=9), Refusal.ADDRESSEE, "this is member 1, not 9"),
    ("a stranger", link(sender=55), Refusal.STRANGER, "member 37 is unknown in cluster c1"),
    ("removed", link(sender=8), Refusal.REMOVED, "member 8 was removed from cluster c1"),
    ("an unknown question", PEER_GREETING.hello(TOKEN, 9), Refusal.GARBLED, "asks for 9"),  # type: ignore[arg-type]
    ("half a hello", PEER_GREETING.hello(TOKEN, Ask.LINK, 1), Refusal.GARBLED, "five fields"),
    ("to join another cluster", PEER_GREETING.hello(TOKEN, Ask.JOIN, 7, b""), Refusal.CLUSTER, "not of 7"),
]


@pytest.mark.parametrize(("hello", "refusal", "text"), [case[1:] for case in HELLOS], ids=[case[0] for case in HELLOS])
async def test_hellos_that_are_refused(hello, refusal, text):
    async with talking(3) as (one, *_):
        membership = replace(one.membership, removed=(NodeId(8),))
        one.update(membership, 40)
        [answer] = await refusal_of(one.peers.address, hello)
        found = refused(answer[1:])
        assert (answer[0], found.refusal) == (Reply.REFUSED, refusal) and text in str(found)
        assert len(one.driver.received) == 0


async def test_one_that_does_not_take_part_yet_says_only_who_it_is():
    member = Member(NodeId(1), "store-1", f"localhost:{free_ports(1)[0]}")
    talker = await listening(member, Membership.of([member]))
    try:
        [answer] = await refusal_of(talker.peers.address, link())
        assert refused(answer[1:]).refusal == Refusal.EARLY
        [answer] = await refusal_of(talker.peers.address, PEER_GREETING.hello(TOKEN, Ask.JOIN, 0, b""))
        assert refused(answer[1:]).refusal == Refusal.EARLY
        with pytest.raises(Refused, match="store-1 is starting"):
            await PeerAsker(TOKEN).who(member.peer)
        talker.peers.answer_with(lambda: Answer(member, seen=(member,)))
        assert (await PeerAsker(TOKEN).who(member.peer)).seen == (member,)
    finally:
        await ended(talker)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([frame((Say.MESSAGE, 1))], "not a message"),
        ([frame((Say.MESSAGE,))], "a message is one array"),
        ([frame((99, 1))], "of kind 99 is unknown"),
        ([frame((Say.PING, "x"))], "of kind 1 is unknown"),
        ([frame((Say.OFFER, 1, 2))], "an offer is"),
        ([b"\xff\xff\xff\xff"], "over the limit"),
        ([b"\x01\x00\x00\x00\xc1"], "cannot be decoded"),
    ],
)
async def test_words_on_a_link_that_are_not_understood_end_it(frames, text):
    async with talking(2) as (one, _):
        one.update(one.membership, 40)
        [welcome, answer] = await refusal_of(one.peers.address, link(), *frames)
        assert welcome == (Reply.WELCOME, CLUSTER, 1)
        assert answer[0] == Reply.REFUSED and text in answer[2]


async def test_no_more_connections_than_the_limit():
    limits = replace(FAST, connections_max=4)
    async with talking(2, limits=limits) as (one, _):
        silent = [await asyncio.open_connection(*one.peers.address) for _ in range(10)]
        while one.peers.port.authenticated_count < limits.connections_max:
            one.peers.port.authenticated_count += 1
        [answer] = await refusal_of(one.peers.address, link())
        assert refused(answer[1:]).refusal == Refusal.FULL
        assert "limit of 4 connections" in answer[2]
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()


async def test_who_says_nothing_is_not_waited_for():
    async with talking(2, limits=replace(FAST, hello_s=0.2)) as (one, _):
        reader, writer = await asyncio.open_connection(*one.peers.address)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("kind", ["a server's certificate", "another authority's", "none"])
async def test_without_a_members_certificate_nobody_gets_a_word_in(tls, tmp_path, kind):
    strange = contexts(tmp_path / "strange")[1]
    if kind == "a server's certificate":
        # By the members' own authority, as every API server has one; but no client's.
        strange = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority = ensure_authority(tmp_path / "ca.crt", tmp_path / "ca.key")
        authority.ensure_leaf(tmp_path / "s.crt", tmp_path / "s.key", ["localhost"])
        authority.ensure_leaf(tmp_path / "p.crt", tmp_path / "p.key", ["localhost"], client=True)
        tls = tuple(
            make(tmp_path / "p.crt", tmp_path / "p.key", authority.pem)
            for make in (peer_server_context, peer_client_context)
        )
        strange = peer_client_context(tmp_path / "s.crt", tmp_path / "s.key", authority.pem)
    elif kind == "none":
        strange = ssl.create_default_context()
    strange.check_hostname = False
    strange.verify_mode = ssl.CERT_NONE
    async with talking(2, tls=tls) as (one, _):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            reader, writer = await asyncio.open_connection(*one.peers.address, ssl=strange)
            try:
                writer.write(link())
                await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
            finally:
                writer.close()
        assert linked(one) == 1 and one.peers.refusals == 0


async def test_a_member_of_another_cluster_is_told_once_and_tried_again():
    ports = free_ports(2)
    members = [Member(NodeId(i + 1), f"store-{i + 1}", f"localhost:{ports[i]}") for i in range(2)]
    membership = Membership.of(members)
    one = await listening(members[0], membership)
    two = await listening(members[1], membership, cluster_id=0xC2)
    try:
        one.begin()
        two.begin()
        await until(lambda: one.peers.refusals >= 3 and two.peers.refusals >= 3)
        assert one.words == [f"peer store-2 ({members[1].peer}): this is a member of cluster c2, not of c1"]
        assert len(two.words) == 1 and not linked(one) and not linked(two)
    finally:
        await ended(one, two)


async def test_a_removed_member_is_told_so(tls):
    async with talking(3, tls=tls) as (one, two, three):
        left = one.membership.apply(MemberChange(ChangeKind.REMOVE, id=NodeId(3)))
        one.update(left, 10)
        two.update(left, 10)
        await until(lambda: bool(three.driver.expulsions))
        await until(lambda: linked(one) == linked(two) == 1 and linked(three) == 0)
        why = "member 3 was removed from cluster c1: empty its folder, and it may rejoin under a new id"
        assert three.driver.expulsions == [why]
        received = len(one.driver.received)
        three.send(heartbeat(3, 1))
        await asyncio.sleep(0.05)
        assert len(one.driver.received) == received


async def test_a_removed_member_is_told_so_when_it_comes_back():
    async with talking(3) as talkers:
        one, two, three = talkers
        await three.peers.stop()
        left = one.membership.apply(MemberChange(ChangeKind.REMOVE, id=NodeId(3)))
        one.update(left, 10)
        two.update(left, 10)
        talkers[2] = again = await listening(three.member, three.membership)
        again.begin()
        await until(lambda: bool(again.driver.expulsions))


async def test_one_that_joined_is_heard_by_those_who_do_not_know_it_yet():
    """It may be a candidate, and theirs the votes it needs; and it is answered."""
    async with talking(2) as talkers:
        one, two = talkers
        joined = Member(NodeId(3), "store-3", f"localhost:{free_ports(1)[0]}")
        grown = Membership.of([*one.membership.members, joined])
        three = await listening(joined, grown)
        talkers.append(three)
        three.applied = 5
        three.begin()
        await until(lambda: linked(three) == 2 and linked(one) == 2 and linked(two) == 2)
        three.send(heartbeat(3, 1))
        await until(lambda: len(one.driver.received) == 1)
        one.send(heartbeat(1, 3))
        await until(lambda: len(three.driver.received) == 1)
        one.update(grown, 5)
        assert linked(one) == 2
        # It turns out to be nobody: what it knew of came, and did not name it.
        two.update(two.membership, 6)
        await until(lambda: linked(two) == 1 and linked(three) == 1)
        assert "member 3 is unknown in cluster c1" in three.words[-1]


async def test_a_member_that_knows_nobody_hears_the_cluster_it_enters():
    async with talking(1) as talkers:
        one = talkers[0]
        joined = Member(NodeId(2), "store-2", f"localhost:{free_ports(1)[0]}")
        two = await listening(joined, Membership())
        talkers.append(two)
        two.applied = 0
        two.begin()
        one.update(Membership.of([one.member, joined]), 7)
        await until(lambda: linked(one) == 1 and linked(two) == 1)
        one.send(heartbeat(1, 2))
        await until(lambda: len(two.driver.received) == 1)
        two.send(heartbeat(2, 1))
        await until(lambda: len(one.driver.received) == 1)


async def test_a_member_whose_address_changes_is_found_there():
    async with talking(2) as talkers:
        one, two = talkers
        await two.peers.stop()
        await until(lambda: linked(one) == 0)
        moved = replace(two.member, peer=f"localhost:{free_ports(1)[0]}")
        membership = Membership.of([one.member, moved])
        talkers[1] = there = await listening(moved, membership)
        there.begin()
        one.update(membership, 9)
        await until(lambda: linked(one) == 1)


# -- questions --------------------------------------------------------------------------------------------------------

JOIN = MemberChange(ChangeKind.JOIN, NodeId(9), "store-9", "localhost:9", "localhost:10")


async def test_who(tls):
    async with talking(2, tls=tls) as (one, _):
        one.leader = NodeId(2)
        answer = await PeerAsker(TOKEN, tls[1]).who(one.member.peer)
        assert answer == one.who()


async def test_who_where_nobody_is():
    address = f"localhost:{free_ports(1)[0]}"
    with pytest.raises(Unavailable, match=address):
        await PeerAsker(TOKEN).who(address)
    with pytest.raises(Unavailable, match="is not a resolvable host"):
        await PeerAsker(TOKEN, limits=FAST).who("a..b:1")
    with pytest.raises(Unavailable, match="not host:port"):
        await PeerAsker(TOKEN, limits=FAST).who("localhost:99999")
    with pytest.raises(Unavailable, match="not host:port"):
        await PeerAsker(TOKEN).who("nowhere")


async def test_who_of_one_that_says_nothing():
    silent: list[asyncio.BaseTransport] = []
    protocol = type("Silent", (asyncio.Protocol,), {"connection_made": lambda self, each: silent.append(each)})
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    asker = PeerAsker(TOKEN, limits=replace(FAST, ask_s=0.2))
    with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
        await asker.who(address)
    for each in silent:
        each.close()
    server.close()
    await server.wait_closed()


async def test_questions_with_a_wrong_token():
    async with talking(1) as (one,):
        with pytest.raises(Refused, match=f"{one.member.peer}: the token is wrong"):
            await PeerAsker("guessed").who(one.member.peer)


async def test_to_join_the_leader_is_asked():
    async with talking(2) as (one, two):
        asker = PeerAsker(TOKEN)
        with pytest.raises(Unavailable, match="knows no leader"):
            await asker.join(one.member.peer, CLUSTER, JOIN)
        one.leader = two.leader = NodeId(2)
        with pytest.raises(Unavailable, match=f"does not lead; {two.member.peer} does"):
            await asker.join(one.member.peer, CLUSTER, JOIN)
        await asker.join(two.member.peer, CLUSTER, JOIN)
        assert two.joins == [JOIN] and not one.joins
        two.join_error = InvalidRequest("no member 'store-9' is expected")
        with pytest.raises(InvalidRequest, match="no member 'store-9' is expected"):
            await asker.join(two.member.peer, CLUSTER, JOIN)
        remove = MemberChange(ChangeKind.REMOVE, NodeId(1))
        with pytest.raises(InvalidRequest, match="port accepts join requests only"):
            await asker.join(two.member.peer, CLUSTER, remove)


async def test_a_join_that_takes_its_time_is_waited_for():
    async with talking(1, limits=replace(FAST, beat_s=0.05)) as (one,):
        one.leader, one.join_later = one.id, True
        await PeerAsker(TOKEN, limits=replace(FAST, beat_s=0.05)).join(one.member.peer, CLUSTER, JOIN)


# -- links that fall --------------------------------------------------------------------------------------------------


async def test_a_peer_that_ends_in_the_midst_of_the_handshake_is_tried_again(tls):
    """Where that is said without a word of why: `ConnectionResetError()`."""
    ports = free_ports(2)
    members = [Member(NodeId(i + 1), f"store-{i + 1}", f"localhost:{port}") for i, port in enumerate(ports)]
    membership = Membership.of(members)

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        # All that came was read: closing is a FIN then, and no reset.
        await asyncio.sleep(0.01)
        writer.close()

    dying = await asyncio.start_server(end, "localhost", ports[1])
    one = await listening(members[0], membership, tls=tls)
    one.begin()
    await until(lambda: bool(one.words))
    assert one.words[0].startswith(f"peer store-2 (localhost:{ports[1]}): ") and not one.words[0].endswith(": ")
    assert linked(one) == 0
    dying.close()
    await dying.wait_closed()
    two = await listening(members[1], membership, tls=tls)
    two.begin()
    await until(lambda: linked(one) == linked(two) == 1)
    with pytest.raises(Unavailable, match=r"localhost:\d+: .+"):
        await PeerAsker(TOKEN, tls[1]).who(f"localhost:{free_ports(1)[0]}")
    await ended(one, two)


async def test_links_come_back(tls):
    async with talking(2, tls=tls) as talkers:
        one, two = talkers
        await two.peers.stop()
        await until(lambda: linked(one) == 0)
        await until(lambda: one.driver.reports[-1] == (2, False, None))
        one.send(append(1, 2, entries_from(1, 1)))
        await until(lambda: one.peers.metrics()['minikube_py_store_peer_dropped_messages_total{peer="store-2"}'] == 1)
        talkers[1] = again = await listening(two.member, two.membership, tls=tls)
        again.begin()
        await until(lambda: linked(one) == 1)
        await until(lambda: one.driver.reports[-1] == (2, True, None))
        assert one.words[-1] == f"peer store-2 ({two.member.peer}): connected" and len(one.words) <= 4
        one.send(heartbeat(1, 2))
        await until(lambda: len(again.driver.received) == 1)


class Middle:
    """Stands between, and can stop passing bytes on without closing anything, cut the connections, or slow them."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.stalled = asyncio.Event()
        self.stalled.set()
        self.writers: list[asyncio.StreamWriter] = []
        self.passed_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> tuple[str, int]:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 16)
        return self.server.sockets[0].getsockname()

    async def _serve(self, reader, writer) -> None:
        there, back = await asyncio.open_connection(*self.target, limit=1 << 16)
        self.writers += [writer, back]
        self._tasks += [asyncio.current_task()]
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, reader, writer) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self.stalled.wait()
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def cut(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self.server.close()
        self.stalled.set()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.wait_closed()


@contextlib.asynccontextmanager
async def talking_through_a_middle(limits: PeerLimits = FAST, tls: Contexts | None = None):
    """Member 1 reaches member 2 through a `Middle`; 2 reaches 1 directly."""
    ports = free_ports(2)
    direct = [Member(NodeId(i + 1), f"store-{i + 1}", f"localhost:{ports[i]}") for i in range(2)]
    middle = Middle(("127.0.0.1", ports[1]))
    host, port = await middle.start()
    seen = Membership.of([direct[0], replace(direct[1], peer=f"localhost:{port}" if tls else f"{host}:{port}")])
    one = await listening(direct[0], seen, limits=limits, tls=tls)
    two = await listening(direct[1], Membership.of(direct), limits=limits, tls=tls)
    try:
        one.begin()
        two.begin()
        await until(lambda: linked(one) == 1 and linked(two) == 1)
        yield one, two, middle
    finally:
        await ended(one, two)
        await middle.stop()


async def test_a_dead_link_is_noticed_though_nobody_closes_it():
    async with talking_through_a_middle(replace(FAST, beat_s=0.05)) as (one, two, middle):
        middle.stalled.clear()
        await until(lambda: linked(one) == 0)
        await until(lambda: any("nothing received for 0.2 s" in word for word in one.words))
        await until(lambda: (2, False, None) in one.driver.reports)
        middle.stalled.set()
        await until(lambda: linked(one) == 1)
        one.send(heartbeat(1, 2, 7))
        await until(lambda: bool(two.driver.received) and two.driver.received[-1].commit == 7)


async def test_a_peer_that_reads_nothing_costs_bounded_memory(tls):
    """The middle stops reading; the link itself is kept, as beats are rare."""
    limits = replace(FAST, beat_s=30.0, queue_bytes_max=4 << 20, urgent_bytes_max=64 << 10)
    async with talking_through_a_middle(limits, tls) as (one, two, middle):
        middle.stalled.clear()
        entries = entries_from(1, 64, 4096)
        sender = one.peers._senders[NodeId(2)]
        for _ in range(400):
            one.send(append(1, 2, entries), heartbeat(1, 2))
            assert sender.waiting_bytes <= (4 << 20) + (64 << 10)
            await asyncio.sleep(0)
        assert sender.dropped > 100 and sender.waiting_bytes > 3 << 20
        link = sender._link
        assert link is not None and link._transport is not None
        assert link._transport.get_write_buffer_size() < 4 * limits.write_buffer_bytes
        await until(lambda: (2, False, None) in one.driver.reports)
        # What is no APPEND goes first, once it reads again.
        before = sender.sent_messages
        one.send(heartbeat(1, 2, 4242))
        assert sender.sent_messages == before + 1
        waiting = sender.waiting_bytes
        middle.stalled.set()
        await until(lambda: any(message.commit == 4242 for message in two.driver.received))
        place = next(i for i, message in enumerate(two.driver.received) if message.commit == 4242)
        behind = [message for message in two.driver.received[place:] if message.type == MessageType.APPEND]
        await until(lambda: sender.waiting_bytes == 0)
        assert waiting > 3 << 20 and len(behind) < len(two.driver.received)
        await until(lambda: sum(m.type == MessageType.APPEND for m in two.driver.received[place:]) >= 10)


async def test_what_waited_for_a_link_that_fell_is_not_sent_over_the_next():
    """It is old by then, and its loss was reported to Raft."""
    async with talking_through_a_middle(replace(FAST, beat_s=30.0)) as (one, two, middle):
        middle.stalled.clear()
        sender = one.peers._senders[NodeId(2)]
        for number in range(1, 200):
            one.send(append(1, 2, entries_from(number, 1, 64 << 10)))
        assert sender.waiting_bytes > 1 << 20
        middle.cut()
        await until(lambda: linked(one) == 0)
        assert sender.waiting_bytes == 0 and sender.dropped > 20
        middle.stalled.set()
        await until(lambda: linked(one) == 1)
        two.driver.received.clear()
        one.send(heartbeat(1, 2, 7))
        await until(lambda: bool(two.driver.received))
        assert [message.commit for message in two.driver.received] == [7]


async def test_a_new_link_ends_the_one_before():
    """Its sender has given it up; nothing that is still on its way may come after what the new one brings."""
    async with talking(2, limits=replace(FAST, beat_s=30.0)) as (one, _):
        one.update(one.membership, 40)
        reader, writer = await asyncio.open_connection(*one.peers.address)
        writer.write(link())
        assert await asyncio.wait_for(reader.read(100), PATIENCE_S)
        second_reader, second = await asyncio.open_connection(*one.peers.address)
        second.write(link())
        assert await asyncio.wait_for(second_reader.read(100), PATIENCE_S)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(-1), PATIENCE_S) == b""
        for each in (writer, second):
            each.close()
            with contextlib.suppress(ConnectionResetError):
                await each.wait_closed()


async def test_a_process_that_was_stopped_does_not_blame_the_others(tls):
    """Its own timers are late; who lives is heard before he is judged."""
    async with talking(2, tls=tls, limits=replace(FAST, beat_s=0.05)) as (one, two):
        connects = one.peers._senders[NodeId(2)].connects
        time.sleep(0.6)  # noqa: ASYNC251  # as SIGSTOP would
        await asyncio.sleep(0.3)
        assert linked(one) == linked(two) == 1
        assert one.peers._senders[NodeId(2)].connects == connects


# -- snapshots --------------------------------------------------------------------------------------------------------


async def test_a_snapshot_streams_while_messages_flow(tls):
    """50 MB; many heartbeats that go out meanwhile are answered before it is there."""
    async with talking(2, tls=tls, limits=PeerLimits()) as (one, two):
        one.driver.source = MemorySource(random.Random(1).randbytes(50_000_000))
        answers = 0
        answered = asyncio.Event()
        two.driver.on_receive = lambda message: message.type == MessageType.HEARTBEAT and two.send(heartbeat(2, 1))
        one.driver.on_receive = lambda message: answered.set()
        one.send(snapshot_message(1, 2, one.driver.source))
        while not two.driver.restores:
            answered.clear()
            one.send(heartbeat(1, 2))
            async with patience():
                await answered.wait()
            answers += 1
            await asyncio.sleep(0.002)
        await until(lambda: (2, True, True) in one.driver.reports)
        assert two.driver.restores == [bytes(one.driver.source._data)]
        assert two.driver.incoming.syncs > 40
        assert one.driver.source.closed
        stepped = [message for message in two.driver.received if message.type == MessageType.SNAPSHOT]
        assert [message.snapshot for message in stepped] == [one.driver.source.offer.meta]
        assert answers > 20


async def test_a_snapshot_goes_on_where_it_was_cut(tls):
    limits = replace(FAST, snapshot_bytes_per_s=40 << 20)
    async with talking_through_a_middle(limits, tls) as (one, two, middle):
        one.driver.source = source = MemorySource(random.Random(2).randbytes(20_000_000))
        one.send(snapshot_message(1, 2, source))
        await until(lambda: two.driver.incoming is not None and two.driver.incoming.offset > 5_000_000)
        middle.cut()
        await until(lambda: linked(one) == 0)
        await until(lambda: one.driver.reports[-1] == (2, False, None))
        assert not source.closed
        kept = two.driver.incoming
        await until(lambda: linked(one) == 1)
        middle.passed_bytes = 0
        # The loss was reported to Raft, which sends it again.
        one.send(snapshot_message(1, 2, source))
        await until(lambda: bool(two.driver.restores))
        assert two.driver.incoming is kept and middle.passed_bytes < 16_000_000
        await until(lambda: source.closed and (2, True, True) in one.driver.reports)


@pytest.mark.parametrize("restored", ["before the offer comes again", "afterwards"])
async def test_a_link_that_falls_while_a_snapshot_is_restored_does_not_matter(restored):
    async with talking_through_a_middle() as (one, two, middle):
        one.driver.make_source = lambda: MemorySource(bytes(100_000))
        two.driver.may_restore.clear()
        message = snapshot_message(1, 2, MemorySource(bytes(100_000)))
        one.send(message)
        await until(lambda: two.driver.restores_begun == 1)
        middle.cut()
        await until(lambda: linked(one) == 0)
        await until(lambda: linked(one) == 1)
        if restored == "afterwards":
            one.send(message)
            await until(lambda: one.peers._senders[NodeId(2)]._snapshot._acknowledged == 100_000)
            two.driver.may_restore.set()
        else:
            two.driver.may_restore.set()
            await until(lambda: bool(two.driver.restores))
            one.send(message)
        await until(lambda: (2, True, True) in one.driver.reports)
        assert two.driver.restores_begun == len(two.driver.restores) == 1


async def test_a_leader_of_the_past_does_not_take_the_place_of_the_presents():
    async with talking(3, limits=replace(FAST, snapshot_bytes_per_s=1 << 20)) as (one, two, three):
        three.driver.source = MemorySource(bytes(500_000), index=200)
        one.driver.source = MemorySource(bytes(500_000), index=100)
        three.send(snapshot_message(3, 2, three.driver.source)._replace(term=4))
        await until(lambda: two.driver.incoming is not None and two.driver.incoming.offset > 0)
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: (2, True, False) in one.driver.reports)
        assert "a newer leader sends one" in one.words[-1]
        await until(lambda: (2, True, True) in three.driver.reports)


async def test_a_corrupted_chunk_is_noticed():
    def spoil(offset: int, data: bytes) -> bytes:
        return bytes([data[0] ^ 1]) + data[1:] if offset == 3 * FAST.snapshot_chunk_bytes else data

    async with talking(2) as (one, two):
        one.driver.source = MemorySource(bytes(1_000_000), spoil=spoil)
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: (2, True, False) in one.driver.reports)
        assert not two.driver.restores and not two.driver.received
        assert any("refused the snapshot: its hash" in word for word in one.words)
        one.driver.source = MemorySource(bytes(1_000_000))
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: two.driver.restores == [bytes(1_000_000)])


async def test_no_snapshot_to_send():
    async with talking(2) as (one, _):
        one.send(snapshot_message(1, 2, MemorySource(b"x")))
        await until(lambda: (2, False, False) in one.driver.reports)

        def unreadable() -> None:
            raise OSError(5, "the disk cannot read this file")

        one.driver.make_source = unreadable
        one.send(snapshot_message(1, 2, MemorySource(b"x")))
        await until(lambda: (2, True, False) in one.driver.reports)
        [word] = one.words
        assert word.endswith(": the snapshot cannot be read: the disk cannot read this file")


async def test_a_snapshot_to_one_that_is_gone_is_kept_for_a_while_only():
    async with talking(2, limits=replace(FAST, snapshot_patience_s=2.0, snapshot_bytes_per_s=1 << 20)) as (one, two):
        one.driver.source = MemorySource(bytes(4_000_000))
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: two.driver.incoming is not None and two.driver.incoming.offset > 0)
        await two.peers.stop()
        await until(lambda: linked(one) == 0)
        assert not one.driver.source.closed
        await until(lambda: one.driver.source.closed)


async def test_another_leaders_snapshot_takes_the_place_of_one_under_way():
    limits = replace(FAST, snapshot_bytes_per_s=4 << 20)
    async with talking(3, limits=limits) as (one, two, three):
        one.driver.source = MemorySource(bytes(8_000_000), index=100)
        three.driver.source = MemorySource(b"newer" * 1000, index=200)
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: two.driver.incoming is not None and two.driver.incoming.offset > 0)
        three.send(snapshot_message(3, 2, three.driver.source)._replace(term=4))
        await until(lambda: two.driver.restores == [b"newer" * 1000])
        assert [message.sender for message in two.driver.received] == [3]
        await until(lambda: (2, True, True) in three.driver.reports)


async def test_chunks_beyond_the_window_end_the_link():
    """Its disk takes its time; whoever goes on sending all the same is cut off."""
    async with talking(2) as (one, _):
        source = MemorySource(bytes(16 << 20))
        disk = asyncio.Event()

        async def slow(sync) -> None:
            await disk.wait()

        one.peers._run_sync = slow
        one.update(one.membership, 40)
        offer = offer_frame(snapshot_message(2, 1, source), source.offer)
        chunks = [frame((Say.CHUNK, place << 20, bytes(1 << 20))) for place in range(8)]
        found = await refusal_of(one.peers.address, link(), offer, *chunks)
        assert not found or "not requested" in found[-1][2], "a reset may overtake the last word"
        assert one.driver.incoming is not None and one.driver.incoming.offset == 1 << 20


async def test_the_port_is_taken():
    async with talking(1) as (one,):
        with pytest.raises(MinikubeError, match=f"cannot listen to peers on localhost:{one.peers.address[1]}"):
            await listening(one.member, one.membership)
