"""ServiceAccount where it is enabled: pods that come before their account, large pods, and who has it off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_core import PODS, Core, Json, pod

from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.pod_accounts import DEFAULT_ATTEMPTS, TOKEN_PATH
from minikube_py.apiserver.work import INLINE_BYTES_MAX

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class Accounted(Core):
    def server(self) -> ApiServer:
        rng = random.Random(self.seed + 1)
        given = (self.member.storage, self.clock, rng)
        return ApiServer(*given, tokens=self.tokens, limits=self.limits, enabled_plugins=("ServiceAccount",))


@pytest.fixture
async def accounted(tmp_path: Path) -> AsyncIterator[Core]:
    core = await Accounted(tmp_path).start()
    yield core
    await core.stop()


def _account(name: str) -> Json:
    return {"metadata": {"name": name}}


async def test_a_pod_waits_for_the_default_account_and_is_refused_in_the_end(accounted: Core) -> None:
    asked = asyncio.create_task(accounted.ask("POST", PODS, pod("early")))
    await asyncio.sleep(0.5)
    await accounted.done("POST", ACCOUNTS, _account("default"))
    code, made = await asked
    assert code == 201 and made["spec"]["serviceAccountName"] == "default"
    (mount,) = made["spec"]["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == TOKEN_PATH and mount["name"] == made["spec"]["volumes"][0]["name"]
    await accounted.done("DELETE", f"{ACCOUNTS}/default")
    began_s = accounted.clock.monotonic_s()
    code, told = await accounted.ask("POST", PODS, pod("late"))
    took_s = accounted.clock.monotonic_s() - began_s
    why = 'error looking up service account default/default: serviceaccount "default" not found'
    assert code == 403 and told["message"] == f'pods "late" is forbidden: {why}'
    assert (DEFAULT_ATTEMPTS - 1) * 0.1 <= took_s <= (DEFAULT_ATTEMPTS - 1) * 0.2 + 0.1
    body = pod("other")
    body["spec"]["serviceAccountName"] = "absent"
    began_s = accounted.clock.monotonic_s()
    assert (await accounted.ask("POST", PODS, body))[0] == 403
    assert accounted.clock.monotonic_s() - began_s < 0.1


async def test_a_large_pod_gets_its_account_too(accounted: Core) -> None:
    await accounted.done("POST", ACCOUNTS, _account("default"))
    body = pod("large")
    body["metadata"]["annotations"] = {"a/b": "x" * INLINE_BYTES_MAX}
    made = await accounted.done("POST", PODS, body)
    assert made["spec"]["serviceAccount"] == "default" and len(made["spec"]["volumes"]) == 1


async def test_the_account_is_the_one_that_is_stored_now(accounted: Core) -> None:
    await accounted.done("POST", ACCOUNTS, _account("default"))
    await accounted.done("POST", PODS, pod("a"))
    silent = {**await accounted.done("GET", f"{ACCOUNTS}/default"), "automountServiceAccountToken": False}
    await accounted.done("PUT", f"{ACCOUNTS}/default", silent)
    assert "volumes" not in (await accounted.done("POST", PODS, pod("b")))["spec"]


async def test_it_is_off_where_nobody_enables_it(core: Core) -> None:
    made = await core.done("POST", PODS, pod("plain"))
    assert "serviceAccountName" not in made["spec"] and "volumes" not in made["spec"]
