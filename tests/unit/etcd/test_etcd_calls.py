"""What a call holds of a client's messages is what it counts, whatever their number and the pieces they come in."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.etcd.calls import MESSAGE_COST_BYTES, UNREAD_BYTES, Call, Route
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import TOO_MANY
from minikube_py.etcd.grpc_framing import Head, Messages, framed
from minikube_py.http2.events import Stream
from minikube_py.http2.frames import WINDOW_BYTES
from minikube_py.ports.shares import Shares

MESSAGE_MAX = 2 << 20
SLOT_BYTES = 8
"""Of a container's reference to a message."""
SIZES = st.sampled_from([0, 0, 0, 1, 2, 15, 16, 17, 48, 1_000, 70_000]) | st.integers(0, 300)
ANY_MESSAGE = SimpleNamespace(DESCRIPTOR=None, FromString=bytes)


def call_of_stream(bytes_max: int) -> tuple[Call, list[int], Shares[Call], list[tuple[Any, ...]]]:
    """A call whose method has taken nothing; the bytes that the client may send again, the account, the answers."""
    took: list[int] = []
    ended: list[tuple[Any, ...]] = []
    bodies = Shares[Call](bytes_max)
    limits = SimpleNamespace(message_bytes_max=MESSAGE_MAX)
    connection: Any = SimpleNamespace(
        server=SimpleNamespace(limits=limits, bodies=bodies, silent=Shares[Call](1), left=lambda call: None),
        h2=SimpleNamespace(
            took=lambda stream, size_bytes: took.append(size_bytes),
            send_headers=lambda stream, block, end: ended.append((block, end)),
        ),
        soon=lambda: None,
        address="",
    )

    async def run(call: Call, requests: Any) -> None:
        raise AssertionError("the test takes the messages itself")

    head = Head("/etcdserverpb.Lease/LeaseKeepAlive", b"", None, "", (), None)
    call = Call(connection, Stream(1, 0), head, Route(ANY_MESSAGE, True, run))
    call.begun = True
    return call, took, bodies, ended


def object_bytes(call: Call) -> int:
    """What Python holds of the messages, by the sizes of the objects."""
    assert call._messages is not None
    return sum([sys.getsizeof(each) + SLOT_BYTES for each in call._unread]) + call._messages.held_bytes


@given(st.lists(SIZES, min_size=1, max_size=60), st.lists(st.integers(1, 20_000), min_size=1, max_size=8))
def test_what_is_held_is_counted_until_it_is_taken(sizes: list[int], cuts: list[int]) -> None:
    call, took, bodies, _ = call_of_stream(1 << 30)
    data, at = b"".join([framed(bytes(size)) for size in sizes]), 0
    for cut in itertools.cycle([max(cut, len(data) // 500) for cut in cuts]):
        call.received(data[at : at + cut], ended=False)
        at = min(at + cut, len(data))
        assert object_bytes(call) <= bodies.total <= at + len(call._unread) * MESSAGE_COST_BYTES
        # The client may send more only while little waits.
        assert sum(took) == at or call._unread_bytes >= UNREAD_BYTES
        if at == len(data):
            break

    async def take() -> list[int]:
        call.stream.ended_by_peer = True
        return [len(each) async for each in call._requests()]

    assert run_virtually(take) == sizes
    assert bodies.total == call._unread_bytes == 0 and sum(took) == len(data)


@given(st.sampled_from([0, 1, 2, 40, 5_000]), st.sampled_from([0, 1_000, 100_000, 1 << 20]))
def test_messages_of_any_size_that_nobody_takes_are_stopped_by_the_window_or_by_the_account(
    size: int, bytes_max: int
) -> None:
    call, took, bodies, ended = call_of_stream(bytes_max)
    one = framed(bytes(size))
    read, sent = one * max(1, 16_000 // len(one)), 0
    # As far as a client may send: its window, and what was given back.
    while not call.over and sent + len(read) <= WINDOW_BYTES + sum(took):
        call.received(read, ended=False)
        sent += len(read)
        assert bodies.total <= bytes_max
        # No growth without end: the account or the window stops it.
        assert sent <= 2 * WINDOW_BYTES + UNREAD_BYTES
    if call.over:
        assert len(ended) == 1 and bodies.total == 0 and not call._unread
    else:
        assert object_bytes(call) <= bodies.total
    # What costs more as an object than in the window is stopped by a smaller account.
    assert call.over or bytes_max > UNREAD_BYTES


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 64, 1_000, 16_384])
@pytest.mark.parametrize("declared_bytes", [200_000, MESSAGE_MAX])
def test_an_incomplete_message_takes_its_bytes_whatever_its_pieces(piece_bytes: int, declared_bytes: int) -> None:
    messages, pieces = Messages(MESSAGE_MAX, ""), range(150_000 // piece_bytes)
    source = bytes(range(256)) * 65
    tracemalloc.start()
    try:
        assert messages.receive(b"\0" + declared_bytes.to_bytes(4, "big")) == []
        for each in pieces:
            assert messages.receive(source[each % 251 : each % 251 + piece_bytes]) == []
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert messages.held_bytes == 5 + len(pieces) * piece_bytes
    # A bytearray has up to an eighth more room than it needs.
    assert held_bytes <= messages.held_bytes * 9 / 8 + 4_096


def test_a_call_that_exceeds_the_account_says_so() -> None:
    call, _, bodies, ended = call_of_stream(10 * MESSAGE_COST_BYTES)
    call.received(framed(b"") * 10, ended=False)
    assert not ended and bodies.total == 10 * MESSAGE_COST_BYTES
    call.received(framed(b""), ended=False)
    assert call.over and bodies.total == 0
    ((block, is_end),) = ended
    assert is_end and str(int(StatusCode.RESOURCE_EXHAUSTED)).encode() in block


async def coroutine_of_nobody(*_given: Any) -> Any:
    raise AssertionError("it was ended before")


def begun_later(call: Call) -> None:
    call.open_stream()


def answered_slowly(call: Call) -> None:
    call.slowly(coroutine_of_nobody, 1, 2)


@pytest.mark.parametrize("begin", [begun_later, answered_slowly])
@pytest.mark.parametrize("ended_first", [False, True])
@pytest.mark.parametrize("end", [Call.cancel, lambda call: call.reset(8), lambda call: call._give_up(*TOO_MANY)])
async def test_calls_that_end_before_their_task_begins_leave_nothing(begin: Any, ended_first: bool, end: Any) -> None:
    """A turn of the loop may bring a thousand streams and their resets: pytest fails on a coroutine never awaited."""
    left: list[Call] = []
    for _ in range(1_000):
        call, _, bodies, _ = call_of_stream(1 << 20)
        server: Any = call.connection.server
        server.left, server.waits_no_more = left.append, lambda call: None
        call.connection.h2.reset = lambda stream, code: None  # type: ignore[method-assign]
        call.route = Route(ANY_MESSAGE, True, coroutine_of_nobody)
        for step in (end, begin) if ended_first else (begin, end):
            step(call)
        assert call.over and call._task is None and bodies.total == 0
    assert len(left) == 1_000
    await asyncio.sleep(0)
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
