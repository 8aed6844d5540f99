"""ResourceQuotas under concurrent writes: never exceeded, and at rest what is used is what a recount gives."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from api_core import MERGE, Core, names
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.api.quota.charging import CONCERNED_MAX

IN = "/api/v1/namespaces/default"
QUOTA = f"{IN}/resourcequotas/q"
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "create", "create", "delete", "recount"]), st.integers(0, 9), st.booleans()),
    min_size=5,
    max_size=30,
)


async def limited(core: Core, **hard: str) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await core.done("POST", f"{IN}/resourcequotas", quota)
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    await core.done("PUT", f"{QUOTA}/status", {**quota, "status": status})


async def recount(core: Core) -> bool:
    """As the controller does: counts what is there after the quota was read, and writes if it is as it was."""
    quota = await core.done("GET", QUOTA)
    quota["status"]["used"]["configmaps"] = str(len(names(await core.done("GET", f"{IN}/configmaps"))))
    return (await core.ask("PUT", f"{QUOTA}/status", quota))[0] == 200


async def used(core: Core) -> dict[str, Any]:
    found: dict[str, Any] = (await core.done("GET", QUOTA))["status"]["used"]
    return found


@settings(max_examples=25)
@given(steps=STEPS, most=st.integers(0, 6), seed=st.integers(0, 999))
def test_no_interleaving_exceeds_a_quota(steps: list[tuple[str, int, bool]], most: int, seed: int) -> None:
    async def run(folder: str) -> None:
        core = await Core(Path(folder)).start()
        other = Core(Path(folder))
        other.api = core.server()
        await other.api.start()
        await limited(core, configmaps=str(most))
        seen: list[int] = []

        async def step(what: str, number: int, beside: bool) -> None:
            server = other if beside else core
            if what == "create":
                status, answer = await server.ask("POST", f"{IN}/configmaps", {"metadata": {"name": f"m{number}"}})
                assert status in (201, 409) or "exceeded quota: q, requested: configmaps=1" in answer["message"], answer
            elif what == "delete":
                await server.ask("DELETE", f"{IN}/configmaps/m{number}")
            else:
                await recount(server)
            seen.append(len(names(await core.done("GET", f"{IN}/configmaps"))))

        await asyncio.gather(*(step(*each) for each in steps))
        assert max(seen) <= most
        while not await recount(core):
            pass
        assert await used(core) == {"configmaps": str(seen[-1])}
        await other.api.stop()
        await core.stop()

    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(folder), seed)


async def test_all_that_fits_is_taken_and_charged_once(core: Core) -> None:
    await limited(core, configmaps="7", secrets="1")
    body = [{"metadata": {"name": f"m{i}"}} for i in range(12)]
    answers = await asyncio.gather(*(core.ask("POST", f"{IN}/configmaps", each) for each in body))
    assert [status for status, _ in answers].count(201) == 7
    assert await used(core) == {"configmaps": "7", "secrets": "0"}


async def test_what_is_refused_or_tried_uses_nothing(core: Core) -> None:
    await limited(core, configmaps="3")
    await core.done("POST", f"{IN}/configmaps", {"metadata": {"name": "a"}})
    version = (await core.done("GET", QUOTA))["metadata"]["resourceVersion"]
    assert (await core.ask("POST", f"{IN}/configmaps", {"metadata": {"name": "a"}}))[0] == 409
    assert (await core.ask("POST", f"{IN}/configmaps", {"metadata": {"name": "B"}}))[0] == 422
    assert (await core.ask("POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"name": "b"}}))[0] == 201
    assert await used(core) == {"configmaps": "1"}
    assert (await core.done("GET", QUOTA))["metadata"]["resourceVersion"] == version


async def test_the_object_and_its_charge_are_one_revision(core: Core) -> None:
    await limited(core, configmaps="3")
    made = await core.done("POST", f"{IN}/configmaps", {"metadata": {"name": "a"}})
    assert made["metadata"]["resourceVersion"] == (await core.done("GET", QUOTA))["metadata"]["resourceVersion"]


async def test_a_namespace_without_a_quota_pays_nothing(core: Core) -> None:
    """Not a read of the store, with quotas elsewhere or without."""
    asked: list[str] = []
    storage = core.member.storage

    async def create(name: str) -> list[str]:
        asked.clear()
        await core.done("POST", "/api/v1/namespaces/kube-public/configmaps", {"metadata": {"name": name}})
        return list(asked)

    def counted(name: str, call: Any) -> Any:
        def counting(*args: Any, **more: Any) -> Any:
            asked.append(name)
            return call(*args, **more)

        return counting

    for name in ("get", "range", "command"):
        setattr(storage, name, counted(name, getattr(storage, name)))
    await create("first")
    before = await create("before")
    await limited(core, configmaps="0")
    assert await create("after") == before == ["command"]


async def test_a_quota_that_is_unknown_yet_refuses(core: Core) -> None:
    """Until the controller has counted."""
    await core.done("POST", f"{IN}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}})
    await core.done("POST", f"{IN}/configmaps", {"metadata": {"name": "a"}})
    await core.done("PATCH", f"{QUOTA}/status", {"status": {"hard": {"configmaps": "1"}}}, MERGE)
    status, answer = await core.ask("POST", f"{IN}/configmaps", {"metadata": {"name": "b"}})
    assert (status, answer["message"]) == (
        403,
        'configmaps "b" is forbidden: status unknown for quota: q, resources: configmaps',
    )


async def test_an_object_may_concern_as_many_quotas_as_one_write_can_charge(core: Core) -> None:
    hard = {"configmaps": "9"}
    for number in range(CONCERNED_MAX + 1):
        quota = {"metadata": {"name": f"q{number}"}, "spec": {"hard": hard}}
        await core.done("POST", f"{IN}/resourcequotas", quota)
        status = {"hard": hard, "used": {"configmaps": "0"}}
        await core.done("PUT", f"{IN}/resourcequotas/q{number}/status", {**quota, "status": status})
    code, answer = await core.ask("POST", f"{IN}/configmaps", {"metadata": {"name": "m"}})
    told = "101 ResourceQuotas count it, and all are charged in one write: 100 at most"
    assert code == 403 and told in answer["message"]
    await core.done("DELETE", f"{IN}/resourcequotas/q7")
    await core.done("POST", f"{IN}/configmaps", {"metadata": {"name": "m"}})
