"""A policy that denies everything denies each way in: tokens, connections, bindings, not only writes of objects."""

from __future__ import annotations

from typing import Any

from api_core import MERGE, PODS, Core, node, pod

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFAULT = "/api/v1/namespaces/default"
TO_N1 = {"metadata": {"name": "free"}, "target": {"name": "n1"}}
NAMES = ["default", "proxy", "proxy:80", "s", "n1", "free"]
TOKEN = f"{DEFAULT}/serviceaccounts/default/token"
SEEN = (
    "[request.kind.kind, request.resource.resource, has(request.subResource) ? request.subResource : '', "
    "request.operation, request.name, has(object.path) ? string(object.path) : '-'].join(' ')"
)
ASKED: tuple[tuple[str, str, Any, str], ...] = (
    ("POST", TOKEN, {"spec": {}}, "TokenRequest serviceaccounts token CREATE default -"),
    ("GET", f"{PODS}/proxy/proxy/a/b", None, "PodProxyOptions pods proxy CONNECT proxy /a/b"),
    ("POST", f"{PODS}/proxy:80/proxy/", None, "PodProxyOptions pods proxy CONNECT proxy:80 /"),
    ("DELETE", f"{DEFAULT}/services/s/proxy", None, "ServiceProxyOptions services proxy CONNECT s -"),
    ("GET", "/api/v1/nodes/n1/proxy/healthz", None, "NodeProxyOptions nodes proxy CONNECT n1 /healthz"),
    ("POST", f"{DEFAULT}/bindings", TO_N1, "Binding bindings  CREATE free -"),
    ("POST", f"{PODS}/free/binding", TO_N1, "Binding pods binding CREATE free -"),
)  # fmt: skip


async def test_a_policy_is_asked_at_every_door(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1"))
    await core.done("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
    for name in ("proxy", "free"):
        await core.done("POST", PODS, pod(name, "n1" if name == "proxy" else ""))
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["CREATE", "CONNECT"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "here", "expression": f"request.name in {NAMES}"}],
        "validations": [{"expression": "false", "messageExpression": SEEN}],
    }
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    for method, path, body, seen in ASKED:
        status, answer = await core.ask(method, path, body)
        assert status == 422 and answer["message"].endswith(f"denied request: {seen}"), (method, path, answer)


async def test_a_binding_is_checked_as_admission_leaves_it(core: Core) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["bindings", "pods/binding"],
        "operations": ["CREATE"],
    }
    patch = "[JSONPatch{op: 'add', path: object.metadata.annotations.at, value: object.metadata.annotations.to}]"
    spec = {
        "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }  # fmt: skip
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", bound)
    for name in ("free", "other"):
        await core.done("POST", PODS, pod(name))
    for path in (f"{DEFAULT}/bindings", f"{PODS}/free/binding"):
        for at, value, code, reason in (
            ("/target/name", "", 422, "target.name: Required value"),
            ("/target/kind", "X", 422, 'target.kind: Unsupported value: "X"'),
            ("/metadata/name", "absent", 404 if path.endswith("bindings") else 400, ""),
            ("/target/name", "n2", 201, ""),
        ):
            name = "other" if path.endswith("bindings") else "free"
            metadata = {"name": name, "annotations": {"at": at, "to": value}}
            status, answer = await core.ask("POST", path, {"metadata": metadata, "target": {"name": "n1"}})
            assert status == code and reason in answer.get("message", ""), (path, at, answer.get("message"))
        assert (await core.done("GET", f"{PODS}/{name}"))["spec"]["nodeName"] == "n2"


async def test_a_connection_goes_where_admission_leaves_it(core: Core) -> None:
    await core.done("POST", "/api/v1/nodes", node("n1"))
    web = {**pod("web", "n1"), "metadata": {"name": "web"}}
    web["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    await core.done("POST", PODS, web)
    reached = {"status": {"phase": "Running", "podIP": "10.0.0.9"}}
    await core.done("PATCH", f"{PODS}/web/status", reached, content_type=MERGE)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/proxy"], "operations": ["CONNECT"]}
    patch = "object.path == '/kept/a/' ? [] : [JSONPatch{op: 'add', path: '/path', value: '/moved to/b'}]"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", bound)
    for asked, path in (("kept/a/", "/kept/a/"), ("secret", "/moved%20to/b")):
        response = await core.respond("GET", f"{PODS}/web:80/proxy/{asked}")
        assert response.status == 200 and response.body.decode().endswith(f"GET {path}\n"), response.body


async def test_a_pod_named_as_the_subresource_is_reached(core: Core) -> None:
    await core.done("POST", "/api/v1/namespaces", {"metadata": {"name": "proxy"}})
    await core.done("POST", "/api/v1/nodes", node("n1"))
    await core.done("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
    await core.done("POST", "/api/v1/namespaces/proxy/pods", {**pod("proxy", "n1"), "metadata": {"name": "proxy"}})
    reached = {"status": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}
    await core.done("PATCH", "/api/v1/namespaces/proxy/pods/proxy/status", reached, content_type=MERGE)
    response = await core.respond("GET", "/api/v1/namespaces/proxy/pods/proxy/proxy")
    assert (response.status, response.headers["Location"]) == (301, "/api/v1/namespaces/proxy/pods/proxy/proxy/")
