"""The health of components, and what simulated kubelets answer to requests that are passed on to them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from api_core import PODS, Core, Json, node, pod

from minikube_py.api.meta import timestamp

STATUSES = "/api/v1/componentstatuses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def _health(listed: Json) -> dict[str, tuple[str, str]]:
    return {
        each["metadata"]["name"]: (told["status"], told.get("message") or told.get("error"))
        for each in listed["items"]
        for told in each["conditions"]
    }


async def test_components_in_this_process_are_known_and_others_by_their_leases(core: Core) -> None:
    response = await core.respond("GET", STATUSES)
    assert response.headers["Warning"] == '299 - "v1 ComponentStatus is deprecated in v1.19+"'
    assert _health(await core.done("GET", STATUSES)) == {
        "controller-manager": ("False", "nobody holds the lease kube-system/kube-controller-manager"),
        "etcd-0": ("True", "ok"),
        "scheduler": ("False", "nobody holds the lease kube-system/kube-scheduler"),
    }
    core.api.component_health = lambda: {"scheduler": "it ended: why", "controllers": "", "kubelet": ""}
    found = _health(await core.done("GET", STATUSES))
    assert found["scheduler"] == ("False", "it ended: why") and found["controller-manager"] == ("True", "ok")
    core.api.component_health = dict
    renewed = timestamp(core.clock.wall_s()).replace("Z", ".000000Z")
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": renewed}
    await core.done("POST", LEASES, {"metadata": {"name": "kube-scheduler"}, "spec": spec})
    assert _health(await core.done("GET", STATUSES))["scheduler"] == ("True", "ok")
    await core.clock.sleep(20)
    assert _health(await core.done("GET", STATUSES))["scheduler"][0] == "False"


def _played(name: str, address: str = "10.0.0.9", ready: str = "True") -> Json:
    made = node(name)
    made["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
    made["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return made


async def _run(core: Core, names: Iterable[str]) -> None:
    for name in names:
        body = pod(name, node="n1")
        body["metadata"]["annotations"] = {"kwok.x-k8s.io/usage-cpu": "250m", "kwok.x-k8s.io/usage-memory": "64Mi"}
        made = await core.done("POST", PODS, body)
        told = {"name": "main", "ready": True, "image": "i", "imageID": "", "restartCount": 0}
        state = {**told, "state": {"running": {}}}
        made["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [state]}
        await core.done("PUT", f"{PODS}/{name}/status", made)


async def test_a_kubelet_answers_from_what_runs_on_its_node(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", _played("n1"))
    await _run(core, ("a", "b"))
    await core.done("POST", PODS, pod("waits", node="n1"))
    await core.done("POST", PODS, pod("elsewhere", node="n2"))
    proxy = "/api/v1/nodes/n1/proxy"
    assert (await core.respond("GET", f"{proxy}/healthz")).body == b"ok"
    code, pods = await core.ask("GET", f"{proxy}/pods/")
    assert code == 200 and sorted(each["metadata"]["name"] for each in pods["items"]) == ["a", "b", "waits"]
    code, told = await core.ask("GET", f"{proxy}/stats/summary")
    assert code == 200 and told["node"]["nodeName"] == "n1"
    assert told["node"]["cpu"]["usageNanoCores"] == 500_000_000
    assert [each["podRef"]["name"] for each in told["pods"]] == ["a", "b"]
    assert [each["memory"]["workingSetBytes"] for each in told["pods"]] == [64 << 20] * 2
    text = (await core.respond("GET", f"{proxy}/metrics")).body.decode()
    assert "kubelet_running_pods 2\n" in text and 'kubelet_running_containers{container_state="running"} 2\n' in text
    response = await core.respond("GET", f"{proxy}/configz")
    assert (response.status, response.body) == (404, b"404 page not found\n")
    assert (await core.respond("POST", f"{proxy}/healthz")).status == 405
    assert (await core.respond("GET", proxy)).headers["Location"] == f"{proxy}/"


@pytest.mark.parametrize(("name", "path", "code"), [
    ("n1:10250", "n1", 200), ("n1:80", "n1", 503), ("unready", "unready", 503), ("loop", "loop", 400),
])  # fmt: skip
async def test_who_is_not_there_does_not_answer(core: Core, name: str, path: str, code: int) -> None:
    for made in (_played("n1"), _played("unready", ready="False"), _played("loop", "127.0.0.1")):
        await core.done("POST", "/api/v1/nodes", made)
    assert (await core.respond("GET", f"/api/v1/nodes/{name}/proxy/healthz")).status == code, path
