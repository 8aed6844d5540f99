"""SPDY/3.1 beside a second implementation of the client's side, and any bytes."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.containers.spdy import (
    DICTIONARY,
    HEADERS_BYTES_MAX,
    STREAMS_MAX,
    Data,
    Ended,
    Event,
    Gone,
    Malformed,
    Opened,
    Spdy,
)


class Client:
    def __init__(self) -> None:
        self._packer = zlib.compressobj(zdict=DICTIONARY)
        self._next = 1

    def opens(self, headers: dict[str, str], fin: bool) -> tuple[int, bytes]:
        parts = [part.encode("latin-1") for pair in headers.items() for part in pair]
        text = b"".join((struct.pack(">I", len(headers)), *(struct.pack(">I", len(part)) + part for part in parts)))
        block = self._packer.compress(text) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        stream, self._next = self._next, self._next + 2
        return stream, control(1, struct.pack(">IIH", stream, 0, 0) + block, 1 if fin else 0)


def control(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body


def data(stream: int, payload: bytes, fin: bool) -> bytes:
    return struct.pack(">II", stream, (1 << 24 if fin else 0) | len(payload)) + payload


NAMES = st.sampled_from(("streamtype", "port", "requestid", "x"))
HEADERS = st.dictionaries(NAMES, st.text("abc0 ", max_size=9), max_size=4)
STEP = st.one_of(
    st.tuples(st.just("open"), HEADERS, st.booleans()),
    st.tuples(st.just("data"), st.integers(0, 5), st.binary(max_size=40), st.booleans()),
    st.tuples(st.just("reset"), st.integers(0, 5)),
    st.tuples(st.just("ping")),
    st.tuples(st.just("settings")),
    st.tuples(st.just("window")),
    st.tuples(st.just("gone")),
)


def script(steps: list[tuple[object, ...]]) -> tuple[bytes, list[Event]]:
    client, wire, wanted = Client(), b"", list[Event]()
    streams: list[int] = []
    shut: set[int] = set()
    for step in steps:
        match step:
            case ("open", dict(headers), bool(fin)):
                stream, frame = client.opens(headers, fin)
                wire += frame
                streams.append(stream)
                wanted.append(Opened(stream, headers))
                if fin:
                    shut.add(stream)
                    wanted.append(Ended(stream, False))
            case ("data", int(which), bytes(payload), bool(fin)) if which < len(streams) and streams[which] not in shut:
                wire += data(streams[which], payload, fin)
                wanted += [Data(streams[which], payload)] if payload else []
                if fin:
                    shut.add(streams[which])
                    wanted.append(Ended(streams[which], False))
            case ("reset", int(which)) if which < len(streams) and streams[which] not in shut:
                wire += control(3, struct.pack(">II", streams[which], 5))
                shut.add(streams[which])
                wanted.append(Ended(streams[which], True))
            case ("ping",):
                wire += control(6, struct.pack(">I", 7))
            case ("settings",):
                wire += control(4, struct.pack(">I", 0))
            case ("window",):
                wire += control(9, struct.pack(">II", 1, 99))
            case ("gone",):
                wire += control(7, struct.pack(">II", 0, 0))
                wanted.append(Gone())
    return wire, wanted


def joined(events: list[Event]) -> list[Event]:
    """Data of one stream that follows itself is one piece."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Data) and isinstance(last, Data) and last.stream == event.stream:
            found[-1] = Data(event.stream, last.data + event.data)
        else:
            found.append(event)
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=20), st.integers(1, 50))
def test_what_a_client_sends_arrives_however_it_is_cut(steps: list[tuple[object, ...]], size: int) -> None:
    wire, wanted = script(steps)
    server, found = Spdy(), list[Event]()
    for at in range(0, len(wire), size):
        found += server.receive(wire[at : at + size])
    assert joined(found) == joined(wanted)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=8), st.data())
def test_any_bytes_are_read_or_refused(steps: list[tuple[object, ...]], drawn: st.DataObject) -> None:
    wire = bytearray(script(steps)[0] or b"\x80\x03\x00\x01")
    for _ in range(drawn.draw(st.integers(1, 4))):
        wire[drawn.draw(st.integers(0, len(wire) - 1))] = drawn.draw(st.integers(0, 255))
    server = Spdy()
    try:
        server.receive(bytes(wire) + drawn.draw(st.binary(max_size=30)))
    except Malformed as error:
        assert str(error)


def test_headers_that_unpack_to_more_than_the_limit_are_refused() -> None:
    packer = zlib.compressobj(zdict=DICTIONARY)
    block = packer.compress(bytes(HEADERS_BYTES_MAX * 160)) + packer.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(Malformed, match=str(HEADERS_BYTES_MAX)):
        Spdy().receive(control(1, struct.pack(">IIH", 1, 0, 0) + block))


def test_more_streams_than_the_limit_are_refused_one_by_one() -> None:
    client, server = Client(), Spdy()
    opened = [event for _ in range(STREAMS_MAX + 3) for event in server.receive(client.opens({}, False)[1])]
    assert len(opened) == STREAMS_MAX
    assert server.outgoing.count(control(3, struct.pack(">II", 2 * STREAMS_MAX + 1, 3))) == 1
