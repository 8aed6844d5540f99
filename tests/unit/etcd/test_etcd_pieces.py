"""Large answers and batches of events are made in pieces, each when it is sent, and once for watches that ask alike."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

import pytest
from fake_etcd import FakeEtcd, fake_etcd
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.etcd import pieces, watch
from minikube_py.etcd.answers import kv_bytes, kvs_bytes, range_response
from minikube_py.etcd.large import delete_bytes, range_bytes, txn_bytes
from minikube_py.etcd.messages import pb
from minikube_py.etcd.pieces import ITEM_COST_BYTES, PIECE_BYTES, Batch, Kept, Pieces, kv_size, message_of
from minikube_py.etcd.watch import WatchStream, event_of
from minikube_py.mvcc.types import DeleteResult, Event, KeyValue, RangeResult, TxnResult

NUMBERS = st.sampled_from([0, 1, 127, 128, 1 << 35, (1 << 63) - 1])
KVS = st.builds(
    KeyValue,
    st.binary(min_size=1, max_size=200),
    st.binary(max_size=200),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS | st.just(-5),
)
EVENTS = st.builds(Event, st.sampled_from(["PUT", "DELETE"]), KVS, st.none() | KVS)
VALUE_BYTES = 5_000
KEYS = 200
WATCHES = 10
FRAGMENT_BYTES = 400_000


@given(KVS)
def test_a_size_is_that_of_the_bytes(kv: KeyValue) -> None:
    assert kv_size(kv) == len(kv_bytes(kv))


@given(st.lists(EVENTS, min_size=1, max_size=20), st.booleans(), st.sampled_from([0, 1, 128]), st.integers(20, 2_000))
def test_a_batch_is_the_message_of_its_events(events: list[Event], prev_kv: bool, compacted: int, limit: int) -> None:
    told = [event_of(each, prev_kv=prev_kv, compacted=compacted) for each in events]
    expected = pb.WatchResponse(header=pb.ResponseHeader(revision=9), watch_id=4, events=told)
    head = pb.WatchResponse(header=expected.header, watch_id=4)
    batch = Batch(Kept(), events, 9, 0, prev_kv=prev_kv, compacted=compacted)
    (whole,) = run_virtually(lambda: batch.answers(head, 0))
    data = b"".join(whole.pieces)
    assert len(data) == whole.size_bytes and pb.WatchResponse.FromString(data) == expected
    found = run_virtually(lambda: batch.answers(head, limit))
    parts = [run_virtually(partial(message_of, "WatchResponse", each)) for each in found]
    assert [event for part in parts for event in part.events] == told
    assert [part.fragment for part in parts] == [True] * (len(parts) - 1) + [False]
    # As etcd cuts: less than the limit, unless one event alone reaches it; and no sooner than needed.
    assert all(part.ByteSize() < limit or len(part.events) == 1 for part in parts)
    for part, following in itertools.pairwise(parts):
        longer = pb.WatchResponse(header=head.header, watch_id=4, fragment=True, events=part.events)
        longer.events.append(following.events[0])
        assert longer.ByteSize() >= limit


async def watching(etcd: FakeEtcd, **asked: Any) -> WatchStream:
    stream = WatchStream(etcd.node)
    request = pb.WatchCreateRequest(key=b"k", range_end=b"l", prev_kv=True, **asked)
    await stream.take(pb.WatchRequest(create_request=request))
    await stream.next()
    return stream


async def test_a_large_deletion_is_made_once_for_all_watches_that_ask_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = Batch._bytes

    def counted(batch: Batch, events: Any) -> bytes:
        data = real(batch, events)
        made.append(len(data))
        return data

    monkeypatch.setattr(Batch, "_bytes", counted)
    async with fake_etcd() as etcd:
        for number in range(KEYS):
            await etcd.put(b"k%03d" % number, bytes(VALUE_BYTES))
        streams = [await watching(etcd) for _ in range(WATCHES)]
        plain = await watching(etcd, filters=[0])
        await etcd.delete_all(b"k", b"l")
        # Nothing is made within the step that applies the deletion.
        assert made == []
        assert all(stream.waiting == 1 for stream in streams)

        async def read(stream: WatchStream) -> int:
            answer, size_bytes = await stream.next(), 0
            assert type(answer) is Pieces
            for piece in answer.pieces:
                size_bytes += len(piece)
                await asyncio.sleep(0)
            assert size_bytes == answer.size_bytes > KEYS * VALUE_BYTES
            return size_bytes

        sizes = await asyncio.gather(*map(read, streams))
        assert sum(made) <= sizes[0] and max(made) <= PIECE_BYTES
        # Another filter is another batch.
        await read(plain)
        assert sizes[0] < sum(made) <= 2 * sizes[0]
        for stream in (*streams, plain):
            stream.close()
        assert etcd.node.last_batch is None and not etcd.node.last_shared


async def test_fragments_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FRAGMENT_BYTES", FRAGMENT_BYTES)
    async with fake_etcd() as etcd:
        for number in range(KEYS):
            await etcd.put(b"k%03d" % number, bytes(VALUE_BYTES))
        stream = await watching(etcd, fragment=True)
        await etcd.delete_all(b"k", b"l")
        parts = [await stream.next_message()]
        while parts[-1].fragment:
            parts.append(await stream.next_message())
        assert sum(len(part.events) for part in parts) == KEYS
        assert len(parts) == 3 and all(part.ByteSize() < FRAGMENT_BYTES for part in parts)


def test_kept_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "KEPT_BYTES", 1_000)
    kept = Kept()
    for _ in range(2):
        for number in range(30):
            assert kept.piece((1, number, 0), lambda number=number: bytes([number]) * 100) == bytes([number]) * 100
            assert kept.piece((1, number, 0), bytes) != b"" and kept.bytes <= 1_000
    assert kept.made == 60


@pytest.mark.parametrize("kind", ["range", "delete", "txn"])
def test_few_large_values_are_written_in_pieces(kind: str) -> None:
    """By their bytes: a thousand keys may have 1.5 MB each."""
    kvs = [KeyValue(b"k%d" % number, bytes(100_000), 2, 3, 1, 0) for number in range(30)]
    header = lambda revision: pb.ResponseHeader(revision=revision)  # noqa: E731
    ranged, deleted = RangeResult(kvs, 30, False, 7), DeleteResult(7, 30, tuple(kvs))
    made = run_virtually(
        lambda: {
            "range": lambda: range_bytes(header, ranged),
            "delete": lambda: delete_bytes(header, deleted),
            "txn": lambda: txn_bytes(header(7), TxnResult(7, True, (ranged, deleted))),
        }[kind]()
    )
    parts = list(made.pieces)
    assert sum(map(len, parts)) == made.size_bytes > 3_000_000
    assert max(map(len, parts)) <= PIECE_BYTES + ITEM_COST_BYTES
    if kind == "range":
        assert pb.RangeResponse.FromString(b"".join(parts)) == range_response(header, ranged)


def test_many_small_keys_cost_more_than_their_bytes() -> None:
    kvs = [KeyValue(b"k%d" % number, b"", 2, 3, 1, 0) for number in range(5_000)]
    made = run_virtually(
        lambda: range_bytes(lambda revision: pb.ResponseHeader(revision=revision), RangeResult(kvs, 5_000, False, 7))
    )
    assert len(list(made.pieces)) > 5_000 * ITEM_COST_BYTES // PIECE_BYTES
    assert made.size_bytes > len(kvs_bytes(2, kvs))
