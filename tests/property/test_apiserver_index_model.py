"""Questions to the API server against plain Python over plain lists, while nodes, pods and indexes come and go.

Whatever is declared, complete or dropped: a list has exactly the nodes for which the question holds at its version, in
order, page by page; what a watch told adds up to it; and a field that nobody declares is refused.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from api_core import MERGE, Core, Events, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import LoopClock, LoopSyncs, run_virtually

from minikube_py.sim.disk import SimDisk
from minikube_py.store.member import MemberConfig, StoreMember

IN_MEMORY = MemberConfig(segment_bytes=256 << 10, fsync="inline", own_gc=False)
NODES, PODS, INDEXES = "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/minikube-py/v1/indexes"
POOL = 'metadata.labels["pool"]'
DECLARED: dict[str, dict[str, Any]] = {
    "fits": {"fields": ["free.cpu,free.memory"], "structure": "max-tree"},
    "pools": {"fields": [POOL, "rank=metadata.labels.rank:int"], "structure": "columns"},
    "ranks": {"fields": ["rank=metadata.labels.rank:int", "free.cpu"], "structure": "scan"},
    "load": {"fields": ["pods"], "sums": ["pods=pods:spec.nodeName:count@1"], "structure": "max-tree"},
}
OWNER = {"rank": ("pools", "ranks"), POOL: ("pools",), "pods": ("load",), "free.cpu": None}
NAMES = st.sampled_from(["n0", "n1", "n2"])
POOLS, RANKS = st.sampled_from(["a", "b", ""]), st.sampled_from(["1", "2", "10", "many", ""])
CPUS = st.sampled_from(["1", "2", "4"])
STEPS = st.one_of(
    st.tuples(st.just("node"), NAMES, CPUS, POOLS, RANKS),
    st.tuples(st.just("node"), NAMES, CPUS, POOLS, RANKS),
    st.tuples(st.just("label"), NAMES, POOLS, RANKS),
    st.tuples(st.just("gone"), NAMES),
    st.tuples(st.just("pod"), st.sampled_from("xy"), NAMES),
    st.tuples(st.just("pod gone"), st.sampled_from("xy")),
    st.tuples(st.just("declare"), st.sampled_from(sorted(DECLARED))),
    st.tuples(st.just("declare"), st.sampled_from(sorted(DECLARED))),
    st.tuples(st.just("drop"), st.sampled_from(sorted(DECLARED))),
    st.tuples(st.just("wait"), st.just("")),
)
TERMS: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "rank>=2": ("rank", lambda node: node["rank"] is not None and node["rank"] >= 2),
    "rank!=2": ("rank", lambda node: node["rank"] != 2),
    "rank in (1,10)": ("rank", lambda node: node["rank"] in (1, 10)),
    f"{POOL}=a": (POOL, lambda node: node["pool"] == "a"),
    f"{POOL}>a": (POOL, lambda node: node["pool"] is not None and node["pool"] > "a"),
    "pods>=1": ("pods", lambda node: node["pods"] >= 1),
    "pods=0": ("pods", lambda node: node["pods"] == 0),
    "free.cpu>=1500m": ("free.cpu", lambda node: node["free"] >= 1500),
    "free.cpu<1": ("free.cpu", lambda node: node["free"] < 1000),
    "metadata.name!=n1": ("", lambda node: node["name"] != "n1"),
}
QUESTIONS = st.lists(st.sampled_from(sorted(TERMS)), min_size=1, max_size=3, unique=True)


def made(name: str, cpu: str, pool: str, rank: str) -> dict[str, Any]:
    labels = {key: value for key, value in (("pool", pool), ("rank", rank)) if value}
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


class World:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.declared: set[str] = set()
        self.watches: dict[str, tuple[Events, set[str]]] = {}

    async def nodes(self) -> list[dict[str, Any]]:
        """The objects that the queries select from, read from plain lists."""
        pods = (await self.core.done("GET", PODS))["items"]
        found = []
        for node in (await self.core.done("GET", NODES))["items"]:
            name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
            bound = [each for each in pods if each["spec"].get("nodeName") == name]
            rank = labels.get("rank", "")
            found.append({
                "name": name,
                "rank": int(rank) if rank.isdigit() else None,
                "pool": labels.get("pool"),
                "pods": len(bound),
                "free": 1000 * int(node["status"]["allocatable"]["cpu"]) - 500 * len(bound),
            })  # fmt: skip
        return found

    async def take(self, step: tuple[str, ...]) -> None:
        kind, name, *rest = step
        ask = self.core.ask
        if kind == "node":
            status, _ = await ask("POST", NODES, made(name, *rest))
            assert status in (201, 409)
        elif kind == "label":
            labels = {"pool": rest[0] or None, "rank": rest[1] or None}
            await ask("PATCH", f"{NODES}/{name}", {"metadata": {"labels": labels}}, content_type=MERGE)
        elif kind == "gone":
            await ask("DELETE", f"{NODES}/{name}")
        elif kind == "pod":
            await ask("POST", PODS, pod(name, rest[0], cpu="500m"))
        elif kind == "pod gone":
            await ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        elif kind == "declare":
            status, answer = await ask("POST", INDEXES, {"name": name, "on": "nodes", **DECLARED[name]})
            assert status == (200 if name in self.declared else 201), answer
            self.declared.add(name)
        elif kind == "drop":
            status, _ = await ask("DELETE", f"{INDEXES}/{name}")
            assert status == (200 if name in self.declared else 404)
            self.declared.discard(name)
        else:
            await self._complete()

    async def _complete(self) -> None:
        async with asyncio.timeout(20):
            while await self._building():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _building(self) -> bool:
        items = (await self.core.done("GET", INDEXES))["items"]
        return any(item["status"]["state"] == "building" for item in items)

    def known(self, terms: list[str]) -> bool:
        owners = [OWNER.get(TERMS[term][0]) for term in terms]
        return all(owner is None or self.declared.intersection(owner) for owner in owners)

    async def check(self, terms: list[str], limit: int) -> None:
        path = f"{NODES}?fieldSelector={quote(','.join(terms))}"
        if not self.known(terms):
            status, refused = await self.core.ask("GET", path)
            assert (status, refused["reason"]) == (400, "BadRequest")
            return
        wanted = [node["name"] for node in await self.nodes() if all(TERMS[term][1](node) for term in terms)]
        whole = await self.core.done("GET", path)
        assert [item["metadata"]["name"] for item in whole["items"]] == wanted
        page = await self.core.done("GET", f"{path}&limit={limit}")
        found = page["items"]
        while token := page["metadata"].get("continue"):
            page = await self.core.done("GET", f"{path}&limit={limit}&continue={token}")
            found += page["items"]
        assert found == whole["items"]


async def follow(world: World, terms: list[str]) -> None:
    """Opens a watch on the question, or takes in what one told, up to now, and compares it with a list."""
    text = ",".join(terms)
    if not world.known(terms):
        return
    path = f"{NODES}?fieldSelector={quote(text)}"
    listed = await world.core.done("GET", path)
    wanted = {item["metadata"]["name"] for item in listed["items"]}
    if text not in world.watches:
        version = listed["metadata"]["resourceVersion"]
        world.watches[text] = await world.core.watch(f"{path}&resourceVersion={version}"), wanted
        return
    events, held = world.watches[text]
    async with asyncio.timeout(10):
        while held != wanted:
            event = await events.next()
            if event is None or event[0] == "ERROR":
                # Its fields were declared again: whoever watches lists again.
                del world.watches[text]
                return
            kind, obj = event
            (held.discard if kind == "DELETED" else held.add)(obj["metadata"]["name"])


async def run(steps: list[tuple[tuple[str, ...], list[str], int]], watched: list[str]) -> None:
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        core = Core(Path(folder))
        core.member = StoreMember(SimDisk(), LoopClock(), rng, IN_MEMORY, syncs=LoopSyncs())
        await core.start()
        try:
            world = World(core)
            for step, terms, limit in steps:
                await world.take(step)
                await world.check(terms, limit)
                await follow(world, watched)
        finally:
            await core.stop()


@settings(max_examples=60)
@given(st.lists(st.tuples(STEPS, QUESTIONS, st.integers(1, 2)), min_size=6, max_size=20), QUESTIONS)
def test_questions_while_indexes_come_and_go(steps: list[Any], watched: list[str]) -> None:
    run_virtually(lambda: run(steps, watched))
