"""What admission looks at is decoded by events, once for each state of an object, and stays the cache's own state."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MERGE, PODS, Core, pod

from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.cached_cluster import CachedCluster
from minikube_py.apiserver.watch_cache import Entry

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
KIND = REGISTRY.resource("scheduling.k8s.io", "v1", "priorityclasses")


def priority(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **more}


def decoded_again(core: Core) -> tuple[list[Any], list[Any]]:
    """What the projection should hold, by decoding what the cache holds."""
    assert KIND is not None
    found = [entry.decode() for entry in core.api.cache.of(KIND).entries.values()]
    return found, [each for each in found if each.get("globalDefault")]


def held(cluster: CachedCluster) -> tuple[list[Any], list[Any]]:
    assert KIND is not None
    return list(cluster.all(KIND)), list(cluster.defaults(KIND))


async def test_a_pod_is_created_without_decoding_what_admission_looks_at(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(50):
        await core.done("POST", CLASSES, priority(f"p{at}", at))
    decoded: list[bytes] = []
    decode = Entry.decode
    monkeypatch.setattr(Entry, "decode", lambda entry: (decoded.append(entry.key), decode(entry))[1])
    made = await core.done("POST", PODS, {**pod("a"), "spec": {**pod("a")["spec"], "priorityClassName": "p7"}})
    await core.done("POST", PODS, pod("b"))
    assert made["spec"]["priority"] == 7
    assert not [key for key in decoded if b"priorityclasses" in key]


async def test_projections_follow_every_change_and_a_new_start(core: Core) -> None:
    cluster = core.api.writer.cluster
    await core.done("POST", CLASSES, priority("low", 1, globalDefault=True))
    await core.done("POST", CLASSES, priority("high", 2))
    assert held(cluster) == decoded_again(core) and len(held(cluster)[1]) == 1
    assert (await core.done("POST", PODS, pod("a")))["spec"]["priorityClassName"] == "low"
    await core.done("PATCH", f"{CLASSES}/low", {"globalDefault": False}, MERGE)
    assert held(cluster) == decoded_again(core) and held(cluster)[1] == []
    await core.done("PATCH", f"{CLASSES}/high", {"globalDefault": True}, MERGE)
    await core.done("DELETE", f"{CLASSES}/low")
    assert held(cluster) == decoded_again(core)
    other = core.server()
    await other.start()
    assert held(other.writer.cluster) == held(cluster)
    await other.stop()


async def test_what_admission_does_with_an_object_leaves_the_projection_as_it_was(core: Core) -> None:
    await core.done("POST", CLASSES, priority("low", 1, globalDefault=True))
    for name in "ab":
        await core.done("POST", PODS, pod(name))
    status, refused = await core.ask("POST", CLASSES, priority("other", 3, globalDefault=True))
    assert status == 403 and "already marked as default" in refused["message"]
    assert held(core.api.writer.cluster) == decoded_again(core)
