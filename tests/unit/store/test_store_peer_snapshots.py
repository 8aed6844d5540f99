"""The sending end of a snapshot's way: never more under way than its window, never faster than its pace, on from where
the receiver says."""

from __future__ import annotations

import pytest
from manual_clock import ManualClock
from peer_world import MemorySource, snapshot_message

from minikube_py.store.framing import FrameReader, ProtocolError
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peer_protocol import FRAME_BYTES_MAX, Say
from minikube_py.store.peer_snapshots import SnapshotSender

LIMITS = PeerLimits(snapshot_chunk_bytes=100, snapshot_window_bytes=300, snapshot_bytes_per_s=1000)
DATA = bytes(range(256)) * 5


def sender(limits: PeerLimits = LIMITS) -> tuple[SnapshotSender, ManualClock]:
    clock = ManualClock()
    source = MemorySource(DATA)
    return SnapshotSender(source, snapshot_message(1, 2, source), limits, clock), clock


def chunks(sender: SnapshotSender, clock: ManualClock) -> list[tuple[int, bytes]]:
    """All that goes out now, time passing as the pace asks."""
    found = []
    while sender.wait_s is not None:
        clock.now_s += sender.wait_s
        if (data := sender.next_chunk()) is not None:
            [(kind, offset, chunk)] = FrameReader(FRAME_BYTES_MAX).feed(data)
            assert kind == Say.CHUNK and chunk == DATA[offset : offset + len(chunk)]
            found.append((offset, chunk))
    return found


def offsets(found: list[tuple[int, bytes]]) -> list[int]:
    return [offset for offset, _ in found]


def test_nothing_goes_before_it_is_wanted():
    one, clock = sender()
    assert one.wait_s is None and one.next_chunk() is None
    one.offer(one.message)
    assert one.wait_s is None and one.next_chunk() is None
    one.wanted(0)
    assert chunks(one, clock)


def test_the_window():
    one, clock = sender()
    one.offer(one.message)
    one.wanted(0)
    assert offsets(chunks(one, clock)) == [0, 100, 200]
    one.wanted(100)
    assert offsets(chunks(one, clock)) == [300]
    one.wanted(100)
    assert chunks(one, clock) == [], "a sign of life is no room"
    one.wanted(400)
    assert offsets(chunks(one, clock)) == [400, 500, 600]
    for offset in range(700, 1300, 100):
        one.wanted(offset)
        chunks(one, clock)
    assert one.wait_s is None
    one.wanted(len(DATA))
    assert one.wait_s is None


def test_the_pace():
    one, clock = sender()
    one.offer(one.message)
    one.wanted(0)
    begun_s = clock.now_s
    assert one.next_chunk() is not None
    assert one.wait_s == pytest.approx(0.1) and one.next_chunk() is None
    sent = 100
    while sent < len(DATA):
        one.wanted(sent)
        sent += sum(len(chunk) for _, chunk in chunks(one, clock))
    assert clock.now_s - begun_s == pytest.approx((len(DATA) - 80) / 1000), "the last chunk is not waited for"
    # A pause gives no right to catch up.
    clock.now_s += 100
    two, clock = sender()
    two.offer(two.message)
    two.wanted(0)
    clock.now_s += 100
    two.next_chunk()
    assert two.wait_s == pytest.approx(0.1)


def test_on_from_where_the_receiver_says():
    one, clock = sender()
    one.offer(one.message)
    one.wanted(1000)
    assert offsets(chunks(one, clock)) == [1000, 1100, 1200]
    one.active = False
    assert one.wait_s is None
    one.offer(one.message)
    assert one.wait_s is None, "on a new link it is asked again"
    one.wanted(500)
    assert offsets(chunks(one, clock)) == [500, 600, 700]


@pytest.mark.parametrize("wanted", [[len(DATA) + 1], [0, 200], [0, 100, 0], [1000, 900]])
def test_what_cannot_be_wanted(wanted):
    one, _ = sender()
    one.offer(one.message)
    with pytest.raises(ProtocolError, match=f"from {wanted[-1]}, which were not sent"):
        for offset in wanted:
            one.wanted(offset)
            one.next_chunk()


def test_when_it_was_heard_of_last():
    one, clock = sender()
    clock.now_s += 5
    one.offer(one.message)
    assert one.heard_s == clock.now_s
    clock.now_s += 5
    one.wanted(0)
    assert one.heard_s == clock.now_s
