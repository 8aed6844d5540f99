"""A watch from any version, applied to the list of that version, gives the state: for every selector, at every moment."""  # noqa: E501

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from api_core import MERGE, PODS, Core, names, node, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

SELECTORS = (
    "labelSelector=team%3Dred",
    "labelSelector=team!%3Dred,size",
    "fieldSelector=spec.nodeName%3Dn1",
    "fieldSelector=spec.nodeName%3D",
    "fieldSelector=metadata.name%3Dp1",
    "fieldSelector=requests.cpu%3E%3D200m",
    "",
)
NODES = "/api/v1/nodes?fieldSelector=free.cpu%3E%3D2&allowWatchBookmarks=true"
NAMES = st.sampled_from([f"p{i}" for i in range(4)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.sampled_from(["red", "blue", ""]), st.sampled_from(["100m", "900m"])),
        st.tuples(st.just("label"), NAMES, st.sampled_from(["red", "blue", ""])),
        st.tuples(st.just("bind"), NAMES, st.sampled_from(["n1", "n2"])),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("watch"), st.sampled_from(SELECTORS)),
        st.tuples(st.just("watch nodes")),
        st.tuples(st.just("turn")),
    ),
    min_size=5,
    max_size=25,
)


class Mirror:
    """A list kept up by a watch, as an informer does it."""

    def __init__(self, query: str, listed: dict[str, Any], events: Any) -> None:
        self.query = query
        self.objects = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        self.events = events

    async def drain(self) -> None:
        """Takes in what is there, up to the end of the stream."""
        for kind, obj in await self.events.rest():
            name = obj["metadata"].get("name", "")
            if kind == "ADDED":
                assert name not in self.objects, f"{name} was added twice ({self.query})"
            if kind in ("MODIFIED", "DELETED"):
                assert name in self.objects, f"{kind} of {name}, which was not there ({self.query})"
            if kind in ("ADDED", "MODIFIED"):
                self.objects[name] = obj["metadata"]["resourceVersion"]
            elif kind == "DELETED":
                del self.objects[name]
            else:
                assert kind == "BOOKMARK", obj


async def step(core: Core, kind: str, *args: str) -> None:
    if kind == "create":
        name, team, cpu = args
        labels = {"team": team, "size": "s"} if team else {}
        await core.ask("POST", PODS, pod(name, cpu=cpu, labels=labels))
    elif kind == "label":
        name, team = args
        await core.ask("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"team": team or None}}}, content_type=MERGE)
    elif kind == "bind":
        name, target = args
        await core.ask("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": target}})
    elif kind == "delete":
        await core.ask("DELETE", f"{PODS}/{args[0]}?gracePeriodSeconds=0")
    else:
        await asyncio.sleep(0)


async def mirror(core: Core, path: str) -> Mirror:
    listed = await core.done("GET", path)
    joiner = "&" if "?" in path else "?"
    return Mirror(path, listed, await core.watch(f"{path}{joiner}resourceVersion={listed['metadata']['resourceVersion']}"))  # noqa: E501


async def run(steps: list[tuple[str, ...]], folder: Path) -> None:
    core = await Core(folder).start()
    for name in ("n1", "n2"):
        await core.done("POST", "/api/v1/nodes", node(name, cpu="2"))
    for name in ("p0", "p1", "p2"):
        await step(core, "create", name, "red", "100m")
    mirrors = [await mirror(core, f"{PODS}?{selector}") for selector in SELECTORS]
    history = [await core.done("GET", PODS)]
    for kind, *args in steps:
        if kind == "watch":
            mirrors.append(await mirror(core, f"{PODS}?{args[0]}" if args[0] else PODS))
        elif kind == "watch nodes":
            mirrors.append(await mirror(core, NODES))
        else:
            await step(core, kind, *args)
            history.append(await core.done("GET", PODS))
    # From every version there was, too.
    for listed in history[::3]:
        events = await core.watch(f"{PODS}?resourceVersion={listed['metadata']['resourceVersion']}")
        mirrors.append(Mirror(PODS, listed, events))
    wanted = [await core.done("GET", each.query) for each in mirrors]
    core.api.watching.finish_all()
    for each, listed in zip(mirrors, wanted):
        await each.drain()
        found = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert each.objects == found, each.query
    assert names(wanted[-1]) == sorted(names(wanted[-1]))
    await core.stop()


@settings(max_examples=60)
@given(STEPS)
def test_list_and_watch_give_the_state(steps: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(steps, Path(folder)))
