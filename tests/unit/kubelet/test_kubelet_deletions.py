"""Fake kubelets: what happens to a pod while it is being deleted does not keep it."""

from __future__ import annotations

import pytest
from step_clock import settle
from test_kubelet_fake import World

from minikube_py.client.transport import ApiResponse
from minikube_py.kubelet.config import Delay


async def test_a_pod_that_ends_while_it_is_being_deleted_goes():
    """The write of its end was under way when the deletion was seen."""
    async with World(stop_delay=Delay(10, 10)) as w:
        w.pod()
        await settle()
        w.api.remove("pods", "a/p")
        await settle()
        w.api.change("pods", "a/p", status=w.status() | {"phase": "Succeeded"})
        await w.clock.advance(11)
        assert w.names == set()


async def test_a_pod_that_a_finalizer_holds_and_that_ended_is_deleted_all_the_same():
    async with World(stop_delay=Delay(10, 10)) as w:
        w.pod(metadata={"finalizers": ["keep"]})
        await settle()
        w.api.remove("pods", "a/p")
        await settle()
        w.api.change("pods", "a/p", status=w.status() | {"phase": "Succeeded"})
        await w.clock.advance(11)
        assert w.api.calls.count(("DELETE", "/api/v1/namespaces/a/pods/p")) == 1
        assert w.status()["phase"] == "Succeeded"


@pytest.mark.parametrize("ends", [False, True], ids=["its start", "its end"])
async def test_a_write_that_is_refused_once_the_pod_is_being_deleted_does_not_replace_the_deletion(ends, monkeypatch):
    async with World(stop_delay=Delay(10, 10), complete_after=Delay(5, 5)) as w:
        request, writes = w.api.request, []

        async def late(method, path, *given):
            if not path.endswith("/status"):
                return await request(method, path, *given)
            writes.append(path)
            await w.clock.sleep(3)
            return ApiResponse(400, b"{}")

        if ends:
            w.pod(spec={"restartPolicy": "Never"})
            await w.clock.advance(4)
        monkeypatch.setattr(w.api, "request", late)
        if not ends:
            w.pod()
        await w.clock.advance(2)
        assert len(writes) == 1
        w.api.remove("pods", "a/p")
        await w.clock.advance(11)
        assert w.names == set() and len(writes) == 1
