"""Pods that a plugin holds back before the queue are woken by the changes that help each of them."""

from __future__ import annotations

import random

from scheduler_objects import pod_object
from scheduler_world import FakeApi, ManualClock, settle

from minikube_py.scheduler.scheduler import Scheduler


async def test_each_pod_waits_for_its_own_claim() -> None:
    api = FakeApi()
    api.node("n1")
    scheduler = Scheduler(api, ManualClock(), random.Random(3))
    await scheduler.start()
    api.put("deviceclasses", {"metadata": {"name": "c", "uid": "c"}, "spec": {}})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.io", "nodeName": "n1", "pool": pool, "devices": [{"name": "d1"}, {"name": "d2"}]}
    api.put("resourceslices", {"metadata": {"name": "s", "uid": "s"}, "spec": spec})
    for name in ("p1", "p2"):
        api.put("pods", pod_object(name, resourceClaims=[{"name": "x", "resourceClaimName": f"of-{name}"}]))
        await settle()
    assert scheduler.queue.pending()["gated"] == 2
    request = {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}
    for name in ("p2", "p1"):
        metadata = {"name": f"of-{name}", "namespace": "default", "uid": name}
        api.put("resourceclaims", {"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
        await settle()
        held = scheduler.queue.get(f"default/{name}")
        assert held is None or held.queue != "gated"
    await scheduler.stop()
