"""A kind that is stored as another one: both show the same objects, each in its own version."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MERGE, Core, Json, names

from minikube_py.api.kinds.core import EVENTS
from minikube_py.api.kinds.events import EVENTS_V1
from minikube_py.apiserver.watch_cache import Face, ShownEntry

CORE, NEWER = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
SCALERS = [f"/apis/autoscaling/{each}/namespaces/default/horizontalpodautoscalers" for each in ("v1", "v2")]


def event(name: str, **fields: Any) -> Json:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "message": "m", **fields}


def newer(name: str) -> Json:
    return {
        "metadata": {"name": name}, "regarding": {"kind": "Pod", "name": "q", "namespace": "default"}, "note": "n",
        "type": "Normal", "reason": "R", "action": "A", "eventTime": "2026-01-01T00:00:00.500000Z",
        "reportingController": "x.io/c", "reportingInstance": "i",
    }  # fmt: skip


async def test_events_are_one_set_of_objects_with_two_faces(core: Core) -> None:
    await core.done("POST", CORE, event("old", count=2))
    made = await core.done("POST", NEWER, newer("new"))
    assert (made["apiVersion"], made["eventTime"], made["regarding"]["name"]) == (
        "events.k8s.io/v1", "2026-01-01T00:00:00.500000Z", "q",
    )  # fmt: skip
    assert names(await core.done("GET", CORE)) == names(await core.done("GET", NEWER)) == ["new", "old"]
    seen = await core.done("GET", f"{CORE}/new")
    assert (seen["involvedObject"]["name"], seen["message"], seen["reportingComponent"]) == ("q", "n", "x.io/c")
    seen = await core.done("GET", f"{NEWER}/old")
    assert (seen["note"], seen["deprecatedCount"], "reportingController" in seen) == ("m", 2, False)
    assert names(await core.done("GET", f"{NEWER}?fieldSelector=regarding.name%3Dq")) == ["new"]
    assert (await core.ask("GET", f"{NEWER}?fieldSelector=involvedObject.name%3Dq"))[0] == 400
    await core.done("DELETE", f"{NEWER}/old")
    assert names(await core.done("GET", CORE)) == ["new"]


async def test_nothing_is_kept_of_a_face_until_it_is_asked_for_and_then_its_past_too(core: Core) -> None:
    await core.done("POST", CORE, event("first"))
    listed = await core.done("GET", CORE)
    since = listed["metadata"]["resourceVersion"]
    await core.done("POST", CORE, event("second"))
    await core.done("DELETE", f"{CORE}/first")
    face = core.api.cache.caches[EVENTS_V1]
    assert isinstance(face, Face) and not face.entries and not core.api.cache.of(EVENTS).faces
    watch = await core.watch(f"{NEWER}?resourceVersion={since}")
    await core.done("PATCH", f"{CORE}/second", {"message": "later"}, MERGE)
    seen = await watch.take(3)
    watch.close()
    assert [(kind, obj["metadata"]["name"], obj["note"]) for kind, obj in seen] == [
        ("ADDED", "second", "m"), ("DELETED", "first", "m"), ("MODIFIED", "second", "later"),
    ]  # fmt: skip
    assert all("deprecatedSource" in obj and "source" not in obj for _, obj in seen)
    core.api.cache.load((), core.api.cache.revision + 1)
    assert not face.entries


async def test_an_entry_is_converted_when_its_bytes_are_asked_for(core: Core) -> None:
    await core.done("POST", CORE, event("one"))
    stored = core.api.cache.of(EVENTS).entries[EVENTS.key("default", "one")]
    shown = ShownEntry(EVENTS_V1, stored)
    assert shown.key == stored.key and b'"note"' in shown.value and shown.value is shown.value
    with pytest.raises(AttributeError, match="nothing"):
        shown.nothing  # noqa: B018


@pytest.mark.parametrize("query", ["limit=1", "labelSelector=a%3Db&limit=1"])
async def test_pages_at_an_older_revision_are_in_the_version_that_was_asked_for(core: Core, query: str) -> None:
    spec = {"scaleTargetRef": {"apiVersion": "x.io/v1", "kind": "K", "name": "k"}, "maxReplicas": 3}
    for name in ("a", "b", "c"):
        await core.done("POST", SCALERS[1], {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
    page = await core.done("GET", f"{SCALERS[0]}?{query}")
    await core.done("DELETE", f"{SCALERS[1]}/c")
    rest = f"{SCALERS[0]}?{query}&continue={page['metadata']['continue']}"
    page = await core.done("GET", rest)
    assert names(page) == ["b"]
    found = page["items"][0]["spec"]
    assert found["targetCPUUtilizationPercentage"] == 80 and "metrics" not in found
