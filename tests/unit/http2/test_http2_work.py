"""What one read of a peer's frames makes the connection do is bounded, however many streams there are and wait.

Work is counted in executed lines of the package, so the bounds hold on any machine."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from http2_peer import (
    DATA,
    GOAWAY,
    HELLO,
    PREFACE,
    RST_STREAM,
    WINDOW_UPDATE,
    frame,
    frames_of,
    number,
    request,
    settings,
)
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.http2 import connection as under_test
from minikube_py.http2.connection import Connection
from minikube_py.http2.events import Ended, Opened
from minikube_py.http2.limits import Allowance, ConnectionLimits

CALM = 11
READ_BYTES = 16 << 10
LIMITS = ConnectionLimits()
PACKAGE = under_test.__file__.rpartition("connection.py")[0]
STEPS_PER_BYTE = 8
"""The densest frames have 13 bytes; each takes about a hundred lines."""
STEPS_PER_WINDOW = 40
"""A stream whose window the settings changed, and from which a byte is sent."""


def steps(work: Callable[[], object]) -> int:
    """Lines of the package that were executed meanwhile."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(entered: FrameType, _event: str, _argument: Any) -> Any:
        return line if entered.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def with_streams(count: int, state: str) -> Connection:
    """`idle`: nothing to send. `stalled`: data and no window of their own. `blocked`: the connection has none."""
    connection = Connection(LIMITS)
    connection.receive(PREFACE + settings((4, 0)) if state == "stalled" else HELLO, 0.0)
    opened = connection.receive(b"".join([request(2 * each + 1) for each in range(count)]), 0.0)
    streams = [each.stream for each in opened if type(each) is Opened]
    assert len(streams) == count
    if state != "idle":
        for each in streams:
            connection.send_headers(each, b"\x88")
            connection.send(each, bytes(100_000))
        assert connection.waiting_bytes >= count * 100_000 - 65_535
    while connection.outgoing():
        connection.release()
    return connection


def alternating(*values: int) -> Iterator[bytes]:
    return itertools.cycle([settings((4, value)) for value in values])


def requests_between(flood: Iterator[bytes]) -> Iterator[bytes]:
    """Each request makes the frames before it count as useful."""
    return itertools.chain.from_iterable(
        (next(flood), request(stream), frame(RST_STREAM, 0, stream, number(8))) for stream in itertools.count(3_001, 2)
    )


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "one frame of many settings": lambda: itertools.repeat(settings(*[(4, each & 1) for each in range(2_729)], (4, 9))),
    "settings that grow and shrink": lambda: alternating(0, 65_535),
    "settings that grow by a byte": lambda: (settings((4, each)) for each in itertools.count(1)),
    "settings that give a byte and take it": lambda: alternating(0, 1),
    "windows of the connection": lambda: itertools.repeat(frame(WINDOW_UPDATE, 0, 0, number(1_024))),
    "windows of the connection, by a byte": lambda: itertools.repeat(frame(WINDOW_UPDATE, 0, 0, number(1))),
    "windows of a stream": lambda: itertools.repeat(frame(WINDOW_UPDATE, 0, 1, number(1_024))),
    "windows of each stream": lambda: itertools.cycle(
        [frame(WINDOW_UPDATE, 0, 2 * each + 1, number(1_024)) for each in range(1_024)]
    ),
    "settings between requests": lambda: requests_between(alternating(1, 2)),
    "data between settings": lambda: itertools.cycle([settings((4, 1)), frame(DATA, 0, 1, b"a"), settings((4, 2))]),
}


def read_of(flood: Iterator[bytes]) -> bytes:
    """Whole frames: READ_BYTES, and what the last one has beyond them."""
    read = b""
    while len(read) < READ_BYTES:
        read += next(flood)
    return read


@pytest.mark.parametrize("state", ["idle", "stalled", "blocked"])
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("count", [1, 33, 1_000])
def test_reads_cost_what_their_bytes_do_and_an_allowance(flood: str, state: str, count: int) -> None:
    connection, frames = with_streams(count, state), FLOODS[flood]()
    reads = [read_of(frames), read_of(frames)]
    total = 0
    for read in reads:
        total += steps(lambda read=read: connection.receive(read, 0.0))
        connection.outgoing()
    assert total <= sum(map(len, reads)) * STEPS_PER_BYTE + LIMITS.resized_max * STEPS_PER_WINDOW


@pytest.mark.parametrize("count", [17, 40, 1_000])
def test_settings_may_change_as_many_windows_as_the_allowance_has(count: int) -> None:
    connection, flood = with_streams(count, "idle"), alternating(1, 2)
    for _ in range(LIMITS.resized_max // count):
        assert connection.receive(next(flood), 0.0) == []
    # One that repeats the value changes none; later there is room again.
    assert connection.receive(settings((4, 2 - LIMITS.resized_max // count % 2)), 0.0) == []
    assert connection.receive(request(9_001) + next(flood), 1.0)[1:] == []
    (*_, ended) = connection.receive(b"".join([next(flood) for _ in range(LIMITS.resized_max // count)]), 1.0)
    assert type(ended) is Ended and ended.why == "too many windows are changed by settings"
    assert [each.payload[4:8] for each in frames_of(connection.outgoing()) if each.kind == GOAWAY] == [number(CALM)]


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=6), st.integers(0, 4))
def test_the_last_value_of_a_frame_is_the_one_that_holds(values: list[int], count: int) -> None:
    """The same bytes are sent as if the last value alone had come."""
    found = []
    for sent in (values, values[-1:]):
        connection = with_streams(count, "stalled")
        connection.receive(settings(*[(4, value) for value in sent]), 0.0)
        parts: dict[int, int] = {}
        while out := connection.outgoing():
            for each in frames_of(out):
                if each.kind == DATA:
                    parts[each.stream] = parts.get(each.stream, 0) + len(each.payload)
            connection.release()
        found.append((parts, [stream.send_window for stream in connection.streams.values()]))
    assert found[0] == found[1]
    assert sum(found[0][0].values()) == min(values[-1] * count, 65_535)


def test_tokens_are_taken_by_their_number() -> None:
    allowance = Allowance(10, 2.0)
    assert allowance.take(0.0, 10) and not allowance.take(0.0, 1) and allowance.take(0.0, 0)
    assert not allowance.take(1.0, 3) and allowance.take(1.0, 2)
    assert allowance.take(100.0, 10) and not allowance.take(100.0)
