"""No bytes under a key of the system keep a server from its start, nor from deleting them."""

from __future__ import annotations

import pytest
from api_core import Core, node
from patience import until

from minikube_py.apiserver.endpoints import PREFIX as MASTERS
from minikube_py.apiserver.options import UNREAD
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end

REGISTRY = b"/registry/"
BARE = b'{"metadata":{"name":"%s","uid":"u"}}'
ODD = b'{"metadata":{"name":"%s","uid":"u","labels":7},"spec":7,"roleRef":null,"rules":{},"value":[]}'
NAMED = b'{"metadata":{"name":"%s","namespace":"default","uid":"u"},"spec":{"clusterIPs":["10.96.0.9"]}}'
STORED = {"empty": b"", "null": b"null", "none": b"{}", "garbage": b"\xff", "bare": BARE, "odd": ODD, "named": NAMED}
CLASS = b"scheduling.k8s.io/priorityclasses/system-node-critical"
SYSTEM = {
    "/api/v1/namespaces/kube-system": b"namespaces/kube-system",
    "/api/v1/namespaces/default": b"namespaces/default",
    "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical": CLASS,
    "/apis/networking.k8s.io/v1/servicecidrs/kubernetes": b"networking.k8s.io/servicecidrs/kubernetes",
    "/api/v1/namespaces/default/services/kubernetes": b"services/default/kubernetes",
}


async def spoil(core: Core, keys: list[bytes], value: bytes) -> None:
    for key in keys:
        stored = value % key.rpartition(b"/")[2] if b"%s" in value else value
        await core.member.storage.txn((), (Put(key, stored),))


@pytest.mark.parametrize("value", STORED.values(), ids=list(STORED))
async def test_a_server_starts_whatever_stands_under_the_keys_of_the_system(core: Core, value: bytes) -> None:
    await core.api.publish("10.1.2.3", 6444)
    everything = RangeRequest(REGISTRY, prefix_end(REGISTRY), keys_only=True)
    keys = [kv.key for kv in (await core.member.storage.range(everything)).kvs]
    assert len(keys) > 150, "everything that a start makes"
    await spoil(core, keys, value)
    await spoil(core, [MASTERS + b"x", MASTERS + b"nobody:77777", MASTERS + b"\xff:1"], value)
    server = core.server()
    await server.start()
    await server.publish("10.1.2.4", 6445)
    assert server.ready
    await server.stop()


@pytest.mark.parametrize("path", SYSTEM)
async def test_an_unreadable_object_of_the_system_is_deleted_and_made_again(core: Core, path: str) -> None:
    await core.api.publish("10.1.2.3", 6444)
    await spoil(core, [REGISTRY + SYSTEM[path]], b"null")
    assert (await core.ask("GET", path))[0] == 500
    unread = {"kind": "DeleteOptions", "apiVersion": "v1", UNREAD: True}
    assert (await core.ask("DELETE", path, unread))[0] == 200
    made = core.api.cache
    await until(lambda: any(REGISTRY + SYSTEM[path] in each.entries for each in made.caches.values()), within_s=200)
    assert (await core.ask("GET", path))[0] == 200


async def test_roles_that_are_missing_are_made_beside_one_that_cannot_be_read(core: Core) -> None:
    roles = REGISTRY + b"rbac.authorization.k8s.io/clusterroles/"
    await spoil(core, [roles + b"view"], b"null")
    await core.done("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit")
    server = core.server()
    await server.start()
    assert (await core.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"))[0] == 200
    await server.stop()


async def test_a_name_under_which_nothing_can_be_read_is_refused_to_who_creates_it(core: Core) -> None:
    for value in (b"", b"null", b"{}", b"\xff", ODD):
        await spoil(core, [REGISTRY + b"nodes/n0"], value)
        code, status = await core.ask("POST", "/api/v1/nodes", node("n0"))
        assert code == 500 and UNREAD in status["message"]
