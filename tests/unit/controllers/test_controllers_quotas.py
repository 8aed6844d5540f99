"""The controller of ResourceQuotas beside admission: however creates and deletes fall, no quota is exceeded, and at
rest what is used is what there is."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from api_core import MERGE, Core, config_map, names, pod
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.api.errors import StatusError
from minikube_py.api.quota import pods
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.controllers.manager import ControllerManager
from minikube_py.controllers.resource_quotas import COUNTED_AT_ONCE, COUNTED_PER_S, RESYNC_S, ResourceQuotas, _Pace

IN = "/api/v1/namespaces/default"
HARD = {"configmaps": "3", "pods": "2", "requests.cpu": "350m"}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "create", "delete", "end")),
        st.sampled_from(("configmaps", "pods")),
        st.integers(0, 4),
    ),
    max_size=25,
)


@settings(max_examples=12)
@given(steps=STEPS, first=st.integers(0, 2), seed=st.integers(0, 999))
def test_at_rest_a_quota_says_what_there_is(steps: list[tuple[str, str, int]], first: int, seed: int) -> None:
    async def run(folder: str) -> None:
        core = await Core(Path(folder)).start()
        manager = ControllerManager(
            InProcessTransport(core.api, ADMIN), core.clock, random.Random(seed), names=[ResourceQuotas.name]
        )
        await manager.start()
        for number in range(first):
            await core.done("POST", f"{IN}/configmaps", config_map(f"before{number}"))
        await core.done("POST", f"{IN}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": HARD}})
        await core.clock.sleep(1.0)
        most = {"configmaps": 0, "pods": 0}

        async def step(what: str, plural: str, number: int) -> None:
            path = f"{IN}/{plural}"
            if what == "create":
                await core.ask("POST", path, pod(f"o{number}") if plural == "pods" else config_map(f"o{number}"))
            elif what == "delete":
                await core.ask("DELETE", f"{path}/o{number}")
            else:
                body = {"status": {"phase": "Succeeded"}}
                await core.ask("PATCH", f"{IN}/pods/o{number}/status", body, content_type=MERGE)
            most["configmaps"] = max(most["configmaps"], len(names(await core.done("GET", f"{IN}/configmaps"))))
            most["pods"] = max(most["pods"], await running())

        async def running() -> int:
            items = (await core.done("GET", f"{IN}/pods"))["items"]
            return sum(each["status"]["phase"] != "Succeeded" for each in items)

        await asyncio.gather(*(step(*each) for each in steps))
        await core.clock.sleep(RESYNC_S / 2)
        status = (await core.done("GET", f"{IN}/resourcequotas/q"))["status"]
        assert status["hard"] == HARD and most["configmaps"] <= 3 and most["pods"] <= 2
        pods, maps = await running(), len(names(await core.done("GET", f"{IN}/configmaps")))
        cpu = f"{pods}00m" if pods else "0"
        assert status["used"] == {"configmaps": str(maps), "pods": str(pods), "requests.cpu": cpu}
        assert manager.failures == []
        await manager.stop()
        await core.stop()

    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(folder), seed)


def test_beside_many_objects_events_in_between_are_one_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each pod that goes is a list of all, and nothing else is done until the last has gone."""

    async def run() -> None:
        core = await Core(tmp_path).start()
        many, going = COUNTED_AT_ONCE * 2, 40
        transport = InProcessTransport(core.api, ADMIN)
        manager = ControllerManager(transport, core.clock, random.Random(1), names=[ResourceQuotas.name])
        await manager.start()
        for number in range(many):
            await core.done("POST", f"{IN}/pods", pod(f"o{number}"))
        hard = {"pods": "1k", "requests.cpu": "1k"}
        await core.done("POST", f"{IN}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        await core.clock.sleep(1.0)
        read, plain = 0, pods.usage

        def counted(obj: Any, wall_s: float) -> Any:
            nonlocal read
            read += 1
            return plain(obj, wall_s)

        async def used() -> str:
            status = (await core.done("GET", f"{IN}/resourcequotas/q"))["status"]
            return str(status["used"]["pods"])

        assert await used() == str(many)
        monkeypatch.setattr(pods, "usage", counted)
        begun_s = core.clock.monotonic_s()
        for number in range(going):
            await core.done("DELETE", f"{IN}/pods/o{number}?gracePeriodSeconds=0")
            await core.clock.sleep(0.01)
        gone_s = core.clock.monotonic_s() - begun_s
        await core.clock.sleep(1.0)
        assert await used() == str(many - going)
        # One begins before the first has its share of the time, and one is due at the end.
        assert read <= gone_s * COUNTED_PER_S + 2 * many + going, read
        # What its owner changes does not wait.
        await core.done("PATCH", f"{IN}/resourcequotas/q", {"spec": {"hard": {"pods": "999"}}}, content_type=MERGE)
        await core.clock.sleep(0.05)
        assert (await core.done("GET", f"{IN}/resourcequotas/q"))["status"]["hard"]["pods"] == "999"
        await manager.stop()
        await core.stop()

    run_virtually(run, 1)


async def test_a_pace_is_of_one_quota_as_its_owner_wrote_it() -> None:
    """What was counted of an earlier version, or of one that has gone, holds up nobody."""
    quotas: Any = ResourceQuotas.__new__(ResourceQuotas)
    queued: list[tuple[str, float]] = []
    quotas._workers = SimpleNamespace(queue=SimpleNamespace(add_after=lambda *later: queued.append(later)))
    quotas._quotas = SimpleNamespace(store={"big/q": None, "small/q": None})
    quotas._clock = SimpleNamespace(monotonic_s=lambda: 1.0)
    counted: list[str] = []

    async def get(kind: Any, name: str, namespace: str) -> Any:
        counted.append(f"{namespace}/{name}")
        raise StatusError(404, "NotFound", name)

    quotas._client = SimpleNamespace(get=get)
    quotas._paces = {"big/q": (large := _Pace()), "small/q": _Pace()}
    large.counted(100_000, 0.0)
    await quotas._sync("big/q")
    await quotas._sync("small/q")
    assert counted == ["small/q"] and queued == [("big/q", 99.0)]
    # Its owner changes it while a count of the former version runs.
    running = quotas._paces.pop("big/q")
    await quotas._sync("big/q")
    running.counted(100_000, 1.0)
    await quotas._sync("big/q")
    assert counted == ["small/q", "big/q", "big/q"]
