"""Audit events of an API server, and the policy that chooses them. `tests/conformance` compares them with upstream."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from api_core import MAPS, MERGE, PODS, Core, config_map, pod
from virtual_time import LoopClock

from minikube_py.api import yaml_text
from minikube_py.apiserver.audit import Auditor
from minikube_py.apiserver.audit_policy import Attributes, AuditPolicy, PolicyError, parse_policy
from minikube_py.apiserver.audit_requests import attributes_of
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request, Response, parse_query
from minikube_py.apiserver.outgoing import Answer, NoAnswer
from minikube_py.apiserver.rules import AUTHENTICATED, MASTERS, User

Json = dict[str, Any]
JANE = User("jane", (AUTHENTICATED,))


def policy(*rules: Json, **more: Any) -> AuditPolicy:
    return parse_policy(orjson.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}))


class Lines:
    """A sink in memory. `fails`: events are lost."""

    def __init__(self, blocks: bool = True, strict: bool = False) -> None:
        self.blocks, self.strict, self.fails = blocks, strict, False
        self.lines: list[Json] = []

    def post(self, line: bytes) -> asyncio.Future[bool] | None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        if not self.fails:
            self.lines.append(orjson.loads(line))
            return None
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(False)
        return future

    async def stop(self) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}

    def stages(self) -> list[str]:
        return [each["stage"] for each in self.lines]


@pytest.fixture
async def log(core: Core) -> AsyncIterator[Lines]:
    """Everything is logged, to this."""
    yield use(core, Lines(), {"level": "RequestResponse"})


def use(core: Core, sink: Lines, *rules: Json, **more: Any) -> Lines:
    core.api.auditor = Auditor(policy(*rules, **more), sink, LoopClock(), core.api.rng)
    return sink


# --- the policy -------------------------------------------------------------------------------------------------------

GET_POD = Attributes("get", "/api/v1/namespaces/a/pods/p", True, "", "v1", "pods", "", "a", "p")
LOGS = GET_POD._replace(subresource="log")
SCALE = Attributes("update", "", True, "apps", "v1", "deployments", "scale", "a", "d")
HEALTH = Attributes("get", "/healthz/etcd")
MATCHES = [
    ({}, GET_POD, True),
    ({"users": ["jane"]}, GET_POD, True),
    ({"users": ["admin"]}, GET_POD, False),
    ({"userGroups": ["x", AUTHENTICATED]}, GET_POD, True),
    ({"userGroups": [MASTERS]}, GET_POD, False),
    ({"verbs": ["list"]}, GET_POD, False),
    ({"namespaces": ["a"]}, GET_POD, True),
    ({"namespaces": [""]}, GET_POD, False),
    ({"namespaces": [""]}, HEALTH, False),
    ({"resources": [{"group": ""}]}, GET_POD, True),
    ({"resources": [{"group": "apps"}]}, GET_POD, False),
    ({"resources": [{"group": "*", "resources": ["pods"]}]}, GET_POD, True),
    ({"resources": [{"resources": ["pods"]}]}, LOGS, False),
    ({"resources": [{"resources": ["pods/log"]}]}, LOGS, True),
    ({"resources": [{"resources": ["pods/*"]}]}, LOGS, True),
    ({"resources": [{"resources": ["pods/*"]}]}, GET_POD, True),
    ({"resources": [{"resources": ["*/log"]}]}, GET_POD, False),
    ({"resources": [{"group": "apps", "resources": ["*/scale"]}]}, SCALE, True),
    ({"resources": [{"resources": ["*"], "resourceNames": ["q"]}]}, GET_POD, False),
    ({"resources": [{"resources": ["*"], "resourceNames": ["q", "p"]}]}, GET_POD, True),
    ({"nonResourceURLs": ["/healthz*"]}, HEALTH, True),
    ({"nonResourceURLs": ["/healthz"]}, HEALTH, False),
    ({"nonResourceURLs": ["*"]}, GET_POD, False),
]


@pytest.mark.parametrize(("rule", "asked", "matches"), MATCHES)
def test_a_rule_matches_as_upstreams_does(rule: Json, asked: Attributes, matches: bool) -> None:
    assert policy({"level": "Metadata", **rule}).decide(JANE, asked).level == int(matches)


def test_the_first_rule_decides_and_stages_add_up() -> None:
    request = {"level": "Request", "omitStages": ["Panic"], "omitManagedFields": False}
    rules = {"level": "None", "verbs": ["list"]}, request
    found = policy(*rules, omitStages=["RequestReceived"], omitManagedFields=True)
    assert found.decide(JANE, GET_POD) == (2, {"Panic", "RequestReceived"}, False)
    assert found.decide(None, GET_POD._replace(verb="list")) == (0, {"RequestReceived"}, True)


HEAD = "kind: Policy\napiVersion: audit.k8s.io/v1\n"
BAD = {
    HEAD: "loaded illegal policy with 0 rules",
    f"{HEAD}rules: [{{}}]": "rules[0].level: Required value",
    f"{HEAD}rules: [{{level: x}}]": (
        'rules[0].level: Unsupported value: "x": supported values: "None", "Metadata", "Request", "RequestResponse"'
    ),
    f"{HEAD}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]": (
        "rules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final "
        "character of the rule"
    ),
    f"{HEAD}rules: [{{level: None, omitStages: [x]}}]": (
        'rules[0].omitStages[0]: Invalid value: "x": allowed stages are '
        "RequestReceived,ResponseStarted,ResponseComplete,Panic"
    ),
    f"{HEAD}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]": (
        'rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource'
    ),
    f"{HEAD}rules: []".replace("v1", "v1beta1"): (
        'failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1" in scheme '
        '"pkg/runtime/scheme.go:111"'
    ),
    "kind: Pod": (
        'failed decoding: no kind "Pod" is registered for the internal version of group "audit.k8s.io" in scheme '
        '"pkg/runtime/scheme.go:111"'
    ),
    "rules: []": "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy",
    HEAD.replace("Policy", "Event"): "failed decoding: converting (v1.Event) to (audit.Policy): unknown conversion",
    f"{HEAD}rules: [{{level: 3}}]": (
        "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type v1.Level"
    ),
    f"{HEAD}omitStages: 3": (
        "failed decoding: json: cannot unmarshal number into Go struct field Policy.omitStages of type []v1.Stage"
    ),
    f"{HEAD}rules: x": (
        "failed decoding: json: cannot unmarshal string into Go struct field Policy.rules of type []v1.PolicyRule"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_bad_policy_is_refused_in_upstreams_words(text: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text.encode())
    assert str(refused.value) == BAD[text]


def test_unknown_fields_of_a_policy_are_told_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    assert policy({"level": "Metadata", "usrs": ["x"]}).decide(JANE, GET_POD).level == 1
    assert 'unknown field "rules[0].usrs"' in caplog.text


LISTED = Attributes("list", "/api/v1/pods", True, "", "v1", "pods")
PATHS = {
    ("GET", "/api/v1/pods?watch=1"): Attributes("watch", "/api/v1/pods", True, "", "v1", "pods"),
    ("GET", "/api/v1/watch/pods"): Attributes("watch", "/api/v1/watch/pods", True, "", "v1", "pods"),
    ("DELETE", "/apis/g/v1/x"): Attributes("deletecollection", "/apis/g/v1/x", True, "g", "v1", "x"),
    ("GET", "/api/v1/pods?fieldSelector=metadata.name=a"): LISTED._replace(name="a"),
    ("GET", "/api/v1/pods?limit=x&fieldSelector=metadata.name=a"): LISTED,
    ("PUT", "/api/v1/namespaces/a/finalize"): Attributes(
        "update", "/api/v1/namespaces/a/finalize", True, "", "v1", "namespaces", "finalize", "a", "a"
    ),
    ("GET", "/api/v1"): Attributes("get", "/api/v1"),
    ("HEAD", "/apis/g/v1"): Attributes("head", "/apis/g/v1"),
}  # fmt: skip


@pytest.mark.parametrize("asked", PATHS)
def test_attributes_follow_from_the_path_alone(asked: tuple[str, str]) -> None:
    path, _, query = asked[1].partition("?")
    assert attributes_of(path, asked[0], parse_query(query)) == PATHS[asked]


# --- events -----------------------------------------------------------------------------------------------------------


async def test_a_create_is_told_in_two_stages(core: Core, log: Lines) -> None:
    await core.ask("POST", PODS, pod("a"))
    received, complete = log.lines
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"] and "requestObject" not in received
    assert complete["verb"] == "create" and complete["user"]["username"] == "admin"
    reference = {"resource": "pods", "namespace": "default", "name": "a", "apiVersion": "v1"}
    assert complete["objectRef"] == reference
    assert complete["responseStatus"] == {"metadata": {}, "code": 201}
    assert complete["requestObject"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert complete["responseObject"]["metadata"]["uid"] and complete["responseObject"]["kind"] == "Pod"
    assert complete["annotations"] == {
        "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "",
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
    }  # fmt: skip


@pytest.mark.parametrize(("level", "shown"), [("Metadata", ()), ("Request", ("requestObject",)), ("None", None)])
async def test_a_level_bounds_what_is_told(core: Core, level: str, shown: tuple[str, ...] | None) -> None:
    log = use(core, Lines(), {"level": level, "verbs": ["create"]}, omitStages=["RequestReceived"])
    await core.ask("POST", MAPS, config_map("a"))
    await core.ask("GET", f"{MAPS}/a")
    found = [{*each} & {"requestObject", "responseObject"} for each in log.lines]
    assert found == ([] if shown is None else [{*shown}])


async def test_refusals_show_their_status_at_every_level(core: Core) -> None:
    log = use(core, Lines(), {"level": "Metadata"}, omitStages=["RequestReceived"])
    await core.ask("GET", f"{MAPS}/none")
    await core.ask("GET", f"{MAPS}/none", user=JANE)
    none, forbidden = log.lines
    assert none["responseStatus"]["reason"] == "NotFound" and none["responseStatus"]["code"] == 404
    assert forbidden["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    assert forbidden["responseStatus"]["code"] == 403


async def test_impersonation_tells_both_users(core: Core, log: Lines) -> None:
    asked = Request("GET", PODS, user=ADMIN, wanted=User("jane"))
    assert (await core.api.handle(asked)).status == 403
    event = log.lines[-1]
    assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("admin", "jane")
    assert event["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}


class Door:
    """Two mutating webhooks: the first patches, the second cannot be reached."""

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        if "/down" in url:
            raise NoAnswer("EOF")
        review = orjson.loads(body)
        patch = base64.b64encode(b'[{"op":"add","path":"/data","value":{"x":"<y>"}}]').decode()
        notes = {"why": "because", "not a key!": "x"}
        response = {"allowed": True, "patchType": "JSONPatch", "patch": patch, "auditAnnotations": notes}
        return Answer(200, {}, orjson.dumps({**review, "response": {"uid": review["request"]["uid"], **response}}))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("level", ["Metadata", "Request"])
async def test_webhooks_tell_what_they_changed_and_which_failed_open(core: Core, level: str) -> None:
    core.api.webhook_caller.outgoing = Door()
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    hooks = [
        {
            "name": f"{name}.example.com", "clientConfig": {"url": f"https://hook.example/{name}"}, "rules": rules,
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        }
        for name in ("up", "down")
    ]  # fmt: skip
    given = {"metadata": {"name": "hooks"}, "webhooks": hooks}
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    assert (await core.ask("POST", path, given))[0] == 201
    log = use(core, Lines(), {"level": level})
    assert (await core.ask("POST", MAPS, {"metadata": {"name": "a"}}))[0] == 201
    key = "webhook.admission.k8s.io/round_0_index_"
    named = '{"configuration":"hooks","webhook":"%s.example.com",'
    patch = '"patch":[{"op":"add","path":"/data","value":{"x":"\\u003cy\\u003e"}}],"patchType":"JSONPatch"}'
    expected = {
        "up.example.com/why": "because",
        f"mutation.{key}0": named % "up" + '"mutated":true}',
        f"mutation.{key}1": named % "down" + '"mutated":false}',
        f"failed-open.mutation.{key}1": "down.example.com",
        **({f"patch.{key}0": named % "up" + patch} if level == "Request" else {}),
    }
    found = log.lines[-1]["annotations"]
    assert {name: found[name] for name in found if "example.com" in name or "webhook" in name} == expected


async def test_a_policy_tells_its_annotations_and_what_it_would_deny(core: Core, log: Lines) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}, {"expression": "object.metadata.name != 'bad'", "message": "no <b>"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "' ' + object.metadata.name + ' '"}],
    }
    assert (await core.ask("POST", path, {"metadata": {"name": "p.example"}, "spec": spec}))[0] == 201
    binding = {"policyName": "p.example", "validationActions": ["Audit"]}
    assert (await core.ask("POST", f"{path[:-3]}ybindings", {"metadata": {"name": "b"}, "spec": binding}))[0] == 201
    assert (await core.ask("POST", MAPS, config_map("bad")))[0] == 201
    found = log.lines[-1]["annotations"]
    assert found["p.example/who"] == "bad"
    assert found["validation.policy.admission.k8s.io/validation_failure"] == (
        '[{"message":"no \\u003cb\\u003e","policy":"p.example","binding":"b","expressionIndex":1,'
        '"validationActions":["Audit"]}]'
    )


async def test_a_watch_starts_and_completes(core: Core, log: Lines) -> None:
    events = await core.watch(PODS)
    assert log.stages() == ["RequestReceived", "ResponseStarted"]
    events.close()
    events.close()
    assert log.stages() == ["RequestReceived", "ResponseStarted", "ResponseComplete"]


async def test_a_bug_is_told_as_a_panic(core: Core, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Response:
        raise KeyError("gone")

    monkeypatch.setattr(core.api, "_dispatch", broken)
    await core.ask("GET", PODS)
    assert log.stages() == ["RequestReceived", "Panic"]
    assert log.lines[-1]["responseStatus"]["message"] == "APIServer panic'd: 'gone'"


async def test_a_patch_is_shown_as_sent_and_one_in_yaml_loses_its_event(core: Core, log: Lines) -> None:
    await core.ask("POST", MAPS, config_map("a"))
    await core.ask("PATCH", f"{MAPS}/a", {"data": {"x": None}}, content_type=MERGE)
    assert log.lines[-1]["requestObject"] == {"data": {"x": None}}
    text = b"kind: ConfigMap\napiVersion: v1\n"
    await core.ask("PATCH", f"{MAPS}/a?fieldManager=m", text, content_type="application/apply-patch+yaml")
    assert log.stages()[-2:] == ["ResponseComplete", "RequestReceived"]
    assert core.api.auditor is not None
    assert core.api.auditor.metrics()['apiserver_audit_error_total{plugin="log"}'] == 1


async def test_managed_fields_are_omitted_where_the_policy_says_so(core: Core) -> None:
    applied = "application/apply-patch+yaml"
    for omits in (False, True):
        log = use(core, Lines(), {"level": "RequestResponse", "omitManagedFields": omits})
        await core.ask("PATCH", f"{MAPS}/a?fieldManager=m", config_map("a", x=str(omits)), content_type=applied)
        await core.ask("GET", MAPS)
        answer = log.lines[1]["responseObject"]["metadata"]
        assert ("managedFields" in answer) is not omits
    items = log.lines[3]["responseObject"]["items"]
    assert items and all("managedFields" not in each["metadata"] for each in items)


async def test_only_blocking_strict_fails_a_request_whose_event_is_lost(core: Core) -> None:
    for strict, code in ((False, 200), (True, 500)):
        log = use(core, Lines(strict=strict), {"level": "Metadata"})
        log.fails = True
        answer = await core.respond("GET", PODS)
        assert answer.status == code and (b"failed to store audit event" in answer.body) is strict


async def test_a_request_that_is_cancelled_completes(core: Core, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = asyncio.Event()

    async def hangs(*_: Any) -> Response:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(core.api, "_dispatch", hangs)
    task = asyncio.create_task(core.ask("GET", PODS))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.lines[-1]["responseStatus"]["message"] == "Connection closed early"


async def test_without_an_auditor_a_request_is_not_touched(core: Core) -> None:
    asked = Request("POST", PODS, body=orjson.dumps(pod("a")), user=ADMIN)
    assert (await core.api.handle(asked)).status == 201
    assert asked.audit is None


async def test_an_answer_in_yaml_is_logged_without_being_read_again(
    core: Core, log: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await core.ask("POST", MAPS, config_map("a", k="v"))
    monkeypatch.setattr(yaml_text, "documents", lambda *_: pytest.fail("YAML was parsed"))
    log.lines.clear()
    answer = await core.respond("GET", f"{MAPS}/a", None, "application/yaml", "", ADMIN)
    assert answer.content_type == "application/yaml" and b"k: v" in answer.body
    assert log.lines[-1]["responseObject"]["data"] == {"k": "v"}
