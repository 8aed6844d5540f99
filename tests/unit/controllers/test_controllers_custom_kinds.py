"""Quotas, garbage collection and the end of namespaces over kinds that a definition adds while the controllers run."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from api_core import Core, config_map, names
from virtual_time import run_virtually

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.controllers.manager import ControllerManager

GROUP, TOGETHER = "example.com", 90.0
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": f"gauges.{GROUP}"},
    "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"}, "versions": [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
    ]},
}  # fmt: skip


def gauges(namespace: str = "default") -> str:
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/gauges"


def gauge(name: str, *owners: Any) -> dict[str, Any]:
    references = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in owners
    ]
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gauge", "metadata": {"name": name, "ownerReferences": references}}


def beside(controller: str, script: Callable[[Core], Awaitable[None]]) -> None:
    """The script against a server that the controller watches; the kind is defined while both run."""

    async def run(folder: str) -> None:
        core = await Core(Path(folder)).start()
        transport = InProcessTransport(core.api, ADMIN)
        manager = ControllerManager(transport, core.clock, random.Random(1), names=[controller])
        await manager.start()
        await core.clock.sleep(1.0)
        await core.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        await core.clock.sleep(TOGETHER)
        await script(core)
        await manager.stop()
        await core.stop()

    with tempfile.TemporaryDirectory() as folder:
        run_virtually(lambda: run(folder))


def test_a_quota_counts_objects_of_a_custom_kind() -> None:
    async def script(core: Core) -> None:
        counted = f"count/gauges.{GROUP}"
        quotas = "/api/v1/namespaces/default/resourcequotas"
        await core.done("POST", gauges(), gauge("before"))
        await core.done("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": {counted: "2"}}})
        await core.clock.sleep(TOGETHER)
        assert (await core.done("GET", f"{quotas}/q"))["status"]["used"] == {counted: "1"}
        await core.done("POST", gauges(), gauge("second"))
        status, refused = await core.ask("POST", gauges(), gauge("third"))
        assert status == 403 and f"exceeded quota: q, requested: {counted}=1, used: {counted}=2" in refused["message"]
        await core.done("DELETE", f"{gauges()}/before")
        await core.clock.sleep(TOGETHER)
        assert (await core.done("GET", f"{quotas}/q"))["status"]["used"] == {counted: "1"}
        await core.done("POST", gauges(), gauge("third"))

    beside("resourcequota-controller", script)


def test_custom_objects_own_and_are_owned() -> None:
    async def script(core: Core) -> None:
        root = await core.done("POST", gauges(), gauge("root"))
        await core.done("POST", gauges(), gauge("child", root))
        child = await core.done("GET", f"{gauges()}/child")
        maps = "/api/v1/namespaces/default/configmaps"
        owned = config_map("grandchild")
        owned["metadata"]["ownerReferences"] = gauge("", child)["metadata"]["ownerReferences"]
        await core.done("POST", maps, owned)
        await core.clock.sleep(TOGETHER)
        assert names(await core.done("GET", maps)) == ["grandchild"]
        await core.done("DELETE", f"{gauges()}/root")
        await core.clock.sleep(TOGETHER)
        assert names(await core.done("GET", gauges())) == names(await core.done("GET", maps)) == []

    beside("garbage-collector-controller", script)


def test_a_namespace_ends_with_its_custom_objects() -> None:
    async def script(core: Core) -> None:
        await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})
        await core.done("POST", gauges("a"), gauge("x"))
        await core.done("POST", gauges(), gauge("kept"))
        await core.done("DELETE", "/api/v1/namespaces/a")
        await core.clock.sleep(TOGETHER)
        assert (await core.ask("GET", "/api/v1/namespaces/a"))[0] == 404
        assert names(await core.done("GET", f"/apis/{GROUP}/v1/gauges")) == ["kept"]

    beside("namespace-controller", script)
