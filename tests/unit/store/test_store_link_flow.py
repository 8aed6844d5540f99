"""What one member sends another: in order, within its bounds, and told to Raft."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from link_ends import HEARTBEAT_BYTES, Link, entry, sending, size_of
from patience import until
from peer_world import MemorySource, heartbeat, snapshot_message
from virtual_time import LoopClock

from minikube_py.store import peer_sender
from minikube_py.store.framing import ProtocolError, frame
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peer_protocol import (
    Say,
)
from minikube_py.store.peer_snapshots import SnapshotSender

# -- queues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [0, 1])
async def test_as_much_waits_for_a_member_as_the_limit_and_no_more(over: int) -> None:
    messages = [entry(number) for number in range(10, 14)]
    total = sum(map(size_of, messages))
    port, sender, link = await sending(PeerLimits(queue_bytes_max=total - over))
    for message in messages:
        sender.send(message)
    assert sender.dropped == over and port.reports == [(2, False, None)] * over
    assert sender.sent_messages == 4 - over and sender.waiting_bytes == sum(map(size_of, messages[: 4 - over]))
    sender.flush()
    assert len(link.frames()) == 4 - over and sender.waiting_bytes == 0
    assert sender.sent_bytes == sum(map(size_of, messages[: 4 - over]))
    sender.send(messages[0])
    assert sender.dropped == over, "what was written makes room"


@pytest.mark.parametrize("over", [0, 1])
async def test_signs_of_life_pass_entries_where_the_member_takes_nothing(over: int) -> None:
    port, sender, link = await sending(PeerLimits(urgent_bytes_max=2 * HEARTBEAT_BYTES - over))
    sender.send(entry(10))
    link.paused = True
    beats = [heartbeat(1, 2, number) for number in (1, 2)]
    for beat in beats:
        sender.send(beat)
    sender.send(entry(11))
    assert sender.dropped == over and port.reports == [], "that a sign was left out means nothing"
    assert sender.waiting_bytes == (2 - over) * HEARTBEAT_BYTES + 2 * size_of(entry(10))
    link.paused = False
    sender.flush()
    kinds = [plain[0] for _, plain in link.frames()]
    assert kinds == [int(beats[0].type)] * (2 - over) + [int(entry(1).type)] * 2
    sender.send(heartbeat(1, 2, 3))
    sender.send(entry(12))
    sender.flush()
    assert [plain[0] for _, plain in link.frames()] == [int(beats[0].type), int(entry(1).type)], "else all keep order"


async def test_what_has_no_link_is_dropped_and_told_if_raft_counts_on_it() -> None:
    port, sender, link = await sending()
    sender._link = None
    source = MemorySource(b"state")
    for message in (heartbeat(1, 2), entry(10), snapshot_message(1, 2, source)):
        sender.send(message)
    assert sender.dropped == 3 and port.reports == [(2, False, None), (2, False, False)]
    assert sender.sent_messages == 0 and not link.writes


@pytest.mark.parametrize("over", [0, 1])
async def test_one_write_takes_as_much_as_the_buffer_and_at_least_one_message(over: int) -> None:
    size = size_of(entry(10))
    _, sender, link = await sending(PeerLimits(write_buffer_bytes=2 * size - over))
    for number in range(10, 14):
        sender.send(entry(number))
    sender.flush()
    assert [len(data) for data in link.writes] == ([2 * size] * 2 if not over else [size] * 4)
    link.frames()
    sender.send(entry(14, 5000))
    sender.send(entry(15))
    sender.flush()
    assert len(link.writes) == 2 and len(link.frames()) == 2


@pytest.mark.parametrize("over", [0, 1])
async def test_one_turn_of_the_loop_writes_so_much_and_the_next_one_goes_on(over: int) -> None:
    size = size_of(entry(10))
    _, sender, link = await sending(PeerLimits(write_buffer_bytes=1, turn_bytes_max=2 * size + over))
    for number in range(10, 16):
        sender.send(entry(number))
    sender.flush()
    assert len(link.writes) == 2 + over
    await asyncio.sleep(0)
    assert len(link.writes) == 2 * (2 + over)
    await asyncio.sleep(0)
    assert len(link.writes) == 6 and not sender.waiting_bytes


async def test_a_link_that_takes_no_more_is_written_to_no_more() -> None:
    _, sender, link = await sending(PeerLimits(write_buffer_bytes=1))
    link.pause_after = 2
    for number in range(10, 14):
        sender.send(entry(number))
    sender.flush()
    assert len(link.writes) == 2
    link.paused, link.ending, link.pause_after = False, True, None
    sender.flush()
    assert len(link.writes) == 2
    link.ending = False
    sender.flush()
    assert len(link.writes) == 4


async def test_word_that_may_wait_travels_with_the_next_message_or_when_its_time_has_come() -> None:
    loop = asyncio.get_running_loop()
    _, sender, link = await sending()
    sender.send(heartbeat(1, 2))
    began_s = loop.time()
    sender.flush_within(0.5)
    sender.flush_within(5.0)
    await until(lambda: bool(link.writes))
    assert 0.5 <= loop.time() - began_s < 0.52
    link.frames()
    sender.send(heartbeat(1, 2))
    sender.flush_within(0.5)
    sender.flush()
    assert len(link.frames()) == 1
    sender.send(heartbeat(1, 2))
    await asyncio.sleep(1.0)
    assert not link.writes, "the first wait was over with the write"


# -- snapshots ---------------------------------------------------------------------------------------------------------


SMALL = PeerLimits(snapshot_chunk_bytes=100, snapshot_window_bytes=300, snapshot_bytes_per_s=1000)


def chunks(link: Link) -> list[tuple[int, int]]:
    return [(each[1], len(each[2])) for each in link.frames() if each[0] == Say.CHUNK]


async def test_a_snapshot_keeps_to_its_window_and_its_rate_and_ends_with_the_others_word() -> None:
    loop = asyncio.get_running_loop()
    port, sender, link = await sending(SMALL)
    port.source = MemorySource(bytes(950))
    sender.send(snapshot_message(1, 2, port.source))
    sender.flush()
    assert [each[0] for each in link.frames()] == [Say.OFFER], "where it goes on is the receiver's word"
    began_s, sent = loop.time(), []
    sender.snapshot_wanted(0)
    while len(sent) < 3:
        sent += [(round(loop.time() - began_s, 2), *each) for each in chunks(link)]
        await asyncio.sleep(0.01)
    assert [each[1:] for each in sent] == [(0, 100), (100, 100), (200, 100)]
    assert [each[0] for each in sent] == pytest.approx([0.0, 0.1, 0.2], abs=0.02)
    await asyncio.sleep(1.0)
    assert chunks(link) == [], "three chunks are unacknowledged, which is the window"
    sender.snapshot_wanted(100)
    assert chunks(link) == [(300, 100)]
    sizes = [len(frame((Say.CHUNK, offset, bytes(100)))) for offset in range(0, 400, 100)]
    assert sender.snapshot_bytes == sum(sizes) and sender.sent_bytes > sender.snapshot_bytes
    for wanted in range(200, 951, 50):
        sender.snapshot_wanted(wanted)
        await asyncio.sleep(0.1)
    sizes = [size for _, size in chunks(link)]
    assert sizes == [100] * 5 + [50] and not port.source.closed
    assert port.reports and set(port.reports) == {(2, True, None)}
    port.reports.clear()
    sender.snapshot_done(True, "")
    assert port.source.closed and port.reports == [(2, True, True)]
    sender.snapshot_done(True, "")
    sender.snapshot_wanted(0)
    assert port.reports == [(2, True, True)], "what was said once is not said again"


async def test_progress_is_told_once_a_second() -> None:
    port, sender, _ = await sending(replace(SMALL, snapshot_bytes_per_s=1 << 30))
    port.source = MemorySource(bytes(100_000))
    sender.send(snapshot_message(1, 2, port.source))
    sender._snapshot_reported_s = port.clock.monotonic_s()
    told = []
    for step in range(35):
        sender.snapshot_wanted(100 * step)
        told.append(len(port.reports))
        await asyncio.sleep(0.1)
    assert peer_sender.REPORTED_S == 1.0 and told[9] == 0 and told[11] == 1 and told[-1] == 3


@pytest.mark.parametrize("fault", ["offer", "none", "chunk", "refused", "silent"])
async def test_a_snapshot_that_cannot_be_sent_is_reported_and_the_next_one_begins_anew(fault: str) -> None:
    port, sender, link = await sending(replace(SMALL, snapshot_patience_s=2.0))

    def fail(offset: int, data: bytes) -> bytes:
        raise OSError(5, "an error of the disk")

    source = MemorySource(bytes(500), spoil=fail if fault == "chunk" else None)
    port.source = {"offer": OSError(2, "it is gone"), "none": None}.get(fault, source)
    sender.send(snapshot_message(1, 2, source))
    if fault in ("chunk", "refused", "silent"):
        sender.snapshot_wanted(0)
    if fault == "refused":
        sender.snapshot_done(False, "its hash is wrong")
    if fault == "silent":
        await asyncio.sleep(1.9)
        sender.ping()
        assert not source.closed
        await asyncio.sleep(0.2)
        sender.ping()
    said = {
        "offer": "cannot be read: it is gone", "none": "", "chunk": "cannot be read: an error of the disk",
        "refused": "refused the snapshot: its hash is wrong", "silent": "no progress of a snapshot for 2 s",
    }[fault]  # fmt: skip
    assert port.reports[-1] == ((2, False, False) if fault == "none" else (2, True, False))
    assert not said or port.words[-1].endswith(said)
    assert sender._snapshot is None and (fault in ("offer", "none") or source.closed)
    port.source = MemorySource(bytes(50))
    link.frames()
    sender.send(snapshot_message(1, 2, port.source))
    sender.snapshot_wanted(0)
    assert chunks(link) == [(0, 50)]


async def test_an_offer_is_made_again_only_on_a_new_link_or_in_a_new_term_or_for_a_newer_snapshot() -> None:
    port, sender, link = await sending(SMALL)
    first = port.source = MemorySource(bytes(500), index=100)
    sender.send(snapshot_message(1, 2, first))
    sender.flush()
    assert [each[0] for each in link.frames()] == [Say.OFFER]
    sender.snapshot_wanted(0)
    link.frames()
    for _ in range(2):
        sender.send(snapshot_message(1, 2, first))
    sender.flush()
    assert [each[0] for each in link.frames() if each[0] == Say.OFFER] == [], "it is under way"
    sender.send(snapshot_message(1, 2, first)._replace(term=9))
    sender.flush()
    assert [each[0] for each in link.frames()] == [Say.OFFER] and not first.closed
    second = port.source = MemorySource(bytes(600), index=101)
    sender.send(snapshot_message(1, 2, second))
    sender.flush()
    assert [each[2] for each in link.frames()] == [600] and first.closed
    sender._down(link)  # type: ignore[arg-type]
    again = Link()
    sender._up(again)  # type: ignore[arg-type]
    sender.send(snapshot_message(1, 2, second))
    sender.flush()
    assert [each[2] for each in again.frames()] == [600] and not second.closed


@pytest.mark.parametrize("again", [False, True])
async def test_a_snapshot_whose_link_fell_is_kept_so_long(again: bool) -> None:
    port, sender, link = await sending(replace(SMALL, snapshot_patience_s=5.0))
    port.source = MemorySource(bytes(500))
    sender.send(snapshot_message(1, 2, port.source))
    sender.snapshot_wanted(0)
    sender._down(link)  # type: ignore[arg-type]
    assert port.reports[-1] == (2, False, None) and not sender.linked and sender.waiting_bytes == 0
    sender.snapshot_wanted(100)
    assert not link.paused, "a word of the link that fell starts nothing"
    await asyncio.sleep(4.9)
    assert not port.source.closed
    if again:
        sender._up(Link())  # type: ignore[arg-type]
        sender.send(snapshot_message(1, 2, port.source))
    await asyncio.sleep(0.2)
    assert port.source.closed is not again


async def test_what_waits_on_a_link_that_falls_is_counted_as_dropped() -> None:
    port, sender, link = await sending()
    sender.send(entry(10))
    link.paused = True
    sender.send(heartbeat(1, 2))
    sender.send(entry(11))
    sender.flush_within(0.1)
    sender._down(link)  # type: ignore[arg-type]
    assert (sender.dropped, sender.waiting_bytes, sender.linked) == (3, 0, False)
    assert port.reports == [(2, False, None)]
    sender._down(Link())  # type: ignore[arg-type]
    assert port.reports == [(2, False, None)], "one that never was up falls without a word"
    await asyncio.sleep(1.0)
    assert not link.writes


@pytest.mark.parametrize(
    ("begun", "wanted", "fits"),
    [
        (None, 0, True), (None, 500, True), (None, 501, False), (100, 99, False), (100, 100, True), (100, 300, True),
        (100, 301, False),
    ],
)  # fmt: skip
async def test_only_what_was_sent_can_be_acknowledged(begun: int | None, wanted: int, fits: bool) -> None:
    source = MemorySource(bytes(500))
    limits = replace(SMALL, snapshot_bytes_per_s=1 << 40)
    sender = SnapshotSender(source, snapshot_message(1, 2, source), limits, LoopClock())  # type: ignore[arg-type]
    assert sender.wait_s is None and sender.sent_bytes == 0 and sender.next_chunk() is None, "it was not offered yet"
    sender.offer(sender.message)
    assert sender.wait_s is None
    if begun is not None:
        sender.wanted(begun)
        assert sender.next_chunk() is not None
        await asyncio.sleep(0.01)
        assert sender.next_chunk() is not None
        assert sender.sent_bytes == begun + 200
    if fits:
        sender.wanted(wanted)
        assert (sender.wait_s is None) == (wanted == 500)
    else:
        with pytest.raises(ProtocolError, match=f"requested from {wanted}"):
            sender.wanted(wanted)
