"""No turn of the loop does much work for a selector: counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from api_core import MAPS, TABLE, Core, config_map
from turns import LINES_MAX, Turns

from minikube_py.api.registry import REGISTRY
from minikube_py.api.selectors import parse_field_selector, parse_label_selector
from minikube_py.apiserver.forms import negotiate
from minikube_py.apiserver.selection import Selection

CONFIG_MAPS = next(kind for kind in REGISTRY.kinds if kind.plural == "configmaps")
OBJECTS = 500
TERMS = ",".join(f"k{at}!=x" for at in range(999))
FIELD_TERMS = ",".join(["metadata.name!=a"] * 1000)
QUERIES = [f"labelSelector={TERMS}", f"labelSelector={TERMS},l1=v", f"fieldSelector={FIELD_TERMS}"]


async def until(reached: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if reached():
            return
        await asyncio.sleep(0)
    raise AssertionError("not reached")


async def filled(core: Core) -> Core:
    for at in range(OBJECTS):
        await core.done("POST", MAPS, config_map(f"m{at:05d}", {f"l{each}": "v" for each in range(20)}))
    return core


@pytest.mark.parametrize("accept", ["", TABLE])
@pytest.mark.parametrize("query", QUERIES)
async def test_lists_and_first_events_by_many_terms_are_made_in_slices(core: Core, query: str, accept: str) -> None:
    await filled(core)

    async def listed() -> int:
        return len((await core.done("GET", f"{MAPS}?{query}&limit=450"))["items"])

    async def watched() -> int:
        events = await core.watch(f"{MAPS}?{query}", **({"accept": accept} if accept else {}))
        return len(await events.take(OBJECTS))

    for work in (listed, watched):
        turns = Turns()
        assert await turns.of(work()) >= 450
        assert turns.most < LINES_MAX, work


async def test_a_change_is_shown_to_many_watchers_in_slices(core: Core) -> None:
    """Each with a selector of its own, which nothing is remembered of."""
    broadcaster = core.api.watching.broadcasters[CONFIG_MAPS]
    fields, form = parse_field_selector(CONFIG_MAPS, ""), negotiate("application/json")
    streams = []
    for at in range(3000):
        labels = parse_label_selector(f"a!=w{at}," + ",".join(f"k{each}!=x" for each in range(20)))
        streams.append(broadcaster.join(broadcaster.group(Selection(CONFIG_MAPS, "", labels, fields), form, False)))
    late = None

    async def changed() -> None:
        nonlocal late
        for name in "abc":
            await core.done("POST", MAPS, config_map(name, {f"k{each}": "v" for each in range(20)}))
        # In the middle of it: a watcher that is there already sees all, and one that begins now nothing earlier.
        selection = Selection(CONFIG_MAPS, "", parse_label_selector("late!=x"), fields)
        late = broadcaster.join(broadcaster.group(selection, form, False))
        await core.done("POST", MAPS, config_map("d"))
        await until(lambda: all(stream.queued_events == 4 for stream in streams[::100]))

    turns = Turns()
    await turns.of(changed())
    assert turns.most < LINES_MAX and late is not None
    assert [stream.queued_events for stream in streams] == [4] * 3000 and late.queued_events == 1


async def test_who_joins_a_group_sees_only_what_comes_then(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that are still to be shown belong to those that were there before."""
    monkeypatch.setattr("minikube_py.apiserver.watch.PUMPED_STEPS", 1)
    broadcaster = core.api.watching.broadcasters[CONFIG_MAPS]
    fields, form = parse_field_selector(CONFIG_MAPS, ""), negotiate("application/json")
    groups = [
        broadcaster.group(Selection(CONFIG_MAPS, "", parse_label_selector(f"a!={at}"), fields), form, True)
        for at in range(5)
    ]
    first = [broadcaster.join(group) for group in groups]
    for name in "abc":
        await core.done("POST", MAPS, config_map(name))
    second = [broadcaster.join(group) for group in groups]
    broadcaster.bookmark_all(core.api.cache.revision)
    await core.done("POST", MAPS, config_map("d"))
    await until(lambda: all(stream.queued_events >= 2 for stream in second))

    async def told(stream: Any) -> list[str]:
        events: list[str] = []
        while stream.queued_events:
            events += [event.type for batch in await stream.next() for event in batch.events]
        return events

    assert [await told(stream) for stream in first] == [["ADDED"] * 3 + ["BOOKMARK", "ADDED"]] * 5
    assert [await told(stream) for stream in second] == [["BOOKMARK", "ADDED"]] * 5


async def test_a_replay_is_made_in_slices(core: Core) -> None:
    created = await core.done("POST", MAPS, config_map("first"))
    for at in range(600):
        await core.done("POST", MAPS, config_map(f"m{at}", {f"l{each}": "v" for each in range(20)}))
    since = created["metadata"]["resourceVersion"]

    async def resumed() -> int:
        events = await core.watch(f"{MAPS}?labelSelector={TERMS}&resourceVersion={since}", accept=TABLE)
        return len(await events.take(600))

    turns = Turns()
    assert await turns.of(resumed()) == 600
    assert turns.most < LINES_MAX
