"""What follows an etcd never ends by what is stored there, and says when it does not follow."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_etcd import FakeEtcd, fake_etcd

from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.etcd.feed import COMPACT_KEY, LOOKED_AT, RETRY_MOST_S, UNANSWERED_MAX, Feed
from minikube_py.etcd.keys import Keys
from minikube_py.etcd.mirror import FIELDS_PREFIX, Mirror, fields_key, fields_value
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.index.declared import INDEXES_PREFIX
from minikube_py.mvcc.types import FROM_KEY, RangeRequest
from minikube_py.sim.edges import EDGE_BYTES, EDGE_INTS, EDGE_TEXTS, Edges

WITHIN_S = 60.0
PAGE_BYTES = 40_000
NODE = b'{"metadata":{"name":"n","uid":"u"},"status":{"allocatable":{"cpu":"4"}}}'
SPEC = b'{"name":"i","on":"nodes","fields":["free.cpu"],"structure":"columns"}'


@contextlib.asynccontextmanager
async def following(etcd: FakeEtcd) -> AsyncIterator[Feed]:
    feed = etcd.feed()
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop(Unavailable("the test ends"))


async def settled() -> None:
    await asyncio.sleep(2 * RETRY_MOST_S)


def in_etcd(etcd: FakeEtcd) -> dict[bytes, tuple[bytes, int]]:
    keys, state = Keys(), etcd.node.member.state
    found = state.range(RangeRequest(keys.low, keys.high)).kvs
    return {keys.back(kv.key): (kv.value, kv.mod_revision) for kv in found if keys.back(kv.key)}


def in_mirror(feed: Feed) -> dict[bytes, tuple[bytes, int]]:
    return {kv.key: (kv.value, kv.mod_revision) for kv in feed.mirror.state.range(RangeRequest(b"\0", FROM_KEY)).kvs}


def unreadable(key: bytes) -> bool:
    return key.startswith(INDEXES_PREFIX)


async def follows(feed: Feed, etcd: FakeEtcd, revision: int) -> None:
    await feed.reached(revision, WITHIN_S)
    assert not feed.trouble and not any(task.done() for task in feed._tasks)
    theirs, ours = in_etcd(etcd), in_mirror(feed)
    assert {key: value for key, value in ours.items() if not unreadable(key)} == {
        key: value for key, value in theirs.items() if not unreadable(key)
    }


def foreign(rng: random.Random) -> tuple[bytes, bytes]:
    """A key and a value as another program, or a mistaken operator, may leave them."""
    edges, keys = Edges(rng, 1.0), Keys()
    values = [
        NODE, SPEC, fields_value(NODES), fields_value(PODS), edges.json(), edges.stored(NODE),
        rng.choice(EDGE_BYTES), rng.choice(EDGE_TEXTS).encode(), b"%d" % rng.choice(EDGE_INTS),
        b"9" * rng.choice((18, 19, 20, 40, 4300, 5000)), b"0" * 5000 + b"1", b"-5", b"+5", "٣".encode(),
    ]  # fmt: skip
    value = bytearray(rng.choice(values))
    for _ in range(rng.choice((0, 0, 1, 3))):
        if value:
            value[rng.randrange(len(value))] = rng.randrange(256)
    tail = rng.choice((b"", b"n", b"default/n", *EDGE_BYTES, rng.choice(EDGE_TEXTS).encode()))[:200]
    names = [
        b"/registry/nodes/", b"/registry/pods/", b"/registry/pods/default/", b"/registry/", b"/registry",
        b"/registry/minikube-py/", INDEXES_PREFIX, FIELDS_PREFIX,
    ]  # fmt: skip
    known = [*(keys.out(name) + tail for name in names), keys.low + tail, keys.out(fields_key("nodes"))]
    return (COMPACT_KEY if rng.random() < 0.4 else rng.choice(known)), bytes(value)


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_stands_in_an_etcd_is_followed_and_loaded(seed: int) -> None:
    rng = random.Random(seed)
    async with fake_etcd() as etcd, following(etcd) as feed:
        for _ in range(25):
            key, value = foreign(rng)
            revision = await (etcd.delete(key) if rng.random() < 0.1 else etcd.put(key, value))
            if rng.random() < 0.3:
                await follows(feed, etcd, revision)
            if rng.random() < 0.05:
                await etcd.compact(revision)
                feed._doubted = True
                feed._restart()
        await follows(feed, etcd, await etcd.put(b"/registry/nodes/last", NODE))
        async with following(etcd) as second:
            await follows(second, etcd, etcd.node.member.state.revision)


async def test_a_change_that_cannot_be_applied_is_read_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *given: Any) -> Any:
        raise KeyError("planted")

    async with fake_etcd() as etcd, following(etcd) as feed:
        monkeypatch.setattr(Mirror, "applying", broken)
        await follows(feed, etcd, await etcd.put(b"/registry/nodes/n", NODE))
        assert feed.loads == 2


@pytest.mark.parametrize("value", [b"5000000", b"9" * 20, b"9" * 5000, b"nonsense", b"-1", b""])
async def test_a_compaction_that_never_happened_is_ignored(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with fake_etcd() as etcd:
        first = await etcd.put(b"/registry/nodes/n", NODE)
        await etcd.put(COMPACT_KEY, value)
        async with following(etcd) as feed:
            assert feed.mirror.state.compact_revision <= first
            await etcd.put(COMPACT_KEY, value)
            await follows(feed, etcd, await etcd.put(b"/registry/nodes/n", NODE))
            assert feed.mirror.state.compact_revision <= first
            await etcd.put(COMPACT_KEY, b"%d" % (first + 1))
            await follows(feed, etcd, await etcd.put(b"/registry/nodes/n", NODE))
            assert feed.mirror.state.compact_revision == first + 1
    assert bool(caplog.records) == bool(value)


@pytest.mark.parametrize("place", [(Mirror, "loading"), (Feed, "_take")])
async def test_a_bug_is_logged_and_reported_and_tried_again_ever_more_seldom(
    place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0
    sound = getattr(*place)

    def broken(self: Any, *given: Any) -> Any:
        nonlocal tries
        tries += 1
        raise KeyError("planted")

    caplog.set_level(logging.CRITICAL)
    async with fake_etcd() as etcd, following(etcd) as feed:
        await follows(feed, etcd, await etcd.put(b"/registry/nodes/n", NODE))
        monkeypatch.setattr(*place, broken)
        feed._doubted = True
        feed._restart()
        revision = await etcd.put(b"/registry/nodes/n", NODE + b" ")
        await asyncio.sleep(100 * RETRY_MOST_S)
        assert "KeyError" in feed.trouble and 50 < tries < 150
        assert not any(task.done() for task in feed._tasks)
        monkeypatch.setattr(*place, sound)
        await settled()
        await follows(feed, etcd, revision)


async def test_a_bug_in_the_upkeep_is_reported_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_etcd() as etcd, following(etcd) as feed:

        def broken() -> None:
            raise KeyError("planted")

        monkeypatch.setattr(feed._collector, "step", broken)
        await settled()
        assert "keep_house" in feed.trouble
        monkeypatch.undo()
        await settled()
        await follows(feed, etcd, await etcd.put(b"/registry/nodes/n", NODE))


@pytest.mark.parametrize("takes_s", [4.0, 20.0])
async def test_a_watch_whose_messages_take_long_to_arrive_is_followed(takes_s: float) -> None:
    large = NODE + b" " * 50_000
    async with fake_etcd() as etcd, following(etcd) as feed:
        etcd.watch_rate = len(large) / takes_s
        feed._restart()
        for _ in range(3):
            revision = await etcd.put(b"/registry/nodes/n", large)
        begun = feed.streams
        feed.want(revision)
        await asyncio.sleep(12 * takes_s)
        assert feed.mirror.revision == revision and feed.streams - begun <= 6
        await settled()
        await follows(feed, etcd, revision)
        assert feed.questions_max == UNANSWERED_MAX


def compact_before_reads(etcd: FakeEtcd, times: int) -> None:
    read, asked = etcd.read, list[Any]()

    async def compacted(name: str, request: Any, once_s: float | None = None) -> Any:
        if len(asked) < times:
            await etcd.compact(await etcd.put(b"other", b""))
        asked.append(request)
        return await read(name, request, once_s)

    etcd.read = compacted  # type: ignore[method-assign]


async def test_a_compaction_between_two_pages_of_a_start_does_not_end_it() -> None:
    async with fake_etcd() as etcd:
        for number in range(40):
            await etcd.put(b"/registry/nodes/%02d" % number, NODE)
        compact_before_reads(etcd, 6)
        async with following(etcd) as feed:
            assert len(feed.mirror.state.index.current) >= 40


@pytest.mark.parametrize("foreign", [0, LOOKED_AT - 1])
async def test_another_kubernetes_is_found_behind_a_compaction(foreign: int) -> None:
    async with fake_etcd() as etcd:
        for number in range(foreign):
            await etcd.put(b"/registry/nodes/%03d" % number, NODE)
        await etcd.put(b"/registry/nodes/%03d" % foreign, b"k8s\0")
        compact_before_reads(etcd, 6)
        with pytest.raises(InvalidRequest, match="another Kubernetes"):
            await etcd.feed().start()


async def test_a_start_looks_at_no_more_large_values_than_a_page_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("feed", "pages"):
        monkeypatch.setattr(f"minikube_py.etcd.{module}.PAGE_BYTES", PAGE_BYTES)
    async with fake_etcd() as etcd:
        for number in range(60):
            await etcd.put(b"/registry/configmaps/%02d" % number, b'{"metadata":{}}' + b" " * 3_000)
        feed, read, size_bytes = etcd.feed(), etcd.read, 0

        async def counted(name: str, request: Any, once_s: float | None = None) -> Any:
            nonlocal size_bytes
            answer = await read(name, request, once_s)
            size_bytes += answer.ByteSize()
            return answer

        etcd.read = counted  # type: ignore[method-assign]
        await feed._check_first()
        assert PAGE_BYTES <= size_bytes < 2 * PAGE_BYTES
