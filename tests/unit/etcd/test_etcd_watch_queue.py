"""What waits for the reader of a watch stream is bounded with the objects that it takes."""

from __future__ import annotations

from fake_etcd import FakeEtcd, fake_etcd

from minikube_py.etcd.messages import pb
from minikube_py.etcd.watch import ANSWER_COST_BYTES, EVENT_COST_BYTES, WAITING_BYTES_MAX, WatchStream

WATCHES = 400


async def watched(etcd: FakeEtcd, *, notified: bool) -> WatchStream:
    """Many watches on one key, whose creation was read."""
    stream = WatchStream(etcd.node)
    for _ in range(WATCHES):
        asked = pb.WatchCreateRequest(key=b"k", progress_notify=notified)
        await stream.take(pb.WatchRequest(create_request=asked))
        await stream.next()
    return stream


async def test_small_events_of_many_watches_pause_a_stream_by_what_they_take() -> None:
    async with fake_etcd() as etcd:
        stream = await watched(etcd, notified=False)
        puts = 40
        revisions = [await etcd.put(b"k", b"") for _ in range(puts)]
        most = WAITING_BYTES_MAX // (ANSWER_COST_BYTES + EVENT_COST_BYTES) + 1
        assert stream.behind == WATCHES and stream.waiting <= most < puts * WATCHES
        assert etcd.node.watch_bytes == stream.waiting_bytes <= WAITING_BYTES_MAX + 2 * ANSWER_COST_BYTES
        seen: dict[int, list[int]] = {}
        while sum(map(len, seen.values())) < puts * WATCHES:
            answer = await stream.next_message()
            seen.setdefault(answer.watch_id, []).extend(event.kv.mod_revision for event in answer.events)
        assert len(seen) == WATCHES and all(each == revisions for each in seen.values())
        stream.close()
        assert etcd.node.watch_bytes == 0


async def test_progress_waits_once_for_each_watch_however_often_it_is_due() -> None:
    async with fake_etcd() as etcd:
        stream = await watched(etcd, notified=True)
        for _ in range(3):
            for _ in range(20):
                stream.progress()
            assert stream.waiting == WATCHES
            assert {(await stream.next()).watch_id for _ in range(WATCHES)} == set(range(WATCHES))
        stream.close()
        assert etcd.node.watch_bytes == 0
