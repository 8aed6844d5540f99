"""Both ends of a link: what comes in and what is answered, how a snapshot is received, when a link is tried again."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from link_ends import PLAIN, TO, Port, sending
from patience import until
from peer_world import MemorySource, snapshot_message

from minikube_py.errors import Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.store.framing import FrameReader, ProtocolError, frame
from minikube_py.store.peer_connection import IncomingConnection, OutgoingLink, PeerConnection, PeerLimits
from minikube_py.store.peer_protocol import (
    FRAME_BYTES_MAX,
    Refusal,
    Refused,
    Reply,
    Say,
    refusal_frame,
)
from minikube_py.store.peer_sender import PeerSender
from minikube_py.store.peer_snapshots import RECEIVED_BYTES_MAX, SnapshotReceiver
from minikube_py.store.snapshot_transfer import TransferRefused

# -- the receiving end -------------------------------------------------------------------------------------------------


class Incoming:
    """A snapshot's file at the receiver; `fails`: at which write."""

    def __init__(self, size_bytes: int, fails: BaseException | None = None) -> None:
        self.size_bytes, self.data, self.fails, self.syncs = size_bytes, bytearray(), fails, 0

    @property
    def offset(self) -> int:
        return len(self.data)

    def write(self, offset: int, data: bytes) -> Any:
        assert offset == self.offset
        if self.fails is not None:
            raise self.fails
        self.data += data
        return self._sync if len(self.data) % 200 == 0 else None

    def _sync(self) -> None:
        self.syncs += 1


class Wire:
    def __init__(self) -> None:
        self.said: list[Any] = []
        self.snapshot_offset: Any = None

    def write(self, data: bytes) -> None:
        self.said += FrameReader(FRAME_BYTES_MAX).feed(data)


def receiving(size_bytes: int = 500, fails: BaseException | None = None, arrives: BaseException | None = None) -> Any:
    source = MemorySource(bytes(size_bytes))
    incoming, received = Incoming(size_bytes, fails), []

    async def arrived(which: Incoming) -> None:
        assert which is incoming
        if arrives is not None:
            raise arrives

    async def run_sync(sync: Any) -> None:
        await asyncio.sleep(0.01)
        sync()

    driver: Any = SimpleNamespace(
        incoming_snapshot=lambda offer: incoming, snapshot_arrived=arrived, receive=received.append
    )
    receiver = SnapshotReceiver(snapshot_message(1, 2, source), source.offer, driver, run_sync)
    return SimpleNamespace(receiver=receiver, incoming=incoming, received=received, source=source)


async def test_a_snapshot_is_written_as_it_comes_and_is_the_others_word_at_its_end() -> None:
    world = receiving()
    wire = Wire()
    world.receiver.attach(wire, world.receiver.message)
    task = asyncio.ensure_future(world.receiver.run(None))
    await asyncio.sleep(0)
    assert wire.said == [(Reply.WANT, 0)] and wire.snapshot_offset() == 0
    for offset in range(0, 500, 100):
        world.receiver.chunk(wire, [offset, bytes(100)])
        world.receiver.chunk(Wire(), [offset, bytes(100)])
        await asyncio.sleep(0.02)
    await task
    assert wire.said == [*[(Reply.WANT, at) for at in range(0, 501, 100)], (Reply.DONE, True, "")]
    assert world.receiver.taken and wire.snapshot_offset is None and world.incoming.syncs == 2
    assert [each.snapshot for each in world.received] == [world.source.offer.meta]


@pytest.mark.parametrize(
    ("fails", "arrives", "said"),
    [
        (OSError(28, "no space left"), None, "it could not be written: no space left"),
        (TransferRefused("out of order"), None, "out of order"),
        (None, TransferRefused("its hash is wrong"), "its hash is wrong"),
        (None, OSError(5, "an error"), "it could not be written: an error"),
    ],
)
async def test_a_snapshot_that_cannot_be_taken_is_refused_with_the_reason(fails: Any, arrives: Any, said: str) -> None:
    world = receiving(100, fails, arrives)
    wire = Wire()
    world.receiver.attach(wire, world.receiver.message)
    world.receiver.chunk(wire, [0, bytes(100)])
    await world.receiver.run(None)
    assert wire.said[-1] == (Reply.DONE, False, said) and not world.receiver.taken and not world.received
    assert wire.snapshot_offset is None


async def test_another_link_takes_up_what_the_first_one_left() -> None:
    """What the first one brought and was not written is not counted, and not written."""
    world = receiving(300)
    first, second = Wire(), Wire()
    world.receiver.attach(first, world.receiver.message)
    assert first.said == [], "before anything is there nothing is expected"
    task = asyncio.ensure_future(world.receiver.run(None))
    await asyncio.sleep(0)
    world.receiver.chunk(first, [0, bytes(100)])
    await asyncio.sleep(0.02)
    world.receiver.chunk(first, [100, bytes(100)])
    world.receiver.detach(second)
    world.receiver.detach(first)
    world.receiver.chunk(first, [200, bytes(100)])
    await asyncio.sleep(0.02)
    assert world.receiver.offset == 100 and world.receiver._waiting_bytes == 0
    message = world.receiver.message._replace(term=8)
    world.receiver.attach(second, message)
    assert second.said == [(Reply.WANT, 100)]
    for offset in (100, 200):
        world.receiver.chunk(second, [offset, bytes(100)])
    await task
    assert second.said[-1] == (Reply.DONE, True, "") and world.received == [
        message._replace(snapshot=world.source.offer.meta)
    ]


@pytest.mark.parametrize("over", [0, 1])
async def test_a_receiver_holds_so_many_bytes_that_were_not_asked_for(over: int) -> None:
    world = receiving()
    wire = Wire()
    world.receiver.attach(wire, world.receiver.message)
    world.receiver.chunk(wire, [0, bytes(RECEIVED_BYTES_MAX - 10)])
    if over:
        with pytest.raises(ProtocolError, match="not requested"):
            world.receiver.chunk(wire, [0, bytes(11)])
    else:
        world.receiver.chunk(wire, [0, bytes(10)])
    for arguments in ([0], [0, b"", 1], ["0", b""], [0, "text"], [True, b""]):
        with pytest.raises(ProtocolError):
            world.receiver.chunk(wire, arguments)


async def test_the_next_offer_is_received_when_the_one_before_has_ended() -> None:
    first, second = receiving(100), receiving(100)
    before = asyncio.ensure_future(first.receiver.run(None))
    await asyncio.sleep(0)
    wire = Wire()
    second.receiver.attach(wire, second.receiver.message)
    second.receiver.chunk(wire, [0, bytes(100)])
    await second.receiver.run(before)
    assert before.cancelled() and second.receiver.taken


# -- links -------------------------------------------------------------------------------------------------------------


async def tries(limits: PeerLimits, up_s: float, times: int, why: Any = None) -> list[float]:
    """The pauses between tries, if each link stays up for so long (0: does not come about)."""
    port = Port(limits)
    began: list[float] = []
    loop = asyncio.get_running_loop()

    async def establish(self: PeerSender, link: OutgoingLink) -> Any:
        began.append(loop.time())
        if up_s:
            loop.call_later(up_s, link.lost.set_result, "it fell")
            return None
        return why or Unavailable("nobody is there")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeerSender, "_establish", establish)
        sender = PeerSender(port, TO)  # type: ignore[arg-type]
        await until(lambda: len(began) >= times)
        await sender.stop()
    assert not port.failures and sender.connects == (times if up_s else 0)
    if not up_s:
        told = [] if why else ["peer store-2 (h2:1): nobody is there"]
        assert port.words == told, "a reason is logged once in a row"
    else:
        assert port.words == [
            each
            for _ in range(times - 1)
            for each in ("peer store-2 (h2:1): it fell", "peer store-2 (h2:1): connected")
        ]
    return [round(after - before - up_s, 2) for before, after in itertools.pairwise(began)]


async def test_a_link_is_tried_again_with_pauses_that_double_up_to_a_bound() -> None:
    limits = PeerLimits(retry_s_min=0.1, retry_s_max=1.0)
    assert await tries(limits, 0, 8) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], abs=0.02)
    assert await tries(limits, 0.95, 5) == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.02)
    assert await tries(limits, 1.0, 5) == pytest.approx([0.1] + [0.1] * 3, abs=0.02), "one that lasted ends them"


async def test_one_that_says_itself_what_it_waits_for_is_not_told_of() -> None:
    early = Refused(Refusal.EARLY, "it is starting")
    assert len(await tries(PeerLimits(retry_s_min=0.1), 0, 3, early)) == 2


async def test_a_member_that_was_removed_is_told_so() -> None:
    port, sender, _ = await sending()
    for refusal in Refusal:
        sender.refused(Refused(refusal, f"because {refusal.name}"))
    assert port.expulsions == ["because REMOVED"]


async def test_the_round_trip_is_that_of_the_last_ping() -> None:
    _, sender, _ = await sending()
    for number in (1, 2):
        [(kind, sent)] = FrameReader(FRAME_BYTES_MAX).feed(sender.ping())
        assert (kind, sent) == (Say.PING, number)
    await asyncio.sleep(0.25)
    sender.ponged(1)
    assert sender.round_trip_s == 0.0
    sender.ponged(2)
    assert sender.round_trip_s == pytest.approx(0.25, abs=0.01)


class Transport:
    def __init__(self) -> None:
        self.said: list[Any] = []
        self.ended: list[str] = []
        self.high = 0

    def write(self, data: bytes) -> None:
        self.said += FrameReader(FRAME_BYTES_MAX).feed(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high


class Quiet(PeerConnection):
    def take(self, received: tuple[Any, ...]) -> None:
        if received[0] == "bad":
            raise ProtocolError("bad")


def made(connection: PeerConnection) -> Transport:
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return transport


@pytest.mark.parametrize(("beats", "patient_s", "ends_s"), [(1, 0.0, 2.0), (4, 0.0, 5.0), (4, 10.0, 15.0)])
async def test_a_link_is_dead_after_so_many_beats_without_a_sign(beats: int, patient_s: float, ends_s: float) -> None:
    loop = asyncio.get_running_loop()
    connection = Quiet(PeerLimits(beat_s=1.0, silent_beats_max=beats, write_buffer_bytes=777), loop)
    transport = made(connection)
    assert transport.high == 777
    if patient_s:
        connection.be_patient(patient_s)
    await asyncio.sleep(0.5)
    connection.data_received(frame(["sign"]))
    began_s = loop.time() - 0.5
    await until(lambda: bool(transport.ended))
    assert loop.time() - began_s == pytest.approx(ends_s, abs=0.1) and transport.ended == ["abort"]
    connection.connection_lost(None)
    assert connection.lost.result() == f"nothing received for {beats + patient_s:g} s"
    assert connection.received_bytes == len(frame(["sign"]))


async def test_a_link_that_is_closed_has_a_moment_for_its_last_bytes() -> None:
    loop = asyncio.get_running_loop()
    connection = Quiet(PeerLimits(), loop)
    transport = made(connection)
    connection.close("enough")
    connection.close("again")
    assert transport.ended == ["close"]
    began_s = loop.time()
    await until(lambda: len(transport.ended) == 2)
    assert loop.time() - began_s == pytest.approx(1.0, abs=0.02)
    connection.write(frame(["late"]))
    connection.data_received(frame(["late"]))
    connection.connection_lost(OSError("reset"))
    assert transport.said == [] and connection.lost.result() == "enough"
    for error, said in ((OSError("reset"), "reset"), (None, "the other side closed the connection")):
        other = Quiet(PeerLimits(), loop)
        made(other)
        other.connection_lost(error)
        assert other.lost.result() == said
    garbled = Quiet(PeerLimits(), loop)
    transport = made(garbled)
    garbled.data_received(frame(["bad"]))
    garbled.connection_lost(None)
    assert transport.ended == ["abort"] and garbled.lost.result() == "the received data was not understood: bad"


def outgoing(told: dict[str, list[Any]], limits: PeerLimits = PLAIN) -> OutgoingLink:
    def note(name: str) -> Any:
        return lambda *arguments: told.setdefault(name, []).append(arguments)

    names = ("ponged", "snapshot_wanted", "snapshot_done", "refused", "flush")
    owner: Any = SimpleNamespace(**{name: note(name) for name in names}, ping=lambda: frame((Say.PING, 1)))
    return OutgoingLink(owner, frame(["hello"]), 7, NodeId(2), limits, asyncio.get_running_loop())


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ((Reply.WELCOME, 7, 2), None),
        ((Reply.WELCOME, 8, 2), Refusal.GARBLED),
        ((Reply.WELCOME, 7, 3), Refusal.GARBLED),
        ((Reply.WELCOME, 7), Refusal.GARBLED),
        ((Reply.ALIVE,), Refusal.GARBLED),
        ((Reply.REFUSED, Refusal.STRANGER, "who are you"), Refusal.STRANGER),
        ((Reply.REFUSED, 99, "of a later version"), Refusal.GARBLED),
        ((Reply.REFUSED,), Refusal.GARBLED),
    ],
)
async def test_a_link_is_up_once_the_one_that_is_meant_says_so(first: tuple[Any, ...], why: Refusal | None) -> None:
    link = outgoing({})
    transport = made(link)
    assert transport.said == [("hello",)]
    link.data_received(frame(first))
    result = link.greeted.result()
    assert (result and result.refusal) == why and bool(transport.ended) == (why is not None)


async def test_what_comes_on_a_link_reaches_its_owner_and_nothing_else_does() -> None:
    told: dict[str, list[Any]] = {}
    link = outgoing(told, PeerLimits(beat_s=1.0))
    transport = made(link)
    link.resumed()
    assert told == {}, "before the welcome nothing is sent"
    await asyncio.sleep(1.1)
    assert transport.said == [("hello",)]
    link.data_received(frame((Reply.WELCOME, 7, 2)))
    for words in ((Reply.ALIVE,), (Reply.PONG, 3), (Reply.WANT, 9), (Reply.DONE, True, "x"), (Reply.DONE, 1, 2)):
        link.data_received(frame(words))
    assert told == {"ponged": [(3,)], "snapshot_wanted": [(9,)], "snapshot_done": [(True, "x"), (False, "")]}
    await asyncio.sleep(1.0)
    assert transport.said[1:] == [(Say.PING, 1)]
    link.pause_writing()
    await asyncio.sleep(1.0)
    assert len(transport.said) == 2 and "flush" not in told
    link.resume_writing()
    assert told.pop("flush") == [()]
    link.data_received(refusal_frame(Refusal.REMOVED, "you were removed"))
    [(refused,)] = told.pop("refused")
    assert refused.refusal == Refusal.REMOVED and transport.ended


@pytest.mark.parametrize(
    "words", [(Reply.PONG,), (Reply.PONG, -1), (Reply.PONG, "1"), (Reply.WANT, 1, 2), (Reply.DONE, True), (77,)]
)
async def test_what_is_not_understood_ends_a_link(words: tuple[Any, ...]) -> None:
    told: dict[str, list[Any]] = {}
    link = outgoing(told)
    transport = made(link)
    link.data_received(frame((Reply.WELCOME, 7, 2)))
    link.data_received(frame(words))
    [(refused,)] = told.pop("refused")
    assert refused.refusal == Refusal.GARBLED and transport.ended == ["abort"] and not told


async def test_who_accepts_gives_signs_of_life_and_says_how_far_a_snapshot_is() -> None:
    said: list[Any] = []
    port: Any = SimpleNamespace(
        opened=said.append, closed=said.append, said=lambda _, what: said.append(what),
        greeted=lambda _, what: said.append(what),
    )  # fmt: skip
    left: list[int] = []
    incoming: Any = SimpleNamespace(left=lambda: left.append(1))
    connection = IncomingConnection(port, incoming, PeerLimits(beat_s=1.0), asyncio.get_running_loop())
    transport = made(connection)
    await asyncio.sleep(1.1)
    assert transport.said == [], "it was not greeted"
    connection.data_received(frame(["first"]) + frame(["second"]))
    assert said == [connection, ("first",), ("second",)]
    connection.welcome(NodeId(2), 7, NodeId(1))
    await asyncio.sleep(1.0)
    connection.snapshot_offset = lambda: 55
    await asyncio.sleep(1.0)
    assert transport.said == [(Reply.WELCOME, 7, 1), (Reply.ALIVE,), (Reply.WANT, 55)]
    connection.pause_writing()
    await asyncio.sleep(1.0)
    assert len(transport.said) == 3, "who does not read has enough of them"
    connection.refuse(Refusal.FULL, "x" * 2000)
    assert transport.said[-1] == (Reply.REFUSED, Refusal.FULL, "x" * 1000) and transport.ended == ["close"]
    connection.connection_lost(None)
    assert left == [1] and said[-1] is connection
