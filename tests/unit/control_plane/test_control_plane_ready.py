"""Without a quorum every role says within two seconds that it is not ready, and all are alive."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from api_core import Core
from member_net import MemberNet, three

from minikube_py.apiserver.health import READY_S, within
from minikube_py.control_plane.role_apiserver import ApiServerRole
from minikube_py.control_plane.role_clients import ControllersRole, KubeletRole, SchedulerRole
from minikube_py.control_plane.role_store import StoreRole
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER

ANY: Any = None
FOLDER = Path("nowhere")


class Answering:
    """A transport. `status` 0: no answer ever comes."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def request(self, method: str, path: str) -> object:
        assert (method, path) == ("GET", "/readyz")
        if not self.status:
            await asyncio.Event().wait()
        return SimpleNamespace(status=self.status, body=b"[-]etcd failed: reason withheld")


async def said_of(ready: Any) -> tuple[str, float]:
    """What a healthcheck is answered, and how many seconds of virtual time that took."""
    start_s = asyncio.get_running_loop().time()
    why = await within(ready, "it does not know")
    return why, asyncio.get_running_loop().time() - start_s


@pytest.mark.parametrize(
    "role",
    [
        SchedulerRole(FOLDER, DEFAULT_SCHEDULER, None, None, "columns"),
        ControllersRole(FOLDER, None),
        KubeletRole(FOLDER, 1, ANY, "", ANY),
    ],
    ids=["scheduler", "controllers", "kubelet"],
)
async def test_who_works_through_the_api_server_is_ready_when_that_is(role: Any) -> None:
    answers = ((200, ""), (500, "the API server: /readyz answered 500"), (0, "it does not know within 2 s"))
    for status, expected in answers:
        role._transport = Answering(status)
        why, duration_s = await said_of(role.ready)
        assert why.startswith(expected) and bool(why) is (status != 200) and duration_s < READY_S + 0.01


async def test_a_store_member_is_ready_while_a_majority_confirms_reads(tmp_path: Path) -> None:
    async with three(tmp_path) as net:
        roles = {id: StoreRole(ANY) for id in net.members}
        for id, role in roles.items():
            role._linked = SimpleNamespace(member=net[id])  # type: ignore[assignment]
            assert (await said_of(role.ready))[0] == ""
        await lose_two(net)
        [left] = net.members
        why, duration_s = await said_of(roles[left].ready)
        assert why and duration_s < READY_S + 0.01


async def lose_two(net: MemberNet) -> None:
    leader = await net.leader()
    for id in net.others(leader):
        net.kill(id)


async def test_an_api_server_is_ready_while_its_store_answers(tmp_path: Path) -> None:
    core = await Core(tmp_path).start()
    role = ApiServerRole(ANY, "", 0, FOLDER, FOLDER, ANY)
    assert await role.ready() == "it is starting"
    role._core = core.api
    assert (await said_of(role.ready))[0] == ""

    async def stuck() -> int:
        await asyncio.Event().wait()
        return 0

    core.api.store.current_revision = stuck  # type: ignore[method-assign]
    why, duration_s = await said_of(role.ready)
    assert why == "it does not know within 2 s" and duration_s < READY_S + 0.01
    await core.stop()
