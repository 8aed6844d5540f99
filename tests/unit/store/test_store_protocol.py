"""Frames: cut, put together, split into parts."""

from __future__ import annotations

import pytest

from minikube_py.errors import (
    Compacted,
    FutureRevision,
    InvalidRequest,
    LeaseExists,
    LeaseNotFound,
    OutcomeUnknown,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.mvcc.types import Event, KeyValue, QueryStats, RangeResult
from minikube_py.store.framing import FrameReader, ProtocolError, decode_error, encode_error, frame, unpack_frame
from minikube_py.store.limits import FRAME_BYTES_MAX, PART_BYTES
from minikube_py.store.protocol import (
    Answer,
    decode_events,
    decode_range,
    event_frames,
    fragments,
    range_frames,
    split,
)


def kv(number: int, size_bytes: int) -> KeyValue:
    return KeyValue(b"/k/%d" % number, bytes(size_bytes), 1, number, 1, 0)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_frames_are_found_however_the_bytes_come(step):
    values = [(1, "a"), (2, b"b" * 300), (3, [None, True, 1.5])]
    data = b"".join(map(frame, values))
    reader = FrameReader(FRAME_BYTES_MAX)
    found = [value for start in range(0, len(data), step) for value in reader.feed(data[start : start + step])]
    assert found == [(1, "a"), (2, b"b" * 300), (3, (None, True, 1.5))]


def test_a_frame_over_the_limit_is_refused_before_it_comes():
    with pytest.raises(ProtocolError, match="101 bytes is over the limit of 100"):
        list(FrameReader(100).feed((101).to_bytes(4, "little")))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x92\x01", b"\x01\x02"])
def test_a_frame_that_is_no_msgpack_is_refused(body):
    with pytest.raises(ProtocolError, match="cannot be decoded"):
        list(FrameReader(FRAME_BYTES_MAX).feed(len(body).to_bytes(4, "little") + body))


@pytest.mark.parametrize(
    "error",
    [
        Compacted(3, 5),
        FutureRevision(9, 7),
        RequestTooLarge(5, 4),
        LeaseNotFound(),
        LeaseExists(),
        InvalidRequest("etcdserver: key is not provided"),
        Unavailable("later"),
        OutcomeUnknown("who knows"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_wire(error):
    [arrived] = FrameReader(FRAME_BYTES_MAX).feed(frame((1, Answer.ERROR, encode_error(error))))
    found = decode_error(arrived[2])
    assert type(found) is type(error) and str(found) == str(error) and vars(found) == vars(error)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([500], [(0, 1)]),
        ([50, 50, 1], [(0, 2), (2, 3)]),
        ([500, 500], [(0, 1), (1, 2)]),
        ([1] * 250, [(0, 100), (100, 200), (200, 250)]),
    ],
)
def test_split(sizes, expected):
    assert list(split(sizes, iter(sizes), 100)) == expected


@pytest.mark.parametrize("sizes", [[], [10], [10] * 3000, [1_500_000] * 3, [PART_BYTES] * 2 + [1]])
@pytest.mark.parametrize("with_fields", [False, True])
def test_ranges_come_back_whole_from_frames_below_the_limit(sizes, with_fields):
    kvs = [kv(i, size) for i, size in enumerate(sizes)]
    fields = [(i, None, "x") for i in range(len(kvs))] if with_fields else None
    result = RangeResult(kvs, 99, True, 7, fields, QueryStats("columns", 5, 0))
    parts = []
    for data in range_frames(4, result):
        assert len(data) <= FRAME_BYTES_MAX
        [(number, kind, *rest)] = FrameReader(FRAME_BYTES_MAX).feed(data)
        assert number == 4
        if kind == Answer.PART:
            parts.append(tuple(rest))
        else:
            assert decode_range(parts, rest[0]) == result


@pytest.mark.parametrize("count", [0, 1, 5, 4000])
def test_events_come_back_whole(count):
    events = [Event("PUT", kv(i, 1000), kv(i, 10) if i % 2 else None) for i in range(count)]
    found = []
    for data in event_frames(4, 7, events):
        assert len(data) <= FRAME_BYTES_MAX
        [(_, kind, revision, some, more)] = FrameReader(FRAME_BYTES_MAX).feed(data)
        assert (kind, revision) == (Answer.EVENTS, 7)
        found += decode_events(some)
        assert more == (len(found) < count)
    assert found == events


def test_a_frame_too_large_to_be_sent_whole_comes_in_fragments():
    whole = frame((4, Answer.OK, bytes(3 * PART_BYTES)))
    pieces = [next(FrameReader(FRAME_BYTES_MAX).feed(data)) for data in fragments(4, whole)]
    assert [piece[3] for piece in pieces] == [False, False, False, True]
    assert unpack_frame(b"".join(piece[2] for piece in pieces)) == (4, Answer.OK, bytes(3 * PART_BYTES))
