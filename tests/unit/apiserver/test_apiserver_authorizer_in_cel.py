# ruff: noqa: E501
"""Policies and match conditions that ask the authorizer. Words and reasons are those of kube-apiserver 1.36."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import MAPS, Core, config_map
from turns import Elsewhere, Turns

from minikube_py.api.admission_expressions import CONDITION, condition
from minikube_py.api.admission_policies import ValidatingPolicy
from minikube_py.apiserver import settling
from minikube_py.apiserver.rules import User
from minikube_py.cel.environment import Expression, compile

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]}
BOB = User("bob", ("system:authenticated",))
MAPS_OF = "authorizer.serviceAccount('default', 'robot').group('').resource('configmaps').namespace('default')"
BY_ROLE = "RBAC: allowed by RoleBinding \"writers/default\" of Role \"writers\" to "
CASES: dict[str, tuple[str, str]] = {
    "resource": ("authorizer.group('').resource('configmaps').namespace('default').check('create').reason()", f'{BY_ROLE}User "bob"'),
    "of the request": ("authorizer.requestResource.check('create').reason()", f'{BY_ROLE}User "bob"'),
    "other verb": ("string(authorizer.requestResource.check('delete').allowed())", "false"),
    "other namespace": ("string(authorizer.group('').resource('configmaps').namespace('other').check('create').allowed())", "false"),
    "subresource": ("string(authorizer.requestResource.subresource('status').check('create').allowed())", "false"),
    "account": (f"{MAPS_OF}.check('create').reason()", f'{BY_ROLE}ServiceAccount "robot/default"'),
    "named": (f"{MAPS_OF}.name('one').check('get').reason()", f'{BY_ROLE}ServiceAccount "robot/default"'),
    "named otherwise": (f"string({MAPS_OF}.name('two').check('get').allowed())", "false"),
    "path": ("string(authorizer.path('/healthz').check('get').allowed()) + string(authorizer.path('/secret').check('get').allowed())", "truefalse"),
    "an account without groups": ("string(authorizer.serviceAccount('a', 'b').path('/api').check('get').allowed())", "false"),
    "no path": ("string(authorizer.path(' ').check('get').allowed())", "!path must not be empty"),
    "no resource": ("string(authorizer.group('').resource('').check('get').allowed())", "!resource must not be empty"),
    "no account": ("string(authorizer.serviceAccount('default', 'A').path('/').check('get').allowed())", "!Invalid service account name"),
    "no namespace": ("string(authorizer.serviceAccount('a.b', 'c').path('/').check('get').allowed())", "!Invalid service account namespace"),
    "node": ("string(authorizer.serviceAccount('a', 'b').group('').resource('pods').fieldSelector('spec.nodeName=n').labelSelector('a in (').check('list').allowed())", "false"),
    "errors": ("string(authorizer.requestResource.check('get').errored()) + authorizer.requestResource.check('get').error()", "false"),
    "equality": ("string(authorizer == authorizer)", "false"),
    "two checks": ("string(authorizer.path('/a').check('get').allowed() || authorizer.path('/b').check('get').allowed())", "false"),
    "three checks": ("string(['/a', '/b', '/c'].exists(p, authorizer.path(p).check('get').allowed()))", "!operation cancelled: actual cost limit exceeded"),
}  # fmt: skip


async def bound(core: Core, spec: dict[str, Any]) -> None:
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": {"matchConstraints": RULES, **spec}})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding)


async def allowed(core: Core) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}, {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]}]
    await core.done("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "writers"}, "rules": rules})
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}, {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writers"}
    await core.done("POST", f"{RBAC}/namespaces/default/rolebindings", {"metadata": {"name": "writers"}, "roleRef": role, "subjects": subjects})


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("name", CASES)
async def test_what_a_check_says(core: Core, name: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expression, wanted = CASES[name]
    await allowed(core)
    await bound(core, {"variables": [{"name": "v", "expression": expression}], "validations": [{"expression": "{'x': true}[variables.v]"}]})
    if elsewhere:
        core.api.hand_work_to(Elsewhere(Turns()))
        monkeypatch.setattr(settling, "STEPS_MAX", 0)
    code, answer = await core.ask("POST", MAPS, config_map("a"), user=BOB)
    assert code == 422, answer
    told = f"fails to evaluate: {wanted[1:]}" if wanted.startswith("!") else f"no such key: {wanted}"
    assert answer["message"].endswith(told), answer["message"]


async def test_conditions_and_mutations_ask_too(core: Core) -> None:
    await allowed(core)
    conditions = [{"name": "c", "expression": "!authorizer.requestResource.check('breakglass').allowed()"}]
    await bound(core, {"matchConditions": conditions, "validations": [{"expression": "false", "message": "no"}]})
    assert (await core.ask("POST", MAPS, config_map("a"), user=BOB))[0] == 422
    assert (await core.ask("POST", MAPS, config_map("a")))[0] == 201, "the administrator may do everything"
    await core.done("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
    patch = "Object{data: {'may': string(authorizer.requestResource.check('create').allowed() && !authorizer.requestResource.check('delete').allowed())}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}]
    spec = {"matchConstraints": RULES, "mutations": mutations, "reinvocationPolicy": "Never"}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": {"policyName": "p"}})
    code, answer = await core.ask("POST", MAPS, config_map("b"), user=BOB)
    assert (code, answer.get("data")) == (201, {"may": "true"}), answer


async def test_conditions_of_webhooks_ask_too(core: Core) -> None:
    await allowed(core)
    conditions = [{"name": "c", "expression": "authorizer.requestResource.check('breakglass').allowed()"}]
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]
    hook = {"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    await core.done("POST", f"{ADMISSION}/validatingwebhookconfigurations", {"metadata": {"name": "h"}, "webhooks": [{**hook, "matchConditions": conditions}]})
    assert (await core.ask("POST", MAPS, config_map("a"), user=BOB))[0] == 201
    code, answer = await core.ask("POST", MAPS, config_map("b"))
    assert code == 500 and "failed calling webhook" in answer["message"]


async def test_messages_do_not_ask(core: Core) -> None:
    variables = [{"name": "v", "expression": "string(authorizer.path('/').check('get').allowed())"}]
    await bound(core, {"variables": variables, "validations": [{"expression": "variables.v == 'x'", "messageExpression": "variables.v", "message": "no"}]})
    assert (await core.ask("POST", MAPS, config_map("a")))[1]["message"].endswith("denied request: no")


def test_costs() -> None:
    found = condition("authorizer.group('').resource('pods').labelSelector('a=b').check('get').allowed()")
    assert isinstance(found, Expression) and found.cost > 350_000
    assert compile("authorizer.requestResource.check('get').allowed()", CONDITION).cost == 350_002


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_policy_is_evaluated_once_more_for_all_its_checks(core: Core, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []
    denials = ValidatingPolicy.denials

    def counted(policy: ValidatingPolicy, *given: Any) -> Any:
        evaluated.append(policy)
        return denials(policy, *given)

    monkeypatch.setattr(ValidatingPolicy, "denials", counted)
    checks = [f"!authorizer.path('/{number}').check('get').allowed()" for number in range(12)]
    await allowed(core)
    variables = [{"name": "v", "expression": "authorizer.path('/a').check('get').allowed() ? 'a' : authorizer.path('/b').check('get').reason()"}]
    await bound(core, {
        "variables": variables, "matchConditions": [{"name": "c", "expression": checks[0]}],
        "validations": [*({"expression": f"{each} && {other}"} for each, other in zip(checks[:6], checks[6:], strict=True)), {"expression": "variables.v == 'x'"}],
    })  # fmt: skip
    if elsewhere:
        core.api.hand_work_to(Elsewhere(Turns()))
        monkeypatch.setattr(settling, "STEPS_MAX", 0)
    code, answer = await core.ask("POST", MAPS, config_map("a"), user=BOB)
    assert code == 422 and answer["message"].endswith("failed expression: variables.v == 'x'"), answer
    # Once until the work leaves the event loop; for the condition; for all other checks; for the one that depends on another; with all answers.
    assert len(evaluated) == 5
