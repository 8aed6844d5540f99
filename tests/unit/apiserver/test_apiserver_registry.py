"""A server owns its registry: what it serves, tells, caches and works on are the kinds that it was given."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
from api_core import MAPS, Core, config_map

from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.apiserver.core import ApiServer

WIDGETS = Kind("example.com", "v1", "Widget", "widgets", "widget", True, selectable=NAMESPACED, verbs=("get", "list"))
FEWER = Registry((*(kind for kind in REGISTRY.kinds if kind.group in ("", "scheduling.k8s.io")), WIDGETS))


async def test_a_server_serves_the_kinds_of_its_registry_alone(core: Core) -> None:
    few = ApiServer(core.member.storage, core.clock, random.Random(5), tokens=core.tokens, registry=FEWER)
    await few.start()
    served, other = core.api, few
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    widgets = "/apis/example.com/v1/namespaces/default/widgets"

    async def status(server: ApiServer, path: str) -> int:
        core.api = server
        return (await core.respond("GET", path)).status

    for server, found in ((served, (200, 404)), (other, (404, 200))):
        assert (await status(server, leases), await status(server, widgets)) == found
        groups = [each["name"] for each in (await core.ask("GET", "/apis"))[1]["groups"]]
        assert ("coordination.k8s.io" in groups, "example.com" in groups) == tuple(code == 200 for code in found)
        paths = orjson.loads((await core.respond("GET", "/openapi/v3")).body)["paths"]
        assert ("apis/example.com/v1" in paths) is (found[1] == 200)
        index = (await core.ask("GET", "/"))[1]["paths"]
        assert ("/apis/example.com/v1" in index) is (found[1] == 200)
        assert {kind.plural for kind in server.cache.caches} == {k.plural for k in server.registry.kinds if k.stored}
    core.api = served
    await few.stop()


async def test_large_bodies_are_worked_on_by_the_kinds_of_the_server(core: Core, tmp_path: Path) -> None:
    class Nobody(Registry):
        def resource(self, group: str, version: str, plural: str) -> Kind | None:
            asked.append(plural)
            return super().resource(group, version, plural)

    asked: list[str] = []
    few = ApiServer(core.member.storage, core.clock, random.Random(5), tokens=core.tokens, registry=Nobody(FEWER.kinds))
    await few.start()
    served, core.api = core.api, few
    asked.clear()
    await core.done("POST", MAPS, config_map("large", data="x" * 100_000))
    # Once for the path, and once where the body is worked on.
    assert asked == ["configmaps"] * 2
    core.api = served
    await few.stop()
