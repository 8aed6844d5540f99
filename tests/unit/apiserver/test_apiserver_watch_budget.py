"""What waits for all watchers together: counted once where it is shared, bounded, and given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from virtual_time import LoopClock, run_virtually

from minikube_py.api.kinds.core import CONFIGMAPS
from minikube_py.apiserver.forms import PLAIN
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.watch import Encoder
from minikube_py.apiserver.watch_stream import Batch, Stream, WatchBudget, left
from minikube_py.client.transport import WatchEvent
from tests.support.api_core import Core, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
ENCODER = Encoder(CONFIGMAPS, PLAIN, LoopClock())


def batch(size: int) -> Batch:
    return Batch([WatchEvent("ADDED", b"x" * (size - 40))])


def unique_bytes(streams: list[Stream]) -> int:
    return sum(each.size_bytes for each in {id(each): each for stream in streams for each in stream._queue}.values())


ACTIONS = st.one_of(
    st.tuples(st.just("push"), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(100, 3000)),
    st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 5000)),
    st.tuples(st.just("close"), st.integers(0, 3), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=40), st.integers(1000, 20_000))
def test_what_is_held_is_what_waits_and_stays_under_the_limit(actions: list[tuple[str, Any, int]], limit: int) -> None:
    async def run() -> None:
        budget = WatchBudget(Limits(watch_queues_bytes_max=limit))
        streams = [Stream(Limits(), ENCODER, left, budget) for _ in range(4)]
        for action, which, size in actions:
            if action == "push":
                shared = batch(size)
                for at in which:
                    streams[at].push(shared)
                budget.relieve()
            elif action == "take":
                if streams[which]._queue:
                    taken = await streams[which].next(size)
                    assert sum(each.size_bytes for each in taken[:-1]) < size
            else:
                streams[which].close()
            assert budget.held_bytes == unique_bytes(streams)
            ended = [stream for stream in streams if stream.ended]
            # What those who were cut off are still told is small.
            assert budget.held_bytes <= limit + 600 * len(ended)
            assert set(budget.waiting) == {stream for stream in streams if stream._queue}
            assert all(each.queued_bytes == sum(b.size_bytes for b in each._queue) for each in streams)
        for stream in streams:
            stream.close()
        assert budget.held_bytes == 0 and not budget.waiting

    run_virtually(run)


async def test_those_furthest_behind_are_cut_off_and_say_the_limit() -> None:
    budget = WatchBudget(Limits(watch_queues_bytes_max=10_000))
    slow, slower = (Stream(Limits(), ENCODER, left, budget) for _ in range(2))
    slow.push(batch(1000))
    for _ in range(10):
        slower.push(batch(1000))
    budget.relieve()
    assert (slower.ended, slow.ended, budget.cut) == (True, False, 1)
    ((event,),) = [each.events for each in await slower.next()]
    assert event.type == "ERROR" and b"the limit for all is 10000 bytes" in event.object
    assert await slower.next() == []


async def test_a_slow_watcher_ends_for_the_sake_of_all_and_says_so_in_the_metrics(tmp_path: Path) -> None:
    core = await Core(tmp_path, Limits(watch_queues_bytes_max=100_000)).start()
    slow, quick = await core.watch(MAPS), await core.watch(f"{MAPS}?labelSelector=a!=b")
    await core.done("POST", MAPS, config_map("m"))
    for at in range(10):
        await core.done("PUT", f"{MAPS}/m", config_map("m", x=str(at) + "y" * 20_000))
        await quick.take(1 if at else 2)
    assert [kind for kind, _ in await slow.rest()] == ["ERROR"]
    metrics = core.api.metrics()
    assert metrics["apiserver_terminated_watchers_total"] == 1
    assert metrics["apiserver_watch_queues_bytes"] == 0
    await core.stop()
