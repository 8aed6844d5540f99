"""Writes and lists of the API server against a dictionary per resourceVersion.

A write is done if and only if the version it names is the stored one; of many at once none is lost. A list shows
exactly the state of the version it names, page by page, whatever is written between the pages.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from api_core import MERGE, Core, config_map
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import LoopClock, LoopSyncs, run_virtually

from minikube_py.sim.disk import SimDisk
from minikube_py.store.member import MemberConfig, StoreMember

IN_MEMORY = MemberConfig(segment_bytes=256 << 10, fsync="inline", own_gc=False)
ALL = "/api/v1/configmaps"
NAMESPACES = ("default", "kube-public")
KEYS = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from("abcd"))
TEAMS = st.sampled_from(["red", "blue"])
NAMED = st.sampled_from(["current", "current", "none", "stale", "future"])
WRITES = st.one_of(
    st.tuples(st.just("create"), KEYS, TEAMS),
    st.tuples(st.just("create"), KEYS, TEAMS),
    st.tuples(st.sampled_from(["put", "patch", "delete"]), KEYS, NAMED),
    st.tuples(st.sampled_from(["race of puts", "race of patches"]), KEYS, st.integers(2, 5)),
)
LISTS = st.tuples(
    st.just("list"),
    st.sampled_from(["", *NAMESPACES]),
    st.sampled_from(["", "red", "blue"]),
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1, 2, 5]),
    st.lists(WRITES, min_size=1, max_size=5),
)
STEPS = st.lists(st.one_of(WRITES, WRITES, WRITES, LISTS), min_size=5, max_size=30)

Key = tuple[str, str]


class Stored(NamedTuple):
    version: int
    team: str
    data: dict[str, str]


def path_of(key: Key) -> str:
    return f"/api/v1/namespaces/{key[0]}/configmaps/{key[1]}"


class World:
    """`states`: the objects by the version at which they came to stand so."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.states: dict[int, dict[Key, Stored]] = {}
        self.writes = 0

    @property
    def now(self) -> dict[Key, Stored]:
        return self.states[max(self.states)]

    def at(self, version: int) -> dict[Key, Stored]:
        return self.states[max(each for each in self.states if each <= version)]

    def version_of(self, key: Key, named: str) -> str:
        """A version to name in a write; "" for none."""
        current = self.now[key].version
        if named == "none":
            return ""
        older = [state[key].version for state in self.states.values() if key in state and state[key].version < current]
        return str({"current": current, "future": current + 1000, "stale": max(older, default=current)}[named])

    def expected(self, key: Key, version: str) -> int:
        if key not in self.now:
            return 404
        return 409 if version not in ("", str(self.now[key].version)) else 200

    def store(self, obj: dict[str, Any]) -> None:
        metadata = obj["metadata"]
        version = int(metadata["resourceVersion"])
        assert version > max(self.states), "versions only grow"
        stored = Stored(version, metadata.get("labels", {}).get("team", ""), obj.get("data", {}))
        self.states[version] = {**self.now, (metadata["namespace"], metadata["name"]): stored}

    async def begin(self) -> None:
        listed = await self.core.done("GET", ALL)
        self.states[int(listed["metadata"]["resourceVersion"])] = {}
        assert not listed["items"]
        for namespace in NAMESPACES:
            for name in "abc":
                await self.create((namespace, name), "red" if name == "b" else "blue")

    async def create(self, key: Key, team: str) -> None:
        self.writes += 1
        body = config_map(key[1], {"team": team}, write=str(self.writes))
        status, answer = await self.core.ask("POST", path_of(key).rpartition("/")[0], body)
        assert status == (409 if key in self.now else 201), answer
        if status == 201:
            self.store(answer)

    async def change(self, what: str, key: Key, named: str) -> None:
        version = self.version_of(key, named) if key in self.now else "7"
        self.writes += 1
        data = {"write": str(self.writes)}
        metadata = {"resourceVersion": version} if version else {}
        if what == "delete":
            body: Any = {"preconditions": metadata} if metadata else None
            status, answer = await self.core.ask("DELETE", path_of(key), body)
        elif what == "put":
            body = config_map(key[1], {"team": "blue"}, **data)
            body["metadata"] |= metadata
            status, answer = await self.core.ask("PUT", path_of(key), body)
        else:
            body = {"metadata": {**metadata, "labels": {"team": "red"}}, "data": data}
            status, answer = await self.core.ask("PATCH", path_of(key), body, content_type=MERGE)
        assert status == self.expected(key, version), (what, named, version, answer)
        if status == 200 and what != "delete":
            kept = {**self.now[key].data, **data} if what == "patch" else data
            assert answer["data"] == kept
            self.store(answer)
        elif status == 200:
            listed = await self.core.done("GET", ALL)
            self.states[int(listed["metadata"]["resourceVersion"])] = {k: v for k, v in self.now.items() if k != key}

    async def race(self, what: str, key: Key, writers: int) -> None:
        """Many at once: of puts that name one version one is done, of patches that name none all are."""
        if key not in self.now:
            return
        before = self.now[key]

        async def write(number: int) -> tuple[int, dict[str, Any]]:
            if what == "race of patches":
                body: Any = {"data": {f"race{number}": str(before.version)}}
                return await self.core.ask("PATCH", path_of(key), body, content_type=MERGE)
            body = config_map(key[1], {"team": "red"}, writer=str(number), at=str(before.version))
            body["metadata"]["resourceVersion"] = str(before.version)
            return await self.core.ask("PUT", path_of(key), body)

        answers = await asyncio.gather(*map(write, range(writers)))
        done = [obj for status, obj in answers if status == 200]
        for obj in sorted(done, key=lambda obj: int(obj["metadata"]["resourceVersion"])):
            self.store(obj)
        if what == "race of puts":
            assert sorted(status for status, _ in answers) == [200] + [409] * (writers - 1)
        else:
            assert len(done) == writers
            expected = {**before.data, **{f"race{number}": str(before.version) for number in range(writers)}}
            assert self.now[key].data == expected, "a write was lost"

    async def write(self, what: str, key: Key, argument: Any) -> None:
        if what == "create":
            await self.create(key, argument)
        elif what.startswith("race"):
            await self.race(what, key, argument)
        else:
            await self.change(what, key, argument)

    async def list(self, namespace: str, team: str, limit: int, back: int, between: list[Any]) -> None:
        """In pages, with writes between them; `back`: so many versions ago, 0 is now."""
        path = f"/api/v1/namespaces/{namespace}/configmaps" if namespace else ALL
        query = [f"labelSelector=team%3D{team}"] if team else []
        if back:
            version = sorted(self.states)[-min(back, len(self.states))]
            query += [f"resourceVersion={version}", "resourceVersionMatch=Exact"]
        if limit:
            query.append(f"limit={limit}")
        page = await self.core.done("GET", f"{path}?{'&'.join(query)}")
        version = int(page["metadata"]["resourceVersion"])
        wanted = {
            key: stored for key, stored in self.at(version).items()
            if namespace in ("", key[0]) and team in ("", stored.team)
        }  # fmt: skip
        assert back or wanted == {k: v for k, v in self.now.items() if namespace in ("", k[0]) and team in ("", v.team)}
        writes = iter(between)
        found: list[dict[str, Any]] = []
        while True:
            found += page["items"]
            assert not limit or len(page["items"]) <= limit
            metadata = page["metadata"]
            assert metadata.get("remainingItemCount", len(wanted) - len(found)) == len(wanted) - len(found)
            if not (token := metadata.get("continue")):
                break
            for step in writes:
                await self.write(*step)
                break
            going_on = [f"labelSelector=team%3D{team}"] if team else []
            page = await self.core.done("GET", f"{path}?{'&'.join([*going_on, f'limit={limit}', f'continue={token}'])}")
            assert int(page["metadata"]["resourceVersion"]) == version
        keys = [(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in found]
        assert keys == sorted(wanted)
        for key, obj in zip(keys, found, strict=True):
            assert int(obj["metadata"]["resourceVersion"]) == wanted[key].version
            assert obj["data"] == wanted[key].data


async def run(steps: list[Any], folder: Path) -> None:
    core = Core(folder)
    core.member = StoreMember(SimDisk(), LoopClock(), random.Random(1), IN_MEMORY, syncs=LoopSyncs())
    await core.start()
    world = World(core)
    await world.begin()
    for what, *arguments in [*steps, ("list", "", "", 2, 0, [])]:
        if what == "list":
            await world.list(*arguments)
        else:
            await world.write(what, *arguments)
    await core.stop()


@settings(max_examples=150)
@given(STEPS)
def test_writes_and_lists_are_those_of_a_dictionary_per_version(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(steps, Path(folder)))
