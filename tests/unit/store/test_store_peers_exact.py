"""A member's port towards the others: whom it lets in and what it says, what it sends and when, what it reports, and
what its counters say. Connections and senders are stand-ins."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from patience import until
from peer_world import CLUSTER, TOKEN, Driver, MemorySource, append, entries_from, heartbeat, snapshot_message
from virtual_time import LoopClock

from minikube_py.errors import InvalidRequest, MinikubeError, NotLeader, OutcomeUnknown, Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store import peers as module
from minikube_py.store.bootstrap import Answer
from minikube_py.store.framing import FrameReader, ProtocolError, frame
from minikube_py.store.membership import MEMBERS_MAX, ChangeKind, Member, MemberChange, Membership, encode_member_change
from minikube_py.store.peer_asking import PeerAsker
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peer_protocol import (
    FRAME_BYTES_MAX,
    PEER_GREETING,
    Ask,
    EntryPacker,
    Refusal,
    Refused,
    Reply,
    Say,
    failed_frame,
    message_frame,
    offer_frame,
    who_frame,
)
from minikube_py.store.peers import Peers

OWN = Member(NodeId(1), "one", "h1:1")
MEMBERS = [OWN, Member(NodeId(2), "two", "h2:1"), Member(NodeId(3), "three", "h3:1")]


class Sender:
    """As `Peers` uses a `PeerSender`."""

    made: list[Sender] = []

    def __init__(self, peers: Peers, member: Member, lagging_until: int = 0) -> None:
        self.member, self.lagging_until = member, lagging_until
        self.calls: list[Any] = []
        self.stopped = False
        self.linked, self.connects, self.sent_messages, self.sent_bytes = True, 2, 3, 4
        self.dropped, self.waiting_bytes, self.snapshot_bytes, self.round_trip_s = 5, 6, 7, 0.125
        Sender.made.append(self)

    def send(self, message: Message) -> None:
        self.calls.append(message)

    def flush(self) -> None:
        self.calls.append("flush")

    def flush_within(self, wait_s: float) -> None:
        self.calls.append(wait_s)

    async def stop(self) -> None:
        self.stopped = True


class Connection:
    """As `Peers` uses an `IncomingConnection`."""

    def __init__(self, authenticated: bool = True) -> None:
        self.sender: NodeId | None = None
        self.incoming = SimpleNamespace(authenticated=lambda: authenticated)
        self.said: list[Any] = []
        self.ended: list[str] = []
        self.patience_s = 0.0
        self.received_bytes = 0
        self.lost = asyncio.get_running_loop().create_future()
        self.snapshot_offset: Any = None

    def write(self, data: bytes) -> None:
        self.said += FrameReader(FRAME_BYTES_MAX).feed(data)

    reply = write

    def close(self, why: str) -> None:
        self.ended.append(why)

    def abort(self, why: str) -> None:
        self.ended.append(f"aborted: {why}")
        if not self.lost.done():
            self.lost.set_result(why)

    def welcome(self, sender: NodeId, cluster_id: int, own: NodeId) -> None:
        self.sender = sender
        self.said.append((Reply.WELCOME, cluster_id, own))

    def refuse(self, refusal: Refusal, text: str) -> None:
        self.said.append((Reply.REFUSED, refusal, text))
        self.ended.append("refused")

    def be_patient(self, duration_s: float) -> None:
        self.patience_s = duration_s


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, begun: bool = True) -> None:
        monkeypatch.setattr(module, "PeerSender", Sender)
        Sender.made.clear()
        self.peers = Peers(OWN, TOKEN, LoopClock(), random.Random(1), say=lambda text: None)
        self.peers.loop = asyncio.get_running_loop()
        self.driver = Driver()
        self.applied = 10
        self.joins: list[Any] = []
        self.membership = Membership.of(MEMBERS)
        self.refuses: MinikubeError | None = None
        if begun:
            self.peers.begin(self.driver, CLUSTER, self.who, self.join, MEMBERS)  # type: ignore[arg-type]

    def who(self) -> Answer:
        return Answer(OWN, CLUSTER, self.membership, NodeId(2), self.applied)

    def join(self, change: MemberChange, joined: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.joins.append((change, joined))

    def senders(self) -> dict[int, Any]:
        return dict(self.peers._senders)

    def greeted(self, *arguments: Any, connection: Connection | None = None, token: str = TOKEN) -> Connection:
        connection = connection or Connection()
        self.peers.opened(connection)  # type: ignore[arg-type]
        [hello] = FrameReader(FRAME_BYTES_MAX).feed(PEER_GREETING.hello(token, *arguments))
        self.peers.greeted(connection, hello)  # type: ignore[arg-type]
        return connection

    def linked(self, sender: int = 2, applied: int = 10, address: str = "h2:1") -> Connection:
        return self.greeted(Ask.LINK, CLUSTER, sender, 1, address, applied)

    def said(self, connection: Connection, *words: Any) -> None:
        self.peers.said(connection, words)  # type: ignore[arg-type]

    def refusal(self, connection: Connection) -> Refusal | None:
        found = [each[1] for each in connection.said if each[0] == Reply.REFUSED]
        return found[0] if found else None


# -- what is sent and reported -----------------------------------------------------------------------------------------


async def test_messages_go_to_whom_they_are_for_and_word_of_what_is_committed_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    two, three = world.senders()[2], world.senders()[3]
    assert set(world.senders()) == {2, 3}
    empty = append(1, 2, entries_from(5, 1))._replace(entries=())
    full = append(1, 3, entries_from(5, 1))
    world.peers.send([empty, full, heartbeat(1, 9)])
    assert two.calls == [empty, 0.001] and three.calls == [full, "flush"]
    two.calls.clear()
    world.peers.send([empty, heartbeat(1, 2), empty])
    assert two.calls == [empty, heartbeat(1, 2), empty, "flush"], "one that may not wait takes all along"
    world.peers.send([])
    assert len(two.calls) == 4


async def test_a_report_comes_once_after_the_call_and_the_last_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for reachable, snapshot in ((True, None), (False, None), (True, True), (True, None), (False, None)):
        world.peers.report(NodeId(2), reachable, snapshot)
    world.peers.report(NodeId(3), True)
    assert world.driver.reports == []
    await asyncio.sleep(0)
    assert world.driver.reports == [(2, True, True), (2, True, None), (2, False, None), (3, True, None)]
    await asyncio.sleep(0)
    world.peers.report(NodeId(3), False)
    await asyncio.sleep(0)
    assert world.driver.reports[4:] == [(3, False, None)]
    world.peers.expelled("removed")
    world.peers.expelled("removed again")
    assert world.driver.expulsions == ["removed"]


async def test_links_follow_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    two, three = world.senders()[2], world.senders()[3]
    moved = Member(NodeId(3), "three", "elsewhere:1")
    renamed = Member(NodeId(2), "zwei", "h2:1")
    world.peers.update([OWN, renamed, moved, Member(NodeId(4), "four", "")], [])
    await asyncio.sleep(0)
    assert world.senders()[2] is two and two.member == renamed and not two.stopped
    assert world.senders()[3] is not three and three.stopped and world.senders()[3].member == moved
    assert 4 not in world.senders(), "one without an address cannot be reached"
    world.peers.update([OWN, renamed], [NodeId(3)])
    assert set(world.senders()) == {2}
    world.peers.update([], [NodeId(3)])
    assert set(world.senders()) == {2}, "a log that says nothing yet takes nobody away"
    await asyncio.sleep(0.01)
    assert not world.peers._leaving


async def test_one_that_may_be_a_member_is_answered_until_the_log_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    candidate = world.linked(7, applied=15, address="h7:1")
    assert candidate.said == [(Reply.WELCOME, CLUSTER, 1)] and world.senders()[7].lagging_until == 15
    world.applied = 14
    world.peers.update(MEMBERS, [])
    assert 7 in world.senders() and not candidate.ended
    world.applied = 15
    world.peers.update(MEMBERS, [])
    assert 7 not in world.senders() and world.refusal(candidate) == Refusal.STRANGER and world.peers.refusals == 1
    world.applied = 10
    for id in range(100, 100 + 3 * MEMBERS_MAX):
        world.linked(id, applied=15, address=f"h{id}:1")
    assert len(world.senders()) == 2 * MEMBERS_MAX
    world.linked(99, applied=15, address="")
    assert 99 not in world.senders()


# -- whom it lets in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "token", "authenticated", "begun", "wanted"),
    [
        ((Ask.LINK, CLUSTER, 2, 1, "h2:1", 10), TOKEN, True, True, None),
        ((Ask.LINK, CLUSTER, 2, 1, "h2:1", 10), "wrong", True, True, Refusal.TOKEN),
        ((Ask.LINK, CLUSTER, 2, 1, "h2:1", 10), TOKEN, False, True, Refusal.FULL),
        ((Ask.LINK, CLUSTER, 2, 1, "h2:1", 10), TOKEN, True, False, Refusal.EARLY),
        ((Ask.LINK, CLUSTER + 1, 2, 1, "h2:1", 10), TOKEN, True, True, Refusal.CLUSTER),
        ((Ask.WHO,), TOKEN, True, False, Refusal.EARLY),
        ((Ask.JOIN, CLUSTER, b""), TOKEN, True, False, Refusal.EARLY),
        ((Ask.JOIN, CLUSTER + 1, b""), TOKEN, True, True, Refusal.CLUSTER),
    ],
)
async def test_a_hello_is_welcome_or_refused_by_name(
    arguments: Any,
    token: str,
    authenticated: bool,
    begun: bool,
    wanted: Refusal | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, begun)
    connection = world.greeted(*arguments, connection=Connection(authenticated), token=token)
    assert world.refusal(connection) == wanted and world.peers.refusals == (wanted is not None)
    if wanted is None:
        assert connection.said == [(Reply.WELCOME, CLUSTER, 1)] and not connection.ended


async def test_a_hello_of_another_version_is_refused_and_what_is_none_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    connection = Connection()
    world.peers.greeted(connection, (PEER_GREETING.magic, 99, TOKEN, Ask.WHO))  # type: ignore[arg-type]
    assert world.refusal(connection) == Refusal.VERSION
    hello = (PEER_GREETING.magic, PEER_GREETING.version, TOKEN)
    for wrong in (
        ("x", 1, TOKEN, 2),
        (*hello, 77),
        (*hello, Ask.LINK, 1),
        (*hello, Ask.JOIN, "1", b""),
        (*hello, Ask.JOIN),
    ):
        with pytest.raises(ProtocolError):
            world.peers.greeted(Connection(), wrong)  # type: ignore[arg-type]


async def test_who_asks_who_this_is_hears_it_before_and_after_it_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, begun=False)
    world.peers.answer_with(world.who)
    connection = world.greeted(Ask.WHO)
    [wanted] = FrameReader(FRAME_BYTES_MAX).feed(who_frame(world.who()))
    assert connection.said == [wanted] and connection.ended == ["answered"]


async def test_a_new_link_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    first, second = world.linked(), world.linked()
    assert first.ended == ["aborted: the peer opened a new link"] and second.ended == []
    world.peers.closed(first)  # type: ignore[arg-type]
    world.peers.update([OWN], [NodeId(2), NodeId(3)])
    assert world.refusal(second) == Refusal.REMOVED, "it is still the link of that member"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, (Reply.JOINED,)),
        (NotLeader(NodeId(3)), (Reply.NOT_LEADER, 3, "h3:1")),
        (NotLeader(NodeId(9)), (Reply.NOT_LEADER, 9, "")),
        (NotLeader(NodeId(0)), (Reply.NOT_LEADER, 0, "")),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_who_asks_to_join_hears_how_it_went(
    outcome: Any, said: Any, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    change = MemberChange(ChangeKind.JOIN, NodeId(9), "nine")
    world.refuses = outcome if at_once else None
    connection = world.greeted(Ask.JOIN, CLUSTER, encode_member_change(change))
    assert connection.patience_s == world.peers.limits.join_s
    if not at_once or outcome is None:
        [(asked, joined)] = world.joins
        assert asked == change and not connection.said
        joined(outcome)
    assert connection.said == [said] and connection.ended == ["answered"]


async def test_over_the_peer_port_one_may_join_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for packed in (encode_member_change(MemberChange(ChangeKind.REMOVE, NodeId(2))), b"nonsense"):
        connection = world.greeted(Ask.JOIN, CLUSTER, packed)
        [(kind, _)] = connection.said
        assert kind == Reply.FAILED and world.joins == [] and connection.ended == ["answered"]


# -- what comes in -----------------------------------------------------------------------------------------------------


async def test_what_comes_over_a_link_is_handed_on_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    link = world.linked()
    message = heartbeat(2, 1, 5)
    [words] = FrameReader(FRAME_BYTES_MAX).feed(message_frame(message, EntryPacker()))
    world.said(link, *words)
    world.said(link, Say.PING, 7)
    assert world.driver.received == [message._replace(entries=[])] and link.said[1:] == [(Reply.PONG, 7)]
    link.received_bytes = 500
    name = '{peer="two"}'
    found = world.peers.metrics()
    prefix = "minikube_py_store_peer_"
    assert {key.removeprefix(prefix).removesuffix(name): value for key, value in found.items() if name in key} == {
        "connected": 1.0, "connects_total": 2, "sent_messages_total": 3, "sent_bytes_total": 4,
        "dropped_messages_total": 5, "queue_bytes": 6, "snapshot_bytes_total": 7, "round_trip_seconds": 0.125,
        "received_messages_total": 1, "received_bytes_total": 500,
    }  # fmt: skip
    assert found[prefix + "refusals_total"] == 0
    world.peers.closed(link)  # type: ignore[arg-type]
    again = world.linked()
    again.received_bytes = 30
    assert world.peers.metrics()[f"{prefix}received_bytes_total{name}"] == 530
    world.peers.update([OWN, MEMBERS[2]], [])
    assert not any(name in key for key in world.peers.metrics())


@pytest.mark.parametrize(
    "words", [(77,), (Say.PING,), (Say.PING, "7"), (Say.MESSAGE,), (Say.MESSAGE, 1), (Say.OFFER, 1)]
)
async def test_what_is_not_understood_is_told_to_the_connection(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    with pytest.raises(ProtocolError):
        world.said(world.linked(), *words)
    with pytest.raises(ProtocolError):
        world.said(Connection(), Say.PING, 7)


def offered(source: MemorySource, term: int = 3) -> Any:
    message = snapshot_message(2, 1, source)._replace(term=term)
    [words] = FrameReader(FRAME_BYTES_MAX).feed(offer_frame(message, source.offer))
    return words


async def test_a_snapshot_that_is_offered_again_goes_on_and_one_that_was_taken_is_not_taken_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    source = MemorySource(b"x" * 100)
    first = world.linked()
    world.said(first, *offered(source))
    await asyncio.sleep(0)
    world.said(first, Say.CHUNK, 0, b"x" * 40)
    await asyncio.sleep(0.01)
    assert first.said[1:] == [(Reply.WANT, 0), (Reply.WANT, 40)]
    second = world.linked()
    world.said(second, *offered(source, term=4))
    assert second.said[1:] == [(Reply.WANT, 40)]
    world.said(first, Say.CHUNK, 40, b"x" * 60)
    world.said(second, Say.CHUNK, 40, b"x" * 60)
    await until(lambda: bool(world.driver.restores))
    await asyncio.sleep(0.01)
    assert second.said[2:] == [(Reply.WANT, 100), (Reply.DONE, True, "")]
    assert [message.term for message in world.driver.received] == [4]
    world.said(second, *offered(source, term=5))
    assert second.said[-1] == (Reply.DONE, True, "") and world.driver.restores == [b"x" * 100]
    assert [message.term for message in world.driver.received] == [4, 5]


async def test_the_snapshot_of_an_earlier_leader_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    link = world.linked()
    world.said(link, *offered(MemorySource(b"x" * 100, index=100), term=5))
    await asyncio.sleep(0)
    world.said(link, *offered(MemorySource(b"y" * 100, index=90), term=4))
    assert link.said[-1] == (Reply.DONE, False, "a newer leader sends one")
    newer = MemorySource(b"z" * 10, index=110)
    world.said(link, *offered(newer, term=5))
    await asyncio.sleep(0.01)
    world.said(link, Say.CHUNK, 0, b"z" * 10)
    await until(lambda: world.driver.restores == [b"z" * 10])
    await world.peers.stop()
    assert world.senders() == {} and all(sender.stopped for sender in Sender.made)


async def test_at_its_end_no_link_is_left_and_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    link = world.linked()
    world.said(link, *offered(MemorySource(b"x" * 100)))
    await asyncio.sleep(0)
    world.peers.report(NodeId(2), True)
    await world.peers.stop()
    assert link.ended == ["aborted: this member stops"] and world.driver.reports == []
    receiving = world.peers._receiving
    assert receiving is not None and receiving.cancelled()
    world.peers.update(MEMBERS, [])
    assert world.senders() == {}


# -- who asks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (frame((Reply.JOINED,)), None, ""),
        (frame((Reply.NOT_LEADER, 3, "h3:1")), Unavailable, "does not lead; h3:1 does"),
        (frame((Reply.NOT_LEADER, 0, "")), Unavailable, "does not lead; it knows no leader"),
        (frame((Reply.NOT_LEADER, 3)), OutcomeUnknown, "answered with something other than the outcome"),
        (failed_frame(InvalidRequest("nobody expects you")), InvalidRequest, "nobody expects you"),
        (frame((Reply.FAILED,)), OutcomeUnknown, "something other"),
        (frame((Reply.FAILED, 5)), OutcomeUnknown, "something other"),
        (frame((Reply.PONG, 5)), OutcomeUnknown, "something other"),
        (frame((Reply.REFUSED, Refusal.TOKEN, "the token is wrong")), Refused, "the token is wrong"),
        (b"", Unavailable, "no answer within 7 s"),
    ],
)
async def test_an_answer_to_a_request_to_join_is_read_for_what_it_says(reply: bytes, error: Any, said: str) -> None:
    heard: list[Any] = []

    class Answering(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            heard.extend(FrameReader(FRAME_BYTES_MAX).feed(data))
            # A sign of life is no answer.
            self.transport.write(frame((Reply.ALIVE,)) + reply)

    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asker = PeerAsker(TOKEN, limits=PeerLimits(join_s=7.0, beat_s=20.0))
    change = MemberChange(ChangeKind.JOIN, NodeId(9), "nine")
    try:
        if error is None:
            await asker.join(address, CLUSTER, change)
        else:
            with pytest.raises(error, match=said):
                await asker.join(address, CLUSTER, change)
    finally:
        server.close()
    magic, version, token, ask, cluster, packed = heard[0]
    assert (magic, version, token, ask, cluster) == (PEER_GREETING.magic, 1, TOKEN, Ask.JOIN, CLUSTER)
    assert packed == encode_member_change(change)
    with pytest.raises(Unavailable, match="'nonsense' is not host:port"):
        await asker.who("nonsense")
