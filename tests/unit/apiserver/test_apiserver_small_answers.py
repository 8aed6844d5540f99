# ruff: noqa: E501
"""What few clients ask. Expected values: answers of kube-apiserver 1.36 (conformance's small_cases ask both)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from api_core import MAPS, MERGE, PODS, Core, pod
from patience import until

from minikube_py.api.patch import JSON_PATCH, STRATEGIC_MERGE_PATCH
from minikube_py.apiserver.forms import presented
from minikube_py.apiserver.messages import Response
from minikube_py.client.transport import JSON

Json = dict[str, Any]
YAML = "application/yaml"
SETS = "/api/v1/namespaces/default/replicationcontrollers"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
TABLE = ";as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        (YAML, 406),
        (f"application/json;q=0.5,{YAML}", 406),
        (f"{YAML}{TABLE},application/json{TABLE}", 406),
        ("application/json;stream=other", 406),
        ("application/json;stream=watch", 200),
        (f"application/json,{YAML}", 200),
    ],
)
async def test_a_watch_is_not_sent_in_yaml(core: Core, accept: str, code: int) -> None:
    answer = await core.respond("GET", f"{MAPS}?watch=true", accept=accept)
    assert answer.status == code
    if answer.stream is not None:
        answer.stream.close()
    else:
        assert b"only the following media types are accepted: application/json" in answer.body


_REVIEW: Json = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
_UNTABLED: list[tuple[str, str, Json, int]] = [
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", _REVIEW, 201),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "u", **_REVIEW["spec"]}}, 201),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}, 201),
    ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, 201),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}}, 201),
    ("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}, 201),
    ("POST", "/api/v1/namespaces/default/bindings", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}, 201),
    ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}}, 201),
    ("PATCH", f"{PODS}/p/ephemeralcontainers", {}, 200),
    ("PATCH", f"{PODS}/p/resize", {}, 200),
    ("GET", f"{PODS}/p/resize", None, 200),
    ("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1./status", None, 200),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), _UNTABLED)
async def test_what_has_no_table_is_asked_for_before_anything_is_done(core: Core, method: str, path: str, body: Json, code: int) -> None:
    await core.done("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    await core.done("POST", PODS, pod("p"))
    before = await core.done("GET", f"{PODS}/p")
    answer = await core.respond(method, path, body, "application/json" + TABLE, MERGE if method == "PATCH" else "application/json")
    assert (answer.status, b"only the following media types are accepted" in answer.body) == (406, True)
    assert await core.done("GET", f"{PODS}/p") == before
    content_type = MERGE if method == "PATCH" else "application/json"
    found, plain = await core.ask(method, path, body, f"application/json{TABLE},application/json", content_type)
    assert found == code and plain["kind"] != "Table"


async def test_a_review_that_kubectl_asks_for_has_its_verdict(core: Core) -> None:
    method, path, body, _ = _UNTABLED[0]
    _, answer = await core.ask(method, path, body, f"application/json{TABLE},application/json")
    assert answer["status"]["allowed"] is True
    told = await core.respond("POST", f"{PODS}/none/eviction", {"metadata": {"name": "none"}}, "text/plain")
    assert told.status == 406 and b"406: Not Acceptable" in told.body


async def test_custom_resources_are_not_behind_go_restful(core: Core) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "q.io", "names": {"plural": "things", "kind": "Thing"}, "scope": "Cluster", "versions": [version]}
    await core.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "things.q.io"}, "spec": spec})
    await until(lambda: core.api.registry.resource("q.io", "v1", "things") is not None)
    for accept, code in (("application/*", 200), ("text/html,application/*", 200), ("text/html", 406), ("application/json;q=0", 200)):
        for path in ("/apis/q.io/v1/things", "/apis/q.io/v1"):
            assert (await core.respond("GET", path, accept=accept)).status == code, (accept, path)
    for path in ("/api/v1/pods", "/api/v1"):
        assert (await core.respond("GET", path, accept="application/*")).status == 406
        assert (await core.respond("GET", path, accept="application/json;q=0")).status == 200


@pytest.mark.parametrize("start", [r"\ud800", r"a\ud800b", r"\udc00\ud800", "\xff", r"/\ud800/\ud800"])
@pytest.mark.parametrize("revision", [-1, 1, 1 << 40])
async def test_a_continue_token_of_no_text_is_read_as_go_reads_it(core: Core, start: str, revision: int) -> None:
    """U+FFFD for what is no character, as encoding/json; revision 1 is compacted."""
    for name in ("a", "b"):
        await core.done("POST", MAPS, {"metadata": {"name": name}})
    _, newest = await core.member.storage.get(b"x")
    await core.member.storage.compact(newest)
    text = b'{"v":"meta.k8s.io/v1","rv":%d,"start":"%b"}' % (revision, start.encode("latin-1"))
    answer = await core.respond("GET", f"{MAPS}?limit=1&continue={base64.urlsafe_b64encode(text).decode().rstrip('=')}")
    assert answer.status == {-1: 200, 1: 410, 1 << 40: 504}[revision], answer.body
    wrong = base64.urlsafe_b64encode(rb'{"v":"\ud800","rv":1,"start":"a"}').decode().rstrip("=")
    code, told = await core.ask("GET", f"{MAPS}?limit=1&continue={wrong}")
    assert code == 400 and told["message"].endswith("server does not recognize this encoded version \ufffd")


@pytest.mark.parametrize(("accept", "compact"), [
    ("application/json;stream=watch", True), ("application/json;stream=", True), ("application/json", True),
    ("application/json;stream=other", False), ("application/json;g=x", False),
    ("application/json" + TABLE, False), ("application/json;as=", False),
])  # fmt: skip
async def test_an_error_is_compact_where_its_own_form_is_accepted(accept: str, compact: bool) -> None:
    found = presented(Response(404, b'{"kind":"Status"}'), accept, False)
    assert found.body == (b'{"kind":"Status"}\n' if compact else b'{\n  "kind": "Status"\n}')


async def test_wrong_options_of_a_watch_come_before_its_form(core: Core) -> None:
    assert (await core.respond("GET", f"{MAPS}?watch=true&labelSelector=!!", accept=YAML)).status == 400


async def test_a_table_comes_in_yaml(core: Core) -> None:
    answer = await core.respond("GET", MAPS, accept=YAML + TABLE)
    assert (answer.status, answer.content_type) == (200, YAML) and b"kind: Table" in answer.body


async def test_a_scale_of_another_object_is_refused(core: Core) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    made = await core.done("POST", SETS, {"metadata": {"name": "n"}, "spec": {"selector": {"a": "b"}, "template": template}})
    found = made["metadata"]["uid"]
    code, answer = await core.ask("PATCH", f"{SETS}/n/scale", {"metadata": {"uid": "1-2-3"}}, content_type=MERGE)
    told = f"Precondition failed: UID in precondition: 1-2-3, UID in object meta: {found}"
    assert (code, answer["message"]) == (
        409, f'Operation cannot be fulfilled on replicationcontrollers/scale "n": {told}',
    )  # fmt: skip
    assert answer["details"] == {"name": "n", "kind": "replicationcontrollers/scale"}
    scale = {"metadata": {"name": "n", "uid": "1-2-3"}, "spec": {"replicas": -1}}
    code, answer = await core.ask("PUT", f"{SETS}/n/scale", scale)
    assert code == 409 and "StorageError: invalid object, Code: 4, Key: /registry/controllers/default/n" in answer["message"]


@pytest.mark.parametrize(
    ("options", "query", "code"),
    [
        ({"propagationPolicy": "Wrong"}, "", 404),
        ({"dryRun": ["Some"]}, "", 404),
        ({"dryRun": ["Some"]}, "?dryRun=All", 500),
        ({}, "", 404),
    ],
)
async def test_an_absent_pod_is_not_found_whatever_the_options(core: Core, options: Json, query: str, code: int) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options}
    status, answer = await core.ask("POST", f"{PODS}/a/eviction{query}", eviction)
    assert status == code
    if code == 500:
        assert answer["message"] == "Non-matching dry-run options in request and content: [All] and [Some]"


@pytest.mark.parametrize(
    ("path", "code"),
    [("nodes/n/proxy", 404), ("namespaces/default/pods/n/proxy/x", 404), ("nodes//proxy/x", 400), ("nodes/n/status", 405)],
)
async def test_options_goes_through_a_proxy(core: Core, path: str, code: int) -> None:
    assert (await core.ask("OPTIONS", f"/api/v1/{path}"))[0] == code


async def test_results_of_health_checks_are_counted(core: Core) -> None:
    for path in ("/readyz", "/readyz?exclude=ping", "/livez/ping"):
        assert (await core.respond("GET", path)).status == 200
    lines = (await core.respond("GET", "/metrics/slis")).body.decode().splitlines()
    assert lines[:2] == [
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.",
        "# TYPE kubernetes_healthcheck gauge",
    ]
    assert 'kubernetes_healthcheck{name="etcd",type="readyz"} 1' in lines
    assert 'kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 2' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 1' in lines
    assert not any("livez" in line for line in lines), "a check by its name is not counted"
    core.api.ready = False
    assert (await core.respond("GET", "/readyz")).status == 500
    lines = (await core.respond("GET", "/metrics/slis")).body.decode().splitlines()
    assert 'kubernetes_healthcheck{name="informer-sync",type="readyz"} 0' in lines
    assert 'kubernetes_healthchecks_total{name="informer-sync",status="error",type="readyz"} 1' in lines
    assert (await core.respond("DELETE", "/metrics/slis")).body == b"metrics reset\n"
    assert (await core.respond("GET", "/metrics/slis")).body == b""
    assert (await core.respond("GET", "/metrics/slis/")).status == 404


@pytest.mark.parametrize("query", ["limit=%zz", "limit=%", "limit=1;x=2", "%zz=1", "x=%z1&limit=1"])
async def test_a_term_of_the_query_that_cannot_be_read_counts_as_none(core: Core, query: str) -> None:
    assert (await core.respond("GET", f"{MAPS}?{query}")).status == 200
    assert (await core.respond("GET", f"{MAPS}?{query}&limit=x")).status == (200 if query.endswith("limit=1") else 400)


@pytest.mark.parametrize("version", ["1.2", "1.0", "2.0"])
async def test_yaml_of_another_version_is_refused(core: Core, version: str) -> None:
    body = "%YAML {}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a-map}}\n"
    code, answer = await core.ask("POST", MAPS, body.format(version).encode(), content_type=YAML)
    assert code == 400 and "(must be of type ConfigMap): yaml: found incompatible YAML document (" in answer["message"]
    behind = ("# x\n" + body.format(version)).encode()
    code, answer = await core.ask("POST", MAPS, behind, content_type=YAML)
    assert code == 400 and "yaml: line 1: found incompatible YAML document (" in answer["message"]
    await core.done("POST", MAPS, body.format("1.1").encode(), YAML)


@pytest.mark.parametrize("version", [None, ""])
@pytest.mark.parametrize("path", [f"{PODS}/a", f"{PODS}/a/status"])
async def test_a_patch_that_takes_the_version_away_leaves_no_name(core: Core, path: str, version: Any) -> None:
    await core.done("POST", PODS, pod("a"))
    code, answer = await core.ask("PATCH", path, {"apiVersion": version}, content_type=MERGE)
    told = "the name of the object (a based on URL) was undeterminable: name must be provided"
    assert (code, answer["message"]) == (400, told)
    assert (await core.ask("PATCH", path, {"kind": version}, content_type=MERGE))[0] == 200


async def test_an_empty_time_is_none(core: Core) -> None:
    made = pod("a")
    made["metadata"]["creationTimestamp"] = ""
    code, answer = await core.ask("POST", PODS, made)
    assert code == 400 and answer["message"].endswith('cannot parse "" as "2006"')


@pytest.mark.parametrize("webhook", [{}, {"conversionReviewVersions": []}])
async def test_a_conversion_webhook_that_says_nothing_is_none(core: Core, webhook: Json) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "gs", "kind": "G"}
    spec = {"group": "w.io", "scope": "Cluster", "names": names, "versions": [version]}
    spec["conversion"] = {"strategy": "None", "webhook": webhook}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
    made = await core.done("POST", path, {"metadata": {"name": "gs.w.io"}, "spec": spec})
    assert made["spec"]["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize(("allowed", "code"), [(0, 429), (1, 422)])
async def test_wrong_options_of_an_eviction_come_after_its_budget(core: Core, allowed: int, code: int) -> None:
    await core.done("POST", PODS, pod("a", node="n", labels={"app": "a"}))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await core.done("PATCH", f"{PODS}/a/status", {"status": ready}, MERGE)
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    await core.done("POST", budgets, {"metadata": {"name": "b"}, "spec": spec})
    counts = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1}
    await core.done("PATCH", f"{budgets}/b/status", {"status": counts}, MERGE)
    body = {"metadata": {"name": "a"}, "deleteOptions": {"propagationPolicy": "Wrong"}}
    assert (await core.ask("POST", f"{PODS}/a/eviction", body))[0] == code
    assert (await core.done("GET", f"{budgets}/b"))["status"]["disruptionsAllowed"] == 0
    assert "deletionTimestamp" not in (await core.done("GET", f"{PODS}/a"))["metadata"]


@pytest.mark.parametrize("sent", [{}, {"rules": None}, {"rules": []}], ids=str)
async def test_what_go_always_prints_is_null(core: Core, sent: Json) -> None:
    roles, nodes = "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/nodes"
    made = await core.done("POST", roles, {"metadata": {"name": "r"}, **sent})
    assert made["rules"] is None
    images = [{"names": value} for value in sent.values()] or [{}]
    made = await core.done("POST", nodes, {"metadata": {"name": "n"}, "status": {"images": images}})
    assert made["status"]["images"] == [{"names": None}]
    patched = await core.done("PATCH", f"{nodes}/n/status", {"status": {"images": images}}, MERGE)
    assert patched["status"]["images"] == [{"names": None}]


@pytest.mark.parametrize(("sent", "owned"), [({"rules": []}, True), ({"rules": None}, False), ({}, False)], ids=str)
async def test_who_creates_with_an_empty_list_owns_it(core: Core, sent: Json, owned: bool) -> None:
    made = await core.done("POST", f"{ROLES}?fieldManager=m", {"metadata": {"name": "r"}, **sent})
    assert made["rules"] is None
    told = [(each["manager"], each["fieldsV1"]) for each in made["metadata"].get("managedFields", ())]
    assert told == ([("m", {"f:rules": {}})] if owned else [])
    node = {"metadata": {"name": "n"}, "spec": {"drivers": sent.get("rules")}}
    made = await core.done("POST", "/apis/storage.k8s.io/v1/csinodes?fieldManager=m", node)
    assert bool(made["metadata"].get("managedFields")) == owned


_RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
_ADDED = [{"op": "add", "path": "/rules", "value": []}]


@pytest.mark.parametrize("first", [b"rules: []", b"rules: [\n]", b"{metadata: {name: r}, rules: [], }"], ids=str)
async def test_who_creates_with_an_empty_list_in_yaml_owns_it(core: Core, first: bytes) -> None:
    body = first if first.startswith(b"{") else b"metadata: {name: r}\n" + first
    made = await core.done("POST", f"{ROLES}?fieldManager=m", body, YAML)
    assert made["rules"] is None and owners(made) == {"m": {"f:rules": {}}}


@pytest.mark.parametrize(("method", "media", "body"), [
    ("PUT", JSON, {"metadata": {"name": "r"}, "rules": []}), ("PUT", YAML, b"metadata: {name: r}\nrules: []"),
    ("PATCH", MERGE, {"rules": []}), ("PATCH", STRATEGIC_MERGE_PATCH, {"rules": []}), ("PATCH", JSON_PATCH, _ADDED),
])  # fmt: skip
@pytest.mark.parametrize("first", [[], [_RULE]], ids=["empty", "one"])
async def test_who_empties_a_list_owns_it(core: Core, method: str, media: str, body: Any, first: Any) -> None:
    await core.done("POST", f"{ROLES}?fieldManager=m", {"metadata": {"name": "r"}, "rules": first})
    made = await core.done(method, f"{ROLES}/r?fieldManager=later", body, media)
    assert made["rules"] is None and owners(made) == {"later": {"f:rules": {}}}
    again = await core.done(method, f"{ROLES}/r?fieldManager=later", body, media)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    null = {"metadata": {"name": "r"}, "rules": None}
    assert owners(await core.done("PUT", f"{ROLES}/r?fieldManager=last", null)) == {"later": {"f:rules": {}}}


@pytest.mark.parametrize("path", ["", "/", "rules", "/rules/-", "/rules/0/verbs", "/metadata/labels/rules"])
async def test_a_patch_of_any_path_is_answered(core: Core, path: str) -> None:
    await core.done("POST", f"{ROLES}?fieldManager=m", {"metadata": {"name": "r"}, "rules": []})
    steps = [*_ADDED, {"op": "add", "path": path, "value": []}]
    response = await core.respond("PATCH", f"{ROLES}/r?fieldManager=later", steps, content_type=JSON_PATCH)
    assert response.status < 500


def owners(made: Json) -> Json:
    return {each["manager"]: each["fieldsV1"] for each in made["metadata"].get("managedFields", ())}
