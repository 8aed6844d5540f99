"""What clients send into a pod and no program reads: bounded for a connection and in total, and no reason for others to
wait."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import tracemalloc
from collections.abc import Callable
from unittest import mock

import pytest
from test_remote import KEY, Wire, dial, run
from test_spdy import Client, control, data
from virtual_time import run_virtually
from wsproto.frame_protocol import FrameProtocol, Opcode

from minikube_py.containers import channels
from minikube_py.containers.channels import (
    MESSAGE_BYTES_MAX,
    MESSAGE_FRAMES_MAX,
    UNREAD_BYTES_MAX,
    NumberedChannels,
    SpdyChannels,
    WebSocket,
)
from minikube_py.containers.remote import Asked, Wanted, command, forward
from minikube_py.containers.spdy import STREAMS_MAX, Spdy

NUMBERED = Asked(["Upgrade"], "websocket", [], KEY, "13", ["v4.channel.k8s.io"])


def message(channel: int, payload: bytes) -> bytes:
    return bytes(FrameProtocol(True, []).send_data(bytes((channel,)) + payload, True))


class Lasting(Wire):
    """It stays open."""

    async def read(self) -> bytes:
        return await super().read() or bytes(await asyncio.Event().wait())


def opened(count: int) -> bytes:
    client = Client()
    return b"".join(client.opens({"streamtype": "data"}, False)[1] for _ in range(count))


def test_small_parts_take_no_more_memory_than_their_bytes() -> None:
    each = b"".join(data(1 + 2 * stream, b"x", False) for stream in range(STREAMS_MAX))
    wire = Wire([opened(STREAMS_MAX), *[each] * (2 * UNREAD_BYTES_MAX // STREAMS_MAX)])

    async def serve() -> None:
        streams = SpdyChannels(wire)
        pump = asyncio.ensure_future(streams.pump())
        for _ in range(20_000):
            await asyncio.sleep(0)
        pump.cancel()

    tracemalloc.start()
    try:
        run_virtually(serve)
        assert tracemalloc.get_traced_memory()[1] < 4 * UNREAD_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert wire.parts, "the connection was read on"


def test_a_compressor_takes_little() -> None:
    """20,000 connections may be open."""
    tracemalloc.start()
    try:
        kept = [Spdy() for _ in range(20)]
        assert tracemalloc.get_traced_memory()[0] / len(kept) < 64 << 10
    finally:
        tracemalloc.stop()


def unread_data(size: int) -> SpdyChannels:
    return SpdyChannels(Lasting([opened(1), data(1, bytes(size), False)]))


def unfinished_frame(size: int) -> SpdyChannels:
    return SpdyChannels(Lasting([control(6, bytes(size))[:-1]]))


def unfinished_message(size: int) -> NumberedChannels:
    return NumberedChannels(Lasting([bytes(FrameProtocol(True, []).send_data(bytes(size), False))]), 1)


def tunnelled(size: int) -> SpdyChannels:
    socket = WebSocket(Lasting([bytes(FrameProtocol(True, []).send_data(bytes(size), False))]))
    return SpdyChannels(socket, socket.unread)


def headers(size: int) -> SpdyChannels:
    return SpdyChannels(Lasting([Client().opens({"a": "x" * size}, False)[1]]))


@pytest.mark.parametrize("held", [unread_data, headers, unfinished_frame, unfinished_message, tunnelled])
def test_the_connections_that_hold_most_end_when_all_hold_too_much(
    caplog: pytest.LogCaptureFixture, held: Callable[[int], SpdyChannels | NumberedChannels]
) -> None:
    sizes = (100, 5_000, 100, 4_000, 3_000)

    async def serve() -> list[bool]:
        pumps = []
        for size in sizes:
            pumps.append(asyncio.ensure_future(held(size).pump()))
            for _ in range(20):
                await asyncio.sleep(0)
        ended = [each.done() for each in pumps]
        for each in pumps:
            each.cancel()
        return ended

    with mock.patch.object(channels, "ALL_UNREAD_BYTES_MAX", 10_000), caplog.at_level(logging.WARNING):
        assert run_virtually(serve) == [False, True, False, False, False]
    assert "1 connections into pods ended: 1" in caplog.text
    assert "the limit is 10000" in caplog.text


@pytest.mark.parametrize("numbered", [True, False])
def test_all_of_large_messages_is_read_and_nothing_stays_counted(numbered: bool) -> None:
    """A message of the largest size, with the beginning of the next, received at once."""
    sent = bytes(MESSAGE_BYTES_MAX - 8) if not numbered else bytes(MESSAGE_BYTES_MAX - 1)
    payloads = [b"\0" + sent] * 2 if numbered else [opened(1), data(1, sent, False), data(1, sent, False)]
    frames = FrameProtocol(True, [])
    wire = Wire([b"".join(bytes(frames.send_data(each, True)) for each in payloads)])

    async def serve() -> tuple[int, int]:
        if numbered:
            streams: SpdyChannels | NumberedChannels = NumberedChannels(wire, 1)
            unread = streams._unread
        else:
            socket = WebSocket(wire)
            streams, unread = SpdyChannels(socket, socket.unread), socket.unread
        pump = asyncio.ensure_future(streams.pump())
        channel = streams.channels[0] if isinstance(streams, NumberedChannels) else await streams.opened.get()
        assert channel is not None
        total = 0
        while part := await asyncio.wait_for(channel.read(), 60):
            total += len(part)
        await pump
        return total, unread.bytes

    assert run_virtually(serve) == (2 * len(sent), 0)


def test_what_no_program_reads_keeps_nobody_waiting() -> None:
    """Channels of a command other than its input, and the error channels of ports."""
    flood = [message(channel, bytes(50_000)) for channel in (1, 2, 3, 4) for _ in range(8)]
    wire = Wire([*flood, message(0, b"typed")])
    wanted = Wanted(True, True, True, False)
    run_virtually(lambda: asyncio.wait_for(command(NUMBERED, wanted, ["x"], run, asyncio.sleep).serve(wire), 60))
    assert b"\x01typed" in wire.sent
    flood = [message(channel, bytes(50_000)) for channel in (1, 2, 3) for _ in range(8)]
    served: list[bytes] = []

    async def echo(port: int, read: object, write: object) -> None:
        if port == 9:
            # Refused, with unread data.
            await dial(port, read, write)
        served.append(await read())  # type: ignore[operator]

    wire = Wire([*flood, message(0, b"typed")])
    run_virtually(lambda: asyncio.wait_for(forward(NUMBERED, (80, 9), "p", "u", echo).serve(wire), 60))
    assert served == [b"typed"]


@pytest.mark.parametrize("tunnel", [False, True])
def test_a_client_is_told_what_was_wrong(tunnel: bool) -> None:
    first = bytes(FrameProtocol(True, []).send_data(b"\0", False))
    wire = Wire([first + bytes((0, 0x80, 0, 0, 0, 0)) * (MESSAGE_FRAMES_MAX + 1)])
    asked = NUMBERED._replace(socket_protocols=["SPDY/3.1+portforward.k8s.io"])
    of_command = command(NUMBERED, Wanted(True, True, False, False), ["x"], run, asyncio.sleep)
    upgrade = forward(asked, (), "p", "u", dial) if tunnel else of_command
    run_virtually(lambda: upgrade.serve(wire))
    received = FrameProtocol(True, [])
    received.receive_bytes(wire.sent)
    (closed,) = [each.payload for each in received.received_frames() if each.opcode is Opcode.CLOSE]
    assert closed == (1002, f"a message of more than {MESSAGE_FRAMES_MAX} frames")


def test_headers_count_as_long_as_their_stream_is_open() -> None:
    """256 streams of a connection may have 16 KiB each, and nothing of theirs is ever read by a program."""
    client, value = Client(), "x" * 8_000
    parts = [client.opens({"streamtype": "data", "a": value}, False)[1] for _ in range(20)]
    held = []

    async def serve() -> None:
        unread = channels.Unread()
        streams = SpdyChannels(Wire([]), unread)
        for part in (*parts, control(3, struct.pack(">II", 3, 5))):
            await streams._take(part)
            held.append(unread.bytes)
        first = streams.opened.get_nowait()
        assert first is not None
        await first.end(reset=True)
        held.append(unread.bytes)
        await streams.pump()
        held.append(unread.bytes)

    run_virtually(serve)
    each = len(value) + len("streamtype") + len("data") + len("a")
    assert held[:20] == [each * (count + 1) for count in range(20)]
    # One was reset by its client, another ended by the server, and then the connection ended.
    assert held[20:] == [19 * each, 18 * each, 0]


class Leaving(Wire):
    """It sends all, and goes once that was read."""

    async def read(self) -> bytes:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().read()


HELD_BYTES = 200_000
UNFINISHED = bytes(FrameProtocol(True, []).send_data(bytes(HELD_BYTES), False))
WAITING = message(0, bytes(HELD_BYTES))
PLAIN = Asked(["Upgrade"], "SPDY/3.1", ["v4.channel.k8s.io"], "", "", [])


async def unread(*_: object) -> int:
    return bool(await asyncio.Event().wait())


@pytest.mark.parametrize(
    "asked, forwards, sent",
    [
        (NUMBERED, False, UNFINISHED), (NUMBERED, False, WAITING), (NUMBERED, True, WAITING),
        (PLAIN, False, opened(1) + data(1, bytes(HELD_BYTES), False)),
    ],
    ids=("message", "input", "port", "streams"),
)  # fmt: skip
def test_what_a_connection_held_is_free_when_it_ends(asked: Asked, forwards: bool, sent: bytes) -> None:
    """Without a collection of cycles, which is rare."""
    wanted = Wanted(True, True, True, False)

    async def serve() -> None:
        for _ in range(12):
            upgrade = (
                forward(asked, (80,), "p", "u", unread)
                if forwards
                else command(asked, wanted, ["x"], unread, lambda _: asyncio.Event().wait())
            )
            await asyncio.wait_for(upgrade.serve(Leaving([sent])), 60)

    async def measured() -> int:
        await serve()
        before = tracemalloc.get_traced_memory()[0]
        await serve()
        return tracemalloc.get_traced_memory()[0] - before

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        assert run_virtually(measured) < 12 * 20_000
    finally:
        tracemalloc.stop()
        gc.enable()


def test_what_a_part_of_pings_is_answered_is_one_write() -> None:
    """A connection that is lost is found by the first of them; each further one would be a line of asyncio's log."""
    writes = []

    class Counting(Wire):
        async def write(self, data: bytes) -> None:
            writes.append(data)

    pings = bytes(FrameProtocol(True, []).ping(b"p")) * 1000

    async def read() -> None:
        assert await WebSocket(Counting([pings])).read() == b""

    run_virtually(read)
    received = FrameProtocol(True, [])
    received.receive_bytes(b"".join(writes))
    assert [each.opcode for each in received.received_frames()] == [Opcode.PONG] * 1000
    assert len(writes) == -(-len(pings) // channels._RECEIVED_BYTES_AT_ONCE)
