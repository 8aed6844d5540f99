"""`metrics.k8s.io`: served where an APIService asks for it, with metrics-server's shapes and errors."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import JSON, Core, Json, names, node, pod

from minikube_py.fields.usage import CPU, MEMORY

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = "v1beta1.metrics.k8s.io"
ROOT = "/apis/metrics.k8s.io/v1beta1"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
GROUP = "kwok.x-k8s.io"


def service(**more: Any) -> Json:
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        **more,
    }
    return {"metadata": {"name": NAME}, "spec": spec}


async def run(core: Core, name: str, on: str = "n1", containers: int = 1, **usage: str) -> None:
    """A pod that runs there."""
    made = pod(name, on, labels={"app": name})
    first = made["spec"]["containers"][0]
    made["spec"]["containers"] = [{**first, "name": f"c{i}"} for i in range(containers)]
    made["metadata"]["annotations"] = {CPU: usage.get("cpu", "100m"), MEMORY: usage.get("memory", "10Mi")}
    await core.done("POST", PODS, made)
    await core.done("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}}, MERGE)


@pytest.fixture
async def measured(core: Core) -> Core:
    await core.done("POST", SERVICES, service())
    for name in ("n1", "n2"):
        await core.done("POST", "/api/v1/nodes", node(name))
    await run(core, "a")
    await run(core, "b", containers=2, cpu="1500u", memory="1Gi")
    await core.done("POST", PODS, pod("waits", "n2"))
    return core


async def groups(core: Core) -> list[str]:
    return [each["name"] for each in (await core.done("GET", "/apis"))["groups"]]


async def test_it_is_there_from_its_apiservice_on_until_that_is_deleted(core: Core) -> None:
    assert "metrics.k8s.io" not in await groups(core)
    assert (await core.respond("GET", f"{ROOT}/nodes")).status == 404
    made = await core.done("POST", SERVICES, service())
    assert [(each["type"], each["status"], each["reason"]) for each in made["status"]["conditions"]] == [
        ("Available", "True", "Local")
    ]
    assert "metrics.k8s.io" in await groups(core)
    listed = await core.done("GET", ROOT)
    assert listed["resources"] == [
        {"name": "nodes", "kind": "NodeMetrics", "namespaced": False, "verbs": ["get", "list"], "singularName": ""},
        {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"], "singularName": ""},
    ]
    assert (await core.done("GET", f"{ROOT}/nodes"))["items"] == []
    other = core.server()
    await other.start()
    assert other.registry.resource("metrics.k8s.io", "v1beta1", "pods") is not None
    await other.stop()
    await core.done("DELETE", f"{SERVICES}/{NAME}")
    assert "metrics.k8s.io" not in await groups(core)
    assert (await core.respond("GET", f"{ROOT}/nodes")).status == 404


async def test_one_of_another_server_is_refused_by_name(core: Core) -> None:
    status, refused = await core.ask(
        "POST", SERVICES, service(service={"namespace": "kube-system", "name": "metrics-server"})
    )
    assert (status, refused["reason"]) == (422, "Invalid")
    assert refused["message"].endswith(
        "spec.service: Forbidden: this API server makes no connections to other servers: it runs in virtual time or in "
        "process"
    )


async def test_pods_that_run_tell_what_each_container_uses(measured: Core) -> None:
    found = await measured.done("GET", f"{ROOT}/pods")
    assert (found["kind"], found["apiVersion"], found["metadata"], names(found)) == (
        "PodMetricsList",
        "metrics.k8s.io/v1beta1",
        {},
        ["a", "b"],
    )
    one = await measured.done("GET", f"{ROOT}/namespaces/default/pods/b")
    assert (one["kind"], one["metadata"]["labels"], one["window"], one["timestamp"]) == (
        "PodMetrics", {"app": "b"}, "15s", one["metadata"]["creationTimestamp"],
    )  # fmt: skip
    assert one["containers"] == [{"name": f"c{i}", "usage": {"cpu": "1500u", "memory": "1Gi"}} for i in range(2)]
    selected = await measured.done("GET", f"{ROOT}/namespaces/default/pods?labelSelector=app%3Da&limit=1")
    assert names(selected) == ["a"]
    assert names(await measured.done("GET", f"{ROOT}/pods?fieldSelector=metadata.name%3Db")) == ["b"]
    assert names(await measured.done("GET", f"{ROOT}/namespaces/other/pods")) == []


async def test_a_node_uses_what_its_pods_use(measured: Core) -> None:
    found = await measured.done("GET", f"{ROOT}/nodes")
    assert [(each["metadata"]["name"], each["usage"]) for each in found["items"]] == [
        ("n1", {"cpu": "103m", "memory": "2058Mi"}), ("n2", {"cpu": "0", "memory": "0"}),
    ]  # fmt: skip
    assert (await measured.done("GET", f"{ROOT}/nodes/n1"))["usage"] == {"cpu": "103m", "memory": "2058Mi"}


async def test_tables_have_a_column_for_each_resource(measured: Core) -> None:
    status, table = await measured.ask("GET", f"{ROOT}/pods", accept=TABLE)
    assert status == 200 and [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        "cpu",
        "memory",
        "Window",
    ]
    assert [row["cells"] for row in table["rows"]] == [["a", "100m", "10Mi", "15s"], ["b", "3m", "2Gi", "15s"]]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, whole = await measured.ask("GET", f"{ROOT}/nodes/n1?includeObject=Object", accept=TABLE)
    assert whole["rows"][0]["object"]["kind"] == "NodeMetrics"
    _, empty = await measured.ask("GET", f"{ROOT}/namespaces/other/pods", accept=TABLE)
    assert empty["columnDefinitions"] is None and empty["rows"] is None


REFUSED = [
    ("GET", "/namespaces/default/pods/none", 404, 'pods "none" not found'),
    ("GET", "/namespaces/default/pods/waits", 404, 'podmetrics.metrics.k8s.io "default/waits" not found'),
    ("GET", "/nodes/none", 404, 'nodes "none" not found'),
    ("GET", "/pods?labelSelector=%3D%3D", 400, ""),
    ("GET", "/pods?fieldSelector=spec.nodeName%3Dn1", 400, ""),
    ("DELETE", "/nodes/n1", 405, "the server does not allow this method on the requested resource"),
    ("POST", "/namespaces/default/pods", 405, "the server does not allow this method on the requested resource"),
]


@pytest.mark.parametrize(("method", "path", "code", "message"), REFUSED)
async def test_refusals_are_those_of_metrics_server(
    measured: Core, method: str, path: str, code: int, message: str
) -> None:
    status, refused = await measured.ask(method, f"{ROOT}{path}", {} if method == "POST" else None)
    assert status == code and (not message or refused["message"] == message), refused


def definition(kind: str, scope: str) -> Json:
    names = {"plural": f"{kind.lower()}s", "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    spec = {"group": GROUP, "names": names, "scope": scope, "versions": [version]}
    return {"metadata": {"name": f"{names['plural']}.{GROUP}"}, "spec": spec}


async def test_usage_comes_from_kwoks_objects_and_what_fails_is_told_as_a_warning(measured: Core) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await measured.done("POST", definitions, definition("ClusterResourceUsage", "Cluster"))
    await measured.done("POST", definitions, definition("ResourceUsage", "Namespaced"))
    head = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "ClusterResourceUsage", "metadata": {"name": "all"}}
    expression = "Quantity(container.resources.requests['cpu'] == Quantity('100m') ? '7m' : '8m')"
    usage = {"cpu": {"expression": expression}, "memory": {"expression": "nothing"}}
    path = f"/apis/{GROUP}/v1alpha1/clusterresourceusages"
    await measured.done("POST", path, {**head, "spec": {"usages": [{"usage": usage}]}})
    own = {**head, "kind": "ResourceUsage", "metadata": {"name": "b"}}
    told = {"usages": [{"usage": {"cpu": {"value": "2"}, "memory": {"value": "3Mi"}}}]}
    await measured.done("POST", f"/apis/{GROUP}/v1alpha1/namespaces/default/resourceusages", {**own, "spec": told})
    response = await measured.respond("GET", f"{ROOT}/nodes/n1", accept=JSON)
    assert b'"usage":{"cpu":"4007m","memory":"6Mi"}' in response.body
    assert "undeclared reference to 'nothing'" in response.headers["Warning"]
