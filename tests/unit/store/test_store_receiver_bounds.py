"""The receiving end of a snapshot's way: what was not asked for has a limit, and what is taken makes room again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peer_world import MemorySource, snapshot_message

from minikube_py.store.framing import FrameReader, ProtocolError
from minikube_py.store.peer_protocol import FRAME_BYTES_MAX, Reply
from minikube_py.store.peer_snapshots import RECEIVED_BYTES_MAX, SnapshotReceiver

CHUNK = bytes(64 << 10)
CHUNKS_MAX = RECEIVED_BYTES_MAX // len(CHUNK)


class Connection:
    """What the receiver says to its sender."""

    def __init__(self) -> None:
        self.snapshot_offset: Any = None
        self.said: list[Any] = []

    def write(self, data: bytes) -> None:
        self.said += FrameReader(FRAME_BYTES_MAX).feed(data)


class Incoming:
    def __init__(self) -> None:
        self.offset = 0

    def write(self, offset: int, data: bytes) -> None:
        assert offset == self.offset
        self.offset += len(data)


class Driver:
    def __init__(self) -> None:
        self.incoming = Incoming()
        self.received: list[Any] = []

    def incoming_snapshot(self, offer: Any) -> Incoming:
        return self.incoming

    async def snapshot_arrived(self, incoming: Incoming) -> None:
        assert incoming is self.incoming

    def receive(self, message: Any) -> None:
        self.received.append(message)


def receiver(size_bytes: int = 3 * RECEIVED_BYTES_MAX) -> tuple[SnapshotReceiver, Connection, Driver]:
    source = MemorySource(bytes(size_bytes))
    driver = Driver()

    async def run_sync(sync: Any) -> None:
        sync()

    one = SnapshotReceiver(snapshot_message(1, 2, source), source.offer, driver, run_sync)  # type: ignore[arg-type]
    connection = Connection()
    one.attach(connection, one.message)  # type: ignore[arg-type]
    return one, connection, driver


def send(one: SnapshotReceiver, connection: Connection, first: int, count: int) -> None:
    for number in range(first, first + count):
        one.chunk(connection, [number * len(CHUNK), CHUNK])  # type: ignore[arg-type]


async def drained() -> None:
    for _ in range(4 * CHUNKS_MAX):
        await asyncio.sleep(0)


def test_chunks_that_nobody_asked_for_are_refused_beyond_their_limit() -> None:
    one, connection, _ = receiver()
    send(one, connection, 0, CHUNKS_MAX)
    with pytest.raises(ProtocolError, match=f"over {RECEIVED_BYTES_MAX} bytes of a snapshot"):
        one.chunk(connection, [0, b"x"])  # type: ignore[arg-type]


def test_a_new_connection_and_a_lost_one_begin_with_nothing_waiting() -> None:
    one, connection, _ = receiver()
    send(one, connection, 0, CHUNKS_MAX)
    one.detach(connection)  # type: ignore[arg-type]
    one.attach(connection, one.message)  # type: ignore[arg-type]
    send(one, connection, 0, CHUNKS_MAX)
    other = Connection()
    one.attach(other, one.message)  # type: ignore[arg-type]
    send(one, connection, 0, 1)
    send(one, other, 0, CHUNKS_MAX)
    with pytest.raises(ProtocolError):
        send(one, other, 0, 1)


async def test_what_was_written_makes_room_and_is_acknowledged_up_to_the_end() -> None:
    one, connection, driver = receiver()
    running = asyncio.get_running_loop().create_task(one.run(None))
    await asyncio.sleep(0)
    for turn in range(3):
        send(one, connection, turn * CHUNKS_MAX, CHUNKS_MAX)
        await drained()
        assert driver.incoming.offset == (turn + 1) * RECEIVED_BYTES_MAX
    await running
    assert one.taken and len(driver.received) == 1
    offsets = [said[1] for said in connection.said if said[0] == Reply.WANT]
    assert offsets == [number * len(CHUNK) for number in range(3 * CHUNKS_MAX + 1)]
    assert tuple(connection.said[-1][:2]) == (Reply.DONE, True)
    assert connection.snapshot_offset is None


@pytest.mark.parametrize("arguments", [[], [0], [0, "text"], ["0", b""], [0, b"", 1], [None, b""]])
def test_what_is_no_chunk_is_refused(arguments: list[Any]) -> None:
    one, connection, _ = receiver()
    with pytest.raises(ProtocolError, match="a chunk is an offset and bytes"):
        one.chunk(connection, arguments)  # type: ignore[arg-type]
